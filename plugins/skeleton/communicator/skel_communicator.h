/* SPDX-License-Identifier: MIT
 * skel_communicator.h - a world of ranks that are threads of this process (skel_communicator.c), the work
 * after all have arrived (skel_communicator_move.c), and the table that plugin.c registers. */
#ifndef BS_PLUGIN_skel_communicator_H
#define BS_PLUGIN_skel_communicator_H
#include <blockshock/plugin.h>

/* Fills the table of the communicator skel_communicator. */
void skel_communicator_table(bs_comm *comm);

/* Can the call be served? Otherwise BS_UNSUPPORTED with the dtypes: checked before any rank waits. */
int32_t skel_communicator_check(const bs_host *host, const bs_coll_call *call, bs_error *err);
/* Does a collective for all ranks together: calls[r] is rank r's, all with the same fingerprint. */
int32_t skel_communicator_move(const bs_host *host, const bs_coll_call *const *calls, uint32_t size);
#endif
