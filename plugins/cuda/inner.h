/* SPDX-License-Identifier: MIT
 * inner.h - the state of an opened device that changes during use: its streams, the pinned slots for copies
 * of pageable memory, the pinned blocks that were allocated. A rank has several threads: one lock protects
 * all of it, and is never held while a kernel is launched. */
#ifndef BS_PLUGIN_CUDA_INNER_H
#define BS_PLUGIN_CUDA_INNER_H
#include "cuda.h"

enum { CUDA_HELD, CUDA_LOSING, CUDA_LOST };
enum { CUDA_GRAPH_NONE, CUDA_GRAPH_OPEN, CUDA_GRAPH_SPOILT };
enum { CUDA_NVML_POLICIES = 5 };
#define CUDA_STAGE_SLOTS 4u
#define CUDA_STAGE_BYTES ((uint64_t)512 << 10)

/* A stream that the rank made, and an event by which others wait for its queued work. */
typedef struct cuda_side {
  CUstream stream;
  CUevent event;
} cuda_side;

/* One slot of the way through pinned memory. */
typedef struct cuda_slot {
  char *memory;
  CUevent event; /* recorded after the slot's last copy */
} cuda_slot;

typedef struct cuda_pinned {
  char *memory;
  uint64_t bytes;
} cuda_pinned;

struct cuda_inner {
  pthread_mutex_t lock;
  CUevent fence; /* of the rank's default stream */
  cuda_side *sides;
  uint32_t n_sides, sides_capacity;
  char *stage; /* pinned, cut into the slots; NULL until the first copy needs it */
  cuda_slot slots[CUDA_STAGE_SLOTS];
  uint32_t next_slot;
  uint32_t has_late;
  cuda_pinned *pinned;
  uint32_t n_pinned, pinned_capacity;
  /* Set if the device's work may hang because of other ranks (comm/nccl.c): waits then call it, and end with
   * its error. From then on the device is lost (cuda_lose): nothing waits for it, memory that it may still
   * use is not freed, and later requests get the error `end`. */
  int32_t (*look)(void *arg, bs_error *err);
  void *look_arg;
  uint32_t lost; /* cuda_is_lost */
  bs_error end;
  uint64_t held_ns[CUDA_NVML_POLICIES]; /* nvml.c: at its last look */
  uint32_t held_known;                  /* a bit each */
  uint32_t graph;     /* graph.c: CUDA_GRAPH_OPEN while the default stream records its work */
  const char *spoilt; /* the reason why recording ended */
  bs_error late;      /* of calls that cannot return it; the next stream_sync does */
};

/* streams.c. The two below order the rank's default stream and all others; under the lock. */
int32_t cuda_sides_wait_for_default(const cuda_device *device, bs_error *err);
int32_t cuda_default_waits_for_sides(const cuda_device *device, bs_error *err);
int32_t cuda_stream_create(void *device, bs_stream **out_stream, bs_error *err);
void cuda_stream_destroy(void *device, bs_stream *stream);
int32_t cuda_stream_sync(void *device, bs_stream *stream, bs_error *err);
int32_t cuda_event_create(void *device, bs_event **out_event, bs_error *err);
void cuda_event_destroy(void *device, bs_event *event);
int32_t cuda_event_record(void *device, bs_event *event, bs_stream *stream, bs_error *err);
int32_t cuda_stream_wait(void *device, bs_stream *stream, bs_event *event, bs_error *err);
int32_t cuda_event_elapsed(void *device, bs_event *start, bs_event *stop, double *out_seconds, bs_error *err);
void *cuda_native_handle(void *device, uint32_t what, bs_stream *stream);
/* Waits until the work before the event, or with NULL all work of the stream, is done. */
int32_t cuda_await(const cuda_device *device, CUstream stream, CUevent event, bs_error *err);
/* From now on every call, except those that release, ends with the first error that is given here. */
void cuda_lose(const cuda_device *device, const bs_error *err);
static inline int cuda_is_lost(const cuda_device *device) {
  return device->inner != NULL && __atomic_load_n(&device->inner->lost, __ATOMIC_ACQUIRE) == CUDA_LOST;
}
/* Keeps the first error of a call that cannot return one. */
void cuda_late(const cuda_device *device, const bs_error *err);
/* Closes all streams; their work is done. */
void cuda_sides_close(const cuda_device *device);

/* memory.c */
int32_t cuda_mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err);
void cuda_mem_free(void *device, void *ptr);

/* source.c */
int32_t cuda_source_read(void *device, const bs_source *source, int64_t row, const bs_partition *cols,
                         bs_tensor *out, bs_error *err);

/* graph.c */
int32_t cuda_graph_begin(void *device, bs_error *err);
int32_t cuda_graph_end(void *device, bs_capture **out_graph, bs_error *err);
int32_t cuda_graph_run(void *device, bs_capture *graph, bs_error *err);
void cuda_graph_free(void *device, bs_capture *graph);
/* Call it on the rank's thread before work that no graph can keep: cuda_enter then refuses it, and all later
 * work. */
void cuda_graph_spoil(const cuda_device *device, const char *what);
int32_t cuda_graph_refuse(const cuda_device *device, bs_error *err);
/* resources.c: logs the needs of the device's kernels at the level DEBUG, those with too much local memory as
 * WARN. BS_UNAVAILABLE: a kernel cannot be launched. */
int32_t cuda_resources_look(cuda_device *device, bs_error *err);
/* state.c */
int32_t cuda_device_state(void *device, bs_device_state *out_state, bs_error *err);

/* copy.c */
int32_t cuda_mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                      bs_stream *stream, bs_error *err);
void cuda_copies_close(const cuda_device *device);
#endif
