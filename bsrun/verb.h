/* SPDX-License-Identifier: MIT
 * verb.h - verbs as data. From their table main finds one; its help, the completion and the manual pages are
 * made of it. A verb of two words (`bsrun model info`) has a table for each second word. */
#ifndef BSRUN_VERB_H
#define BSRUN_VERB_H
#include "bsrun/args.h"

typedef struct bsrun_verb {
  const char *name;
  const char *words;    /* of the usage, after the name: a line for each form */
  const char *summary;  /* one line */
  const char *about;    /* lines of the help before the options; NULL: none */
  const char *examples; /* lines */
  const args_option *options;
  int32_t (*run)(const args *a,
                 bs_error *err); /* the options are parsed, and the words are as many as asked */
  size_t min_words, max_words;
  const char *takes;                         /* kinds of its words for the completion, with blanks between:
                                              * those of `completion words kinds`, a|b for words, :file, :dir */
  const char *exits;                         /* exit codes, of the help; NULL: it does not name them */
  int (*exit)(const args *a, bs_error *err); /* instead of run: an exit code; the error has been printed */
  const struct bsrun_verb *const *subverbs;  /* instead of both: second words; NULL at the end */
} bsrun_verb;

/* Verbs that serve one purpose. title NULL: verbs that `bsrun --help` does not list. */
typedef struct bsrun_verb_group {
  const char *title;
  const bsrun_verb *const *verbs; /* NULL at the end; of the group after the last: NULL */
} bsrun_verb_group;
/* In the order of the help. */
extern const bsrun_verb_group bsrun_verb_groups[];

/* The verb of number i, over all groups; NULL: there are not so many. */
const bsrun_verb *bsrun_verb_at(size_t i);
/* The verb of this name. NULL, with BS-USE-VERB and the nearest name in err: no verb has it. */
const bsrun_verb *bsrun_find_verb(const char *name, bs_error *err);
/* A second word of a verb, in the same way. */
const bsrun_verb *bsrun_find_subverb(const bsrun_verb *verb, const char *name, bs_error *err);
/* Runs it with what was typed after its name; the exit code. */
int bsrun_verb_run(const bsrun_verb *verb, int argc, char **argv);
/* Adds to the hint of an error of use which page has the options of the verb that runs. */
void bsrun_name_page(bs_error *err);
/* The whole help of a verb, or of a second word `verb` of `of` (else NULL). */
void bsrun_verb_help(const bsrun_verb *of, const bsrun_verb *verb);
#endif
