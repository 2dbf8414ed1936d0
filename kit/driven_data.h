/* SPDX-License-Identifier: MIT
 * driven_data.h - the data movement of a DRIVEN world's collectives, given the calls of all ranks. */
#ifndef BS_KIT_DRIVEN_DATA_H
#define BS_KIT_DRIVEN_DATA_H
#include "blockshock/comm.h"

enum { KIT_DRIVEN_RANKS = 16 };

/* One collective of n ranks that all made the same call. */
void kit_driven_exchange(const bs_coll_call *const *calls, uint32_t n);
void kit_driven_message(const bs_coll_call *send, const bs_coll_call *recv);
#endif
