/* SPDX-License-Identifier: MIT
 *
 * matmul_i8.c - the matmul "bytes": i8 or u8 x i8 to i32, exact. The weight is packed as matmul_q packs
 * codes of 8 bits with the zero 128. The product is the one of matmul_q that applies no scales. */
#include "packed_q.h"

/* Rows of a source of i8 as codes. */
typedef struct bytes_source {
  const bs_source *from;
  const bs_partition *partition;
} bytes_source;

static int32_t read_codes(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const bytes_source *s = ctx;
  const int64_t K = s->partition != NULL ? s->partition->count : s->from->cols;
  const int32_t rc =
      s->from->read(s->from->ctx, row, nrows, s->partition, BS_I8, out->codes, out->codes_stride, err);
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++) {
    uint8_t *codes = out->codes + r * out->codes_stride;
    for (int64_t k = 0; k < K; k++) codes[k] ^= 0x80u;
    out->scales[r] = 1.0f;
  }
  return rc;
}

/* The query of matmul_q with a weight [rows,cols] of codes. */
static bs_op_query with_codes(const bs_op_query *query, bs_quant *form, int64_t rows, int64_t cols) {
  bs_op_query q = *query;
  *form = (bs_quant){.struct_size = (uint32_t)sizeof *form,
                     .bits = 8,
                     .zero = 128,
                     .rows = rows,
                     .cols = cols,
                     .group = cols,
                     .span = cols};
  q.quant = form;
  memset(q.attrs, 0, sizeof q.attrs);
  return q;
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  bytes_source source = {weights, query->partition};
  bs_quant form;
  if (query->weight_dtype != BS_I8)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "packed bytes of dtype 0x%04x", query->weight_dtype);
  const int64_t cols = query->partition != NULL ? query->partition->count : weights->cols;
  const bs_op_query q = with_codes(query, &form, weights->rows, cols);
  form.ctx = &source;
  form.read = read_codes;
  return cpu_packed_q_make(state, exec, &q, weights, out_packed, out_bytes, err);
}

static int read_query(const bs_op_query *q, cpu_matmul *out, bs_op_answer *answer) {
  if ((q->flags & BS_QUERY_TRAIN) != 0)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "no steps of i8 weights");
  if ((q->flags & BS_QUERY_X_FULL) != 0 && q->partition != NULL)
    return cpu_answer_no(answer, BS_REASON_LAYOUT, "does not pick X's columns");
  return cpu_matmul_read_bytes(q, 1, out, answer);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  cpu_matmul shape = {.B = 0};
  bs_quant form;
  char algo[48];
  if (!read_query(query, &shape, answer)) return BS_OK;
  const bs_op_query q = with_codes(query, &form, shape.N, shape.K);
  const int32_t rc = cpu_matmul_q.supports(opaque, &q, answer);
  if (rc != BS_OK || answer->level == BS_LEVEL_NO) return rc;
  snprintf(algo, sizeof algo, "bytes-%s", state->kernels.quant->name);
  cpu_answer_yes(answer, 600, BS_TOL_EXACT, algo, "own kernels on panels of bytes");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  cpu_matmul shape = {.B = 0};
  bs_quant form;
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (!read_query(query, &shape, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  const bs_op_query q = with_codes(query, &form, shape.N, shape.K);
  return cpu_matmul_q.prepare(opaque, exec, &q, packed, out_plan, err);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  return cpu_matmul_q.run(plan, args, nargs, stream, err);
}

static void plan_free(void *plan) {
  cpu_matmul_q.plan_free(plan);
}

const bs_src_loc cpu_matmul_bytes_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_bytes = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul",
    .backend = "cpu",
    .name = "bytes",
    .summary = "own kernels on panels of bytes: i8 or u8 x i8 to i32, exact",
    .supports = supports,
    .pack = pack,
    .packed_read = cpu_packed_q_read,
    .packed_free = cpu_packed_q_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
