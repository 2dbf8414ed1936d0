/* SPDX-License-Identifier: MIT
 * gate_case.h - what the tests of gates share: a layer as a case, its numbers from a workload, a run with its
 * verdict, and what a failure prints. */
#ifndef TESTS_GATE_GATE_CASE_H
#define TESTS_GATE_GATE_CASE_H
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/verdict.h"
#include "tests/gate/right_run.h"
#include "tests/marks.h"

/* The context of a program's tests, as a fixture of run_tests. */
static bs_context *context;
static inline void open_context(void) {
  context = right_context();
}
static inline void close_context(void) {
  bs_context_close(context);
}

/* A layer on P ranks that are threads. The cpu backend runs f32, bf16 and f16, ref the other dtypes. */
static inline bs_case gate_case(const char *method, uint32_t P, uint32_t dtype, const int64_t shape[3],
                                const bs_mask *mask) {
  const int wide = dtype == BS_F32 || dtype == BS_BF16 || dtype == BS_F16;
  bs_case c = {.context = context,
               .method = method,
               .backend = wide ? "cpu" : "ref",
               .comm = "threads",
               .world_size = P,
               .threads_per_rank = 1,
               .timeout_s = 60,
               .iterations = 1};
  c.spec = (bs_layer_spec){
      .struct_size = sizeof c.spec, .B = shape[0], .N = shape[1], .K = shape[2], .mask = mask};
  c.spec.x_dtype = c.spec.w_dtype = c.spec.y_dtype = dtype;
  return c;
}

/* X, W and bias of a workload. */
typedef struct gate_data {
  const bs_workload *workload;
  void *instance;
  bs_source x, w, bias;
} gate_data;

/* Opens the workload at the sizes of the case, which reads it from then on. */
static inline void gate_data_open(bs_case *c, const char *name, uint64_t seed, uint64_t weight_seed,
                                  gate_data *d) {
  bs_error err = BS_ERROR_INIT;
  void *state = NULL;
  const bs_workload_request request = {.struct_size = sizeof request,
                                       .dtype = c->spec.x_dtype,
                                       .B = c->spec.B,
                                       .N = c->spec.N,
                                       .K = c->spec.K,
                                       .seed = seed,
                                       .weight_seed = weight_seed,
                                       .has_bias = c->spec.has_bias};
  memset(d, 0, sizeof *d);
  d->x.struct_size = d->w.struct_size = d->bias.struct_size = sizeof d->x;
  ck_assert_int_eq(bs_find_workload(c->context, name, &d->workload, &state, &err), BS_OK);
  ck_assert_msg(d->workload->open(state, &request, &d->instance, &err) == BS_OK, "%s: %s", name, err.message);
  d->workload->source(d->instance, BS_PART_X, &d->x, &err);
  d->workload->source(d->instance, BS_PART_W, &d->w, &err);
  if (c->spec.has_bias) d->workload->source(d->instance, BS_PART_BIAS, &d->bias, &err);
  c->x = &d->x;
  c->w = &d->w;
  c->bias = c->spec.has_bias ? &d->bias : NULL;
}

static inline void gate_data_close(gate_data *d) {
  d->workload->close(d->instance);
}

/* The case reads these X [B,K] and W [N,K]. */
static inline void gate_memory_open(bs_case *c, const float *x, const float *w, gate_data *d) {
  const bs_layer_spec *s = &c->spec;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_source_from_memory(x, BS_F32, s->B, s->K, s->K, &d->x, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(w, BS_F32, s->N, s->K, s->K, &d->w, &err), BS_OK);
  c->x = &d->x;
  c->w = &d->w;
}

static inline void gate_memory_close(gate_data *d) {
  bs_source_release(&d->x);
  bs_source_release(&d->w);
}

/* Runs the case, and judges what came out by `judged_by`. The caller frees the result where this is BS_OK. */
static inline int32_t gate_run(const bs_case *c, const bs_case *judged_by, bs_case_result *out_result,
                               bs_verdict *out_verdict, bs_error *err) {
  const int32_t rc = bs_case_run(c, out_result, err);
  return rc == BS_OK ? bs_verdict_make(judged_by, out_result, 0, out_verdict, err) : rc;
}

/* 1 when a gate failed: those that did are printed. */
static inline int gate_alarm(const bs_case *c, const bs_gate *gates, uint32_t n) {
  const bs_layer_spec *s = &c->spec;
  for (uint32_t g = 0; g < n; ++g)
    if (gates[g].state != BS_GATE_PASS && gates[g].state != BS_GATE_SKIPPED)
      printf(
          "%s %s P=%u %s B=%lld N=%lld K=%lld x %u y %u reduce 0x%x activation %u: %s value %g limit %g "
          "(%s)\n",
          c->method, s->mask != NULL ? s->mask->name : "", c->world_size, bs_dtype_name(s->x_dtype),
          (long long)s->B, (long long)s->N, (long long)s->K, s->x_placement, s->y_placement, s->reduce_dtype,
          s->activation, gates[g].name, gates[g].value, gates[g].limit, gates[g].text);
  return !bs_verdict_passed(gates, n);
}

/* The host counted what each rank proposed. */
static inline void gate_claims_hold(const bs_case_result *result) {
  for (uint32_t r = 0; r < result->world_size; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    uint64_t payload = 0;
    for (uint32_t i = 0; i < rank->proposal.n_collectives; ++i) payload += rank->proposal.coll_payload[i];
    ck_assert_uint_eq(rank->counters[BS_COUNT_FLOPS], rank->proposal.flops);
    ck_assert_uint_eq(rank->counters[BS_COUNT_PAYLOAD_BYTES], payload);
    ck_assert_uint_eq(rank->counters[BS_COUNT_COLLECTIVES], rank->proposal.n_collectives);
  }
}

static inline bs_mask gate_mask(const char *name) {
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_mask_parse(name, NULL, NULL, &mask, &err) == BS_OK, "%s", err.message);
  return mask;
}
#endif
