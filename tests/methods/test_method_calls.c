/* SPDX-License-Identifier: MIT
 *
 * test_method_calls.c - memory of one call (BS_LIFE_CALL): two layers of a rank have one block in common that
 * is filled with NaN before each call of either, and give the bits that they give with memory of their own;
 * every method and every kind of its tensors. The block is as large as the proposals say. A method that
 * keeps something there is seen, and a layer that is trained never touches the block.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "core/world/executor.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 6, N = 24, K = 36, LAYERS = 2, NAN_BYTE = 0xFF };

typedef struct variant {
  const char *method, *mask;
  uint32_t world;
  const char *keys[2], *values[2];
  uint32_t dtype, x, y, activation, wire;
  uint32_t flags;
  uint32_t idle;  /* 1: it takes nothing of the block */
  uint32_t wrong; /* 1: its values may be NaN themselves */
  int64_t k;      /* 0: K */
  const char *backend;
} variant;

/* One for each tensor that a method takes: x gathered, the partial sum, sums before an activation, x made
 * whole, int8 steps, two precisions, chunks, leaves. */
static const variant variants[] = {
    {"dense", NULL, 1, .idle = 1},
    {"dense", NULL, 1, {"repro"}, {"R3"}, .idle = 1}, /* whole features have no leaves */
    {"column_parallel", NULL, 2, .idle = 1},
    {"column_parallel", NULL, 2, {"repro"}, {"R4"}},
    {"column_parallel", NULL, 2, .x = BS_SPLIT_TOKENS},
    {"column_parallel", NULL, 2, {"mixed"}, {"0"}},
    {"row_parallel", NULL, 2, .dtype = BS_BF16},
    {"row_parallel", NULL, 2, .dtype = BS_BF16, .y = BS_SPLIT, .activation = BS_ACT_GELU},
    {"row_parallel", NULL, 2, {"overlap", "overlap_axis"}, {"3", "features"}, .dtype = BS_BF16},
    {"row_parallel", NULL, 2, {"overlap", "overlap_axis"}, {"3", "tokens"}, .dtype = BS_F16},
    {"row_parallel", NULL, 2, .wire = BS_I8},
    {"row_parallel", NULL, 4, .wire = BS_I8, .y = BS_SPLIT},
    {"row_parallel", NULL, 2, {"repro"}, {"R3"}},
    {"row_parallel", NULL, 4, {"repro"}, {"R3"}, .x = BS_SPLIT},
    {"row_parallel", NULL, 2, {"repro"}, {"R3"}, .y = BS_SPLIT, .activation = BS_ACT_SILU},
    {"row_parallel", NULL, 8, {"repro"}, {"R3"}},
    {"row_parallel", NULL, 2, {"mixed"}, {"0"}, .dtype = BS_BF16},
    {"row_parallel", NULL, 2, .y = BS_SPLIT_TOKENS},
    {"blockshock", NULL, 2, .idle = 1}, /* the kernel picks its columns */
    {"blockshock", NULL, 2, {"kernel"}, {"gather"}},
    {"blockshock", NULL, 2, {"kernel"}, {"gather"}, .backend = "cpu"},
    {"blockshock", NULL, 2, .x = BS_SPLIT, .dtype = BS_F16},
    {"blockshock", "interleave", 4, {"repro"}, {"R4"}},
    {"blockshock", "interleave", 2, {"mixed", "mixed_dtype"}, {"0", "f8e4m3"}},
    {"blockshock", "magnitude", 2, .dtype = BS_BF16, .activation = BS_ACT_RELU},
    {"blockshock", "random_2of4", 2, .wire = BS_I8},
    {"masked_split", NULL, 2, .dtype = BS_BF16},
    {"masked_split", NULL, 2, .x = BS_SPLIT, .idle = 1}, /* its x is spread over zeros that stay */
    {"masked_split", "magnitude", 2, .dtype = BS_BF16, .backend = "cpu"},
    /* Fewer columns than ranks or leaves: zeros stand in for what is not there, and stay. */
    {"row_parallel", NULL, 4, .dtype = BS_BF16, .k = 2},
    {"row_parallel", NULL, 2, {"repro"}, {"R3"}, .k = 5},
    {"blockshock", "magnitude", 4, {"slices"}, {"row"}, .dtype = BS_BF16, .k = 4},
    {"row_parallel", NULL, 4, {"mixed", "mixed_dtype"}, {"0", "f8e4m3"}, .dtype = BS_BF16, .k = 3},
};

/* A trained one keeps what backward reads. */
static const variant trained[] = {
    {"row_parallel", NULL, 2, .dtype = BS_BF16, .activation = BS_ACT_GELU, .flags = BS_LAYER_BACKWARD},
    {"column_parallel", NULL, 2, .activation = BS_ACT_RELU, .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD},
    {"blockshock", NULL, 2, .flags = BS_LAYER_BACKWARD | BS_LAYER_ADAMW},
    {"masked_split", NULL, 2, .x = BS_SPLIT, .flags = BS_LAYER_BACKWARD},
};

typedef struct job {
  const variant *v;
  bs_layer_spec spec;
  const char *method;
  const float *w[LAYERS], *bias, *x;
  uint64_t bytes; /* of the block */
  int cut;        /* lends half of it */
  _Atomic uint32_t differ;
} job;

static bs_context *context;

static void open_context(void) {
  context = mf_context();
}
static void close_context(void) {
  bs_context_close(context);
}

static bs_tensor matrix(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols) {
  bs_error err = BS_ERROR_INIT;
  bs_tensor t;
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2, .dims = {rows, cols}};
  ck_assert_msg(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err) == BS_OK, "%s",
                err.message);
  return t;
}

static bs_layer *build(bs_rank *rank, const job *j, int i) {
  bs_source w, bias;
  bs_layer *layer = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_source_from_memory(j->w[i], BS_F32, N, j->spec.K, j->spec.K, &w, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(j->bias, BS_F32, 1, N, N, &bias, &err), BS_OK);
  ck_assert_msg(bs_layer_build(rank, j->method, &j->spec, &w, &bias, &layer, &err) == BS_OK, "%s",
                err.message);
  bs_source_release(&w);
  bs_source_release(&bias);
  return layer;
}

/* The rank's x: values that do not matter, of the layer's part. */
static bs_tensor make_x(bs_rank *rank, const job *j, bs_layer *layer) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  bs_ownership own = {.struct_size = sizeof own};
  bs_error err = BS_ERROR_INIT;
  int64_t begin = 0, rows = B;
  ck_assert_int_eq(bs_layer_owns(layer, &own, &err), BS_OK);
  const int64_t cols =
      j->spec.x_placement == BS_SPLIT && own.columns != NULL ? own.columns->count : j->spec.K;
  if (j->spec.x_placement == BS_SPLIT_TOKENS) bs_share(B, me, j->v->world, &begin, &rows);
  bs_tensor x = matrix(rank, j->spec.x_dtype, rows, cols);
  for (int64_t i = 0; i < rows * cols; i++)
    bs_store_f64(x.dtype, x.data, i, (double)j->x[begin * j->spec.K + i] + 0.25 * me);
  return x;
}

static bs_tensor make_y(bs_rank *rank, const job *j) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  int64_t begin, rows = B, cols = N;
  if (j->spec.y_placement == BS_SPLIT) bs_share(N, me, j->v->world, &begin, &cols);
  if (j->spec.y_placement == BS_SPLIT_TOKENS) bs_share(B, me, j->v->world, &begin, &rows);
  return matrix(rank, j->spec.y_dtype, rows, cols);
}

static void forward(bs_layer *layer, const bs_tensor *x, bs_tensor *y, int64_t rows) {
  bs_tensor some_x = *x, some_y = *y;
  bs_error err = BS_ERROR_INIT;
  if (rows > 0) some_x.dims[0] = some_y.dims[0] = rows;
  memset(y->data, 0, y->bytes);
  ck_assert_msg(bs_layer_forward(layer, &some_x, &some_y, NULL, &err) == BS_OK, "%s", err.message);
}

/* Ranks whose bits are others than `right`, in the job's count. */
static void compare(job *j, const bs_tensor *y, const bs_tensor *right) {
  if (memcmp(y->data, right->data, y->bytes) != 0) j->differ++;
}

static int all_nan(const unsigned char *block, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    if (block[i] != NAN_BYTE) return 0;
  return 1;
}

/* The block before the rank's next call, and whether the last one used it. */
static void poison(job *j, unsigned char *block, int used) {
  const uint64_t bytes = j->cut ? j->bytes / 2 : j->bytes;
  if (used && !j->cut && !j->v->wrong) ck_assert_int_eq(all_nan(block, bytes), (int)j->v->idle);
  ck_assert(all_nan(block + bytes, j->bytes - bytes)); /* nothing behind what was lent */
  memset(block, NAN_BYTE, bytes);
}

static int32_t calls_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  job *j = arg;
  bs_layer *own[LAYERS], *lent[LAYERS];
  bs_tensor right[LAYERS], few[LAYERS];
  unsigned char *block = api->alloc(rank, j->bytes);
  const int64_t some =
      j->spec.x_placement == BS_SPLIT_TOKENS || j->spec.y_placement == BS_SPLIT_TOKENS ? 0 : B - 1;
  (void)err;
  for (int i = 0; i < LAYERS; i++) own[i] = build(rank, j, i);
  const uint64_t needs = bs_rank_calls_bytes(rank);
  ck_assert_msg(needs <= j->bytes, "%llu bytes of %llu", (unsigned long long)needs,
                (unsigned long long)j->bytes);
  ck_assert_int_eq(needs == 0, (int)j->v->idle);
  bs_rank_lend_calls(rank, block, j->cut ? j->bytes / 2 : j->bytes);
  for (int i = 0; i < LAYERS; i++) lent[i] = build(rank, j, i);
  bs_rank_lend_calls(rank, NULL, 0);
  ck_assert_uint_eq(bs_rank_calls_bytes(rank), needs); /* without a block the need is the same */
  bs_tensor x = make_x(rank, j, own[0]), y = make_y(rank, j);
  for (int i = 0; i < LAYERS; i++) {
    right[i] = make_y(rank, j);
    few[i] = make_y(rank, j);
    forward(own[i], &x, &right[i], 0);
    forward(own[i], &x, &few[i], some);
  }
  memset(block, NAN_BYTE, j->bytes);
  for (int turn = 0; turn < 3 * LAYERS; turn++) {
    const int i = turn % LAYERS, less = turn / LAYERS == 1;
    poison(j, block, turn > 0);
    forward(lent[i], &x, &y, less ? some : 0);
    compare(j, &y, less ? &few[i] : &right[i]);
  }
  for (int i = 0; i < LAYERS; i++) {
    bs_layer_free(own[i]);
    bs_layer_free(lent[i]);
    api->tensor_free(rank, &right[i]);
    api->tensor_free(rank, &few[i]);
  }
  api->tensor_free(rank, &x);
  api->tensor_free(rank, &y);
  api->free(rank, block);
  return BS_OK;
}

static void run_job(job *j, int32_t (*rank_main)(bs_rank *, void *, bs_error *)) {
  const variant *v = j->v;
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = v->world,
                              .backend = v->backend != NULL ? v->backend : "ref",
                              .threads_per_rank = 1,
                              .timeout_s = 20};
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, j, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}

static job job_of(const variant *v, bs_mask *mask) {
  job j = {.v = v, .method = v->method};
  static char *keys[2], *values[2];
  j.spec = mf_spec(B, N, v->k > 0 ? v->k : K, v->dtype != 0 ? v->dtype : (uint32_t)BS_F32);
  for (int i = 0; i < 2 && v->keys[i] != NULL; i++) {
    keys[i] = (char *)(uintptr_t)v->keys[i];
    values[i] = (char *)(uintptr_t)v->values[i];
    j.spec.n_options = (uint32_t)i + 1;
  }
  j.spec.option_keys = (const char *const *)keys;
  j.spec.option_values = (const char *const *)values;
  j.spec.x_placement = v->x;
  j.spec.y_placement = v->y;
  j.spec.activation = v->activation;
  j.spec.reduce_dtype = v->wire;
  j.spec.flags = v->flags;
  j.spec.mask = mf_mask_in(v->mask, mask);
  j.spec.has_bias = 1;
  j.w[0] = mf_normals(1, N * K);
  j.w[1] = mf_normals(2, N * K);
  j.bias = mf_normals(3, N);
  j.x = mf_normals(4, B * K);
  for (uint32_t r = 0; r < v->world; r++) {
    bs_proposal p = {.struct_size = sizeof p};
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_method_propose(context, v->method, &j.spec, r, v->world, &p, &err) == BS_OK, "%s",
                  err.message);
    if (p.workspace_bytes + BS_CALLS_EDGES > j.bytes) j.bytes = p.workspace_bytes + BS_CALLS_EDGES;
  }
  return j;
}

static void job_free(job *j) {
  free((void *)(uintptr_t)j->w[0]);
  free((void *)(uintptr_t)j->w[1]);
  free((void *)(uintptr_t)j->bias);
  free((void *)(uintptr_t)j->x);
}

START_TEST(two_layers_in_one_block) {
  bs_mask mask;
  job j = job_of(&variants[_i], &mask);
  for (j.cut = 0; j.cut < 2; j.cut++) run_job(&j, calls_main);
  ck_assert_uint_eq(j.differ, 0);
  job_free(&j);
}
END_TEST

/* The tensors that a layer keeps are its own: here is one whose bias is not. */
START_TEST(what_is_kept_there_is_lost) {
  const char *dir = getenv("BS_TEST_BINARY_DIR");
  char path[4096];
  const char *plugins[1] = {path};
  static const variant keeper = {"keeper", NULL, 2, .dtype = BS_BF16, .wrong = 1};
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_ptr_nonnull(dir);
  snprintf(path, sizeof path, "%s/tests/method_fixtures/bs_keeper.so", dir);
  const bs_context_options o = {
      .struct_size = sizeof o, .plugins = plugins, .n_plugins = 1, .trust = BS_TRUST_ANY};
  close_context();
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  job j = job_of(&keeper, &mask);
  run_job(&j, calls_main);
  ck_assert_uint_eq(j.differ, 3 * LAYERS * 2); /* every call, on both ranks */
  job_free(&j);
}
END_TEST

static int32_t trained_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  job *j = arg;
  unsigned char *block = api->alloc(rank, j->bytes);
  bs_ownership own = {.struct_size = sizeof own};
  memset(block, NAN_BYTE, j->bytes);
  bs_rank_lend_calls(rank, block, j->bytes);
  bs_layer *layer = build(rank, j, 0);
  ck_assert_uint_eq(bs_rank_calls_bytes(rank), 0);
  ck_assert_int_eq(bs_layer_owns(layer, &own, err), BS_OK);
  bs_tensor x = make_x(rank, j, layer), y = make_y(rank, j), dy = make_y(rank, j);
  bs_tensor dx = matrix(rank, x.dtype, x.dims[0], x.dims[1]);
  bs_tensor dw = matrix(rank, BS_F32, own.row_count, own.columns != NULL ? own.columns->count : j->spec.K);
  forward(layer, &x, &y, 0);
  memcpy(dy.data, y.data, y.bytes);
  ck_assert_msg(bs_layer_backward(layer, &x, &dy, &dx, &dw, NULL, NULL, err) == BS_OK, "%s", err->message);
  ck_assert(all_nan(block, j->bytes));
  bs_layer_free(layer);
  bs_tensor *const tensors[5] = {&x, &y, &dy, &dx, &dw};
  for (int i = 0; i < 5; i++) api->tensor_free(rank, tensors[i]);
  api->free(rank, block);
  return BS_OK;
}

START_TEST(a_trained_layer_takes_none_of_it) {
  bs_mask mask;
  job j = job_of(&trained[_i], &mask);
  run_job(&j, trained_main);
  job_free(&j);
}
END_TEST

/* Outside of a build there is no call whose memory it could be: it is scratch, zero, and the rank's own. And
 * a block of the rank's own memory is freed after what was taken of it. */
static int32_t other_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2, .dims = {4, 8}};
  job *j = arg;
  bs_tensor t, block = matrix(rank, BS_U8, 1, (int64_t)j->bytes);
  bs_rank_lend_calls(rank, block.data, block.bytes);
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_CALL, &t, err), BS_OK);
  ck_assert((char *)t.data < (char *)block.data || (char *)t.data >= (char *)block.data + block.bytes);
  for (int i = 0; i < 32; i++) ck_assert_float_eq(((const float *)t.data)[i], 0.0f);
  ck_assert_int_eq(api->tensor_alloc(rank, &d, BS_LIFE_CALL + 1, &t, err), BS_INVALID_ARGUMENT);
  api->tensor_free(rank, &t);
  bs_layer *first = build(rank, j, 0), *second = build(rank, j, 1);
  bs_layer_free(first);
  bs_layer_free(second);
  bs_rank_lend_calls(rank, NULL, 0);
  api->tensor_free(rank, &block);
  return BS_OK;
}

START_TEST(calls_outside_of_a_build) {
  static const variant plain = {"row_parallel", NULL, 2, .dtype = BS_BF16};
  bs_mask mask;
  job j = job_of(&plain, &mask);
  run_job(&j, other_main);
  job_free(&j);
}
END_TEST

int main(void) {
  const test_case tests[] = {{two_layers_in_one_block, TEST_COUNT(variants)},
                             {what_is_kept_there_is_lost},
                             {a_trained_layer_takes_none_of_it, TEST_COUNT(trained)},
                             {calls_outside_of_a_build},
                             {0}};
  return run_tests("method_calls", tests, (test_setup){open_context, close_context, 30});
}
