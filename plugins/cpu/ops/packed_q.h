/* SPDX-License-Identifier: MIT
 *
 * packed_q.h - the packed weight of matmul_q and take_q: panels of 16 outputs, one stream (cpu_quant_form in
 * kernels.h). Scales and lows are f16 where each of them is exact in it. */
#ifndef BS_PLUGINS_CPU_OPS_PACKED_Q_H
#define BS_PLUGINS_CPU_OPS_PACKED_Q_H

#include "../cpu.h"

typedef struct cpu_packed_q {
  const bs_exec *exec;
  cpu_state *state;
  bs_quant given; /* the form as it was asked for; read and ctx are NULL */
  cpu_quant_form form;
  int64_t panels;
  uint8_t *data; /* exec->alloc; NULL: there are no elements */
} cpu_packed_q;

int32_t cpu_packed_q_make(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cpu_packed_q_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cpu_packed_q_free(void *packed);
/* BS_INVALID_ARGUMENT unless the weight has the form of the query. */
int32_t cpu_packed_q_check(const cpu_packed_q *w, const bs_op_query *query, bs_error *err);
/* Columns first .. first + n of row n as f32: fl(fl(scale (code - zero)) - low). */
void cpu_packed_q_row(const cpu_packed_q *w, int64_t row, int64_t first, int64_t n, float *out);
/* The sizes of a form; where `half` is 0 with scales as f32. */
void cpu_quant_form_of(const bs_quant *quant, int half, cpu_quant_form *out);

#endif
