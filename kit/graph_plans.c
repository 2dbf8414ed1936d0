/* SPDX-License-Identifier: MIT
 * graph_plans.c - ops of graphs: one plan run with the prepared dims and with smaller ones in other strides;
 * outputs that share memory with an input; an index outside its dimension; sizes too large to run. */
#include <stdio.h>

#include "kit/graph.h"

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I32, BS_I64};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], QUERIES = 24 };

static int serves(const kit_actor *a, const kit_data *d, bs_op_answer *answer) {
  kit_data_ask(a, d, answer);
  return answer->level == BS_LEVEL_NATIVE || answer->level == BS_LEVEL_EMULATED;
}

static int has_dtype(const kit_actor *a, uint32_t dtype) {
  return kit_graph_fit(a->impl->op, !bs_dtype_is_float(dtype));
}

static void run_plan(kit_actor *a, kit_data *d, void *plan, uint32_t tolerance, const char *note) {
  bs_error err = BS_ERROR_INIT;
  snprintf(d->note, sizeof d->note, "%s", note);
  kit_poison_outputs(d, 0xA5);
  const int32_t rc = kit_data_run_plan(a, d, plan, &err);
  kit_assert(rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(d), err.id, err.message);
  kit_data_judge(d, tolerance, 0);
}

static uint32_t shrink_one(kit_actor *a, uint32_t dtype, uint32_t index) {
  kit_shape s = {.x = dtype, .y = dtype, .w = dtype, .B = 9, .N = 37, .K = 21, .seed = 100 + index};
  bs_error err = BS_ERROR_INIT;
  bs_op_answer answer;
  kit_data whole, part;
  void *plan = NULL;
  s.index = index;
  s.shrinks = 1;
  kit_data_make(&whole, a->impl->op, &s);
  if (!serves(a, &whole, &answer)) {
    kit_data_free(a, &whole);
    return 0;
  }
  s.shrinks = 2;
  kit_data_make(&part, a->impl->op, &s);
  kit_assert(a->impl->prepare(a->state, &a->exec, &whole.query, NULL, &plan, &err) == BS_OK,
             "%s: prepare fails: %s: %s", kit_data_text(&whole), err.id, err.message);
  run_plan(a, &whole, plan, answer.tolerance, "");
  run_plan(a, &part, plan, answer.tolerance, ", smaller than prepared, in other strides");
  run_plan(a, &whole, plan, answer.tolerance, ", after a run of smaller dims");
  a->impl->plan_free(plan);
  kit_data_free(a, &whole);
  kit_data_free(a, &part);
  return 1;
}

void kit_graph_rows(kit_actor *a) {
  uint32_t ran = 0;
  for (uint32_t i = 0; i < N_DTYPES; i++)
    for (uint32_t q = 0; q < QUERIES && has_dtype(a, dtypes[i]); q++) ran += shrink_one(a, dtypes[i], q);
  if (ran == 0) kit_unsupported("no query of 9 x 37 x 21 is served");
}

/* ---- outputs in an input ---------------------------------------------------------------------- */

/* The output is judged as if it had been another tensor: it is copied there, and the input comes back. */
static void run_in_place(kit_actor *a, kit_data *d, uint32_t tolerance, uint32_t output, uint32_t input) {
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  kit_tensor *in = &d->a[input], *out = &d->a[output];
  bs_tensor *args[KIT_ARGS];
  kit_assert(a->impl->prepare(a->state, &a->exec, &d->query, NULL, &plan, &err) == BS_OK,
             "%s: prepare fails: %s: %s", kit_data_text(d), err.id, err.message);
  for (uint32_t i = 0; i < d->nargs; i++) {
    kit_push(a, &d->a[i]);
    args[i] = d->a[i].block != NULL ? &d->a[i].t : NULL;
  }
  args[output] = &in->t;
  int32_t rc = a->impl->run(plan, args, d->nargs, NULL, &err);
  if (rc == BS_OK && a->backend->stream_sync != NULL) rc = a->backend->stream_sync(a->device, NULL, &err);
  kit_assert(rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(d), err.id, err.message);
  for (uint32_t i = 0; i < d->nargs; i++)
    if (i != output) kit_pull(a, &d->a[i]);
  kit_check_around(in, kit_data_text(d), 0);
  const int64_t n = kit_elements(in);
  for (int64_t i = 0; i < n; i++)
    memcpy(kit_place_at(out, i), kit_place_at(in, i), BS_DTYPE_BYTES(in->t.dtype));
  memcpy(in->block, in->before, in->block_bytes);
  kit_data_judge(d, tolerance, 0);
  a->impl->plan_free(plan);
}

void kit_graph_in_place(kit_actor *a) {
  const kit_graph_op *g = kit_graph_find(a->impl->op);
  uint32_t ran = 0;
  for (uint32_t i = 0; i < N_DTYPES; i++)
    for (uint32_t q = 0; q < QUERIES * g->in_places && has_dtype(a, dtypes[i]); q++) {
      kit_shape s = {
          .x = dtypes[i], .y = dtypes[i], .w = dtypes[i], .B = 9, .N = 37, .K = 21, .seed = 300 + q};
      bs_op_answer answer;
      kit_data d;
      uint32_t output = 0, input = 0;
      s.index = q / g->in_places;
      s.in_place = 1 + q % g->in_places;
      kit_data_make(&d, a->impl->op, &s);
      g->in_place(&d, s.in_place - 1, &output, &input);
      snprintf(d.note, sizeof d.note, ", arg %u in arg %u", output, input);
      if (serves(a, &d, &answer)) {
        run_in_place(a, &d, answer.tolerance, output, input);
        ran++;
      }
      kit_data_free(a, &d);
    }
  if (ran == 0) kit_unsupported("no query of 9 x 37 is served");
}

/* ---- an index outside ------------------------------------------------------------------------- */

/* With one index out of range the op must report an error and write no byte outside the outputs. A device
 * whose kernels cannot fail reads zeros instead. */
static uint32_t one_outside(kit_actor *a, uint32_t index) {
  kit_shape s = {.x = BS_F32, .y = BS_F32, .w = BS_F32, .B = 5, .N = 7, .K = 3, .seed = 500 + index};
  static const double outside[] = {1000.0, -1000.0, 2147483647.0, -2147483648.0};
  bs_error err = BS_ERROR_INIT;
  bs_op_answer answer;
  const char *stage = "";
  kit_data d;
  uint32_t ran = 0;
  s.index = index;
  kit_data_make(&d, a->impl->op, &s);
  kit_tensor *of = &d.a[d.q != NULL ? 0 : 1];
  const int64_t n = kit_elements(of), moved = kit_elements(of + 1);
  if (n > 0 && moved > 0 && serves(a, &d, &answer)) {
    kit_set_at(of, (int64_t)index % n, outside[index / 3 % 4]);
    const int32_t rc = kit_data_run(a, &d, &stage, &err);
    kit_assert(rc == BS_INVALID_ARGUMENT || (rc == BS_OK && !kit_host_memory(a)),
               "%s: an index is outside of its dimension, and %s gives %s", kit_data_text(&d), stage,
               bs_status_name(rc));
    kit_assert(rc == BS_OK || strcmp(err.id, "BS-OP-INDEX") == 0,
               "%s: an index is outside of its dimension, and the error is %s, not BS-OP-INDEX",
               kit_data_text(&d), err.id);
    for (uint32_t i = 0; i < d.nargs; i++)
      kit_check_around(&d.a[i], kit_data_text(&d), (d.outs >> i & 1u) == 0 && (int32_t)i != d.out);
    ran = 1;
  }
  kit_data_free(a, &d);
  return ran;
}

void kit_num_outside(const kit_case *c) {
  static kit_actor a;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 2)) return;
  for (uint32_t i = 0; i < QUERIES; i++) ran += one_outside(&a, i);
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("no query of 5 x 7 is served");
}

/* ---- sizes too large to run ------------------------------------------------------------------- */

void kit_graph_huge(kit_data *d, uint32_t which) {
  for (uint32_t i = 0; i < d->nargs; i++) {
    bs_tensor_desc *desc = &d->a[i].d;
    if (d->a[i].block == NULL) continue;
    memset(desc->strides, 0, sizeof desc->strides);
    for (uint32_t k = 0; k < desc->rank; k++)
      if (desc->dims[k] > 1 && k + 2 >= desc->rank) desc->dims[k] <<= 8 + 4 * which;
  }
}
