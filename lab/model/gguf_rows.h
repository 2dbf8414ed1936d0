/* SPDX-License-Identifier: MIT
 * gguf_rows.h - rows of floats as blocks of GGUF. */
#ifndef BS_LAB_MODEL_GGUF_ROWS_H
#define BS_LAB_MODEL_GGUF_ROWS_H
#include "formats/gguf.h"

/* The type of blocks of a scheme (w8g32, w4g32, w4k, w6k); 0: it has none. */
uint32_t bs_gguf_type_of_scheme(const char *scheme);
/* Rounds a row of `cols` numbers, whole blocks, as bs_quant_round does, and packs it. A scale that is
 * no f16 (below 2^-14) becomes one first. *change
 * and *size get sums of squares: of what the rounding changed, of the numbers. */
int32_t bs_gguf_pack_row(uint32_t type, const float *row, int64_t cols, void *out, double *change,
                         double *size, bs_error *err);
#endif
