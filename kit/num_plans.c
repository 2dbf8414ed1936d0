/* SPDX-License-Identifier: MIT
 * num_plans.c - group numerics: one packed weight under plans of several numbers of rows, runs of fewer rows
 * than were prepared, and activate in place. */
#include <stdio.h>

#include "kit/graph.h"

void kit_data_rows(kit_data *d, int64_t rows) {
  d->shape.B = rows;
  for (uint32_t i = 0; i < d->nargs; i++) {
    kit_tensor *m = &d->a[i];
    if (kit_is_take_q(d->op) && m->block != NULL && m->t.rank == 1) { /* a row each */
      m->t.dims[0] = rows;
      m->t.bytes = rows > 0 ? (uint64_t)((rows - 1) * m->t.strides[0] + 1) * BS_DTYPE_BYTES(m->t.dtype) : 0;
    }
    if (m->block == NULL || m->t.rank != 2 || (kit_op_is(d->op, "matmul_dw") && (int32_t)i == d->out) ||
        kit_scaled_weight(d, i))
      continue;
    const int64_t last = (rows - 1) * m->t.strides[0] + (m->t.dims[1] - 1) * m->t.strides[1];
    m->t.dims[0] = rows;
    m->t.bytes = rows > 0 && m->t.dims[1] > 0 ? (uint64_t)(last + 1) * BS_DTYPE_BYTES(m->t.dtype) : 0;
  }
}

/* Other inputs in the same tensors, over what the run before has left of the output. */
static void run_again(kit_actor *a, kit_data *d, void *plan, uint32_t tolerance) {
  bs_error err = BS_ERROR_INIT;
  kit_tensor *in = &d->a[0];
  for (int64_t r = 0; r < in->t.dims[0]; r++)
    for (int64_t c = 0; c < in->t.dims[1]; c++) kit_set(in, r, c, -kit_get(in, r, c));
  const int32_t rc = kit_data_run_plan(a, d, plan, &err);
  kit_assert(rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(d), err.id, err.message);
  snprintf(d->note, sizeof d->note, ", with other inputs in the same tensors");
  kit_data_judge(d, tolerance, 0);
}

/* All rows of the output are rubbish before: those that the run has not may not change. */
static void run_rows(kit_actor *a, kit_data *d, void *plan, int64_t all, int64_t rows, uint32_t tolerance) {
  bs_error err = BS_ERROR_INIT;
  kit_data_rows(d, all);
  kit_poison_outputs(d, 0xA5);
  kit_data_rows(d, rows);
  const int32_t rc = kit_data_run_plan(a, d, plan, &err);
  kit_assert(rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(d), err.id, err.message);
  kit_data_judge(d, tolerance, 0);
}

/* A plan for B rows over a weight that was packed for another number, run with all and with fewer. */
static void one_plan(kit_actor *a, kit_shape shape, const kit_data *packed_of, void *packed,
                     uint32_t tolerance) {
  const int64_t rows[] = {shape.B, shape.B - 2, 1, 0, shape.B};
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  kit_data d;
  kit_data_make(&d, a->impl->op, &shape);
  if (d.w.block != NULL) memcpy(d.w.t.data, packed_of->w.t.data, d.w.t.bytes);
  snprintf(d.note, sizeof d.note, ", prepared for %lld rows, packed for %lld", (long long)shape.B,
           (long long)packed_of->shape.B);
  kit_assert(a->impl->prepare(a->state, &a->exec, &d.query, packed, &plan, &err) == BS_OK,
             "%s: prepare fails: %s: %s", kit_data_text(&d), err.id, err.message);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    run_rows(a, &d, plan, shape.B, rows[i], tolerance);
  run_again(a, &d, plan, tolerance);
  a->impl->plan_free(plan);
  kit_data_free(a, &d);
}

static void several_rows(kit_actor *a, kit_data *d, uint32_t tolerance) {
  static const int64_t prepared[] = {7, 3, 40};
  void *packed = kit_data_pack(a, d);
  for (size_t i = 0; i < sizeof prepared / sizeof prepared[0]; i++) {
    kit_shape shape = d->shape;
    shape.B = prepared[i];
    one_plan(a, shape, d, packed, tolerance);
  }
  if (packed != NULL) a->packer->packed_free(packed);
}

static int serves(const kit_actor *a, const kit_data *d, bs_op_answer *answer) {
  kit_data_ask(a, d, answer);
  return answer->level == BS_LEVEL_NATIVE || answer->level == BS_LEVEL_EMULATED;
}

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I32};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

void kit_num_rows(const kit_case *c) {
  static kit_actor a;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 2)) return;
  if (!kit_op_known(a.impl->op) || kit_changes_weight(a.impl->op)) {
    kit_unsupported(
        "op %s %s", a.impl->op,
        kit_op_known(a.impl->op) ? "changes its weight" : "is the plugin's own: the kit has no oracle");
    kit_actor_close(&a);
    return;
  }
  if (kit_graph_find(a.impl->op) != NULL) {
    kit_graph_rows(&a);
    kit_actor_close(&a);
    return;
  }
  for (size_t i = 0; i < N_DTYPES + 3; i++) { /* the last three: many features, many columns, silu */
    const uint32_t dtype = i < N_DTYPES ? dtypes[i] : (uint32_t)BS_F32;
    kit_shape s = {.x = dtype, .w = dtype, .y = dtype, .B = 5, .N = 21, .K = 37, .seed = 31 + i};
    if (i == N_DTYPES) s.N = 1031;
    if (i == N_DTYPES + 1) s.K = 1031;
    if (i == N_DTYPES + 2 && (kit_op_is(a.impl->op, "matmul") || strcmp(a.impl->op, "activate") == 0))
      s.activation = BS_ACT_SILU;
    bs_op_answer answer;
    kit_data d;
    if (kit_op_is(a.impl->op, "matmul_dw") && bs_dtype_is_float(dtype)) s.w = BS_F32;
    if (strstr(a.impl->op, "_columns") != NULL) s.part = KIT_PATTERN;
    if (kit_op_is(a.impl->op, "matmul") || kit_is_q(a.impl->op)) s.bias = s.x;
    kit_data_make(&d, a.impl->op, &s);
    if (serves(&a, &d, &answer)) {
      several_rows(&a, &d, answer.tolerance);
      ran++;
    }
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("no query of 5 x 21 x 37 is served");
}

/* ---- out may be in an input ------------------------------------------------------------------ */

/* The argument that may share memory with the output: for activate its input, for others the base. */
static uint32_t input_of(const kit_data *d) {
  return kit_has_base(d->op) ? kit_base(d) : 0;
}

/* The output is judged as if it had been another tensor: it is copied there, and the input comes back. */
static void run_in_place(kit_actor *a, kit_data *d, uint32_t tolerance) {
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  kit_tensor *in = &d->a[input_of(d)], *out = &d->a[d->out];
  bs_tensor *args[KIT_ARGS];
  kit_assert(a->impl->prepare(a->state, &a->exec, &d->query, NULL, &plan, &err) == BS_OK,
             "%s: prepare fails: %s: %s", kit_data_text(d), err.id, err.message);
  for (uint32_t i = 0; i < d->nargs; i++) { /* out too: what was there before, for the judge */
    kit_push(a, &d->a[i]);
    args[i] = d->a[i].block != NULL ? &d->a[i].t : NULL;
  }
  args[d->out] = &in->t;
  int32_t rc = a->impl->run(plan, args, d->nargs, NULL, &err);
  if (rc == BS_OK && a->backend->stream_sync != NULL) rc = a->backend->stream_sync(a->device, NULL, &err);
  kit_pull(a, in);
  if (d->second >= 0) kit_pull(a, &d->a[d->second]);
  kit_assert(rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(d), err.id, err.message);
  kit_check_around(in, kit_data_text(d), 0);
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t n = 0; n < d->shape.N; n++) kit_set(out, b, n, kit_get(in, b, n));
  memcpy(in->block, in->before, in->block_bytes);
  kit_data_judge(d, tolerance, 0);
  a->impl->plan_free(plan);
}

static uint32_t in_place(kit_actor *a, uint32_t dtype, uint32_t act, uint64_t seed) {
  const kit_shape s = {.x = dtype,
                       .y = dtype,
                       .w = dtype,
                       .residual = kit_is_quant(a->impl->op) ? dtype : 0,
                       .B = 9,
                       .N = 37,
                       .activation = act,
                       .spread = act % 3,
                       .seed = seed};
  bs_op_answer answer;
  kit_data d;
  kit_data_make(&d, a->impl->op, &s);
  snprintf(d.note, sizeof d.note, ", in place");
  const int served = serves(a, &d, &answer);
  if (served) run_in_place(a, &d, answer.tolerance);
  kit_data_free(a, &d);
  return (uint32_t)served;
}

void kit_num_in_place(const kit_case *c) {
  static kit_actor a;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 2)) return;
  if (kit_graph_find(a.impl->op) != NULL) {
    kit_graph_in_place(&a);
    kit_actor_close(&a);
    return;
  }
  for (size_t i = 0; i < N_DTYPES; i++) {
    if (kit_is_quant(a.impl->op) && dtypes[i] != BS_F32) continue; /* its base has no other */
    for (uint32_t act = BS_ACT_NONE; act <= (uint32_t)(dtypes[i] == BS_I32 ? BS_ACT_RELU : BS_ACT_GELU_TANH);
         act++)
      ran += in_place(&a, dtypes[i], act, 41 + i);
  }
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("no query of 9 x 37 is served");
}
