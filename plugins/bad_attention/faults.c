/* SPDX-License-Identifier: MIT
 * faults.c - arithmetic that real kernels got wrong. */
#include <math.h>

#include "bad_attention.h"

float bad_exp(uint32_t fault, float x) {
  if (fault != BAD_TAYLOR_EXP) return expf(x);
  const float c = x < -10.0f ? -10.0f : x;
  return 1.0f + c * (1.0f + c / 2.0f * (1.0f + c / 3.0f * (1.0f + c / 4.0f * (1.0f + c / 5.0f))));
}

void bad_encode(float *x, int64_t n) {
  float most = 0.0f;
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
  if (most == 0.0f) return;
  /* The encoder has its zero at 127.5, the decoder at 128. */
  for (int64_t i = 0; i < n; i++) x[i] = (roundf((x[i] / most + 1.0f) * 127.5f) - 128.0f) / 127.0f * most;
}
