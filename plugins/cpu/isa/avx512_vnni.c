/* SPDX-License-Identifier: MIT
 *
 * avx512_vnni.c - the products of integers of bytes.h, where one instruction multiplies a pair and adds both
 * products to the sum, modulo 2^32: the bits of the others, at twice the rate. */
#include "vec_avx512.h"

#include "bytes.h"

void cpu_avx512_vnni_bytes(const cpu_bytes *t) {
  bytes(t);
}

void cpu_avx512_vnni_pairs(const cpu_bytes *t) {
  pairs(t);
}
