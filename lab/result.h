/* SPDX-License-Identifier: MIT
 * result.h - the result of a phase: verdicts of gates and the fields of a record. */
#ifndef BS_LAB_RESULT_H
#define BS_LAB_RESULT_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* One gate's verdict. */
typedef struct bs_gate {
  char name[24];  /* "T1", "T2.feature", ... */
  uint32_t state; /* enum bs_gate_state */
  int32_t rank;   /* worst rank, -1: all */
  double value, limit;
  char text[160]; /* the measurement, or why the gate was skipped */
} bs_gate;

/* The state's name for people: all states except a pass are in capitals. Records have the names of
 * bs_name_of. */
static inline const char *bs_gate_shown(uint32_t state) {
  return state == BS_GATE_FAIL      ? "FAIL"
         : state == BS_GATE_UNKNOWN ? "UNKNOWN"
                                    : bs_name_of(BS_NAMES_GATE, state);
}

/* A phase's outcome. `record` holds the fields of the metrics line (docs/runs.md); the phase adds to it,
 * the caller owns it. */
typedef struct bs_phase_result {
  json_t *record;
  void *samples; /* bytes of samples.bin (lab/store/samples.h); NULL: none */
  size_t samples_bytes;
  uint32_t passed; /* every gate that ran passed and at least one ran */
  uint32_t n_gates;
  bs_gate gates[32];
} bs_phase_result;
void bs_phase_result_free(bs_phase_result *result);
#endif
