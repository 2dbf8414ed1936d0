/* SPDX-License-Identifier: MIT
 *
 * backend.c - the wrapped backend: devices, memory, streams and events. The plugin cannot end a hang here, as
 * with a real device: the host abandons the rank when another has noticed the hang. */
#include <errno.h>
#include <time.h>

#include "device.h"

#define HANG_NS INT64_C(600000000000)

static void sleep_for(int64_t ns) {
  struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

int32_t wrap_device_before(wrap_device *d, uint32_t op, const char *site, uint32_t *out_what, bs_error *err) {
  int64_t ns = 0;
  char name[40];
  const wrap_step *s = wrap_next(d->w->plugin, &d->w->plan, &d->calls, op, &ns);
  *out_what = s != NULL ? s->what : (uint32_t)WRAP_DO_COUNT_;
  if (ns > 0) sleep_for(ns);
  if (s == NULL) return BS_OK;
  if (s->what == WRAP_ERR) return wrap_fail(d->w->plugin, &d->calls, op, site, err);
  if (s->what == WRAP_KILL || s->what == WRAP_STOP) wrap_signal(s->what);
  if (s->what != WRAP_HANG) return BS_OK;
  sleep_for(HANG_NS);
  return bs_fail(err, BS_DEADLINE, "BS-WRAP-HANG", "an injected hang of rank %lld in %s ended by itself",
                 (long long)d->calls.rank, wrap_op_name(op, name));
}

static int32_t settle(const wrap_device *d, bs_stream *stream, bs_error *err) {
  const bs_backend *inner = d->w->inner;
  return inner->stream_sync != NULL ? inner->stream_sync(d->inner, stream, err) : BS_OK;
}

int32_t wrap_device_change(wrap_device *d, uint32_t op, uint32_t what, uint32_t dtype, void *element,
                           bs_stream *stream, bs_error *err) {
  const bs_backend *inner = d->w->inner;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  uint64_t room = 0; /* one element of any dtype */
  int32_t rc = settle(d, stream, err);
  if (rc == BS_OK) rc = inner->mem_copy(d->inner, &room, element, size, BS_COPY_DEVICE_TO_HOST, stream, err);
  if (rc == BS_OK) rc = settle(d, stream, err);
  if (rc != BS_OK) return rc;
  if (!wrap_change(d->w->plugin, what, dtype, &room)) {
    wrap_warn_empty(d->w->plugin, &d->calls, op, what);
    return BS_OK;
  }
  rc = inner->mem_copy(d->inner, element, &room, size, BS_COPY_HOST_TO_DEVICE, stream, err);
  return rc == BS_OK ? settle(d, stream, err) : rc;
}

static int32_t no_memory(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-WRAP-MEMORY", "no memory to wrap a backend");
}

static int32_t backend_wrap(void *state, const bs_backend *inner, void *inner_state, void **out_state,
                            bs_error *err) {
  const wrap_plugin *plugin = state;
  wrap_backend_state *w = plugin->host->alloc(plugin->host->ctx, sizeof *w, 64);
  if (w == NULL) return no_memory(err);
  w->plugin = plugin;
  w->inner = inner;
  w->inner_state = inner_state;
  const int32_t rc = wrap_read_plan(plugin, &w->plan, err);
  if (rc != BS_OK) {
    plugin->host->free(plugin->host->ctx, w);
    return rc;
  }
  *out_state = w;
  return BS_OK;
}

static void backend_unwrap(void *wrapped) {
  wrap_backend_state *w = wrapped;
  const bs_host *host = w->plugin->host;
  wrap_ops_free(w);
  host->free(host->ctx, w);
}

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  const wrap_backend_state *w = state;
  return w->inner->device_count(w->inner_state, out_count, err);
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  const wrap_backend_state *w = state;
  return w->inner->device_info(w->inner_state, index, out_info, err);
}

static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  const wrap_backend_state *w = state;
  const bs_host *host = w->plugin->host;
  wrap_device *d = host->alloc(host->ctx, sizeof *d, 64);
  if (d == NULL) return no_memory(err);
  d->w = w;
  d->calls.rank = BS_HOST_HAS(host, rank_of_thread) ? host->rank_of_thread(host->ctx) : -1;
  const int32_t rc = w->inner->device_open(w->inner_state, index, &d->inner, err);
  if (rc != BS_OK) {
    host->free(host->ctx, d);
    return rc;
  }
  atomic_store(&d->w->plugin->reach->used, 1u);
  *out_device = d;
  return BS_OK;
}

static void device_close(void *device) {
  wrap_device *d = device;
  if (d == NULL) return;
  const bs_host *host = d->w->plugin->host;
  wrap_tell_counts(d->w->plugin, &d->calls);
  d->w->inner->device_close(d->inner);
  host->free(host->ctx, d);
}

static int32_t mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  wrap_device *d = device;
  uint32_t what;
  const int32_t rc = wrap_device_before(d, WRAP_OP_ALLOC, NULL, &what, err);
  if (rc != BS_OK) return rc;
  return d->w->inner->mem_alloc(d->inner, bytes, align, out_ptr, err);
}

static void mem_free(void *device, void *ptr) {
  const wrap_device *d = device;
  d->w->inner->mem_free(d->inner, ptr);
}

static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  wrap_device *d = device;
  uint32_t what;
  int32_t rc = wrap_device_before(d, WRAP_OP_COPY, NULL, &what, err);
  if (rc != BS_OK) return rc;
  if (what == WRAP_TRUNCATE && bytes > 0) bytes--;
  rc = d->w->inner->mem_copy(d->inner, dst, src, bytes, kind, stream, err);
  if (rc != BS_OK || what != WRAP_FLIP || bytes == 0) return rc;
  unsigned char *byte = (unsigned char *)dst + (bytes > 3 ? 3 : bytes - 1);
  if (kind != BS_COPY_DEVICE_TO_HOST)
    return wrap_device_change(d, WRAP_OP_COPY, what, BS_U8, byte, stream, err);
  rc = settle(d, stream, err);
  *byte ^= 0x40u;
  return rc;
}

static int32_t has_none(const wrap_device *d, const char *what, bs_error *err) {
  return bs_fail(err, BS_UNSUPPORTED, "BS-WRAP-SLOT", "backend %s has no %s", d->w->inner->name, what);
}

static int32_t stream_create(void *device, bs_stream **out_stream, bs_error *err) {
  const wrap_device *d = device;
  if (d->w->inner->stream_create == NULL) return has_none(d, "streams", err);
  return d->w->inner->stream_create(d->inner, out_stream, err);
}

static void stream_destroy(void *device, bs_stream *stream) {
  const wrap_device *d = device;
  d->w->inner->stream_destroy(d->inner, stream);
}

static int32_t stream_sync(void *device, bs_stream *stream, bs_error *err) {
  wrap_device *d = device;
  uint32_t what;
  const int32_t rc = wrap_device_before(d, WRAP_OP_SYNC, NULL, &what, err);
  return rc != BS_OK ? rc : d->w->inner->stream_sync(d->inner, stream, err);
}

static int32_t event_create(void *device, bs_event **out_event, bs_error *err) {
  const wrap_device *d = device;
  if (d->w->inner->event_create == NULL) return has_none(d, "events", err);
  return d->w->inner->event_create(d->inner, out_event, err);
}

static void event_destroy(void *device, bs_event *event) {
  const wrap_device *d = device;
  d->w->inner->event_destroy(d->inner, event);
}

static int32_t event_record(void *device, bs_event *event, bs_stream *stream, bs_error *err) {
  wrap_device *d = device;
  uint32_t what;
  const int32_t rc = wrap_device_before(d, WRAP_OP_EVENT, NULL, &what, err);
  return rc != BS_OK ? rc : d->w->inner->event_record(d->inner, event, stream, err);
}

static int32_t event_elapsed(void *device, bs_event *start, bs_event *stop, double *out_seconds,
                             bs_error *err) {
  const wrap_device *d = device;
  return d->w->inner->event_elapsed(d->inner, start, stop, out_seconds, err);
}

static void *native_handle(void *device, uint32_t what, bs_stream *stream) {
  const wrap_device *d = device;
  return d->w->inner->native_handle(d->inner, what, stream);
}

/* A copy to the device, like any other. */
static int32_t source_read(void *device, const bs_source *source, int64_t row, const bs_partition *cols,
                           bs_tensor *out, bs_error *err) {
  wrap_device *d = device;
  uint32_t what;
  const int32_t rc = wrap_device_before(d, WRAP_OP_COPY, NULL, &what, err);
  if (rc != BS_OK) return rc;
  if (what == WRAP_TRUNCATE || what == WRAP_FLIP) /* the host's way knows how */
    return bs_fail(err, BS_UNSUPPORTED, "BS-WRAP-SLOT", "a fault of a copy needs a copy");
  return d->w->inner->source_read(d->inner, source, row, cols, out, err);
}

static int32_t device_state(void *device, bs_device_state *out_state, bs_error *err) {
  const wrap_device *d = device;
  return d->w->inner->device_state(d->inner, out_state, err);
}

const bs_backend wrap_backend_table = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_elapsed = event_elapsed,
    .native_handle = native_handle,
    .wrap = backend_wrap,
    .wrap_op = wrap_op_make,
    .unwrap = backend_unwrap,
    .source_read = source_read,
    .device_state = device_state,
};
