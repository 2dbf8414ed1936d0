/* SPDX-License-Identifier: MIT
 *
 * library.h - oneDNN's library as the plugin found it: never linked, opened at the first matmul that could
 * use it. dnnl/library.c opens it, dnnl/matmul.c calls it. */
#ifndef BS_PLUGINS_CPU_DNNL_LIBRARY_H
#define BS_PLUGINS_CPU_DNNL_LIBRARY_H

#include <oneapi/dnnl/dnnl.h>

#include "../cpu.h"

/* The functions used, of the types that the header declares. */
typedef struct cpu_dnnl_api {
  __typeof__(&dnnl_version) version;
  __typeof__(&dnnl_get_effective_cpu_isa) get_effective_cpu_isa;
  __typeof__(&dnnl_engine_create) engine_create;
  __typeof__(&dnnl_engine_destroy) engine_destroy;
  __typeof__(&dnnl_stream_create) stream_create;
  __typeof__(&dnnl_stream_destroy) stream_destroy;
  __typeof__(&dnnl_stream_wait) stream_wait;
  __typeof__(&dnnl_memory_desc_create_with_strides) memory_desc_create_with_strides;
  __typeof__(&dnnl_memory_desc_destroy) memory_desc_destroy;
  __typeof__(&dnnl_memory_desc_get_size) memory_desc_get_size;
  __typeof__(&dnnl_memory_create) memory_create;
  __typeof__(&dnnl_memory_destroy) memory_destroy;
  __typeof__(&dnnl_memory_set_data_handle) memory_set_data_handle;
  __typeof__(&dnnl_matmul_primitive_desc_create) matmul_primitive_desc_create;
  __typeof__(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  __typeof__(&dnnl_primitive_desc_query) primitive_desc_query;
  __typeof__(&dnnl_primitive_desc_query_md) primitive_desc_query_md;
  __typeof__(&dnnl_primitive_create) primitive_create;
  __typeof__(&dnnl_primitive_execute) primitive_execute;
  __typeof__(&dnnl_primitive_destroy) primitive_destroy;
  __typeof__(&dnnl_primitive_attr_create) primitive_attr_create;
  __typeof__(&dnnl_primitive_attr_destroy) primitive_attr_destroy;
  __typeof__(&dnnl_primitive_attr_set_scratchpad_mode) primitive_attr_set_scratchpad_mode;
  __typeof__(&dnnl_primitive_attr_set_fpmath_mode) primitive_attr_set_fpmath_mode;
  __typeof__(&dnnl_primitive_attr_set_post_ops) primitive_attr_set_post_ops;
  __typeof__(&dnnl_post_ops_create) post_ops_create;
  __typeof__(&dnnl_post_ops_destroy) post_ops_destroy;
  __typeof__(&dnnl_post_ops_append_sum) post_ops_append_sum;
} cpu_dnnl_api;

/* Results of the search for the library. */
typedef struct cpu_dnnl_lib {
  int usable;
  int disabled; /* by dnnl_library=off */
  cpu_dnnl_api api;
  dnnl_engine_t engine;
  uint32_t isa;                     /* dnnl_cpu_isa_t bits */
  void (*omp_set_num_threads)(int); /* NULL when the library uses no OpenMP */
  int (*omp_get_max_threads)(void);
  char text[160]; /* version and runtime, or why it is not usable */
} cpu_dnnl_lib;

/* Opens the library in the first call (23 ms), then returns the result; thread-safe, never NULL. */
const cpu_dnnl_lib *cpu_dnnl_open(cpu_dnnl *dnnl);

/* 1: it is opened when it is chosen, or could be faster. */
int cpu_dnnl_is_auto(const cpu_dnnl *dnnl);

/* Sets this thread's OpenMP width to 1 between the two calls. Each member of the team computes its own slice,
 * so oneDNN must not wake threads in addition to the team. */
static inline int cpu_dnnl_alone(const cpu_dnnl_lib *lib) {
  if (lib->omp_set_num_threads == NULL) return 1;
  const int width = lib->omp_get_max_threads();
  if (width != 1) lib->omp_set_num_threads(1);
  return width;
}

static inline void cpu_dnnl_together(const cpu_dnnl_lib *lib, int width) {
  if (lib->omp_set_num_threads != NULL && width != 1) lib->omp_set_num_threads(width);
}

#endif
