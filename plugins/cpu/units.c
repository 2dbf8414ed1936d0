/* SPDX-License-Identifier: MIT
 *
 * units.c - whether the processor begins one or two 512-bit multiply-adds in a cycle. Time is compared with
 * as many of 256 bits, of which every processor with AVX-512 begins two: equal with two units, twice with
 * one. A sample takes 20 us: in shorter ones the upper lanes are not awake yet. */
#include <time.h>

#include "cpu.h"

#if defined(BS_CPU_X86)

#define ROUNDS 8000
#define SAMPLES 5
#define BOUND 1.4 /* of the times; two units: up to 1.26 was seen, one: 2 */

#define ONE(W, N) "vfmadd231ps %%" W "mm12, %%" W "mm12, %%" W "mm" N "\n"
#define TWELVE(W) \
  ONE(W, "0")     \
  ONE(W, "1")     \
  ONE(W, "2")     \
  ONE(W, "3")     \
  ONE(W, "4")     \
  ONE(W, "5") ONE(W, "6") ONE(W, "7") ONE(W, "8") ONE(W, "9") ONE(W, "10") ONE(W, "11")
#define USED \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12"

static double sample(int wide) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  __asm__ volatile("vpxord %%zmm12, %%zmm12, %%zmm12" ::: "xmm12");
  for (int i = 0; i < ROUNDS; i++)
    if (wide)
      __asm__ volatile(TWELVE("z")::: USED);
    else
      __asm__ volatile(TWELVE("y")::: USED);
  __asm__ volatile("vzeroupper" ::: USED);
  clock_gettime(CLOCK_MONOTONIC, &to);
  return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

uint32_t cpu_units_measure(void) {
  double least[2] = {sample(0), sample(1)};
  for (int i = 0; i < SAMPLES; i++)
    for (int wide = 0; wide < 2; wide++) {
      const double seconds = sample(wide);
      if (seconds < least[wide]) least[wide] = seconds;
    }
  return least[1] < BOUND * least[0] ? 2 : 1;
}

#else

uint32_t cpu_units_measure(void) {
  return 1;
}

#endif
