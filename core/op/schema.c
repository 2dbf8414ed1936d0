/* SPDX-License-Identifier: MIT
 * schema.c - what every query must satisfy, and the rules of matmul, gather_columns, scatter_columns, convert
 * and activate; schema_table.c lists the ops. Each has an arity, ranks, a dtype and shape rule and a cost
 * rule; docs/ops.md is the same in words. Called by core/op/dispatch.c before any implementation sees a
 * query, so implementations may rely on these rules.
 */
#include "core/op/schema.h"

#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/size.h"
#include "core/base/text.h"
#include "core/op/dispatch.h"
#include "core/op/dynamic.h"
#include "core/op/expr.h"
#include "core/op/quant.h"

int32_t bs_op_refuse(bs_error *err, const char *id, const char *op, const char *fmt, ...) {
  char text[384];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  bs_error_set(err, BS_INVALID_ARGUMENT, id, "%s: %s", op, text);
  bs_error_where(err, "op %s", op);
  bs_error_hint(err, "share/doc/blockshock/ops.md has each op's arguments, dtypes and shapes");
  return BS_INVALID_ARGUMENT;
}

void bs_op_strides(const bs_tensor_desc *desc, int64_t out[BS_MAX_DIMS]) {
  int given = 0;
  for (uint32_t i = 0; i < desc->rank; i++) given |= desc->strides[i] != 0;
  int64_t step = 1;
  for (uint32_t i = desc->rank; i-- > 0;) {
    out[i] = given ? desc->strides[i] : step;
    if (!bs_mul_i64(step, desc->dims[i], &step)) step = INT64_MAX;
  }
}

uint32_t bs_op_partition_column(const bs_partition *partition, int64_t i) {
  if (partition == NULL) return (uint32_t)i;
  if (partition->kind == BS_PARTITION_GATHER) return partition->columns[i];
  return (uint32_t)(partition->begin + i);
}

static int32_t check_partition(const char *op, const bs_partition *p, bs_error *err) {
  if (p->struct_size < sizeof *p)
    return bs_op_refuse(err, "BS-OP-PARTITION", op, "partition struct_size %u, need %zu", p->struct_size,
                        sizeof *p);
  if (p->total < 0 || p->total > (int64_t)UINT32_MAX || p->count < 0 || p->count > p->total)
    return bs_op_refuse(err, "BS-OP-PARTITION", op, "partition keeps %lld of %lld columns",
                        (long long)p->count, (long long)p->total);
  if (p->kind == BS_PARTITION_CONTIGUOUS) {
    if (p->begin < 0 || p->begin > p->total - p->count)
      return bs_op_refuse(err, "BS-OP-PARTITION", op, "partition begins at %lld with %lld columns of %lld",
                          (long long)p->begin, (long long)p->count, (long long)p->total);
    return BS_OK;
  }
  if (p->kind != BS_PARTITION_GATHER)
    return bs_op_refuse(err, "BS-OP-PARTITION", op, "unknown partition kind %u", p->kind);
  if (p->begin < 0 || p->span < 0 || p->begin > p->total || p->span > p->total - p->begin)
    return bs_op_refuse(err, "BS-OP-PARTITION", op,
                        "partition has its period in %lld columns from %lld of %lld", (long long)p->span,
                        (long long)p->begin, (long long)p->total);
  if (p->columns == NULL && p->count > 0)
    return bs_op_refuse(err, "BS-OP-PARTITION", op, "partition of %lld columns without a list",
                        (long long)p->count);
  for (int64_t i = 0; i < p->count; i++)
    if ((int64_t)p->columns[i] >= p->total || (i > 0 && p->columns[i] <= p->columns[i - 1]))
      return bs_op_refuse(err, "BS-OP-PARTITION", op,
                          "partition column %u at %lld is not ascending or not below %lld", p->columns[i],
                          (long long)i, (long long)p->total);
  return BS_OK;
}

/* From the smallest stride on, each one must step over all that the smaller ones reach. */
int bs_op_overlaps(uint32_t rank, const int64_t *dims, const int64_t *strides) {
  uint32_t order[BS_MAX_DIMS], n = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] == 0) return 0;
    if (dims[i] == 1) continue;
    uint32_t at = n++;
    for (; at > 0 && strides[order[at - 1]] > strides[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  int64_t reach = 0, part = 0;
  for (uint32_t i = 0; i < n; i++) {
    const int64_t stride = strides[order[i]];
    if (stride <= reach) return 1;
    if (!bs_mul_i64(dims[order[i]] - 1, stride, &part) || !bs_add_i64(reach, part, &reach)) return 1;
  }
  return 0;
}

/* Sizes that come from outside: dims, strides and the bytes they span must fit in 63 bits. */
int32_t bs_op_check_extent(const char *op, uint32_t index, const bs_tensor_desc *d, int written,
                           bs_error *err) {
  int64_t strides[BS_MAX_DIMS] = {0};
  int64_t span = 1, count = 1;
  bs_op_strides(d, strides);
  for (uint32_t i = 0; i < d->rank; i++) {
    int64_t step = 0;
    if (d->dims[i] < 0 || strides[i] < 0)
      return bs_op_refuse(err, "BS-OP-SHAPE", op, "arg %u dimension %u: size %lld, stride %lld", index, i,
                          (long long)d->dims[i], (long long)strides[i]);
    if (!bs_mul_i64(count, d->dims[i], &count) ||
        (d->dims[i] > 0 &&
         (!bs_mul_i64(d->dims[i] - 1, strides[i], &step) || !bs_add_i64(span, step, &span))))
      return bs_op_refuse(err, "BS-OP-SIZE", op, "arg %u: size overflows at dimension %u (%lld, stride %lld)",
                          index, i, (long long)d->dims[i], (long long)strides[i]);
  }
  for (uint32_t i = 0; i < d->rank && written && count > 0; i++)
    if (strides[i] == 0 && d->dims[i] > 1)
      return bs_op_refuse(err, "BS-OP-SHAPE", op, "arg %u is written but has stride 0 in dimension %u", index,
                          i);
  int64_t bytes = 0;
  if (!bs_mul_i64(span, (int64_t)BS_DTYPE_BYTES(d->dtype), &bytes) ||
      !bs_mul_i64(count, (int64_t)BS_DTYPE_BYTES(d->dtype), &bytes))
    return bs_op_refuse(err, "BS-OP-SIZE", op, "arg %u: size in bytes overflows", index);
  if (written && bs_op_overlaps(d->rank, d->dims, strides)) /* two members of a team would race */
    return bs_op_refuse(err, "BS-OP-SHAPE", op,
                        "arg %u is written but overlaps itself: its strides do not nest", index);
  return BS_OK;
}

static int32_t check_arg(const bs_op_query *q, const bs_op_schema *schema, uint32_t i, bs_error *err) {
  const bs_tensor_desc *d = q->args[i];
  if (d == NULL) {
    if (schema != NULL && (schema->nargs == 0 || (schema->required >> i & 1u)))
      return bs_op_refuse(err, "BS-OP-ARITY", q->op, "arg %u is missing", i);
    return BS_OK;
  }
  if (d->struct_size < sizeof *d)
    return bs_op_refuse(err, "BS-OP-ARG", q->op, "arg %u: struct_size %u, need %zu", i, d->struct_size,
                        sizeof *d);
  if (!bs_dtype_known(d->dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u: unknown dtype 0x%04x", i, d->dtype);
  if (d->rank > BS_MAX_DIMS)
    return bs_op_refuse(err, "BS-OP-RANK", q->op, "arg %u: %u dimensions, at most %d", i, d->rank,
                        BS_MAX_DIMS);
  if (schema != NULL && schema->link == NULL && d->rank != schema->ranks[i])
    return bs_op_refuse(err, "BS-OP-RANK", q->op, "arg %u: %u dimensions, need %u", i, d->rank,
                        schema->ranks[i]);
  return bs_op_check_extent(q->op, i, d, schema != NULL && (bs_op_outputs(schema, q) >> i & 1u), err);
}

static int same_dims(const bs_tensor_desc *a, const bs_tensor_desc *b) {
  return a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
}

static int is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || dtype == BS_I32 || dtype == BS_I64;
}

static int32_t check_matmul_dtypes(const bs_op_query *q, bs_error *err) {
  static const char *const names[4] = {"X", "bias", "residual", "Y"};
  if (!bs_dtype_known(q->weight_dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "unknown weight_dtype 0x%04x", q->weight_dtype);
  const int integers = is_integer(q->args[0]->dtype);
  for (uint32_t i = 0; i <= 4; i++) {
    const uint32_t dtype = i == 4 ? q->weight_dtype : q->args[i] != NULL ? q->args[i]->dtype : 0;
    if (dtype == 0) continue;
    if (integers ? !is_integer(dtype) : !bs_dtype_is_float(dtype))
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s is %s beside X %s: all float or all integer",
                          i == 4 ? "weight" : names[i], bs_dtype_name(dtype),
                          bs_dtype_name(q->args[0]->dtype));
  }
  if (integers && q->args[3]->dtype != BS_I32 && q->args[3]->dtype != BS_I64)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "Y of an integer product is i32 or i64, not %s",
                        bs_dtype_name(q->args[3]->dtype));
  if (integers && q->activation > BS_ACT_RELU)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "gelu and silu need float dtypes");
  return BS_OK;
}

int32_t bs_op_check_matmul(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *x = q->args[0], *bias = q->args[1], *residual = q->args[2], *y = q->args[3];
  if (q->accumulate > BS_ACC_F64 || q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown accumulate %u or activation %u", q->accumulate,
                        q->activation);
  const int32_t rc = check_matmul_dtypes(q, err);
  if (rc != BS_OK) return rc;
  if (q->partition != NULL) {
    const int64_t want = q->flags & BS_QUERY_X_FULL ? q->partition->total : q->partition->count;
    if (x->dims[1] != want)
      return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "X has %lld columns, the partition asks for %lld%s",
                          (long long)x->dims[1], (long long)want,
                          q->flags & BS_QUERY_X_FULL ? " (X full)" : "");
  } else if (x->dims[1] > (int64_t)UINT32_MAX) {
    return bs_op_refuse(err, "BS-OP-SIZE", q->op, "X has %lld columns, at most 2^32-1",
                        (long long)x->dims[1]);
  }
  if (x->dims[0] != y->dims[0])
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "X has %lld rows, Y %lld", (long long)x->dims[0],
                        (long long)y->dims[0]);
  if (bias != NULL && bias->dims[0] != y->dims[1])
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "bias has %lld values, Y %lld columns",
                        (long long)bias->dims[0], (long long)y->dims[1]);
  if (residual != NULL && !same_dims(residual, y))
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "residual is [%lld,%lld], Y [%lld,%lld]",
                        (long long)residual->dims[0], (long long)residual->dims[1], (long long)y->dims[0],
                        (long long)y->dims[1]);
  return BS_OK;
}

/* gather_columns: full = arg 0, kept = arg 1; scatter_columns the other way round. */
static int32_t check_columns(const bs_op_query *q, const bs_tensor_desc *full, const bs_tensor_desc *kept,
                             bs_error *err) {
  if (q->partition == NULL) return bs_op_refuse(err, "BS-OP-PARTITION", q->op, "needs a partition");
  if (full->dtype != kept->dtype)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "input %s, output %s: must be equal",
                        bs_dtype_name(q->args[0]->dtype), bs_dtype_name(q->args[1]->dtype));
  if (full->dims[0] != kept->dims[0] || full->dims[1] != q->partition->total ||
      kept->dims[1] != q->partition->count)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op,
                        "full side [%lld,%lld], kept side [%lld,%lld], partition keeps %lld of %lld",
                        (long long)full->dims[0], (long long)full->dims[1], (long long)kept->dims[0],
                        (long long)kept->dims[1], (long long)q->partition->count,
                        (long long)q->partition->total);
  return BS_OK;
}

int32_t bs_op_check_gather(const bs_op_query *q, bs_error *err) {
  return check_columns(q, q->args[0], q->args[1], err);
}

int32_t bs_op_check_scatter(const bs_op_query *q, bs_error *err) {
  return check_columns(q, q->args[1], q->args[0], err);
}

int32_t bs_op_check_convert(const bs_op_query *q, bs_error *err) {
  if (!same_dims(q->args[0], q->args[1]))
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "input [%lld,%lld], output [%lld,%lld]: must be equal",
                        (long long)q->args[0]->dims[0], (long long)q->args[0]->dims[1],
                        (long long)q->args[1]->dims[0], (long long)q->args[1]->dims[1]);
  return BS_OK;
}

int32_t bs_op_check_activate(const bs_op_query *q, bs_error *err) {
  const uint32_t in = q->args[0]->dtype, out = q->args[1]->dtype;
  const int integers = in == out && (in == BS_I32 || in == BS_I64);
  if (q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown activation %u", q->activation);
  if (!integers && !(bs_dtype_is_float(in) && bs_dtype_is_float(out)))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "input %s, output %s: two floats, or i32 or i64 twice",
                        bs_dtype_name(in), bs_dtype_name(out));
  if (integers && q->activation > BS_ACT_RELU)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "gelu and silu need float dtypes");
  return bs_op_check_convert(q, err);
}

static uint64_t row_bytes(const bs_tensor_desc *d, int64_t cols) {
  return d == NULL ? 0 : bs_mul_sat((uint64_t)cols, BS_DTYPE_BYTES(d->dtype));
}

void bs_op_rate_matmul(const bs_op_query *q, bs_op_rate *out_rate) {
  const int64_t n = q->args[3]->dims[1];
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  const uint64_t nk = bs_mul_sat((uint64_t)n, (uint64_t)k);
  out_rate->flops_row = bs_mul_sat(2, nk);
  out_rate->bytes_row =
      bs_add_sat(bs_add_sat(row_bytes(q->args[0], k), row_bytes(q->args[2], n)), row_bytes(q->args[3], n));
  out_rate->bytes_fixed =
      bs_add_sat(bs_mul_sat(nk, BS_DTYPE_BYTES(q->weight_dtype)), row_bytes(q->args[1], n));
}

void bs_op_rate_columns(const bs_op_query *q, bs_op_rate *out_rate) {
  out_rate->bytes_row = bs_mul_sat(2, row_bytes(q->args[0], q->partition->count));
}

void bs_op_rate_convert(const bs_op_query *q, bs_op_rate *out_rate) {
  const int64_t n = q->args[0]->dims[1];
  out_rate->bytes_row = bs_add_sat(row_bytes(q->args[0], n), row_bytes(q->args[1], n));
}

int bs_op_takes_kept(const char *op) {
  return strncmp(op, "matmul24", 8) == 0 || strcmp(op, "expand24") == 0;
}

int64_t bs_op_weight_rows(const bs_op_schema *schema, const bs_op_query *query) {
  if (query->quant != NULL) return query->quant->rows;
  return query->args[schema->n_arg]->dims[schema->of_weight ? 0 : 1];
}

int64_t bs_op_weight_columns(const bs_op_schema *schema, const bs_op_query *query) {
  if (query->quant != NULL) return query->quant->cols;
  return query->args[schema->k_arg]->dims[1];
}

uint32_t bs_op_outputs(const bs_op_schema *schema, const bs_op_query *q) {
  return schema->nargs != 0 ? schema->outputs : ((1u << q->expr->n_out) - 1u) << q->expr->n_in;
}

/* How many args; of an op with a program that tells it, the program before. */
static int32_t check_arity(const bs_op_query *q, const bs_op_schema *schema, bs_error *err) {
  uint32_t need = schema != NULL ? schema->nargs : 0;
  const int programmed = schema != NULL && need == 0;
  if (q->expr == NULL && programmed) return bs_op_refuse(err, "BS-OP-EXPR", q->op, "needs a program (expr)");
  if (q->expr != NULL && schema != NULL && !programmed)
    return bs_op_refuse(err, "BS-OP-EXPR", q->op, "takes no program (expr)");
  if (q->expr != NULL) {
    const bs_tensor_desc *last = q->nargs > 0 && q->nargs <= BS_MAX_OP_ARGS ? q->args[q->nargs - 1] : NULL;
    const int32_t rc = bs_expr_check(q->op, q->expr, last != NULL ? last->rank : 0, err);
    if (rc != BS_OK) return rc;
  }
  if (programmed) need = q->expr->n_in + q->expr->n_out;
  if (need != 0 && q->nargs != need)
    return bs_op_refuse(err, "BS-OP-ARITY", q->op, "%u args, need %u", q->nargs, need);
  if (q->nargs < 1 || q->nargs > BS_MAX_OP_ARGS)
    return bs_op_refuse(err, "BS-OP-ARITY", q->op, "%u args, need 1 to %d", q->nargs, BS_MAX_OP_ARGS);
  return BS_OK;
}

int32_t bs_op_check(const bs_op_query *query, bs_error *err) {
  if (query == NULL || query->struct_size < sizeof *query)
    return bs_op_refuse(err, "BS-OP-ARG", "query", "struct_size %u, need %zu",
                        query == NULL ? 0 : query->struct_size, sizeof *query);
  if (query->op == NULL || query->op[0] == '\0' || query->args == NULL)
    return bs_op_refuse(err, "BS-OP-ARG", "query", "%s missing", query->args == NULL ? "args" : "op");
  if (query->knobs != NULL)
    return bs_op_refuse(err, "BS-OP-KNOB", query->op, "knobs '%.100s' in a query: a choice gives them",
                        query->knobs);
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  int32_t rc = check_arity(query, schema, err);
  if (rc != BS_OK) return rc;
  if (query->flags & ~(uint32_t)(BS_QUERY_X_FULL | BS_QUERY_DETERMINISTIC | BS_QUERY_TRAIN |
                                 BS_QUERY_TOKENWISE | BS_QUERY_BITS))
    return bs_op_refuse(err, "BS-OP-ATTR", query->op, "unknown flags 0x%x", query->flags);
  for (uint32_t i = 0; i < query->nargs && rc == BS_OK; i++) rc = check_arg(query, schema, i, err);
  if (rc == BS_OK && query->partition != NULL) rc = check_partition(query->op, query->partition, err);
  if (rc == BS_OK && schema != NULL) rc = schema->check(query, err);
  if (rc == BS_OK && schema != NULL && query->kept != NULL && !bs_op_takes_kept(query->op))
    rc = bs_op_refuse(err, "BS-OP-KEPT", query->op, "takes no positions (kept)");
  if (rc == BS_OK && schema != NULL && query->quant != NULL && !bs_op_takes_quant(query->op))
    rc = bs_op_refuse(err, "BS-OP-QUANT", query->op, "takes no quantised weight (quant)");
  if (rc == BS_OK && schema == NULL && query->quant != NULL)
    rc = bs_quant_check(query->quant, query->op, err);
  return rc;
}

void bs_op_rate_of(const bs_op_query *query, bs_op_rate *out_rate) {
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  memset(out_rate, 0, sizeof *out_rate);
  if (schema != NULL && schema->rate != NULL) schema->rate(query, out_rate);
}

int32_t bs_op_cost_parts(const bs_op_query *query, bs_op_rate *out_rate, bs_error *err) {
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  const size_t head = sizeof out_rate->struct_size, told = out_rate->struct_size;
  bs_op_rate rate;
  bs_op_rate_of(query, &rate);
  rate.batch_arg = UINT32_MAX;
  if (schema != NULL && schema->link != NULL) {
    rate.rows = 1;
    bs_op_cost_dynamic(schema, query, &rate.flops_fixed, &rate.bytes_fixed);
  } else if (schema != NULL) {
    rate.rows = (uint64_t)query->args[0]->dims[0];
    if (schema->activations & 1u) rate.batch_arg = 0;
  }
  if (told > head)
    memcpy((char *)out_rate + head, (const char *)&rate + head,
           (told < sizeof rate ? told : sizeof rate) - head);
  if (schema != NULL) return BS_OK;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-OP-COST",
                      "%s: a plugin's op, whose cost the core does not know", query->op);
}

void bs_op_cost(const bs_op_query *query, uint64_t *out_flops, uint64_t *out_bytes) {
  bs_op_rate rate = {.struct_size = sizeof rate};
  *out_flops = *out_bytes = 0;
  if (bs_op_check(query, NULL) != BS_OK || bs_op_cost_parts(query, &rate, NULL) != BS_OK || rate.rows == 0)
    return;
  *out_flops = bs_add_sat(rate.flops_fixed, bs_mul_sat(rate.rows, rate.flops_row));
  *out_bytes = bs_add_sat(rate.bytes_fixed, bs_mul_sat(rate.rows, rate.bytes_row));
}

void bs_op_describe_text(const bs_op_query *query, bs_text *out) {
  const size_t start = out->size;
  for (uint32_t i = 0; i < query->nargs; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (d == NULL) continue;
    bs_text_printf(out, "%s%s[", out->size > start ? " " : "", bs_dtype_name(d->dtype));
    for (uint32_t j = 0; j < d->rank; j++)
      bs_text_printf(out, "%s%lld", j > 0 ? "," : "", (long long)d->dims[j]);
    bs_text_printf(out, "]");
  }
  if (query->weight_dtype != 0) bs_text_printf(out, " weight %s", bs_dtype_name(query->weight_dtype));
  if (query->partition != NULL)
    bs_text_printf(out, " partition %lld of %lld", (long long)query->partition->count,
                   (long long)query->partition->total);
  if (query->kept != NULL) bs_text_printf(out, " kept 2:4");
  if (query->quant != NULL) {
    char form[BS_QUANT_TEXT];
    bs_quant_text(query->quant, form);
    bs_text_printf(out, " %s[%lld,%lld]", form, (long long)query->quant->rows, (long long)query->quant->cols);
  }
  if (query->expr != NULL) {
    bs_text_printf(out, " program ");
    bs_expr_text(query->expr, out);
  }
}

void bs_op_describe(const bs_op_query *query, char *out, size_t size) {
  bs_text text = {0};
  bs_op_describe_text(query, &text);
  snprintf(out, size, "%s", text.data != NULL ? text.data : ""); /* without memory: what there was room for */
  bs_text_free(&text);
}
