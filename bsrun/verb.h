/* SPDX-License-Identifier: MIT
 * verb.h - verbs as data. From their table main finds one, and the help, the completion and the manual page
 * are made. A verb of two words (`bsrun model info`) has one file a second word. */
#ifndef BSRUN_VERB_H
#define BSRUN_VERB_H
#include "bsrun/args.h"

/* A second word with a help text for itself. */
typedef struct bsrun_subverb {
  const char *name;
  const char *words;   /* after the name, in the line "usage" */
  const char *summary; /* one line */
  const char *about;   /* lines; "" */
  const char *examples;
  const args_option *options;
  int32_t (*run)(const args *a, bs_error *err); /* the options are parsed, and --help was not among them */
  size_t min_words, max_words;
} bsrun_subverb;

typedef struct bsrun_verb {
  const char *name, *summary;
  const char *usage; /* of its help: the lines before the options */
  const char *after; /* and after them; NULL: the help lists no options */
  const args_option *options;
  int needs_words; /* without any its help is printed, and the exit code is 2 */
  /* One of the next five is set. `run` and `exit` get parsed options, and --help was not among them. */
  int32_t (*run)(const args *a, bs_error *err);
  int (*exit)(const args *a, bs_error *err);   /* an exit code; the error has been printed */
  int (*words)(int argc, char **argv);         /* the same, of what was typed after the verb */
  const struct bsrun_verb *const *second;      /* second words that share its help; NULL at the end */
  const struct bsrun_subverb *const *subverbs; /* those with a help text each */
  /* A second word that takes a plugin's name: "one plugin", and a command as an example. */
  const char *takes, *example;
  size_t min_words, max_words;
} bsrun_verb;

/* In the order of the help; NULL at the end. */
extern const bsrun_verb *const bsrun_verbs[];
/* The verb of this name. NULL, with BS-USE-VERB and the nearest name in err: there is none. */
const bsrun_verb *bsrun_find_verb(const char *name, bs_error *err);
/* Runs it with what was typed after its name; the exit code. */
int bsrun_verb_run(const bsrun_verb *verb, int argc, char **argv);
/* Parses the options of a verb and calls its `run` or `exit`. of: whose help it has; itself, or the verb that
 * it is a second word of. */
int bsrun_verb_parsed(const bsrun_verb *of, const bsrun_verb *verb, int argc, char **argv);
void bsrun_verb_help(const bsrun_verb *verb);
#endif
