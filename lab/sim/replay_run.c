/* SPDX-License-Identifier: MIT
 * replay_run.c - a replay on normal numbers and on small whole ones, compared with
 * the untiled loop, f64 and `ref`.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/error.h"
#include "lab/kernel/case.h"
#include "lab/kernel/oracle.h"
#include "lab/sim/replay_parts.h"

typedef struct numbers {
  const bs_oplog_plan *plan;
  bs_kernel_data *data;
  char *a, *b, *y, *other; /* A [m][k], B [n][k], two Y [m][n] */
} numbers;

static void close_numbers(numbers *n) {
  bs_kernel_data_free(n->data);
  free(n->a);
  free(n->b);
  free(n->y);
  free(n->other);
}

/* Input `index` of the op, dense, into an operand of the program; `turn`: rows become columns. */
static void take(const numbers *n, uint32_t index, int turn, char *out) {
  int64_t rows, columns;
  const size_t size = n->plan->what.product.in_bytes;
  const char *from = bs_kernel_data_input(n->data, index, &rows, &columns);
  if (!turn) {
    memcpy(out, from, (size_t)rows * (size_t)columns * size);
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(out + (size_t)(c * rows + r) * size, from + (size_t)(r * columns + c) * size, size);
}

/* Y = X W^T; dX = dY W; dW = dY^T X, of which X is input 0. */
static void take_operands(const numbers *n) {
  const uint32_t kind = n->plan->problem.kind;
  const int dw = kind == BS_KERNEL_MATMUL_DW;
  take(n, dw ? 1 : 0, dw, n->a);
  take(n, dw ? 0 : 1, kind != BS_KERNEL_MATMUL, n->b);
}

int32_t bs_replay_set_input(bs_kernel_data *data, uint32_t index, int whole, uint64_t seed, bs_error *err) {
  int64_t rows, columns;
  bs_kernel_data_input(data, index, &rows, &columns);
  const uint64_t count = (uint64_t)rows * (uint64_t)columns;
  float *values = malloc((count > 0 ? count : 1) * sizeof *values);
  if (values == NULL) return bs_no_memory(err, "the numbers of a replay");
  if (whole)
    bs_rng_uniform(seed, 17 + index, 0, count, values);
  else
    bs_rng_normal(seed, 17 + index, 0, count, values);
  for (uint64_t i = 0; whole && i < count; i++) values[i] = floorf(7 * values[i]) - 3;
  const int32_t rc = bs_kernel_data_set(data, index, values, err);
  free(values);
  return rc;
}

static int32_t open_numbers(numbers *n, const bs_oplog_plan *plan, int whole, uint64_t seed, bs_error *err) {
  const sim_product_shape *s = &plan->what.product;
  *n = (numbers){.plan = plan};
  int32_t rc = bs_kernel_data_make(&plan->problem, seed, &n->data, err);
  for (uint32_t i = 0; rc == BS_OK && i < 2; i++) rc = bs_replay_set_input(n->data, i, whole, seed, err);
  if (rc != BS_OK) return rc;
  n->a = malloc(s->m * s->k * s->in_bytes);
  n->b = malloc(s->n * s->k * s->in_bytes);
  n->y = malloc(s->m * s->n * s->out_bytes);
  n->other = malloc(s->m * s->n * s->out_bytes);
  if (n->a == NULL || n->b == NULL || n->y == NULL || n->other == NULL)
    return bs_no_memory(err, "the numbers of a replay");
  take_operands(n);
  return BS_OK;
}

static uint64_t differing(const numbers *n, const char *other) {
  const sim_product_shape *s = &n->plan->what.product;
  uint64_t count = 0;
  for (uint64_t i = 0; i < s->m * s->n; i++)
    count += memcmp(n->y + i * s->out_bytes, other + i * s->out_bytes, s->out_bytes) != 0;
  return count;
}

static int32_t run_normal(const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                          bs_oplog_replayed *out, bs_error *err) {
  numbers n;
  bs_kernel_numbers judged = {0};
  bs_tail tail;
  int32_t rc = open_numbers(&n, plan, 0, seed, err);
  if (rc == BS_OK) rc = bs_oplog_data(log, plan, n.a, n.b, n.y, err);
  if (rc == BS_OK) rc = bs_oplog_untiled(plan, n.a, n.b, n.other, err);
  if (rc == BS_OK) out->untiled = differing(&n, n.other);
  if (rc == BS_OK) rc = bs_kernel_data_judge(n.data, n.y, &judged, err);
  if (rc == BS_OK) rc = bs_kernel_data_predict(n.data, BS_TOL_ACC_F32, &out->predicted, &tail, err);
  out->error = judged.relative_rmse;
  out->limit = BS_SDPA_SLACK + 2 / sqrt((double)(judged.values > 0 ? judged.values : 1)); /* gate T1 */
  close_numbers(&n);
  return rc;
}

static int32_t run_whole(bs_context *context, const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                         bs_oplog_replayed *out, bs_error *err) {
  numbers n;
  bs_kernel_arm *arm = NULL;
  void *right = NULL;
  int32_t rc = open_numbers(&n, plan, 1, seed, err);
  if (rc == BS_OK) rc = bs_oplog_data(log, plan, n.a, n.b, n.y, err);
  const bs_kernel_setup setup = {.context = context,
                                 .problem = &plan->problem,
                                 .backend = "ref",
                                 .provider = "ref",
                                 .data = n.data,
                                 .seed = seed};
  if (rc == BS_OK) rc = bs_kernel_arm_open(&setup, &arm, err);
  if (rc == BS_OK) rc = bs_kernel_arm_outputs(arm, &right, err);
  if (rc == BS_OK) out->ref = differing(&n, right);
  free(right);
  bs_kernel_arm_close(arm);
  close_numbers(&n);
  return rc;
}

int32_t bs_oplog_replay(bs_context *context, const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                        bs_oplog_replayed *out, bs_error *err) {
  if (plan->what.kind == SIM_OP_MAP) return bs_oplog_replay_map(context, log, plan, seed, out, err);
  if (plan->what.kind == SIM_OP_ATTENTION) return bs_oplog_replay_attention(log, plan, seed, out, err);
  *out = (bs_oplog_replayed){.values = plan->what.product.m * plan->what.product.n,
                             .checks = BS_REPLAYED_UNTILED | BS_REPLAYED_REF | BS_REPLAYED_ERROR};
  const int32_t rc = run_normal(log, plan, seed, out, err);
  return rc == BS_OK ? run_whole(context, log, plan, seed, out, err) : rc;
}
