/* SPDX-License-Identifier: MIT
 * contract.c - Y = act(alpha A B + bias) of two activations, [.., M, K] and [.., K, N]. Floats: in f64, the
 * products of one element are added one after the other from +0 in ascending order of k, and Y is rounded
 * once. Integers: modulo 2^64, of which an i32 output keeps the low bits. Blocks of rows and columns are
 * divided over the team. */
#include "../ref.h"

enum { A, B, BIAS, Y, ARGS };
enum { ROWS = 8, COLUMNS = 64, DEPTH = 64 }; /* a block of Y, and the part of k that is read together */

typedef struct contract_job {
  const ref_plan *plan;
  uint32_t rank, integers;
  int64_t M, N, K;
  int64_t row_blocks, column_blocks;
  ref_spread a, b, bias, y; /* a and b over the dims [.., M, K] and [.., K, N] */
} contract_job;

/* Sums and operands of one block. */
typedef struct block {
  union {
    double f[COLUMNS];
    uint64_t i[COLUMNS];
  } sums[ROWS], b;
  union {
    double f[DEPTH];
    uint64_t i[DEPTH];
  } a[ROWS];
} block;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[A] == NULL || q->args[B] == NULL || q->args[Y] == NULL ||
      q->args[Y]->rank < 2)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs A, B and Y of two dimensions at least");
  const int integers = ref_is_integer(q->args[A]->dtype);
  for (uint32_t i = 0; i < ARGS; i++)
    if (q->args[i] != NULL &&
        !(integers ? ref_is_integer(q->args[i]->dtype) : ref_is_float(q->args[i]->dtype)))
      return ref_answer_no(out_answer, BS_REASON_DTYPE, "floats alone or integers alone");
  if (q->activation > (integers ? (uint32_t)BS_ACT_RELU : (uint32_t)BS_ACT_GELU_TANH))
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u of these dtypes", q->activation);
  return ref_answer_native(out_answer, integers ? BS_TOL_EXACT : BS_TOL_ACC_F64, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_contract, state, exec, q, sizeof(ref_plan), out_plan, err);
}

static int32_t load(const contract_job *job, const ref_spread *s, const int64_t *at, int64_t n, void *out) {
  ref_view v = ref_line_along(s, job->rank - 1, at);
  return ref_load(job->plan->host, &v, 0, NULL, 0, n, job->integers ? BS_I64 : BS_F64, out);
}

/* Adds the products of k .. k+depth for rows x columns. at: the coordinates of the block in Y. */
static int32_t add_products(const contract_job *job, const int64_t *at, int64_t rows, int64_t columns,
                            int64_t k, int64_t depth, block *b) {
  const uint32_t row = job->rank - 2, column = job->rank - 1;
  int64_t there[BS_MAX_DIMS];
  int32_t rc = BS_OK;
  memcpy(there, at, sizeof there);
  there[column] = k;
  for (int64_t m = 0; rc == BS_OK && m < rows; m++) {
    there[row] = at[row] + m;
    rc = load(job, &job->a, there, depth, &b->a[m]);
  }
  there[column] = at[column];
  for (int64_t d = 0; rc == BS_OK && d < depth; d++) {
    there[row] = k + d;
    rc = load(job, &job->b, there, columns, &b->b);
    for (int64_t m = 0; rc == BS_OK && m < rows; m++) {
      if (job->integers) {
        for (int64_t n = 0; n < columns; n++) b->sums[m].i[n] += b->a[m].i[d] * b->b.i[n];
      } else {
        for (int64_t n = 0; n < columns; n++) b->sums[m].f[n] += b->a[m].f[d] * b->b.f[n];
      }
    }
  }
  return rc;
}

/* Row m of the block: alpha, bias, activation, rounded. */
static int32_t finish_row(const contract_job *job, const int64_t *at, int64_t columns, int64_t m, block *b) {
  const ref_plan *plan = job->plan;
  int64_t there[BS_MAX_DIMS];
  int32_t rc = BS_OK;
  memcpy(there, at, sizeof there);
  there[job->rank - 2] += m;
  if (job->bias.data != NULL) rc = load(job, &job->bias, there, columns, &b->b);
  for (int64_t n = 0; rc == BS_OK && n < columns; n++) {
    if (job->integers) {
      if (job->bias.data != NULL) b->sums[m].i[n] += b->b.i[n];
      if (plan->activation == BS_ACT_RELU && b->sums[m].i[n] >> 63 != 0) b->sums[m].i[n] = 0;
    } else {
      double v = plan->numbers[0] * b->sums[m].f[n];
      if (job->bias.data != NULL) v += b->b.f[n];
      b->sums[m].f[n] = ref_activation(plan->activation, v);
    }
  }
  ref_view y = ref_line_along(&job->y, job->rank - 1, there);
  return rc == BS_OK
             ? ref_store_value(plan->host, &y, 0, columns, job->integers ? BS_I64 : BS_F64, &b->sums[m])
             : rc;
}

static int32_t one_block(const contract_job *job, int64_t item) {
  const int64_t blocks = job->row_blocks * job->column_blocks, in = item % blocks;
  int64_t at[BS_MAX_DIMS] = {0};
  block b;
  int32_t rc = BS_OK;
  memset(&b, 0, sizeof b);
  ref_coordinates(item / blocks, job->rank - 2, job->y.dims, at);
  const int64_t m = in / job->column_blocks * ROWS, n = in % job->column_blocks * COLUMNS;
  const int64_t rows = job->M - m < ROWS ? job->M - m : ROWS;
  const int64_t columns = job->N - n < COLUMNS ? job->N - n : COLUMNS;
  at[job->rank - 2] = m;
  at[job->rank - 1] = n;
  for (int64_t k = 0; rc == BS_OK && k < job->K; k += DEPTH)
    rc = add_products(job, at, rows, columns, k, job->K - k < DEPTH ? job->K - k : DEPTH, &b);
  for (int64_t i = 0; rc == BS_OK && i < rows; i++) rc = finish_row(job, at, columns, i, &b);
  return rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  (void)err;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++) rc = one_block(items->user, i);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  const bs_tensor *y = args[Y];
  const uint32_t rank = y->rank;
  contract_job job = {.plan = plan, .rank = rank, .integers = (uint32_t)ref_is_integer(y->dtype)};
  int64_t dims[BS_MAX_DIMS];
  job.M = y->dims[rank - 2];
  job.N = y->dims[rank - 1];
  job.K = args[A]->dims[rank - 1];
  job.row_blocks = (job.M + ROWS - 1) / ROWS;
  job.column_blocks = (job.N + COLUMNS - 1) / COLUMNS;
  memcpy(dims, y->dims, sizeof dims);
  job.y = ref_spread_of(y, rank, dims);
  job.bias = ref_spread_of(args[BIAS], rank, dims);
  dims[rank - 1] = job.K;
  job.a = ref_spread_of(args[A], rank, dims);
  dims[rank - 1] = job.N;
  dims[rank - 2] = job.K;
  job.b = ref_spread_of(args[B], rank, dims);
  ref_items items = {.plan = plan, .part = part, .user = &job};
  items.count = ref_elements(rank - 2, y->dims) * job.row_blocks * job.column_blocks;
  return ref_items_run(&items, err);
}

const bs_src_loc ref_contract_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_contract = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "contract",
    .backend = "ref",
    .name = "portable",
    .summary = "a product of two activations",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
