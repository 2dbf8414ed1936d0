/* SPDX-License-Identifier: MIT
 * columns.c - which columns of a weight a method gives each rank. No method says so before it has built a
 * layer: one of a single row is built and freed. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"
#include "graph/split/echo.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a split");
}

/* bs_source.read of a weight of zeros. */
static int32_t read_zeros(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const int64_t count = cols != NULL ? cols->count : *(const int64_t *)ctx;
  const uint32_t size = BS_DTYPE_BYTES(dtype);
  (void)row;
  (void)err;
  for (int64_t r = 0; r < nrows; r++)
    memset((unsigned char *)out + (uint64_t)(r * out_stride) * size, 0, (size_t)count * size);
  return BS_OK;
}

static int32_t refuse(const gmethod *m, bs_error *err) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT",
                      "method %s does not give each rank whole columns, as many as any other",
                      m->arms[m->n_arms - 1].name);
}

static int32_t take_owned(bs_layer *layer, uint32_t *mine, int64_t share, bs_error *err) {
  bs_ownership own;
  const int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  const bs_partition *c = own.columns;
  const int whole = own.row_count == 1 && own.kept == NULL && (c == NULL || c->count == share);
  for (int64_t i = 0; i < share; i++)
    mine[i] = !whole                               ? UINT32_MAX
              : c == NULL                          ? (uint32_t)i
              : c->kind == BS_PARTITION_CONTIGUOUS ? (uint32_t)(c->begin + i)
                                                   : c->columns[i];
  return BS_OK;
}

/* A rank that has no such columns, or whose method refuses the layer, tells the others so: they have to
 * agree. Any other error is of this rank alone. */
static int32_t ask_method(const gmethod *m, bs_rank *rank, const bs_layer_spec *asked, uint32_t *mine,
                          int64_t share, bs_error *err) {
  const gmethod_arm *arm = &m->arms[m->n_arms - 1];
  bs_layer_spec spec = *asked;
  spec.N = spec.B = 1;
  spec.has_bias = 0;
  spec.activation = BS_ACT_NONE;
  const bs_source zeros = {.struct_size = (uint32_t)sizeof zeros,
                           .dtype = spec.w_dtype,
                           .rows = 1,
                           .cols = spec.K,
                           .ctx = &spec.K,
                           .read = read_zeros};
  bs_layer *layer = NULL;
  int32_t rc = bs_layer_build(rank, arm->name, &spec, &zeros, NULL, &layer, err);
  if (rc == BS_OK) rc = take_owned(layer, mine, share, err);
  bs_layer_free(layer);
  if (rc != BS_OK && rc != BS_UNSUPPORTED) bs_rank_set_alone(rank);
  if (rc != BS_UNSUPPORTED) return rc;
  for (int64_t i = 0; i < share; i++) mine[i] = UINT32_MAX;
  return BS_OK;
}

/* Every column is someone's. */
static int all_columns(const uint32_t *columns, int64_t k) {
  unsigned char *seen = calloc((size_t)k, 1);
  int whole = seen != NULL;
  for (int64_t i = 0; i < k && whole; i++) {
    whole = columns[i] < k && !seen[columns[i]];
    if (whole) seen[columns[i]] = 1;
  }
  free(seen);
  return whole;
}

static int32_t find_columns(gmethod *m, bs_rank *rank, const bs_layer_spec *spec,
                            const uint32_t **out_columns, bs_error *err) {
  const int64_t k = spec->K, share = k / m->world_size;
  uint32_t *all = malloc((size_t)k * sizeof *all + 1u), *mine = malloc((size_t)share * sizeof *mine + 1u);
  int32_t rc = all == NULL || mine == NULL ? no_memory(err) : ask_method(m, rank, spec, mine, share, err);
  const bs_collective gather = {.struct_size = (uint32_t)sizeof gather,
                                .kind = BS_COLL_ALL_GATHER,
                                .dtype_in = BS_I32,
                                .dtype_out = BS_I32,
                                .rows = 1,
                                .count = (uint64_t)share,
                                .site = "split.columns",
                                .flags = BS_COLL_CONTROL};
  if (rc == BS_OK) rc = bs_rank_collective_host(rank, &gather, mine, (uint64_t)share, all, (uint64_t)k, err);
  if (rc == BS_OK && !ARRAY_GROW(m->probes, m->n_probes, m->cap_probes)) rc = no_memory(err);
  free(mine);
  if (rc != BS_OK || !all_columns(all, k)) {
    free(all);
    all = NULL;
  }
  if (rc != BS_OK) return rc;
  m->probes[m->n_probes++] = (gmethod_probe){k, spec->x_dtype, spec->w_dtype, spec->y_dtype, all};
  *out_columns = all;
  return all != NULL ? BS_OK : refuse(m, err);
}

int32_t gmethod_columns(gmethod *m, bs_rank *rank, const bs_layer_spec *spec, const uint32_t **out_columns,
                        bs_error *err) {
  for (uint32_t i = 0; i < m->n_probes; i++) {
    const gmethod_probe *p = &m->probes[i];
    if (p->k != spec->K || p->x_dtype != spec->x_dtype || p->w_dtype != spec->w_dtype ||
        p->y_dtype != spec->y_dtype)
      continue;
    *out_columns = p->columns;
    return p->columns != NULL ? BS_OK : refuse(m, err);
  }
  int32_t rc = glead_columns(m->tell, m, spec, err);
  if (rc == BS_OK) rc = find_columns(m, rank, spec, out_columns, err);
  return glead_done(m->tell, rc, err);
}
