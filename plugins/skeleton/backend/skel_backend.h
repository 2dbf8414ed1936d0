/* SPDX-License-Identifier: MIT
 * skel_backend.h - the things that plugin.c registers: devices and memory (skel_backend.c) and the one op
 * that every layer needs (skel_backend_matmul.c). */
#ifndef BS_PLUGIN_skel_backend_H
#define BS_PLUGIN_skel_backend_H
#include <blockshock/plugin.h>

/* Fills the table of the backend skel_backend. */
void skel_backend_table(bs_backend *backend);
/* Fills the table of the implementation matmul@skel_backend/plain. */
void skel_backend_matmul_table(bs_op_impl *impl);
#endif
