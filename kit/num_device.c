/* SPDX-License-Identifier: MIT
 * num_device.c - group numerics, for a backend: its device opens twice, its memory returns the data that were
 * copied to it, also on additional streams, and its events measure times. */
#include "kit/op.h"

static void round_trip(const bs_backend *b, void *device) {
  enum { BYTES = 100003 };
  static unsigned char sent[BYTES], got[BYTES];
  bs_error err = BS_ERROR_INIT;
  void *p = NULL;
  uint64_t seed = 3;
  for (int i = 0; i < BYTES; i++) sent[i] = (unsigned char)kit_next(&seed);
  int32_t rc = b->mem_alloc(device, BYTES, 64, &p, &err);
  kit_assert(rc == BS_OK, "mem_alloc of %d bytes fails: %s: %s", BYTES, err.id, err.message);
  kit_assert((uintptr_t)p % 64 == 0, "mem_alloc with alignment 64 gives %p", p);
  rc = b->mem_copy(device, p, sent, BYTES, BS_COPY_HOST_TO_DEVICE, NULL, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, got, p, BYTES, BS_COPY_DEVICE_TO_HOST, NULL, &err);
  if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, NULL, &err);
  kit_assert(rc == BS_OK, "mem_copy fails: %s: %s", err.id, err.message);
  kit_assert(memcmp(sent, got, BYTES) == 0, "what is copied to the device does not come back the same");
  b->mem_free(device, p);
  const int sanitizer = BS_THIS_SANITIZER;
  if (sanitizer != BS_SAN_NONE) return; /* a sanitizer ends a process that requests so much */
  p = &seed;
  rc = b->mem_alloc(device, UINT64_MAX / 2, 64, &p, &err);
  kit_assert(rc != BS_OK, "mem_alloc of 2^63 bytes succeeds");
  kit_assert(err.message[0] != '\0', "mem_alloc of 2^63 bytes fails without a reason");
}

/* ---- streams and events: all of them or none --------------------------------------------------- */

static int has_streams(const bs_backend *b) {
  const int n = (b->stream_create != NULL) + (b->stream_destroy != NULL);
  kit_assert(n != 1, "has one of stream_create and stream_destroy, not both");
  return n == 2;
}

static int has_events(const bs_backend *b) {
  const int n = (b->event_create != NULL) + (b->event_destroy != NULL) + (b->event_record != NULL) +
                (b->event_elapsed != NULL);
  kit_assert(n == 0 || n == 4, "has %d of the four event slots, not all", n);
  return n == 4;
}

/* There and back on one stream, in its order. */
static void on_stream(const bs_backend *b, void *device, bs_stream *stream, const char *which) {
  enum { BYTES = 4099 };
  static unsigned char sent[BYTES], got[BYTES];
  bs_error err = BS_ERROR_INIT;
  void *p = NULL;
  uint64_t seed = 5;
  for (int i = 0; i < BYTES; i++) sent[i] = (unsigned char)kit_next(&seed);
  memset(got, 0, BYTES);
  int32_t rc = b->mem_alloc(device, BYTES, 64, &p, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, p, sent, BYTES, BS_COPY_HOST_TO_DEVICE, stream, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, got, p, BYTES, BS_COPY_DEVICE_TO_HOST, stream, &err);
  if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, stream, &err);
  kit_assert(rc == BS_OK, "copies on %s fail: %s: %s", which, err.id, err.message);
  kit_assert(memcmp(sent, got, BYTES) == 0, "what is copied on %s does not come back the same", which);
  b->mem_free(device, p);
}

/* Two events with work between them: a time that is a number, not negative and not of another clock. */
static void between_events(const bs_backend *b, void *device, bs_stream *stream) {
  bs_event *events[2] = {NULL, NULL};
  bs_error err = BS_ERROR_INIT;
  double seconds = -1.0;
  int32_t rc = b->event_create(device, &events[0], &err);
  if (rc == BS_OK) rc = b->event_create(device, &events[1], &err);
  kit_assert(rc == BS_OK, "event_create fails: %s: %s", err.id, err.message);
  rc = b->event_record(device, events[0], stream, &err);
  if (rc == BS_OK) on_stream(b, device, stream, "a stream between events");
  if (rc == BS_OK) rc = b->event_record(device, events[1], stream, &err);
  if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, stream, &err);
  if (rc == BS_OK) rc = b->event_elapsed(device, events[0], events[1], &seconds, &err);
  kit_assert(rc == BS_OK, "events fail: %s: %s", err.id, err.message);
  kit_assert(seconds >= 0.0 && seconds < 60.0, "event_elapsed tells %g s between two events around one copy",
             seconds);
  for (int i = 0; i < 2; i++) b->event_destroy(device, events[i]);
}

/* Work that follows an event of another stream sees the results of that stream before the event. */
static void behind_event(const bs_backend *b, void *device, bs_stream *leader, bs_stream *follower) {
  enum { BYTES = 100003 };
  static unsigned char sent[2][BYTES], got[BYTES];
  bs_error err = BS_ERROR_INIT;
  bs_event *event = NULL;
  void *p = NULL;
  uint64_t seed = 7;
  for (int i = 0; i < 2 * BYTES; i++) sent[i / BYTES][i % BYTES] = (unsigned char)kit_next(&seed);
  int32_t rc = b->mem_alloc(device, BYTES, 64, &p, &err);
  if (rc == BS_OK) rc = b->event_create(device, &event, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, p, sent[0], BYTES, BS_COPY_HOST_TO_DEVICE, leader, &err);
  if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, leader, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, p, sent[1], BYTES, BS_COPY_HOST_TO_DEVICE, leader, &err);
  if (rc == BS_OK) rc = b->event_record(device, event, leader, &err);
  if (rc == BS_OK) rc = b->stream_wait(device, follower, event, &err);
  if (rc == BS_OK) rc = b->mem_copy(device, got, p, BYTES, BS_COPY_DEVICE_TO_HOST, follower, &err);
  if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, follower, &err);
  kit_assert(rc == BS_OK, "stream_wait fails: %s: %s", err.id, err.message);
  kit_assert(memcmp(sent[1], got, BYTES) == 0,
             "what is behind stream_wait does not see the work before its event");
  if (b->stream_sync != NULL) (void)b->stream_sync(device, leader, &err);
  b->event_destroy(device, event);
  b->mem_free(device, p);
}

static void streams_and_events(const bs_backend *b, void *device) {
  bs_stream *stream = NULL;
  bs_error err = BS_ERROR_INIT;
  on_stream(b, device, NULL, "the default stream");
  if (has_streams(b)) {
    kit_assert(b->stream_create(device, &stream, &err) == BS_OK, "stream_create fails: %s: %s", err.id,
               err.message);
    on_stream(b, device, stream, "a stream of its own");
  }
  if (has_events(b)) {
    between_events(b, device, NULL);
    if (stream != NULL) between_events(b, device, stream);
  }
  kit_assert(b->stream_wait == NULL || (stream != NULL && has_events(b)),
             "has stream_wait without streams and events");
  if (b->stream_wait != NULL) {
    behind_event(b, device, stream, NULL);
    behind_event(b, device, NULL, stream);
  }
  if (stream != NULL) b->stream_destroy(device, stream);
}

void kit_num_device(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  bs_device_info info = {.struct_size = sizeof info};
  uint32_t count = 0;
  void *first = NULL, *second = NULL;
  kit_plugin_open(&p);
  void *state = NULL;
  const bs_backend *b = kit_backend_of(&p.host.things[c->thing], &state);
  kit_assert(b->device_count(state, &count, &err) == BS_OK, "device_count fails: %s: %s", err.id,
             err.message);
  if (count == 0) {
    kit_unsupported("there is no device here");
    return;
  }
  kit_assert(b->device_info(state, 0, &info, &err) == BS_OK && info.name[0] != '\0',
             "device_info of device 0 fails, or gives no name: %s", err.message);
  kit_assert(b->device_info(state, count, &info, &err) != BS_OK,
             "device_info of device %u succeeds, there are %u", count, count);
  kit_assert(b->device_open(state, 0, &first, &err) == BS_OK, "device_open fails: %s: %s", err.id,
             err.message);
  kit_assert(b->device_open(state, 0, &second, &err) == BS_OK, "a device cannot be opened twice: %s: %s",
             err.id, err.message);
  round_trip(b, first);
  b->device_close(first);
  round_trip(b, second);
  streams_and_events(b, second);
  b->device_close(second);
  kit_unwrap();
  kit_plugin_deactivate(&p);
}
