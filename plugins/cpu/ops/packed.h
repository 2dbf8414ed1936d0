/* SPDX-License-Identifier: MIT
 *
 * packed.h - the weight of the "packed" matmul: blocks of CPU_K_BLOCK columns, in a block panels of
 * CPU_PANEL outputs, in a panel column by column, for bf16 pair of columns by pair. Shared by matmul_pack.c
 * and matmul.c. */
#ifndef BS_PLUGINS_CPU_OPS_PACKED_H
#define BS_PLUGINS_CPU_OPS_PACKED_H

#include "../cpu.h"

/* What every weight packed by this plugin begins with: an optimiser's step takes them all. */
typedef struct cpu_weight {
  uint32_t of24; /* 1: cpu_packed24 (packed24.h), 0: cpu_packed */
} cpu_weight;

typedef struct cpu_packed {
  cpu_weight weight;
  const bs_exec *exec;
  const cpu_state *state;
  int64_t N, K;   /* outputs, packed columns */
  int64_t panels; /* ceil(N / CPU_PANEL); the last one is filled up with zeros */
  uint32_t dtype; /* f32, bf16, f16 */
  uint32_t size;  /* bytes of an element */
  void *data;     /* exec->alloc */
} cpu_packed;

/* Columns that a block from `first` on takes up: bf16 lies in pairs of columns (kernels.h). */
static inline int64_t cpu_packed_length(const cpu_packed *w, int64_t first) {
  const int64_t left = w->K - first, length = left < CPU_K_BLOCK ? left : CPU_K_BLOCK;
  return w->dtype == BS_BF16 ? length + length % 2 : length;
}

/* First element of a panel's part of the block that begins with column `first`. A panel's block is
 * contiguous, so are the panels of a block. */
static inline int64_t cpu_packed_at(const cpu_packed *w, int64_t panel, int64_t first) {
  return (first * w->panels + panel * cpu_packed_length(w, first)) * CPU_PANEL;
}

/* Where output `lane`, column k of a block lies behind the panel's first element. */
static inline int64_t cpu_packed_place(const cpu_packed *w, int64_t k, int64_t lane) {
  if (w->dtype == BS_BF16) return (k / 2 * CPU_PANEL + lane) * 2 + k % 2;
  return k * CPU_PANEL + lane;
}

/* Round a panel's block from column `first` on to the weight's 16-bit dtype: bf16 by pairs of columns, the
 * second of a last odd one stays zero. narrow: cpu_packed_length * 16 places to work in. */
void cpu_panel_narrow(const cpu_kernels *kernels, const cpu_packed *w, int64_t first, const float *wide,
                      uint16_t *narrow, void *to);
int32_t cpu_packed_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t cpu_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_packed_free(void *packed);

#endif
