/* SPDX-License-Identifier: MIT
 * programs.h - small collectives as hand-written send and receive code without a stack, for tests of the
 * engine and its benchmark: every rank is a list of steps that a function of (rank, step) gives. */
#ifndef BS_TESTS_SIM_PROGRAMS_H
#define BS_TESTS_SIM_PROGRAMS_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/engine.h"

enum program_action { PROGRAM_END = 0, PROGRAM_SEND, PROGRAM_RECV, PROGRAM_COMPUTE, PROGRAM_EXCHANGE };

typedef struct program_step {
  uint32_t action; /* enum program_action */
  uint32_t peer;
  uint64_t bytes; /* PROGRAM_COMPUTE: ps */
} program_step;

typedef struct program {
  program_step (*step)(const struct program *p, uint32_t rank, uint32_t i);
  uint32_t ranks;
  uint32_t chunks;    /* of the chain */
  uint32_t buffering; /* enum sim_buffering */
  uint64_t bytes;     /* n */
  uint64_t gamma_q32; /* of a reduction */
  uint32_t *at;       /* the step of each rank */
  sim_call call;
  sim_engine *engine;
} program;

static inline int32_t program_resume(void *user, uint32_t rank) {
  program *p = user;
  for (;;) {
    const program_step s = p->step(p, rank, p->at[rank]);
    if (s.action == PROGRAM_END) return SIM_DONE;
    if (s.action == PROGRAM_COMPUTE) {
      sim_set_clock(p->engine, rank, sim_add(sim_clock(p->engine, rank), s.bytes));
      p->at[rank]++;
      continue;
    }
    sim_message m = {.from = rank, .to = s.peer, .bytes = s.bytes, .call = &p->call};
    m.together = s.action == PROGRAM_EXCHANGE;
    if (s.action == PROGRAM_RECV) {
      m.from = s.peer;
      m.to = rank;
    }
    const int32_t rc = s.action == PROGRAM_RECV ? sim_recv_now(p->engine, &m) : sim_send_now(p->engine, &m);
    if (rc == SIM_BLOCKED) return SIM_BLOCKED;
    if (rc < 0) return SIM_DONE;
    p->at[rank]++;
  }
}

static inline program_step program_sum(const program *p, uint64_t bytes) {
  return (program_step){PROGRAM_COMPUTE, 0, sim_bytes_ps(bytes, p->gamma_q32)};
}

/* 2 (p-1) rounds of n/p bytes to the next rank; the first p-1 of them reduce. */
static inline program_step program_ring(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks, round = i / 3;
  const uint64_t bytes = p->bytes / n;
  if (round == 2 * (n - 1)) return (program_step){PROGRAM_END, 0, 0};
  if (i % 3 == 0) return (program_step){PROGRAM_SEND, rank + 1 < n ? rank + 1 : 0, bytes};
  if (i % 3 == 1) return (program_step){PROGRAM_RECV, rank > 0 ? rank - 1 : n - 1, bytes};
  return program_sum(p, round < n - 1 ? bytes : 0);
}

/* Ring without sums, p-1 rounds: all-gather. */
static inline program_step program_gather(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks;
  if (i / 2 == n - 1) return (program_step){PROGRAM_END, 0, 0};
  if (i % 2 == 0) return (program_step){PROGRAM_SEND, (rank + 1) % n, p->bytes / n};
  return (program_step){PROGRAM_RECV, (rank + n - 1) % n, p->bytes / n};
}

/* p-1 rounds: to rank + round, from rank - round. */
static inline program_step program_pairwise(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks, round = i / 2 + 1;
  if (round == n) return (program_step){PROGRAM_END, 0, 0};
  if (i % 2 == 0) return (program_step){PROGRAM_SEND, (rank + round) % n, p->bytes / n};
  return (program_step){PROGRAM_RECV, (rank + n - round) % n, p->bytes / n};
}

/* p a power of two: all n bytes with rank ^ 2^round. */
static inline program_step program_doubling(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t round = i / 3;
  if ((1U << round) >= p->ranks) return (program_step){PROGRAM_END, 0, 0};
  if (i % 3 == 2) return program_sum(p, p->bytes);
  return (program_step){i % 3 == 0 ? PROGRAM_SEND : PROGRAM_RECV, rank ^ (1U << round), p->bytes};
}

/* p a power of two: halves with the farthest first, and back. */
static inline program_step program_halving(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t round = i / 3, lg = (uint32_t)__builtin_ctz(p->ranks);
  if (round == 2 * lg) return (program_step){PROGRAM_END, 0, 0};
  const uint32_t bit = round < lg ? lg - 1 - round : round - lg;
  const uint64_t bytes = p->bytes >> (round < lg ? round + 1 : 2 * lg - round);
  if (i % 3 == 2) return program_sum(p, round < lg ? bytes : 0);
  return (program_step){i % 3 == 0 ? PROGRAM_SEND : PROGRAM_RECV, rank ^ (1U << bit), bytes};
}

/* All n bytes to every other. */
static inline program_step program_one_shot(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks;
  if (i < n - 1) return (program_step){PROGRAM_SEND, (rank + 1 + i) % n, p->bytes};
  if (i < 2 * (n - 1)) return (program_step){PROGRAM_RECV, (rank + n - 1 - (i - (n - 1))) % n, p->bytes};
  return (program_step){PROGRAM_END, 0, 0};
}

/* Reduce-scatter and all-gather, each in one step. */
static inline program_step program_two_shot(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks, half = 2 * (n - 1);
  if (i >= 2 * half) return (program_step){PROGRAM_END, 0, 0};
  const uint32_t k = i % half;
  if (k < n - 1) return (program_step){PROGRAM_SEND, (rank + 1 + k) % n, p->bytes / n};
  return (program_step){PROGRAM_RECV, (rank + n - 1 - (k - (n - 1))) % n, p->bytes / n};
}

/* p a power of two: a tree to rank 0, then from it. */
static inline program_step program_binomial(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t lg = (uint32_t)__builtin_ctz(p->ranks);
  const uint32_t low = rank == 0 ? lg : (uint32_t)__builtin_ctz(rank);
  if (i < low) return (program_step){PROGRAM_RECV, rank | (1U << i), p->bytes}; /* from the children */
  i -= low;
  if (rank != 0) {
    if (i < 2) return (program_step){i == 0 ? PROGRAM_SEND : PROGRAM_RECV, rank & (rank - 1), p->bytes};
    i -= 2;
  }
  if (i < low) return (program_step){PROGRAM_SEND, rank | (1U << (low - 1 - i)), p->bytes};
  return (program_step){PROGRAM_END, 0, 0};
}

/* Broadcast of rank 0 in chunks along the ranks. */
static inline program_step program_chain(const program *p, uint32_t rank, uint32_t i) {
  const uint64_t bytes = p->bytes / p->chunks;
  const int first = rank == 0, last = rank == p->ranks - 1;
  const uint32_t actions = first || last ? 1 : 2;
  if (i / actions == p->chunks) return (program_step){PROGRAM_END, 0, 0};
  if (first || i % actions == 1) return (program_step){PROGRAM_SEND, rank + 1, bytes};
  return (program_step){PROGRAM_RECV, rank - 1, bytes};
}

/* Makes the engine; the program's rank clocks may be set before program_run. */
static inline void program_open(program *p, uint32_t order, sim_link link) {
  bs_error err = BS_ERROR_INIT;
  const sim_config config = {.ranks = p->ranks,
                             .order = order,
                             .buffering = p->buffering,
                             .link = link,
                             .resume = program_resume,
                             .user = p};
  p->at = calloc(p->ranks, sizeof *p->at);
  if (p->at == NULL || sim_engine_new(&config, &p->engine, &err) != BS_OK) abort();
}

static inline void program_close(program *p) {
  sim_engine_free(p->engine);
  free(p->at);
}
#endif
