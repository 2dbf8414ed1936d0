/* SPDX-License-Identifier: MIT
 *
 * matmul_pack.c - makes the packed weight of the "packed" matmul. */
#include "packed.h"

/* Rows of a panel, each `K` elements, to column-major blocks. */
static void place_panel(const cpu_packed *w, int64_t panel, int64_t rows, const uint8_t *from) {
  for (int64_t first = 0; first < w->K; first += CPU_K_BLOCK) {
    const int64_t length = w->K - first < CPU_K_BLOCK ? w->K - first : CPU_K_BLOCK;
    const int64_t all = cpu_packed_length(w, first);
    uint8_t *to = (uint8_t *)w->data + (size_t)cpu_packed_at(w, panel, first) * w->size;
    if (rows < CPU_PANEL || all != length) memset(to, 0, (size_t)(all * CPU_PANEL) * w->size);
    for (int64_t j = 0; j < rows; j++) {
      const int64_t row = j * w->K + first;
      if (w->size == 4)
        for (int64_t k = 0; k < length; k++)
          ((uint32_t *)(void *)to)[k * CPU_PANEL + j] = ((const uint32_t *)(const void *)from)[row + k];
      else
        for (int64_t k = 0; k < length; k++)
          ((uint16_t *)(void *)to)[cpu_packed_place(w, k, j)] =
              ((const uint16_t *)(const void *)from)[row + k];
    }
  }
}

static void move_line(const cpu_packed *w, int64_t n, int64_t first, int64_t count, uint8_t *line, int back) {
  uint8_t *block = (uint8_t *)w->data + (size_t)cpu_packed_at(w, n / CPU_PANEL, first) * w->size;
  for (int64_t k = 0; k < count; k++)
    cpu_packed_move(w, block + (size_t)cpu_packed_place(w, k, n % CPU_PANEL) * w->size, line + k * w->size,
                    back);
}

int32_t cpu_packed_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err) {
  static const cpu_packed_kind kind = {place_panel, move_line};
  cpu_packed *w = NULL;
  if (!cpu_is_matmul_type(query->weight_dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  const int32_t rc = cpu_packed_begin(&kind, state, exec, query, weights, &w, err);
  if (rc != BS_OK) return rc;
  const int64_t last = w->K - w->K % CPU_K_BLOCK;
  return cpu_packed_fill(w, w->panels * CPU_PANEL, last + cpu_packed_length(w, last), weights,
                         query->partition, out_packed, out_bytes, err);
}

void cpu_panel_narrow(const cpu_kernels *kernels, const cpu_packed *w, int64_t first, const float *wide,
                      uint16_t *narrow, void *to) {
  const int64_t length = cpu_packed_length(w, first);
  uint16_t *out = to;
  if (w->dtype == BS_F16) {
    kernels->store[cpu_type_index(w->dtype)](to, wide, length * CPU_PANEL);
    return;
  }
  kernels->store[cpu_type_index(w->dtype)](narrow, wide, length * CPU_PANEL);
  for (int64_t k = 0; k < length; k += 2)
    for (int64_t lane = 0; lane < CPU_PANEL; lane++) {
      out[cpu_packed_place(w, k, lane)] = narrow[k * CPU_PANEL + lane];
      out[cpu_packed_place(w, k + 1, lane)] = narrow[(k + 1) * CPU_PANEL + lane];
    }
}
