/* SPDX-License-Identifier: MIT
 *
 * matmul_bytes_pack.c - makes the packed weight of the "bytes" matmul. */
#include "packed.h"

static void place_panel(const cpu_packed *w, int64_t panel, int64_t rows, const uint8_t *from) {
  int8_t *to = (int8_t *)w->data + cpu_bytes_at(w, panel, 0);
  memset(to, 0, (size_t)(w->units * 2 * CPU_PANEL));
  for (int64_t j = 0; j < rows; j++)
    for (int64_t k = 0; k < w->K; k++) to[(k / 2 * CPU_PANEL + j) * 2 + k % 2] = (int8_t)from[j * w->K + k];
}

static void move_line(const cpu_packed *w, int64_t n, int64_t first, int64_t count, uint8_t *line, int back) {
  for (int64_t k = first; k < first + count; k++)
    cpu_packed_move(w, (int8_t *)w->data + cpu_bytes_at(w, n / CPU_PANEL, k / 2) + n % CPU_PANEL * 2 + k % 2,
                    line + k - first, back);
}

int32_t cpu_packed_bytes_make(void *state, const bs_exec *exec, const bs_op_query *query,
                              const bs_source *weights, void **out_packed, uint64_t *out_bytes,
                              bs_error *err) {
  static const cpu_packed_kind kind = {place_panel, move_line};
  cpu_packed *w = NULL;
  if (query->weight_dtype != BS_I8)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "packed bytes of dtype 0x%04x", query->weight_dtype);
  const int32_t rc = cpu_packed_begin(&kind, state, exec, query, weights, &w, err);
  if (rc != BS_OK) return rc;
  w->units = w->K / 2 + w->K % 2;
  return cpu_packed_fill(w, w->panels * CPU_PANEL, w->units * 2, weights, query->partition, out_packed,
                         out_bytes, err);
}
