/* SPDX-License-Identifier: MIT
 * cost.c - see cost.h. */
#include "sim/cost.h"

#include <math.h>
#include <string.h>

const char *const sim_term_names[SIM_TERMS] = {"compute",      "memory",     "launch",
                                               "wire_latency", "wire_bytes", "wait"};

uint64_t sim_amount_ps(uint64_t amount, uint64_t per_second) {
  __extension__ typedef unsigned __int128 wide;
  if (per_second == 0) return 0;
  const wide ps = ((wide)amount * UINT64_C(1000000000000) + per_second / 2) / per_second;
  return ps > SIM_NEVER ? SIM_NEVER : (uint64_t)ps;
}

uint64_t sim_rate(double per_second) {
  if (!(per_second > 0) || per_second >= 18446744073709551615.0) return 0;
  return per_second < 1.0 ? 1 : (uint64_t)(per_second + 0.5);
}

/* The 6-norm of two times, of which `more` is the larger. */
static uint64_t p6(uint64_t more, uint64_t less) {
  if (more == 0) return 0;
  const double r = (double)less / (double)more, r3 = r * r * r;
  return sim_round((double)more * cbrt(sqrt(1.0 + r3 * r3)));
}

uint64_t sim_shared_ps(const sim_roof *roof, uint64_t bytes) {
  return sim_amount_ps(sim_times(bytes, roof->sharers > 0 ? roof->sharers : 1), roof->mem_shared_Bps);
}

uint64_t sim_memory_ps(const sim_roof *roof, uint64_t bytes) {
  return sim_max(sim_amount_ps(bytes, roof->mem_Bps), sim_shared_ps(roof, bytes));
}

void sim_op_cost(const sim_roof *roof, uint64_t flops, uint64_t bytes, sim_op_time *out) {
  out->compute = sim_amount_ps(flops, roof->flops);
  out->memory = sim_memory_ps(roof, bytes);
  const uint64_t more = sim_max(out->compute, out->memory);
  const uint64_t less = more == out->compute ? out->memory : out->compute;
  out->run = roof->roofline == SIM_ROOFLINE_P6 ? p6(more, less) : more;
}

void sim_time_spend(sim_time *t, uint32_t term, uint64_t ps) {
  t->now = sim_add(t->now, ps);
  t->own[term] = sim_add(t->own[term], ps);
  t->path[term] = sim_add(t->path[term], ps);
}

void sim_time_follow(sim_time *t, const sim_time *other) {
  if (other->now > t->now) *t = *other;
}

void sim_time_await(sim_time *t, const sim_time *last) {
  if (last->now <= t->now) return;
  t->own[SIM_WAIT] = sim_add(t->own[SIM_WAIT], last->now - t->now);
  t->now = last->now;
  memcpy(t->path, last->path, sizeof t->path);
}
