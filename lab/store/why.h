/* SPDX-License-Identifier: MIT
 * why.h - the fate of a run, in rows of words: its state, its error, the last work of each rank, and the next
 * step. Also for a run that is not committed, or damaged. */
#ifndef BS_LAB_STORE_WHY_H
#define BS_LAB_STORE_WHY_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* The newest collective of each rank that has one, of the open folder's `flight`: [{rank, op, dtype, count,
 * site, state ("in it", "left it", "failed in it"), seq, since_s (how long before the newest of all ranks it
 * was entered)}]. Empty without such a file. The caller's. BS_CORRUPT, BS_IO. */
int32_t bs_flight_read(int folder_fd, json_t **out_ranks, bs_error *err);

/* [{what, answer}] of <root>/<run>. The caller's. BS_NOT_FOUND, BS_IO. */
int32_t bs_run_why(const char *root, const char *run, json_t **out_rows, bs_error *err);
#endif
