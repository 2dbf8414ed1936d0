/* SPDX-License-Identifier: MIT
 * clock.h - virtual time: unsigned picoseconds (213 days fit), and rates as Q32 picoseconds per byte. Every
 * conversion rounds half up once; every sum stops at SIM_NEVER instead of wrapping. */
#ifndef BS_SIM_CLOCK_H
#define BS_SIM_CLOCK_H
#include <stdint.h>

#define SIM_NEVER UINT64_MAX /* a time that was not reached: what an overflow gives */

static inline uint64_t sim_add(uint64_t a, uint64_t b) {
  return a > SIM_NEVER - b ? SIM_NEVER : a + b;
}

/* a b, or SIM_NEVER. */
static inline uint64_t sim_times(uint64_t a, uint64_t b) {
  return b != 0 && a > SIM_NEVER / b ? SIM_NEVER : a * b;
}

static inline uint64_t sim_max(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* bytes * q32 / 2^32, rounded half up: the time of that many bytes. A q32 of SIM_NEVER is no rate at all. */
static inline uint64_t sim_bytes_ps(uint64_t bytes, uint64_t q32) {
  __extension__ typedef unsigned __int128 wide;
  const wide time = ((wide)bytes * q32 + (UINT64_C(1) << 31)) >> 32;
  return time > SIM_NEVER || (q32 == SIM_NEVER && bytes > 0) ? SIM_NEVER : (uint64_t)time;
}

/* Rounds a double >= 0 to an integer; SIM_NEVER when it is too large, negative or NaN. */
static inline uint64_t sim_round(double x) {
  if (!(x >= 0) || x >= 18446744073709551615.0) return SIM_NEVER;
  const uint64_t floor = (uint64_t)x;
  return floor + (x - (double)floor >= 0.5);
}

static inline uint64_t sim_seconds_ps(double seconds) {
  return sim_round(seconds * 1e12);
}

/* Q32 ps per byte of a rate. Below 233 bytes/s it is SIM_NEVER; an infinite rate gives 0. */
static inline uint64_t sim_rate_q32(double bytes_per_s) {
  return bytes_per_s > 0 ? sim_round(1e12 / bytes_per_s * 4294967296.0) : SIM_NEVER;
}
#endif
