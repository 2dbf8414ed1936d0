/* SPDX-License-Identifier: MIT
 * sim.c - the table of `bsrun sim`. */
#include "bsrun/sim.h"

static const bsrun_subverb *const verbs[] = {&sim_explain_verb, &sim_scale_verb, &sim_probe_verb,
                                             &sim_fit_verb, NULL};
const bsrun_verb verb_sim = {
    .name = "sim",
    .summary = "simulated machines: explain, scale and probe them, fit them to measured times",
    .subverbs = verbs,
};
