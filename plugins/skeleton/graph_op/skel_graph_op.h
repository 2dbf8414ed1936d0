/* SPDX-License-Identifier: MIT
 * skel_graph_op.h - what plugin.c registers. */
#ifndef BS_PLUGIN_skel_graph_op_H
#define BS_PLUGIN_skel_graph_op_H
#include <blockshock/plugin.h>

/* Fills the table of the implementation normalize@ref/skel_graph_op. */
void skel_graph_op_table(bs_op_impl *impl);
#endif
