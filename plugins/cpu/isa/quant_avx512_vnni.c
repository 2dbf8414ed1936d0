/* SPDX-License-Identifier: MIT
 *
 * quant_avx512_vnni.c - the products with quantised weights for AVX-512 with VNNI, whose instruction adds
 * four products of bytes. */
#include "vec_avx512.h"

#include "quant_wide.h"

const cpu_quant_fns cpu_quant_avx512_vnni = Q_TABLE("avx512_vnni", q_whole);
