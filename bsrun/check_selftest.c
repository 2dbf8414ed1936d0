/* SPDX-License-Identifier: MIT
 * check_selftest.c - `bsrun check --selftest`: each gate is shown a fault that it must catch. */
#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "lab/check/selftest.h"

enum { FIXED = 6 };

/* Fault, gate and state of each row in a table; the whole matrix in every other format. */
static int32_t print_matrix(const bs_selftest *selftest, int format, bs_error *err) {
  bs_field fields[FIXED + BS_SELFTEST_GATES] = {{"suite", "SUITE", BS_FIELD_FOLD, 0},
                                                {"fault", "FAULT", 0, 0},
                                                {"gate", "MUST BE CAUGHT BY", 0, 0},
                                                {"state", "STATE", 0, 0},
                                                {"by", "CAUGHT BY", 0, 0},
                                                {"text", "TEXT", BS_FIELD_WIDE, 0}};
  const char *gates[BS_SELFTEST_GATES];
  const uint32_t n = bs_selftest_gates(selftest, gates);
  for (uint32_t i = 0; i < n; i++) fields[FIXED + i] = (bs_field){gates[i], gates[i], BS_FIELD_WIDE, 0};
  return bs_report_print(stdout, format, fields, FIXED + n, selftest->rows, err);
}

static int32_t conclude(const bs_selftest *selftest, int format, bs_error *err) {
  if (selftest->right == selftest->n && selftest->n > 0) {
    if (format == BS_FORMAT_TABLE || format == BS_FORMAT_MD)
      printf(
          "\n%u of %u rows are as they must be: each gate has caught its faults, and found none where there "
          "is none\n",
          selftest->right, selftest->n);
    return BS_OK;
  }
  bs_error_set(err, BS_NUMERIC, "BS-CHECK-SELFTEST", "%u of %u controls are not caught: %s",
               selftest->n - selftest->right, selftest->n, selftest->missed);
  bs_error_hint(err, "-o json has what each gate measured; share/doc/blockshock/gates.md tells the limits");
  return BS_NUMERIC;
}

int32_t check_selftest(const args *a, bs_error *err) {
  bs_node *config = NULL;
  bs_selftest selftest = {0};
  bsrun_progress progress = {.of = "self-test", .busy = ATOMIC_FLAG_INIT};
  const char *gates = args_value(a, "gates");
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bsrun_base_config(a, &config, err);
  const bs_selftest_request request = {.config = config,
                                       .gates = gates != NULL ? gates : "sdpa",
                                       .progress = bsrun_progress_to(0),
                                       .user = &progress,
                                       .log = bsrun_log};
  if (rc == BS_OK) rc = bs_selftest_run(&request, &selftest, err);
  bsrun_progress_end(&progress);
  if (rc == BS_OK) rc = print_matrix(&selftest, format, err);
  if (rc == BS_OK) rc = conclude(&selftest, format, err);
  bs_selftest_free(&selftest);
  bs_config_free(config);
  return rc;
}
