/* SPDX-License-Identifier: MIT
 * cost.h - what an op takes on a device: a roofline of FLOPs and bytes, in ps, and time that is known by what
 * it was taken for. */
#ifndef BS_SIM_COST_H
#define BS_SIM_COST_H
#include "sim/clock.h"

/* max: the slower of arithmetic and memory. P6: (a^6 + m^6)^(1/6), for processors on which both get into each
 * other's way (docs/measuring.md). */
enum sim_roofline { SIM_ROOFLINE_MAX = 0, SIM_ROOFLINE_P6 = 1 };

typedef struct sim_roof {
  uint64_t flops;          /* per second; 0: no time */
  uint64_t mem_Bps;        /* bytes per second; 0: no time */
  uint64_t launch;         /* ps an op */
  uint32_t roofline;       /* enum sim_roofline */
  uint32_t sharers;        /* ranks of one machine, whose ops run at the same time; 0: as 1 */
  uint64_t mem_shared_Bps; /* bytes per second that they have together; 0: as many as they want */
} sim_roof;

typedef struct sim_op_time {
  uint64_t compute, memory; /* each side alone */
  uint64_t run;             /* both by the roofline, without the launch */
} sim_op_time;

/* amount / per_second in ps, rounded half up once; 0 a second: nothing. */
uint64_t sim_amount_ps(uint64_t amount, uint64_t per_second);
/* A rate as a whole number a second: at least 1, and 0 for one that is 0 or too large to matter. */
uint64_t sim_rate(double per_second);
/* Bytes of memory in ps: the larger of bytes / mem_Bps and bytes x sharers / mem_shared_Bps; and the second
 * alone. */
uint64_t sim_memory_ps(const sim_roof *roof, uint64_t bytes);
uint64_t sim_shared_ps(const sim_roof *roof, uint64_t bytes);
void sim_op_cost(const sim_roof *roof, uint64_t flops, uint64_t bytes, sim_op_time *out_time);

/* The parts of a clock's time. WAIT: for other ranks. */
enum sim_term {
  SIM_COMPUTE = 0,
  SIM_MEMORY = 1,
  SIM_LAUNCH = 2,
  SIM_LATENCY = 3,
  SIM_WIRE = 4,
  SIM_WAIT = 5,
  SIM_TERMS = 6
};
extern const char *const sim_term_names[SIM_TERMS];

/* A clock with the parts of its time. `own` adds up to `now` minus the start of the clock. So does `path`,
 * along the longest chain of ops and messages over all ranks, in which no rank waits. */
typedef struct sim_time {
  uint64_t now;
  uint64_t own[SIM_TERMS];
  uint64_t path[SIM_TERMS];
} sim_time;

/* Goes on by `ps` of one term. */
void sim_time_spend(sim_time *t, uint32_t term, uint64_t ps);
/* Sets the clock to the later of both, with its terms. */
void sim_time_follow(sim_time *t, const sim_time *other);
/* The rank waits until `last`, another rank's time that is not earlier. */
void sim_time_await(sim_time *t, const sim_time *last);
#endif
