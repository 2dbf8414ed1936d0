/* SPDX-License-Identifier: MIT
 * test_cuda_world.c - a rank of the host on the cuda backend over the stand-in: memory that the host cannot
 * read and work that goes on after the call are what core/world must be right with. Tensors are zeros, are
 * read from sources, go through an op and a collective of one rank, and are timed by events. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "blockshock/plugin.h"
#include "core/base/rng.h"
#include "core/world/world.h"
#include "tests/cuda/backend.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const bs_rank_api *api;

static void with_ranks(uint32_t ranks, int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err),
                       void *arg, int32_t code, const char *message) {
  const over o = over_open(NULL, NULL);
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = ranks,
                                    .threads_per_rank = 1,
                                    .backend = "cuda",
                                    .sync_mode = BS_SYNC_EVENTS};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  api = bs_rank_get_api();
  int32_t rc = bs_world_create(o.context, &options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, arg, &err);
  ck_assert_msg(rc == code && strstr(err.message, message) != NULL, "%d %s: %s", rc, err.id, err.message);
  bs_world_destroy(world);
  nothing_lives();
  over_close(&o);
}

static void with_world(int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err), void *arg, int32_t code,
                       const char *message) {
  with_ranks(1, rank_main, arg, code, message);
}

/* Large tensors are zeros by few copies: one of 4 KiB at a time was most of building a layer. */
static int32_t zeros_main(bs_rank *rank, void *arg, bs_error *err) {
  enum { N = 3 * 1024 * 1024 + 5 };
  const bs_tensor_desc d = bs_desc_2d(BS_F32, 1, N);
  bs_tensor t = {.struct_size = sizeof t};
  float *host = malloc(N * sizeof *host);
  (void)arg;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &t, err);
  ck_assert_uint_le(calls_of("cuMemcpyHtoDAsync_v2") + calls_of("cuMemcpyDtoDAsync_v2"), 20);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t, host, err);
  for (int64_t i = 0; rc == BS_OK && i < N; i++)
    if (host[i] != 0.0f) ck_abort_msg("element %lld is %g", (long long)i, (double)host[i]);
  api->tensor_free(rank, &t);
  free(host);
  return rc;
}
START_TEST(tensors_are_zeros) {
  with_world(zeros_main, NULL, BS_OK, "");
}
END_TEST

/* value(row, column) = 100 row + column, in any dtype. */
static int32_t read_source(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)err;
  ck_assert_uint_eq(dtype, BS_F32);
  const int64_t n = cols != NULL ? cols->count : 37;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t c = 0; c < n; c++)
      ((float *)out)[r * out_stride + c] =
          (float)(100 * (row + r) + (cols == NULL            ? c
                                     : cols->columns != NULL ? cols->columns[c]
                                                             : cols->begin + c));
  return BS_OK;
}

enum { ROWS = 50, COLS = 37 };

/* Read into rows with gaps, converted on the device, reduced with no one, copied out. */
static int32_t through_main(bs_rank *rank, void *arg, bs_error *err) {
  static float got[ROWS * COLS], reduced[ROWS * COLS];
  bs_tensor_desc from = bs_desc_2d(BS_F32, ROWS, COLS), to = bs_desc_2d(BS_BF16, ROWS, COLS);
  from.strides[0] = COLS + 7;
  const bs_tensor_desc back = bs_desc_2d(BS_F32, ROWS, COLS), *args[2] = {&from, &to};
  const bs_source source = {
      .struct_size = sizeof source, .dtype = BS_F32, .rows = 500, .cols = COLS, .read = read_source};
  const bs_op_query q = {.struct_size = sizeof q, .op = "convert", .nargs = 2, .args = args};
  const bs_collective sum = {.struct_size = sizeof sum,
                             .kind = BS_COLL_ALL_REDUCE,
                             .dtype_in = BS_BF16,
                             .dtype_out = BS_F32,
                             .reduce_dtype = BS_F32,
                             .rows = ROWS,
                             .count = COLS,
                             .site = "test"};
  bs_tensor a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b}, c = {.struct_size = sizeof c};
  bs_coll_plan *reduce = NULL;
  bs_plan *plan = NULL;
  int32_t rc = api->tensor_alloc(rank, &from, BS_LIFE_SCRATCH, &a, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &to, BS_LIFE_SCRATCH, &b, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &back, BS_LIFE_SCRATCH, &c, err);
  if (rc == BS_OK) rc = api->tensor_read(rank, &source, 400, NULL, &a, err);
  if (rc == BS_OK) rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->collective_prepare(rank, &sum, &reduce, err);
  for (int i = 0; rc == BS_OK && i < 3; i++) {
    api->region_begin(rank, BS_REGION_FORWARD);
    rc = api->op_run(plan, (bs_tensor *[]){&a, &b}, 2, NULL, err);
    api->region_end(rank, BS_REGION_FORWARD);
  }
  if (rc == BS_OK) rc = api->collective_run(reduce, &b, &c, NULL, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &a, got, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &c, reduced, err);
  if (rc == BS_OK) rc = bs_rank_region_stats(rank, BS_REGION_FORWARD, arg, err);
  for (int i = 0; rc == BS_OK && i < ROWS * COLS; i++) {
    const int row = 400 + i / COLS;
    const float value = (float)(100 * row + i % COLS);
    uint16_t half;
    float rounded;
    ck_assert(got[i] == value);
    ck_assert_int_eq(bs_convert(BS_BF16, &half, BS_F32, &value, 1), BS_OK);
    ck_assert_int_eq(bs_convert(BS_F32, &rounded, BS_BF16, &half, 1), BS_OK);
    ck_assert(reduced[i] == rounded);
  }
  api->op_release(plan);
  api->collective_release(reduce);
  api->tensor_free(rank, &a);
  api->tensor_free(rank, &b);
  api->tensor_free(rank, &c);
  return rc;
}
START_TEST(a_tensor_goes_through) {
  bs_region_stats stats = {.struct_size = sizeof stats};
  with_world(through_main, &stats, BS_OK, "");
  ck_assert_uint_eq(stats.count, 3);
  ck_assert(stats.min_ms > 0.0 && stats.max_ms < 1e4); /* by the device's clock */
  ck_assert_uint_eq(calls_of("cuEventElapsedTime"), 3);
}
END_TEST

/* A generated X is made on the device, and no host reads it; a view of it that says nothing is read. */
static int32_t no_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t out_stride, bs_error *err) {
  (void)row, (void)nrows, (void)cols, (void)dtype, (void)out, (void)out_stride;
  return bs_fail(err, BS_INTERNAL, "TEST-READ", "%s", (const char *)ctx);
}
static int32_t generated_main(bs_rank *rank, void *arg, bs_error *err) {
  static const char text[] = "read by the host";
  static float got[ROWS * 3], row[COLS];
  static const uint32_t list[3] = {0, 5, 36};
  const bs_generator made = {.struct_size = sizeof made,
                             .law = BS_LAW_NORMAL,
                             .ctx = text,
                             .seed = 11,
                             .line = COLS,
                             .stream = 2,
                             .b = 1.0f};
  bs_source source = {.struct_size = sizeof source,
                      .dtype = BS_F32,
                      .rows = 500,
                      .cols = COLS,
                      .ctx = (void *)(uintptr_t)text,
                      .read = no_read,
                      .generator = &made};
  const bs_partition part = {
      .struct_size = sizeof part, .kind = BS_PARTITION_GATHER, .total = COLS, .count = 3, .columns = list};
  bs_tensor_desc d = bs_desc_2d(BS_F32, ROWS, 3);
  d.strides[0] = 5;
  bs_tensor t = {.struct_size = sizeof t};
  (void)arg;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &t, err);
  if (rc == BS_OK) rc = api->tensor_read(rank, &source, 400, &part, &t, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t, got, err);
  for (int r = 0; rc == BS_OK && r < ROWS; r++) {
    bs_rng_normal(11, 2, (uint64_t)(400 + r) * COLS, COLS, row);
    for (int c = 0; c < 3; c++) ck_assert(got[3 * r + c] == row[list[c]]);
  }
  if (rc == BS_OK) ck_assert_ptr_nonnull(strstr(bs_world_algorithms(rank->world), "generate@cuda/philox"));
  char other[] = "another read";
  source.ctx = other;
  if (rc == BS_OK) rc = api->tensor_read(rank, &source, 400, &part, &t, err);
  api->tensor_free(rank, &t);
  return rc;
}
START_TEST(a_generated_tensor) {
  with_world(generated_main, NULL, BS_INTERNAL, "another read");
}
END_TEST

/* A step's numbers are told some steps ahead, and anew when they change: copies from the host in every step
 * would be waited for in each. One weight is followed in f64, with the gradient that it had. */
typedef struct followed {
  double w, m, v;
} followed;

static void follow(followed *f, const bs_step *s, double g) {
  if (s->optimizer == BS_OPT_SGD) {
    f->w -= s->lr * (g + s->weight_decay * f->w);
    return;
  }
  const double t = (double)s->t;
  f->m = s->beta1 * f->m + (1 - s->beta1) * g;
  f->v = s->beta2 * f->v + (1 - s->beta2) * g * g;
  const double step = f->m / (1 - pow(s->beta1, t)) / (sqrt(f->v / (1 - pow(s->beta2, t))) + s->eps);
  f->w -= s->lr * (step + s->weight_decay * f->w);
}

static int32_t ones(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                    void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)row, (void)cols, (void)err;
  ck_assert_uint_eq(dtype, BS_F32);
  for (int64_t i = 0; i < nrows * out_stride; i++) ((float *)out)[i] = 1.0f;
  return BS_OK;
}
static int32_t stepping_main(bs_rank *rank, void *arg, bs_error *err) {
  enum { B = 2, N = 8, K = 12, STEPS = 70, SLOWER = 40 };
  const uint32_t optimizer = *(const uint32_t *)arg;
  const bs_layer_spec spec = {
      .struct_size = sizeof spec,
      .has_bias = 1,
      .B = B,
      .N = N,
      .K = K,
      .x_dtype = BS_F32,
      .w_dtype = BS_F32,
      .y_dtype = BS_F32,
      .flags = BS_LAYER_BACKWARD | (optimizer == BS_OPT_SGD ? BS_LAYER_SGD : BS_LAYER_ADAMW)};
  const bs_source w = {.struct_size = sizeof w, .dtype = BS_F32, .rows = N, .cols = K, .read = ones};
  const bs_source bias = {.struct_size = sizeof bias, .dtype = BS_F32, .rows = 1, .cols = N, .read = ones};
  const bs_source xs = {.struct_size = sizeof xs, .dtype = BS_F32, .rows = B, .cols = K, .read = ones};
  const bs_tensor_desc dx = bs_desc_2d(BS_F32, B, K), dy = bs_desc_2d(BS_F32, B, N),
                       dw = bs_desc_2d(BS_F32, N, K);
  const bs_tensor_desc db = {.struct_size = sizeof db, .dtype = BS_F32, .rank = 1, .dims = {N}};
  bs_tensor t[5] = {{0}};
  bs_layer *layer = NULL;
  uint64_t before = 0;
  followed f = {1.0, 0.0, 0.0};
  float got[N * K];
  int32_t rc = bs_layer_build(rank, "dense", &spec, &w, &bias, &layer, err);
  const bs_tensor_desc *descs[5] = {&dx, &dy, &dx, &dw, &db};
  for (int i = 0; rc == BS_OK && i < 5; i++)
    rc = api->tensor_alloc(rank, descs[i], BS_LIFE_ACTIVATION, &t[i], err);
  if (rc == BS_OK) rc = api->tensor_read(rank, &xs, 0, NULL, &t[0], err);
  for (uint64_t i = 1; rc == BS_OK && i <= STEPS; i++) {
    const bs_step step = {.struct_size = sizeof step,
                          .optimizer = optimizer,
                          .t = i,
                          .lr = i < SLOWER ? 0x1p-9 : 0x1p-10,
                          .beta1 = 0.75,
                          .beta2 = 0.875,
                          .eps = 1e-6,
                          .weight_decay = 0.5,
                          .dw = &t[3],
                          .db = &t[4],
                          .x = &t[0],
                          .dy = &t[1]};
    rc = bs_layer_forward(layer, &t[0], &t[1], NULL, err);
    if (rc == BS_OK) rc = bs_layer_backward(layer, &t[0], &t[1], &t[2], &t[3], &t[4], NULL, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t[3], got, err);
    if (rc == BS_OK) follow(&f, &step, (double)got[0]);
    if (rc == BS_OK) rc = bs_layer_step(layer, &step, NULL, err);
    if (i == 1) before = calls_of("cuMemcpyHtoDAsync_v2");
  }
  /* of W and of the bias: at the 40th step, of AdamW at the 33rd too */
  if (rc == BS_OK)
    ck_assert_uint_eq(calls_of("cuMemcpyHtoDAsync_v2") - before, optimizer == BS_OPT_SGD ? 2 : 4);
  if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &t[3], err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t[3], got, err);
  if (rc == BS_OK) ck_assert(fabs((double)got[0] - f.w) < 1e-4);
  for (int i = 0; i < 5; i++) api->tensor_free(rank, &t[i]);
  bs_layer_free(layer);
  return rc;
}
START_TEST(steps_copy_little) {
  uint32_t optimizer = _i == 0 ? BS_OPT_SGD : BS_OPT_ADAMW;
  with_world(stepping_main, &optimizer, BS_OK, "");
}
END_TEST

/* Each flush writes twice the cache once, and is done when it returns; its memory is not the run's. */
static int32_t flushing_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(BS_F32, 1, 4096);
  bs_tensor t = {.struct_size = sizeof t};
  bs_device_state before, after;
  uint64_t bytes = 0;
  (void)arg;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &t, err);
  if (rc == BS_OK) rc = bs_rank_device_state(rank, &before, err);
  const uint64_t copies = calls_of("cuMemcpyDtoDAsync_v2"), waits = calls_of("cuStreamSynchronize");
  for (uint64_t i = 1; rc == BS_OK && i <= 3; i++) {
    rc = bs_rank_device_flush(rank, &bytes, err);
    ck_assert_uint_eq(bytes, 2 << 20); /* the stand-in's cache is of 1 MiB */
    ck_assert_uint_eq(calls_of("cuMemcpyDtoDAsync_v2") - copies, i);
    ck_assert_uint_ge(calls_of("cuStreamSynchronize") - waits, i);
  }
  if (rc == BS_OK) rc = bs_rank_device_state(rank, &after, err);
  if (rc == BS_OK) {
    ck_assert_uint_eq(before.memory_peak_bytes, 4 * 4096);
    ck_assert_uint_eq(after.memory_peak_bytes, 4 * 4096);
    ck_assert_uint_eq(bs_world_memory_peak(rank->world), 4 * 4096);
  }
  bs_tensor more = {.struct_size = sizeof more};
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &more, err);
  if (rc == BS_OK) rc = bs_rank_device_state(rank, &after, err);
  if (rc == BS_OK) ck_assert_uint_eq(after.memory_peak_bytes, 2 * 4 * 4096);
  api->tensor_free(rank, &t);
  api->tensor_free(rank, &more);
  return rc;
}
/* Rank 0 waits in a collective for rank 1, which is late: by the device that is the region's time, and none
 * of it is the host's work. */
static atomic_int begun;
static int32_t late_main(bs_rank *rank, void *arg, bs_error *err) {
  const struct timespec late = {.tv_nsec = 200000000}, little = {.tv_nsec = 1000000};
  const bs_tensor_desc d = bs_desc_2d(BS_F32, 1, 8);
  const bs_collective sum = {.struct_size = sizeof sum,
                             .kind = BS_COLL_ALL_REDUCE,
                             .dtype_in = BS_F32,
                             .dtype_out = BS_F32,
                             .reduce_dtype = BS_F32,
                             .rows = 1,
                             .count = 8,
                             .site = "test"};
  const int started = *(const int *)arg;
  bs_region_stats stats = {.struct_size = sizeof stats};
  bs_tensor t = {.struct_size = sizeof t};
  bs_coll_plan *plan = NULL;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &t, err);
  if (rc == BS_OK) rc = api->collective_prepare(rank, &sum, &plan, err);
  while (rc == BS_OK && api->rank(rank) == 1 && !atomic_load(&begun)) (void)nanosleep(&little, NULL);
  if (rc == BS_OK && api->rank(rank) == 1) (void)nanosleep(&late, NULL);
  api->region_begin(rank, BS_REGION_FORWARD);
  atomic_store(&begun, 1); /* a busy machine may take its time until here */
  if (rc == BS_OK && !started) rc = api->collective_run(plan, &t, &t, NULL, err);
  if (rc == BS_OK && started) rc = api->collective_start(plan, &t, &t, NULL, err);
  if (rc == BS_OK && started) rc = api->collective_wait(plan, err);
  api->region_end(rank, BS_REGION_FORWARD);
  if (rc == BS_OK) rc = bs_rank_region_stats(rank, BS_REGION_FORWARD, &stats, err);
  if (rc == BS_OK && api->rank(rank) == 0) {
    ck_assert_uint_eq(stats.device_clock, 1);
    ck_assert_msg(stats.p50_ms > 50 && stats.enqueue_p50_ms > 0 && stats.enqueue_p50_ms < stats.p50_ms / 2,
                  "%g %g", stats.p50_ms, stats.enqueue_p50_ms);
  }
  api->collective_release(plan);
  api->tensor_free(rank, &t);
  return rc;
}
START_TEST(waits_are_no_work) {
  atomic_store(&begun, 0);
  with_ranks(2, late_main, &_i, BS_OK, "");
}
END_TEST

START_TEST(the_cache_is_emptied) {
  with_world(flushing_main, NULL, BS_OK, "");
}
END_TEST

/* What a launch refuses, and what it breaks later, end the rank with the driver's words. */
START_TEST(a_launch_that_fails) {
  bs_region_stats stats = {.struct_size = sizeof stats};
  setenv("BS_CUDA_STANDIN", "plan=cuLaunchKernel:2=701", 1);
  with_world(
      through_main, &stats, BS_RANK_FAILED,
      "cuLaunchKernel of convert: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701): too many resources requested");
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {tensors_are_zeros},    {a_tensor_goes_through}, {a_generated_tensor},  {steps_copy_little, 2},
      {the_cache_is_emptied}, {waits_are_no_work, 2},  {a_launch_that_fails}, {0}};
  return run_tests("cuda_world", tests, (test_setup){0});
}
