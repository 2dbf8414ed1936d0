/* SPDX-License-Identifier: MIT
 * sim.c - the table of `bsrun sim`. */
#include "bsrun/sim.h"

static const bsrun_subverb *const verbs[] = {&sim_explain_verb, &sim_scale_verb, &sim_probe_verb,
                                             &sim_fit_verb};
const bsrun_subverbs sim_subverbs = {"sim", verbs, sizeof verbs / sizeof verbs[0]};

void help_sim(void) {
  bsrun_subverbs_help(&sim_subverbs);
}

int verb_sim(int argc, char **argv) {
  return bsrun_subverbs_run(&sim_subverbs, argc, argv);
}
