/* SPDX-License-Identifier: MIT
 * test_cuda_graph.c - forwards as graphs over the stand-in, whose captures refuse what a driver's do: the
 * bits are those of forwards without, the host launches once, and what cannot be kept is told and run as
 * before. */
#include "tests/cuda/graph_layer.h"
#include "tests/run_tests.h"

/* What a forward without a graph gives, for each seed. */
static float wanted[4][B * N];
static const layer_case plain = {.method = "dense", .activation = BS_ACT_GELU},
                        kept = {.method = "dense", .activation = BS_ACT_GELU, .flags = BS_LAYER_CAPTURE};

static int32_t plain_main(bs_rank *rank, void *arg, bs_error *err) {
  made m;
  (void)arg;
  int32_t rc = make(rank, &plain, &m, err);
  for (int64_t seed = 0; rc == BS_OK && seed < 4; seed++) rc = forward(rank, &m, seed, wanted[seed], err);
  ck_assert_ptr_null(bs_layer_capture(m.layer, BS_PASS_FORWARD));
  unmake(rank, &m);
  return rc;
}

static int32_t same_bits(bs_rank *rank, made *m, int64_t seed, bs_error *err) {
  float got[B * N];
  const int32_t rc = forward(rank, m, seed, got, err);
  if (rc == BS_OK)
    ck_assert_msg(memcmp(got, wanted[seed], sizeof got) == 0, "other bits for seed %lld", (long long)seed);
  return rc;
}

static int32_t graph_main(bs_rank *rank, void *arg, bs_error *err) {
  made m, other;
  uint64_t flops[2] = {0, 0};
  (void)arg;
  int32_t rc = make(rank, &kept, &m, err);
  if (rc == BS_OK) rc = make(rank, &kept, &other, err);
  if (rc == BS_OK) rc = same_bits(rank, &m, 0, err);
  ck_assert_msg(strstr(bs_layer_capture(m.layer, BS_PASS_FORWARD), "not yet") != NULL, "%s",
                bs_layer_capture(m.layer, BS_PASS_FORWARD));
  flops[0] = bs_rank_counter(rank, BS_COUNT_FLOPS);
  if (rc == BS_OK) rc = same_bits(rank, &m, 1, err);
  ck_assert_str_eq(bs_layer_capture(m.layer, BS_PASS_FORWARD), "captured");
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 1);
  const uint64_t launches = calls_of("cuLaunchKernel");
  for (int64_t seed = 2; rc == BS_OK && seed < 4; seed++) rc = same_bits(rank, &m, seed, err);
  ck_assert_uint_eq(calls_of("cuLaunchKernel"), launches);
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 3);
  flops[1] = bs_rank_counter(rank, BS_COUNT_FLOPS);
  ck_assert_uint_eq(flops[1], 4 * flops[0]);
  /* Other tensors than those that were kept. */
  const bs_tensor own = m.x;
  m.x = other.x;
  if (rc == BS_OK) rc = same_bits(rank, &m, 2, err);
  m.x = own;
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 3);
  if (rc == BS_OK) rc = same_bits(rank, &m, 3, err);
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 4);
  unmake(rank, &other);
  unmake(rank, &m);
  ck_assert_int_eq(living(SI_GRAPH), 0);
  return rc;
}
START_TEST(forwards_are_one_launch) {
  with_world(NULL, 1, plain_main, NULL, "");
  with_world(NULL, 1, graph_main, NULL, "forward");
}
END_TEST

/* A plan that takes a larger scratch moves it: the graph is made again. */
static int32_t scratch_main(bs_rank *rank, void *arg, bs_error *err) {
  made m;
  (void)arg;
  int32_t rc = make(rank, &kept, &m, err);
  for (int64_t seed = 0; rc == BS_OK && seed < 2; seed++) rc = same_bits(rank, &m, seed, err);
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 1);
  if (rc == BS_OK) rc = rank->exec.reserve(rank->exec.ctx, 8 << 20);
  if (rc == BS_OK) rc = same_bits(rank, &m, 2, err);
  ck_assert_str_eq(bs_layer_capture(m.layer, BS_PASS_FORWARD), "not yet: a plan took a larger scratch");
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 1);
  if (rc == BS_OK) rc = same_bits(rank, &m, 3, err);
  ck_assert_str_eq(bs_layer_capture(m.layer, BS_PASS_FORWARD), "captured");
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 2);
  unmake(rank, &m);
  return rc;
}
START_TEST(scratch_that_moves) {
  with_world(NULL, 1, plain_main, NULL, "");
  with_world(NULL, 1, scratch_main, NULL, "forward");
}
END_TEST

/* What fails on the way to a graph leaves forwards as they were, and says what it was. */
static const struct {
  const char *plan, *why;
} failing[] = {{"cuStreamBeginCapture_v2:1=900", "cuStreamBeginCapture: "},
               {"cuStreamEndCapture:1=901", "cuStreamEndCapture: "},
               {"cuGraphInstantiateWithFlags:1=2", "cuGraphInstantiateWithFlags: CUDA_ERROR_OUT_OF_MEMORY"}};
static int32_t failing_main(bs_rank *rank, void *arg, bs_error *err) {
  made m = {.layer = NULL};
  int32_t rc = plain_main(rank, NULL, err);
  if (rc == BS_OK) rc = make(rank, &kept, &m, err);
  for (int64_t seed = 0; rc == BS_OK && seed < 4; seed++) rc = same_bits(rank, &m, seed, err);
  ck_assert_msg(strstr(bs_layer_capture(m.layer, BS_PASS_FORWARD), arg) != NULL, "%s",
                bs_layer_capture(m.layer, BS_PASS_FORWARD));
  ck_assert_uint_eq(calls_of("cuGraphLaunch"), 0);
  unmake(rank, &m);
  ck_assert_int_eq(living(SI_GRAPH), 0);
  return rc;
}
START_TEST(what_fails_is_run_as_before) {
  char setup[96];
  snprintf(setup, sizeof setup, "plan=%s", failing[_i].plan);
  with_world(setup, 1, failing_main, failing[_i].why, "");
}
END_TEST

static int32_t launch_fails_main(bs_rank *rank, void *arg, bs_error *err) {
  float got[B * N];
  made m;
  (void)arg;
  int32_t rc = make(rank, &kept, &m, err);
  if (rc == BS_OK) rc = forward(rank, &m, 0, got, err);
  ck_assert_int_eq(rc, BS_OK);
  ck_assert_int_eq(forward(rank, &m, 0, got, err), BS_RANK_FAILED);
  ck_assert_msg(strstr(err->message, "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)") != NULL, "%s",
                err->message);
  unmake(rank, &m);
  ck_assert_int_eq(living(SI_GRAPH), 0);
  *err = (bs_error)BS_ERROR_INIT;
  return BS_OK;
}
START_TEST(a_launch_that_fails_is_told) {
  with_world("plan=cuGraphLaunch:1=719", 1, launch_fails_main, NULL, "forward");
}
END_TEST

/* Ranks that meet cannot; those that do not, can. */
static int32_t ranks_main(bs_rank *rank, void *arg, bs_error *err) {
  const int meets = *(const int *)arg;
  const layer_case c = {.method = meets ? "row_parallel" : "column_parallel",
                        .activation = BS_ACT_GELU,
                        .y_placement = meets ? BS_REPLICATED : BS_SPLIT,
                        .flags = BS_LAYER_CAPTURE};
  float got[3][B * N];
  made m;
  memset(got, 0, sizeof got);
  int32_t rc = make(rank, &c, &m, err);
  for (int i = 0; rc == BS_OK && i < 3; i++) rc = forward(rank, &m, 1, got[i], err);
  ck_assert(memcmp(got[0], got[1], sizeof got[0]) == 0 && memcmp(got[0], got[2], sizeof got[0]) == 0);
  ck_assert_msg(strstr(bs_layer_capture(m.layer, BS_PASS_FORWARD),
                       meets ? "ranks meet on the host in" : "captured") != NULL,
                "%s", bs_layer_capture(m.layer, BS_PASS_FORWARD));
  unmake(rank, &m);
  return rc;
}
START_TEST(ranks_that_meet_cannot) {
  const int meets = _i;
  with_world(NULL, 2, ranks_main, &meets, meets ? "" : "forward");
}
END_TEST

/* Of the backend itself: what spoils a graph is refused, and what comes behind it; memory that is given back
 * is the one thing that cannot be refused. */
static const char *const spoils[] = {
    "taking memory", "giving memory back", "a copy from the host", "a copy to the host",
    "a wait",        "an event",           "another stream",       "work from outside"};
static void spoil(const over *o, void *device, void *p, bs_event *event, int which) {
  float host[4] = {1, 2, 3, 4};
  bs_error err = BS_ERROR_INIT;
  void *q = NULL;
  bs_stream *stream = NULL;
  int32_t rc = BS_UNSUPPORTED;
  switch (which) {
    case 0:
      rc = o->b->mem_alloc(device, 64, 64, &q, &err);
      ck_assert_ptr_null(q);
      break;
    case 1:
      o->b->mem_free(device, p);
      break;
    case 2:
      rc = o->b->mem_copy(device, p, host, sizeof host, BS_COPY_HOST_TO_DEVICE, NULL, &err);
      break;
    case 3:
      rc = o->b->mem_copy(device, host, p, sizeof host, BS_COPY_DEVICE_TO_HOST, NULL, &err);
      ck_assert(host[0] == 1 && host[3] == 4);
      break;
    case 4:
      rc = o->b->stream_sync(device, NULL, &err);
      break;
    case 5:
      rc = o->b->event_record(device, event, NULL, &err);
      break;
    case 7:
      ck_assert_ptr_nonnull(o->b->native_handle(device, BS_NATIVE_DEVICE, NULL)); /* does not */
      ck_assert_ptr_null(o->b->native_handle(device, BS_NATIVE_STREAM, NULL));
      break;
    default:
      rc = o->b->stream_create(device, &stream, &err);
      ck_assert_ptr_null(stream);
  }
  ck_assert_msg(rc == BS_UNSUPPORTED, "%d: %s", rc, err.message);
}
START_TEST(what_spoils_a_graph_is_told) {
  const over o = over_open(NULL, NULL);
  bs_error err = BS_ERROR_INIT;
  void *device = NULL, *p = NULL, *q = NULL;
  bs_capture *graph = NULL;
  bs_event *event = NULL;
  char host[2][64] = {{1, 2, 3}, {7, 8, 9}}, got[64];
  ck_assert_int_eq(o.b->device_open(o.state, 0, &device, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_alloc(device, 64, 64, &p, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_alloc(device, 64, 64, &q, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, p, host[0], 64, BS_COPY_HOST_TO_DEVICE, NULL, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, q, host[1], 64, BS_COPY_HOST_TO_DEVICE, NULL, &err), BS_OK);
  ck_assert_int_eq(o.b->event_create(device, &event, &err), BS_OK);
  ck_assert_int_eq(o.b->capture_begin(device, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, q, p, 64, BS_COPY_DEVICE_TO_DEVICE, NULL, &err), BS_OK);
  spoil(&o, device, p, event, _i);
  ck_assert_int_eq(o.b->mem_copy(device, q, p, 64, BS_COPY_DEVICE_TO_DEVICE, NULL, &err), BS_UNSUPPORTED);
  ck_assert_ptr_null(o.b->native_handle(device, BS_NATIVE_STREAM, NULL));
  ck_assert_int_eq(o.b->capture_begin(device, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(o.b->capture_end(device, &graph, &err), BS_UNSUPPORTED);
  ck_assert_msg(strncmp(err.message, spoils[_i], strlen(spoils[_i])) == 0, "%s", err.message);
  ck_assert_ptr_null(graph);
  /* Nothing has run, and all is as before. */
  ck_assert_int_eq(o.b->mem_copy(device, got, q, 64, BS_COPY_DEVICE_TO_HOST, NULL, &err), BS_OK);
  ck_assert_mem_eq(got, host[1], 64);
  ck_assert_ptr_nonnull(o.b->native_handle(device, BS_NATIVE_STREAM, NULL));
  ck_assert_int_eq(o.b->capture_end(device, &graph, &err), BS_INVALID_ARGUMENT);
  if (_i != 1) o.b->mem_free(device, p);
  o.b->mem_free(device, q);
  o.b->event_destroy(device, event);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* A second begin is refused, and what the first has begun is whole. */
START_TEST(graphs_are_begun_once) {
  const over o = over_open(NULL, NULL);
  bs_error err = BS_ERROR_INIT;
  void *device = NULL, *p = NULL;
  char host[2][64] = {{1, 2, 3}, {0}};
  bs_capture *graph = NULL;
  ck_assert_int_eq(o.b->device_open(o.state, 0, &device, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_alloc(device, 128, 64, &p, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, p, host[0], 64, BS_COPY_HOST_TO_DEVICE, NULL, &err), BS_OK);
  ck_assert_int_eq(o.b->capture_begin(device, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, (char *)p + 64, p, 64, BS_COPY_DEVICE_TO_DEVICE, NULL, &err), BS_OK);
  ck_assert_int_eq(o.b->capture_begin(device, &err), BS_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "begun already") != NULL, "%s", err.message);
  ck_assert_int_eq(o.b->capture_end(device, &graph, &err), BS_OK);
  ck_assert_ptr_nonnull(graph);
  ck_assert_int_eq(o.b->capture_run(device, graph, &err), BS_OK);
  ck_assert_int_eq(o.b->mem_copy(device, host[1], (char *)p + 64, 64, BS_COPY_DEVICE_TO_HOST, NULL, &err),
                   BS_OK);
  ck_assert_mem_eq(host[0], host[1], 64);
  o.b->capture_free(device, graph);
  o.b->mem_free(device, p);
  o.b->device_close(device);
  nothing_lives();
  over_close(&o);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {forwards_are_one_launch},        {scratch_that_moves},
      {what_fails_is_run_as_before, 3}, {a_launch_that_fails_is_told},
      {ranks_that_meet_cannot, 2},      {what_spoils_a_graph_is_told, TEST_COUNT(spoils)},
      {graphs_are_begun_once},          {0}};
  return run_tests("cuda_graph", tests, (test_setup){.timeout = 60});
}
