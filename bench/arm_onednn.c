/* SPDX-License-Identifier: MIT
 *
 * arm_onednn.c - oneDNN's matmul primitive called directly, as its user writes it. The library is opened at
 * run time; a build without oneDNN's headers has none. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arms.h"
#include "core/base/error.h"
#include "support.h"
#ifdef BS_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>

typedef struct onednn_arm {
  __typeof__(&dnnl_engine_create) engine_create;
  __typeof__(&dnnl_engine_destroy) engine_destroy;
  __typeof__(&dnnl_stream_create) stream_create;
  __typeof__(&dnnl_stream_destroy) stream_destroy;
  __typeof__(&dnnl_memory_desc_create_with_strides) memory_desc_create_with_strides;
  __typeof__(&dnnl_memory_desc_create_with_tag) memory_desc_create_with_tag;
  __typeof__(&dnnl_memory_desc_destroy) memory_desc_destroy;
  __typeof__(&dnnl_memory_desc_get_size) memory_desc_get_size;
  __typeof__(&dnnl_memory_create) memory_create;
  __typeof__(&dnnl_memory_destroy) memory_destroy;
  __typeof__(&dnnl_matmul_primitive_desc_create) matmul_primitive_desc_create;
  __typeof__(&dnnl_reorder_primitive_desc_create) reorder_primitive_desc_create;
  __typeof__(&dnnl_primitive_desc_query) primitive_desc_query;
  __typeof__(&dnnl_primitive_desc_query_md) primitive_desc_query_md;
  __typeof__(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  __typeof__(&dnnl_primitive_create) primitive_create;
  __typeof__(&dnnl_primitive_destroy) primitive_destroy;
  __typeof__(&dnnl_primitive_execute) primitive_execute;
  __typeof__(&dnnl_stream_wait) stream_wait;
  __typeof__(&dnnl_version) version;
  void (*set_width)(int); /* OpenMP's, of the calling thread; NULL in other builds of oneDNN */
  uint32_t threads;
  int any;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  /* of the shape */
  dnnl_memory_desc_t desc[3], weight;
  dnnl_primitive_desc_t matmul;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
  void *y, *w_own;
} onednn_arm;

static int find_functions(void *library, onednn_arm *p) {
  const struct {
    const char *name;
    void *to;
  } all[] = {
      {"dnnl_engine_create", &p->engine_create},
      {"dnnl_engine_destroy", &p->engine_destroy},
      {"dnnl_stream_create", &p->stream_create},
      {"dnnl_stream_destroy", &p->stream_destroy},
      {"dnnl_memory_desc_create_with_strides", &p->memory_desc_create_with_strides},
      {"dnnl_memory_desc_create_with_tag", &p->memory_desc_create_with_tag},
      {"dnnl_memory_desc_destroy", &p->memory_desc_destroy},
      {"dnnl_memory_desc_get_size", &p->memory_desc_get_size},
      {"dnnl_memory_create", &p->memory_create},
      {"dnnl_memory_destroy", &p->memory_destroy},
      {"dnnl_matmul_primitive_desc_create", &p->matmul_primitive_desc_create},
      {"dnnl_reorder_primitive_desc_create", &p->reorder_primitive_desc_create},
      {"dnnl_primitive_desc_query", &p->primitive_desc_query},
      {"dnnl_primitive_desc_query_md", &p->primitive_desc_query_md},
      {"dnnl_primitive_desc_destroy", &p->primitive_desc_destroy},
      {"dnnl_primitive_create", &p->primitive_create},
      {"dnnl_primitive_destroy", &p->primitive_destroy},
      {"dnnl_primitive_execute", &p->primitive_execute},
      {"dnnl_stream_wait", &p->stream_wait},
      {"dnnl_version", &p->version},
  };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    void *symbol = dlsym(library, all[i].name);
    if (symbol == NULL) return 0;
    memcpy(all[i].to, &symbol, sizeof symbol);
  }
  void *width = dlsym(library, "omp_set_num_threads");
  if (width != NULL) memcpy(&p->set_width, &width, sizeof width);
  return 1;
}

/* W in the layout that the primitive wants, in args[1]. */
static int reorder_weight(onednn_arm *p) {
  const_dnnl_memory_desc_t wanted = p->primitive_desc_query_md(p->matmul, dnnl_query_weights_md, 0);
  dnnl_primitive_desc_t desc = NULL;
  dnnl_primitive_t reorder = NULL;
  dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, p->args[1].memory}, {DNNL_ARG_TO, NULL}};
  if (wanted == NULL) return 0;
  p->w_own = bench_huge_alloc(p->memory_desc_get_size(wanted));
  const int good = p->w_own != NULL &&
                   p->memory_create(&args[1].memory, wanted, p->engine, p->w_own) == dnnl_success &&
                   p->reorder_primitive_desc_create(&desc, p->desc[1], p->engine, wanted, p->engine, NULL) ==
                       dnnl_success &&
                   p->primitive_create(&reorder, desc) == dnnl_success &&
                   p->primitive_execute(reorder, p->stream, 2, args) == dnnl_success &&
                   p->stream_wait(p->stream) == dnnl_success;
  if (reorder != NULL) p->primitive_destroy(reorder);
  if (desc != NULL) p->primitive_desc_destroy(desc);
  p->memory_destroy(p->args[1].memory);
  p->args[1].memory = args[1].memory;
  return good;
}

static int make_primitive(onednn_arm *p, const bench_numbers *m) {
  const dnnl_data_type_t type = m->dtype == BS_BF16 ? dnnl_bf16 : m->dtype == BS_F16 ? dnnl_f16 : dnnl_f32;
  const dnnl_dims_t dims[3] = {{m->b, m->k}, {m->k, m->n}, {m->b, m->n}};
  const dnnl_dims_t strides[3] = {{m->k, 1}, {1, m->k}, {m->n, 1}};
  static const int roles[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  void *const data[3] = {m->x, m->w, p->y};
  for (int i = 0; i < 3; ++i) {
    p->args[i].arg = roles[i];
    if (p->memory_desc_create_with_strides(&p->desc[i], 2, dims[i], type, strides[i]) != dnnl_success ||
        p->memory_create(&p->args[i].memory, p->desc[i], p->engine, data[i]) != dnnl_success)
      return 0;
  }
  if (p->any &&
      p->memory_desc_create_with_tag(&p->weight, 2, dims[1], type, dnnl_format_tag_any) != dnnl_success)
    return 0;
  if (p->matmul_primitive_desc_create(&p->matmul, p->engine, p->desc[0], p->any ? p->weight : p->desc[1],
                                      NULL, p->desc[2], NULL) != dnnl_success)
    return 0;
  if (p->any && !reorder_weight(p)) return 0;
  return p->primitive_create(&p->primitive, p->matmul) == dnnl_success;
}

static int32_t onednn_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  onednn_arm *p = arm->self;
  const char *kernel = NULL;
  if (p->set_width != NULL) p->set_width((int)p->threads);
  p->y = bench_huge_alloc((uint64_t)(m->b * m->n) * BS_DTYPE_BYTES(m->dtype));
  if (p->y == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for oneDNN's output");
  if (!make_primitive(p, m))
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-ONEDNN", "oneDNN has no %s matmul for this processor",
                        bs_dtype_name(m->dtype));
  if (p->primitive_desc_query(p->matmul, dnnl_query_impl_info_str, 0, &kernel) != dnnl_success) kernel = "";
  snprintf(arm->way, sizeof arm->way, "%s", kernel);
  return BS_OK;
}

static int32_t onednn_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  const onednn_arm *p = arm->self;
  int good = 1;
  const double start = bench_now();
  for (uint64_t i = 0; i < calls; ++i) {
    good &= p->primitive_execute(p->primitive, p->stream, 3, p->args) == dnnl_success;
    good &= p->stream_wait(p->stream) == dnnl_success;
  }
  *out_seconds = (bench_now() - start) / (double)calls;
  return good ? BS_OK : bs_error_set(err, BS_PLUGIN, "BS-BENCH-ONEDNN", "oneDNN's matmul failed");
}

static const void *onednn_output(bench_arm *arm, bs_error *err) {
  (void)err;
  return ((onednn_arm *)arm->self)->y;
}

static void onednn_release(bench_arm *arm) {
  onednn_arm *p = arm->self;
  if (p->primitive != NULL) p->primitive_destroy(p->primitive);
  if (p->matmul != NULL) p->primitive_desc_destroy(p->matmul);
  for (int i = 0; i < 3; ++i) {
    if (p->args[i].memory != NULL) p->memory_destroy(p->args[i].memory);
    if (p->desc[i] != NULL) p->memory_desc_destroy(p->desc[i]);
    p->args[i].memory = NULL;
    p->desc[i] = NULL;
  }
  if (p->weight != NULL) p->memory_desc_destroy(p->weight);
  p->primitive = NULL;
  p->matmul = NULL;
  p->weight = NULL;
  free(p->y);
  free(p->w_own);
  p->y = p->w_own = NULL;
}

/* The library stays open until the process ends: its threads may. */
static void onednn_close(bench_arm *arm) {
  onednn_arm *p = arm->self;
  onednn_release(arm);
  if (p->stream != NULL) p->stream_destroy(p->stream);
  if (p->engine != NULL) p->engine_destroy(p->engine);
  free(p);
}

int32_t bench_open_onednn(int any, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {onednn_ready, onednn_batch, onednn_output, onednn_release, onednn_close};
  void *library = dlopen(BS_DNNL_BUILD_PATH, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-ONEDNN", "%s", dlerror());
  onednn_arm *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  p->threads = o->threads;
  p->any = any;
  arm->self = p;
  arm->ops = &ops;
  if (!find_functions(library, p) || p->engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
      p->stream_create(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-ONEDNN", "oneDNN does not start");
  const dnnl_version_t *v = p->version();
  snprintf(arm->version, sizeof arm->version, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return BS_OK;
}
#else
int32_t bench_open_onednn(int any, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  (void)any, (void)o, (void)arm;
  return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-ONEDNN", "built without oneDNN (make setup)");
}
#endif
