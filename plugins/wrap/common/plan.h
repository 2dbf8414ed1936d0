/* SPDX-License-Identifier: MIT
 *
 * plan.h - plan strings: "rank=1,op=all_reduce,seq=37,do=hang; rank=*,op=matmul,seq=*,do=delay,ms=3".
 * Pure; knows nothing of plugins. docs/torture.md is its reference.
 */
#ifndef BS_WRAP_PLAN_H
#define BS_WRAP_PLAN_H

#include "blockshock/names.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WRAP_STEPS_MAX = 64 };
#define WRAP_ANY UINT64_MAX

enum wrap_do {
  WRAP_HANG = 0,
  WRAP_ERR = 1,
  WRAP_DELAY = 2,
  WRAP_FLIP = 3,
  WRAP_NAN = 4,
  WRAP_TRUNCATE = 5,
  WRAP_KILL = 6, /* the process ends immediately, by SIGKILL */
  WRAP_STOP = 7, /* the process stops, by SIGSTOP */
  WRAP_DO_COUNT_ = 8
};

/* Collectives have the numbers of enum bs_coll_kind. Then follow the functions of a backend; messages that a
 * communicator exchanges together (of a collective by an algorithm); and for each core op its run, its
 * prepare and its pack. */
enum wrap_op {
  WRAP_OP_ALLOC = BS_COLL_COUNT_,
  WRAP_OP_COPY,
  WRAP_OP_SYNC,
  WRAP_OP_EVENT,
  WRAP_OP_EXCHANGE,
  WRAP_OP_FIRST,
  WRAP_CORE_OPS = BS_CORE_OPS + 1, /* the last one represents all ops of plugins */
  WRAP_OP_COUNT_ = WRAP_OP_FIRST + 3 * WRAP_CORE_OPS
};
enum wrap_stage { WRAP_RUN = 0, WRAP_PREPARE = 1, WRAP_PACK = 2 };

typedef struct wrap_step {
  uint64_t rank; /* WRAP_ANY: every */
  uint64_t op;   /* enum wrap_op; WRAP_ANY: every */
  uint64_t seq;  /* from 0: of the rank's calls of op, or of all when op is every one; WRAP_ANY: each */
  uint32_t what; /* enum wrap_do */
  int64_t ns;    /* of a delay */
} wrap_step;

typedef struct wrap_plan {
  uint32_t n;
  wrap_step steps[WRAP_STEPS_MAX];
} wrap_plan;

/* The fault of a plan: where (characters from 1), what, and the valid words. */
typedef struct wrap_complaint {
  uint32_t at;
  char what[120];
  char words[256];
} wrap_complaint;

/* 1, or 0 with the first complaint. slow: do= may be left out, and only delay is one. "" is an empty plan. */
int wrap_plan_parse(const char *text, int slow, wrap_plan *out_plan, wrap_complaint *out_complaint);
/* "all_reduce", "matmul.prepare"; "other" for an op of a plugin. */
const char *wrap_op_name(uint32_t op, char out[40]);
const char *wrap_do_name(uint32_t what);
/* The number of a core op's stage by the op's name. */
uint32_t wrap_op_of(const char *name, uint32_t stage);

#ifdef __cplusplus
}
#endif
#endif
