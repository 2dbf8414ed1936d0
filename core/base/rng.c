/* SPDX-License-Identifier: MIT
 * rng.c - counter-based random numbers: Philox4x32-10 and the ranges bits, uniform and normal
 * (definition: rng.h and docs/numbers.md; arithmetic: rng_kernel.h). Any split of a range into calls
 * gives the same elements. Called by workloads through the host table. No state: thread-safe. */
#include "core/base/rng.h"

#include <string.h>

#include "core/base/rng_kernel.h"
#include "core/base/rng_paths.h"

void bs_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  bs_philox_rounds(c, key[0], key[1]);
  memcpy(out, c, sizeof c);
}

/* The constant lane count of a full call is what lets the compiler vectorise its loops. */
static void portable_bits(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, uint32_t *out) {
  if (lanes == BS_RNG_LANES) {
    bs_rng_kernel_bits(seed, stream, block, BS_RNG_LANES, out);
  } else {
    bs_rng_kernel_bits(seed, stream, block, lanes, out);
  }
}

static void portable_uniform(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out) {
  if (lanes == BS_RNG_LANES) {
    bs_rng_kernel_uniform(seed, stream, block, BS_RNG_LANES, out);
  } else {
    bs_rng_kernel_uniform(seed, stream, block, lanes, out);
  }
}

static void portable_normal(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out) {
  bs_rng_kernel_normal(seed, stream, block, lanes, out);
}

const bs_rng_kernels *bs_rng_portable(void) {
  static const bs_rng_kernels kernels = {portable_bits, portable_uniform, portable_normal};
  return &kernels;
}

static const bs_rng_kernels *best(void) {
  const bs_rng_kernels *k = bs_rng_avx2();
  return k != NULL ? k : bs_rng_portable();
}

enum { FULL = 4 * BS_RNG_LANES };

/* The next piece of a range: the block it starts in, elements to leave out before it, its length and the
 * lanes that cover it. */
typedef struct piece {
  uint64_t block;
  uint32_t skip, length, lanes;
} piece;

static piece next_piece(uint64_t first, uint64_t count) {
  piece p;
  p.block = first / 4;
  p.skip = (uint32_t)(first % 4);
  p.length = count < FULL - p.skip ? (uint32_t)count : FULL - p.skip;
  p.lanes = (p.skip + p.length + 3) / 4;
  return p;
}

static void run_floats(void (*kernel)(uint64_t, uint32_t, uint64_t, uint32_t, float *), uint64_t seed,
                       uint32_t stream, uint64_t first, uint64_t count, float *out) {
  while (count > 0) {
    piece p = next_piece(first, count);
    if (p.length == FULL) {
      kernel(seed, stream, p.block, BS_RNG_LANES, out);
    } else {
      float buffer[FULL];
      kernel(seed, stream, p.block, p.lanes, buffer);
      memcpy(out, buffer + p.skip, p.length * sizeof *out);
    }
    first += p.length;
    count -= p.length;
    out += p.length;
  }
}

void bs_rng_bits(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, uint32_t *out) {
  const bs_rng_kernels *k = best();
  while (count > 0) {
    piece p = next_piece(first, count);
    if (p.length == FULL) {
      k->bits(seed, stream, p.block, BS_RNG_LANES, out);
    } else {
      uint32_t buffer[FULL];
      k->bits(seed, stream, p.block, p.lanes, buffer);
      memcpy(out, buffer + p.skip, p.length * sizeof *out);
    }
    first += p.length;
    count -= p.length;
    out += p.length;
  }
}

void bs_rng_uniform(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out) {
  run_floats(best()->uniform, seed, stream, first, count, out);
}

void bs_rng_normal(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out) {
  run_floats(best()->normal, seed, stream, first, count, out);
}
