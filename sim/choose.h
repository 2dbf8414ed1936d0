/* SPDX-License-Identifier: MIT
 * choose.h - the fastest of some candidates of knobs for an op on a device. */
#ifndef BS_SIM_CHOOSE_H
#define BS_SIM_CHOOSE_H
#include "sim/program.h"

/* The share by which explain and the table of asks make a class of parts faster, to see what binds. */
#define SIM_FASTER 1.1

typedef struct sim_choose {
  sim_layout *layout;
  const sim_op *op;
  double least_gain; /* a candidate that cannot be faster than the best by this share is left out */
  int (*candidate)(const void *user, uint32_t i, sim_knobs *out); /* number i; 0: there are no more */
  const void *user;
} sim_choose;

typedef struct sim_chosen {
  sim_knobs knobs; /* of the fastest, as its candidate has them */
  sim_inside_result result;
  uint32_t tried, skipped; /* candidates that were simulated; those that could not win or do not fit */
  uint32_t is_last;        /* 1: the fastest was simulated last, so the layout has what its parts did */
} sim_chosen;

/* Of equal candidates the first is the fastest. One that does not fit (sim_left_out) is left out, unless none
 * fits: then the error of the first one is returned. Any other error ends it. *inout_program is zero, or a
 * program that is closed; the caller closes it in every case, and makes it again: it is that of the last
 * candidate. */
int32_t sim_choose_run(const sim_choose *choose, sim_program *inout_program, sim_chosen *out, bs_error *err);
/* 1: an error of sim_program_make that says nothing of other knobs: BS-INSIDE-SCRATCH, -SIZE or -KNOB. */
int sim_left_out(const bs_error *why);
/* Resets the layout and runs the program on it. told: for the hooks, as program.h has it. */
int32_t sim_run_once(sim_program *program, sim_layout *layout, const sim_inside_config *hooks, void *told,
                     sim_inside_result *out, bs_error *err);
#endif
