/* SPDX-License-Identifier: MIT
 *
 * backend.h - devices, memory, streams and events of one kind of hardware.
 */
#ifndef BLOCKSHOCK_BACKEND_H
#define BLOCKSHOCK_BACKEND_H

#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of bs_backend.flags. */
enum bs_backend_flags {
  BS_BACKEND_HOST_MEMORY = 1u << 0, /* device memory is host memory: the host may read and write it */
  BS_BACKEND_SYNC = 1u << 1         /* ops finish before run returns; streams and events are trivial */
};
/* Of mem_copy: where dst and src lie. */
enum bs_copy_kind { BS_COPY_HOST_TO_DEVICE = 1, BS_COPY_DEVICE_TO_HOST = 2, BS_COPY_DEVICE_TO_DEVICE = 3 };
/* Of native_handle: which handle of the vendor's interface. */
enum bs_native_handle { BS_NATIVE_DEVICE = 1, BS_NATIVE_STREAM = 2 };

/* One device, told without opening it. */
typedef struct bs_device_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t memory_bytes; /* 0: unknown */
  char name[96];
  char detail[160]; /* ISA, driver, library versions as loaded */
  /* Since 0.6: of the last-level cache of device memory; 0: unknown. */
  uint64_t cache_bytes;
} bs_device_info;

/* What an opened device tells while it is used. 0 and "": unknown. */
typedef struct bs_device_state {
  uint32_t struct_size;
  uint32_t clock_mhz;         /* of its processors, now */
  uint64_t memory_peak_bytes; /* most that the rank's allocations held at one time */
  char held_back[96]; /* what keeps the clock down, or did since it was last asked: "power cap, heat" */
} bs_device_state;

typedef struct bs_event bs_event;
typedef struct bs_graph bs_graph;

/* Required: name, device_count, device_info, device_open, device_close, mem_alloc, mem_free, mem_copy.
 * The stream and event slots may be NULL only with BS_BACKEND_SYNC. device_count and device_info create no
 * device context. A device object is used by one rank; the same index may be opened by several ranks. */
typedef struct bs_backend {
  uint32_t struct_size;
  uint32_t flags;
  const char *name;
  const char *summary;
  int32_t (*device_count)(void *state, uint32_t *out_count, bs_error *err);
  int32_t (*device_info)(void *state, uint32_t index, bs_device_info *out_info, bs_error *err);
  /* One rank's device object. BS_UNAVAILABLE when there is no such device, or it is busy. */
  int32_t (*device_open)(void *state, uint32_t index, void **out_device, bs_error *err);
  void (*device_close)(void *device);
  /* More than 0 bytes of device memory, aligned to `align` (at least 64); it need not be cleared.
   * BS_NO_MEMORY. */
  int32_t (*mem_alloc)(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err);
  void (*mem_free)(void *device, void *ptr);
  /* kind: enum bs_copy_kind. In the order of the stream; NULL is the rank's default stream. */
  int32_t (*mem_copy)(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                      bs_stream *stream, bs_error *err);
  int32_t (*stream_create)(void *device, bs_stream **out_stream, bs_error *err);
  void (*stream_destroy)(void *device, bs_stream *stream);
  int32_t (*stream_sync)(void *device, bs_stream *stream, bs_error *err); /* reports sticky errors */
  int32_t (*event_create)(void *device, bs_event **out_event, bs_error *err);
  void (*event_destroy)(void *device, bs_event *event);
  int32_t (*event_record)(void *device, bs_event *event, bs_stream *stream, bs_error *err);
  /* Seconds of the device's clock between two events that were recorded. */
  int32_t (*event_elapsed)(void *device, bs_event *start, bs_event *stop, double *out_seconds, bs_error *err);
  /* So that others can add ops. NULL: there is none, or (of a stream) a graph is being kept. */
  void *(*native_handle)(void *device, uint32_t what, bs_stream *stream);
  /* Since 0.3, of a wrapper: a backend that is made of another, used as "wrapper:other". wrap and unwrap as
   * in bs_comm; the flags are the inner one's. The ops of the result are those of the inner backend, each by
   * wrap_op, which the host calls once an implementation: it is given what to call with which state, and
   * names the table and the state that serve in its place (`exec->device` is the wrapper's device there).
   * Names and priority stay the inner one's, and so do the slots that it lacks. What wrap_op makes ends with
   * unwrap. */
  int32_t (*wrap)(void *state, const struct bs_backend *inner, void *inner_state, void **out_state,
                  bs_error *err);
  int32_t (*wrap_op)(void *wrapped, const bs_op_impl *inner, void *inner_state, const bs_op_impl **out_impl,
                     void **out_state, bs_error *err);
  void (*unwrap)(void *wrapped);
  /* Since 0.6: rows of a source from `row` on, the columns of `cols` (NULL: all), made on the device into
   * out [rows, columns], columns adjacent, in the order of the rank's default stream, with the bits that
   * the source's `read` gives. BS_UNSUPPORTED: the host reads and copies them. Optional. */
  int32_t (*source_read)(void *device, const bs_source *source, int64_t row, const bs_partition *cols,
                         bs_tensor *out, bs_error *err);
  /* Since 0.6: the wrapper of communicators (bs_comm.wrap) that moves this backend's memory between `ranks`
   * ranks of one machine best, for who names no communicator: a name, or NULL for none. processes: the ranks
   * are processes of their own. It may open libraries, and opens no device. Optional. */
  const char *(*comm_for)(void *state, uint32_t ranks, uint32_t processes);
  /* Since 0.6: what the rank's default stream is given between graph_begin and graph_end is kept instead of
   * run; graph_run gives it to that stream again by one call, with the same addresses, as often as one
   * likes. What cannot be kept (memory that is taken, copies from and to the host, waits, events, other
   * streams) is refused with BS_UNSUPPORTED and spoils the graph, as memory that is given back does: whatever
   * comes then is refused too, until graph_end, which is BS_UNSUPPORTED and says what it was. Nothing of a
   * spoilt graph has run. One at a time a device object, all on the rank's thread. Optional, all four or
   * none. */
  int32_t (*graph_begin)(void *device, bs_error *err);
  int32_t (*graph_end)(void *device, bs_graph **out_graph, bs_error *err);
  int32_t (*graph_run)(void *device, bs_graph *graph, bs_error *err);
  void (*graph_free)(void *device, bs_graph *graph); /* once what it was given is done; NULL: nothing */
  /* Since 0.6: how the device fares; out_state comes zero-filled. May take as long as the driver likes: not
   * called while something is timed. Optional. */
  int32_t (*device_state)(void *device, bs_device_state *out_state, bs_error *err);
  /* Since 0.6: what `stream` is given from now on runs behind what `event`, recorded on any stream of the
   * device object, stands behind now; the host does not wait. With streams and events it lets started
   * collectives of device memory (BS_COLL_DEVICE) have a stream of their own. Optional. */
  int32_t (*stream_wait)(void *device, bs_stream *stream, bs_event *event, bs_error *err);
} bs_backend;

#ifdef __cplusplus
}
#endif
#endif
