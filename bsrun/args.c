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

const args_meaning *args_is(const args_option *option) {
  return &args_meanings[option->id];
}

const char *args_name(const args_option *option) {
  return args_is(option)->name;
}

const args_option *args_given(const args *a, size_t i) {
  return &a->options[a->given[i].option];
}

void args_typed(const args *a, size_t i, char out_name[64], char **out_value) {
  const args_meaning *is = args_is(args_given(a, i));
  const char *value = a->given[i].value;
  bs_text text = {0};
  snprintf(out_name, 64, "--%s", is->of != 0 ? args_meanings[is->of].name : is->name);
  *out_value = NULL;
  if (is->of == 0 && is->value == NULL) return;
  bs_text_printf(&text, "%s%s%s", is->of != 0 ? is->name : "", is->of != 0 && is->value != NULL ? "=" : "",
                 is->value != NULL ? value : "");
  *out_value = text.failed ? NULL : text.data;
  if (text.failed) bs_text_free(&text);
  if (*out_value == NULL) out_name[0] = '\0';
}

static int32_t unknown_option(const char *given, const args_option *options, size_t n, bs_error *err) {
  const char *names[64];
  char word[128];
  size_t count = 0;
  for (size_t i = 0; i < n && count < 64; i++)
    if (args_is(&options[i])->of == 0) names[count++] = args_name(&options[i]);
  snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
  const char *nearest = bs_nearest(word + strspn(word, "-"), names, count);
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "unknown option %s", word);
  if (nearest != NULL) bs_error_hint(err, "did you mean --%s?", nearest);
  return BS_USAGE;
}

static const char *shown_name(const args_option *option, char out[64]) {
  const int word = args_is(option)->of;
  snprintf(out, 64, "--%s%s%s", word != 0 ? args_meanings[word].name : args_name(option),
           word != 0 ? " " : "", word != 0 ? args_name(option) : "");
  return out;
}

const char *args_shown(const args *a, const char *name, char out[64]) {
  for (size_t i = 0; i < a->n_options; i++)
    if (strcmp(args_name(&a->options[i]), name) == 0) return shown_name(&a->options[i], out);
  snprintf(out, 64, "--%s", name);
  return out;
}

static int32_t add(args *a, size_t option, const char *value, bs_error *err) {
  char name[64];
  for (size_t i = 0; i < a->n_given && !args_is(&a->options[option])->repeat; i++) {
    if (a->given[i].option != option) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "%s is given twice", shown_name(&a->options[option], name));
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
  const args_meaning *is = args_is(option);
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s needs a value (%s)", is->name, is->value);
  bs_error_hint(err, "--%s=%s also takes values that begin with a dash", is->name, is->value);
  return BS_USAGE;
}

/* ---- words of options: --to trace=FILE, --with bias,y=f16 ------------------------------------------- */

static int32_t unknown_word(const args *a, size_t option, const char *word, bs_error *err) {
  const char *names[32];
  size_t n = 0;
  char what[64];
  for (size_t i = 0; i < a->n_options && n < 32; i++)
    if (args_is(&a->options[i])->of == a->options[option].id) names[n++] = args_name(&a->options[i]);
  snprintf(what, sizeof what, "word of --%s", args_name(&a->options[option]));
  return bsrun_unknown(what, word, names, n, err);
}

/* One WORD or WORD=VALUE; the text is kept until args_free. */
static int32_t add_word(args *a, size_t option, const char *text, size_t size, bs_error *err) {
  char *own = strndup(text, size), **grown = realloc(a->own, (a->n_own + 1) * sizeof *grown);
  if (grown != NULL) a->own = grown;
  if (own == NULL || grown == NULL) {
    free(own);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  a->own[a->n_own++] = own;
  char *value = strchr(own, '=');
  if (value != NULL) *value++ = '\0';
  for (size_t i = 0; i < a->n_options; i++) {
    const args_meaning *is = args_is(&a->options[i]);
    if (is->of != a->options[option].id || strcmp(is->name, own) != 0) continue;
    if ((value != NULL) == (is->value != NULL)) return add(a, i, value != NULL ? value : "", err);
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s %s %s", args_name(&a->options[option]), own,
                 is->value != NULL ? "needs a value" : "takes no value");
    if (is->value != NULL) bs_error_hint(err, "--%s %s=%s", args_name(&a->options[option]), own, is->value);
    return BS_USAGE;
  }
  return unknown_word(a, option, own, err);
}

/* "trace=" in front of a path, as "x=" is; the path itself may have one after a '/' or a '.'. */
static int has_word(const char *text) {
  const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz-");
  return n > 0 && text[n] == '=';
}

static int32_t add_words(args *a, size_t option, const char *value, bs_error *err) {
  int has = 0;
  for (size_t i = 0; i < a->n_options; i++) has |= args_is(&a->options[i])->of == a->options[option].id;
  const int is_path = a->options[option].id == OPT_TO;
  if (!has || (is_path && !has_word(value))) {
    for (size_t i = 0; is_path && i < a->n_given; i++) /* a verb writes one thing without a word */
      if (a->given[i].option == option)
        return bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--to is given twice without a word");
    return add(a, option, value, err);
  }
  if (is_path) return add_word(a, option, value, strlen(value), err);
  for (const char *at = value;;) {
    const size_t size = strcspn(at, ",");
    const int32_t rc = add_word(a, option, at, size, err);
    if (rc != BS_OK || at[size] == '\0') return rc;
    at += size + 1;
  }
}

/* One --name or --name=value; *used counts a value taken from the next word. */
static int32_t long_option(args *a, const char *word, const char *next, int *used, bs_error *err) {
  const size_t length = strcspn(word + 2, "=");
  size_t i = 0;
  for (; i < a->n_options; i++) {
    const args_meaning *is = args_is(&a->options[i]);
    if (is->of == 0 && strlen(is->name) == length && strncmp(is->name, word + 2, length) == 0) break;
  }
  for (size_t k = 0; i == a->n_options && k < a->n_options; k++) { /* --top-k 4 is --with top-k=4 */
    const args_meaning *is = args_is(&a->options[k]);
    if (is->of == OPT_WITH && strlen(is->name) == length && strncmp(is->name, word + 2, length) == 0) i = k;
  }
  if (i == a->n_options) return unknown_option(word, a->options, a->n_options, err);
  const args_option *option = &a->options[i];
  const int has_value = word[2 + length] == '=';
  if (args_is(option)->value == NULL) {
    if (has_value) {
      bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s takes no value", args_name(option));
      return BS_USAGE;
    }
    return add(a, i, "", err);
  }
  if (has_value) return add_words(a, i, word + 3 + length, err);
  if (!is_value(next)) return missing_value(option, err);
  *used = 1;
  return add_words(a, i, next, err);
}

/* -x, -xvalue, -x value, or several flags -vq. */
static int32_t short_options(args *a, const char *word, const char *next, int *used, bs_error *err) {
  for (const char *p = word + 1; *p != '\0'; p++) {
    size_t i = 0;
    while (i < a->n_options && args_is(&a->options[i])->letter != *p) i++;
    if (i == a->n_options) {
      char shown[3] = {'-', *p, '\0'};
      bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "unknown option %s%s%.60s", shown,
                   word[2] != '\0' ? " in " : "", word[2] != '\0' ? word : "");
      for (size_t k = 0; k < a->n_options; k++)
        if (args_is(&a->options[k])->of == 0 && strcmp(args_name(&a->options[k]), shown + 1) == 0)
          bs_error_hint(err, "did you mean --%s?", args_name(&a->options[k]));
      return BS_USAGE;
    }
    if (args_is(&a->options[i])->value == NULL) {
      const int32_t rc = add(a, i, "", err);
      if (rc != BS_OK) return rc;
      continue;
    }
    if (p[1] != '\0') return add_words(a, i, p + 1, err);
    if (!is_value(next)) return missing_value(&a->options[i], err);
    *used = 1;
    return add_words(a, i, next, err);
  }
  return BS_OK;
}

/* --to is written, or a word of it. */
static int is_written(const args_option *option) {
  return option->id == OPT_TO || args_is(option)->of == OPT_TO;
}

static int is_folder(const args_option *option) {
  const char *value = args_is(option)->value;
  return (option->flags & ARGS_FOLDER) != 0 || (value != NULL && strncmp(value, "DIR", 3) == 0);
}

/* A file that is stdout has it for itself; a folder cannot be stdout, and only some can be left out. */
static int32_t check_places(const args *a, bs_error *err) {
  char first[64] = "", name[64];
  for (size_t i = 0; i < a->n_given; i++) {
    const args_option *option = args_given(a, i);
    const char *value = a->given[i].value != NULL ? a->given[i].value : "";
    const int dash = strcmp(value, "-") == 0;
    if (option->id == OPT_OUT && strcmp(value, "off") == 0 && (option->flags & ARGS_STORE) != 0) {
      bs_error_set(err, BS_USAGE, "BS-USE-FOLDER",
                   "--out off keeps nothing, and there must be a folder here");
      bs_error_hint(err, "leave --out away for results/raw; ./off is a folder of that name");
      return BS_USAGE;
    }
    if (dash && is_folder(option))
      return bs_error_set(err, BS_USAGE, "BS-USE-FOLDER", "%s is a folder, and '-' is stdout",
                          shown_name(option, name));
    if (!is_written(option) || is_folder(option) || !(dash || bs_out_is_stdout(value))) continue;
    if (first[0] != '\0')
      return bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "%s and %s are both stdout", first,
                          shown_name(option, name));
    shown_name(option, first);
    if (bs_out_claim_stdout() != 0)
      return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "%s: stdout cannot be written", first);
  }
  return BS_OK;
}

int32_t args_parse(int argc, char **argv, const args_option *options, args *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->options = options;
  while (options[out->n_options].id != OPT_END) out->n_options++;
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
  for (size_t i = 0; i < a->n_own; i++) free(a->own[i]);
  free(a->own);
  free(a->given);
  free(a->words);
  memset(a, 0, sizeof *a);
}

const char *args_value(const args *a, const char *name) {
  for (size_t i = 0; i < a->n_given; i++) {
    if (strcmp(args_name(args_given(a, i)), name) == 0) return a->given[i].value;
  }
  return NULL;
}

int args_has(const args *a, const char *name) {
  return args_value(a, name) != NULL;
}

int32_t args_without(const args *a, const char *const *names, args *out, bs_error *err) {
  *out = *a;
  out->n_words = out->n_given = 0;
  out->given = malloc((a->n_given + 1) * sizeof *out->given);
  if (out->given == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; i < a->n_given; i++) {
    size_t k = 0;
    while (names[k] != NULL && strcmp(args_name(args_given(a, i)), names[k]) != 0) k++;
    if (names[k] == NULL) out->given[out->n_given++] = a->given[i];
  }
  return BS_OK;
}

int32_t args_values(const args *a, const char *name, const char ***out_values, size_t *out_count,
                    bs_error *err) {
  size_t n = 0;
  const char **values = calloc(a->n_given + 1, sizeof *values);
  *out_values = values;
  *out_count = 0;
  if (values == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; i < a->n_given; i++) {
    if (strcmp(args_name(args_given(a, i)), name) == 0) values[n++] = a->given[i].value;
  }
  *out_count = n;
  return BS_OK;
}

int32_t args_list(const args *a, const char *name, const char ***out_parts, size_t *out_count,
                  bs_error *err) {
  const char **values = NULL;
  size_t n = 0, size = 0, commas = 0;
  *out_parts = NULL;
  *out_count = 0;
  int32_t rc = args_values(a, name, &values, &n, err);
  for (size_t i = 0; i < n; i++) {
    size += strlen(values[i]) + 1;
    for (const char *p = values[i]; *p != '\0'; p++) commas += *p == ',';
  }
  const char **parts = rc == BS_OK ? malloc((n + commas + 1) * sizeof *parts + size) : NULL;
  if (rc == BS_OK && parts == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  char *text = rc == BS_OK ? (char *)(parts + n + commas + 1) : NULL, *save = NULL;
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    char *end = stpcpy(text, values[i]);
    for (char *part = strtok_r(text, ",", &save); part != NULL; part = strtok_r(NULL, ",", &save))
      parts[(*out_count)++] = part;
    text = end + 1;
  }
  free(values);
  *out_parts = parts;
  return rc;
}

int32_t args_integer(const args *a, const char *name, int64_t low, int64_t high, int64_t fallback,
                     int64_t *out, bs_error *err) {
  const char *text = args_value(a, name);
  *out = fallback;
  if (text == NULL) return BS_OK;
  if (bs_parse_size(text, out) && *out >= low && *out <= high) return BS_OK;
  char shown[64];
  snprintf(shown, sizeof shown, "--%s", name);
  for (size_t i = 0; i < a->n_options; i++) {
    if (args_is(&a->options[i])->letter != 0 && strcmp(args_name(&a->options[i]), name) == 0) {
      snprintf(shown, sizeof shown, "-%c (--%s)", args_is(&a->options[i])->letter, name);
    }
  }
  bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "%s: '%.60s' is not a whole number from %lld to %lld", shown,
               text, (long long)low, (long long)high);
  int64_t number;
  bs_error_hint(err, "%s", bs_parse_i64(text, &number) ? "give a number in this range" : BS_SIZE_FORM);
  return BS_USAGE;
}

int32_t args_real(const args *a, const char *name, double low, double high, double fallback, double *out,
                  bs_error *err) {
  const char *text = args_value(a, name), *of = "";
  char shown[64];
  int is_word = 0;
  *out = fallback;
  if (text == NULL || (bs_parse_f64(text, out) && *out >= low && *out <= high)) return BS_OK;
  for (size_t i = 0; i < a->n_options; i++) {
    if (strcmp(args_name(&a->options[i]), name) != 0) continue;
    if (strcmp(args_is(&a->options[i])->value, "S") == 0) of = " of seconds";
    is_word = args_is(&a->options[i])->of != 0;
  }
  args_shown(a, name, shown);
  bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "%s: '%.60s' is not a number%s from %.15g to %.15g", shown,
               text, of, low, high);
  bs_error_hint(err, "for example %s%s%.15g", shown, is_word ? "=" : " ",
                low > 10    ? low
                : high < 10 ? high
                            : 10);
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

/* "  -o, --output FORMAT"; of a word "        trace=FILE". */
static void left_of(const args_option *option, char *out, size_t size) {
  const args_meaning *is = args_is(option);
  size_t n = 0;
  if (is->of != 0)
    snprintf(out, size, "          %s%s%s", is->name, is->value != NULL ? "=" : "",
             is->value != NULL ? is->value : "");
  else if (is->letter != 0)
    n = (size_t)snprintf(out, size, "  -%c, --%s", is->letter, is->name);
  else
    n = (size_t)snprintf(out, size, "      --%s", is->name);
  if (is->of == 0 && is->value != NULL) snprintf(out + n, size - n, " %s", is->value);
}

void args_print_options(const args_option *options) {
  for (size_t i = 0; options[i].id != OPT_END; i++) {
    char left[80];
    bs_text right = {0};
    if ((options[i].flags & ARGS_HIDDEN) != 0) continue;
    left_of(&options[i], left, sizeof left);
    const char *more = options[i].more;
    bs_text_printf(&right, "%s%s%s%s", args_is(&options[i])->doc, more != NULL ? " (" : "",
                   more != NULL ? more : "", more != NULL ? ")" : "");
    const int wide = printf("%-30s ", left);
    print_wrapped(right.data != NULL ? right.data : "", wide > 31 ? (size_t)wide : 31);
    bs_text_free(&right);
  }
}
