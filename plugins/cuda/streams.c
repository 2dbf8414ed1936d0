/* SPDX-License-Identifier: MIT
 * streams.c - streams and events of a device. A rank's memory is allocated and freed in the order of its
 * default stream. This file tracks the other streams, so that they begin after an allocation and a free waits
 * for them. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "inner.h"

void cuda_late(const cuda_device *device, const bs_error *err) {
  cuda_inner *in = device->inner;
  if (in->has_late) return;
  in->late = *err;
  in->has_late = 1;
}

void cuda_lose(const cuda_device *device, const bs_error *err) {
  cuda_inner *in = device->inner;
  uint32_t held = CUDA_HELD;
  if (!__atomic_compare_exchange_n(&in->lost, &held, CUDA_LOSING, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;
  in->end = *err;
  __atomic_store_n(&in->lost, CUDA_LOST, __ATOMIC_RELEASE);
}

/* ---- one stream waits for another ----------------------------------------------------------- */

static int32_t follow(const cuda_device *device, CUstream stream, CUstream leader, CUevent event,
                      bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  const int32_t rc = cuda_check(device, call->event_record(event, leader), "cuEventRecord", err);
  if (rc != BS_OK) return rc;
  return cuda_check(device, call->stream_wait_event(stream, event, 0), "cuStreamWaitEvent", err);
}

int32_t cuda_sides_wait_for_default(const cuda_device *device, bs_error *err) {
  const cuda_inner *in = device->inner;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < in->n_sides; i++)
    rc = follow(device, in->sides[i].stream, device->stream, in->fence, err);
  return rc;
}

int32_t cuda_default_waits_for_sides(const cuda_device *device, bs_error *err) {
  const cuda_inner *in = device->inner;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < in->n_sides; i++)
    rc = follow(device, device->stream, in->sides[i].stream, in->sides[i].event, err);
  return rc;
}

/* ---- streams -------------------------------------------------------------------------------- */

static int32_t side_room(cuda_inner *in, bs_error *err) {
  if (in->n_sides < in->sides_capacity) return BS_OK;
  const uint32_t capacity = in->sides_capacity != 0 ? 2 * in->sides_capacity : 4;
  cuda_side *grown = realloc(in->sides, capacity * sizeof *grown);
  if (grown == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a table of streams");
  in->sides = grown;
  in->sides_capacity = capacity;
  return BS_OK;
}

static void side_free(const cuda_device *device, const cuda_side *side) {
  const cuda_functions *call = &device->driver->call;
  if (side->event != NULL) (void)call->event_destroy(side->event);
  if (side->stream != NULL) (void)call->stream_destroy(side->stream);
}

static int32_t side_make(const cuda_device *device, cuda_side *out, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  cuda_side side = {NULL, NULL};
  int32_t rc =
      cuda_check(device, call->stream_create(&side.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", err);
  if (rc == BS_OK)
    rc = cuda_check(device, call->event_create(&side.event, CU_EVENT_DISABLE_TIMING), "cuEventCreate", err);
  /* Memory that was allocated before may not be there yet where the default stream stands. */
  if (rc == BS_OK) rc = follow(device, side.stream, device->stream, device->inner->fence, err);
  if (rc != BS_OK) side_free(device, &side);
  *out = side;
  return rc;
}

int32_t cuda_stream_create(void *opaque, bs_stream **out_stream, bs_error *err) {
  const cuda_device *device = opaque;
  cuda_graph_spoil(device, "another stream");
  cuda_inner *in = device->inner;
  int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&in->lock);
  rc = side_room(in, err);
  if (rc == BS_OK) rc = side_make(device, &in->sides[in->n_sides], err);
  if (rc == BS_OK) *out_stream = (bs_stream *)(void *)in->sides[in->n_sides++].stream;
  pthread_mutex_unlock(&in->lock);
  return rc;
}

void cuda_stream_destroy(void *opaque, bs_stream *stream) {
  const cuda_device *device = opaque;
  cuda_inner *in = device->inner;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  if (stream == NULL) return;
  cuda_graph_spoil(device, "the end of a stream");
  int32_t rc = cuda_reach(device, &err);
  pthread_mutex_lock(&in->lock);
  for (uint32_t i = 0; rc == BS_OK && i < in->n_sides; i++) {
    cuda_side side = in->sides[i];
    if (side.stream != (CUstream)(void *)stream) continue;
    /* Its work continues: memory that it uses is freed in the default stream's order. */
    rc = follow(device, device->stream, side.stream, side.event, &err);
    in->sides[i] = in->sides[--in->n_sides];
    side_free(device, &side);
    break;
  }
  if (rc != BS_OK) cuda_late(device, &err);
  pthread_mutex_unlock(&in->lock);
}

void cuda_sides_close(const cuda_device *device) {
  cuda_inner *in = device->inner;
  for (uint32_t i = 0; i < in->n_sides && !cuda_is_lost(device); i++) {
    (void)device->driver->call.stream_synchronize(in->sides[i].stream);
    side_free(device, &in->sides[i]);
  }
  free(in->sides);
  in->sides = NULL;
  in->n_sides = 0;
}

/* A sleep is shorter than what is waited for: results of a layer that others have a part in. */
static void nap(uint32_t turn) {
  const struct timespec t = {0, 20000};
  if (turn < 200) {
    sched_yield();
  } else {
    nanosleep(&t, NULL);
  }
}

int32_t cuda_await(const cuda_device *device, CUstream stream, CUevent event, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  cuda_inner *in = device->inner;
  cuda_graph_spoil(device, "a wait");
  if (in->graph == CUDA_GRAPH_SPOILT) return cuda_graph_refuse(device, err);
  if (in->look == NULL && event == NULL)
    return cuda_check(device, call->stream_synchronize(stream), "cuStreamSynchronize", err);
  if (in->look == NULL) return cuda_check(device, call->event_synchronize(event), "cuEventSynchronize", err);
  for (uint32_t turn = 0;; turn++) {
    const CUresult result = event != NULL ? call->event_query(event) : call->stream_query(stream);
    if (result != CUDA_ERROR_NOT_READY)
      return cuda_check(device, result, event != NULL ? "cuEventQuery" : "cuStreamQuery", err);
    bs_error why = {.struct_size = (uint32_t)sizeof why};
    const int32_t rc = in->look(in->look_arg, &why);
    if (rc != BS_OK) {
      cuda_lose(device, &why);
      if (err != NULL) *err = why;
      return rc;
    }
    nap(turn);
  }
}

int32_t cuda_wait(const cuda_device *device, CUstream stream, bs_error *err) {
  const int32_t rc = cuda_enter(device, err);
  return rc == BS_OK ? cuda_await(device, stream, NULL, err) : rc;
}

int32_t cuda_stream_sync(void *opaque, bs_stream *stream, bs_error *err) {
  const cuda_device *device = opaque;
  cuda_inner *in = device->inner;
  int32_t rc = cuda_wait(device, cuda_stream(device, stream), err);
  pthread_mutex_lock(&in->lock);
  if (rc == BS_OK && in->has_late) {
    rc = in->late.code;
    if (err != NULL) *err = in->late;
    in->has_late = 0;
  }
  pthread_mutex_unlock(&in->lock);
  return rc;
}

/* ---- events --------------------------------------------------------------------------------- */

int32_t cuda_event_create(void *opaque, bs_event **out_event, bs_error *err) {
  const cuda_device *device = opaque;
  CUevent event = NULL;
  int32_t rc = cuda_enter(device, err);
  if (rc == BS_OK)
    rc =
        cuda_check(device, device->driver->call.event_create(&event, CU_EVENT_DEFAULT), "cuEventCreate", err);
  if (rc == BS_OK) *out_event = (bs_event *)(void *)event;
  return rc;
}

void cuda_event_destroy(void *opaque, bs_event *event) {
  const cuda_device *device = opaque;
  if (event == NULL || cuda_reach(device, NULL) != BS_OK) return;
  (void)device->driver->call.event_destroy((CUevent)(void *)event);
}

int32_t cuda_event_record(void *opaque, bs_event *event, bs_stream *stream, bs_error *err) {
  const cuda_device *device = opaque;
  cuda_graph_spoil(device, "an event");
  const int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  return cuda_check(device,
                    device->driver->call.event_record((CUevent)(void *)event, cuda_stream(device, stream)),
                    "cuEventRecord", err);
}

int32_t cuda_stream_wait(void *opaque, bs_stream *stream, bs_event *event, bs_error *err) {
  const cuda_device *device = opaque;
  cuda_graph_spoil(device, "a wait for another stream");
  const int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  return cuda_check(
      device, device->driver->call.stream_wait_event(cuda_stream(device, stream), (CUevent)(void *)event, 0),
      "cuStreamWaitEvent", err);
}

int32_t cuda_event_elapsed(void *opaque, bs_event *start, bs_event *stop, double *out_seconds,
                           bs_error *err) {
  const cuda_device *device = opaque;
  const cuda_functions *call = &device->driver->call;
  const CUevent events[2] = {(CUevent)(void *)start, (CUevent)(void *)stop};
  float ms = 0.0f;
  int32_t rc = cuda_enter(device, err);
  for (int i = 0; rc == BS_OK && i < 2; i++) /* recorded on a stream that was not waited for, perhaps */
    rc = cuda_await(device, NULL, events[i], err);
  if (rc == BS_OK)
    rc = cuda_check(device, call->event_elapsed(&ms, events[0], events[1]), "cuEventElapsedTime", err);
  if (rc == BS_OK) *out_seconds = (double)ms * 1e-3;
  return rc;
}

void *cuda_native_handle(void *opaque, uint32_t what, bs_stream *stream) {
  const cuda_device *device = opaque;
  if (what == BS_NATIVE_DEVICE) return (void *)device->context;
  if (what != BS_NATIVE_STREAM) return NULL;
  cuda_graph_spoil(device, "work from outside"); /* the work is unknown */
  return device->inner->graph == CUDA_GRAPH_SPOILT ? NULL : (void *)cuda_stream(device, stream);
}
