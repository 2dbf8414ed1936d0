/* SPDX-License-Identifier: MIT
 *
 * integers.h - integers and bool of any width as 64 bits, and back. */
#ifndef BS_PLUGINS_CPU_OPS_INTEGERS_H
#define BS_PLUGINS_CPU_OPS_INTEGERS_H
#include "../cpu.h"

static inline int cpu_is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || dtype == BS_I32 || dtype == BS_I64;
}
/* n elements of an integer dtype, or of bool as 0 and 1; strides in elements. */
void cpu_integers_load(uint32_t dtype, const void *from, int64_t stride, int64_t n, int64_t *out);
/* The low bits. */
void cpu_integers_store(uint32_t dtype, void *to, int64_t stride, int64_t n, const int64_t *in);
#endif
