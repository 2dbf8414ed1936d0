/* SPDX-License-Identifier: MIT
 * activate.c - out[b,n] = act(in[b,n]) rounded to out's dtype: the activation of a layer whose outputs are
 * sums over ranks, where it cannot be part of the product. Computed in f64 when either side is f64, in i64
 * for integers, else rounded to f32 first, as matmul's epilogue does. Any strides; out may be in itself.
 * Rows are divided over the team, or columns when there are fewer rows than members. */
#include <math.h>

#include "../ref.h"

typedef struct applied {
  uint32_t activation;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
} applied;

double ref_activation(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0.0 ? 0.0 : v; /* NaN stays */
    case BS_ACT_GELU:
      return 0.5 * v * erfc(-v * 0.70710678118654752440); /* erfc: no cancellation for v << 0 */
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    case BS_ACT_GELU_TANH: /* (1 + tanh(u)) / 2 is 1 / (1 + e^-2u): no cancellation for v << 0 */
      return v / (1.0 + exp(-2.0 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default:
      return v;
  }
}

uint32_t ref_compute_of(uint32_t in, uint32_t out) {
  if (ref_is_integer(in)) return BS_I64;
  return in == BS_F64 || out == BS_F64 ? BS_F64 : BS_F32;
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 2 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  const bs_tensor_desc *in = query->args[0], *out = query->args[1];
  const int integers = in->dtype == out->dtype && (in->dtype == BS_I32 || in->dtype == BS_I64);
  if (in->dims[0] != out->dims[0] || in->dims[1] != out->dims[1])
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "input and output differ in shape");
  if (!integers && !(ref_is_float(in->dtype) && ref_is_float(out->dtype)))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "two floats, or i32 or i64 twice");
  if (query->activation > BS_ACT_GELU_TANH)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  if (integers && query->activation > BS_ACT_RELU)
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "gelu and silu need float dtypes");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_activate, state, exec, query, sizeof(ref_plan), out_plan, err);
}

enum { CHUNK = 256 };

static void apply(uint32_t activation, uint32_t compute, void *piece, int64_t n) {
  if (compute == BS_I64) {
    int64_t *v = piece;
    for (int64_t i = 0; activation == BS_ACT_RELU && i < n; i++) v[i] = v[i] < 0 ? 0 : v[i];
  } else if (compute == BS_F64) {
    double *v = piece;
    for (int64_t i = 0; i < n; i++) v[i] = ref_activation(activation, v[i]);
  } else {
    float *v = piece;
    for (int64_t i = 0; i < n; i++) v[i] = (float)ref_activation(activation, (double)v[i]);
  }
}

static int32_t activate_part(const ref_rows *job, int64_t row, int64_t begin, int64_t end) {
  const bs_host *host = job->host;
  const applied *act = job->user;
  _Alignas(64) unsigned char piece[CHUNK * 8];
  for (int64_t c = begin; c < end; c += CHUNK) {
    const int64_t n = end - c < CHUNK ? end - c : CHUNK;
    int32_t rc = ref_load(host, &job->in, row, NULL, c, n, act->compute, piece);
    if (rc == BS_OK) apply(act->activation, act->compute, piece, n);
    if (rc == BS_OK) rc = ref_store(host, &job->out, row, c, n, act->compute, piece);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  const applied act = {plan->activation, ref_compute_of(args[0]->dtype, args[1]->dtype)};
  ref_rows rows = {plan->host, ref_view_of(args[0]), ref_view_of(args[1]), activate_part, &act, BS_OK};
  return ref_rows_run(&rows, plan->exec, err);
}

const bs_src_loc ref_activate_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_activate = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "activate",
    .backend = "ref",
    .name = "portable",
    .summary = "applies an activation",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
