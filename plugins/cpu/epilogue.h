/* SPDX-License-Identifier: MIT
 *
 * epilogue.h - activations in f32, shared by the matmuls. */
#ifndef BS_PLUGINS_CPU_EPILOGUE_H
#define BS_PLUGINS_CPU_EPILOGUE_H

#include <math.h>

#include "cpu.h"

/* In place on n values; NaN stays NaN. */
static inline void cpu_activate(uint32_t activation, float *v, int64_t n) {
  if (activation == BS_ACT_RELU) {
    for (int64_t i = 0; i < n; i++) v[i] = v[i] < 0.0f ? 0.0f : v[i];
  } else if (activation == BS_ACT_GELU) {
    for (int64_t i = 0; i < n; i++) v[i] = 0.5f * v[i] * erfcf(v[i] * -0.70710678118654752440f);
  } else if (activation == BS_ACT_SILU) {
    for (int64_t i = 0; i < n; i++) v[i] = v[i] / (1.0f + expf(-v[i]));
  }
}

#endif
