/* SPDX-License-Identifier: MIT
 * next.c - see next.h. */
#include "bsrun/next.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/config/short_names.h"

static int is_one_of(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(names[i], name) == 0) return 1;
  return 0;
}

/* The run options that were typed. */
static int typed(args *out) {
  char **words = bsrun_command_words();
  int argc = 0;
  memset(out, 0, sizeof *out);
  if (words == NULL || words[0] == NULL) return 0;
  words += words[1] != NULL && strcmp(words[1], "run") == 0 ? 2 : 1;
  while (words[argc] != NULL) argc++;
  return args_parse(argc, words, bsrun_run_options, out, NULL) == BS_OK;
}

/* " --name value", " -P 2", " --name=-value", " -q". */
static void add_option(bs_text *t, const args *a, size_t i) {
  const args_meaning *is = args_is(args_given(a, i));
  char name[64], *value = NULL;
  bs_text word = {0};
  args_typed(a, i, name, &value);
  const int joined = value != NULL && value[0] == '-' && value[1] != '\0';
  if (joined)
    bs_text_printf(&word, "%s=%s", name, value);
  else if (is->letter != 0)
    bs_text_printf(&word, "-%c", is->letter);
  else
    bs_text_printf(&word, "%s", name);
  if (word.data != NULL) bs_text_word(t, word.data);
  if (value != NULL && !joined) bs_text_word(t, value);
  bs_text_free(&word);
  free(value);
}

static void add_set(bs_text *t, const char *key, const char *value) {
  bs_text set = {0};
  bs_text_printf(&set, "%s=%s", key, value);
  bs_text_append(t, " --set", 6);
  if (set.data != NULL) bs_text_word(t, set.data);
  bs_text_free(&set);
}

static char *finish(bs_text *t, int holds) {
  if (holds && !t->failed) return t->data;
  bs_text_free(t);
  return NULL;
}

static int sets_key(const char *set, const char *key) {
  const size_t n = strlen(key);
  return strncmp(set, key, n) == 0 && set[n] == '=';
}

/* Does a mapping of --set name the key? `KEY=value` itself is left out of every command here. */
static int mapping_sets(const args *a, const char *key) {
  const char **sets = NULL;
  size_t n = 0, kept = 0;
  if (args_values(a, "set", &sets, &n, NULL) != BS_OK) return 0;
  for (size_t i = 0; i < n; i++)
    if (!sets_key(sets[i], key)) sets[kept++] = sets[i];
  bs_node *tree = bs_sets_tree(sets, kept);
  const int found = tree != NULL && bs_config_find(tree, key) != NULL;
  bs_config_free(tree);
  free(sets);
  return found;
}

char *bsrun_next_phase(int phase, const char *dump) {
  static const char *const left_out[] = {"run-id", "to", "phase"};
  bs_text t = {0};
  args a;
  const int ok = typed(&a), by_set = ok && mapping_sets(&a, "phase.name");
  int told = 0;
  bs_text_printf(&t, "bsrun");
  for (size_t i = 0; ok && i < a.n_given; i++) {
    const char *name = args_name(args_given(&a, i));
    const int is_phase = strcmp(name, "phase") == 0;
    if (strcmp(name, "set") == 0 && sets_key(a.given[i].value, "phase.name")) continue;
    if (is_phase && !by_set) bs_text_printf(&t, " --phase %s", bs_phase_words[phase]);
    told |= is_phase;
    if (is_one_of(name, left_out, 3)) continue;
    add_option(&t, &a, i);
  }
  if (by_set)
    add_set(&t, "phase.name", bs_phase_full_names[phase]);
  else if (!told)
    bs_text_printf(&t, " --phase %s", bs_phase_words[phase]);
  if (dump != NULL) bs_text_printf(&t, " --to %s", dump);
  args_free(&a);
  return finish(&t, ok);
}

/* The key that an option of run means; NULL: none. */
static const char *key_of(const char *name) {
  if (strcmp(name, "timeout") == 0) return "hardware.timeout_s";
  const char *key = bs_short_name_key(name);
  return strcmp(key, name) != 0 ? key : NULL;
}

static const args_option *option_of(const args_option *options, const args_option *like) {
  for (size_t i = 0; options[i].id != OPT_END; i++)
    if (options[i].id == like->id) return &options[i];
  return NULL;
}

char *bsrun_next_verb(const char *verb, const char *subject, const args_option *options) {
  static const char *const left_out[] = {"method", "phase",  "run-id", "to",
                                         "trace",  "launch", "output", "wide"};
  bs_text t = {0}, rest = {0};
  args a;
  const int ok = typed(&a);
  const char *method = ok ? args_value(&a, "method") : NULL;
  const int by_set = ok && mapping_sets(&a, "method.name");
  for (size_t i = 0; ok && i < a.n_given; i++) {
    const args_option *given = args_given(&a, i);
    const args_option *own = option_of(options, given);
    const char *name = args_name(given), *value = a.given[i].value, *key = key_of(name);
    if (is_one_of(name, left_out, sizeof left_out / sizeof left_out[0])) continue;
    if (strcmp(name, "set") == 0 && (sets_key(value, "method.name") || sets_key(value, "phase.name") ||
                                     sets_key(value, "hardware.launch")))
      continue;
    if (own != NULL)
      add_option(&rest, &a, i);
    else if (key != NULL)
      add_set(&rest, key, value);
  }
  bs_text_printf(&t, "bsrun %s", verb);
  if (subject != NULL) bs_text_word(&t, method != NULL ? method : subject);
  if (rest.data != NULL) bs_text_append(&t, rest.data, rest.size);
  /* A method that a mapping names would win over the word; what auto took has more to it than its name. */
  const int right = subject == NULL || (!by_set && (method == NULL || strcmp(method, "auto") != 0));
  const int failed = rest.failed;
  bs_text_free(&rest);
  args_free(&a);
  return finish(&t, ok && right && !failed);
}
