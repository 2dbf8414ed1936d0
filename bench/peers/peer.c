/* SPDX-License-Identifier: MIT
 * peer.c - see peer.h. */
#include "peer.h"

#include <dlfcn.h>
#include <sched.h>

static cpu_set_t all_cores; /* of the process, before a rank's thread is bound */

static const peer_library *library_of(void *state) {
  return ((const peer *)state)->library;
}

/* ---- what is served --------------------------------------------------------------------------- */

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

static int is_dense(const bs_tensor_desc *d) {
  return d->strides[1] == 1 && d->strides[0] == d->dims[1];
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  const peer_library *l = library_of(state);
  const bs_tensor_desc *x = q->args[0], *y = q->args[3];
  const uint32_t dtype = x->dtype;
  if (q->args[1] != NULL || q->args[2] != NULL || q->activation != BS_ACT_NONE || q->partition != NULL)
    return no(answer, BS_REASON_LAYOUT, "plain products alone");
  if (y->dtype != dtype || q->weight_dtype != dtype)
    return no(answer, BS_REASON_DTYPE, "X, W and Y of one dtype alone");
  if (dtype != BS_F32 && (l->f32_only || (dtype != BS_BF16 && dtype != BS_F16)))
    return no(answer, BS_REASON_DTYPE, l->f32_only ? "f32 alone" : "f32, bf16 and f16 alone");
  if (!is_dense(x) || !is_dense(y)) return no(answer, BS_REASON_LAYOUT, "dense tensors alone");
  if ((q->flags & (BS_QUERY_TRAIN | BS_QUERY_TOKENWISE)) != 0 || q->accumulate == BS_ACC_F64)
    return no(answer, BS_REASON_NOT_BUILT, "it promises nothing of the bits");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 1;
  answer->tolerance = BS_TOL_ACC_F32;
  answer->workspace = (uint64_t)(x->dims[0] * (x->dims[1] + y->dims[1])) * BS_DTYPE_BYTES(dtype);
  if (l->workspace != NULL) answer->workspace += l->workspace(q);
  snprintf(answer->algo, sizeof answer->algo, "%s", l->name);
  return BS_OK;
}

/* ---- weights ---------------------------------------------------------------------------------- */

typedef struct packed {
  const bs_exec *exec;
  void *w;
} packed;

static void packed_free(void *opaque) {
  packed *p = opaque;
  p->exec->free(p->exec->ctx, p->w);
  p->exec->free(p->exec->ctx, p);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *q, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const uint64_t bytes = (uint64_t)(weights->rows * weights->cols) * BS_DTYPE_BYTES(q->weight_dtype);
  packed *p = exec->alloc(exec->ctx, sizeof *p);
  (void)state;
  if (p != NULL) p->w = exec->alloc(exec->ctx, bytes > 0 ? bytes : 1);
  if (p == NULL || p->w == NULL) {
    if (p != NULL) exec->free(exec->ctx, p);
    return bs_fail(err, BS_NO_MEMORY, "BS-PEER-MEMORY", "no memory for %llu bytes of weights",
                   (unsigned long long)bytes);
  }
  p->exec = exec;
  *out_bytes = bytes;
  *out_packed = p;
  const int32_t rc =
      weights->read(weights->ctx, 0, weights->rows, NULL, q->weight_dtype, p->w, weights->cols, err);
  if (rc != BS_OK) packed_free(p);
  return rc;
}

/* ---- plans ------------------------------------------------------------------------------------ */

static void plan_free(void *opaque) {
  peer_plan *p = opaque;
  p->of->library->drop(p);
  p->exec->free(p->exec->ctx, p);
}

/* A thread inherits the cores of the one that starts it, and the rank's has one. */
static int32_t make(peer_plan *p, bs_error *err) {
  const uint64_t size = BS_DTYPE_BYTES(p->dtype);
  const bs_exec *exec = p->exec;
  void *x = exec->alloc(exec->ctx, (uint64_t)(p->B * p->K) * size + 1),
       *y = exec->alloc(exec->ctx, (uint64_t)(p->B * p->N) * size + 1);
  cpu_set_t bound;
  int32_t rc =
      x != NULL && y != NULL ? BS_OK : bs_fail(err, BS_NO_MEMORY, "BS-PEER-MEMORY", "no memory for X and Y");
  const int moved = sched_getaffinity(0, sizeof bound, &bound) == 0 &&
                    sched_setaffinity(0, sizeof all_cores, &all_cores) == 0;
  if (rc == BS_OK) memset(x, 0, (size_t)(p->B * p->K) * size);
  if (rc == BS_OK) rc = p->of->library->make(p, x, y, err);
  if (moved) (void)sched_setaffinity(0, sizeof bound, &bound);
  if (x != NULL) exec->free(exec->ctx, x);
  if (y != NULL) exec->free(exec->ctx, y);
  return rc;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *weights, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  supports(state, q, &answer);
  if (answer.level == BS_LEVEL_NO) return bs_fail(err, BS_UNSUPPORTED, "BS-PEER-QUERY", "%s", answer.text);
  peer_plan *p = exec->alloc(exec->ctx, sizeof *p);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-PEER-MEMORY", "no memory for a plan");
  *p = (peer_plan){.of = state,
                   .exec = exec,
                   .w = ((const packed *)weights)->w,
                   .N = q->args[3]->dims[1],
                   .K = q->args[0]->dims[1],
                   .B = q->args[0]->dims[0],
                   .dtype = q->args[0]->dtype,
                   .knobs = q->knobs};
  const int32_t rc = make(p, err);
  p->knobs = NULL;
  if (rc != BS_OK)
    plan_free(p);
  else
    *out_plan = p;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const peer_plan *p = opaque;
  (void)nargs, (void)stream;
  if (args[0]->dims[0] != p->B)
    return bs_fail(err, BS_UNSUPPORTED, "BS-PEER-TOKENS", "%lld tokens, prepared for %lld",
                   (long long)args[0]->dims[0], (long long)p->B);
  return p->of->library->call(p, args[0]->data, args[3]->data, err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const peer_plan *p = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_word(&mine, p->of->library->knob->name, p->way);
  snprintf(mine.build, sizeof mine.build, "%s", p->build);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

/* ---- the plugin ------------------------------------------------------------------------------- */

int peer_find(void *library, const char *name, void *out) {
  void *symbol = dlsym(library, name);
  if (symbol != NULL) memcpy(out, &symbol, sizeof symbol);
  return symbol != NULL;
}

/* The library stays open until the process ends: its threads may. */
static int32_t open_library(peer *of, const bs_plugin_self *self, bs_error *err) {
  bs_value value = {.struct_size = sizeof value};
  const int32_t rc = of->host->param_get(of->host->ctx, self, "library", &value, err);
  if (rc != BS_OK) return rc;
  void *library = dlopen(value.s, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return bs_fail(err, BS_UNAVAILABLE, "BS-PEER-LIBRARY", "%s", dlerror());
  return of->library->open(library, of)
             ? BS_OK
             : bs_fail(err, BS_UNAVAILABLE, "BS-PEER-LIBRARY", "%s lacks functions", value.s);
}

int32_t peer_activate(const peer_library *library, const bs_host *host, bs_plugin_self *self,
                      void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  const bs_op_impl impl = {.struct_size = sizeof impl,
                           .op = "matmul",
                           .backend = "cpu",
                           .name = library->name,
                           .summary = library->summary,
                           .supports = supports,
                           .pack = pack,
                           .packed_free = packed_free,
                           .prepare = prepare,
                           .run = run,
                           .plan_free = plan_free,
                           .n_knobs = 1,
                           .knobs = &library->knob,
                           .echo = echo};
  const bs_param_desc file = {.struct_size = sizeof file,
                              .type = BS_PARAM_STRING,
                              .name = "library",
                              .default_text = library->file,
                              .doc = "the library's file"};
  peer *of = host->alloc(host->ctx, sizeof *of, 64);
  if (of == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-PEER-MEMORY", "no memory for a peer");
  of->host = host;
  of->library = library;
  (void)sched_getaffinity(0, sizeof all_cores, &all_cores);
  int32_t rc = host->param_define(host->ctx, self, &file, err);
  if (rc == BS_OK) rc = open_library(of, self, err);
  if (rc == BS_OK) rc = host->register_thing(host->ctx, self, BS_KIND_OP, &impl, of, &at, err);
  if (rc != BS_OK) host->free(host->ctx, of);
  *out_state = rc == BS_OK ? of : NULL;
  return rc;
}

int32_t peer_deactivate(void *state, bs_error *err) {
  peer *of = state;
  (void)err;
  if (of != NULL) of->host->free(of->host->ctx, of);
  return BS_OK;
}
