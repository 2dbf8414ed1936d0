/* SPDX-License-Identifier: MIT
 * test_device_capture.c - runs as captures on a backend with separate memory: replays have the bits of the
 * host, a refused capture changes nothing, and a capture is dropped when the memory that it uses moves. */
#include "core/world/executor.h"
#include "graph/run/run.h"
#include "tests/graph/device_case.h"

enum { TIMES = 64, POSITIONS = 12 };

static void tell(const bs_session *s, char out[256]) {
  gcapture_tell(s->bound, out, 256);
}

static const struct {
  const char *model, *param, *says;
} captured[] = {{"gpt2/", "apart.keeps=true", " in 1 capture"},
                {"qwen3/", "apart.keeps=true", " in 1 capture"},
                {"builtin:lm:1x64", "apart.keeps=true", " in 1 capture"},
                {"gpt2/", "apart.lacks=take", " in 1 capture"},
                {"gpt2/", "apart.keeps=false", "not captured: a capture is refused as asked"}};

/* Each step reads the token, the length and the cache of its run. */
START_TEST(decode_is_replayed) {
  with_params(&captured[_i].param, 1);
  bs_graph *model = split_open(captured[_i].model);
  const int cached = model->model->n_states > 0;
  bs_session *host = open_on(model, "ref", 1, NULL), *device = open_on(model, "apart", 1, NULL);
  char text[256];
  for (int64_t i = 0; i < TIMES; i++) {
    if (cached && i % POSITIONS == 0) {
      split_ok(bs_session_cache(host, 0, &split_err), "cache");
      split_ok(bs_session_cache(device, 0, &split_err), "cache");
    }
    run(host, i);
    run(device, i);
    same_outputs(host, device, captured[_i].model);
  }
  tell(device, text);
  ck_assert_msg(strstr(text, captured[_i].says) != NULL, "%s", text);
  bs_session_close(host);
  bs_session_close(device);
}
END_TEST

/* Sequences that run alternately: each slot has its own captures, because its cache lies elsewhere. */
START_TEST(slots_in_turn) {
  enum { SLOTS = 3, STEPS = 8 };
  const bs_graph_options o = {.struct_size = (uint32_t)sizeof o, .slots = SLOTS};
  const bs_dim dims[] = {{.struct_size = sizeof dims[0], .name = "batch", .size = 1},
                         {.struct_size = sizeof dims[0], .name = "sequence", .size = 1},
                         {.struct_size = sizeof dims[0], .name = "rows", .size = 1}};
  const bs_dim *const list[] = {&dims[0], &dims[1], &dims[2]};
  bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .backend = "ref", .threads = 1, .dims = list, .n_dims = 3};
  bs_session *host = NULL, *device = NULL;
  char text[256];
  write_config(gpt2_config, split_gpt2);
  write_weights("model.safetensors", split_gpt2_weights, 0, 100, NULL);
  split_ok(bs_graph_open(split_context, files_folder, &o, &split_opened, &split_err), "model");
  split_ok(bs_session_open(split_context, split_opened, &options, &host, &split_err), "host");
  options.backend = "apart";
  split_ok(bs_session_open(split_context, split_opened, &options, &device, &split_err), "device");
  for (int64_t i = 0; i < (int64_t)STEPS * SLOTS; i++) {
    split_ok(bs_session_slot(host, i % SLOTS, &split_err), "slot");
    split_ok(bs_session_slot(device, i % SLOTS, &split_err), "slot");
    run(host, i);
    run(device, i);
    same_outputs(host, device, "slots");
    tell(device, text);
    /* The first run of all is step by step, the first of another slot is captured. */
    ck_assert_msg((strstr(text, "in 1 capture") != NULL) == (i > 0), "run %d: %s", (int)i, text);
  }
  bs_session_close(host);
  bs_session_close(device);
}
END_TEST

/* The two largest of relu(x): topk works in a scratch as long as x. */
static bs_graph *open_topk(void) {
  static const char *const names[] = {"n", NULL};
  static const int64_t two = 2;
  bs_graph *model = NULL;
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_F32, .rank = 1, .dims = {-1}};
  uint32_t x, k, y, most[2];
  split_ok(bs_graph_new(split_context, &model, &split_err), "graph");
  split_ok(bs_graph_input(model, "x", &d, names, &x, &split_err), "input");
  d.dtype = BS_I64;
  d.dims[0] = 1;
  split_ok(bs_graph_constant(model, "k", &d, &two, &k, &split_err), "constant");
  split_ok(bs_graph_op(model, "Relu", &x, 1, NULL, 0, &y, 1, &split_err), "relu");
  split_ok(bs_graph_op(model, "TopK", (uint32_t[]){y, k}, 2, NULL, 0, most, 2, &split_err), "topk");
  split_ok(bs_graph_output(model, "values", most[0], &split_err), "output");
  split_ok(bs_graph_output(model, "places", most[1], &split_err), "output");
  return model;
}

/* The plan of a larger size moves the rank's scratch: what was captured with the old one is captured again.
 */
START_TEST(scratch_that_moves) {
  static const int64_t sizes[] = {8, 8, 8, 100000, 8, 8, 8};
  bs_graph *model = open_topk();
  bs_session *host = open_on(model, "ref", 8, NULL), *device = open_on(model, "apart", 8, NULL);
  char text[256];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    const uint64_t before_it = bs_rank_scratch_bytes(device->rank->rank);
    bind(host, sizes[i]);
    bind(device, sizes[i]);
    ck_assert((bs_rank_scratch_bytes(device->rank->rank) > before_it) == (sizes[i] > 8));
    run(host, (int64_t)i);
    run(device, (int64_t)i);
    same_outputs(host, device, "topk");
  }
  tell(device, text);
  ck_assert_str_eq(text, "2 nodes in 1 capture");
  bs_session_close(host);
  bs_session_close(device);
  bs_graph_close(model);
}
END_TEST

int main(void) {
  const test_case rows[] = {
      {decode_is_replayed, TEST_COUNT(captured)}, {slots_in_turn}, {scratch_that_moves}, {0}};
  return run_tests("device_capture", rows, (test_setup){.before = before, .after = split_end, .timeout = 60});
}
