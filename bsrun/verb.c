/* SPDX-License-Identifier: MIT
 * verb.c - parses the options of a verb and runs it; the help of one and of all its second words. */
#include "bsrun/verb.h"

#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

enum { SECOND_MAX = 16 };

static void help_one(const char *verb, const bsrun_subverb *s) {
  printf("usage: bsrun %s %s %s\n\n%s\n%s\n", verb, s->name, s->words, s->summary, s->about);
  args_print_options(s->options);
  printf("\nexamples:\n%s", s->examples);
}

static void help_subverbs(const bsrun_verb *verb) {
  const bsrun_subverb *const *of = verb->subverbs;
  for (size_t i = 0; of[i] != NULL; i++)
    printf("%s bsrun %s %s %s\n", i == 0 ? "usage:" : "      ", verb->name, of[i]->name, of[i]->words);
  printf("\n");
  for (size_t i = 0; of[i] != NULL; i++) printf("%-9s %s\n", of[i]->name, of[i]->summary);
  for (size_t i = 0; of[i] != NULL; i++) {
    printf("\nOptions of %s %s:\n", verb->name, of[i]->name);
    args_print_options(of[i]->options);
  }
  printf("\n`bsrun %s VERB --help` says more.\n\nexamples:\n", verb->name);
  for (size_t i = 0; of[i] != NULL; i++) fputs(of[i]->examples, stdout);
}

void bsrun_verb_help(const bsrun_verb *verb) {
  if (verb->subverbs != NULL) {
    help_subverbs(verb);
    return;
  }
  fputs(verb->usage, stdout);
  if (verb->after == NULL) return;
  args_print_options(verb->options);
  fputs(verb->after, stdout);
}

static int run_subverb(const char *verb, const bsrun_subverb *s, int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  args a;
  int32_t rc = args_parse(argc, argv, s->options, &a, &err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_one(verb, s);
  } else if (rc == BS_OK && (a.n_words < s->min_words || a.n_words > s->max_words)) {
    rc = bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "%s %s: %zu words given", verb, s->name, a.n_words);
    bs_error_hint(&err, "bsrun %s %s %s", verb, s->name, s->words);
  } else if (rc == BS_OK) {
    rc = s->run(&a, &err);
  }
  args_free(&a);
  return rc == BS_OK ? 0 : bsrun_fail(&err);
}

int bsrun_verb_parsed(const bsrun_verb *of, const bsrun_verb *v, int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  args a;
  int code = 0;
  int32_t rc = args_parse(argc, argv, v->options, &a, &err);
  if (rc == BS_OK && args_has(&a, "help")) {
    bsrun_verb_help(of);
  } else if (rc == BS_OK && v->takes != NULL && (a.n_words < v->min_words || a.n_words > v->max_words)) {
    rc = bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "%s %s takes %s, %zu given", of->name, v->name, v->takes,
                      a.n_words);
    bs_error_hint(&err, "for example %s", v->example);
  } else if (rc == BS_OK && v->exit != NULL) {
    code = v->exit(&a, &err);
  } else if (rc == BS_OK) {
    rc = v->run(&a, &err);
  }
  args_free(&a);
  return rc == BS_OK ? code : bsrun_fail(&err);
}

static int run_second(const bsrun_verb *verb, int argc, char **argv) {
  const char *names[SECOND_MAX];
  bs_error err = BS_ERROR_INIT;
  size_t n = 0;
  for (size_t i = 0; verb->second != NULL && verb->second[i] != NULL && n < SECOND_MAX; i++) {
    names[n++] = verb->second[i]->name;
    if (strcmp(argv[0], verb->second[i]->name) == 0)
      return bsrun_verb_parsed(verb, verb->second[i], argc - 1, argv + 1);
  }
  for (size_t i = 0; verb->subverbs != NULL && verb->subverbs[i] != NULL && n < SECOND_MAX; i++) {
    names[n++] = verb->subverbs[i]->name;
    if (strcmp(argv[0], verb->subverbs[i]->name) == 0)
      return run_subverb(verb->name, verb->subverbs[i], argc - 1, argv + 1);
  }
  bsrun_unknown("verb", argv[0], names, n, &err);
  return bsrun_fail(&err);
}

int bsrun_verb_run(const bsrun_verb *verb, int argc, char **argv) {
  const int has_second = verb->second != NULL || verb->subverbs != NULL;
  if (argc == 0 && (has_second || verb->needs_words)) {
    bsrun_verb_help(verb);
    return 2;
  }
  if (has_second && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
    bsrun_verb_help(verb);
    return 0;
  }
  if (has_second) return run_second(verb, argc, argv);
  return verb->words != NULL ? verb->words(argc, argv) : bsrun_verb_parsed(verb, verb, argc, argv);
}
