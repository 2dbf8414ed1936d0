/* SPDX-License-Identifier: MIT
 * check.h - proves the schedule of a collective algorithm by the levels of docs/collectives.md:
 *   V4  static: pairs match, ranges, writes under pending sends, no rank waits for ever
 *   V0  real buffers of every dtype against exact sums, in place too, canaries
 *   V1  sampled sums modulo 2^61 - 1 (V1) and one order of adding on all ranks (V3), to thousands of ranks
 *   V2  exact sets of contributions
 *   V6  the error of adding in bf16, f16 and fp8 against fp64
 * They run in this order, the cheap ones that find most first. */
#ifndef BS_SIM_CHECK_H
#define BS_SIM_CHECK_H
#include "sim/schedule.h"

enum sim_level { SIM_V4 = 0, SIM_V0 = 1, SIM_V1 = 2, SIM_V2 = 3, SIM_V6 = 4, SIM_LEVELS = 5 };
/* "V4", "V0", "V1 V3", ... */
extern const char *const sim_level_names[SIM_LEVELS];

typedef struct sim_check_request {
  const bs_algorithm *algorithm;
  void *state;
  const bs_value *options; /* one for each of its params */
  uint32_t levels;         /* bit set of 1 << enum sim_level; 0: all */
  uint32_t kinds;          /* bit set of 1 << enum bs_coll_kind; 0: all that it serves */
  uint32_t max_ranks;      /* 0: what the level has */
  uint32_t full;           /* 1: the ranges of `make verify` */
  /* Asked often; another answer than BS_OK ends the check with it. May be NULL. */
  int32_t (*stop)(bs_error *err);
} sim_check_request;

/* The answer of one level for one collective. */
typedef struct sim_check_row {
  uint32_t level, kind;
  uint32_t ranks;   /* the most that ran */
  uint64_t cases;   /* that ran */
  uint64_t refused; /* shapes that the algorithm cannot do */
  int32_t code;     /* BS_OK; what failed; BS_INCONCLUSIVE: nothing ran, or an earlier level had failed;
                     * what `stop` answered: the cases before it are right */
  double error_max, error_rms; /* V6: of bf16, as a part of the sum of absolute values */
  bs_error why;
} sim_check_row;

/* Calls `row` for each level and collective, until `stop` ends it. BS_OK when all that ran are right and
 * something ran, BS_NUMERIC when a level has found a fault, BS_INCONCLUSIVE when nothing ran. */
int32_t sim_check(const sim_check_request *request, void (*row)(void *user, const sim_check_row *row),
                  void *user, bs_error *err);

/* ---- inside ----------------------------------------------------------------------------------- */

/* One case: a shape, and what to do with it. */
typedef struct sim_case {
  const sim_check_request *request;
  const bs_coll_shape *shape;
  sim_check_row *row;
} sim_case;
/* Checks that the algorithm's formula gives a legal time for the shape, on a fast link and on a slow one. */
int32_t sim_check_formula(const sim_case *c, bs_error *err);
int32_t sim_check_static(const sim_case *c, bs_error *err);
int32_t sim_check_values(const sim_case *c, bs_error *err);
int32_t sim_check_columns(const sim_case *c, bs_error *err);
int32_t sim_check_sets(const sim_case *c, bs_error *err);
int32_t sim_check_rounding(const sim_case *c, bs_error *err);
/* The steps of a rank (core/base/steps.h). */
int32_t sim_case_steps(const sim_case *c, uint32_t rank,
                       int32_t (*each)(void *user, const bs_coll_step *step), void *user, bs_error *err);
/* A sum of the steps of all ranks for elements of this size: two sizes with the same one have the same
 * schedule. */
uint64_t sim_case_print(const sim_case *c, uint32_t element_bytes);
/* The answer of the request's `stop`; BS_OK where it has none. err may be NULL. */
int32_t sim_case_stop(const sim_case *c, bs_error *err);
/* Runs the schedule without times; data may be NULL. */
int32_t sim_case_run(const sim_case *c, const sim_data *data, bs_error *err);
/* Adds to err the last step of `rank` that writes this element of OUT. */
void sim_case_blame(const sim_case *c, uint32_t rank, uint64_t index, bs_error *err);
/* A fixed pseudo-random number. */
uint64_t sim_mix(uint64_t x);
#endif
