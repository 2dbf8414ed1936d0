/* SPDX-License-Identifier: MIT
 * test_cuda_model.c - models on the cuda backend over the stand-in: every node is right, what the device
 * lacks runs on the host; a call of the driver that fails is one error, and nothing stays. */
#include <math.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/cuda/backend.h"
#include "tests/graph/split_case.h"

enum { PROMPT = 5, PORTS = 8 };

static over cuda;

static void before(void) {
  files_begin();
  split_err = (bs_error)BS_ERROR_INIT;
}

static void open_with(const char *setup) {
  cuda = over_open(NULL, setup);
  split_context = cuda.context;
}

/* bs_model_close of a model that no one opened has nothing to do. */
static void after(void) {
  split_end();
  (void)split_begin;
}

static int32_t try_open(bs_graph *model, int64_t tokens, bs_session **out) {
  const gmodel *m = model->model;
  bs_dim dims[8];
  const bs_dim *list[8];
  for (uint32_t i = 0; i < m->n_symbols && i < 8; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : tokens};
    list[i] = &dims[i];
  }
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .backend = "cuda",
                                .threads = 1,
                                .dims = list,
                                .n_dims = m->n_symbols};
  return bs_session_open(split_context, model, &o, out, &split_err);
}

static int32_t set_ids(bs_session *s, int64_t *ids, int64_t n) {
  bs_tensor_desc d;
  split_ok(bs_session_port(s, 0, NULL, &d, &split_err), "port");
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank, .data = ids};
  memcpy(t.dims, d.dims, sizeof t.dims);
  memcpy(t.strides, d.strides, sizeof t.strides);
  t.bytes = tensor_elements(&t) * BS_DTYPE_BYTES(t.dtype);
  ck_assert_uint_le(tensor_elements(&t), (uint64_t)n);
  return bs_session_set(s, 0, &t, &split_err);
}

static void all_right(void *user, const bs_node_check *row) {
  ck_assert_msg(row->ok, "%s of %s by %s: %s", row->op, row->origin, row->serves, row->reason);
  *(unsigned *)user += strncmp(row->serves, "cuda:", 5) == 0;
}

static const char *const models[] = {"gpt2/", "qwen3/", "builtin:lm:1x64"};

START_TEST(each_node_is_right) {
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  bs_session *s = NULL;
  unsigned on_device = 0;
  open_with("");
  bs_graph *model = split_open(models[_i]);
  split_ok(try_open(model, PROMPT, &s), "open");
  split_ok(set_ids(s, ids, 10), "set");
  split_ok(bs_session_check(s, all_right, &on_device, &split_err), "check");
  ck_assert_uint_gt(on_device, 0);
  if (model->model->n_states > 0) { /* a step of decode */
    const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = 1}, *const list[] = {&dim};
    split_ok(bs_session_bind(s, list, 1, &split_err), "bind");
    split_ok(set_ids(s, ids + 1, 9), "set");
    split_ok(bs_session_check(s, all_right, &on_device, &split_err), "check");
    ck_assert_int_eq(bs_session_cache_length(s), PROMPT + 1);
  }
  bs_session_close(s);
  nothing_lives();
}
END_TEST

static const char *const failing[] = {"cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync_v2",
                                      "cuMemcpyDtoHAsync_v2",    "cuMemcpyDtoDAsync_v2",
                                      "cuStreamSynchronize",     "cuLaunchKernel"};
static const unsigned turns[] = {1, 2, 5, 11, 23, 47, 95};
enum { FAILING = sizeof failing / sizeof failing[0], TURNS = sizeof turns / sizeof turns[0] };

START_TEST(a_call_that_fails_is_one_error) {
  const char *name = failing[_i / TURNS];
  const unsigned turn = turns[_i % TURNS];
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  char setup[96];
  bs_session *s = NULL;
  snprintf(setup, sizeof setup, "plan=%s:%u=999", name, turn);
  open_with(setup);
  bs_graph *model = split_open("gpt2/");
  int32_t rc = try_open(model, PROMPT, &s);
  if (rc == BS_OK) {
    split_ok(set_ids(s, ids, 10), "set");
    rc = bs_session_run(s, &split_err);
  }
  bs_session_close(s);
  const uint64_t calls = calls_of(name);
  if (calls < turn) ck_assert_int_eq(rc, BS_OK);
  if (rc != BS_OK) /* ops that ask for memory report no more than that */
    ck_assert_msg(
        strstr(split_err.message, "999") != NULL || strstr(split_err.message, "no device memory") != NULL,
        "%s", split_err.message);
  if (rc == BS_OK && calls > turn) ck_assert_str_eq(name, "cuStreamSynchronize"); /* that of closing */
  nothing_lives();
}
END_TEST

/* A device that has no room says what the session holds, and another session opens. */
START_TEST(no_room) {
  bs_session *s = NULL;
  open_with("memory=65536");
  ck_assert_int_eq(try_open(split_open("builtin:lm:1x64"), PROMPT, &s), BS_NO_MEMORY);
  ck_assert_str_eq(split_err.id, "BS-GRAPH-DEVICE-MEMORY");
  ck_assert_ptr_nonnull(strstr(split_err.message, "MiB"));
  nothing_lives();
}
END_TEST

int main(void) {
  const test_case rows[] = {{each_node_is_right, TEST_COUNT(models)},
                            {a_call_that_fails_is_one_error, FAILING * TURNS},
                            {no_room},
                            {0}};
  return run_tests("cuda_model", rows, (test_setup){.before = before, .after = after, .timeout = 60});
}
