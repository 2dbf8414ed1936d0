/* SPDX-License-Identifier: MIT
 * skel_workload.h - what plugin.c registers. */
#ifndef BS_PLUGIN_skel_workload_H
#define BS_PLUGIN_skel_workload_H
#include <blockshock/plugin.h>

/* Fills the table of the workload skel_workload. */
void skel_workload_table(bs_workload *workload);
#endif
