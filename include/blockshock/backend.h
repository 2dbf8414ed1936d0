/* SPDX-License-Identifier: MIT
 *
 * backend.h - devices, memory, streams, events and graphs of one kind of hardware. A backend plugin fills a
 * bs_backend; the host calls it.
 *
 * Units: sizes and alignments are in bytes, times in seconds, clocks in MHz.
 * Ownership: the host destroys what a backend has made (memory, streams, events, captures) by the function
 * that belongs to it, and closes the device last.
 * Threads: device_count, device_info and comm_for may be called from any thread. A device object is used by
 * one rank: on its thread, and for started collectives on its thread for collectives.
 * Errors: functions return an enum bs_status and fill err. A device error that comes late is returned by the
 * next call that waits.
 */
#ifndef BLOCKSHOCK_BACKEND_H
#define BLOCKSHOCK_BACKEND_H

#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of bs_backend.flags. */
enum bs_backend_flags {
  BS_BACKEND_HOST_MEMORY = 1u << 0, /* device memory is host memory: the host may read and write it */
  BS_BACKEND_SYNC = 1u << 1,        /* an op's run returns when the op is done; no streams are needed */
  /* Since 0.8: memory holds no values. mem_alloc hands out addresses that nothing reads or writes, mem_copy
   * and ops move and compute nothing, and only take time. Never with BS_BACKEND_HOST_MEMORY. */
  BS_BACKEND_PHANTOM = 1u << 2
};
/* The kind of a mem_copy: where src and dst lie. */
enum bs_copy_kind { BS_COPY_HOST_TO_DEVICE = 1, BS_COPY_DEVICE_TO_HOST = 2, BS_COPY_DEVICE_TO_DEVICE = 3 };
/* The handle of the vendor's interface that native_handle is asked for. */
enum bs_native_handle { BS_NATIVE_DEVICE = 1, BS_NATIVE_STREAM = 2 };

/* One device, described without opening it. */
typedef struct bs_device_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t memory_bytes; /* 0: unknown */
  char name[96];
  char detail[160]; /* ISA, driver, library versions as loaded */
  /* Since 0.6: size of the last-level cache of device memory; 0: unknown. */
  uint64_t cache_bytes;
} bs_device_info;

/* The state that an opened device reports while it is in use. 0 and "" mean unknown. */
typedef struct bs_device_state {
  uint32_t struct_size;
  uint32_t clock_mhz;         /* its processors' clock now */
  uint64_t memory_peak_bytes; /* most that the rank had allocated at one time */
  char held_back[96];         /* what lowers the clock, now or since the last call: "power cap, heat" */
} bs_device_state;

typedef struct bs_event bs_event;
typedef struct bs_capture bs_capture;

/* Required: name, device_count, device_info, device_open, device_close, mem_alloc, mem_free, mem_copy.
 * The stream and event slots may be NULL only with BS_BACKEND_SYNC. device_count and device_info create no
 * device context. One rank uses a device object; several ranks may open the same index. A NULL stream is the
 * rank's default stream. Calls on one stream run in the order of the calls. */
typedef struct bs_backend {
  uint32_t struct_size;
  uint32_t flags;
  const char *name;
  const char *summary;
  int32_t (*device_count)(void *state, uint32_t *out_count, bs_error *err);
  int32_t (*device_info)(void *state, uint32_t index, bs_device_info *out_info, bs_error *err);
  /* Makes one rank's device object. BS_UNAVAILABLE when there is no such device, or it is busy. */
  int32_t (*device_open)(void *state, uint32_t index, void **out_device, bs_error *err);
  void (*device_close)(void *device);
  /* Allocates `bytes` (more than 0) of device memory, aligned to `align` (at least 64). Its
   * content is undefined. Returns BS_NO_MEMORY when the device has too little. */
  int32_t (*mem_alloc)(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err);
  void (*mem_free)(void *device, void *ptr);
  /* Copies `bytes` in the order of the stream. kind: enum bs_copy_kind. */
  int32_t (*mem_copy)(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                      bs_stream *stream, bs_error *err);
  int32_t (*stream_create)(void *device, bs_stream **out_stream, bs_error *err);
  void (*stream_destroy)(void *device, bs_stream *stream);
  int32_t (*stream_sync)(void *device, bs_stream *stream, bs_error *err); /* waits; reports sticky errors */
  int32_t (*event_create)(void *device, bs_event **out_event, bs_error *err);
  void (*event_destroy)(void *device, bs_event *event);
  int32_t (*event_record)(void *device, bs_event *event, bs_stream *stream, bs_error *err);
  /* Seconds of the device's clock between two recorded events. */
  int32_t (*event_elapsed)(void *device, bs_event *start, bs_event *stop, double *out_seconds, bs_error *err);
  /* Returns the vendor's handle, so that other plugins can add ops. NULL: the backend has no such handle, or
   * the stream is being captured (capture_begin). */
  void *(*native_handle)(void *device, uint32_t what, bs_stream *stream);
  /* Since 0.3, for a wrapper: a backend that is made of another one and is used as "wrapper:other". wrap and
   * unwrap are as in bs_comm; the flags are the inner backend's. The result has the ops of the inner backend.
   * The host calls wrap_op once for each op implementation, with the inner table and its state; wrap_op
   * returns the table and the state that serve instead (their exec->device is the wrapper's device). Names
   * and priority stay those of the inner implementation, and a slot that it lacks stays NULL. What wrap_op
   * makes lives until unwrap. */
  int32_t (*wrap)(void *state, const struct bs_backend *inner, void *inner_state, void **out_state,
                  bs_error *err);
  int32_t (*wrap_op)(void *wrapped, const bs_op_impl *inner, void *inner_state, const bs_op_impl **out_impl,
                     void **out_state, bs_error *err);
  void (*unwrap)(void *wrapped);
  /* Since 0.6, optional: makes rows of a source on the device: from `row` on, the columns of `cols` (NULL:
   * all), into out [rows, columns] whose columns are adjacent, on the rank's default stream, with the same
   * bits as the source's `read`. BS_UNSUPPORTED: the host reads them and copies them to the device. */
  int32_t (*source_read)(void *device, const bs_source *source, int64_t row, const bs_partition *cols,
                         bs_tensor *out, bs_error *err);
  /* Since 0.6, optional: the name of the communicator wrapper (bs_comm.wrap) that moves this backend's memory
   * between `ranks` ranks of one machine best, or NULL. The host uses it when the user names no communicator.
   * processes: 1 when the ranks are processes. It may open libraries and must not open a device. */
  const char *(*comm_for)(void *state, uint32_t ranks, uint32_t processes);
  /* Since 0.6 (named so since 0.7), optional, all four or none. Between capture_begin and capture_end, work
   * that is put on the rank's default stream is captured and not run. capture_run puts all of it on that
   * stream by one call, with the same addresses, any number of times. Allocating and freeing memory, copies
   * from and to the host, waits, events and other streams cannot be captured. Such a call spoils the capture:
   * it is refused with BS_UNSUPPORTED (freeing cannot be refused), every later call is refused too, and
   * capture_end returns BS_UNSUPPORTED and names the call. Nothing of a spoilt capture has run. A device
   * object captures one at a time, and all four are called on the rank's thread. */
  int32_t (*capture_begin)(void *device, bs_error *err);
  int32_t (*capture_end)(void *device, bs_capture **out_capture, bs_error *err);
  int32_t (*capture_run)(void *device, bs_capture *capture, bs_error *err);
  void (*capture_free)(void *device, bs_capture *capture); /* after its last run is done; NULL: nothing */
  /* Since 0.6, optional: the device's state; out_state comes zero-filled. It may be slow: the host does not
   * call it while something is timed. */
  int32_t (*device_state)(void *device, bs_device_state *out_state, bs_error *err);
  /* Since 0.6, optional: work that is put on `stream` from now on waits for `event`, which was recorded on
   * any stream of the device object; the host does not wait. With this, streams and events, started
   * collectives of device memory (BS_COLL_DEVICE) run on a stream of their own. */
  int32_t (*stream_wait)(void *device, bs_stream *stream, bs_event *event, bs_error *err);
} bs_backend;

#ifdef __cplusplus
}
#endif
#endif
