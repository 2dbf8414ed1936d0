/* SPDX-License-Identifier: MIT
 * remask.c - see remask.h. Each weight is owned by one rank, so that the ranks write beside one another. */
#include "lab/phase/remask.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/peers/exchange.h"
#include "lab/phase/whole.h"

enum { GROUPS = 256 }; /* of positions that are asked for at once */

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
    return bs_error_set(err, BS_NO_MEMORY, "BS-CASE-MEMORY", "no memory for %lld x %lld weights",
                        (long long)r->N, (long long)r->K);
  int32_t rc = bs_source_from_memory(r->weights, r->dtype, r->N, r->K, r->K, &r->w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(r->of_bias, BS_F64, 1, r->N, r->N, &r->bias, err);
  r->bias.dtype = spec->y_dtype; /* whose values they are */
  return rc;
}

void bs_remask_close(bs_remask *r) {
  if (r->weights) bs_source_release(&r->w);
  if (r->of_bias) bs_source_release(&r->bias);
  free(r->weights);
  free(r->of_bias);
  memset(r, 0, sizeof *r);
}

static int64_t column_of(const bs_partition *p, int64_t j) {
  if (p == NULL) return j;
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[j] : p->begin + j;
}

/* A row of what is packed to its places in W; by the positions where they differ from row to row. */
static int32_t place(bs_remask *r, const bs_ownership *own, int64_t row, const char *line, int64_t count,
                     bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(r->dtype);
  char *to = (char *)r->weights + (size_t)((own->row_begin + row) * r->K) * size;
  if (own->kept == NULL) {
    for (int64_t j = 0; j < count; ++j)
      memcpy(to + (size_t)column_of(own->columns, j) * size, line + (size_t)j * size, size);
    return BS_OK;
  }
  const int64_t cols = own->columns ? own->columns->count : r->K, groups = (cols + 3) / 4;
  uint8_t codes[GROUPS];
  int64_t next = 0;
  for (int64_t g = 0; g < groups; g += GROUPS) {
    const int64_t n = groups - g < GROUPS ? groups - g : GROUPS;
    const int32_t rc = own->kept->read(own->kept->ctx, row, 1, g, n, codes, n, err);
    if (rc != BS_OK) return rc;
    for (int64_t k = 4 * g; k < 4 * (g + n); ++k) {
      if (!(codes[k / 4 - g] >> (k % 4) & 1u)) continue;
      if (k < cols) memcpy(to + (size_t)column_of(own->columns, k) * size, line + (size_t)next * size, size);
      ++next;
    }
  }
  return BS_OK;
}

/* Each weight is one rank's, and where features of y are, so is each bias: those of other ranks are zero
 * here. */
static int32_t share(bs_remask *r, bs_rank *rank, bs_error *err) {
  const int32_t rc = bs_exchange_union(rank, BS_LAB_SITES "remask.weights", r->weights, bytes_of(r), err);
  return rc == BS_OK && r->split ? bs_exchange_union(rank, BS_LAB_SITES "remask.bias", r->of_bias,
                                                     (uint64_t)r->N * sizeof *r->of_bias, err)
                                 : rc;
}

int32_t bs_remask_gather(bs_remask *r, bs_rank *rank, bs_layer *layer, const bs_ownership *own,
                         bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const int64_t cols = own->columns ? own->columns->count : r->K,
                count = own->kept ? (cols + 3) / 4 * 2 : cols;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = r->dtype, .rank = 2};
  d.dims[0] = 1;
  d.dims[1] = count;
  bs_tensor row = {0};
  if (r->joint) memset(r->weights, 0, (size_t)bytes_of(r)); /* what was another rank's is no more */
  char *line = malloc((size_t)count * BS_DTYPE_BYTES(r->dtype) + 1);
  int32_t rc = line ? api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &row, err)
                    : bs_error_set(err, BS_NO_MEMORY, "BS-CASE-MEMORY", "no memory for a row of weights");
  for (int64_t n = 0; rc == BS_OK && count > 0 && n < own->row_count; ++n) {
    rc = bs_layer_read_weights(layer, n, &row, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(rank, &row, line, err);
    if (rc == BS_OK) rc = place(r, own, n, line, count, err);
  }
  if (row.data) api->tensor_free(rank, &row);
  free(line);
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

static int32_t read_zeros(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const int64_t count = cols ? cols->count : (int64_t)(intptr_t)ctx;
  (void)row;
  (void)err;
  for (int64_t i = 0; i < nrows; ++i)
    memset((char *)out + (size_t)(i * out_stride) * BS_DTYPE_BYTES(dtype), 0,
           (size_t)count * BS_DTYPE_BYTES(dtype));
  return BS_OK;
}

bs_source bs_remask_zeros(int64_t rows, int64_t cols) {
  return (bs_source){.struct_size = sizeof(bs_source),
                     .dtype = BS_F32,
                     .rows = rows,
                     .cols = cols,
                     .ctx = (void *)(intptr_t)cols,
                     .read = read_zeros};
}
