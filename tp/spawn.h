/* SPDX-License-Identifier: MIT
 *
 * spawn.h - what became of each rank of a spawn, shared by spawn.c (runs it) and report.c (tells it).
 */
#ifndef BS_TP_SPAWN_H
#define BS_TP_SPAWN_H

#include <stdatomic.h>

#include "blockshock/tp.h"

/* The error of one rank. The rank's own thread sets it once; a rank whose call did not return may do so while
 * others read. NULL: it did not fail, or echoes another rank, or there was no memory for the error. */
typedef struct tp_seat {
  _Atomic(bs_error *) error;
} tp_seat;

/* Keeps a rank's error if it is a root cause: an error caused by another rank's failure is left out. */
void tp_seat_fill(tp_seat *seat, uint32_t rank, int32_t code, const bs_error *error);

/* The error of a spawn whose world returned `code` and `world_error`: the root causes of all seats, each also
 * passed to `failed`. Without a root cause: the world's own error. Returns the code. */
int32_t tp_report(const tp_seat *seats, uint32_t n, const bs_error *world_error,
                  const bs_tp_spawn_options *options, bs_error *out_error);

#endif
