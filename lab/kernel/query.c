/* SPDX-License-Identifier: MIT
 * query.c - see query.h. */
#include "lab/kernel/query.h"

#include <math.h>

static void describe(bs_kernel_query *q, uint32_t index, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  bs_tensor_desc *d = &q->desc[index];
  int64_t stride = 1;
  *d = (bs_tensor_desc){.struct_size = sizeof *d, .dtype = dtype, .rank = rank};
  for (uint32_t i = rank; i-- > 0; stride *= dims[i]) {
    d->dims[i] = dims[i];
    d->strides[i] = stride;
  }
  q->args[index] = d;
}

/* Arguments of attention and attention_dx, as op.h lists them. */
static void describe_attention(const bs_kernel_problem *p, int lse, bs_kernel_query *q) {
  const int64_t of_q[] = {p->B, p->H, p->S, p->D}, of_k[] = {p->B, p->G, p->T, p->D},
                of_v[] = {p->B, p->G, p->T, p->E}, of_y[] = {p->B, p->H, p->S, p->E};
  const uint32_t y = bs_kernel_y_dtype(p);
  const int backward = p->kind == BS_KERNEL_SDPA_DX;
  describe(q, 0, p->dtype, 4, of_q);
  describe(q, 1, p->dtype, 4, of_k);
  describe(q, 2, p->dtype, 4, of_v);
  if (!backward && BS_DTYPE_BYTES(p->dtype) == 1) describe(q, 5, BS_F32, 1, (const int64_t[]){3});
  describe(q, 6, y, 4, of_y);
  q->query.nargs = backward ? 12 : 8;
  if (backward || lse) describe(q, 7, BS_F32, 3, of_y);
  if (!backward) return;
  describe(q, 8, y, 4, of_y);
  describe(q, 9, y, 4, of_q);
  describe(q, 10, y, 4, of_k);
  describe(q, 11, y, 4, of_v);
}

int32_t bs_kernel_kept_make(const bs_kernel_problem *p, uint64_t seed, const bs_kept **out, bs_error *err) {
  bs_mask mask = {.struct_size = sizeof mask};
  const int32_t rc = bs_mask_parse("random_2of4", NULL, NULL, &mask, err);
  mask.seed = seed;
  return rc == BS_OK ? bs_kept_make(&mask, p->N, p->K, NULL, 0, out, err) : rc;
}

int32_t bs_kernel_columns_make(const bs_kernel_problem *p, const bs_partition **out, bs_error *err) {
  bs_mask mask = {.struct_size = sizeof mask};
  *out = NULL;
  if (p->columns == BS_COLUMNS_ALL) return BS_OK;
  const char *name = p->columns == BS_COLUMNS_RUN ? "contiguous" : "complement_1100_0011";
  const int32_t rc = bs_mask_parse(name, NULL, NULL, &mask, err);
  return rc == BS_OK ? bs_partition_make(&mask, p->K, 0, 2, out, err) : rc;
}

static void ask_product(const bs_kernel_problem *p, const bs_kept *kept, const bs_partition *columns,
                        const char *op, uint32_t flags, bs_kernel_query *out) {
  const bs_op_sizes s = {.B = p->B,
                         .N = p->N,
                         .K = p->K,
                         .dtype = p->dtype,
                         .out_dtype = bs_kernel_y_dtype(p),
                         .weight_dtype = p->dtype,
                         .flags = flags | BS_QUERY_DETERMINISTIC | BS_QUERY_X_FULL,
                         .partition = columns,
                         .kept = kept};
  (void)bs_op_ask(op, &s, out, NULL); /* the core has the op */
}

void bs_kernel_query_of_weight(const bs_kernel_problem *p, const bs_kept *kept, const bs_partition *columns,
                               bs_kernel_query *out) {
  const uint32_t forward = bs_kernel_is_24(p) ? BS_KERNEL_MATMUL24 : BS_KERNEL_MATMUL;
  ask_product(p, kept, columns, bs_kernel_problem_op(forward), forward != p->kind ? BS_QUERY_TRAIN : 0, out);
}

void bs_kernel_query_make(const bs_kernel_problem *p, const bs_kept *kept, const bs_partition *columns,
                          int lse, bs_kernel_query *out) {
  if (bs_kernel_is_product(p)) {
    ask_product(p, kept, columns, bs_kernel_problem_op(p->kind), 0, out);
    return;
  }
  *out = (bs_kernel_query){.query = {.struct_size = sizeof out->query, .op = bs_kernel_problem_op(p->kind)}};
  out->query.args = out->args;
  describe_attention(p, lse, out);
  out->query.attrs[0] = p->causal;
  out->query.attrs[1] = p->left;
  out->query.attrs[2] = p->right;
  out->query.numbers[0] = 1.0 / sqrt((double)p->D);
}
