/* SPDX-License-Identifier: MIT
 * skel_method.h - what plugin.c registers. */
#ifndef BS_PLUGIN_skel_method_H
#define BS_PLUGIN_skel_method_H
#include <blockshock/plugin.h>

/* Fills the table of the method skel_method. */
void skel_method_table(bs_method *method);
#endif
