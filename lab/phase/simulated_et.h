/* SPDX-License-Identifier: MIT
 * simulated_et.h - the steps of a simulated run as a Chakra trace (formats/chakra.h): --to et=PREFIX. A step
 * needs the one of its rank that ended last before it began; where time lies between both, a node of the
 * host's processor holds it. `bsrun sim run` on the same machine then takes the same time. */
#ifndef BS_LAB_PHASE_SIMULATED_ET_H
#define BS_LAB_PHASE_SIMULATED_ET_H
#include "blockshock/blockshock.h"

typedef struct bs_simulated_et bs_simulated_et;

int32_t bs_simulated_et_begin(uint32_t world_size, bs_simulated_et **out_et, bs_error *err);
void bs_simulated_et_free(bs_simulated_et *et);
/* Takes a figure of the plugin sim (plugins.sim.steps_all): "every", a text, begins a step; the fields
 * "every.began", ... follow. Others are ignored. */
void bs_simulated_et_take(bs_simulated_et *et, const char *name, double value, const char *text);
/* Writes PREFIX.RANK.et. BS_UNSUPPORTED, BS-ET-STEP: a step that such a trace cannot hold. */
int32_t bs_simulated_et_write(bs_simulated_et *et, const char *prefix, bs_error *err);
#endif
