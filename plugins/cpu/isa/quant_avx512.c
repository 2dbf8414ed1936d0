/* SPDX-License-Identifier: MIT
 *
 * quant_avx512.c - the products with quantised weights for AVX-512 without VNNI. */
#include "vec_avx512.h"

#include "quant_whole.h"
#include "quant_wide.h"

const cpu_quant_fns cpu_quant_avx512 = Q_TABLE("avx512", qw_whole);
