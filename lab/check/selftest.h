/* SPDX-License-Identifier: MIT
 * selftest.h - `bsrun check --selftest`: every gate must catch a deliberate fault. The gates of kernels
 * (configs/gates) get the controls that they name; those of layers (T1 to T5, gradients, steps) get the
 * faults of T6. A miss is a fault that a gate should catch but does not, a gate that fails without a fault,
 * or a fault that no layer could be given. */
#ifndef BS_LAB_CHECK_SELFTEST_H
#define BS_LAB_CHECK_SELFTEST_H
#include "lab/progress.h"
#include "lab/rules/rules.h"

enum { BS_SELFTEST_GATES = 96 };

/* Rows: {suite: "kernel" or "layer", fault, gate (that must catch it), state: "caught", "MISSED", or for the
 * fault "none" "clean" and "FALSE ALARM", by: names, text, and for each gate by its name: "caught", "let
 * pass", "not applicable", "unknown"}. */
typedef struct bs_selftest {
  json_t *rows;
  uint32_t n, right; /* rows, and those that are as they should be */
  bs_rules *rules;
  char missed[256]; /* "fault (gate)", comma-separated */
} bs_selftest;

typedef struct bs_selftest_request {
  const bs_node *config; /* which plugins, as bs_context_of_config reads them */
  const char *gates;     /* name or path of the rules of kernels */
  bs_progress_fn progress;
  void *user;
  void (*log)(void *, int32_t, const char *, int32_t, const char *);
} bs_selftest_request;

/* Runs the self-test. BS_CONFIG: a gate names a control that does not exist. The caller frees out, also after
 * an error. */
int32_t bs_selftest_run(const bs_selftest_request *request, bs_selftest *out, bs_error *err);
/* The gates of all rows, in the order of rows and rules: columns of the matrix. The names live as long as the
 * rows. Returns how many, at most BS_SELFTEST_GATES. */
uint32_t bs_selftest_gates(const bs_selftest *selftest, const char *out_gates[BS_SELFTEST_GATES]);
void bs_selftest_free(bs_selftest *selftest);
#endif
