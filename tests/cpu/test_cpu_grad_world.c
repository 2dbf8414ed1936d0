/* SPDX-License-Identifier: MIT
 *
 * test_cpu_grad_world.c - a step of training as a method will make it, through a context and a world: one
 * packed weight for forward, dX and update, there once, the same bits for any team; and what is said when the
 * weight was packed by an implementation that has no backward pass. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

enum { B = 21, N = 90, K = 140 };

typedef struct step {
  kit_tensor x, w, dy;
  bs_partition partition;
  uint32_t flags;
  float dx[B * K], dw[N * K], after[N * K];
  bs_error expected; /* filled instead of the results when `refuse` */
  int refuse;
} step;

typedef struct tensors {
  bs_tensor x, dy, dx, dw, alpha, y;
} tensors;

static int32_t one_op(bs_rank *rank, const step *s, const char *op, bs_packed *packed, bs_tensor *const *args,
                      uint32_t nargs, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor_desc descs[4];
  const bs_tensor_desc *of[4];
  bs_plan *plan = NULL;
  for (uint32_t i = 0; i < nargs; i++) {
    of[i] = NULL;
    if (args[i] == NULL) continue;
    descs[i] =
        (bs_tensor_desc){.struct_size = sizeof descs[i], .dtype = args[i]->dtype, .rank = args[i]->rank};
    memcpy(descs[i].dims, args[i]->dims, sizeof descs[i].dims);
    of[i] = &descs[i];
  }
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = nargs,
                         .op = op,
                         .args = of,
                         .partition = &s->partition,
                         .flags = BS_QUERY_X_FULL | s->flags,
                         .weight_dtype = BS_F32};
  int32_t rc = api->op_prepare(rank, &q, packed, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, nargs, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

static int32_t pack(bs_rank *rank, const step *s, bs_packed **out, bs_error *err) {
  kit_tensor w = s->w;
  const bs_tensor_desc x = bs_desc_2d(BS_F32, B, K), y = bs_desc_2d(BS_F32, B, N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = "matmul",
                         .args = args,
                         .partition = &s->partition,
                         .flags = BS_QUERY_X_FULL | s->flags,
                         .weight_dtype = BS_F32};
  const bs_source source = kit_tensor_source(&w);
  return bs_rank_get_api()->pack(rank, &q, &source, out, err);
}

static int32_t train(bs_rank *rank, step *s, bs_packed *packed, tensors *t, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const float alpha = -0.25f;
  memcpy(t->x.data, s->x.t.data, sizeof(float) * B * K);
  memcpy(t->dy.data, s->dy.t.data, sizeof(float) * B * N);
  memcpy(t->alpha.data, &alpha, sizeof alpha);
  bs_tensor *forward[4] = {&t->x, NULL, NULL, &t->y}, *dx[2] = {&t->dy, &t->dx},
            *dw[3] = {&t->x, &t->dy, &t->dw}, *update[3] = {&t->x, &t->dy, &t->alpha};
  int32_t rc = one_op(rank, s, "matmul", packed, forward, 4, err);
  if (rc == BS_OK) rc = one_op(rank, s, "matmul_dx", packed, dx, 2, err);
  if (rc == BS_OK) rc = one_op(rank, s, "matmul_dw", NULL, dw, 3, err);
  if (rc == BS_OK) rc = one_op(rank, s, "matmul_update", packed, update, 3, err);
  if (rc != BS_OK) return rc;
  memcpy(s->dx, t->dx.data, sizeof s->dx);
  memcpy(s->dw, t->dw.data, (size_t)(N * s->partition.count) * sizeof(float));
  return api->packed_read(packed, 0, &t->dw, err); /* dW's shape is the packed weight's */
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  step *s = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc descs[6] = {bs_desc_2d(BS_F32, B, K),
                                   bs_desc_2d(BS_F32, B, N),
                                   bs_desc_2d(BS_F32, B, K),
                                   bs_desc_2d(BS_F32, N, s->partition.count),
                                   {.struct_size = sizeof descs[4], .dtype = BS_F32, .rank = 1, .dims = {1}},
                                   bs_desc_2d(BS_F32, B, N)};
  tensors t;
  memset(&t, 0, sizeof t);
  bs_tensor *const all[6] = {&t.x, &t.dy, &t.dx, &t.dw, &t.alpha, &t.y};
  bs_packed *packed = NULL;
  int32_t rc = pack(rank, s, &packed, err);
  for (int i = 0; i < 6 && rc == BS_OK; i++) {
    all[i]->struct_size = (uint32_t)sizeof t.x;
    rc = api->tensor_alloc(rank, &descs[i], BS_LIFE_ACTIVATION, all[i], err);
  }
  if (rc == BS_OK) rc = train(rank, s, packed, &t, err);
  if (rc == BS_OK) memcpy(s->after, t.dw.data, (size_t)(N * s->partition.count) * sizeof(float));
  if (packed != NULL) api->packed_release(packed);
  for (int i = 0; i < 6; i++)
    if (all[i]->data != NULL) api->tensor_free(rank, all[i]);
  if (!s->refuse) return rc;
  if (err != NULL) s->expected = *err;
  ck_assert_int_ne(rc, BS_OK);
  return BS_OK;
}

static bs_context *open_context(void) {
  bs_error err = {.struct_size = sizeof err};
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY};
  bs_context *context = NULL;
  options.plugin_dirs = &dir;
  options.n_plugin_dirs = dir != NULL ? 1 : 0;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

static void run_world(bs_context *context, step *s, uint32_t threads, const char *word) {
  bs_error err = {.struct_size = sizeof err};
  bs_world *world = NULL;
  const bs_world_options options = {
      .struct_size = sizeof options, .world_size = 1, .backend = "cpu", .threads_per_rank = threads};
  ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, s, &err) == BS_OK, "%s: %s", err.id, err.message);
  if (word != NULL)
    ck_assert_msg(strstr(bs_world_algorithms(world), word) != NULL, "%s", bs_world_algorithms(world));
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}

static void step_make(step *s) {
  uint64_t seed = 3;
  memset(s, 0, sizeof *s);
  kit_tensor_make(&s->x, BS_F32, 2, B, K, 0);
  kit_tensor_make(&s->dy, BS_F32, 2, B, N, 0);
  kit_tensor_make(&s->w, BS_F32, 2, N, K, 0);
  kit_tensor *const all[3] = {&s->x, &s->dy, &s->w};
  for (int m = 0; m < 3; m++)
    for (int64_t r = 0; r < all[m]->t.dims[0]; r++)
      for (int64_t c = 0; c < all[m]->t.dims[1]; c++)
        kit_set(all[m], r, c, (double)kit_below(&seed, 9) - 4); /* small integers: all sums are exact */
  s->partition = ch_pattern(K, 4, 3, 0, K);
}

static void step_free(step *s) {
  ch_partition_free(&s->partition);
  kit_tensor_free(NULL, &s->x);
  kit_tensor_free(NULL, &s->dy);
  kit_tensor_free(NULL, &s->w);
}

static void judge(const step *s) {
  const int64_t kept = s->partition.count;
  for (int64_t i = 0; i < kept; i++) {
    const int64_t k = ch_column(&s->partition, i);
    for (int64_t b = 0; b < B; b++) {
      double sum = 0;
      for (int64_t n = 0; n < N; n++) sum += kit_get(&s->dy, b, n) * kit_get(&s->w, n, k);
      ck_assert_double_eq((double)s->dx[b * K + k], sum);
      ck_assert_double_eq((double)s->dx[b * K + k + 2], 0.0); /* not its column: as it was allocated */
    }
    for (int64_t n = 0; n < N; n++) {
      double sum = 0;
      for (int64_t b = 0; b < B; b++) sum += kit_get(&s->dy, b, n) * kit_get(&s->x, b, k);
      ck_assert_double_eq((double)s->dw[n * kept + i], sum);
      ck_assert_double_eq((double)s->after[n * kept + i], kit_get(&s->w, n, k) - 0.25 * sum);
    }
  }
}

START_TEST(one_weight_serves_a_step) {
  static step s;
  bs_context *context = open_context();
  step_make(&s);
  s.flags = BS_QUERY_TRAIN;
  for (uint32_t threads = 1; threads <= 3; threads++) {
    run_world(context, &s, threads, "matmul_update@cpu/packed");
    judge(&s);
  }
  run_world(context, &s, 1, "matmul_dx@cpu/packed");
  run_world(context, &s, 1, "matmul_dw@cpu/packed");
  step_free(&s);
  bs_context_close(context);
}
END_TEST

/* oneDNN's weights have no backward pass: said when dX is asked for, refused before where TRAIN is said. */
START_TEST(a_packer_without_siblings_is_named) {
  static step s;
  ck_assert_int_eq(setenv("BS_CPU_MATMUL", "dnnl", 1), 0);
  bs_context *context = open_context();
  step_make(&s);
  s.refuse = 1;
  run_world(context, &s, 1, NULL);
  const int there = strcmp(s.expected.id, "BS-OP-NONE") != 0;
  if (there) {
    ck_assert_str_eq(s.expected.id, "BS-OP-SIBLING");
    ck_assert_ptr_nonnull(strstr(s.expected.message, "matmul@cpu/dnnl of plugin cpu"));
  }
  s.flags = BS_QUERY_TRAIN;
  run_world(context, &s, 1, NULL);
  ck_assert_str_eq(s.expected.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(s.expected.message, "switched off"));
  if (there)
    ck_assert_ptr_nonnull(strstr(s.expected.message, "cannot serve a backward pass: no matmul_dx@cpu/dnnl"));
  step_free(&s);
  bs_context_close(context);
}
END_TEST

/* A weight so large that a second one would be seen beside the scratch of the plans. */
enum { BIG_B = 33, BIG_N = 1024, BIG_K = 2048, BIG_KEPT = BIG_K / 2 };
/* Of one plan and thread: blocks of X and of C, turned panels (docs/performance.md). */
#define SCRATCH (384u << 10)

static int32_t few_numbers(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t stride, bs_error *err) {
  const int64_t count = cols != NULL ? cols->count : BIG_K;
  (void)ctx;
  (void)err;
  ck_assert_uint_eq(dtype, BS_F32);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < count; i++) ((float *)out)[r * stride + i] = (float)((row + r + i) % 5 - 2);
  return BS_OK;
}

/* All plans of a step at once, each run: what they hold beside the weight is theirs together. */
static int32_t hold_all(bs_rank *rank, void *arg, bs_error *err) {
  enum { X, Y, DX, ALPHA, TENSORS, PLANS = 3 };
  static const char *const ops[PLANS] = {"matmul", "matmul_dx", "matmul_update"};
  const bs_rank_api *api = bs_rank_get_api();
  const bs_partition *partition = arg;
  const bs_tensor_desc d[TENSORS] = {
      bs_desc_2d(BS_F32, BIG_B, BIG_K),
      bs_desc_2d(BS_F32, BIG_B, BIG_N),
      bs_desc_2d(BS_F32, BIG_B, BIG_K),
      {.struct_size = sizeof d[ALPHA], .dtype = BS_F32, .rank = 1, .dims = {1}}};
  const bs_tensor_desc *descs[PLANS][4] = {
      {&d[X], NULL, NULL, &d[Y]}, {&d[Y], &d[DX]}, {&d[X], &d[Y], &d[ALPHA]}};
  const uint32_t counts[PLANS] = {4, 2, 3};
  const bs_source source = {
      .struct_size = sizeof source, .dtype = BS_F32, .rows = BIG_N, .cols = BIG_K, .read = few_numbers};
  bs_tensor t[TENSORS];
  bs_plan *plans[PLANS] = {NULL};
  bs_packed *packed = NULL;
  memset(t, 0, sizeof t);
  bs_tensor *const args[PLANS][4] = {{&t[X], NULL, NULL, &t[Y]}, {&t[Y], &t[DX]}, {&t[X], &t[Y], &t[ALPHA]}};
  int32_t rc = BS_OK;
  for (int i = 0; i < TENSORS && rc == BS_OK; i++) {
    t[i].struct_size = (uint32_t)sizeof t[i];
    rc = api->tensor_alloc(rank, &d[i], BS_LIFE_ACTIVATION, &t[i], err);
  }
  for (int i = 0; i < PLANS && rc == BS_OK; i++) {
    const bs_op_query q = {.struct_size = sizeof q,
                           .nargs = counts[i],
                           .op = ops[i],
                           .args = descs[i],
                           .partition = partition,
                           .flags = BS_QUERY_X_FULL | BS_QUERY_TRAIN,
                           .weight_dtype = BS_F32};
    if (i == 0) rc = api->pack(rank, &q, &source, &packed, err);
    if (rc == BS_OK) rc = api->op_prepare(rank, &q, packed, &plans[i], err);
  }
  for (int i = 0; i < PLANS && rc == BS_OK; i++) rc = api->op_run(plans[i], args[i], counts[i], NULL, err);
  for (int i = 0; i < PLANS; i++)
    if (plans[i] != NULL) api->op_release(plans[i]);
  if (packed != NULL) api->packed_release(packed);
  for (int i = 0; i < TENSORS; i++)
    if (t[i].data != NULL) api->tensor_free(rank, &t[i]);
  return rc;
}

/* Forward, dX and update of one weight exist: it is there once. */
START_TEST(a_step_keeps_one_weight) {
  bs_context *context = open_context();
  bs_partition partition = ch_pattern(BIG_K, 4, 3, 0, BIG_K);
  ck_assert_int_eq(partition.count, BIG_KEPT);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    bs_error err = {.struct_size = sizeof err};
    bs_world *world = NULL;
    const bs_world_options options = {
        .struct_size = sizeof options, .world_size = 1, .backend = "cpu", .threads_per_rank = threads};
    const uint64_t weight = sizeof(float) * BIG_N * BIG_KEPT;
    const uint64_t activations = sizeof(float) * (2 * BIG_B * BIG_K + BIG_B * BIG_N + 1);
    const uint64_t scratch = (uint64_t)3 * threads * SCRATCH;
    ck_assert_uint_lt(scratch, weight); /* so that a second weight does not pass for scratch */
    ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(bs_world_run(world, hold_all, &partition, &err) == BS_OK, "%s: %s", err.id, err.message);
    const uint64_t peak = bs_world_memory_peak(world);
    printf("%u threads: peak %.2f MiB, weight %.2f, tensors %.2f\n", threads, (double)peak / 1048576.0,
           (double)weight / 1048576.0, (double)activations / 1048576.0);
    ck_assert_uint_ge(peak, weight + activations); /* all is counted */
    ck_assert_uint_le(peak, weight + activations + scratch);
    ck_assert_uint_eq(bs_world_memory_now(world), 0);
    bs_world_destroy(world);
  }
  ch_partition_free(&partition);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {one_weight_serves_a_step}, {a_packer_without_siblings_is_named}, {a_step_keeps_one_weight}, {0}};
  return run_tests("cpu_grad_world", tests, (test_setup){.timeout = 60});
}
