/* SPDX-License-Identifier: MIT
 * gates.c - the verdicts of a record's gates (summary.h). */
#include <string.h>

#include "lab/json.h"
#include "lab/store/summary.h"

/* Gates of layers all judge numbers, and have no stage. */
static int is_of_numbers(const json_t *gate) {
  const char *stage = bs_get_text(gate, "stage");
  return stage[0] == '\0' || strcmp(stage, "numeric") == 0 || strcmp(stage, "determinism") == 0;
}

/* The first gate that failed, of all gates or only of those of numbers; NULL: none. */
static const json_t *first_failed(const json_t *record, int numbers_alone) {
  const json_t *gates = json_object_get(record, "gates");
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *gate = json_array_get(gates, i);
    if (strcmp(bs_get_text(gate, "state"), "fail") == 0 && (!numbers_alone || is_of_numbers(gate)))
      return gate;
  }
  return NULL;
}

json_int_t bs_record_gates(const json_t *record, const char *state) {
  const json_t *gates = json_object_get(record, "gates");
  json_int_t n = 0;
  for (size_t i = 0; i < json_array_size(gates); i++)
    n += strcmp(bs_get_text(json_array_get(gates, i), "state"), state) == 0;
  return n;
}

const char *bs_record_word(const json_t *record) {
  if (json_array_size(json_object_get(record, "gates")) == 0) return NULL;
  if (json_is_true(json_object_get(record, "passed"))) return "RIGHT";
  if (first_failed(record, 1) != NULL) return "WRONG";
  return first_failed(record, 0) != NULL ? "NOT PASSED" : "NOT SHOWN RIGHT";
}

const char *bs_record_failed_stage(const json_t *record) {
  return json_string_value(json_object_get(first_failed(record, 0), "stage"));
}

/* Gates that are data call it `gate`. */
const char *bs_gate_name(const json_t *gate) {
  const char *name = bs_get_text(gate, "name");
  return name[0] != '\0' ? name : bs_get_text(gate, "gate");
}

int bs_record_is_kernel(const json_t *record) {
  const char *phase = bs_get_text(record, "phase");
  return strcmp(phase, "bench_sdpa") == 0 || strcmp(phase, "bench_matmul") == 0;
}
