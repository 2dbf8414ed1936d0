/* SPDX-License-Identifier: MIT
 *
 * packed_bytes.h - the weight of the "bytes" matmul: panels of CPU_PANEL outputs of int8, in a panel pair of
 * columns by pair, all of a panel side by side. Shared by matmul_bytes_pack.c and matmul_bytes.c. */
#ifndef BS_PLUGINS_CPU_OPS_PACKED_BYTES_H
#define BS_PLUGINS_CPU_OPS_PACKED_BYTES_H

#include "../cpu.h"

typedef struct cpu_packed_bytes {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t N, K;
  int64_t panels; /* the last one is filled up with zeros, and so is the last pair of columns */
  int64_t pairs;
  int8_t *data; /* exec->alloc */
} cpu_packed_bytes;

/* The first byte of a pair of columns in a panel. */
static inline int64_t cpu_bytes_at(const cpu_packed_bytes *w, int64_t panel, int64_t pair) {
  return (panel * w->pairs + pair) * 2 * CPU_PANEL;
}

int32_t cpu_packed_bytes_make(void *state, const bs_exec *exec, const bs_op_query *query,
                              const bs_source *weights, void **out_packed, uint64_t *out_bytes,
                              bs_error *err);
int32_t cpu_packed_bytes_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_packed_bytes_free(void *packed);

#endif
