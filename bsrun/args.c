/* SPDX-License-Identifier: MIT
 * args.c - see args.h. */
#include "bsrun/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/word.h"

/* The hint names the help that lists the options of the typed verb. */
static void list_hint(bs_error *err) {
  char **words = bsrun_command_words();
  const char *verb = words != NULL ? words[1] : NULL;
  bs_error none = BS_ERROR_INIT;
  if (verb != NULL && bsrun_find_verb(verb, &none) != NULL)
    bs_error_hint(err, "bsrun help %s lists the options", verb);
  else
    bs_error_hint(err, "bsrun --help lists the options");
}

static int32_t unknown_option(const char *given, const args_option *options, size_t n, bs_error *err) {
  const char *names[64];
  char word[128];
  size_t count = 0;
  for (size_t i = 0; i < n && count < 64; i++) names[count++] = options[i].name;
  snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
  const char *nearest = bs_nearest(word + strspn(word, "-"), names, count);
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "unknown option %s", word);
  if (nearest != NULL) {
    bs_error_hint(err, "did you mean --%s?", nearest);
  } else {
    list_hint(err);
  }
  return BS_USAGE;
}

static int32_t add(args *a, size_t option, const char *value, bs_error *err) {
  for (size_t i = 0; i < a->n_given && !a->options[option].repeat; i++) {
    if (a->given[i].option != option) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--%s is given twice", a->options[option].name);
    bs_error_hint(err, "give it once");
    return BS_USAGE;
  }
  a->given[a->n_given].option = option;
  a->given[a->n_given++].value = value;
  return BS_OK;
}

/* A value that looks like the next option is more likely a forgotten value. */
static int is_value(const char *text) {
  return text != NULL && (text[0] != '-' || text[1] == '\0' || (text[1] >= '0' && text[1] <= '9'));
}

static int32_t missing_value(const args_option *option, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s needs a value (%s)", option->name, option->value);
  bs_error_hint(err, "--%s=%s also takes values that begin with a dash", option->name, option->value);
  return BS_USAGE;
}

/* One --name or --name=value; *used counts a value taken from the next word. */
static int32_t long_option(args *a, const char *word, const char *next, int *used, bs_error *err) {
  const size_t length = strcspn(word + 2, "=");
  size_t i = 0;
  while (i < a->n_options &&
         (strlen(a->options[i].name) != length || strncmp(a->options[i].name, word + 2, length) != 0)) {
    i++;
  }
  if (i == a->n_options) return unknown_option(word, a->options, a->n_options, err);
  const args_option *option = &a->options[i];
  const int has_value = word[2 + length] == '=';
  if (option->value == NULL) {
    if (has_value) {
      bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s takes no value", option->name);
      return BS_USAGE;
    }
    return add(a, i, "", err);
  }
  if (has_value) return add(a, i, word + 3 + length, err);
  if (!is_value(next)) return missing_value(option, err);
  *used = 1;
  return add(a, i, next, err);
}

/* -x, -xvalue, -x value, or several flags -vq. */
static int32_t short_options(args *a, const char *word, const char *next, int *used, bs_error *err) {
  for (const char *p = word + 1; *p != '\0'; p++) {
    size_t i = 0;
    while (i < a->n_options && a->options[i].letter != *p) i++;
    if (i == a->n_options) {
      char shown[3] = {'-', *p, '\0'};
      bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "unknown option %s in %.60s", shown, word);
      list_hint(err);
      for (size_t k = 0; k < a->n_options; k++)
        if (strcmp(a->options[k].name, shown + 1) == 0)
          bs_error_hint(err, "did you mean --%s?", a->options[k].name);
      return BS_USAGE;
    }
    if (a->options[i].value == NULL) {
      const int32_t rc = add(a, i, "", err);
      if (rc != BS_OK) return rc;
      continue;
    }
    if (p[1] != '\0') return add(a, i, p + 1, err);
    if (!is_value(next)) return missing_value(&a->options[i], err);
    *used = 1;
    return add(a, i, next, err);
  }
  return BS_OK;
}

static int writes(const args_option *option) {
  static const char *const names[] = {"output", "csv", "trace", "timeline", "junit", "write", "save"};
  if (option->value == NULL || strncmp(option->value, "FILE", 4) != 0) return 0;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(option->name, names[i]) == 0) return 1;
  return 0;
}

/* A file that is stdout has it for itself; a folder cannot be stdout, and only some can be left out. */
static int32_t check_places(const args *a, bs_error *err) {
  const char *has_stdout = NULL;
  for (size_t i = 0; i < a->n_given; i++) {
    const args_option *option = &a->options[a->given[i].option];
    const char *value = a->given[i].value != NULL ? a->given[i].value : "";
    const int dash = strcmp(value, "-") == 0;
    if (strcmp(option->name, "out") == 0 && strcmp(value, "off") == 0 &&
        (option->value == NULL || strcmp(option->value, "DIR|off") != 0)) {
      bs_error_set(err, BS_USAGE, "BS-USE-FOLDER",
                   "--out off keeps nothing, and there must be a folder here");
      bs_error_hint(err, "leave --out away for results/raw; ./off is a folder of that name");
      return BS_USAGE;
    }
    if (dash && option->value != NULL && strncmp(option->value, "DIR", 3) == 0)
      return bs_error_set(err, BS_USAGE, "BS-USE-FOLDER", "--%s is a folder, and '-' is stdout",
                          option->name);
    if (!writes(option) || !(dash || bs_out_is_stdout(value))) continue;
    if (has_stdout != NULL)
      return bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--%s and --%s are both stdout", has_stdout,
                          option->name);
    has_stdout = option->name;
    if (bs_out_claim_stdout() != 0)
      return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "--%s: stdout cannot be written", option->name);
  }
  return BS_OK;
}

int32_t args_parse(int argc, char **argv, const args_option *options, args *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->options = options;
  while (options[out->n_options].name != NULL) out->n_options++;
  size_t capacity = 1; /* every letter of a -vvq word may be an option */
  for (int i = 0; i < argc; i++) capacity += strlen(argv[i]) + 1;
  out->given = calloc(capacity, sizeof *out->given);
  out->words = calloc((size_t)argc + 1, sizeof *out->words);
  if (out->given == NULL || out->words == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  int32_t rc = BS_OK;
  int only_words = 0;
  for (int i = 0; i < argc && rc == BS_OK; i++) {
    const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
    int used = 0;
    if (only_words || word[0] != '-' || word[1] == '\0') {
      out->words[out->n_words++] = word;
    } else if (strcmp(word, "--") == 0) {
      only_words = 1;
    } else if (word[1] == '-') {
      rc = long_option(out, word, next, &used, err);
    } else {
      rc = short_options(out, word, next, &used, err);
    }
    i += used;
  }
  return rc == BS_OK ? check_places(out, err) : rc;
}

void args_free(args *a) {
  free(a->given);
  free(a->words);
  memset(a, 0, sizeof *a);
}

const char *args_value(const args *a, const char *name) {
  for (size_t i = 0; i < a->n_given; i++) {
    if (strcmp(a->options[a->given[i].option].name, name) == 0) return a->given[i].value;
  }
  return NULL;
}

int args_has(const args *a, const char *name) {
  return args_value(a, name) != NULL;
}

void args_drop(args *a, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < a->n_given; i++)
    if (strcmp(a->options[a->given[i].option].name, name) != 0) a->given[kept++] = a->given[i];
  a->n_given = kept;
}

int32_t args_values(const args *a, const char *name, const char ***out_values, size_t *out_count,
                    bs_error *err) {
  size_t n = 0;
  const char **values = calloc(a->n_given + 1, sizeof *values);
  *out_values = values;
  *out_count = 0;
  if (values == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; i < a->n_given; i++) {
    if (strcmp(a->options[a->given[i].option].name, name) == 0) values[n++] = a->given[i].value;
  }
  *out_count = n;
  return BS_OK;
}

int32_t args_integer(const args *a, const char *name, int64_t low, int64_t high, int64_t fallback,
                     int64_t *out, bs_error *err) {
  const char *text = args_value(a, name);
  *out = fallback;
  if (text == NULL) return BS_OK;
  if (bs_parse_i64(text, 1, out) && *out >= low && *out <= high) return BS_OK;
  char shown[64];
  snprintf(shown, sizeof shown, "--%s", name);
  for (size_t i = 0; i < a->n_options; i++) {
    if (a->options[i].letter != 0 && strcmp(a->options[i].name, name) == 0) {
      snprintf(shown, sizeof shown, "-%c (--%s)", a->options[i].letter, name);
    }
  }
  bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "%s: '%.60s' is not a whole number from %lld to %lld", shown,
               text, (long long)low, (long long)high);
  return BS_USAGE;
}

int32_t args_word(const args *a, const char *name, uint32_t table, const uint32_t *only, size_t n,
                  uint32_t *inout_number, bs_error *err) {
  static const char *const what[BS_NAMES_COUNT_] = {
      [BS_NAMES_DTYPE] = "dtype",      [BS_NAMES_ACTIVATION] = "activation", [BS_NAMES_COLL] = "collective",
      [BS_NAMES_REDUCE] = "reduction", [BS_NAMES_GATE] = "state of a gate",  [BS_NAMES_OP] = "op"};
  const char *words[BS_WORDS_MAX], *text = args_value(a, name);
  if (text == NULL || bs_word_read(table, only, n, text, inout_number)) return BS_OK;
  bsrun_unknown(what[table], text, words, bs_word_list(table, only, n, words), err);
  bs_error_where(err, "--%s", name);
  return BS_USAGE;
}

int32_t args_no_words(const args *a, bs_error *err) {
  if (a->n_words == 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-WORD", "unexpected argument '%.100s'", a->words[0]);
  bs_error_hint(err, "options begin with a dash; bsrun --help shows how they are written");
  return BS_USAGE;
}

/* Words from column `from` on, at most 100 columns wide; no line begins with a dash, as an option's does. */
static void print_wrapped(const char *text, size_t from) {
  const size_t room = 100 - from;
  while (strlen(text) > room) {
    size_t end = room;
    while (end > 0 && (text[end] != ' ' || text[end + 1] == '-')) end--;
    if (end == 0) break; /* a word that is longer */
    printf("%.*s\n%*s", (int)end, text, (int)from, "");
    text += end + 1;
  }
  printf("%s\n", text);
}

void args_print_options(const args_option *options) {
  for (size_t i = 0; options[i].name != NULL; i++) {
    char left[64];
    int n = 0;
    if (options[i].letter != 0) {
      n = snprintf(left, sizeof left, "  -%c, --%s", options[i].letter, options[i].name);
    } else {
      n = snprintf(left, sizeof left, "      --%s", options[i].name);
    }
    if (options[i].value != NULL) snprintf(left + n, sizeof left - (size_t)n, " %s", options[i].value);
    const int wide = printf("%-30s ", left);
    print_wrapped(options[i].doc, wide > 31 ? (size_t)wide : 31);
  }
}
