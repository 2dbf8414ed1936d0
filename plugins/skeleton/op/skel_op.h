/* SPDX-License-Identifier: MIT
 * skel_op.h - what plugin.c registers. */
#ifndef BS_PLUGIN_skel_op_H
#define BS_PLUGIN_skel_op_H
#include <blockshock/plugin.h>

/* Fills the table of the implementation skel_op. */
void skel_op_table(bs_op_impl *impl);
#endif
