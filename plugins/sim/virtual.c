/* SPDX-License-Identifier: MIT
 * virtual.c - the wrapper "virtual:other": values and kernels of the other backend, and the times of the
 * simulated device. An op runs on the stack of who drives the world, and its cost goes to the rank's stream,
 * as backend sim charges it. The other backend's own streams are not used. */
#include "world.h"

typedef struct virtual_op virtual_op;

typedef struct virtual_backend {
  sim_plugin *plugin;
  const bs_backend *inner;
  void *inner_state;
  virtual_op *ops;
} virtual_backend;

struct virtual_op {
  virtual_op *next;
  const virtual_backend *backend;
  const bs_op_impl *inner;
  void *inner_state;
};

typedef struct virtual_device {
  const virtual_backend *backend;
  sim_rank *rank; /* of the world that is driven, or `own` */
  void *inner;
  sim_rank own;
} virtual_device;

/* A packed weight or a plan. The inner one keeps a pointer to exec. */
typedef struct virtual_object {
  const virtual_op *op;
  virtual_device *device;
  void *inner;
  bs_exec exec;
  sim_costing costing; /* of a plan */
} virtual_object;

static int32_t no_memory(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory to wrap a backend");
}

static int32_t backend_wrap(void *state, const bs_backend *inner, void *inner_state, void **out_state,
                            bs_error *err) {
  sim_plugin *plugin = state;
  if ((inner->flags & BS_BACKEND_PHANTOM) != 0 || (inner->flags & BS_BACKEND_SYNC) == 0 ||
      (inner->flags & BS_BACKEND_HOST_MEMORY) == 0) {
    bs_fail(err, BS_UNSUPPORTED, "BS-SIM-VIRTUAL",
            "virtual:%s: a backend whose ops work on host memory and are done when they return is needed",
            inner->name);
    return bs_fail_hint(err, "virtual:ref or virtual:cpu");
  }
  virtual_backend *b = plugin->host->alloc(plugin->host->ctx, sizeof *b, 64);
  if (b == NULL) return no_memory(err);
  b->plugin = plugin;
  b->inner = inner;
  b->inner_state = inner_state;
  *out_state = b;
  return BS_OK;
}

static void backend_unwrap(void *wrapped) {
  virtual_backend *b = wrapped;
  const bs_host *host = b->plugin->host;
  while (b->ops != NULL) {
    virtual_op *next = b->ops->next;
    host->free(host->ctx, b->ops);
    b->ops = next;
  }
  host->free(host->ctx, b);
}

/* ---- the device -------------------------------------------------------------------------------- */

/* One device for each rank of a world: they share the inner backend's devices. */
static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = SIM_MAX_RANKS;
  return BS_OK;
}

static uint32_t inner_index(const virtual_backend *b, uint32_t index) {
  uint32_t count = 0;
  return b->inner->device_count(b->inner_state, &count, NULL) == BS_OK && count > 0 ? index % count : index;
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  const virtual_backend *b = state;
  if (index >= SIM_MAX_RANKS)
    return bs_fail(err, BS_UNAVAILABLE, "BS-SIM-DEVICE", "device %u asked, a virtual backend has %u", index,
                   SIM_MAX_RANKS);
  return b->inner->device_info(b->inner_state, inner_index(b, index), out_info, err);
}

static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  const virtual_backend *b = state;
  const bs_host *host = b->plugin->host;
  virtual_device *d = host->alloc(host->ctx, sizeof *d, 64);
  if (d == NULL) return no_memory(err);
  d->backend = b;
  d->own.plugin = b->plugin;
  d->rank = sim_rank_now(b->plugin);
  if (d->rank == NULL) d->rank = &d->own;
  const int32_t rc = b->inner->device_open(b->inner_state, inner_index(b, index), &d->inner, err);
  if (rc != BS_OK) {
    host->free(host->ctx, d);
    return rc;
  }
  *out_device = d;
  return BS_OK;
}

static void device_close(void *device) {
  virtual_device *d = device;
  if (d == NULL) return;
  d->backend->inner->device_close(d->inner);
  sim_blocks_free(d->rank);
  d->backend->plugin->host->free(d->backend->plugin->host->ctx, d);
}

static int32_t mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  const virtual_device *d = device;
  int32_t rc = sim_room(d->rank, bytes, err);
  if (rc == BS_OK) rc = d->backend->inner->mem_alloc(d->inner, bytes, align, out_ptr, err);
  if (rc != BS_OK) return rc;
  rc = sim_block_add(d->rank, (uint64_t)(uintptr_t)*out_ptr, bytes, err);
  if (rc != BS_OK) d->backend->inner->mem_free(d->inner, *out_ptr);
  return rc;
}

static void mem_free(void *device, void *ptr) {
  const virtual_device *d = device;
  sim_block_drop(d->rank, (uint64_t)(uintptr_t)ptr);
  d->backend->inner->mem_free(d->inner, ptr);
}

static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  const virtual_device *d = device;
  return d->backend->inner->mem_copy(d->inner, dst, src, bytes, kind, stream, err);
}

/* ---- ops --------------------------------------------------------------------------------------- */

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out) {
  const virtual_op *op = state;
  return op->inner->supports(op->inner_state, query, out);
}

/* A call of the inner implementation, on the stack of who drives the world. */
typedef struct inner_call {
  const virtual_op *op;
  virtual_object *object;
  const bs_op_query *query;
  const bs_source *weights;
  void *packed;
  uint64_t *out_bytes;
  bs_tensor *const *args;
  uint32_t nargs;
  bs_error *err;
  int32_t rc;
} inner_call;

static void on_main(const virtual_device *d, void (*fn)(void *arg), inner_call *call) {
  if (d->rank->world != NULL && d->rank->world->coroutines != NULL)
    sim_on_main(d->rank->world->coroutines, fn, call);
  else
    fn(call);
}

static void do_pack(void *arg) {
  inner_call *c = arg;
  c->rc = c->op->inner->pack(c->op->inner_state, &c->object->exec, c->query, c->weights, &c->object->inner,
                             c->out_bytes, c->err);
}

static void do_prepare(void *arg) {
  inner_call *c = arg;
  c->rc = c->op->inner->prepare(c->op->inner_state, &c->object->exec, c->query, c->packed, &c->object->inner,
                                c->err);
}

static void do_run(void *arg) {
  inner_call *c = arg;
  c->rc = c->op->inner->run(c->object->inner, c->args, c->nargs, NULL, c->err);
}

static virtual_object *object_make(const virtual_op *op, const bs_exec *exec, bs_error *err) {
  const bs_host *host = op->backend->plugin->host;
  virtual_object *o = host->alloc(host->ctx, sizeof *o, 64);
  if (o == NULL) {
    (void)no_memory(err);
    return NULL;
  }
  o->op = op;
  o->device = exec->device;
  memcpy(&o->exec, exec, exec->struct_size < sizeof o->exec ? exec->struct_size : sizeof o->exec);
  o->exec.device = o->device->inner;
  return o;
}

static void object_free(virtual_object *o) {
  const bs_host *host = o->op->backend->plugin->host;
  if (o->costing.plugin != NULL) sim_costing_free(&o->costing);
  host->free(host->ctx, o);
}

/* The other backend's implementation does not know why the device had no memory for it. */
static int32_t settled(const virtual_object *o, int32_t rc, bs_error *err) {
  const sim_rank *rank = o->device->rank;
  return rc != BS_OK && rank->bytes_refused > 0 ? sim_full(rank, err) : rc;
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  virtual_object *o = object_make(state, exec, err);
  if (o == NULL) return BS_NO_MEMORY;
  inner_call call = {
      .op = state, .object = o, .query = query, .weights = weights, .out_bytes = out_bytes, .err = err};
  o->device->rank->bytes_refused = 0;
  on_main(o->device, do_pack, &call);
  call.rc = settled(o, call.rc, err);
  if (call.rc != BS_OK)
    object_free(o);
  else
    *out_packed = o;
  return call.rc;
}

static int32_t packed_update(void *packed, const bs_tensor *delta, bs_error *err) {
  const virtual_object *o = packed;
  return o->op->inner->packed_update(o->inner, delta, err);
}

static int32_t packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const virtual_object *o = packed;
  return o->op->inner->packed_read(o->inner, row, out, err);
}

static void packed_free(void *packed) {
  virtual_object *o = packed;
  if (o == NULL) return;
  o->op->inner->packed_free(o->inner);
  object_free(o);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const virtual_op *op = state;
  virtual_object *o = object_make(op, exec, err);
  if (o == NULL) return BS_NO_MEMORY;
  inner_call call = {.op = op,
                     .object = o,
                     .query = query,
                     .packed = packed != NULL ? ((virtual_object *)packed)->inner : NULL,
                     .err = err};
  o->device->rank->bytes_refused = 0;
  call.rc = sim_costing_make(&o->costing, op->backend->plugin, query, err);
  if (call.rc == BS_OK) on_main(o->device, do_prepare, &call);
  call.rc = settled(o, call.rc, err);
  if (call.rc != BS_OK)
    object_free(o);
  else
    *out_plan = o;
  return call.rc;
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  virtual_object *o = plan;
  inner_call call = {.op = o->op, .object = o, .args = args, .nargs = nargs, .err = err};
  (void)stream;
  on_main(o->device, do_run, &call);
  if (call.rc != BS_OK) return call.rc;
  return sim_costing_charge(&o->costing, o->device->rank, args, nargs, &o->device->rank->stream, err);
}

static void plan_free(void *plan) {
  virtual_object *o = plan;
  if (o == NULL) return;
  o->op->inner->plan_free(o->inner);
  object_free(o);
}

static const bs_op_impl op_table = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .supports = supports,
    .pack = pack,
    .packed_update = packed_update,
    .packed_read = packed_read,
    .packed_free = packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};

static int32_t wrap_op(void *wrapped, const bs_op_impl *inner, void *inner_state, const bs_op_impl **out_impl,
                       void **out_state, bs_error *err) {
  virtual_backend *b = wrapped;
  virtual_op *op = b->plugin->host->alloc(b->plugin->host->ctx, sizeof *op, 64);
  if (op == NULL) return no_memory(err);
  op->backend = b;
  op->inner = inner;
  op->inner_state = inner_state;
  op->next = b->ops;
  b->ops = op;
  *out_impl = &op_table;
  *out_state = op;
  return BS_OK;
}

const bs_src_loc sim_virtual_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_backend sim_virtual = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .flags = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC,
    .name = "virtual",
    .summary = "another backend's values with the times of a simulated device",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
    .wrap = backend_wrap,
    .wrap_op = wrap_op,
    .unwrap = backend_unwrap,
};
