/* SPDX-License-Identifier: MIT
 *
 * avx512_vnni.c - the products of integers of pair_product.h, where one instruction multiplies a pair and
 * adds both products to the sum, modulo 2^32: the bits of the others, at twice the rate. */
#include "vec_avx512.h"

#include "pair_product.h"

void cpu_avx512_vnni_pairs(const cpu_pairs *t) {
  pairs(t);
}
