/* SPDX-License-Identifier: MIT
 *
 * weights.c - makes the weight of the "dnnl" matmul: [N,K] row by row, as oneDNN multiplies it fastest on
 * AVX2 and as well as any layout elsewhere. The team reads the source straight into place: there is no second
 * copy. */
#include "../ops/packed.h"

static void move_line(const cpu_packed *w, int64_t n, int64_t first, int64_t count, uint8_t *line, int back) {
  uint8_t *place = (uint8_t *)w->data + (size_t)(n * w->K + first) * w->size;
  memcpy(back ? place : line, back ? line : place, (size_t)count * w->size);
}

int32_t cpu_rows_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                      void **out_packed, uint64_t *out_bytes, bs_error *err) {
  static const cpu_packed_kind kind = {NULL, move_line};
  cpu_packed *w = NULL;
  if (!cpu_is_matmul_type(query->weight_dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  const int32_t rc = cpu_packed_begin(&kind, state, exec, query, weights, &w, err);
  if (rc != BS_OK) return rc;
  return cpu_packed_fill(w, w->N, w->K, weights, query->partition, out_packed, out_bytes, err);
}
