/* SPDX-License-Identifier: MIT
 * What a rank offers: timer regions (K18), counters, memory, tensors, collectives and the hook. */
#include <math.h>
#include <time.h>

#include "core/world/world.h"
#include "world_help.h"

static const bs_rank_api *api;
static void open_all(void) {
  open_context();
  api = bs_rank_get_api();
}

/* ---- regions -------------------------------------------------------------------------------- */

static void is_stats(const bs_region_stats *s, uint64_t count, double sum, double avg, double p50,
                     double p95) {
  ck_assert_uint_eq(s->count, count);
  ck_assert_double_eq_tol(s->sum_ms, sum, 1e-12);
  ck_assert_double_eq_tol(s->avg_ms, avg, 1e-12);
  ck_assert_double_eq_tol(s->p50_ms, p50, 1e-12);
  ck_assert_double_eq_tol(s->p95_ms, p95, 1e-12);
}
START_TEST(test_k18) {
  bs_region_stats s;
  double four[] = {3, 1, 4, 2}, five[] = {5};
  bs_region_summarise(four, 4, &s);
  is_stats(&s, 4, 10, 2.5, 2.5, 3.85);
  bs_region_summarise(five, 1, &s);
  is_stats(&s, 1, 5, 5, 5, 5);
  bs_region_summarise(five, 0, &s);
  is_stats(&s, 0, 0, 0, 0, 0);
}
END_TEST

/* The same through a run in events mode: the device's n-th interval lasts n ms. */
static int32_t events_main(bs_rank *rank, void *arg, bs_error *e) {
  bs_region_stats *out = arg;
  for (int i = 0; i < 4; ++i) {
    api->region_begin(rank, BS_REGION_FORWARD);
    api->region_end(rank, BS_REGION_FORWARD);
  }
  return bs_rank_region_stats(rank, BS_REGION_FORWARD, out, e);
}
START_TEST(test_k18_events) {
  bs_region_stats s;
  bs_world_options o = options(1, "evdev");
  o.sync_mode = BS_SYNC_EVENTS;
  bs_world *world = world_of(&o);
  run(world, events_main, &s, BS_OK);
  is_stats(&s, 4, 10, 2.5, 2.5, 3.85);
  ck_assert_str_eq(s.name, "forward");
  bs_world_destroy(world);
}
END_TEST

static int32_t regions_main(bs_rank *rank, void *arg, bs_error *e) {
  static const char *const names[] = {"build",    "pack",      "compress",   "forward",   "backward",
                                      "opt_step", "allreduce", "layout_fix", "total_step"};
  bs_region_stats s;
  (void)arg;
  ck_assert_uint_eq(bs_rank_region_count(rank), 9);
  for (uint32_t i = 0; i < 9; ++i) {
    ck_assert_int_eq(bs_rank_region_stats(rank, i, &s, e), BS_OK);
    ck_assert_str_eq(s.name, names[i]);
    is_stats(&s, 0, 0, 0, 0, 0);
  }
  uint32_t mine = api->region_named(rank, "my_region");
  ck_assert_uint_eq(mine, 9);
  ck_assert_uint_eq(api->region_named(rank, "my_region"), mine);
  ck_assert_uint_eq(api->region_named(rank, "forward"), BS_REGION_FORWARD);
  for (int i = 0; i < 5000; ++i) { /* beyond the first array */
    api->region_begin(rank, mine);
    if (i == 0) nanosleep(&(struct timespec){0, 3000000}, NULL);
    api->region_end(rank, mine);
  }
  ck_assert_int_eq(bs_rank_region_stats(rank, mine, &s, e), BS_OK);
  ck_assert_uint_eq(s.count, 5000);
  ck_assert(s.sum_ms >= 3.0 && s.p50_ms < 3.0 && s.p50_ms <= s.p95_ms && s.avg_ms > 0.0);
  bs_rank_regions_reset(rank);
  ck_assert_int_eq(bs_rank_region_stats(rank, mine, &s, e), BS_OK);
  is_stats(&s, 0, 0, 0, 0, 0);
  ck_assert_int_eq(bs_rank_region_stats(rank, 10, &s, e), BS_NOT_FOUND);
  return BS_OK;
}
START_TEST(test_regions) {
  for (uint32_t mode = BS_SYNC_SYNC; mode <= BS_SYNC_NONE; ++mode) {
    bs_world_options o = options(2, "ref");
    o.sync_mode = mode;
    bs_world *world = world_of(&o);
    run(world, regions_main, NULL, BS_OK);
    bs_world_destroy(world);
  }
}
END_TEST

static int32_t misuse_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  switch (*(const int *)arg) {
    case 0:
      api->region_begin(rank, BS_REGION_PACK);
      api->region_begin(rank, BS_REGION_PACK);
      break;
    case 1:
      api->region_end(rank, BS_REGION_PACK);
      break;
    default:
      api->region_begin(rank, 77);
      break;
  }
  return BS_OK;
}
START_TEST(test_region_misuse) {
  bs_world_options o = options(1, "ref");
  bs_world *world = world_of(&o);
  run(world, misuse_main, &_i, BS_INTERNAL);
  ck_assert_str_eq(err.id, _i == 2 ? "BS-REGION-ID" : "BS-REGION-NEST");
  ck_assert_ptr_nonnull(strstr(err.message, _i == 2 ? "77" : "pack"));
  bs_world_destroy(world);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------- */

static int32_t memory_main(bs_rank *rank, void *arg, bs_error *e) {
  bs_world *world = arg;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2, .dims = {100, 10}};
  bs_tensor a, b, strided, none;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_WEIGHTS, &a, e), BS_OK);
  ck_assert_uint_eq(a.bytes, 4000);
  ck_assert_int_eq(a.strides[0], 10);
  ck_assert_int_eq(a.strides[1], 1);
  ck_assert_uint_eq((uintptr_t)a.data % 64, 0);
  ck_assert_uint_eq(bs_world_memory_now(world), 4000);
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, &b, e), BS_OK);
  void *host = api->alloc(rank, 1000);
  ck_assert_uint_eq(bs_world_memory_now(world), 9000);
  ck_assert_uint_eq(((unsigned char *)host)[999], 0);
  api->free(rank, host);
  api->tensor_free(rank, &b);
  ck_assert_ptr_null(b.data);
  ck_assert_uint_eq(bs_world_memory_now(world), 4000);
  ck_assert_uint_eq(bs_world_memory_peak(world), 9000);
  bs_world_memory_peak_reset(world);
  ck_assert_uint_eq(bs_world_memory_peak(world), 4000);
  d.strides[0] = 16;
  d.strides[1] = 1;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &strided, e), BS_OK);
  ck_assert_uint_eq(strided.bytes, (99 * 16 + 10) * 4);
  d.dims[0] = 0;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &none, e), BS_OK);
  ck_assert_uint_eq(none.bytes, 0);
  d.dims[0] = INT64_MAX / 2;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &b, e), BS_OVERFLOW);
  d.dims[0] = -1;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &b, e), BS_INVALID_ARGUMENT);
  d.dims[0] = 1;
  d.dtype = 0x9999;
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &b, e), BS_INVALID_ARGUMENT);
  api->tensor_free(rank, &none);
  api->tensor_free(rank, &strided);
  api->tensor_free(rank, &a);
  api->tensor_free(rank, &a); /* a freed tensor is empty: nothing happens */
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  return BS_OK;
}
START_TEST(test_memory) {
  bs_world_options o = options(1, _i == 0 ? "ref" : "evdev");
  bs_world *world = world_of(&o);
  run(world, memory_main, world, BS_OK);
  bs_world_destroy(world);
}
END_TEST

/* tensor_read and copy_out, by way of host panels where memory is a device's. */
static int32_t tensor_main(bs_rank *rank, void *arg, bs_error *e) {
  enum { ROWS = 700, COLS = 600 };
  float *data = malloc((size_t)ROWS * COLS * sizeof *data),
        *back = malloc((size_t)ROWS * COLS * sizeof *back);
  bs_source source;
  bs_tensor t;
  (void)arg;
  for (int i = 0; i < ROWS * COLS; ++i) data[i] = (float)i;
  ck_assert_int_eq(bs_source_from_memory(data, BS_F32, ROWS, COLS, COLS, &source, e), BS_OK);
  bs_tensor_desc d = {.struct_size = sizeof d,
                      .dtype = BS_F32,
                      .rank = 2,
                      .dims = {ROWS - 10, COLS},
                      .strides = {COLS + 8, 1}};
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_WEIGHTS, &t, e), BS_OK);
  ck_assert_int_eq(bs_rank_copy_out(rank, &t, back, e), BS_OK);
  int wrong = 0; /* assertions are slow */
  for (int i = 0; i < (ROWS - 10) * COLS; ++i) wrong += back[i] != 0.0f;
  ck_assert_int_eq(wrong, 0);
  ck_assert_int_eq(api->tensor_read(rank, &source, 7, NULL, &t, e), BS_OK);
  ck_assert_int_eq(bs_rank_copy_out(rank, &t, back, e), BS_OK);
  for (int i = 0; i < (ROWS - 10) * COLS; ++i) wrong += back[i] != data[i + 7 * COLS];
  ck_assert_int_eq(wrong, 0);
  bs_tensor turned = t; /* columns as rows */
  turned.dims[0] = 3;
  turned.dims[1] = 5;
  turned.strides[0] = 1;
  turned.strides[1] = COLS + 8;
  ck_assert_int_eq(bs_rank_copy_out(rank, &turned, back, e), BS_OK);
  for (int i = 0; i < 15; ++i) ck_assert_float_eq(back[i], data[(7 + i % 5) * COLS + i / 5]);
  ck_assert_int_eq(api->tensor_read(rank, &source, 11, NULL, &t, e), BS_INVALID_ARGUMENT); /* past the end */
  ck_assert_int_eq(api->tensor_read(rank, &source, -1, NULL, &t, e), BS_INVALID_ARGUMENT);
  api->tensor_free(rank, &t);
  bs_source_release(&source);
  free(back);
  free(data);
  return BS_OK;
}
START_TEST(test_tensors) {
  bs_world_options o = options(1, _i == 0 ? "ref" : "evdev");
  bs_world *world = world_of(&o);
  run(world, tensor_main, NULL, BS_OK);
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}
END_TEST

/* ---- collectives ---------------------------------------------------------------------------- */

static bs_tensor view_of(void *data, uint32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = dtype,
                 .rank = 2,
                 .dims = {rows, cols},
                 .strides = {stride, 1},
                 .data = data,
                 .bytes = (uint64_t)(rows * stride) * BS_DTYPE_BYTES(dtype)};
  return t;
}
static bs_collective collective(uint32_t kind, uint64_t rows, uint64_t count, const char *site) {
  bs_collective d = {
      .struct_size = sizeof d, .kind = kind, .dtype_in = BS_F32, .rows = rows, .count = count, .site = site};
  return d;
}

/* P = 3: payload and wire bytes by the table of coll.c. */
static int32_t counters_main(bs_rank *rank, void *arg, bs_error *e) {
  uint64_t counts[3] = {1, 2, 4}, r = rank_of(rank);
  float x[16], y[32];
  bs_coll_plan *plan = NULL;
  (void)arg;
  for (int i = 0; i < 16; ++i) x[i] = (float)(i + 1) * (float)(r + 1);
  bs_collective d = collective(BS_COLL_ALL_REDUCE, 2, 5, "reduce");
  bs_tensor in = view_of(x, BS_F32, 2, 5, 7), out = view_of(y, BS_F32, 2, 5, 5);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[0], 6.0f);
  ck_assert_float_eq(y[9], 12.0f * 6.0f); /* row 1, column 4 of stride 7 */
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 1);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 40);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 53); /* 40 x 4 / 3 */
  in.dims[0] = out.dims[0] = 1;                                      /* fewer rows than prepared */
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 60);
  in.dims[1] = 4;
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_INVALID_ARGUMENT);
  in.dims[1] = 5;
  in.dtype = BS_F64;
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->where, "reduce");
  ck_assert_int_eq(e->rank, (int32_t)r);
  api->collective_release(plan);
  bs_rank_counters_reset(rank);

  d = collective(BS_COLL_ALL_GATHER, 1, 0, "gather");
  d.ncounts = 3;
  d.counts = counts;
  in = view_of(x, BS_F32, 1, (int64_t)counts[r], 16);
  out = view_of(y, BS_F32, 1, 7, 32);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[2], 4.0f);
  ck_assert_float_eq(y[6], 12.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 28);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 18);
  api->collective_release(plan);
  bs_rank_counters_reset(rank);

  d = collective(r == 0 ? BS_COLL_SEND : BS_COLL_RECV, 1, 5, "pair");
  d.root = r == 0 ? 2 : 0;
  if (r != 1) {
    in = view_of(x, BS_F32, 1, 5, 5);
    out = view_of(y, BS_F32, 1, 5, 5);
    ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
    ck_assert_int_eq(api->collective_run(plan, r == 0 ? &in : NULL, r == 0 ? NULL : &out, NULL, e), BS_OK);
    ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), r == 0 ? 20 : 0);
    if (r == 2) ck_assert_float_eq(y[4], 5.0f);
    api->collective_release(plan);
  }
  d = collective(BS_COLL_ALL_REDUCE, 1, 1, NULL);
  d.dtype_in = 0x1234;
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  d = collective(BS_COLL_BROADCAST, 1, 1, "root");
  d.root = 3;
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  d = collective(BS_COLL_ALL_REDUCE, UINT64_MAX / 4, 9, "huge");
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OVERFLOW);
  d = collective(99, 1, 1, "kind");
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  return bs_rank_barrier(rank, "end", e); /* not counted */
}
START_TEST(test_counters) {
  bs_world_options o = options(3, "ref");
  bs_world *world = world_of(&o);
  run(world, counters_main, NULL, BS_OK);
  ck_assert_uint_eq(bs_rank_counter(bs_world_rank(world, 1), BS_COUNT_COLLECTIVES), 0);
  ck_assert_uint_eq(bs_rank_counter(bs_world_rank(world, 0), BS_COUNT_COLLECTIVES), 1);
  bs_world_destroy(world);
}
END_TEST

/* Ranks that prepared different shapes at one site are found when they meet. */
static int32_t mismatch_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[8] = {0};
  bs_coll_plan *plan = NULL;
  (void)arg;
  bs_collective d = collective(BS_COLL_ALL_REDUCE, 1, 3 + rank_of(rank), "layer.y");
  bs_tensor t = view_of(x, BS_F32, 1, 3 + (int64_t)rank_of(rank), 8);
  int32_t rc = api->collective_prepare(rank, &d, &plan, e);
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, e);
  api->collective_release(plan);
  return rc;
}
START_TEST(test_mismatch) {
  bs_world_options o = options(2, "ref");
  bs_world *world = world_of(&o);
  run(world, mismatch_main, NULL, BS_MISMATCH);
  ck_assert_msg(
      strstr(err.message, "rank 0") && strstr(err.message, "rank 1") && strstr(err.message, "layer.y"), "%s",
      err.message);
  bs_world_destroy(world);
}
END_TEST

/* A world of one: copies with the roundings of a reduction. */
static int32_t alone_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {257.0f, 1.5f}, y[2] = {0, 0};
  bs_coll_plan *plan = NULL;
  (void)arg;
  bs_collective d = collective(BS_COLL_ALL_REDUCE, 1, 2, "alone");
  d.reduce_dtype = BS_BF16;
  bs_tensor in = view_of(x, BS_F32, 1, 2, 2), out = view_of(y, BS_F32, 1, 2, 2);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[0], 256.0f);
  ck_assert_float_eq(y[1], 1.5f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 0);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 8);
  api->collective_release(plan);
  return bs_rank_barrier(rank, "end", e);
}
START_TEST(test_alone) {
  bs_world_options o = options(1, "ref");
  bs_world *world = world_of(&o);
  run(world, alone_main, NULL, BS_OK);
  bs_world_destroy(world);
}
END_TEST

/* Groups of 1, 2 and all. */
static int32_t group_main(bs_rank *rank, void *arg, bs_error *e) {
  uint32_t r = rank_of(rank), pair[2] = {0, 2}, all[3] = {0, 1, 2}, self[1] = {r}, wrong[2] = {2, 0};
  const uint32_t *lists[] = {self, all, pair};
  static const uint32_t sizes[] = {1, 3, 2};
  (void)arg;
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && r == 1) continue;
    bs_group *group = NULL;
    bs_coll_plan *plan = NULL;
    float v = (float)(r + 1);
    bs_tensor t = view_of(&v, BS_F32, 1, 1, 1);
    ck_assert_int_eq(api->group_open(rank, lists[i], sizes[i], &group, e), BS_OK);
    bs_collective d = collective(BS_COLL_ALL_REDUCE, 1, 1, "group");
    d.group = group;
    ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
    ck_assert_int_eq(api->collective_run(plan, &t, &t, NULL, e), BS_OK);
    ck_assert_float_eq(v, i == 0 ? (float)(r + 1) : i == 1 ? 6.0f : 4.0f);
    api->collective_release(plan);
    api->group_close(group);
  }
  bs_group *none = NULL;
  ck_assert_int_eq(api->group_open(rank, wrong, 2, &none, e), BS_INVALID_ARGUMENT);
  return BS_OK;
}
START_TEST(test_groups) {
  bs_world_options o = options(3, "ref");
  bs_world *world = world_of(&o);
  run(world, group_main, NULL, BS_OK);
  bs_world_destroy(world);
}
END_TEST

/* ---- hook ----------------------------------------------------------------------------------- */

typedef struct hook_log {
  uint32_t times;
  uint32_t before[2], after[2];
  float first[2];
} hook_log;
static uint32_t hook_before(void *user, uint32_t rank, const bs_coll_call *call) {
  hook_log *log = user;
  log->before[rank]++;
  log->first[rank] = *(const float *)call->in;
  return log->times;
}
static void hook_after(void *user, uint32_t rank, const bs_coll_call *call) {
  hook_log *log = user;
  log->after[rank]++;
  ((float *)call->out)[1] += 100.0f; /* an injected fault */
}
static int32_t hook_main(bs_rank *rank, void *arg, bs_error *e) {
  const hook_log *log = arg;
  float x[2] = {1.0f, 2.0f}, y[2] = {-1.0f, -1.0f};
  bs_coll_plan *plan = NULL;
  bs_collective d = collective(BS_COLL_ALL_REDUCE, 1, 2, "hooked");
  bs_tensor in = view_of(x, BS_F32, 1, 2, 2), out = view_of(y, BS_F32, 1, 2, 2);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  api->collective_release(plan);
  static const float want[] = {-1.0f, 2.0f, 4.0f}; /* skipped; 1 + 1; then 2 + 2 */
  ck_assert_float_eq(y[0], want[log->times]);
  ck_assert_float_eq(y[1], (log->times == 0 ? -1.0f : 2.0f * want[log->times]) + 100.0f);
  ck_assert_float_eq(x[0], 1.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), log->times);
  return BS_OK;
}
START_TEST(test_hook) {
  hook_log log = {.times = (uint32_t)_i};
  bs_collective_hook hook = {.user = &log, .before = hook_before, .after = hook_after};
  bs_world_options o = options(2, "ref");
  o.hook = &hook;
  bs_world *world = world_of(&o);
  run(world, hook_main, &log, BS_OK);
  for (int r = 0; r < 2; ++r) {
    ck_assert_uint_eq(log.before[r], 1);
    ck_assert_uint_eq(log.after[r], 1);
    ck_assert_float_eq(log.first[r], 1.0f);
  }
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  Suite *s = suite_create("world parts");
  TCase *c = tcase_create("parts");
  tcase_add_unchecked_fixture(c, open_all, close_context);
  tcase_add_test(c, test_k18);
  tcase_add_test(c, test_k18_events);
  tcase_add_test(c, test_regions);
  tcase_add_loop_test(c, test_region_misuse, 0, 3);
  tcase_add_loop_test(c, test_memory, 0, 2);
  tcase_add_loop_test(c, test_tensors, 0, 2);
  tcase_add_test(c, test_counters);
  tcase_add_test(c, test_mismatch);
  tcase_add_test(c, test_alone);
  tcase_add_test(c, test_groups);
  tcase_add_loop_test(c, test_hook, 0, 3);
  suite_add_tcase(s, c);
  return run_suite(s);
}
