/* SPDX-License-Identifier: MIT
 * sim.h - the second words of `bsrun sim`: one file each (sim_fit.c, ...). */
#ifndef BSRUN_SIM_H
#define BSRUN_SIM_H
#include "bsrun/bsrun.h"

extern const bsrun_subverb sim_explain_verb, sim_fit_verb, sim_probe_verb, sim_scale_verb;
#endif
