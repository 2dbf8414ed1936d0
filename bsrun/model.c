/* SPDX-License-Identifier: MIT
 * model.c - `bsrun model`: finds the sub-verb; the help of all of them. */
#include "bsrun/model.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

const model_verb *const model_verbs[] = {&model_info,    &model_run,      &model_check, &model_bench,
                                         &model_explain, &model_generate, &model_plan};
const size_t model_n_verbs = sizeof model_verbs / sizeof model_verbs[0];

int32_t model_print_json(const json_t *value, bs_error *err) {
  if (json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
  fputs("\n", stdout);
  return BS_OK;
}

static void print_options(const model_verb *verb) {
  args_print_options(verb->options, *verb->n_options);
}

static void help_one(const model_verb *verb) {
  printf("usage: bsrun model %s %s\n\n%s\n%s\n", verb->name, verb->words, verb->summary, verb->about);
  print_options(verb);
  printf("\nexamples:\n%s", verb->examples);
}

void help_model(void) {
  for (size_t i = 0; i < model_n_verbs; i++)
    printf("%s bsrun model %s %s\n", i == 0 ? "usage:" : "      ", model_verbs[i]->name,
           model_verbs[i]->words);
  printf("\n");
  for (size_t i = 0; i < model_n_verbs; i++)
    printf("%-9s %s\n", model_verbs[i]->name, model_verbs[i]->summary);
  for (size_t i = 0; i < model_n_verbs; i++) {
    printf("\nOptions of model %s:\n", model_verbs[i]->name);
    print_options(model_verbs[i]);
  }
  printf("\n`bsrun model VERB --help` says more.\n\nexamples:\n");
  for (size_t i = 0; i < model_n_verbs; i++) fputs(model_verbs[i]->examples, stdout);
}

static int32_t run_one(const model_verb *verb, int argc, char **argv, bs_error *err) {
  args a;
  int32_t rc = args_parse(argc, argv, verb->options, *verb->n_options, &a, err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_one(verb);
  } else if (rc == BS_OK && (a.n_words < verb->min_words || a.n_words > verb->max_words)) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-WORD", "model %s: %zu words given", verb->name, a.n_words);
    bs_error_hint(err, "bsrun model %s %s", verb->name, verb->words);
  } else if (rc == BS_OK) {
    rc = verb->run(&a, err);
  }
  args_free(&a);
  return rc;
}

int verb_model(int argc, char **argv) {
  const char *names[16];
  bs_error err = BS_ERROR_INIT;
  if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
    help_model();
    return argc == 0 ? 2 : 0;
  }
  for (size_t i = 0; i < model_n_verbs; i++) {
    names[i] = model_verbs[i]->name;
    if (strcmp(argv[0], names[i]) != 0) continue;
    return run_one(model_verbs[i], argc - 1, argv + 1, &err) == BS_OK ? 0 : bsrun_fail(&err);
  }
  bsrun_unknown("verb", argv[0], names, model_n_verbs, &err);
  return bsrun_fail(&err);
}
