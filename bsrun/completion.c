/* SPDX-License-Identifier: MIT
 * completion.c - `bsrun completion`: the scripts of completion.bash and completion.zsh, what they ask for a
 * line, and names by their kind. */
#include <stdio.h>
#include <string.h>

#include "bsrun/completion.h"
#include "bsrun/completion_scripts.h" /* made of the scripts by CMake: completion_bash[], completion_zsh[] */

/* The options of "torture" or "model", "info"; NULL: there is no such verb. */
static const args_option *options_of(const char *const *words) {
  const bsrun_verb *verb = bsrun_find_verb(words[0], NULL);
  if (verb != NULL && verb->subverbs != NULL)
    verb = words[1] != NULL ? bsrun_find_subverb(verb, words[1], NULL) : NULL;
  return verb != NULL ? verb->options : NULL;
}

/* only_valued: those that take a value. */
static void print_options(const char *const *words, int only_valued) {
  const args_option *o = options_of(words);
  for (size_t k = 0; o != NULL && o[k].id != OPT_END; k++) {
    const args_meaning *is = args_is(&o[k]);
    if (is->of != 0 || (o[k].flags & ARGS_HIDDEN) != 0 || (only_valued && is->value == NULL)) continue;
    printf("--%s\n", is->name);
    if (is->letter != 0) printf("-%c\n", is->letter);
  }
  if (o == NULL && !only_valued) fputs("--help\n-h\n", stdout); /* every verb has that */
}

/* The words that an option of a verb takes: "bias", "y=". */
static void print_within(const char *name, const char *const *words) {
  const args_option *o = options_of(words);
  for (size_t k = 0; o != NULL && o[k].id != OPT_END; k++) {
    const args_meaning *is = args_is(&o[k]);
    if (is->of != 0 && strcmp(args_meanings[is->of].name, name + strspn(name, "-")) == 0)
      printf("%s%s\n", is->name, is->value != NULL ? "=" : "");
  }
}

static void print_meanings_of(const bsrun_verb *of, const bsrun_verb *verb) {
  for (size_t k = 0; verb->options != NULL && verb->options[k].id != OPT_END; k++) {
    const args_option *o = &verb->options[k];
    const args_meaning *is = args_is(o);
    const char letter[2] = {is->letter, '\0'};
    printf("%s%s%s\t%s%s%s\t%s\t%s\t%s\t%s\t%s\n", of != NULL ? of->name : "", of != NULL ? " " : "",
           verb->name, is->of != 0 ? args_meanings[is->of].name : is->name, is->of != 0 ? " " : "",
           is->of != 0 ? is->name : "", letter, is->value != NULL ? is->value : "",
           (o->flags & ARGS_HIDDEN) != 0 ? "hidden" : "", is->doc, o->more != NULL ? o->more : "");
  }
}

/* Each option of each verb: verb, name, letter, value, hidden, what it means everywhere, and here. */
static void print_meanings(void) {
  for (size_t i = 0; bsrun_verb_at(i) != NULL; i++) {
    const bsrun_verb *verb = bsrun_verb_at(i);
    print_meanings_of(NULL, verb);
    for (size_t k = 0; verb->subverbs != NULL && verb->subverbs[k] != NULL; k++)
      print_meanings_of(verb, verb->subverbs[k]);
  }
}

/* All verbs, or the second words of one. */
static void print_verbs(const char *of) {
  const bsrun_verb *verb = of != NULL ? bsrun_find_verb(of, NULL) : NULL;
  for (size_t i = 0; of == NULL && bsrun_verb_at(i) != NULL; i++) printf("%s\n", bsrun_verb_at(i)->name);
  for (size_t i = 0; verb != NULL && verb->subverbs != NULL && verb->subverbs[i] != NULL; i++)
    printf("%s\n", verb->subverbs[i]->name);
}

static int32_t print_words(const args *a, bs_error *err) {
  const char *kind = a->words[0], *of[4] = {NULL, NULL, NULL, NULL};
  for (size_t i = 1; i < a->n_words; i++) of[i - 1] = a->words[i];
  const int only_valued = strcmp(kind, "valued") == 0;
  if (only_valued || strcmp(kind, "options") == 0) {
    print_options(of[0] != NULL ? of : (const char *[]){"run", NULL}, only_valued);
    return BS_OK;
  }
  if (strcmp(kind, "verbs") == 0) {
    print_verbs(of[0]);
    return BS_OK;
  }
  if (strcmp(kind, "within") == 0) {
    if (of[0] == NULL) fputs("--to\n--with\n--show\n--stored\n--preset\n", stdout);
    if (of[0] != NULL) print_within(of[0], of[1] != NULL ? of + 1 : (const char *[]){"run", NULL});
    return BS_OK;
  }
  if (strcmp(kind, "meanings") == 0) {
    print_meanings();
    return BS_OK;
  }
  json_t *names = json_array();
  const int32_t rc = bsrun_names(kind, names, err);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(names); i++)
    printf("%s\n", json_string_value(json_array_get(names, i)));
  json_decref(names);
  return rc;
}

static int32_t print_bash(const args *a, bs_error *err) {
  (void)a;
  (void)err;
  fwrite(completion_bash, 1, sizeof completion_bash, stdout);
  return BS_OK;
}

static int32_t print_zsh(const args *a, bs_error *err) {
  (void)a;
  (void)err;
  fwrite(completion_zsh, 1, sizeof completion_zsh, stdout);
  return BS_OK;
}

static int32_t print_line(const args *a, bs_error *err) {
  return completion_line(a->words, a->n_words, err);
}

static const args_option options[] = {ARGS_HELP};
static const bsrun_verb bash_verb = {
    .name = "bash",
    .summary = "print the script for bash, which make install installs",
    .examples = "  source <(bsrun completion bash)\n",
    .options = options,
    .run = print_bash,
};
static const bsrun_verb zsh_verb = {
    .name = "zsh",
    .summary = "print the script for zsh, which make install installs",
    .examples = "  source <(bsrun completion zsh)\n",
    .options = options,
    .run = print_zsh,
};
static const bsrun_verb line_verb = {
    .name = "line",
    .words = "-- [WORD]...",
    .summary = "print what the last WORD of a command line may be",
    .about =
        "The words are those after `bsrun`. Each line of the answer is a candidate, a tab, and what it "
        "means.\n"
        "The lines :file and :dir stand for names of files or folders.\n",
    .examples = "  bsrun completion line -- run --method block\n",
    .options = options,
    .run = print_line,
    .max_words = SIZE_MAX,
};
static const bsrun_verb words_verb = {
    .name = "words",
    .words = "KIND [VERB [VERB]]",
    .summary = "print the names of a kind, one a line",
    .about =
        "KIND is verbs, options, valued (options that take a value), methods, masks, workloads, hardware,\n"
        "sweeps, phases, backends, comms, plugins, formats, keys, dtypes, algorithms, collectives,\n"
        "activations, ops, skeletons (the kinds of plugins new), passes (of models), runs, within (words of "
        "an\n"
        "option of a verb: within --with tune), meanings (every option of every verb, a line each) or kinds\n"
        "(these).\n",
    .examples = "  bsrun completion words methods\n  bsrun completion words options runs list\n",
    .options = options,
    .run = print_words,
    .min_words = 1,
    .max_words = 4,
    .takes = "kinds",
};

static const bsrun_verb *const second[] = {&bash_verb, &zsh_verb, &line_verb, &words_verb, NULL};
const bsrun_verb verb_completion = {
    .name = "completion",
    .summary = "complete words in bash and zsh",
    .subverbs = second,
};
