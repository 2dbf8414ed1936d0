/* SPDX-License-Identifier: MIT
 * help.c - the help of bsrun itself. Plain text, printed before anything is opened. */
#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

void help_main(void) {
  fputs(
      "bsrun - split a linear layer over ranks, prove that it is right, and time it\n"
      "\n"
      "usage: bsrun [VERB] [options]\n"
      "\n"
      "  bsrun --plugin cpu --method blockshock     prove it right on two ranks, then time it\n"
      "  bsrun --method row_parallel -P 4 --phase 0 only the proof, on four ranks\n"
      "  bsrun --method auto -P 2                   the fastest way of splitting, by prediction and "
      "measurement\n"
      "  bsrun plugins list                         what there is to choose from\n"
      "\n"
      "verbs:\n",
      stdout);
  for (size_t i = 0; bsrun_verbs[i] != NULL; i++)
    printf("  %-10s %s\n", bsrun_verbs[i]->name, bsrun_verbs[i]->summary);
  fputs("\noptions of run (the verb may be left out):\n", stdout);
  args_print_options(bsrun_run_options);
  fputs(
      "\n"
      "A NAME is a registered id, a file of the configs folder, or a path to a YAML file.\n"
      "Results go to stdout, all else to stderr. `bsrun help VERB` says more; pages are installed in\n"
      "PREFIX/share/doc/blockshock.\n",
      stdout);
}

static int help(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  if (argc == 0) {
    help_main();
    return 0;
  }
  const bsrun_verb *verb = bsrun_find_verb(strcmp(argv[0], "--help") == 0 ? "help" : argv[0], &err);
  if (verb != NULL && argc > 1)
    bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "unexpected argument '%.100s'", argv[1]);
  if (verb == NULL || argc > 1) return bsrun_fail(&err);
  bsrun_verb_help(verb);
  return 0;
}

const bsrun_verb verb_help = {
    .name = "help",
    .summary = "help on a verb",
    .usage = "usage: bsrun help [VERB]\n\nexample:\n  bsrun help run\n",
    .words = help,
};
