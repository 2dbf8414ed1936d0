/* SPDX-License-Identifier: MIT
 *
 * contract.c - Y = act(alpha A B + bias) of two activations in f32, bf16 or f16, sums in fp32, of any
 * strides. Blocks of 96 rows and 128 columns are divided over the team: rows of A as f32, B in panels, both
 * 256 deep, and the tiles of matmul. B is turned where its rows lie in columns. */
#include <stdlib.h>

#include "panels.h"

enum { A, B, BIAS, Y, ARGS };
enum { COLUMNS = 128 };
#define ALONE 65536.0 /* products up to which the team is not woken */

typedef struct contract_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  float alpha;
  uint32_t activation;
  int64_t x, w, sums, room; /* floats of a member's parts */
  uint64_t member_bytes;
  uint32_t width, reserved;
} contract_plan;

/* Matrices of one call, and their strides over the outer dims. */
typedef struct contract_call {
  const contract_plan *plan;
  uint32_t outer;
  int64_t dims[BS_MAX_DIMS];
  int64_t M, N, K, row_blocks, column_blocks, items;
  cpu_lines matrix[ARGS]; /* data NULL: absent */
  int64_t strides[ARGS][BS_MAX_DIMS];
  uint8_t *scratch;
} contract_call;

static int32_t supports(void *opaque, const bs_op_query *q, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  static const char *const names[ARGS] = {"A", "B", "bias", "Y"};
  for (uint32_t i = 0; i < ARGS; i++)
    if (q->args[i] != NULL && cpu_type_index(q->args[i]->dtype) < 0) {
      cpu_answer_no(answer, BS_REASON_DTYPE, "%s of dtype 0x%04x: f32, bf16 and f16 only", names[i],
                    q->args[i]->dtype);
      return BS_OK;
    }
  const size_t known = sizeof state->kernels.activate / sizeof state->kernels.activate[0];
  if (q->activation >= known) {
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
    return BS_OK;
  }
  if (q->accumulate == BS_ACC_F64) {
    cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
    return BS_OK;
  }
  cpu_answer_yes(answer, 800, BS_TOL_ACC_F32, "panels", "tiles of matmul over panels made at each call");
  answer->bits = 1;
  return BS_OK;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Floats of a member: x, panels, sums, and 16 rows to turn. A block has no more rows, columns or depth than
 * the query, of which a run has no more. */
static void read_sizes(contract_plan *plan, const bs_op_query *q) {
  const uint32_t rank = q->args[Y]->rank;
  const int64_t rows = least(q->args[Y]->dims[rank - 2], CPU_PANEL_ROWS);
  const int64_t columns = cpu_up16(least(q->args[Y]->dims[rank - 1], COLUMNS));
  const int64_t depth = least(q->args[A]->dims[rank - 1], CPU_K_BLOCK);
  plan->x = rows * CPU_X_LD;
  plan->w = depth * columns;
  plan->sums = rows * COLUMNS;
  plan->room = 16 * (cpu_up16(depth) > columns ? cpu_up16(depth) : columns);
  plan->member_bytes = (uint64_t)(plan->x + plan->w + plan->sums + plan->room) * sizeof(float);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  contract_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->alpha = (float)q->numbers[0];
  plan->activation = q->activation;
  read_sizes(plan, q);
  plan->width = exec->width;
  rc = cpu_reserve(exec, plan->member_bytes * plan->width, err);
  if (rc != BS_OK)
    free(plan);
  else
    *out_plan = plan;
  return rc;
}

static void read_call(const contract_plan *plan, bs_tensor *const *args, contract_call *call) {
  const bs_tensor *y = args[Y];
  const uint32_t rank = y->rank;
  *call = (contract_call){.plan = plan, .outer = rank - 2, .M = y->dims[rank - 2], .N = y->dims[rank - 1]};
  call->K = args[A]->dims[rank - 1];
  call->row_blocks = (call->M + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS;
  call->column_blocks = (call->N + COLUMNS - 1) / COLUMNS;
  call->items = call->row_blocks * call->column_blocks;
  memcpy(call->dims, y->dims, sizeof call->dims);
  for (uint32_t d = 0; d < call->outer; d++) call->items *= call->dims[d];
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor *t = args[i];
    if (t == NULL) continue;
    call->matrix[i] = (cpu_lines){t->data, (uint32_t)cpu_type_index(t->dtype), BS_DTYPE_BYTES(t->dtype),
                                  t->strides[rank - 2], t->strides[rank - 1]};
    if (i == BIAS && t->dims[rank - 2] == 1) call->matrix[i].row = 0;
    if (i == BIAS && t->dims[rank - 1] == 1) call->matrix[i].column = 0;
    for (uint32_t d = 0; d < call->outer; d++) call->strides[i][d] = t->dims[d] == 1 ? 0 : t->strides[d];
  }
}

/* The matrices of outer element `z`. */
static void matrices_at(const contract_call *call, int64_t z, cpu_lines *out) {
  memcpy(out, call->matrix, sizeof call->matrix);
  for (uint32_t d = call->outer; d-- > 0; z /= call->dims[d])
    for (uint32_t i = 0; i < ARGS; i++)
      if (out[i].data != NULL) out[i].data += z % call->dims[d] * call->strides[i][d] * (int64_t)out[i].size;
}

static void finish_row(const contract_plan *plan, const cpu_lines *m, int64_t row, int64_t first, int64_t n,
                       float *sums, float *room) {
  const cpu_kernels *kernels = plan->kernels;
  for (int64_t i = 0; plan->alpha != 1.0f && i < n; i++) sums[i] *= plan->alpha;
  if (m[BIAS].data != NULL) {
    cpu_lines_load(kernels, &m[BIAS], row, first, n, n, room);
    kernels->add(sums, room, n);
  }
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](sums, n);
  cpu_lines_store(kernels, &m[Y], row, first, n, sums);
}

static void one_block(const contract_call *call, int64_t item, float *x) {
  const contract_plan *plan = call->plan;
  const cpu_kernels *kernels = plan->kernels;
  const int64_t blocks = call->row_blocks * call->column_blocks, in = item % blocks;
  const int64_t row = in / call->column_blocks * CPU_PANEL_ROWS, first = in % call->column_blocks * COLUMNS;
  const int64_t rows = call->M - row < CPU_PANEL_ROWS ? call->M - row : CPU_PANEL_ROWS;
  const int64_t n = call->N - first < COLUMNS ? call->N - first : COLUMNS;
  float *w = x + plan->x, *sums = w + plan->w, *room = sums + plan->sums;
  cpu_lines m[ARGS];
  matrices_at(call, item / blocks, m);
  const cpu_lines turned = {m[B].data, m[B].type, m[B].size, m[B].column, m[B].row};
  const int turn = m[B].column != 1 && m[B].row == 1;
  if (call->K == 0) memset(sums, 0, (size_t)plan->sums * sizeof *sums);
  for (int64_t k = 0; k < call->K; k += CPU_K_BLOCK) {
    const int64_t depth = call->K - k < CPU_K_BLOCK ? call->K - k : CPU_K_BLOCK;
    for (int64_t r = 0; r < rows; r++)
      cpu_lines_load(kernels, &m[A], row + r, k, depth, depth, x + r * CPU_X_LD);
    if (turn)
      cpu_panels_turn(kernels, &turned, k, depth, first, n, room, w);
    else
      cpu_panels_copy(kernels, &m[B], k, depth, first, n, room, w);
    cpu_panels_multiply(kernels, x, w, depth, cpu_up16(n), sums, COLUMNS, rows, k > 0);
  }
  for (int64_t r = 0; r < rows; r++) finish_row(plan, m, row + r, first, n, sums + r * COLUMNS, room);
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const contract_call *call = arg;
  int64_t begin, end;
  cpu_share(call->items, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++)
    one_block(call, i, (float *)(void *)(call->scratch + call->plan->member_bytes * member));
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const contract_plan *plan = opaque;
  contract_call call;
  (void)nargs;
  (void)stream;
  read_call(plan, args, &call);
  if (call.items == 0) return BS_OK;
  call.scratch = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(
      plan->exec,
      call.items == 1 || (double)call.items * CPU_PANEL_ROWS * COLUMNS * (double)(call.K + 1) < ALONE, share,
      &call, err);
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_contract_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_contract_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "contract",
    .backend = "cpu",
    .name = "panels",
    .summary = "a product of two activations by tiles",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
