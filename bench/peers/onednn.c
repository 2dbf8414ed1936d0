/* SPDX-License-Identifier: MIT
 * onednn.c - oneDNN's matmul primitive as its user writes it, with W row after row or in the layout that
 * oneDNN chooses. */
#include <oneapi/dnnl/dnnl.h>

#include "peer.h"

typedef struct onednn {
  __typeof__(&dnnl_engine_create) engine_create;
  __typeof__(&dnnl_stream_create) stream_create;
  __typeof__(&dnnl_memory_desc_create_with_strides) memory_desc_create_with_strides;
  __typeof__(&dnnl_memory_desc_create_with_tag) memory_desc_create_with_tag;
  __typeof__(&dnnl_memory_desc_destroy) memory_desc_destroy;
  __typeof__(&dnnl_memory_desc_get_size) memory_desc_get_size;
  __typeof__(&dnnl_memory_create) memory_create;
  __typeof__(&dnnl_memory_destroy) memory_destroy;
  __typeof__(&dnnl_memory_set_data_handle) memory_set_data_handle;
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
  dnnl_engine_t engine;
  dnnl_stream_t stream;
} onednn;

static const struct {
  const char *name;
  size_t at;
} names[] = {{"dnnl_engine_create", offsetof(onednn, engine_create)},
             {"dnnl_stream_create", offsetof(onednn, stream_create)},
             {"dnnl_memory_desc_create_with_strides", offsetof(onednn, memory_desc_create_with_strides)},
             {"dnnl_memory_desc_create_with_tag", offsetof(onednn, memory_desc_create_with_tag)},
             {"dnnl_memory_desc_destroy", offsetof(onednn, memory_desc_destroy)},
             {"dnnl_memory_desc_get_size", offsetof(onednn, memory_desc_get_size)},
             {"dnnl_memory_create", offsetof(onednn, memory_create)},
             {"dnnl_memory_destroy", offsetof(onednn, memory_destroy)},
             {"dnnl_memory_set_data_handle", offsetof(onednn, memory_set_data_handle)},
             {"dnnl_matmul_primitive_desc_create", offsetof(onednn, matmul_primitive_desc_create)},
             {"dnnl_reorder_primitive_desc_create", offsetof(onednn, reorder_primitive_desc_create)},
             {"dnnl_primitive_desc_query", offsetof(onednn, primitive_desc_query)},
             {"dnnl_primitive_desc_query_md", offsetof(onednn, primitive_desc_query_md)},
             {"dnnl_primitive_desc_destroy", offsetof(onednn, primitive_desc_destroy)},
             {"dnnl_primitive_create", offsetof(onednn, primitive_create)},
             {"dnnl_primitive_destroy", offsetof(onednn, primitive_destroy)},
             {"dnnl_primitive_execute", offsetof(onednn, primitive_execute)},
             {"dnnl_stream_wait", offsetof(onednn, stream_wait)},
             {"dnnl_version", offsetof(onednn, version)}};

/* X, W and Y. */
enum { X, W, Y, TENSORS };
typedef struct product {
  dnnl_memory_desc_t desc[TENSORS];
  dnnl_primitive_desc_t matmul;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[TENSORS];
  void *w; /* in oneDNN's layout; NULL: as it is */
} product;

static const bs_knob weights_knob = {sizeof(bs_knob), 0,       "weights",
                                     "plain,any",     "plain", "any: in the layout that oneDNN chooses"};

static const onednn *functions(const peer *of) {
  return (const onednn *)of->functions;
}

static int is_any(const char *knobs) {
  char value[8];
  return bs_knob_find(knobs, "weights", value, sizeof value) && strcmp(value, "any") == 0;
}

static int open_onednn(void *library, peer *of) {
  onednn *f = (onednn *)of->functions;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (!peer_find(library, names[i].name, (char *)f + names[i].at)) return 0;
  (void)peer_find(library, "omp_set_num_threads", &f->set_width);
  return f->engine_create(&f->engine, dnnl_cpu, 0) == dnnl_success &&
         f->stream_create(&f->stream, f->engine, dnnl_stream_default_flags) == dnnl_success;
}

/* A copy in another layout is, with AMX, up to twice as large. */
static uint64_t workspace(const bs_op_query *q) {
  return is_any(q->knobs)
             ? 2 * (uint64_t)(q->args[0]->dims[1] * q->args[3]->dims[1]) * BS_DTYPE_BYTES(q->weight_dtype)
             : 0;
}

static int run_now(const onednn *f, dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *args) {
  return f->primitive_execute(primitive, f->stream, n, args) == dnnl_success &&
         f->stream_wait(f->stream) == dnnl_success;
}

/* W in the layout that the primitive wants, in args[W]. */
static int reorder_weight(peer_plan *p, product *m) {
  const onednn *f = functions(p->of);
  const_dnnl_memory_desc_t wanted = f->primitive_desc_query_md(m->matmul, dnnl_query_weights_md, 0);
  dnnl_primitive_desc_t desc = NULL;
  dnnl_primitive_t reorder = NULL;
  dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, m->args[W].memory}, {DNNL_ARG_TO, NULL}};
  m->w = wanted != NULL ? p->exec->alloc(p->exec->ctx, f->memory_desc_get_size(wanted)) : NULL;
  const int good = m->w != NULL &&
                   f->memory_create(&args[1].memory, wanted, f->engine, m->w) == dnnl_success &&
                   f->reorder_primitive_desc_create(&desc, m->desc[W], f->engine, wanted, f->engine, NULL) ==
                       dnnl_success &&
                   f->primitive_create(&reorder, desc) == dnnl_success && run_now(f, reorder, 2, args);
  if (reorder != NULL) (void)f->primitive_destroy(reorder);
  if (desc != NULL) (void)f->primitive_desc_destroy(desc);
  (void)f->memory_destroy(m->args[W].memory);
  m->args[W].memory = args[1].memory;
  return good;
}

static int make_primitive(peer_plan *p, product *m, void *x, void *y) {
  const onednn *f = functions(p->of);
  const int any = is_any(p->knobs);
  const dnnl_data_type_t type = p->dtype == BS_BF16 ? dnnl_bf16 : p->dtype == BS_F16 ? dnnl_f16 : dnnl_f32;
  const dnnl_dims_t dims[TENSORS] = {{p->B, p->K}, {p->K, p->N}, {p->B, p->N}};
  const dnnl_dims_t strides[TENSORS] = {{p->K, 1}, {1, p->K}, {p->N, 1}};
  static const int roles[TENSORS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  void *const data[TENSORS] = {x, (void *)(uintptr_t)p->w, y};
  dnnl_memory_desc_t chosen = NULL;
  for (int i = 0; i < TENSORS; i++) {
    m->args[i].arg = roles[i];
    if (f->memory_desc_create_with_strides(&m->desc[i], 2, dims[i], type, strides[i]) != dnnl_success ||
        f->memory_create(&m->args[i].memory, m->desc[i], f->engine, data[i]) != dnnl_success)
      return 0;
  }
  if (any && f->memory_desc_create_with_tag(&chosen, 2, dims[W], type, dnnl_format_tag_any) != dnnl_success)
    return 0;
  const int good =
      f->matmul_primitive_desc_create(&m->matmul, f->engine, m->desc[X], any ? chosen : m->desc[W], NULL,
                                      m->desc[Y], NULL) == dnnl_success;
  if (chosen != NULL) (void)f->memory_desc_destroy(chosen);
  return good && (!any || reorder_weight(p, m)) &&
         f->primitive_create(&m->primitive, m->matmul) == dnnl_success &&
         run_now(f, m->primitive, TENSORS, m->args);
}

static int32_t make(peer_plan *p, void *x, void *y, bs_error *err) {
  const onednn *f = functions(p->of);
  const char *kernel = NULL;
  product *m = p->own = p->exec->alloc(p->exec->ctx, sizeof *m);
  if (m == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-PEER-MEMORY", "no memory for a product");
  memset(m, 0, sizeof *m);
  if (f->set_width != NULL) f->set_width((int)p->exec->width);
  if (!make_primitive(p, m, x, y))
    return bs_fail(err, BS_UNSUPPORTED, "BS-PEER-QUERY", "oneDNN has no such matmul for this processor");
  if (f->primitive_desc_query(m->matmul, dnnl_query_impl_info_str, 0, &kernel) != dnnl_success) kernel = "";
  const dnnl_version_t *v = f->version();
  snprintf(p->build, sizeof p->build, "oneDNN %d.%d.%d (%.40s)", v->major, v->minor, v->patch, kernel);
  snprintf(p->way, sizeof p->way, "%s", m->w != NULL ? "any" : "plain");
  return BS_OK;
}

static int32_t call(const peer_plan *p, void *x, void *y, bs_error *err) {
  const onednn *f = functions(p->of);
  const product *m = p->own;
  return f->memory_set_data_handle(m->args[X].memory, x) == dnnl_success &&
                 f->memory_set_data_handle(m->args[Y].memory, y) == dnnl_success &&
                 run_now(f, m->primitive, TENSORS, m->args)
             ? BS_OK
             : bs_fail(err, BS_PLUGIN, "BS-PEER-RUN", "oneDNN's matmul failed");
}

static void drop(peer_plan *p) {
  const onednn *f = functions(p->of);
  product *m = p->own;
  if (m == NULL) return;
  if (m->primitive != NULL) (void)f->primitive_destroy(m->primitive);
  if (m->matmul != NULL) (void)f->primitive_desc_destroy(m->matmul);
  for (int i = 0; i < TENSORS; i++) {
    if (m->args[i].memory != NULL) (void)f->memory_destroy(m->args[i].memory);
    if (m->desc[i] != NULL) (void)f->memory_desc_destroy(m->desc[i]);
  }
  if (m->w != NULL) p->exec->free(p->exec->ctx, m->w);
  p->exec->free(p->exec->ctx, m);
}

static const peer_library library = {.name = "onednn",
                                     .summary = "oneDNN's matmul primitive",
                                     .file = PEER_FILE,
                                     .knob = &weights_knob,
                                     .workspace = workspace,
                                     .open = open_onednn,
                                     .make = make,
                                     .call = call,
                                     .drop = drop};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  return peer_activate(&library, host, self, out_state, err);
}

BS_PLUGIN_DEFINE("onednn", BS_PLUGIN_VERSION, "products by oneDNN", 1u << BS_KIND_OP, "op:matmul@cpu\n",
                 activate, peer_deactivate)
