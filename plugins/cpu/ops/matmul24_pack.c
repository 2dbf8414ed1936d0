/* SPDX-License-Identifier: MIT
 *
 * matmul24_pack.c - makes the packed weight of matmul24. Positions come first (codes24.c); of the rows that
 * are pulled it keeps what they tell. A value is moved by its size: zeros of both signs and NaN stay. */
#include "packed24.h"

/* The address of value j of output n. */
static uint8_t *value_at(const cpu_packed *w, int64_t n, int64_t j) {
  return cpu_unit_at(w, n / CPU_PANEL, j / CPU_UNIT_VALUES) +
         (j % CPU_UNIT_VALUES * CPU_PANEL + n % CPU_PANEL) * w->size;
}

static void place_row(const cpu_packed *w, int64_t n, const uint8_t *from) {
  for (int64_t j = 0; j < cpu_kept_length(w->K); j++) {
    const int64_t k = cpu_kept_column(w->codes, w->other, n, j);
    if (k < w->K) memcpy(value_at(w, n, j), from + k * w->size, w->size);
  }
}

static void place_panel(const cpu_packed *w, int64_t panel, int64_t rows, const uint8_t *from) {
  for (int64_t u = 0; u < w->units; u++) memset(cpu_unit_at(w, panel, u), 0, (size_t)cpu_unit_bytes(w));
  for (int64_t i = 0; i < rows; i++) place_row(w, panel * CPU_PANEL + i, from + i * w->K * w->size);
}

/* Places beyond the last column keep their zeros. */
static void move_line(const cpu_packed *w, int64_t n, int64_t first, int64_t count, uint8_t *line, int back) {
  for (int64_t j = 0; j < count; j++)
    if (!back || cpu_kept_column(w->codes, w->other, n, first + j) < w->K)
      cpu_packed_move(w, value_at(w, n, first + j), line + j * w->size, back);
}

int32_t cpu_packed24_make(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  static const cpu_packed_kind kind = {place_panel, move_line};
  cpu_packed *w = NULL;
  if (cpu_type24(query->weight_dtype) < 0)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  if (query->kept == NULL || query->kept->rows != weights->rows)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-KEPT",
                   "positions are not those of a weight of %lld rows", (long long)weights->rows);
  int32_t rc = cpu_packed_begin(&kind, state, exec, query, weights, &w, err);
  if (rc != BS_OK) return rc;
  w->K = query->kept->cols;
  w->length = cpu_kept_length(w->K);
  rc = cpu_codes_take(state, exec, query->kept, &w->codes, &w->other, err);
  if (rc != BS_OK) {
    cpu_packed_free(w);
    return rc;
  }
  w->units = w->codes->units;
  rc = cpu_packed_fill(w, w->panels * CPU_PANEL, w->units * CPU_UNIT_VALUES, weights, query->partition,
                       out_packed, out_bytes, err);
  /* The codes are its own only where no other weight has them already. */
  if (rc == BS_OK && w->codes->refs == 1) *out_bytes += w->codes->bytes;
  return rc;
}
