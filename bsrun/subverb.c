/* SPDX-License-Identifier: MIT
 * subverb.c - finds the second word of a verb; the help of one and of all of them. */
#include "bsrun/subverb.h"

#include <stdio.h>
#include <string.h>

#include "bsrun/bench.h"
#include "bsrun/bsrun.h"
#include "bsrun/ccl.h"
#include "bsrun/model.h"
#include "bsrun/profile.h"
#include "bsrun/runs.h"
#include "bsrun/sim.h"
#include "core/base/error.h"

enum { SUBVERBS_MAX = 16 };

const bsrun_subverbs *const bsrun_all_subverbs[] = {
    &model_subverbs, &bench_subverbs, &profile_subverbs, &sim_subverbs, &ccl_subverbs, &runs_subverbs, NULL};

static void help_one(const char *verb, const bsrun_subverb *s) {
  printf("usage: bsrun %s %s %s\n\n%s\n%s\n", verb, s->name, s->words, s->summary, s->about);
  args_print_options(s->options, *s->n_options);
  printf("\nexamples:\n%s", s->examples);
}

void bsrun_subverbs_help(const bsrun_subverbs *all) {
  for (size_t i = 0; i < all->n; i++)
    printf("%s bsrun %s %s %s\n", i == 0 ? "usage:" : "      ", all->verb, all->of[i]->name,
           all->of[i]->words);
  printf("\n");
  for (size_t i = 0; i < all->n; i++) printf("%-9s %s\n", all->of[i]->name, all->of[i]->summary);
  for (size_t i = 0; i < all->n; i++) {
    printf("\nOptions of %s %s:\n", all->verb, all->of[i]->name);
    args_print_options(all->of[i]->options, *all->of[i]->n_options);
  }
  printf("\n`bsrun %s VERB --help` says more.\n\nexamples:\n", all->verb);
  for (size_t i = 0; i < all->n; i++) fputs(all->of[i]->examples, stdout);
}

static int32_t run_one(const char *verb, const bsrun_subverb *s, int argc, char **argv, bs_error *err) {
  args a;
  int32_t rc = args_parse(argc, argv, s->options, *s->n_options, &a, err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_one(verb, s);
  } else if (rc == BS_OK && (a.n_words < s->min_words || a.n_words > s->max_words)) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-WORD", "%s %s: %zu words given", verb, s->name, a.n_words);
    bs_error_hint(err, "bsrun %s %s %s", verb, s->name, s->words);
  } else if (rc == BS_OK) {
    rc = s->run(&a, err);
  }
  args_free(&a);
  return rc;
}

int bsrun_subverbs_run(const bsrun_subverbs *all, int argc, char **argv) {
  const char *names[SUBVERBS_MAX];
  bs_error err = BS_ERROR_INIT;
  if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
    bsrun_subverbs_help(all);
    return argc == 0 ? 2 : 0;
  }
  for (size_t i = 0; i < all->n && i < SUBVERBS_MAX; i++) {
    names[i] = all->of[i]->name;
    if (strcmp(argv[0], names[i]) != 0) continue;
    return run_one(all->verb, all->of[i], argc - 1, argv + 1, &err) == BS_OK ? 0 : bsrun_fail(&err);
  }
  bsrun_unknown("verb", argv[0], names, all->n, &err);
  return bsrun_fail(&err);
}
