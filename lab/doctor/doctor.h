/* SPDX-License-Identifier: MIT
 * doctor.h - checks of the machine and the installation, a row each: the check, the finding, ok, warn or
 * fail, and the advice. `bsrun doctor` runs them all and prints them; a failing check never ends the others.
 * Parts: host.c the machine, ranks.c worlds, timing.c GEMM and timer, constants.c constants. */
#ifndef BS_LAB_DOCTOR_DOCTOR_H
#define BS_LAB_DOCTOR_DOCTOR_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/progress.h"

enum bs_check_state { BS_CHECK_OK = 0, BS_CHECK_WARN = 1, BS_CHECK_FAIL = 2 };

typedef struct bs_doctor {
  json_t *rows;        /* [{what, found, state, fix}], the caller's */
  uint32_t counts[3];  /* by state */
  uint32_t wrong;      /* a failure in which numbers were wrong: exit 6; any other: exit 5 */
  uint32_t unknown;    /* there is no backend of that name: exit 3 */
  const char *backend; /* the backend of worlds */
  const char *comm;
  uint32_t ranks;   /* at least 1 */
  double timeout_s; /* of every wait between ranks */
} bs_doctor;

/* One row; found is printf text. fix may be NULL. */
void bs_doctor_add(bs_doctor *d, const char *what, uint32_t state, const char *fix, const char *found, ...)
    __attribute__((format(printf, 5, 6)));
/* The row of an error: a failure, its hint the fix. */
void bs_doctor_error(bs_doctor *d, const char *what, const bs_error *why);

/* Processor, instruction sets, cores and affinity, cgroup limits, governor, load, memory, huge pages. */
void bs_doctor_host(bs_doctor *d);
/* Can run folders be created below out_dir? The check removes what it created. */
void bs_doctor_results(bs_doctor *d, const char *out_dir);
/* The candidates for a plain matmul, then the backend's devices: library versions as loaded. 1 when it can be
 * used. */
int bs_doctor_backend(bs_doctor *d, bs_context *context);
/* A world of d->ranks: a hello of each rank, a sleep timed by the region timer, an all-reduce. */
void bs_doctor_ranks(bs_doctor *d, bs_context *context);
/* A dense layer timed and judged on all cores; the same arm against itself must be neither faster nor slower.
 */
void bs_doctor_gemm(bs_doctor *d, bs_context *context);
void bs_doctor_self_test(bs_doctor *d, bs_context *context);

/* The machine's constants (lab/measure/constants.h): of the backends and of d->comm. */
typedef struct bs_doctor_measuring {
  bs_context *context;
  const char *const *backends;
  size_t n_backends;
  const char *cache; /* the file for them; NULL: none */
  int force;         /* measures also on a busy machine, and stores them despite all doubts */
  bs_progress_fn progress;
  void *user;
} bs_doctor_measuring;
/* Measures the constants, stores them, and reports both. A busy machine is a failure, and nothing is
 * stored. */
void bs_doctor_measure(bs_doctor *d, const bs_doctor_measuring *m);
/* Stores measured constants in the file `cache` and reports that file; NULL: they are not stored. */
void bs_doctor_keep(bs_doctor *d, const char *cache, const json_t *constants);
/* Reports the constants in the file; cache may be NULL. */
void bs_doctor_stored(bs_doctor *d, const char *cache);

/* Judges up to three trials of 20 pairs of one arm against itself; pure. words: one of each trial (enum
 * bs_comparison_word). OK if the first is neither FASTER nor SLOWER, WARN if this is true of a later one,
 * else FAIL. */
uint32_t bs_doctor_judge_self_test(const uint32_t *words, uint32_t n_words);
/* Judges the length of the sleep: OK from 50 to 60 ms, else WARN; pure. */
uint32_t bs_doctor_judge_sleep(double milliseconds);
#endif
