/* SPDX-License-Identifier: MIT
 * launch.h - how an op begins on the lanes of a device, and how its end comes back. Commands and answers have
 * no bytes: they take times of servers and latencies. */
#ifndef BS_SIM_LAUNCH_H
#define BS_SIM_LAUNCH_H
#include "sim/layout.h"

/* The stamp: when the command of the last lane is there. Every lane begins then. A server of launch.out
 * serves one command for each place of the next server below it, the last server one for each lane. A device
 * that gives one number (launch.first_s) adds it; without launch the stamp is `start`. BS_CONFIG
 * BS-DEVICE-LAUNCH: a part of launch takes no commands; BS_NO_MEMORY. */
int32_t sim_launch_out(sim_layout *layout, uint64_t start, uint64_t *out_stamp, bs_error *err);
/* When the answers of lanes that end at lane_ends have come back. A server of launch.back joins them: it
 * serves each in the order in which they come, and passes one on behind the last. */
int32_t sim_launch_back(sim_layout *layout, const uint64_t *lane_ends, uint64_t *out_end, bs_error *err);
/* Both around a run that begins at 0, whose lanes end at lane_ends and whose last commit is at `settled`: the
 * stamp, and when the last answer is back and all is there. Resets the layout: commands and answers are no
 * traffic for the run. */
int32_t sim_launch_around(sim_layout *layout, const uint64_t *lane_ends, uint64_t settled,
                          uint64_t *out_stamp, uint64_t *out_whole, bs_error *err);
#endif
