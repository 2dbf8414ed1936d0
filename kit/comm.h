/* SPDX-License-Identifier: MIT
 * comm.h - the ranks that judge a communicator. They are threads of the check, or, for an ATTACHED
 * communicator, processes. Processes are forked with the variables that `bsrun --launch processes` sets for
 * its ranks; if the communicator reports that this has not started them, mpirun starts them. Bodies are the
 * ranks' work; their outcomes are read when all are done. */
#ifndef BS_KIT_COMM_H
#define BS_KIT_COMM_H
#include "kit/comm_data.h"

enum { KIT_RANKS = 16 };

/* The progress of a process. */
enum kit_stage { KIT_ABSENT = 0, KIT_ATTACHING, KIT_OPENING, KIT_AT_WORK, KIT_CLOSING, KIT_GONE };

/* The outcome of a rank; that of a process is in memory shared with the check. */
typedef struct kit_outcome {
  _Atomic uint32_t stage;
  int32_t pid;
  uint32_t rank;
  bs_attachment here;
  int32_t rc; /* of the last call that failed; BS_OK: none */
  uint32_t served;
  uint64_t bits; /* of all results that every rank gets alike */
  int64_t begun_ms, ended_ms;
  bs_error err;
  char said[600]; /* a check that failed in it */
} kit_outcome;

enum kit_body {
  KIT_VALUES,
  KIT_MISMATCH,
  KIT_LATE,
  KIT_ABORT,
  KIT_KILLED,
  KIT_CONFIG,
  KIT_ANY_ORDER,
  KIT_BODIES, /* of exchange: */
  KIT_EXCHANGE,
  KIT_EXCHANGE_OTHER,
  KIT_EXCHANGE_LATE,
  KIT_EXCHANGE_ABORT
};
/* The rank that behaves differently, in a world of KIT_FAULT_RANKS. */
enum { KIT_CULPRIT = 1, KIT_FAULT_RANKS = 3, KIT_LATE_MS = 200 };

/* The arguments of a body, in test_rank.arg. */
typedef struct kit_work {
  uint32_t body, kind; /* of the collective */
  kit_outcome *all;    /* of threads, by rank */
  kit_outcome *alone;  /* of a process: its own; NULL: threads */
} kit_work;
static inline kit_outcome *kit_mine(const test_rank *t) {
  const kit_work *w = t->arg;
  return w->alone != NULL ? w->alone : &w->all[t->rank];
}
void kit_body_values(test_rank *t);
void kit_body_fault(test_rank *t);
void kit_body_exchange(test_rank *t); /* comm_exchange.c */
void kit_body_exchange_fault(test_rank *t);
static inline void kit_body_run(test_rank *t) {
  const kit_work *w = t->arg;
  if (w->body > KIT_BODIES)
    (w->body == KIT_EXCHANGE ? kit_body_exchange : kit_body_exchange_fault)(t);
  else
    (w->body == KIT_VALUES ? kit_body_values : kit_body_fault)(t);
}

/* Opens the plugin and finds the communicator. NULL after kit_unsupported. */
const bs_comm *kit_comm_open(const kit_case *c, kit_plugin *p);
/* Runs a body on `size` ranks and returns the outcomes by rank, valid until the next run. A check that failed
 * in a rank fails here. NULL after kit_unsupported: such ranks cannot be started here. */
const kit_outcome *kit_comm_run(const bs_comm *comm, uint32_t body, uint32_t kind, uint32_t size);
void kit_comm_close(kit_plugin *p);

/* ---- ranks that are processes (comm_job.c, comm_rank.c) --------------------------------------- */

#define KIT_JOB_MAGIC UINT64_C(0x626f6a74696b7362)
/* Shared between a check and its ranks; ranks of mpirun open it by its path. */
typedef struct kit_job {
  uint64_t magic, bytes;
  uint32_t size, body, kind, thing;
  uint32_t full, n_params;
  char plugin[4096];
  char params[KIT_MAX_PARAMS][320];
  _Atomic uint32_t arrived;
  kit_outcome of[KIT_RANKS]; /* in the order of arrival */
} kit_job;

/* A rank of a job: does its body and ends the process. */
void kit_rank_live(kit_job *job) __attribute__((noreturn));
/* Runs the processes of a job to their end; outcomes by rank. NULL: kit_unsupported has been called. */
const kit_outcome *kit_job_run(uint32_t thing, uint32_t body, uint32_t kind, uint32_t size);
#endif
