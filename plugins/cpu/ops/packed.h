/* SPDX-License-Identifier: MIT
 *
 * packed.h - the weight of the "packed" matmul: blocks of CPU_K_BLOCK columns, in a block panels of
 * CPU_PANEL outputs, in a panel column by column. Shared by matmul_pack.c and matmul.c. */
#ifndef BS_PLUGINS_CPU_OPS_PACKED_H
#define BS_PLUGINS_CPU_OPS_PACKED_H

#include "../cpu.h"

typedef struct cpu_packed {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t N, K;   /* outputs, packed columns */
  int64_t panels; /* ceil(N / CPU_PANEL); the last one is filled up with zeros */
  uint32_t dtype; /* f32, bf16, f16 */
  uint32_t size;  /* bytes of an element */
  void *data;     /* exec->alloc */
} cpu_packed;

/* Element of (panel, column k, lane 0). A panel's block is contiguous, so are the panels of a block. */
static inline int64_t cpu_packed_at(const cpu_packed *w, int64_t panel, int64_t k) {
  const int64_t first = k - k % CPU_K_BLOCK, left = w->K - first;
  const int64_t length = left < CPU_K_BLOCK ? left : CPU_K_BLOCK;
  return first * w->panels * CPU_PANEL + panel * length * CPU_PANEL + (k - first) * CPU_PANEL;
}

int32_t cpu_packed_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t cpu_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_packed_free(void *packed);

#endif
