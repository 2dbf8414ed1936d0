/* SPDX-License-Identifier: MIT
 * oplog_parts.h - what the makers of op logs share. */
#ifndef BS_SIM_OPLOG_PARTS_H
#define BS_SIM_OPLOG_PARTS_H
#include "sim/oplog.h"

/* Fills what a job reads and writes. */
typedef void sim_oplog_fill(const sim_program *program, const sim_recorder *recorder, uint64_t index,
                            const sim_job *job, sim_logged *inout);
sim_oplog_fill sim_oplog_product, sim_oplog_map, sim_oplog_attention;

/* The bytes of a load or a store in the device's memory, by a program of this kind. */
sim_range sim_moved(uint32_t kind, const sim_job *job);

static inline sim_range sim_in_scratch(uint64_t start, uint64_t bytes) {
  return (sim_range){.space = SIM_SPACE_SCRATCH, .rows = 1, .start = start, .bytes = bytes};
}
#endif
