/* SPDX-License-Identifier: MIT
 *
 * op.c - an op of the wrapped backend: the inner implementation with the inner device in its exec. Answers,
 * packed weights and plans are the inner one's.
 */
#include "device.h"

struct wrap_op_state {
  wrap_op_state *next;
  const wrap_backend_state *w;
  const bs_op_impl *inner;
  void *inner_state;
  uint32_t number; /* of its run: enum wrap_op */
};

/* A packed weight or a plan. The inner one keeps a pointer to exec. */
typedef struct wrap_object {
  const wrap_op_state *op;
  wrap_device *device;
  void *inner;
  bs_exec exec;
} wrap_object;

int32_t wrap_op_make(void *wrapped, const bs_op_impl *inner, void *inner_state, const bs_op_impl **out_impl,
                     void **out_state, bs_error *err) {
  wrap_backend_state *w = wrapped;
  const bs_host *host = w->plugin->host;
  wrap_op_state *op = host->alloc(host->ctx, sizeof *op, 64);
  if (op == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-WRAP-MEMORY", "no memory to wrap an op");
  op->w = w;
  op->inner = inner;
  op->inner_state = inner_state;
  op->number = wrap_op_of(inner->op, WRAP_RUN);
  op->next = w->ops;
  w->ops = op;
  *out_impl = &wrap_op_table;
  *out_state = op;
  return BS_OK;
}

void wrap_ops_free(wrap_backend_state *w) {
  const bs_host *host = w->plugin->host;
  while (w->ops != NULL) {
    wrap_op_state *next = w->ops->next;
    host->free(host->ctx, w->ops);
    w->ops = next;
  }
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  const wrap_op_state *op = state;
  return op->inner->supports(op->inner_state, query, out_answer);
}

static wrap_object *object_make(const wrap_op_state *op, const bs_exec *exec, bs_error *err) {
  const bs_host *host = op->w->plugin->host;
  wrap_object *o = host->alloc(host->ctx, sizeof *o, 64);
  if (o == NULL) {
    bs_fail(err, BS_NO_MEMORY, "BS-WRAP-MEMORY", "no memory to wrap an op");
    return NULL;
  }
  o->op = op;
  o->device = exec->device;
  memcpy(&o->exec, exec, exec->struct_size < sizeof o->exec ? exec->struct_size : sizeof o->exec);
  o->exec.device = o->device->inner;
  return o;
}

static void object_free(wrap_object *o) {
  const bs_host *host = o->op->w->plugin->host;
  host->free(host->ctx, o);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const wrap_op_state *op = state;
  uint32_t what;
  int32_t rc = wrap_device_before(exec->device, op->number + WRAP_PACK, op->inner->name, &what, err);
  if (rc != BS_OK) return rc;
  wrap_object *o = object_make(op, exec, err);
  if (o == NULL) return BS_NO_MEMORY;
  rc = op->inner->pack(op->inner_state, &o->exec, query, weights, &o->inner, out_bytes, err);
  if (rc != BS_OK)
    object_free(o);
  else
    *out_packed = o;
  return rc;
}

static int32_t packed_update(void *packed, const bs_tensor *delta, bs_error *err) {
  const wrap_object *o = packed;
  return o->op->inner->packed_update(o->inner, delta, err);
}

static int32_t packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const wrap_object *o = packed;
  return o->op->inner->packed_read(o->inner, row, out, err);
}

static void packed_free(void *packed) {
  wrap_object *o = packed;
  if (o == NULL) return;
  o->op->inner->packed_free(o->inner);
  object_free(o);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const wrap_op_state *op = state;
  uint32_t what;
  int32_t rc = wrap_device_before(exec->device, op->number + WRAP_PREPARE, op->inner->name, &what, err);
  if (rc != BS_OK) return rc;
  wrap_object *o = object_make(op, exec, err);
  if (o == NULL) return BS_NO_MEMORY;
  void *inner =
      packed != NULL ? ((wrap_object *)packed)->inner : NULL; /* the host pairs wrapped with wrapped */
  rc = op->inner->prepare(op->inner_state, &o->exec, query, inner, &o->inner, err);
  if (rc != BS_OK)
    object_free(o);
  else
    *out_plan = o;
  return rc;
}

static void plan_free(void *plan) {
  wrap_object *o = plan;
  if (o == NULL) return;
  o->op->inner->plan_free(o->inner);
  object_free(o);
}

static int32_t echo(const void *plan, bs_op_echo *out_echo) {
  const wrap_object *o = plan;
  return o->op->inner->echo(o->inner, out_echo);
}

static int ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* The last arg that is there: of every op it is written. */
static const bs_tensor *last_of(bs_tensor *const *args, uint32_t nargs) {
  while (nargs > 0 && args[nargs - 1] == NULL) nargs--;
  return nargs > 0 ? args[nargs - 1] : NULL;
}

/* One row less of the result: of every arg that has as many. */
static int32_t run_short(const wrap_object *o, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                         bs_error *err) {
  bs_tensor copies[BS_MAX_OP_ARGS];
  bs_tensor *changed[BS_MAX_OP_ARGS];
  const bs_tensor *out = nargs <= BS_MAX_OP_ARGS ? last_of(args, nargs) : NULL;
  const int rows_are_tokens = !ends_with(o->op->inner->op, "_dw") && !ends_with(o->op->inner->op, "_update");
  if (out == NULL || out->rank != 2 || out->dims[0] == 0 || !rows_are_tokens) {
    wrap_warn_empty(o->device->w->plugin, &o->device->calls, o->op->number, WRAP_TRUNCATE);
    return o->op->inner->run(o->inner, args, nargs, stream, err);
  }
  for (uint32_t i = 0; i < nargs; ++i) {
    changed[i] = args[i];
    if (args[i] == NULL || args[i]->rank != 2 || args[i]->dims[0] != out->dims[0]) continue;
    copies[i] = *args[i];
    copies[i].dims[0]--;
    changed[i] = &copies[i];
  }
  return o->op->inner->run(o->inner, changed, nargs, stream, err);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const wrap_object *o = plan;
  const wrap_op_state *op = o->op;
  uint32_t what;
  int32_t rc = wrap_device_before(o->device, op->number, op->inner->name, &what, err);
  if (rc != BS_OK) return rc;
  if (what == WRAP_TRUNCATE) return run_short(o, args, nargs, stream, err);
  rc = op->inner->run(o->inner, args, nargs, stream, err);
  if (rc != BS_OK || what == WRAP_DO_COUNT_) return rc;
  const bs_tensor *out = last_of(args, nargs);
  uint64_t n = out != NULL ? 1 : 0;
  for (uint32_t i = 0; out != NULL && i < out->rank; ++i) n *= (uint64_t)out->dims[i];
  if (n > 0 && !ends_with(op->inner->op, "_update"))
    return wrap_device_change(o->device, op->number, what, out->dtype, out->data, stream, err);
  wrap_warn_empty(o->device->w->plugin, &o->device->calls, op->number, what);
  return BS_OK;
}

const bs_op_impl wrap_op_table = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .supports = supports,
    .pack = pack,
    .packed_update = packed_update,
    .packed_read = packed_read,
    .packed_free = packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .echo = echo,
};
