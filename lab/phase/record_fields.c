/* SPDX-License-Identifier: MIT
 * record_fields.c - the shared fields of phase 0's and phase 1's records. Byte counts are of memory that
 * existed in the run. */
#include "lab/phase/record_fields.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/gate/activation.h"
#include "lab/gate/repro.h"
#include "lab/gate/verdict.h"
#include "lab/phase/device_fields.h"
#include "lab/phase/owners.h"
#include "lab/phase/place.h"

static json_t *algorithm_list(const char *text) {
  json_t *list = json_array();
  while (text && *text) {
    const size_t n = strcspn(text, "\n");
    if (n) json_array_append_new(list, json_stringn(text, n));
    text += n + (text[n] == '\n');
  }
  return list;
}

/* What the method said it would do against what the host counted, for one forward of one rank. */
static int claims_hold(const bs_case_rank *rank) {
  uint64_t payload = 0;
  for (uint32_t i = 0; i < rank->proposal.n_collectives; ++i) payload += rank->proposal.coll_payload[i];
  return rank->counters[BS_COUNT_COLLECTIVES] == rank->proposal.n_collectives &&
         rank->counters[BS_COUNT_PAYLOAD_BYTES] == payload &&
         rank->counters[BS_COUNT_FLOPS] == rank->proposal.flops;
}

static uint64_t sum_counter(const bs_case_result *result, uint32_t counter) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < result->world_size; ++r) sum += result->ranks[r].counters[counter];
  return sum;
}

static const char *state_name(uint32_t state) {
  static const char *const names[] = {"fail", "pass", "unknown", "skipped"};
  return state < 4 ? names[state] : "?";
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

void bs_record_gates(json_t *record, const bs_phase_result *result) {
  json_t *gates = json_array();
  for (uint32_t i = 0; i < result->n_gates; ++i) {
    const bs_gate *g = &result->gates[i];
    json_array_append_new(
        gates, json_pack("{s:s,s:s,s:i,s:o,s:o,s:s}", "name", g->name, "state", state_name(g->state), "rank",
                         g->rank, "value", number_or_null(g->value), "limit", number_or_null(g->limit),
                         "text", g->text));
  }
  json_object_set_new(record, "gates", gates);
}

int32_t bs_record_case_fields(json_t *record, const bs_case *c, const bs_case_result *result,
                              const bs_subject *s, bs_error *err) {
  uint32_t slowest = 0;
  int claims = 1;
  for (uint32_t r = 0; r < result->world_size; ++r) {
    if (result->ranks[r].forward_sum_ms > result->ranks[slowest].forward_sum_ms) slowest = r;
    claims = claims && claims_hold(&result->ranks[r]);
  }
  int bad = 0;
  bad |= json_object_set_new(record, "dtype", json_string(bs_dtype_name(c->spec.y_dtype)));
  bad |= json_object_set_new(record, "B", json_integer(c->spec.B));
  bad |= json_object_set_new(record, "N", json_integer(c->spec.N));
  bad |= json_object_set_new(record, "K", json_integer(c->spec.K));
  bad |= json_object_set_new(record, "bias", json_boolean(c->spec.has_bias));
  bad |= json_object_set_new(record, "activation", json_string(bs_activation_name(c->spec.activation)));
  bad |= json_object_set_new(record, "x_placement", json_string(bs_place_name(c->spec.x_placement)));
  bad |= json_object_set_new(record, "y_placement", json_string(bs_place_name(c->spec.y_placement)));
  bad |= json_object_set_new(record, "repro", json_string(bs_repro_name(bs_repro_of(result))));
  bad |= json_object_set_new(record, "world_size", json_integer(result->world_size));
  bad |= json_object_set_new(record, "threads_per_rank", json_integer(result->threads_per_rank));
  bad |= json_object_set_new(record, "shared_device", json_boolean(result->shared_device));
  bad |= json_object_set_new(record, "workload_text", json_string(s->info.text));
  bad |= json_object_set_new(record, "split", json_string(result->ranks[0].proposal.text));
  bad |= json_object_set(record, "timings_ms", result->ranks[slowest].timings);
  bad |= json_object_set_new(record, "timings_rank", json_integer(slowest));
  bad |= json_object_set_new(record, "memory_peak_bytes", json_integer((json_int_t)result->memory_peak));
  bad |= json_object_set_new(record, "weight_bytes_total", json_integer((json_int_t)result->weight_bytes));
  bad |= json_object_set_new(record, "flops_per_forward",
                             json_integer((json_int_t)sum_counter(result, BS_COUNT_FLOPS)));
  bad |= json_object_set_new(record, "wire_bytes_per_forward",
                             json_integer((json_int_t)sum_counter(result, BS_COUNT_WIRE_BYTES)));
  bad |= json_object_set_new(record, "collectives_per_forward",
                             json_integer((json_int_t)result->ranks[0].counters[BS_COUNT_COLLECTIVES]));
  const bs_proposal *slow = &result->ranks[slowest].proposal;
  bad |= json_object_set_new(record, "reduce_dtype",
                             json_string(bs_dtype_name(bs_arithmetic_of(&c->spec).reduce_dtype)));
  bad |= json_object_set_new(record, "wire_error_predicted", json_real(slow->wire_error));
  bad |= json_object_set_new(record, "overlap_chunks", json_integer(slow->chunks > 1 ? slow->chunks : 1));
  bad |= json_object_set_new(
      record, "overlap_axis",
      slow->chunks < 2 ? json_null() : json_string(slow->chunk_tokens ? "tokens" : "features"));
  bad |= json_object_set_new(record, "claims_match_counts", json_boolean(claims));
  if (bs_owners_pruned(result)) bad |= json_object_set_new(record, "half_alone", json_true());
  bad |= json_object_set_new(record, "device", bs_record_device(result, slowest));
  bad |= json_object_set_new(record, "algorithms", algorithm_list(result->algorithms));
  return bad ? bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for a record") : BS_OK;
}

static int set_number(json_t *object, const char *key, double value) {
  return json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static json_t *segment(const char *name, int64_t columns, double predicted) {
  json_t *row = json_pack("{s:s,s:I}", "segment", name, "columns", (json_int_t)columns);
  if (set_number(row, "error_predicted", predicted) == 0) return row;
  json_decref(row);
  return NULL;
}

int32_t bs_record_mixed(json_t *record, const bs_mixed_error *m, bs_error *err) {
  json_t *high = segment("high", m->high, m->expected[BS_MIXED_HIGH]);
  json_t *low = segment(m->low_name, m->low, m->expected[BS_MIXED_LOW]);
  int bad = set_number(low, "x_rounding_predicted", m->x_rounding);
  bad |= set_number(low, "w_rounding_predicted", m->w_rounding);
  bad |= json_object_set_new(record, "segments", json_pack("[o,o]", high, low));
  bad |= set_number(record, "mixed_error_predicted", m->expected[BS_MIXED_WHOLE]);
  bad |= set_number(record, "mixed_error", m->measured);
  bad |= json_object_set_new(record, "mixed_rows_looked_at", json_integer(m->rows));
  return bad ? bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for a record") : BS_OK;
}
