/* SPDX-License-Identifier: MIT
 * retime.h - the jobs of an op log on another device, or on the same with other rates: each gets the device's
 * way between the same spaces and keeps its needs. On the same device the times are equal to the ps. */
#ifndef BS_SIM_RETIME_H
#define BS_SIM_RETIME_H
#include "sim/oplog.h"

/* Machines whose rates are drawn: what a log hides on one machine by luck shows on another. */
enum { SIM_RETIME_DRAWN = 8 };

/* program: made for the log's op and knobs on the layout, which is reset first. *out is a log of the same
 * jobs, with first and at; free it in every case. BS_CONFIG BS-RETIME-LANES: the device has fewer lanes; and
 * the errors of sim/inside.h. */
int32_t sim_retime(const sim_oplog *log, const sim_program *program, sim_layout *layout, sim_oplog *out,
                   bs_error *err);
/* Are the times of all jobs equal? *out_job: the first that differs, of `a`. */
int sim_retime_equal(const sim_oplog *a, const sim_oplog *b, uint64_t *out_job);
/* Rates of the layout's classes times 2^u, u from -1 to 1 by Philox of (seed, machine), from the next reset
 * on. */
void sim_retime_draw(sim_layout *layout, uint64_t seed, uint32_t machine);
#endif
