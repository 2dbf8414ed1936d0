/* SPDX-License-Identifier: MIT
 * bench_memory.h - what a process holds after the runs of `bsrun model bench`, and what a token reads. */
#ifndef BS_LAB_MODEL_BENCH_MEMORY_H
#define BS_LAB_MODEL_BENCH_MEMORY_H
#include "lab/model/model.h"

/* {packed_bytes, arena_bytes, cache_bytes (of `tokens` tokens, of the `limit` that the cache has room for),
 * resident_bytes, peak_bytes, bar_bytes (1.05 times the first three and 20 MB), within}. A new reference. */
json_t *bs_model_bench_memory(const bs_model *model, uint64_t arena, int64_t tokens, int64_t limit);
/* Sets `read` of a row of decode: the bytes of weights and cache that a token reads, the rate at which so
 * many threads read memory (measured here), and the row's share of it. */
int32_t bs_model_bench_read(const bs_model *model, int64_t tokens, int64_t limit, uint32_t threads,
                            json_t *row, bs_error *err);
#endif
