/* SPDX-License-Identifier: MIT
 * op_weight.c - the dense weight of a query as a source that is packed, and what was packed read back. */
#include "core/op/quant.h"
#include "kit/op.h"

static int32_t read_tensor(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const kit_tensor *w = ctx;
  const int64_t count = cols != NULL ? cols->count : w->t.dims[1];
  if (row < 0 || nrows < 0 || row > w->t.dims[0] - nrows)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-KIT-ROWS", "rows %lld+%lld of %lld are asked for",
                        (long long)row, (long long)nrows, (long long)w->t.dims[0]);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < count; i++) {
      const int64_t k = cols == NULL                        ? i
                        : cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[i]
                                                            : cols->begin + i;
      bs_store_f64(dtype, out, r * out_stride + i, kit_get(w, row + r, k));
    }
  return BS_OK;
}

bs_source kit_tensor_source(kit_tensor *m) {
  return (bs_source){.struct_size = sizeof(bs_source),
                     .dtype = m->t.dtype,
                     .rows = m->t.dims[0],
                     .cols = m->t.dims[1],
                     .ctx = m,
                     .read = read_tensor};
}

bs_source kit_weight_source(kit_data *d) {
  return kit_tensor_source(&d->w);
}

/* An element of a packed row: a kept weight, or 0 beyond the last one. */
double kit_packed_value(const kit_data *d, int64_t n, int64_t i) {
  int64_t k = i;
  if (d->q != NULL) return (double)kit_q_value(d, n, k);
  const int is_there = d->groups == NULL || kit_place(d, n, i, &k);
  return is_there ? kit_get(&d->w, n, kit_column(d, k)) : 0.0;
}

/* The least that the device memory of the packed weight can be. */
uint64_t kit_packed_least(const kit_data *d) {
  const uint64_t n = (uint64_t)(d->shape.N * d->length);
  return d->q != NULL ? bs_quant_bytes(d->query.quant) / 2 : n * BS_DTYPE_BYTES(d->shape.w);
}

void *kit_data_pack(kit_actor *a, kit_data *d) {
  void *packed = NULL, *state = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  if (d->w.block == NULL && d->q == NULL) return NULL;
  const bs_source dense = kit_weight_source(d), *source = d->q == NULL ? &dense : NULL;
  const bs_op_impl *packer = kit_packer(a, d, &state);
  kit_assert(packer->pack(state, &a->exec, &d->pack_query, source, &packed, &bytes, &err) == BS_OK,
             "%s: pack fails: %s: %s", kit_data_text(d), err.id, err.message);
  return packed;
}

int32_t kit_packed_values(kit_actor *a, void *packed, const kit_data *d, double *out, bs_error *err) {
  kit_tensor t;
  void *state = NULL;
  const bs_op_impl *packer = kit_packer(a, d, &state);
  if (packer->packed_read == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KIT-READ", "has no packed_read");
  kit_tensor_make(&t, d->shape.w, 2, d->shape.N, d->length, 0);
  kit_push(a, &t);
  const int32_t rc = packer->packed_read(packed, 0, &t.t, err);
  kit_pull(a, &t);
  for (int64_t n = 0; rc == BS_OK && n < d->shape.N; n++)
    for (int64_t i = 0; i < d->length; i++) out[n * d->length + i] = kit_get(&t, n, i);
  kit_tensor_free(a, &t);
  return rc;
}
