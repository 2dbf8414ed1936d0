/* SPDX-License-Identifier: MIT
 * subverb.h - verbs of two words (`bsrun model info`): one file a second word, in a table, from which the
 * look-up, the help, the completion and the manual page are made. */
#ifndef BSRUN_SUBVERB_H
#define BSRUN_SUBVERB_H
#include "bsrun/args.h"

typedef struct bsrun_subverb {
  const char *name;
  const char *words;   /* behind the name, in the line "usage" */
  const char *summary; /* one line */
  const char *about;   /* lines; "" */
  const char *examples;
  const args_option *options;
  const size_t *n_options;
  int32_t (*run)(const args *a, bs_error *err); /* the options are parsed, and --help was not among them */
  size_t min_words, max_words;
} bsrun_subverb;

/* All second words of a verb. */
typedef struct bsrun_subverbs {
  const char *verb;
  const bsrun_subverb *const *of;
  size_t n;
} bsrun_subverbs;

/* argv without the program and the verb; the exit code. */
int bsrun_subverbs_run(const bsrun_subverbs *all, int argc, char **argv);
void bsrun_subverbs_help(const bsrun_subverbs *all);

/* Of every such verb, for the completion; NULL at the end. */
extern const bsrun_subverbs *const bsrun_all_subverbs[];
#endif
