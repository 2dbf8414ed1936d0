/* SPDX-License-Identifier: MIT
 * judge.h - one graph, judged: with its passes against as it is written. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_JUDGE_H
#define TESTS_GRAPH_FUZZ_PASSES_JUDGE_H
#include "tests/graph/fuzz_passes/engine.h"

enum outcome {
  OUTCOME_RIGHT = 0,
  OUTCOME_NO_GRAPH,
  OUTCOME_REFUSED,
  OUTCOME_VALUE,
  OUTCOME_STATUS,
  OUTCOME_CRASH
};

typedef struct verdict {
  uint32_t outcome;
  char pass[24]; /* the first pass behind which it is wrong */
  char why[320];
  double expected, got, bound;
} verdict;

typedef struct judging {
  bs_context *context;
  uint32_t only; /* pattern, UINT32_MAX any */
  uint32_t n_off;
  const char *off[MAX_PASSES]; /* passes that stay off */
  spec *graph, *stable;        /* of the last call */
} judging;

/* Makes the graph of the choices, runs and judges it. */
void judge(judging *j, choices *c, verdict *out);
#endif
