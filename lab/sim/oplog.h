/* SPDX-License-Identifier: MIT
 * oplog.h - op logs in the lab: made from an answer of inside.h, and read back into the program that they are
 * of. */
#ifndef BS_LAB_SIM_OPLOG_H
#define BS_LAB_SIM_OPLOG_H
#include "lab/kernel/problem.h"
#include "lab/sim/inside.h"
#include "sim/hazard.h"
#include "sim/retime.h"

/* Runs the chosen program once more. Free the log in every case. */
int32_t bs_oplog_make(bs_inside_answer *answer, sim_oplog *out, bs_error *err);

/* A program as the first line of a log has it, made for a device. */
typedef struct bs_oplog_plan {
  sim_op what;
  uint32_t dtype;            /* of the operands */
  bs_kernel_problem problem; /* of a product and of attention */
  sim_knobs knobs;
  sim_layout layout;
  sim_program program; /* made on the layout */
} bs_oplog_plan;

/* The device must live as long, and *out may not be copied. Close it in every case. */
int32_t bs_oplog_plan_open(const sim_oplog *log, const sim_device *device, bs_oplog_plan *out, bs_error *err);
void bs_oplog_plan_close(bs_oplog_plan *plan);

/* Hazards of the log as it is, and on the machines that are drawn. */
typedef struct bs_oplog_hazards {
  uint64_t seed;
  sim_hazards logged, drawn; /* drawn: of all machines together */
  uint32_t machine;          /* 1 and up: the first drawn one that shows one; 0: none does */
  char first[512];           /* the first hazard as a sentence, or "" */
  char first_drawn[512];
} bs_oplog_hazards;

int32_t bs_oplog_hazards_find(const sim_oplog *log, bs_oplog_plan *plan, uint64_t seed, bs_oplog_hazards *out,
                              bs_error *err);
#endif
