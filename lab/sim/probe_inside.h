/* SPDX-License-Identifier: MIT
 * probe_inside.h - one move of data inside a device, stop by stop: `bsrun sim probe A B --device D`. */
#ifndef BS_LAB_SIM_PROBE_INSIDE_H
#define BS_LAB_SIM_PROBE_INSIDE_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/sim/probe.h"
#include "sim/layout.h"

typedef struct bs_inside_flow {
  const char *from, *to; /* places (sim/layout.h): a lane and a memory, a memory and a lane, or two lanes */
} bs_inside_flow;

typedef struct bs_inside_probe {
  uint32_t n_flows;            /* 1 to BS_PROBE_FLOWS */
  const bs_inside_flow *flows; /* the first is the one that is reported; all begin at the same time, and it
                                * goes last where that matters */
  uint64_t bytes;              /* of each; of a single channel whole pieces of its interleave */
} bs_inside_probe;

/* The rows have the fields of bs_probe_run: one for each stop, and one for the whole. Also `way` ("load"),
 * `from`, `to`, `bytes`, and of a posted store `lane_us`, when it ends for its lane. BS_USAGE: no such
 * place, or no way between two of them. */
int32_t bs_inside_probe_run(sim_layout *layout, const bs_inside_probe *probe, json_t **out_rows,
                            bs_error *err);
#endif
