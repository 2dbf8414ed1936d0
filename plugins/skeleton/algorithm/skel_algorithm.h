/* SPDX-License-Identifier: MIT
 * skel_algorithm.h - the collective algorithm of this plugin. */
#ifndef BS_PLUGIN_skel_algorithm_H
#define BS_PLUGIN_skel_algorithm_H
#include <blockshock/plugin.h>

/* Fills the table of the algorithm. */
void skel_algorithm_table(bs_algorithm *out_algorithm);
#endif
