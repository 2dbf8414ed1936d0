/* SPDX-License-Identifier: MIT
 * flush.h - empties the caches before a cold forward: every thread of a rank reads twice the size of the
 * last-level cache, so that its own caches and the shared one hold no other data. */
#ifndef BS_LAB_MEASURE_FLUSH_H
#define BS_LAB_MEASURE_FLUSH_H
#include <stdint.h>

#include "blockshock/blockshock.h"

typedef struct bs_flush bs_flush;

int32_t bs_flush_make(bs_flush **out, bs_error *err);
uint64_t bs_flush_bytes(const bs_flush *flush);
/* On the rank's thread; its whole team reads. */
int32_t bs_flush_run(bs_flush *flush, bs_rank *rank, bs_error *err);
void bs_flush_free(bs_flush *flush);
#endif
