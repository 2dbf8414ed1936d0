/* SPDX-License-Identifier: MIT
 * completion_line.c - what the last word of a command line may be: a verb, an option, a value of an option,
 * or a word that the verb takes. All of it comes from the tables of the verbs and of the keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/completion.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/diagnose/check.h"

enum { BEFORE_MAX = 64 };

typedef struct line {
  const bsrun_verb *of, *verb;    /* of: NULL, or the verb that `verb` is a second word of */
  const args_option *waiting;     /* the option whose value is typed; NULL: none */
  const char *root;               /* of the runs */
  const char *before[BEFORE_MAX]; /* words after the verb that are not options */
  size_t n_before;
  const char *prefix, *last; /* a candidate that begins with `last` is printed after the prefix */
  size_t prefix_length;
} line;

static void offer(const line *l, const char *word, const char *what) {
  if (word[0] != ':' && strncmp(word, l->last, strlen(l->last)) != 0) return;
  printf("%.*s%s\t%s\n", word[0] == ':' ? 0 : (int)l->prefix_length, l->prefix, word, what);
}

/* Kinds with blanks between. */
static void offer_kinds(const line *l, const char *kinds);

/* The words of "a|b|c". */
static void offer_words(const line *l, const char *words) {
  char word[64];
  for (size_t n; words[0] != '\0'; words += n + (words[n] == '|')) {
    n = strcspn(words, "|");
    snprintf(word, sizeof word, "%.*s", (int)n, words);
    offer(l, word, "");
  }
}

/* "method=", "n=", ...: short for their keys. */
static void offer_short_names(const line *l) {
  const char *names[BS_SHORT_NAMES_MAX];
  char word[64];
  for (size_t i = 0, n = bs_short_names(names); i < n; i++) {
    snprintf(word, sizeof word, "%s=", names[i]);
    offer(l, word, bs_short_name_key(names[i]));
  }
}

/* Offers keys, and after KEY= the values of a key that has a list of them. */
static void offer_settings(const line *given) {
  static const char *const of[][2] = {{"method.name", "methods"},     {"mask.name", "masks"},
                                      {"workload.name", "workloads"}, {"hardware.backend", "backends"},
                                      {"hardware.comm", "comms"},     {"hardware.algorithm", "algorithms"},
                                      {"phase.name", "phases"},       {"hardware.name", "hardware"}};
  line l = *given;
  const size_t n = strcspn(l.last, "=");
  char key[96], values[512], start[256];
  if (l.last[n] == '\0') {
    offer_kinds(&l, "keys");
    return;
  }
  snprintf(key, sizeof key, "%.*s", (int)n, l.last);
  snprintf(start, sizeof start, "%.*s%s=", (int)l.prefix_length, l.prefix, key);
  l.prefix = start;
  l.prefix_length = strlen(start);
  l.last += n + 1;
  const char *path = bs_short_name_key(key);
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
    if (strcmp(of[i][0], path) == 0) offer_kinds(&l, of[i][1]);
  const bs_key *known = bs_schema_find(path);
  if (known == NULL) return;
  bs_key_range(known, values, sizeof values);
  const char *type = bs_key_type_name(known->type);
  if (strchr(values, '|') != NULL) offer_words(&l, values);
  if (strcmp(type, "true or false") == 0) offer_words(&l, "true|false");
  if (strcmp(type, "dtype") == 0) offer_kinds(&l, "dtypes");
}

static void offer_kinds(const line *l, const char *kinds) {
  char kind[256];
  for (size_t n; kinds[0] != '\0'; kinds += n + (kinds[n] == ' ')) {
    n = strcspn(kinds, " ");
    snprintf(kind, sizeof kind, "%.*s", (int)n, kinds);
    if (strchr(kind, '|') != NULL) {
      offer_words(l, kind);
    } else if (kind[0] == ':') {
      offer(l, kind, "");
    } else if (strcmp(kind, "settings") == 0) {
      offer_settings(l);
    } else if (strcmp(kind, "specs") == 0) {
      if (strchr(l->last, '=') != NULL) offer_settings(l);
      if (l->last[0] != '\0' && strchr(l->last, '=') == NULL) offer_short_names(l);
    } else if (strcmp(kind, "checks") == 0) {
      for (size_t i = 0; i < bs_n_checks; i++) offer(l, bs_checks[i].id, bs_checks[i].title);
    } else if (strcmp(kind, "verbs") == 0) {
      for (size_t i = 0; bsrun_verb_at(i) != NULL; i++)
        offer(l, bsrun_verb_at(i)->name, bsrun_verb_at(i)->summary);
    } else {
      json_t *names = json_array();
      if (strcmp(kind, "runs") == 0)
        bsrun_add_runs(names, l->root);
      else
        bsrun_names(kind, names, NULL);
      for (size_t i = 0; i < json_array_size(names); i++)
        offer(l, json_string_value(json_array_get(names, i)), "");
      json_decref(names);
    }
  }
}

/* The values of options whose table does not list them. verb NULL: every verb that has the option. */
static const struct {
  const char *of, *verb, *option, *kinds;
} values[] = {
    {"plugins", "check", "output", "text|tap|json"},
    {NULL, "torture", "output", "text|tap|json"},
    {"model", "explain", "output", "text|json"},
    {"model", "generate", "output", "text|json"},
    {NULL, NULL, "output", "formats"},
    {NULL, NULL, "method", "methods"},
    {NULL, NULL, "mask", "masks"},
    {NULL, NULL, "no-pass", "passes"},
    {NULL, NULL, "algorithm", "algorithms"},
    {NULL, NULL, "coll", "collectives"},
    {NULL, NULL, "workload", "workloads"},
    {NULL, NULL, "hardware", "hardware :file"},
    {NULL, NULL, "sweep", "sweeps"},
    {NULL, NULL, "phase", "numbers|time|backward|train"},
    {NULL, NULL, "backend", "backends"},
    {NULL, NULL, "comm", "comms"},
    {NULL, NULL, "plugin", "plugins :file"},
    {NULL, NULL, "dtype", "dtypes"},
    {NULL, NULL, "reduce-dtype", "dtypes"},
    {NULL, NULL, "activation", "activations"},
    {NULL, NULL, "kind", "skeletons"},
    {"plugins", "new", "op", "activate|attention|map|matmul|normalize"},
    {NULL, NULL, "op", "ops"},
    {NULL, NULL, "set", "settings"},
    {NULL, NULL, "vary", "settings specs"},
    {NULL, NULL, "ablate", "settings"},
    {NULL, NULL, "strategy", "full|random|fast|elite|mixed|point"},
    {NULL, NULL, "provider", "backends"},
    {NULL, "diagnose", "only", "checks"},
    {NULL, "diagnose", "skip", "checks"},
    {NULL, NULL, "launch", "threads|processes|mpi"},
    {NULL, NULL, "fault", "err|hang|delay|late|flip|nan|truncate|kill|stop"},
    {NULL, NULL, "weak", "b|n|k"},
    {NULL, NULL, "product", "forward|dx|dw"},
    {NULL, NULL, "preset", "quick|full|large"},
    {"coll", "check", "only", "V4|V0|V1|V2|V6"},
    {"plugins", "check", "only",
     "abi|lifecycle|truth|numerics|method|communicator|workload|algorithm|threads|hygiene"},
};

static int is(const char *wanted, const bsrun_verb *verb) {
  return wanted == NULL || (verb != NULL && strcmp(wanted, verb->name) == 0);
}

/* "on|off", "FILE|off", "DIR": words as they are, places by the shell. */
static void offer_value_name(const line *l, const char *name) {
  for (size_t n; name[0] != '\0'; name += n + (name[n] == '|')) {
    char word[64];
    n = strcspn(name, "|");
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    if (strncmp(word, "FILE", 4) == 0 || strcmp(word, "PATH") == 0)
      offer(l, ":file", "");
    else if (strcmp(word, "DIR") == 0)
      offer(l, ":dir", "");
    else if (word[0] >= 'a' && word[0] <= 'z')
      offer(l, word, "");
  }
}

/* The words of an option that has some: "bias", "y=". */
static void offer_words_of(const line *l, const args_option *option) {
  for (const args_option *o = l->verb->options; o->id != OPT_END; o++) {
    const args_meaning *is_word = args_is(o);
    char word[64];
    if (is_word->of != option->id) continue;
    snprintf(word, sizeof word, "%s%s", is_word->name, is_word->value != NULL ? "=" : "");
    offer(l, word, is_word->doc);
  }
}

static void offer_values(const line *l, const args_option *option) {
  offer_words_of(l, option);
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    if (strcmp(values[i].option, args_name(option)) != 0 || !is(values[i].of, l->of) ||
        !is(values[i].verb, l->verb))
      continue;
    offer_kinds(l, values[i].kinds);
    return;
  }
  offer_value_name(l, args_is(option)->value);
}

static void offer_options(const line *l) {
  static const args_option help[] = {ARGS_HELP};
  const args_option *o = l->verb->options != NULL ? l->verb->options : help;
  for (; o->id != OPT_END; o++) {
    const args_meaning *means = args_is(o);
    char word[64];
    if (means->of != 0 || (o->flags & ARGS_HIDDEN) != 0) continue;
    snprintf(word, sizeof word, "--%s", means->name);
    offer(l, word, means->doc);
  }
}

static void offer_subverbs(const line *l, const bsrun_verb *verb) {
  for (size_t i = 0; verb != NULL && verb->subverbs != NULL && verb->subverbs[i] != NULL; i++)
    offer(l, verb->subverbs[i]->name, verb->subverbs[i]->summary);
}

/* The names of the configuration keys. */
static void offer_key_names(const line *l) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) offer(l, keys[i].path, "");
}

/* Offers a word that the verb takes; for some verbs its kind depends on the word before. */
static void offer_taken(const line *l) {
  const bsrun_verb *verb = l->verb;
  const char *first = l->n_before > 0 ? l->before[0] : NULL;
  if (verb->subverbs != NULL) {
    offer_subverbs(l, verb);
  } else if (verb == &verb_help && first != NULL) {
    if (l->n_before == 1) offer_subverbs(l, bsrun_find_verb(first, NULL));
  } else if (l->of == &verb_completion && first != NULL) {
    if (l->n_before == 1) offer_kinds(l, "verbs");
    if (l->n_before == 2) offer_subverbs(l, bsrun_find_verb(l->before[1], NULL));
  } else if (l->of == &verb_config && strcmp(verb->name, "keys") == 0) {
    if (first == NULL) offer_key_names(l);
  } else if (verb == &verb_explain && first != NULL) {
    if (l->n_before == 1 && strcmp(first, "mask") == 0) offer_kinds(l, "masks");
    if (l->n_before == 1 && strcmp(first, "method") == 0) offer_kinds(l, "methods");
  } else if (verb->takes != NULL && l->n_before < verb->max_words) {
    offer_kinds(l, verb->takes);
  }
}

static const args_option *find_option(const args_option *options, const char *word, size_t length) {
  for (; options != NULL && options->id != OPT_END; options++) {
    const args_meaning *means = args_is(options);
    const int by_letter = length == 2 && means->letter == word[1] && means->letter != 0;
    const int by_name = length > 2 && word[1] == '-' && strlen(means->name) == length - 2 &&
                        strncmp(means->name, word + 2, length - 2) == 0;
    if (means->of == 0 && (by_letter || by_name)) return options;
  }
  return NULL;
}

/* The options and words before the last. */
static void read_before(line *l, const char *const *words, size_t n) {
  for (size_t i = 0; i + 1 < n; i++) {
    const size_t length = strcspn(words[i], "=");
    const args_option *option = words[i][0] == '-' ? find_option(l->verb->options, words[i], length) : NULL;
    const char *value = words[i][length] == '=' ? words[i] + length + 1 : NULL;
    if (words[i][0] != '-' && l->n_before < BEFORE_MAX) l->before[l->n_before++] = words[i];
    if (option == NULL || args_is(option)->value == NULL) continue;
    if (value == NULL && i + 2 == n) l->waiting = option;
    if (value == NULL) value = words[++i];
    if (option->id == OPT_OUT) l->root = value;
  }
}

static void offer_last(line *l) {
  const size_t length = strcspn(l->last, "=");
  const args_option *option =
      l->last[0] == '-' && l->last[length] == '=' ? find_option(l->verb->options, l->last, length) : NULL;
  if (l->waiting != NULL) {
    offer_values(l, l->waiting);
  } else if (option != NULL && args_is(option)->value != NULL) {
    l->prefix = l->last;
    l->prefix_length = length + 1;
    l->last += length + 1;
    offer_values(l, option);
  } else if (l->last[0] == '-') {
    offer_options(l);
  } else {
    offer_taken(l);
  }
}

int32_t completion_line(const char *const *words, size_t n, bs_error *err) {
  line l = {.verb = &verb_run, .root = "results/raw", .prefix = "", .last = n > 0 ? words[n - 1] : ""};
  (void)err;
  if (n <= 1 && l.last[0] != '-') {
    offer_kinds(&l, "verbs");
    return BS_OK;
  }
  if (words[0][0] != '-') {
    l.verb = bsrun_find_verb(words[0], NULL);
    words++;
    n--;
  }
  if (l.verb != NULL && l.verb->subverbs != NULL && n > 1) {
    l.of = l.verb;
    l.verb = bsrun_find_subverb(l.of, words[0], NULL);
    words++;
    n--;
  }
  if (l.verb == NULL) return BS_OK; /* there is no such verb: nothing fits */
  read_before(&l, words, n);
  offer_last(&l);
  return BS_OK;
}
