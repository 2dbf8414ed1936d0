/* SPDX-License-Identifier: MIT
 * test_cuda_device.c - the cuda backend over the stand-in: memory that is taken and given while streams work,
 * copies from memory that is gone when the call returns, streams, events, ranks that share a device; and each
 * call of the driver failing: told once, with its name and number, and nothing is left. */
#include "tests/cuda/backend.h"

#include <pthread.h>
#include <string.h>

#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

#define MIB (1u << 20)

static void *open_device(const over *o, uint32_t index) {
  bs_error err = BS_ERROR_INIT;
  void *device = NULL;
  const int32_t rc = o->b->device_open(o->state, index, &device, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  return device;
}

static void *take(const over *o, void *device, uint64_t bytes) {
  bs_error err = BS_ERROR_INIT;
  void *p = NULL;
  const int32_t rc = o->b->mem_alloc(device, bytes, 64, &p, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_uint_eq((uintptr_t)p % 256, 0);
  return p;
}

static void copy(const over *o, void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                 bs_stream *stream) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = o->b->mem_copy(device, dst, src, bytes, kind, stream, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
}

static void wait_for(const over *o, void *device, bs_stream *stream) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(o->b->stream_sync(device, stream, &err) == BS_OK, "%s: %s", err.id, err.message);
}

static unsigned char at(uint64_t i, unsigned seed) {
  return (unsigned char)((((uint32_t)i + 7919u * seed) * 2654435761u) >> 24); /* no two pieces alike */
}
static unsigned char *pattern(uint64_t bytes, unsigned seed) {
  unsigned char *p = malloc(bytes);
  ck_assert_ptr_nonnull(p);
  for (uint64_t i = 0; i < bytes; i++) p[i] = at(i, seed);
  return p;
}
static void must_hold(const unsigned char *p, uint64_t bytes, unsigned seed) {
  for (uint64_t i = 0; i < bytes; i++)
    if (p[i] != at(i, seed)) ck_abort_msg("byte %llu is wrong", (unsigned long long)i);
}

/* Work for a stream that takes a while: copies back and forth. */
enum { BUSY = 8 * MIB };
static void keep_busy(const over *o, void *device, void *a, void *b, bs_stream *stream) {
  for (int i = 0; i < 8; i++) {
    copy(o, device, a, b, BUSY, BS_COPY_DEVICE_TO_DEVICE, stream);
    copy(o, device, b, a, BUSY, BS_COPY_DEVICE_TO_DEVICE, stream);
  }
}

/* ---- memory and copies -------------------------------------------------------------------------- */

static const char *const pools[] = {"pools=1", "pools=0"};

START_TEST(copies_take_what_is_there_when_called) {
  static const uint64_t sizes[] = {1, 4096, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 3 * MIB + 77};
  const over o = over_open(NULL, pools[_i]);
  void *device = open_device(&o, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    void *p = take(&o, device, sizes[i]), *q = take(&o, device, sizes[i]);
    for (unsigned turn = 0; turn < 3; turn++) { /* the host's memory is another one's at once */
      unsigned char *host = pattern(sizes[i], turn);
      copy(&o, device, p, host, sizes[i], BS_COPY_HOST_TO_DEVICE, NULL);
      memset(host, 0xEE, sizes[i]);
      free(host);
    }
    copy(&o, device, q, p, sizes[i], BS_COPY_DEVICE_TO_DEVICE, NULL);
    unsigned char *got = calloc(1, sizes[i]);
    copy(&o, device, got, q, sizes[i], BS_COPY_DEVICE_TO_HOST, NULL);
    wait_for(&o, device, NULL);
    must_hold(got, sizes[i], 2);
    free(got);
    o.b->mem_free(device, p);
    o.b->mem_free(device, q);
  }
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* More than the way through pinned memory holds, while the stream is somewhere else. */
START_TEST(a_long_copy_behind_other_work) {
  enum { BYTES = 5 * MIB + 3 };
  const over o = over_open(NULL, "");
  void *device = open_device(&o, 0);
  void *a = take(&o, device, BUSY), *b = take(&o, device, BUSY), *p = take(&o, device, BYTES);
  unsigned char *host = pattern(BYTES, 9);
  keep_busy(&o, device, a, b, NULL);
  copy(&o, device, p, host, BYTES, BS_COPY_HOST_TO_DEVICE, NULL);
  memset(host, 0, BYTES);
  copy(&o, device, host, p, BYTES, BS_COPY_DEVICE_TO_HOST, NULL);
  must_hold(host, BYTES, 9);
  free(host);
  o.b->mem_free(device, a);
  o.b->mem_free(device, b);
  o.b->mem_free(device, p);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

START_TEST(odd_copies) {
  const over o = over_open(NULL, "");
  void *device = open_device(&o, 0), *p = take(&o, device, 64);
  bs_error err = BS_ERROR_INIT;
  copy(&o, device, p, NULL, 0, BS_COPY_HOST_TO_DEVICE, NULL);
  copy(&o, device, NULL, p, 0, BS_COPY_DEVICE_TO_HOST, NULL);
  copy(&o, device, p, p, 64, BS_COPY_DEVICE_TO_DEVICE, NULL);
  ck_assert_int_eq(o.b->mem_copy(device, p, &err, 8, 4, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-CUDA-COPY");
  ck_assert_int_eq(o.b->mem_copy(device, p, &err, 65, BS_COPY_HOST_TO_DEVICE, NULL, &err), BS_RANK_FAILED);
  ck_assert_str_eq(err.message, "cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE (1): invalid argument");
  wait_for(&o, device, NULL);
  o.b->mem_free(device, NULL);
  o.b->mem_free(device, p);
  wait_for(&o, device, NULL);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

START_TEST(what_cannot_be_allocated) {
  char setup[64];
  snprintf(setup, sizeof setup, "memory=1000000;%s", pools[_i]);
  const over o = over_open(NULL, setup);
  void *device = open_device(&o, 0), *p = setup;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(o.b->mem_alloc(device, 1000001, 64, &p, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.message, "1000001 bytes asked, device 0 has 1000000");
  ck_assert_ptr_null(p);
  void *half = take(&o, device, 700000);
  ck_assert_int_eq(o.b->mem_alloc(device, 700000, 64, &p, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "BS-CUDA-MEMORY");
  ck_assert_msg(strstr(err.message, "700000 bytes on device 0, where 300000 of 1000000 are free") != NULL,
                "%s", err.message);
  ck_assert_int_eq((int)err.native_code, 2);
  ck_assert_str_eq(err.domain, "cuda");
  o.b->mem_free(device, half); /* asked for again before the stream has come to its end */
  half = take(&o, device, 700000);
  o.b->mem_free(device, half);
  ck_assert_int_eq(o.b->mem_alloc(device, 64, 48, &p, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(o.b->mem_alloc(device, 64, 512, &p, &err), BS_UNSUPPORTED);
  wait_for(&o, device, NULL);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* The stand-in ends the process when a stream comes to memory that is not there yet, or no more. */
START_TEST(memory_outlives_what_other_streams_do_with_it) {
  const over o = over_open(NULL, pools[_i / 2]);
  void *device = open_device(&o, 0);
  bs_stream *side = NULL;
  ck_assert_int_eq(o.b->stream_create(device, &side, NULL), BS_OK);
  void *a = take(&o, device, BUSY), *b = take(&o, device, BUSY);
  keep_busy(&o, device, a, b, side);
  if (_i % 2 == 1) o.b->stream_destroy(device, side); /* its work goes on */
  o.b->mem_free(device, a);
  o.b->mem_free(device, b);
  wait_for(&o, device, NULL);
  if (_i % 2 == 0) wait_for(&o, device, side);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

START_TEST(memory_is_there_for_other_streams) {
  const over o = over_open(NULL, pools[_i]);
  void *device = open_device(&o, 0);
  bs_stream *side = NULL, *young = NULL;
  ck_assert_int_eq(o.b->stream_create(device, &side, NULL), BS_OK);
  void *a = take(&o, device, BUSY), *b = take(&o, device, BUSY);
  wait_for(&o, device, NULL);
  keep_busy(&o, device, a, b, NULL); /* the allocation stands behind this */
  void *p = take(&o, device, 4096), *q = take(&o, device, 4096);
  unsigned char *host = pattern(4096, 5);
  copy(&o, device, p, host, 4096, BS_COPY_HOST_TO_DEVICE, side);
  ck_assert_int_eq(o.b->stream_create(device, &young, NULL), BS_OK);
  copy(&o, device, q, host, 4096, BS_COPY_HOST_TO_DEVICE, young);
  memset(host, 0, 4096);
  copy(&o, device, host, p, 4096, BS_COPY_DEVICE_TO_HOST, side);
  wait_for(&o, device, side);
  must_hold(host, 4096, 5);
  free(host);
  o.b->mem_free(device, p);
  o.b->mem_free(device, q);
  o.b->mem_free(device, a);
  o.b->mem_free(device, b);
  o.b->device_close(device); /* with its streams */
  nothing_lives();
  over_close(&o);
}
END_TEST

/* ---- events, handles, ranks that share a device -------------------------------------------------- */

START_TEST(events_tell_the_time_between_them) {
  const over o = over_open(NULL, "");
  void *device = open_device(&o, 0);
  bs_stream *side = NULL;
  bs_event *start = NULL, *stop = NULL;
  bs_error err = BS_ERROR_INIT;
  double seconds = -1.0;
  void *a = take(&o, device, BUSY), *b = take(&o, device, BUSY);
  ck_assert_int_eq(o.b->stream_create(device, &side, &err), BS_OK);
  ck_assert_int_eq(o.b->event_create(device, &start, &err), BS_OK);
  ck_assert_int_eq(o.b->event_create(device, &stop, &err), BS_OK);
  ck_assert_int_eq(o.b->event_elapsed(device, start, stop, &seconds, &err), BS_RANK_FAILED);
  ck_assert_msg(strstr(err.message, "cuEventElapsedTime: CUDA_ERROR_INVALID_HANDLE (400)") != NULL, "%s",
                err.message);
  ck_assert_int_eq(o.b->event_record(device, start, side, &err), BS_OK);
  keep_busy(&o, device, a, b, side);
  ck_assert_int_eq(o.b->event_record(device, stop, side, &err), BS_OK);
  ck_assert_int_eq(o.b->event_elapsed(device, start, stop, &seconds, &err), BS_OK); /* nobody has waited */
  ck_assert(seconds > 1e-5 && seconds < 30.0);
  ck_assert_int_eq(o.b->event_elapsed(device, stop, start, &seconds, &err), BS_OK);
  ck_assert(seconds < -1e-5);
  o.b->event_destroy(device, start);
  o.b->event_destroy(device, stop);
  o.b->mem_free(device, a);
  o.b->mem_free(device, b);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

START_TEST(handles_of_the_driver) {
  const over o = over_open(NULL, "");
  void *device = open_device(&o, 0);
  bs_stream *side = NULL;
  ck_assert_int_eq(o.b->stream_create(device, &side, NULL), BS_OK);
  const void *main_stream = o.b->native_handle(device, BS_NATIVE_STREAM, NULL);
  ck_assert_ptr_nonnull(main_stream);
  ck_assert_ptr_eq(o.b->native_handle(device, BS_NATIVE_STREAM, side), side);
  ck_assert_ptr_ne(main_stream, side);
  ck_assert_ptr_nonnull(o.b->native_handle(device, BS_NATIVE_DEVICE, NULL));
  ck_assert_ptr_null(o.b->native_handle(device, 77, NULL));
  o.b->device_close(device);
  bs_context_close(o.context);
}
END_TEST

typedef struct sharer {
  const over *o;
  pthread_barrier_t *together;
  unsigned seed;
  void *context;
} sharer;

static void *share(void *opaque) {
  sharer *s = opaque;
  enum { BYTES = 700001 };
  void *device = open_device(s->o, 0);
  s->context = s->o->b->native_handle(device, BS_NATIVE_DEVICE, NULL);
  pthread_barrier_wait(s->together);
  for (unsigned turn = 0; turn < 5; turn++) {
    void *p = take(s->o, device, BYTES);
    unsigned char *host = pattern(BYTES, s->seed + turn);
    copy(s->o, device, p, host, BYTES, BS_COPY_HOST_TO_DEVICE, NULL);
    memset(host, 0, BYTES);
    copy(s->o, device, host, p, BYTES, BS_COPY_DEVICE_TO_HOST, NULL);
    wait_for(s->o, device, NULL);
    must_hold(host, BYTES, s->seed + turn);
    s->o->b->mem_free(device, p);
    free(host);
    if (turn == 2 && s->seed == 0) break; /* one leaves early */
  }
  s->o->b->device_close(device);
  return NULL;
}

START_TEST(ranks_share_a_device) {
  const over o = over_open(NULL, "");
  pthread_barrier_t together;
  pthread_t threads[3];
  sharer s[3];
  pthread_barrier_init(&together, NULL, 3);
  for (int i = 0; i < 3; i++) {
    s[i] = (sharer){&o, &together, (unsigned)(100 * i), NULL};
    ck_assert_int_eq(pthread_create(&threads[i], NULL, share, &s[i]), 0);
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&together);
  ck_assert_ptr_eq(s[0].context, s[1].context);
  ck_assert_ptr_eq(s[0].context, s[2].context);
  nothing_lives();
  ck_assert_int_eq(living(SI_CONTEXT), 1); /* kept for the next device that is opened */
  over_close(&o);
}
END_TEST

/* ---- every call fails ---------------------------------------------------------------------------- */

/* A bit of everything; the first error ends it, as it would a rank. */
static int32_t a_bit_of_everything(const over *o, void *device, bs_error *err) {
  static unsigned char host[100000];
  bs_stream *side = NULL;
  bs_event *events[2] = {NULL, NULL};
  void *p = NULL, *q = NULL;
  double seconds;
  int32_t rc = o->b->stream_create(device, &side, err);
  if (rc == BS_OK) rc = o->b->mem_alloc(device, sizeof host, 64, &p, err);
  if (rc == BS_OK) rc = o->b->mem_alloc(device, sizeof host, 64, &q, err);
  for (int i = 0; rc == BS_OK && i < 2; i++) rc = o->b->event_create(device, &events[i], err);
  if (rc == BS_OK) rc = o->b->event_record(device, events[0], NULL, err);
  if (rc == BS_OK) rc = o->b->mem_copy(device, p, host, sizeof host, BS_COPY_HOST_TO_DEVICE, side, err);
  if (rc == BS_OK) rc = o->b->stream_sync(device, side, err);
  if (rc == BS_OK) rc = o->b->mem_copy(device, q, p, sizeof host, BS_COPY_DEVICE_TO_DEVICE, NULL, err);
  if (rc == BS_OK) rc = o->b->mem_copy(device, host, q, sizeof host, BS_COPY_DEVICE_TO_HOST, NULL, err);
  if (rc == BS_OK) rc = o->b->event_record(device, events[1], NULL, err);
  if (rc == BS_OK) rc = o->b->event_elapsed(device, events[0], events[1], &seconds, err);
  for (int i = 0; i < 2; i++) o->b->event_destroy(device, events[i]);
  o->b->mem_free(device, p);
  o->b->mem_free(device, q);
  o->b->stream_destroy(device, side);
  bs_error late = BS_ERROR_INIT; /* of calls that return nothing: told by the next sync, and once */
  const int32_t after = o->b->stream_sync(device, NULL, &late);
  if (rc == BS_OK && after != BS_OK) *err = late;
  if (rc == BS_OK) rc = after;
  const int32_t then = o->b->stream_sync(device, NULL, &late);
  ck_assert_msg(rc == BS_OK || then == BS_OK, "told twice: %s", late.message);
  if (then != BS_OK) *err = late;
  return rc == BS_OK ? then : rc;
}

/* Calls that end something: where one fails, that is left, and nothing but a log could tell. */
static const char *const enders[] = {"cuStreamDestroy_v2", "cuEventDestroy_v2",
                                     "cuModuleUnload",     "cuMemFreeHost",
                                     "cuMemPoolDestroy",   "cuDevicePrimaryCtxRelease_v2"};
static const char *const failing[] = {
    "cuDeviceGetCount",     "cuDeviceGet",      "cuDeviceGetName",       "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute", "cuMemPoolCreate",  "cuMemPoolSetAttribute", "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",      "cuModuleLoadData", "cuModuleGetFunction",   "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",       "cuMemHostAlloc",   "cuMemcpyHtoDAsync_v2",  "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2", "cuStreamCreate",   "cuStreamSynchronize",   "cuStreamWaitEvent",
    "cuEventCreate",        "cuEventRecord",    "cuEventSynchronize",    "cuEventElapsedTime"};
enum { FAILING = sizeof failing / sizeof failing[0], ENDERS = sizeof enders / sizeof enders[0], TURNS = 3 };

START_TEST(each_call_that_fails_is_told) {
  const char *name = failing[_i / TURNS];
  const unsigned turn = (unsigned)(_i % TURNS) + 1;
  char setup[96], bare[64];
  snprintf(setup, sizeof setup, "plan=%s:%u=999", name, turn);
  snprintf(bare, sizeof bare, "%.*s", (int)strcspn(name, "_"), name);
  const over o = over_open(NULL, setup);
  bs_error err = BS_ERROR_INIT;
  void *device = NULL;
  int32_t rc = o.b->device_open(o.state, 0, &device, &err);
  if (rc == BS_OK) {
    rc = a_bit_of_everything(&o, device, &err);
    o.b->device_close(device);
  } else {
    ck_assert_ptr_null(device);
  }
  const int freed = strcmp(name, "cuMemFreeAsync") == 0 || strcmp(name, "cuMemAllocFromPoolAsync") == 0;
  const uint64_t calls = calls_of(name);
  if (calls < turn) ck_assert_int_eq(rc, BS_OK);
  /* The last of them may be the wait of closing, which has nobody to tell. */
  if (calls > turn || (calls == turn && strcmp(name, "cuStreamSynchronize") != 0)) {
    ck_assert_msg(rc != BS_OK, "%s: call %u of %llu fails, and nothing is said", name, turn,
                  (unsigned long long)calls);
    ck_assert_msg(strstr(err.message, "CUDA_ERROR_UNKNOWN (999)") != NULL, "%s", err.message);
    ck_assert_msg(freed || strstr(err.message, bare) != NULL, "%s: %s", name, err.message);
    ck_assert_int_eq((int)err.native_code, 999);
  }
  if (strcmp(name, "cuMemFreeAsync") != 0) nothing_lives();
  over_close(&o);
}
END_TEST

START_TEST(an_end_that_fails_ends_the_rest) {
  char setup[96];
  snprintf(setup, sizeof setup, "plan=%s:1=999", enders[_i]);
  const over o = over_open(NULL, setup);
  bs_error err = BS_ERROR_INIT;
  void *device = open_device(&o, 0);
  (void)a_bit_of_everything(&o, device, &err);
  o.b->device_close(device);
  int64_t left = 0;
  for (uint32_t k = 0; k < SI_KIND_COUNT_; k++) left += living(k);
  /* What could not be given back, and the context, which the plugin keeps. */
  ck_assert_int_eq(left, strstr(enders[_i], "Ctx") != NULL ? 1 : 2);
  bs_context_close(o.context);
}
END_TEST

/* What a kernel or a copy breaks comes later, and then is the answer to everything. */
START_TEST(a_late_error_is_told_by_the_next_wait) {
  static const char setup[] =
      "plan=cuMemcpyHtoDAsync_v2:2=late719;name=sixty-four bytes of it go to the device";
  const over o = over_open(NULL, setup);
  void *device = open_device(&o, 0), *p = take(&o, device, 64), *q = NULL;
  bs_error err = BS_ERROR_INIT;
  copy(&o, device, p, setup, 64, BS_COPY_HOST_TO_DEVICE, NULL);
  (void)o.b->mem_copy(device, p, setup, 64, BS_COPY_HOST_TO_DEVICE, NULL, &err); /* or it is late already */
  ck_assert_int_eq(o.b->stream_sync(device, NULL, &err), BS_RANK_FAILED);
  ck_assert_str_eq(err.id, "BS-CUDA-FAILED");
  ck_assert_str_eq(err.message,
                   "cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure");
  ck_assert_msg(strstr(err.hint, "compute-sanitizer") != NULL, "%s", err.hint);
  ck_assert_int_eq(o.b->mem_alloc(device, 64, 64, &q, &err), BS_RANK_FAILED);
  o.b->mem_free(device, p);
  o.b->device_close(device); /* comes to its end */
  bs_context_close(o.context);
}
END_TEST

int main(void) {
  Suite *s = suite_create("cuda_device");
  TCase *tc = tcase_create("device"), *errors = tcase_create("errors");
  tcase_add_loop_test(tc, copies_take_what_is_there_when_called, 0, 2);
  tcase_add_test(tc, a_long_copy_behind_other_work);
  tcase_add_test(tc, odd_copies);
  tcase_add_loop_test(tc, what_cannot_be_allocated, 0, 2);
  tcase_add_loop_test(tc, memory_outlives_what_other_streams_do_with_it, 0, 4);
  tcase_add_loop_test(tc, memory_is_there_for_other_streams, 0, 2);
  tcase_add_test(tc, events_tell_the_time_between_them);
  tcase_add_test(tc, handles_of_the_driver);
  tcase_add_test(tc, ranks_share_a_device);
  tcase_add_loop_test(errors, each_call_that_fails_is_told, 0, FAILING * TURNS);
  tcase_add_loop_test(errors, an_end_that_fails_ends_the_rest, 0, ENDERS);
  tcase_add_test(errors, a_late_error_is_told_by_the_next_wait);
  suite_add_tcase(s, tc);
  suite_add_tcase(s, errors);
  return run_suite(s);
}
