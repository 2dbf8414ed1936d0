/* SPDX-License-Identifier: MIT
 *
 * quantize.h - divides groups by their scale into int8 values, and adds up scaled terms. One source for every
 * instruction set, with loops of whole vectors that compilers vectorize. Bit for bit as plugins/ref. */
#ifndef BS_PLUGINS_CPU_ISA_QUANTIZE_H
#define BS_PLUGINS_CPU_ISA_QUANTIZE_H

#include <math.h>
#include <string.h>

#include "../kernels.h"

#define QUANT_STEP 32
#define QUANT_INFINITY 0x7f800000 /* the bits of a float grow with its magnitude; NaN is above all */

/* The largest |x| as bits. */
static int32_t largest_bits(const float *x, int64_t n) {
  int32_t lanes[QUANT_STEP] = {0}, bits[QUANT_STEP], most = 0;
  int64_t i = 0;
  for (; i + QUANT_STEP <= n; i += QUANT_STEP) {
    memcpy(bits, x + i, sizeof bits);
    for (int v = 0; v < QUANT_STEP; v++) {
      const int32_t magnitude = bits[v] & 0x7fffffff;
      lanes[v] = magnitude > lanes[v] ? magnitude : lanes[v];
    }
  }
  for (; i < n; i++) {
    memcpy(bits, x + i, sizeof *bits);
    most = (bits[0] & 0x7fffffff) > most ? bits[0] & 0x7fffffff : most;
  }
  for (int v = 0; v < QUANT_STEP; v++) most = lanes[v] > most ? lanes[v] : most;
  return most;
}

/* Nearest integers, ties to even: the sum leaves no room for a fraction, so its low bits are the integer. |v|
 * is at most a few times 127: a scale below the normal numbers is rounded much. */
#define QUANT_SHIFT 12582912.0f /* 1.5 x 2^23 */
#define QUANT_SHIFT_BITS 0x4b400000

static inline int8_t nearest_of_bits(int32_t bits) {
  int32_t whole = bits - QUANT_SHIFT_BITS;
  whole = whole > 127 ? 127 : whole;
  return (int8_t)(whole < -127 ? -127 : whole);
}

/* Values by their group's scale, which is above zero. */
static void narrow_i8(void *out, const float *x, float scale, int64_t n) {
  int8_t *q = out;
  int32_t bits[QUANT_STEP];
  float moved[QUANT_STEP];
  int64_t i = 0;
  for (; i + QUANT_STEP <= n; i += QUANT_STEP) {
    for (int v = 0; v < QUANT_STEP; v++) moved[v] = x[i + v] / scale + QUANT_SHIFT;
    memcpy(bits, moved, sizeof bits);
    for (int v = 0; v < QUANT_STEP; v++) q[i + v] = nearest_of_bits(bits[v]);
  }
  for (; i < n; i++) {
    moved[0] = x[i] / scale + QUANT_SHIFT;
    memcpy(bits, moved, sizeof *bits);
    q[i] = nearest_of_bits(bits[0]);
  }
}

/* sum = q scale, or sum += q scale. */
static void dequantize_group(float *sum, const int8_t *q, float scale, int64_t n, int first) {
  int64_t i = 0;
  for (; first && i + QUANT_STEP <= n; i += QUANT_STEP)
    for (int v = 0; v < QUANT_STEP; v++) sum[i + v] = (float)q[i + v] * scale;
  for (; !first && i + QUANT_STEP <= n; i += QUANT_STEP)
    for (int v = 0; v < QUANT_STEP; v++) sum[i + v] += (float)q[i + v] * scale;
  for (; i < n; i++) sum[i] = first ? (float)q[i] * scale : sum[i] + (float)q[i] * scale;
}

/* Multiplies i32 sums by the scale of their row and those of their columns, and adds the other terms. */
static void scale_sums(float *v, const int32_t *sums, float row, const float *columns, const float *base,
                       const float *bias, int64_t n) {
  int64_t i = 0;
  for (; i + QUANT_STEP <= n; i += QUANT_STEP) {
    float part[QUANT_STEP]; /* v may be base: the copy tells the compiler about the overlap */
    for (int k = 0; k < QUANT_STEP; k++) part[k] = (float)sums[i + k] * row * columns[i + k];
    for (int k = 0; base != NULL && k < QUANT_STEP; k++) part[k] += base[i + k];
    for (int k = 0; bias != NULL && k < QUANT_STEP; k++) part[k] += bias[i + k];
    memcpy(v + i, part, sizeof part);
  }
  for (; i < n; i++) {
    float one = (float)sums[i] * row * columns[i];
    if (base != NULL) one += base[i];
    if (bias != NULL) one += bias[i];
    v[i] = one;
  }
}

#endif
