/* SPDX-License-Identifier: MIT
 * What a rank offers: timer regions (K18), memory and tensors. */
#include <malloc.h>
#include <time.h>

#include "core/world/world.h"
#include "tests/run_tests.h"
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

/* Far more intervals than the reservoir holds; the device's n-th lasts n ms. */
enum { MANY = 50000 };
static int32_t many_main(bs_rank *rank, void *arg, bs_error *e) {
  bs_region_stats *out = arg;
  for (int i = 0; i < MANY; ++i) {
    api->region_begin(rank, BS_REGION_FORWARD);
    api->region_end(rank, BS_REGION_FORWARD);
  }
  return bs_rank_region_stats(rank, BS_REGION_FORWARD, out, e);
}
START_TEST(test_a_long_run_keeps_exact_figures) {
  bs_region_stats s[2];
  for (int i = 0; i < 2; ++i) {
    bs_world_options o = options(1, "evdev");
    o.sync_mode = BS_SYNC_EVENTS;
    bs_world *world = world_of(&o);
    run(world, many_main, &s[i], BS_OK);
    s[i].name = NULL;                             /* goes with its world */
    s[i].enqueue_p50_ms = s[i].host_avg_ms = 0.0; /* the host's clock has figures of its own */
    bs_world_destroy(world);
  }
  const double n = MANY;
  ck_assert_uint_eq(s[0].count, MANY);
  ck_assert_double_eq_tol(s[0].sum_ms, n * (n + 1) / 2, 1e-3);
  ck_assert_double_eq_tol(s[0].avg_ms, (n + 1) / 2, 1e-7);
  ck_assert_double_eq_tol(s[0].min_ms, 1, 1e-12);
  ck_assert_double_eq_tol(s[0].max_ms, n, 1e-9);
  ck_assert_double_eq_tol(s[0].p50_ms, 0.50 * n, 0.03 * n); /* 4096 even choices: 0.8 % of spread */
  ck_assert_double_eq_tol(s[0].p95_ms, 0.95 * n, 0.02 * n);
  ck_assert_mem_eq(&s[0], &s[1], sizeof s[0]); /* the same times, the same figures */
}
END_TEST

/* Timing takes no memory, however often: the heap's figure is that of before. */
static int32_t frugal_main(bs_rank *rank, void *arg, bs_error *e) {
  size_t *used = arg;
  const uint32_t mine = api->region_named(rank, "mine");
  (void)e;
  used[0] = mallinfo2().uordblks;
  for (int i = 0; i < 3 * 4096 + 1; ++i) {
    api->region_begin(rank, BS_REGION_FORWARD);
    api->region_begin(rank, mine);
    api->region_end(rank, mine);
    api->region_end(rank, BS_REGION_FORWARD);
  }
  used[1] = mallinfo2().uordblks;
  return BS_OK;
}
START_TEST(test_timing_allocates_nothing) {
  size_t used[2];
  for (uint32_t mode = BS_SYNC_SYNC; mode <= BS_SYNC_NONE; ++mode) {
    bs_world_options o = options(1, "ref");
    o.sync_mode = mode;
    run_by(&o, frugal_main, used, BS_OK);
    ck_assert_uint_eq(used[0], used[1]);
  }
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
  static const uint32_t once[] = {BS_REGION_BUILD, BS_REGION_PACK, BS_REGION_COMPRESS};
  for (uint32_t i = 0; i < 3; ++i) {
    api->region_begin(rank, once[i]);
    api->region_end(rank, once[i]);
  }
  bs_rank_regions_reset(rank);
  ck_assert_int_eq(bs_rank_region_stats(rank, mine, &s, e), BS_OK);
  is_stats(&s, 0, 0, 0, 0, 0);
  for (uint32_t i = 0; i < 3; ++i) { /* what is done once is not forgotten with the warm-up */
    ck_assert_int_eq(bs_rank_region_stats(rank, once[i], &s, e), BS_OK);
    ck_assert_uint_eq(s.count, 1);
  }
  ck_assert_int_eq(bs_rank_region_stats(rank, 10, &s, e), BS_NOT_FOUND);
  return BS_OK;
}
START_TEST(test_regions) {
  for (uint32_t mode = BS_SYNC_SYNC; mode <= BS_SYNC_NONE; ++mode) {
    bs_world_options o = options(2, "ref");
    o.sync_mode = mode;
    run_by(&o, regions_main, NULL, BS_OK);
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
  run_once(1, "ref", misuse_main, &_i, BS_INTERNAL);
  ck_assert_str_eq(err.id, _i == 2 ? "BS-REGION-ID" : "BS-REGION-NEST");
  ck_assert_ptr_nonnull(strstr(err.message, _i == 2 ? "77" : "pack"));
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

/* ---- where started collectives run ------------------------------------------------------------- */

/* A world of ranks that share a process's cores, of ranks that share a machine's, and of a rank bound to its
 * own: never a core of another rank's, nor one that is not there. */
START_TEST(test_line_cores) {
  uint16_t cores[6] = {2, 3, 5, 7, 11, 13};
  uint32_t count = 0;
  bs_world shared = {
      .own = BS_WORLD_ALL_RANKS, .size = 2, .sharers = 2, .width = 2, .cores = cores, .ncores = 6};
  ck_assert_uint_eq(*bs_world_line_cores(&shared, 1, &count), 13);
  ck_assert_uint_eq(count, 1);
  ck_assert_int_eq(bs_world_line_alone(&shared), 1);
  shared.ncores = 4;
  ck_assert_uint_eq(*bs_world_line_cores(&shared, 1, &count), 5);
  ck_assert_uint_eq(count, 2);
  ck_assert_int_eq(bs_world_line_alone(&shared), 0);
  /* The last of eight ranks, the second of two on its machine. */
  bs_world apart = {
      .own = 7, .local_rank = 1, .size = 8, .sharers = 2, .width = 2, .cores = cores, .ncores = 6};
  ck_assert_uint_eq(*bs_world_line_cores(&apart, 7, &count), 13);
  ck_assert_int_eq(bs_world_line_alone(&apart), 1);
  bs_world bound = {.own = 7,
                    .local_rank = 1,
                    .bound = 1,
                    .size = 8,
                    .sharers = 1,
                    .width = 1,
                    .cores = cores,
                    .ncores = 1};
  ck_assert_uint_eq(*bs_world_line_cores(&bound, 7, &count), 2);
  ck_assert_uint_eq(count, 1);
  ck_assert_int_eq(bs_world_line_alone(&bound), 0);
}
END_TEST

int main(void) {
  Suite *s = suite_create("world parts");
  TCase *c = tcase_create("parts");
  tcase_add_unchecked_fixture(c, open_all, close_context);
  tcase_add_test(c, test_k18);
  tcase_add_test(c, test_k18_events);
  tcase_add_test(c, test_regions);
  tcase_add_test(c, test_a_long_run_keeps_exact_figures);
  tcase_add_test(c, test_timing_allocates_nothing);
  tcase_add_loop_test(c, test_region_misuse, 0, 3);
  tcase_add_loop_test(c, test_memory, 0, 2);
  tcase_add_loop_test(c, test_tensors, 0, 2);
  tcase_add_test(c, test_line_cores);
  suite_add_tcase(s, c);
  return run_suite(s);
}
