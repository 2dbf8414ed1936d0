/* SPDX-License-Identifier: MIT
 *
 * test_cpu_calls.c - calls of one plan with changing numbers of tokens: each is right, and none allocates
 * what a call of the same number before it did not. The allocator is counted by standing before glibc's;
 * sanitizers have their own, and with them or without glibc nothing is counted. */
#include <stdio.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

enum { PATHS = 3, OF_DNNL = 1, OF_AMX = 2 };
static const char *const paths[PATHS] = {"packed", "dnnl", "amx"};

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)
#define COUNTS 1
static _Thread_local uint64_t allocations;

#pragma GCC visibility push(default) /* the plugin and oneDNN are to call these */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  allocations++;
  return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size) {
  allocations++;
  return __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size) {
  allocations++;
  return __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size) {
  allocations++;
  *out = __libc_memalign(align, size);
  return *out != NULL ? 0 : 12; /* ENOMEM */
}
#pragma GCC visibility pop
#else
#define COUNTS 0
static uint64_t allocations;
#endif

/* A plan, for several calls. */
static struct {
  ch host;
  kit_actor a;
  kit_data d;
  void *packed, *plan;
  int64_t tokens;
} p;

/* The way's plan for a team of 3; 0: this machine or build has it not. */
static int open_plan(int path, const kit_shape *of_f32) {
  bs_error err = {.struct_size = sizeof err};
  bs_op_answer answer = {.level = BS_LEVEL_NO};
  kit_shape like = *of_f32, *shape = &like;
  if (path == OF_AMX) like.x = like.w = BS_BF16;
  ch_open(&p.host, path == OF_AMX ? "amx_model" : "auto", path == OF_DNNL ? "auto" : "off");
  kit_data_make(&p.d, "matmul", shape);
  p.tokens = shape->B;
  if (ch_find(&p.host, &p.a, "matmul", paths[path], 3)) kit_data_ask(&p.a, &p.d, &answer);
  if (answer.level != BS_LEVEL_NATIVE) {
    ck_assert_int_eq(path, OF_DNNL); /* the others are everywhere */
    return 0;
  }
  const uint64_t before = allocations;
  p.packed = kit_data_pack(&p.a, &p.d);
  ck_assert_msg(p.a.impl->prepare(p.a.state, &p.a.exec, &p.d.query, p.packed, &p.plan, &err) == BS_OK,
                "%s: %s", err.id, err.message);
  if (COUNTS) ck_assert_uint_gt(allocations, before); /* the plugin's are seen */
  return 1;
}

static void close_plan(void) {
  p.a.impl->plan_free(p.plan);
  p.a.impl->packed_free(p.packed);
  kit_data_free(&p.a, &p.d);
  kit_actor_close(&p.a);
  ch_close(&p.host);
}

static uint64_t call(int64_t rows) {
  bs_error err = {.struct_size = sizeof err};
  kit_data_rows(&p.d, rows);
  const uint64_t before = allocations;
  const int32_t rc = kit_data_run_plan(&p.a, &p.d, p.plan, &err);
  const uint64_t after = allocations;
  ck_assert_msg(rc == BS_OK, "%lld tokens: %s: %s", (long long)rows, err.id, err.message);
  return after - before;
}

/* Rows that the call has not stay as they were. */
static void check_call(int64_t rows) {
  kit_data_rows(&p.d, p.tokens);
  kit_poison_outputs(&p.d, 0xFF);
  (void)call(rows);
  kit_data_judge(&p.d, BS_TOL_ACC_F32, 0);
}

/* An eighth of all numbers of tokens through one plan, in an order that goes up and down; 300 is more than
 * two blocks of any kernel and than one piece of dnnl. */
START_TEST(any_number_of_tokens_is_right) {
  kit_shape s = {.x = BS_F32,
                 .w = BS_F32,
                 .y = BS_F32,
                 .B = 300,
                 .N = 33,
                 .K = 9,
                 .bias = BS_F32,
                 .spread = 1,
                 .seed = 5};
  if (_i % 2 == 1)
    s.residual = BS_F32;
  else
    s.activation = BS_ACT_RELU;
  if (!open_plan(_i / 2, &s)) return;
  for (int64_t i = 0; i <= s.B / 8; i++) check_call(i * 11 % (s.B + 1));
  close_plan();
}
END_TEST

/* More tokens than two digits of dnnl's pieces, at the borders between them. */
START_TEST(many_tokens_are_right) {
  static const int64_t rows[] = {16383, 16384, 16385, 16512, 16513, 32768, 32999, 33000};
  const kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 33000, .N = 1, .K = 3, .seed = 6};
  if (!open_plan(_i, &s)) return;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_call(rows[i]);
  close_plan();
}
END_TEST

/* Our kernels allocate nothing. oneDNN keeps its arguments in a map of its own at every call, so its calls
 * are held against a second one with as many tokens. One thread runs the three slices, and is counted. */
START_TEST(another_number_of_tokens_allocates_nothing) {
  const int64_t B = _i % 2 == 1 ? 300 : 40;
  const int path = _i / 2;
  const kit_shape s = {
      .x = BS_F32, .w = BS_F32, .y = BS_F32, .B = B, .N = 80, .K = 70, .bias = BS_F32, .seed = 7};
  if (!open_plan(path, &s)) return;
  p.a.exec.width = 1;
  (void)call(B);
  for (int64_t i = 0; i <= B; i++) {
    const int64_t rows = i * 11 % (B + 1);
    const uint64_t first = call(rows), again = call(rows);
    ck_assert_msg(first <= again,
                  "%s: the first call with %lld of %lld tokens allocates %llu, the second %llu", paths[path],
                  (long long)rows, (long long)B, (unsigned long long)first, (unsigned long long)again);
    if (path != OF_DNNL) ck_assert_uint_eq(first, 0);
  }
  close_plan();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_calls");
  TCase *tc = tcase_create("calls");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, any_number_of_tokens_is_right, 0, 2 * PATHS);
  tcase_add_loop_test(tc, many_tokens_are_right, 0, OF_AMX); /* whose chunks are those of "packed" */
  if (COUNTS) tcase_add_loop_test(tc, another_number_of_tokens_allocates_nothing, 0, 2 * PATHS);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
