/* SPDX-License-Identifier: MIT
 *
 * weights.h - the weight of the "dnnl" matmul: [N,K] row by row, as oneDNN multiplies it fastest on AVX2
 * and as well as any layout elsewhere. dnnl/weights.c makes it, dnnl/matmul.c multiplies. */
#ifndef BS_PLUGINS_CPU_DNNL_WEIGHTS_H
#define BS_PLUGINS_CPU_DNNL_WEIGHTS_H

#include "../cpu.h"

typedef struct cpu_rows {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t N, K;
  uint32_t dtype, size;
  void *data; /* exec->alloc, [N][K] */
} cpu_rows;

int32_t cpu_rows_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                      void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_rows_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t cpu_rows_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_rows_free(void *packed);

#endif
