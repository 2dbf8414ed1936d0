/* SPDX-License-Identifier: MIT
 *
 * direct.c - see direct.h. The library is opened at run time; a build without oneDNN's headers has none. */
#include "direct.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blockshock/blockshock.h"
#ifdef BS_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

#define HUGE_PAGE ((uint64_t)2 << 20)

void *bench_huge_alloc(uint64_t bytes) {
  void *memory = NULL;
  const uint64_t whole = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
  if (posix_memalign(&memory, HUGE_PAGE, whole) != 0) return NULL;
  (void)madvise(memory, whole, MADV_HUGEPAGE); /* only faster */
  return memset(memory, 0, whole);
}

#ifdef BS_HAVE_DNNL
struct bench_direct {
  void *library;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
  __typeof__(&dnnl_primitive_execute) execute;
  __typeof__(&dnnl_stream_wait) wait;
};

/* Function `name` of the library into the pointer at `out`. */
static int find(void *library, const char *name, void *out) {
  void *symbol = dlsym(library, name);
  if (symbol != NULL) memcpy(out, &symbol, sizeof symbol);
  return symbol != NULL;
}

typedef struct api {
  __typeof__(&dnnl_engine_create) engine;
  __typeof__(&dnnl_stream_create) stream;
  __typeof__(&dnnl_memory_desc_create_with_strides) desc;
  __typeof__(&dnnl_memory_desc_create_with_tag) desc_tag;
  __typeof__(&dnnl_primitive_desc_query_md) query_md;
  __typeof__(&dnnl_reorder_primitive_desc_create) reorder;
  __typeof__(&dnnl_memory_desc_get_size) size;
  __typeof__(&dnnl_memory_create) memory;
  __typeof__(&dnnl_matmul_primitive_desc_create) matmul;
  __typeof__(&dnnl_primitive_create) primitive;
} api;

static int open_library(bench_direct *p, api *a, uint32_t threads) {
  void (*set_width)(int) = NULL;
  p->library = dlopen(BS_DNNL_BUILD_PATH, RTLD_NOW | RTLD_LOCAL);
  if (p->library == NULL) return 0;
  if (find(p->library, "omp_set_num_threads", &set_width)) set_width((int)threads);
  return find(p->library, "dnnl_engine_create", &a->engine) &&
         find(p->library, "dnnl_stream_create", &a->stream) &&
         find(p->library, "dnnl_memory_desc_create_with_strides", &a->desc) &&
         find(p->library, "dnnl_memory_desc_create_with_tag", &a->desc_tag) &&
         find(p->library, "dnnl_primitive_desc_query_md", &a->query_md) &&
         find(p->library, "dnnl_reorder_primitive_desc_create", &a->reorder) &&
         find(p->library, "dnnl_memory_desc_get_size", &a->size) &&
         find(p->library, "dnnl_memory_create", &a->memory) &&
         find(p->library, "dnnl_matmul_primitive_desc_create", &a->matmul) &&
         find(p->library, "dnnl_primitive_create", &a->primitive) &&
         find(p->library, "dnnl_primitive_execute", &p->execute) &&
         find(p->library, "dnnl_stream_wait", &p->wait);
}

/* W in the layout that `matmul` wants, in args[1]; `plain` describes W as it is. */
static int reorder_weight(bench_direct *p, const api *a, const_dnnl_primitive_desc_t matmul,
                          const_dnnl_memory_desc_t plain) {
  const_dnnl_memory_desc_t wanted = a->query_md(matmul, dnnl_query_weights_md, 0);
  dnnl_primitive_desc_t reorder;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, p->args[1].memory}, {DNNL_ARG_TO, NULL}};
  void *data = wanted != NULL ? bench_huge_alloc(a->size(wanted)) : NULL;
  if (data == NULL || a->memory(&args[1].memory, wanted, p->engine, data) != dnnl_success ||
      a->reorder(&reorder, plain, p->engine, wanted, p->engine, NULL) != dnnl_success ||
      a->primitive(&primitive, reorder) != dnnl_success ||
      p->execute(primitive, p->stream, 2, args) != dnnl_success || p->wait(p->stream) != dnnl_success)
    return 0;
  p->args[1].memory = args[1].memory;
  return 1;
}

static int open_matmul(bench_direct *p, const bench_direct_job *j) {
  api a;
  const dnnl_data_type_t type = j->dtype == BS_BF16 ? dnnl_bf16 : j->dtype == BS_F16 ? dnnl_f16 : dnnl_f32;
  const dnnl_dims_t dims[3] = {{j->b, j->k}, {j->k, j->n}, {j->b, j->n}};
  const dnnl_dims_t strides[3] = {{j->k, 1}, {1, j->k}, {j->n, 1}};
  static const int roles[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  void *const data[3] = {j->x, j->w, j->y};
  dnnl_memory_desc_t desc[3], weight;
  dnnl_primitive_desc_t matmul;
  if (!open_library(p, &a, j->threads)) return 0;
  if (a.engine(&p->engine, dnnl_cpu, 0) != dnnl_success) return 0;
  if (a.stream(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success) return 0;
  for (int i = 0; i < 3; i++) {
    if (a.desc(&desc[i], 2, dims[i], type, strides[i]) != dnnl_success) return 0;
    p->args[i].arg = roles[i];
    if (a.memory(&p->args[i].memory, desc[i], p->engine, data[i]) != dnnl_success) return 0;
  }
  weight = desc[1];
  if (j->any && a.desc_tag(&weight, 2, dims[1], type, dnnl_format_tag_any) != dnnl_success) return 0;
  if (a.matmul(&matmul, p->engine, desc[0], weight, NULL, desc[2], NULL) != dnnl_success) return 0;
  if (j->any && !reorder_weight(p, &a, matmul, desc[1])) return 0;
  return a.primitive(&p->primitive, matmul) == dnnl_success;
}

bench_direct *bench_direct_open(const bench_direct_job *job) {
  bench_direct *p = calloc(1, sizeof *p);
  if (p != NULL && open_matmul(p, job)) return p;
  free(p);
  return NULL;
}

int bench_direct_run(const bench_direct *p) {
  return p->execute(p->primitive, p->stream, 3, p->args) == dnnl_success &&
         p->wait(p->stream) == dnnl_success;
}
#else
bench_direct *bench_direct_open(const bench_direct_job *job) {
  (void)job;
  return NULL;
}

int bench_direct_run(const bench_direct *p) {
  (void)p;
  return 0;
}
#endif
