/* SPDX-License-Identifier: MIT
 * program.h - a program of ranks that calls every collective of a communicator and compares each result with
 * that of a single rank. `bsrun torture` runs it with and without faults. */
#ifndef BS_LAB_TORTURE_PROGRAM_H
#define BS_LAB_TORTURE_PROGRAM_H
#include "blockshock/blockshock.h"

typedef struct bs_torture_request {
  const char *comm;
  uint32_t world_size;
  double deadline_s;
  /* Calls of each rank and kind, [world_size][BS_COLL_COUNT_]; NULL: not wanted. */
  uint64_t (*counts)[BS_COLL_COUNT_];
} bs_torture_request;

/* Runs two rounds, one of small and one of large messages. Each has all_reduce, all_gather, reduce_scatter,
 * broadcast, all_to_all, a message from every rank to the next with a barrier after each, and a barrier. A
 * collective that the communicator lacks is left out. Call sites are "torture.KIND.small" and ".large". The
 * error is that of the first rank that failed: the communicator's own, or BS_NUMERIC (BS-TORTURE-NUMBERS)
 * with the call, the element and, if the value came from one rank, that rank. */
int32_t bs_torture_program(bs_context *context, const bs_torture_request *request, bs_error *err);
#endif
