/* SPDX-License-Identifier: MIT
 *
 * hand_loops.h - the loops that one would write by hand for what bench_graph_ops asks of `map`: the compiler
 * makes vectors of them, for the machine that builds them. */
#ifndef BS_BENCH_HAND_LOOPS_H
#define BS_BENCH_HAND_LOOPS_H
#include <stdint.h>

void hand_add(float *restrict y, const float *restrict a, const float *restrict b, int64_t n);
/* y = gate / (1 + e^-gate) up. */
void hand_silu_mul(float *restrict y, const float *restrict gate, const float *restrict up, int64_t n);
/* x, y: [heads, rows, 2 half], turned by cosine and sine [rows, half]. */
void hand_rope(float *restrict y, const float *restrict x, const float *restrict cosine,
               const float *restrict sine, int64_t heads, int64_t rows, int64_t half);
#endif
