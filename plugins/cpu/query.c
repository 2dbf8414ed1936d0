/* SPDX-License-Identifier: MIT
 *
 * query.c - turns queries into plain numbers and says NO with reasons; shared by all ops of the plugin.
 * The host has checked arity, ranks and shapes against the op's schema before. */
#include <math.h>
#include <stdlib.h>

#include "cpu.h"

#define MOST_COLUMNS (1 << 17) /* of i8 by i8, whose sums fit 32 bits; of u8 by i8 half as many */

int cpu_answer_no(bs_op_answer *answer, uint32_t reason, const char *fmt, ...) {
  va_list ap;
  answer->level = BS_LEVEL_NO;
  answer->score = 0;
  answer->reason = reason;
  va_start(ap, fmt);
  vsnprintf(answer->text, sizeof answer->text, fmt, ap);
  va_end(ap);
  return 0;
}

void cpu_answer_yes(bs_op_answer *answer, uint32_t score, uint32_t tolerance, const char *algo,
                    const char *text) {
  answer->level = BS_LEVEL_NATIVE;
  answer->score = score;
  answer->reason = BS_REASON_NONE;
  answer->tolerance = tolerance;
  snprintf(answer->algo, sizeof answer->algo, "%s", algo);
  snprintf(answer->text, sizeof answer->text, "%s", text);
}

int32_t cpu_require(int32_t (*supports)(void *, const bs_op_query *, bs_op_answer *), void *state,
                    const bs_op_query *query, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  const int32_t rc = supports(state, query, &answer);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-QUERY", "%s: the query cannot be read", query->op);
  if (answer.level != BS_LEVEL_NO) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-UNSUPPORTED", "%s@cpu: %s", query->op, answer.text);
}

int cpu_workspace_fits(const bs_op_query *query, uint64_t bytes, bs_op_answer *answer) {
  answer->workspace = bytes;
  if (query->workspace_limit == 0 || bytes <= query->workspace_limit) return 1;
  return cpu_answer_no(answer, BS_REASON_WORKSPACE, "needs %llu bytes of workspace, the limit is %llu",
                       (unsigned long long)bytes, (unsigned long long)query->workspace_limit);
}

int32_t cpu_batch_fits(int64_t tokens, int64_t prepared, bs_error *err) {
  if (tokens <= prepared) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-BATCH", "%lld tokens, prepared for %lld",
                 (long long)tokens, (long long)prepared);
}

uint32_t cpu_workspace_members(const bs_op_query *query, uint64_t bytes, uint32_t width) {
  const uint64_t most = query->workspace_limit == 0 || bytes == 0 ? width : query->workspace_limit / bytes;
  return most < width ? (uint32_t)most : width;
}

int64_t cpu_row_stride(const bs_tensor_desc *desc) {
  if (desc->strides[0] == 0 && desc->strides[1] == 0) return desc->dims[1];
  return desc->strides[0];
}

int cpu_rows_dense(const bs_tensor_desc *desc) {
  if (desc->dims[1] <= 1) return 1;
  return desc->strides[1] == 1 || (desc->strides[0] == 0 && desc->strides[1] == 0);
}

int cpu_args_dense(const bs_op_query *query, uint32_t count, bs_op_answer *answer) {
  for (uint32_t i = 0; i < count; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (d == NULL) continue;
    const int dense = d->rank == 1 ? d->dims[0] <= 1 || d->strides[0] <= 1 : cpu_rows_dense(d);
    if (!dense)
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                           (long long)d->strides[d->rank == 1 ? 0 : 1]);
  }
  return 1;
}

int cpu_read_matrix(const bs_tensor_desc *desc, const char *what, uint32_t *out_type, int64_t *out_ld,
                    bs_op_answer *answer) {
  if (!cpu_is_matmul_type(desc->dtype))
    return cpu_answer_no(answer, BS_REASON_DTYPE, "%s of dtype 0x%04x: f32, bf16 and f16 only", what,
                         desc->dtype);
  if (!cpu_rows_dense(desc))
    return cpu_answer_no(answer, BS_REASON_LAYOUT, "%s has element stride %lld, need 1", what,
                         (long long)desc->strides[1]);
  *out_type = desc->dtype;
  *out_ld = cpu_row_stride(desc);
  return 1;
}

int cpu_matmul_read(const bs_op_query *query, cpu_matmul *out, bs_op_answer *answer) {
  const bs_tensor_desc *x = query->args[0], *bias = query->args[1], *residual = query->args[2],
                       *y = query->args[3];
  memset(out, 0, sizeof *out);
  if (!cpu_read_matrix(x, "X", &out->x_type, &out->x_ld, answer)) return 0;
  if (!cpu_read_matrix(y, "Y", &out->y_type, &out->y_ld, answer)) return 0;
  if (residual != NULL && !cpu_read_matrix(residual, "residual", &out->r_type, &out->r_ld, answer)) return 0;
  if (bias != NULL) {
    if (!cpu_is_matmul_type(bias->dtype))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "bias of dtype 0x%04x: f32, bf16 and f16 only",
                           bias->dtype);
    if (bias->dims[0] > 1 && bias->strides[0] > 1)
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "bias has stride %lld, need 1",
                           (long long)bias->strides[0]);
    out->bias_type = bias->dtype;
  }
  if (query->weight_dtype != x->dtype)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "weight dtype 0x%04x differs from X's 0x%04x",
                         query->weight_dtype, x->dtype);
  if (query->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  if (query->activation > BS_ACT_GELU_TANH)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation);
  out->B = y->dims[0];
  out->N = y->dims[1];
  out->K = query->partition != NULL ? query->partition->count : x->dims[1];
  out->weight_type = query->weight_dtype;
  out->activation = query->activation;
  out->x_full = (query->flags & BS_QUERY_X_FULL) != 0 && query->partition != NULL;
  return 1;
}

int cpu_matmul_read_bytes(const bs_op_query *q, int take_u8, cpu_matmul *out, bs_op_answer *answer) {
  const int of_u8 = take_u8 && q->args[0]->dtype == BS_U8;
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i < 4; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d != NULL && d->dtype != (i > 0 ? BS_I32 : of_u8 ? BS_U8 : BS_I8))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: integers are i8 x i8 to i32", i,
                           d->dtype);
  }
  if (!cpu_args_dense(q, 4, answer)) return 0;
  out->B = q->args[3]->dims[0];
  out->N = q->args[3]->dims[1];
  out->K = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  out->x_type = of_u8 ? BS_U8 : BS_I8;
  out->y_type = BS_I32;
  out->weight_type = BS_I8;
  out->activation = q->activation;
  if (q->weight_dtype != BS_I8 || q->activation > BS_ACT_RELU || q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "integers are i8 x i8 to i32, none or relu");
  if (out->K <= (of_u8 ? MOST_COLUMNS / 2 : MOST_COLUMNS)) return 1;
  return cpu_answer_no(answer, BS_REASON_SHAPE, "sums of %lld columns of bytes may not fit 32 bits",
                       (long long)out->K);
}

int cpu_matmul_allowed(const cpu_state *state, const char *name, bs_op_answer *answer) {
  if (strcmp(state->matmul, "auto") == 0 || strcmp(state->matmul, name) == 0) return 1;
  return cpu_answer_no(answer, BS_REASON_DISABLED, "switched off (matmul=%s)", state->matmul);
}

const bs_knob cpu_knob_threads = {sizeof(bs_knob), 0,
                                  "threads",       "1,2,3,4,6,8,12,16,24,32,48,64,96,128",
                                  "auto",          "members of the rank's team that work; auto: all"};
const bs_knob cpu_knob_keep = {
    sizeof(bs_knob), 0,
    "keep",          "off,on",
    "auto",          "lay X of a chunk of tokens out once for all its panels; auto: where it is small"};

int32_t cpu_knob_members(const bs_op_query *query, uint32_t width, uint32_t *out_members, bs_error *err) {
  const int64_t asked = bs_knob_int(query->knobs, "threads", width);
  *out_members = asked < width ? (uint32_t)asked : width;
  if (asked <= width) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-CPU-KNOB", "%s: threads=%lld asked, %u can work", query->op, (long long)asked,
          width);
  bs_fail_hint(err, "threads=%u at most, or more threads a rank", width);
  return BS_CONFIG;
}

int32_t cpu_knob_busy(const bs_op_query *query, int64_t items, int alone, uint32_t members,
                      uint32_t *out_busy, bs_error *err) {
  const int given = bs_knob_int(query->knobs, "threads", 0) != 0;
  *out_busy = items < 1 || alone ? 1 : items < members ? (uint32_t)items : members;
  if (!given || *out_busy == members) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-CPU-KNOB", "%s: threads=%u asked, there is work for %lld", query->op,
          members, (long long)items);
  bs_fail_hint(err, "threads=%u at most, or smaller blocks", *out_busy);
  return BS_UNSUPPORTED;
}

int cpu_knob_switch(const bs_op_query *query, const char *name, int fallback) {
  char value[8];
  return bs_knob_find(query->knobs, name, value, sizeof value) ? strcmp(value, "on") == 0 : fallback;
}

int32_t cpu_columns_copy(const bs_partition *partition, bs_partition **out_copy, bs_error *err) {
  const size_t columns =
      partition->kind == BS_PARTITION_GATHER ? (size_t)partition->count * sizeof *partition->columns : 0;
  bs_partition *copy = malloc(sizeof *copy + columns);
  if (copy == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for %lld columns of a partition",
                   (long long)partition->count);
  *copy = *partition;
  copy->columns = NULL;
  if (columns > 0) {
    memcpy(copy + 1, partition->columns, columns);
    copy->columns = (const uint32_t *)(const void *)(copy + 1);
  }
  *out_copy = copy;
  return BS_OK;
}

double cpu_activation_f64(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0.0 ? 0.0 : v;
    case BS_ACT_GELU:
      return 0.5 * v * erfc(-v * 0.70710678118654752440);
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    case BS_ACT_GELU_TANH: /* (1 + tanh(u)) / 2 is 1 / (1 + e^-2u): nothing cancels for v << 0 */
      return v / (1.0 + exp(-2.0 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default:
      return v;
  }
}

int cpu_type_index(uint32_t dtype) {
  return dtype == BS_F32 ? 0 : dtype == BS_BF16 ? 1 : dtype == BS_F16 ? 2 : -1;
}

int cpu_wide_index(uint32_t dtype) {
  return dtype == BS_F8E4M3 ? 3 : dtype == BS_F8E5M2 ? 4 : cpu_type_index(dtype);
}

int cpu_quant_index(uint32_t dtype) {
  return dtype == BS_I8 ? 0 : dtype == BS_F8E4M3 ? 1 : dtype == BS_F8E5M2 ? 2 : -1;
}

float cpu_quant_largest(uint32_t dtype) {
  return dtype == BS_I8 ? 127.0f : dtype == BS_F8E4M3 ? 448.0f : 57344.0f;
}

int cpu_whole_index(uint32_t dtype) {
  return dtype == BS_I8 ? 0 : dtype == BS_U8 ? 1 : dtype == BS_I32 ? 2 : -1;
}

int cpu_type24(uint32_t dtype) {
  return dtype == BS_I8 ? 3 : cpu_type_index(dtype);
}
