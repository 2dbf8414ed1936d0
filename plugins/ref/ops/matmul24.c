/* SPDX-License-Identifier: MIT
 * matmul24.c - matmul of a 2:4 weight, the meaning of it: the products of the kept weights alone, one after
 * the other in ascending order of the columns, each product and each sum rounded. What X holds at the other
 * columns, Inf and NaN too, does not count. Checks, plan, epilogue and rounding are matmul's. */
#include "matmul24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  if (q->nargs != 4 || !ref_arg_ok(q, 0, 2) || !ref_arg_ok(q, 3, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs X [B,K], bias [N], residual [B,N], Y [B,N]");
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  if (!ref_kept_ok(q, q->args[3]->dims[1], k, out_answer)) return BS_OK;
  return ref_matmul_supports(state, q, out_answer);
}

/* Outputs n0.. of the tile over columns k0..: sums[o][t] += w x. */
static int32_t add_block(const ref_matmul_job *job, const unsigned char *x, unsigned char *sums,
                         int64_t tokens, int64_t n0, int64_t outputs, int64_t k0) {
  const ref_packed24 *w = (const ref_packed24 *)(const void *)job->plan->weight;
  const uint32_t compute = job->plan->compute;
  const int64_t size = BS_DTYPE_BYTES(compute), left = w->values.cols - k0 / 2;
  const int64_t count = left < REF_24 / 2 ? left : REF_24 / 2;
  _Alignas(64) unsigned char values[REF_24 / 2 * 8];
  for (int64_t o = 0; o < outputs; o++) {
    const int32_t rc = ref_values24(w, n0 + o, k0 / 2, count, compute, values);
    if (rc != BS_OK) return rc;
    for (int64_t j = 0; j < count; j++) {
      const int64_t k = ref_position(&w->at, n0 + o, k0 / 2 + j);
      if (k < w->at.cols)
        ref_axpy24(compute, sums + o * REF_24 * size, x + (k - k0) * REF_24 * size, values + j * size,
                   tokens);
    }
  }
  return BS_OK;
}

static int32_t tile(const ref_matmul_job *job, unsigned char *workspace, int64_t t0, int64_t tokens,
                    int64_t n0, int64_t outputs) {
  const ref_matmul_plan *plan = job->plan;
  const ref_packed24 *w = (const ref_packed24 *)(const void *)plan->weight;
  const int64_t size = BS_DTYPE_BYTES(plan->compute), first = plan->gathers ? plan->columns.begin : 0;
  unsigned char *x = workspace, *sums = x + (int64_t)8 * REF_24 * REF_24;
  unsigned char *row = sums + (int64_t)8 * REF_24 * REF_24;
  _Alignas(64) unsigned char bias[REF_OUTPUTS * 8];
  int32_t rc = BS_OK;
  memset(sums, 0, (size_t)(REF_24 * REF_24 * size));
  for (int64_t k = 0; k < w->at.cols && rc == BS_OK; k += REF_24) {
    const int64_t depth = w->at.cols - k < REF_24 ? w->at.cols - k : REF_24;
    rc = ref_turn24(plan->host, &job->x, t0, tokens, first + k, depth, plan->compute, row, x);
    if (rc == BS_OK) rc = add_block(job, x, sums, tokens, n0, outputs, k);
  }
  const int with_bias = job->bias.data != NULL;
  if (with_bias && rc == BS_OK)
    rc = ref_load(plan->host, &job->bias, 0, NULL, n0, outputs, plan->compute, bias);
  for (int64_t t = 0; t < tokens && rc == BS_OK; t++) {
    for (int64_t o = 0; o < outputs; o++)
      memcpy(row + o * size, sums + (o * REF_24 + t) * size, (size_t)size);
    rc = ref_matmul_finish(job, row, with_bias ? bias : NULL, t0 + t, n0, outputs);
  }
  return rc;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  ref_packed24 *w = packed;
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  if (w != NULL && w->at.cols != k)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT",
                   "the packed weight has %lld columns, the plan needs %lld", (long long)w->at.cols,
                   (long long)k);
  return ref_matmul_prepare(&ref_matmul24, state, exec, q, w != NULL ? &w->values : NULL,
                            w != NULL ? w->values.cols : 0, tile, out_plan, err);
}

const bs_src_loc ref_matmul24_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul24 = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24",
    .backend = "ref",
    .name = "portable",
    .summary = "kept weights in portable C, sums in order of the columns",
    .supports = supports,
    .pack = ref_matmul24_pack,
    .packed_update = ref_matmul24_packed_update,
    .packed_read = ref_matmul_packed_read,
    .packed_free = ref_matmul24_packed_free,
    .prepare = prepare,
    .run = ref_matmul_run,
    .plan_free = ref_matmul_plan_free,
};
