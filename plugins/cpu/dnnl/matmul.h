/* SPDX-License-Identifier: MIT
 *
 * matmul.h - descriptors of the "dnnl" matmul, shared by describe.c (makes them, answers supports) and
 * matmul.c (prepares and runs). */
#ifndef BS_PLUGINS_CPU_DNNL_MATMUL_H
#define BS_PLUGINS_CPU_DNNL_MATMUL_H

#include "library.h"

/* The descriptors of one slice of outputs; bias is NULL if there is none. */
typedef struct cpu_dnnl_descs {
  dnnl_memory_desc_t x, w, bias, y;
} cpu_dnnl_descs;

/* `tokens` may be DNNL_RUNTIME_DIM_VAL. On failure nothing is left to free. */
dnnl_status_t cpu_dnnl_make_descs(const cpu_dnnl_lib *lib, const cpu_matmul *shape, int64_t tokens,
                                  int64_t count, cpu_dnnl_descs *out_descs);
void cpu_dnnl_free_descs(const cpu_dnnl_lib *lib, cpu_dnnl_descs *descs);
/* Descriptors and the primitive descriptor over them, planned for one thread. */
dnnl_status_t cpu_dnnl_make_desc(const cpu_dnnl_lib *lib, const cpu_matmul *shape, int64_t tokens,
                                 int64_t count, cpu_dnnl_descs *out_descs, dnnl_primitive_desc_t *out_desc);
/* The whole answer; out_shape is filled when it is not NO. may_wait: it may be UNKNOWN where the library
 * would have to be opened for a product that this plugin's own kernels serve (supports). */
void cpu_dnnl_judge(const cpu_state *state, const bs_op_query *query, cpu_matmul *out_shape, int may_wait,
                    bs_op_answer *answer);

#endif
