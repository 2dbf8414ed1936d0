/* SPDX-License-Identifier: MIT
 * record_fields.c - the shared fields of phase 0's and phase 1's records. Byte counts are of memory that
 * existed in the run. */
#include "lab/phase/record_fields.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/activation.h"
#include "lab/case/loss.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/repro.h"
#include "lab/gate/verdict.h"
#include "lab/place_name.h"
#include "lab/store/record.h"

static json_t *algorithm_list(const char *text) {
  json_t *list = json_array();
  while (text && *text) {
    const size_t n = strcspn(text, "\n");
    if (n) json_array_append_new(list, json_stringn(text, n));
    text += n + (text[n] == '\n');
  }
  return list;
}

/* Compares the method's proposal with what the host counted, for one forward of one rank. */
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

int32_t bs_record_judged(bs_phase_result *out, const bs_case *c, const bs_case_result *result,
                         const bs_subject *s, uint32_t loss, int valid, bs_error *err) {
  out->passed = (uint32_t)bs_verdict_passed(out->gates, out->n_gates);
  const int32_t rc = bs_record_add(
      out->record,
      json_pack("{s:s, s:b, s:b, s:I, s:I}", "loss", bs_loss_name(loss), "passed", (int)out->passed, "valid",
                valid, "iterations", (json_int_t)result->iterations, "warmup_iters", (json_int_t)c->warmup),
      err);
  return rc == BS_OK ? bs_record_case_fields(out->record, c, result, s, err) : rc;
}

int32_t bs_record_case_fields(json_t *record, const bs_case *c, const bs_case_result *result,
                              const bs_subject *s, bs_error *err) {
  uint32_t slowest = 0;
  int claims = 1;
  for (uint32_t r = 0; r < result->world_size; ++r) {
    if (result->ranks[r].forward_sum_ms > result->ranks[slowest].forward_sum_ms) slowest = r;
    claims = claims && claims_hold(&result->ranks[r]);
  }
  const bs_proposal *slow = &result->ranks[slowest].proposal;
  const bs_layer_spec *spec = &c->spec;
  int32_t rc = bs_record_add(
      record,
      json_pack("{s:s, s:I, s:I, s:I, s:b, s:s, s:s, s:s, s:s}", "dtype", bs_dtype_name(spec->y_dtype), "B",
                (json_int_t)spec->B, "N", (json_int_t)spec->N, "K", (json_int_t)spec->K, "bias",
                (int)spec->has_bias, "activation", bs_name_of(BS_NAMES_ACTIVATION, spec->activation),
                "x_placement", bs_place_name(spec->x_placement), "y_placement",
                bs_place_name(spec->y_placement), "repro", bs_repro_name(bs_repro_of(result))),
      err);
  if (rc == BS_OK)
    rc = bs_record_add(
        record,
        json_pack("{s:I, s:I, s:b, s:s, s:s, s:O, s:I, s:I, s:I, s:I, s:I, s:I}", "world_size",
                  (json_int_t)result->world_size, "threads_per_rank", (json_int_t)result->threads_per_rank,
                  "shared_device", (int)result->shared_device, "workload_text", s->info.text, "split",
                  result->ranks[0].proposal.text, "timings_ms", result->ranks[slowest].timings,
                  "timings_rank", (json_int_t)slowest, "memory_peak_bytes", (json_int_t)result->memory_peak,
                  "weight_bytes_total", (json_int_t)result->weight_bytes, "flops_per_forward",
                  (json_int_t)sum_counter(result, BS_COUNT_FLOPS), "wire_bytes_per_forward",
                  (json_int_t)sum_counter(result, BS_COUNT_WIRE_BYTES), "collectives_per_forward",
                  (json_int_t)result->ranks[0].counters[BS_COUNT_COLLECTIVES]),
        err);
  if (rc == BS_OK)
    rc = bs_record_add(record,
                       json_pack("{s:s, s:f, s:I, s:s?, s:b, s:o, s:o}", "reduce_dtype",
                                 bs_dtype_name(bs_arithmetic_of(spec).reduce_dtype), "wire_error_predicted",
                                 slow->wire_error, "overlap_chunks",
                                 (json_int_t)(slow->chunks > 1 ? slow->chunks : 1), "overlap_axis",
                                 slow->chunks < 2     ? NULL
                                 : slow->chunk_tokens ? "tokens"
                                                      : "features",
                                 "claims_match_counts", claims, "device", bs_record_device(result, slowest),
                                 "algorithms", algorithm_list(result->algorithms)),
                       err);
  if (rc == BS_OK && json_array_size(result->plans) > 0 &&
      json_object_set(record, "plans", result->plans) != 0)
    rc = bs_no_memory(err, "a record");
  if (rc == BS_OK && bs_owners_pruned(result)) json_object_set_new(record, "half_alone", json_true());
  return rc;
}

int32_t bs_record_mixed(json_t *record, const bs_mixed_error *m, bs_error *err) {
  return bs_record_add(
      record,
      json_pack("{s:[{s:s,s:I,s:o},{s:s,s:I,s:o,s:o,s:o}], s:o, s:o, s:I}", "segments", "segment", "high",
                "columns", (json_int_t)m->high, "error_predicted",
                bs_record_number(m->expected[BS_MIXED_HIGH]), "segment", m->low_name, "columns",
                (json_int_t)m->low, "error_predicted", bs_record_number(m->expected[BS_MIXED_LOW]),
                "x_rounding_predicted", bs_record_number(m->x_rounding), "w_rounding_predicted",
                bs_record_number(m->w_rounding), "mixed_error_predicted",
                bs_record_number(m->expected[BS_MIXED_WHOLE]), "mixed_error", bs_record_number(m->measured),
                "mixed_rows_looked_at", (json_int_t)m->rows),
      err);
}

/* ---- the device ---------------------------------------------------------------------------------- */

/* The enqueue time as a share of the device's time, above which the device waits for the host. */
static const double LAUNCH_BOUND = 0.9;

int bs_launch_bound(const bs_case_rank *rank, char *out_text, size_t size) {
  if (!rank->by_events || rank->enqueue_p50_ms <= 0) return 0;
  if (rank->enqueue_p50_ms < LAUNCH_BOUND * rank->forward_p50_ms) return 0;
  snprintf(out_text, size,
           "launch-bound: host enqueue %.1f us of %.1f us a forward on the device; try a larger batch, fewer "
           "ranks or fewer overlap chunks",
           rank->enqueue_p50_ms * 1e3, rank->forward_p50_ms * 1e3);
  return 1;
}

static json_t *bytes_or_null(uint64_t bytes) {
  return bytes > 0 ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *positive_us(double ms) {
  return ms > 0 ? json_real(ms * 1e3) : json_null();
}

json_t *bs_record_device(const bs_case_result *result, uint32_t slowest) {
  const bs_case_rank *rank = &result->ranks[slowest];
  char text[160];
  if (!rank->by_events && !rank->has_device_state) return json_null();
  json_t *peaks = json_array();
  for (uint32_t r = 0; r < result->world_size; ++r)
    json_array_append_new(peaks, bytes_or_null(result->ranks[r].device_peak));
  return json_pack("{s:s,s:o,s:o,s:o,s:b,s:o}", "clock", rank->by_events ? "events" : "host", "forward_us",
                   positive_us(rank->by_events ? rank->forward_p50_ms : 0.0), "enqueue_us",
                   positive_us(rank->enqueue_p50_ms), "host_avg_us", positive_us(rank->host_avg_ms),
                   "launch_bound", bs_launch_bound(rank, text, sizeof text), "peak_bytes", peaks);
}
