/* SPDX-License-Identifier: MIT
 * math.h - exp and erfc in double from polynomials: single IEEE products, sums and quotients in a fixed order
 * without the C library. So values do not depend on its version or on the CPU (docs/numbers.md). Called by
 * the model-like workloads and by the sampling of tokens. Thread-safe, no state. */
#ifndef BS_CORE_BASE_MATH_H
#define BS_CORE_BASE_MATH_H
#include "blockshock/blockshock.h"

/* Relative error below 2^-51; 0 below -745.14, infinity above 709.78, NaN for NaN. */
BS_API double bs_exp(double x);
/* 1 - erf(x). Relative error below 2^-49 where the result is normal (x < 26.5), then 0. */
BS_API double bs_erfc(double x);
/* x Phi(x), the exact gelu: x erfc(-x / sqrt 2) / 2, which keeps its relative accuracy in the lower tail. */
BS_API double bs_gelu(double x);
/* x / (1 + exp(-x)). */
BS_API double bs_silu(double x);
#endif
