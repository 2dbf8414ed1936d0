/* SPDX-License-Identifier: MIT
 *
 * quant_avx2.c - the products with quantised weights for AVX2. */
#include "vec_avx2.h"

#include "quant_whole.h"
#include "quant_wide.h"

const cpu_quant_fns cpu_quant_avx2 = Q_TABLE("avx2", qw_whole);
