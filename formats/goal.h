/* SPDX-License-Identifier: MIT
 * goal.h - GOAL, the text of schedules that LogGOPSim reads:
 *
 *   num_ranks 2
 *   rank 0 { // or a comment over lines
 *     l1: calc 100 cpu 1               100 ns on processor 1 of the rank
 *     l2: send 8b to 1 tag 7 nic 0     tag, cpu and nic may be left out: 0
 *     l2 requires l1                   l2 begins when l1 has ended; irequires: when l1 has begun
 *   }
 *
 * A statement is a line. A receive of any source or tag (-1) is refused: its time would depend on the order
 * in which messages are matched. */
#ifndef BS_FORMATS_GOAL_H
#define BS_FORMATS_GOAL_H
#include "formats/et.h"

/* The caller calls bs_et_end, and frees the trace in each case. Ranks come in ascending order; those that are
 * left out do nothing. BS_INPUT: BS-GOAL-* with the line in err->where. */
int32_t bs_goal_read(const char *path, bs_et *out_et, bs_error *err);
/* Writes a trace that has ended (bs_et_end). Times become whole ns; *out_rounded is how many were not. BS_IO;
 * BS_UNSUPPORTED, BS-GOAL-NODE: a collective, or work of which no time is known. */
int32_t bs_goal_write(const bs_et *et, const char *path, uint64_t *out_rounded, bs_error *err);
#endif
