/* SPDX-License-Identifier: MIT
 * help.c - the help of bsrun itself, and `bsrun help`. Plain text, printed before anything is opened. */
#include <stdio.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

void help_main(void) {
  fputs(
      "bsrun - split linear layers over ranks, prove the result, time it\n"
      "\n"
      "usage: bsrun VERB [options]        without VERB: run\n"
      "\n",
      stdout);
  for (const bsrun_verb_group *g = bsrun_verb_groups; g->title != NULL; g++)
    for (size_t i = 0; g->verbs[i] != NULL; i++)
      printf("%-8s %-9s %s\n", i == 0 ? g->title : "", g->verbs[i]->name, g->verbs[i]->summary);
  fputs("\n`bsrun help VERB` has the options; pages: PREFIX/share/doc/blockshock\n", stdout);
}

static int32_t help(const args *a, bs_error *err) {
  const bsrun_verb *verb = NULL, *second = NULL;
  if (a->n_words == 0) {
    help_main();
    return BS_OK;
  }
  if ((verb = bsrun_find_verb(a->words[0], err)) == NULL) return err->code;
  if (a->n_words == 1) {
    bsrun_verb_help(NULL, verb);
    return BS_OK;
  }
  if (verb->subverbs == NULL)
    return bs_error_set(err, BS_USAGE, "BS-USE-WORD", "unexpected argument '%.100s'", a->words[1]);
  if ((second = bsrun_find_subverb(verb, a->words[1], err)) == NULL) return err->code;
  bsrun_verb_help(verb, second);
  return BS_OK;
}

static const args_option options[] = {ARGS_HELP};
const bsrun_verb verb_help = {
    .name = "help",
    .words = "[VERB [VERB]]",
    .summary = "print the help of a verb",
    .examples = "  bsrun help run\n  bsrun help runs list\n",
    .options = options,
    .run = help,
    .max_words = 2,
    .takes = "verbs",
};
