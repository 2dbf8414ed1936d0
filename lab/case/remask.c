/* SPDX-License-Identifier: MIT
 * remask.c - see remask.h. One rank owns each weight, so ranks write to separate places of the matrix without
 * locks. */
#include "lab/case/remask.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/case/loss.h"
#include "lab/error.h"
#include "lab/peers/exchange.h"

enum { GROUPS = 256 }; /* positions that one request covers */

static uint64_t bytes_of(const bs_remask *r) {
  return (uint64_t)(r->N * r->K) * BS_DTYPE_BYTES(r->dtype);
}

int32_t bs_remask_open(bs_remask *r, const bs_case *c, bs_error *err) {
  const bs_layer_spec *spec = &c->spec;
  r->joint = c->peers != NULL;
  r->split = spec->has_bias && spec->y_placement == BS_SPLIT;
  r->N = spec->N;
  r->K = spec->K;
  r->dtype = spec->w_dtype;
  r->weights = calloc(1, (size_t)bytes_of(r) + BS_EXCHANGE_UNIT);
  r->of_bias = calloc((size_t)r->N + BS_EXCHANGE_UNIT / sizeof *r->of_bias, sizeof *r->of_bias);
  if (!r->weights || !r->of_bias)
    return bs_no_memory(err, "%lld x %lld weights", (long long)r->N, (long long)r->K);
  int32_t rc = bs_source_from_memory(r->weights, r->dtype, r->N, r->K, r->K, &r->w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(r->of_bias, BS_F64, 1, r->N, r->N, &r->bias, err);
  r->bias.dtype = spec->y_dtype; /* the dtype of the values */
  return rc;
}

void bs_remask_close(bs_remask *r) {
  if (r->weights) bs_source_release(&r->w);
  if (r->of_bias) bs_source_release(&r->bias);
  free(r->weights);
  free(r->of_bias);
  memset(r, 0, sizeof *r);
}

static char *line_of(bs_remask *r, const bs_ownership *own, int64_t row) {
  return (char *)r->weights + (size_t)((own->row_begin + row) * r->K) * BS_DTYPE_BYTES(r->dtype);
}

/* Copies a packed row to its places in W. */
static void place(bs_remask *r, const bs_ownership *own, int64_t row, const char *line, int64_t count) {
  const size_t size = BS_DTYPE_BYTES(r->dtype);
  char *to = line_of(r, own, row);
  for (int64_t j = 0; j < count; ++j)
    memcpy(to + (size_t)bs_view_column(own->columns, j) * size, line + (size_t)j * size, size);
}

/* Copies only the kept values of a dense row: another rank writes the others at the same time. */
static int32_t place_kept(bs_remask *r, const bs_ownership *own, int64_t row, const char *line, int64_t cols,
                          bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(r->dtype);
  char *to = line_of(r, own, row);
  const int64_t groups = (cols + 3) / 4;
  uint8_t codes[GROUPS];
  for (int64_t g = 0; g < groups; g += GROUPS) {
    const int64_t n = groups - g < GROUPS ? groups - g : GROUPS;
    const int32_t rc = own->kept->read(own->kept->ctx, row, 1, g, n, codes, n, err);
    if (rc != BS_OK) return rc;
    for (int64_t k = 4 * g; k < 4 * (g + n) && k < cols; ++k)
      if (codes[k / 4 - g] >> (k % 4) & 1u)
        memcpy(to + (size_t)bs_view_column(own->columns, k) * size, line + (size_t)k * size, size);
  }
  return BS_OK;
}

/* Exchanges weights and biases. One rank owns each weight, and, if features of y are split, each bias: those
 * of other ranks are zero here. */
static int32_t share(bs_remask *r, bs_rank *rank, bs_error *err) {
  const int32_t rc = bs_exchange_union(rank, "lab.remask.weights", r->weights, bytes_of(r), err);
  return rc == BS_OK && r->split ? bs_exchange_union(rank, "lab.remask.bias", r->of_bias,
                                                     (uint64_t)r->N * sizeof *r->of_bias, err)
                                 : rc;
}

/* Temporary tensors of a gather; the gather frees them at its end. */
typedef struct part {
  const bs_rank_api *api;
  bs_rank *rank;
  bs_tensor packed, dense; /* dense: only for 2:4 halves */
  bs_plan *expand;
  char *line; /* a row in the host's memory */
} part;

static int32_t part_tensor(part *p, uint32_t dtype, int64_t rows, int64_t cols, bs_tensor *out,
                           bs_error *err) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = cols;
  return p->api->tensor_alloc(p->rank, &d, BS_LIFE_SCRATCH, out, err);
}

static void part_free(part *p) {
  if (p->expand) p->api->op_release(p->expand);
  if (p->packed.data) p->api->tensor_free(p->rank, &p->packed);
  if (p->dense.data) p->api->tensor_free(p->rank, &p->dense);
  free(p->line);
}

static int32_t gather_rows(bs_remask *r, part *p, bs_layer *layer, const bs_ownership *own, int64_t cols,
                           bs_error *err) {
  int32_t rc = part_tensor(p, r->dtype, 1, cols, &p->packed, err);
  for (int64_t n = 0; rc == BS_OK && n < own->row_count; ++n) {
    rc = bs_layer_read_weights(layer, n, &p->packed, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(p->rank, &p->packed, p->line, err);
    if (rc == BS_OK) place(r, own, n, p->line, cols);
  }
  return rc;
}

static int32_t prepare_expand(part *p, const bs_ownership *own, bs_error *err) {
  bs_tensor_desc from = {.struct_size = sizeof from, .dtype = p->packed.dtype, .rank = 2}, to = from;
  const bs_tensor_desc *args[] = {&from, &to};
  for (int i = 0; i < 2; ++i) {
    from.dims[i] = p->packed.dims[i];
    from.strides[i] = p->packed.strides[i];
    to.dims[i] = p->dense.dims[i];
    to.strides[i] = p->dense.strides[i];
  }
  const bs_op_query q = {
      .struct_size = sizeof q, .op = "expand24", .nargs = 2, .args = args, .kept = own->kept};
  return p->api->op_prepare(p->rank, &q, NULL, &p->expand, err);
}

/* The rank's half as the dense weight that it is a part of, by the op that a device would do it with. */
static int32_t gather_halves(bs_remask *r, part *p, bs_layer *layer, const bs_ownership *own, int64_t cols,
                             bs_error *err) {
  const size_t bytes = (size_t)cols * BS_DTYPE_BYTES(r->dtype);
  bs_tensor *args[] = {&p->packed, &p->dense};
  int32_t rc = part_tensor(p, r->dtype, own->row_count, (cols + 3) / 4 * 2, &p->packed, err);
  if (rc == BS_OK) rc = part_tensor(p, r->dtype, own->row_count, cols, &p->dense, err);
  if (rc == BS_OK) rc = prepare_expand(p, own, err);
  if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &p->packed, err);
  if (rc == BS_OK) rc = p->api->op_run(p->expand, args, 2, NULL, err);
  for (int64_t n = 0; rc == BS_OK && n < own->row_count; ++n) {
    bs_tensor row = p->dense;
    row.dims[0] = 1;
    row.data = (char *)row.data + (size_t)(n * row.strides[0]) * BS_DTYPE_BYTES(r->dtype);
    row.bytes = bytes;
    rc = bs_rank_copy_out(p->rank, &row, p->line, err);
    if (rc == BS_OK) rc = place_kept(r, own, n, p->line, cols, err);
  }
  return rc;
}

int32_t bs_remask_gather(bs_remask *r, bs_rank *rank, bs_layer *layer, const bs_ownership *own,
                         bs_error *err) {
  part p = {.api = bs_rank_get_api(), .rank = rank};
  const int64_t cols = own->columns ? own->columns->count : r->K;
  const uint32_t region = p.api->region_named(rank, "decompress");
  if (r->joint) memset(r->weights, 0, (size_t)bytes_of(r)); /* forget weights of other ranks */
  p.api->region_begin(rank, region);
  p.line = malloc((size_t)cols * BS_DTYPE_BYTES(r->dtype) + 1);
  int32_t rc = p.line ? BS_OK : bs_no_memory(err, "a row of weights");
  if (rc == BS_OK && cols > 0 && own->row_count > 0)
    rc = own->kept ? gather_halves(r, &p, layer, own, cols, err) : gather_rows(r, &p, layer, own, cols, err);
  part_free(&p);
  p.api->region_end(rank, region);
  if (rc == BS_OK && r->joint) return share(r, rank, err);
  return rc == BS_OK ? bs_rank_barrier(rank, "remask.gathered", err) : rc;
}

int32_t bs_remask_bias(bs_remask *r, const bs_case *c, const bs_case_rank *mine, const void *values,
                       bs_error *err) {
  (void)err;
  if (!r->weights || (c->spec.y_placement != BS_SPLIT && mine->y_begin == 0 && mine->y_cols != r->N))
    return BS_OK;
  if (r->joint && r->split) memset(r->of_bias, 0, (size_t)r->N * sizeof *r->of_bias);
  for (int64_t n = 0; n < mine->y_cols; ++n) {
    double value = bs_load_f64(c->spec.y_dtype, values, n);
    __atomic_store(&r->of_bias[mine->y_begin + n], &value, __ATOMIC_RELAXED); /* ranks with equal values */
  }
  return BS_OK;
}
