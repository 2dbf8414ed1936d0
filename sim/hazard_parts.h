/* SPDX-License-Identifier: MIT
 * hazard_parts.h - what hazard.c and hazard_places.c share. */
#ifndef BS_SIM_HAZARD_PARTS_H
#define BS_SIM_HAZARD_PARTS_H
#include "sim/hazard.h"

void sim_hazard_add(sim_hazards *out, const sim_hazard *hazard);
/* Has one of the two jobs (places in the log) ended before the other begins, whatever the times are? */
int sim_hazard_ordered(const sim_oplog *log, const uint64_t *before, uint64_t a, uint64_t b);
/* H5 of the device's memory. */
int32_t sim_hazard_places(const sim_oplog *log, const uint64_t *before, sim_hazards *out, bs_error *err);
#endif
