/* SPDX-License-Identifier: MIT
 * test_device_model.c - models on a backend whose memory the host cannot reach (apart/apart.h; an access ends
 * the process): bits, checks, caches and memory are those of the same ops on the host. */
#include "tests/graph/device_case.h"

static const char *const models[] = {
    "gpt2/",           "qwen3/",         "builtin:lm:1x64", "builtin:vit:1x128",
    "bert_23_dynamic", "gpt2_23_batch2", "qwen3_20",        "t5_encoder_23"};

/* Prefill, two steps of decode, another size, and back. */
START_TEST(bits_of_the_host) {
  bs_graph *model = split_open(models[_i]);
  const int cached = model->model->n_states > 0;
  bs_session *host = open_on(model, "ref", PROMPT, NULL), *device = open_on(model, "apart", PROMPT, NULL);
  ck_assert_uint_eq(device->rank->apart, 1);
  static const int64_t sizes[] = {PROMPT, 1, 1, 3};
  int64_t at = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (i > 0) bind(host, sizes[i]);
    if (i > 0) bind(device, sizes[i]);
    run(host, at);
    run(device, at);
    same_outputs(host, device, models[_i]);
    if (cached) at += sizes[i];
  }
  bs_session_close(host);
  bs_session_close(device);
}
END_TEST

/* ---- nodes that the device lacks --------------------------------------------------------------- */

static const struct {
  const char *model, *lacks;
} lacking[] = {{"gpt2/", "take"},
               {"gpt2/", "put"}, /* writes a part of a state */
               {"gpt2/", "normalize,attention"},
               {"qwen3/", "matmul"},
               {"qwen3/", "map,put,take"},
               {"bert_23_dynamic", "map,contract,reduce,normalize"},
               {"builtin:lm:1x64", "matmul,map,normalize,attention,contract,reduce,take,put,topk"}};

static uint32_t count_lacking(bs_session *s, const char *lacks) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < bs_session_node_count(s); i++) {
    bs_node_info info = {.struct_size = (uint32_t)sizeof info};
    char list[128], word[64];
    split_ok(bs_session_node(s, i, &info, &split_err), "node");
    snprintf(list, sizeof list, ",%s,", lacks);
    snprintf(word, sizeof word, ",%s,", info.op);
    const int lacked = strstr(list, word) != NULL;
    n += (uint32_t)lacked;
    ck_assert_msg((strncmp(info.serves, "apart:", 6) != 0) == lacked, "%s by %s", info.op, info.serves);
    ck_assert_msg(!lacked || strstr(info.reason, "apart.lacks has it") != NULL, "%s", info.reason);
  }
  return n;
}

static void all_right(void *user, const bs_node_check *row) {
  ck_assert_msg(row->ok, "%s of %s: %s", row->op, row->origin, row->reason);
  ++*(int *)user;
}

/* They run on the host, are counted, and every node is right. */
START_TEST(lacked_nodes_run_on_the_host) {
  char text[160];
  const char *const params[1] = {text};
  void *memory[PORTS] = {NULL};
  int rows = 0;
  snprintf(text, sizeof text, "apart.lacks=%s", lacking[_i].lacks);
  with_params(params, 1);
  bs_graph *model = split_open(lacking[_i].model);
  const int cached = model->model->n_states > 0;
  bs_session *s = open_on(model, "apart", PROMPT, NULL);
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  feed(s, 0, memory);
  split_ok(bs_session_check(s, all_right, &rows, &split_err), "check");
  unfeed(s, memory);
  bind(s, cached ? 1 : PROMPT);
  feed(s, PROMPT, memory);
  split_ok(bs_session_check(s, all_right, &rows, &split_err), "check");
  split_ok(bs_session_stats_get(s, &stats, &split_err), "stats");
  ck_assert_uint_eq(stats.fallback_nodes, count_lacking(s, lacking[_i].lacks));
  ck_assert_uint_gt(stats.fallback_nodes, 0);
  const uint64_t waits = stats.host_waits;
  if (cached) split_ok(bs_session_cache(s, PROMPT, &split_err), "cache");
  split_ok(bs_session_run(s, &split_err), "run");
  split_ok(bs_session_stats_get(s, &stats, &split_err), "stats");
  ck_assert_uint_eq(stats.host_waits - waits, 2 * stats.fallback_nodes + 1);
  unfeed(s, memory);
  bs_session_close(s);
}
END_TEST

/* One error names all of them, where nothing else may serve. */
START_TEST(lacked_nodes_are_refused_at_once) {
  static const char *const params[1] = {"apart.lacks=take,attention"};
  const bs_session_options o = {.backend = "apart", .no_fallback = 1};
  bs_session *s = NULL;
  with_params(params, 1);
  ck_assert_int_eq(try_open(split_open("builtin:lm:2x64"), o, PROMPT, &s), BS_UNSUPPORTED);
  ck_assert_str_eq(split_err.id, "BS-GRAPH-DEVICE");
  const char *first = strstr(split_err.message, "take of "), *second = strstr(split_err.message, "attention");
  ck_assert_msg(first != NULL && second != NULL && strstr(second + 1, "attention") != NULL, "%s",
                split_err.message);
  ck_assert_ptr_nonnull(strstr(split_err.message, "does not serve 3 of "));
}
END_TEST

/* ---- who looks at values ----------------------------------------------------------------------- */

static void has_values(void *user, const bs_node_trace *row) {
  for (uint32_t i = 0; i < row->n_outputs; i++) {
    const bs_tensor *t = row->outputs[i];
    if (t != NULL && tensor_elements(t) > 0)
      *(unsigned *)user += ((volatile const unsigned char *)t->data)[0] + 1u;
  }
}

START_TEST(checks_see_copies) {
  bs_graph *model = split_open(models[_i]);
  bs_session *s = open_on(model, "apart", PROMPT, NULL);
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  void *memory[PORTS] = {NULL};
  unsigned seen = 0;
  int rows = 0;
  feed(s, 0, memory);
  split_ok(bs_session_check(s, all_right, &rows, &split_err), "check");
  ck_assert_uint_eq((unsigned)rows, bs_session_node_count(s));
  if (model->model->n_states > 0) split_ok(bs_session_cache(s, 0, &split_err), "cache");
  split_ok(bs_session_trace(s, has_values, &seen, &split_err), "trace");
  ck_assert_uint_gt(seen, 0);
  if (model->model->n_states > 0) split_ok(bs_session_cache(s, 0, &split_err), "cache");
  split_ok(bs_session_verify(s, &report, &split_err), "verify");
  unfeed(s, memory);
  bs_session_close(s);
}
END_TEST

/* An id outside of the vocabulary is an error before anything runs, also where the host serves the node. */
START_TEST(ids_are_looked_at) {
  static const char *const lacks[] = {"apart.lacks=", "apart.lacks=take"};
  static const int64_t bad[] = {5, -6, INT64_MAX};
  int64_t ids[PROMPT] = {0, 4, -5, 3, 1};
  with_params(&lacks[_i], 1);
  bs_session *s = open_on(split_open("gpt2/"), "apart", PROMPT, NULL);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_I64,
                 .rank = 2,
                 .dims = {1, PROMPT},
                 .strides = {PROMPT, 1},
                 .data = ids,
                 .bytes = sizeof ids};
  split_ok(bs_session_set(s, 0, &t, &split_err), "set");
  split_ok(bs_session_run(s, &split_err), "run");
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_session_stats before = {.struct_size = (uint32_t)sizeof before}, after = before;
    ids[3] = bad[i];
    split_ok(bs_session_cache(s, 0, &split_err), "cache");
    split_ok(bs_session_stats_get(s, &before, &split_err), "stats");
    ck_assert_int_eq(bs_session_run(s, &split_err), BS_INPUT);
    ck_assert_str_eq(split_err.id, "BS-OP-INDEX");
    bs_error_clear(&split_err);
    split_ok(bs_session_stats_get(s, &after, &split_err), "stats");
    if (_i == 0) ck_assert_uint_eq(after.copied_bytes, before.copied_bytes); /* nothing went up */
  }
  ids[3] = 3;
  split_ok(bs_session_run(s, &split_err), "run");
  bs_session_close(s);
}
END_TEST

/* ---- ports and memory -------------------------------------------------------------------------- */

/* A large input goes up by itself; an output comes to the caller's memory, and to no other. */
START_TEST(memory_of_the_caller) {
  static float x[512][1024], y[512][8], w[1024][8];
  bs_graph *model = NULL;
  const int64_t xd[] = {512, 1024}, wd[] = {1024, 8};
  for (int i = 0; i < 512; i++)
    for (int k = 0; k < 1024; k++) x[i][k] = (float)((i * 31 + k * 7) % 101 - 50) / 64;
  for (int i = 0; i < 1024; i++)
    for (int k = 0; k < 8; k++) w[i][k] = (float)((i * 13 + k * 5) % 31 - 15) / 16;
  split_ok(bs_graph_new(split_context, &model, &split_err), "graph");
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_F32, .rank = 2};
  uint32_t in = 0, weight = 0, out = 0;
  memcpy(d.dims, xd, sizeof xd);
  split_ok(bs_graph_input(model, "x", &d, NULL, &in, &split_err), "input");
  memcpy(d.dims, wd, sizeof wd);
  split_ok(bs_graph_constant(model, "w", &d, w, &weight, &split_err), "weight");
  const uint32_t args[] = {in, weight};
  split_ok(bs_graph_op(model, "MatMul", args, 2, NULL, 0, &out, 1, &split_err), "node");
  split_ok(bs_graph_output(model, "y", out, &split_err), "output");
  bs_session *host = open_on(model, "ref", 1, NULL), *device = open_on(model, "apart", 1, NULL);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {512, 1024},
                 .strides = {1024, 1},
                 .data = x,
                 .bytes = sizeof x};
  split_ok(bs_session_set(host, 0, &t, &split_err), "set");
  split_ok(bs_session_set(device, 0, &t, &split_err), "set");
  t = (bs_tensor){.struct_size = (uint32_t)sizeof t,
                  .dtype = BS_F32,
                  .rank = 2,
                  .dims = {512, 8},
                  .strides = {8, 1},
                  .data = y,
                  .bytes = sizeof y};
  ck_assert_int_eq(bs_session_get(device, 1, &t, &split_err), BS_INVALID_ARGUMENT); /* before a run */
  t.data = y;
  split_ok(bs_session_set(device, 1, &t, &split_err), "set");
  split_ok(bs_session_run(host, &split_err), "run");
  split_ok(bs_session_run(device, &split_err), "run");
  split_ok(bs_session_get(device, 1, &t, &split_err), "get");
  ck_assert_ptr_eq(t.data, y);
  same_outputs(host, device, "matmul");
  static unsigned char block[1 << 16] __attribute__((aligned(64)));
  ck_assert_int_eq(bs_session_use_workspace(device, block, sizeof block, &split_err), BS_UNSUPPORTED);
  bs_session_close(host);
  bs_session_close(device);
  bs_graph_close(model);
}
END_TEST

/* Slots are copied on the device. */
START_TEST(slots) {
  const bs_graph_options o = {.struct_size = (uint32_t)sizeof o, .slots = 2};
  bs_session *s[2];
  write_config(gpt2_config, split_gpt2);
  write_weights("model.safetensors", split_gpt2_weights, 0, 100, NULL);
  split_ok(bs_graph_open(split_context, files_folder, &o, &split_opened, &split_err), "model");
  for (int i = 0; i < 2; i++) {
    const bs_dim dims[] = {{.struct_size = sizeof dims[0], .name = "batch", .size = 1},
                           {.struct_size = sizeof dims[0], .name = "sequence", .size = 3},
                           {.struct_size = sizeof dims[0], .name = "rows", .size = 3}};
    const bs_dim *const list[] = {&dims[0], &dims[1], &dims[2]};
    const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                        .backend = i == 0 ? "ref" : "apart",
                                        .threads = 1,
                                        .dims = list,
                                        .n_dims = 3};
    split_ok(bs_session_open(split_context, split_opened, &options, &s[i], &split_err), "session");
    run(s[i], 0);
    split_ok(bs_session_slot_copy(s[i], 0, 1, 3, &split_err), "copy");
    split_ok(bs_session_cache(s[i], 0, &split_err), "cache");
    run(s[i], 1); /* slot 0 has other tokens now */
    split_ok(bs_session_slot(s[i], 1, &split_err), "slot");
    run(s[i], 2);
  }
  same_outputs(s[0], s[1], "slot 1");
  bs_session_close(s[0]);
  bs_session_close(s[1]);
}
END_TEST

/* Sessions that share weights may be closed in any order. */
START_TEST(shared) {
  bs_graph *model = split_open("qwen3/");
  bs_session *host = open_on(model, "ref", PROMPT, NULL), *first = open_on(model, "apart", PROMPT, NULL);
  bs_session *second = open_on(model, "apart", PROMPT, first);
  run(host, 0);
  run(first, 0);
  bs_session_close(_i == 0 ? first : NULL);
  split_ok(bs_session_cache(second, 0, &split_err), "cache");
  run(second, 0);
  same_outputs(host, second, "shared");
  bs_session_close(second);
  if (_i == 1) bs_session_close(first);
  bs_session_close(host);
}
END_TEST

/* Memory that ends anywhere is one error, nothing is kept, and the context is usable. */
START_TEST(no_room) {
  static const char *const names[] = {"gpt2/", "builtin:lm:1x64"};
  int refused = 0, opened = 0;
  for (uint64_t room = 1024; opened < 3; room += room / 4) {
    char text[64];
    const char *const params[1] = {text};
    const bs_session_options o = {.backend = "apart"};
    snprintf(text, sizeof text, "apart.room=%llu", (unsigned long long)room);
    with_params(params, 1);
    bs_graph *model = split_open(names[_i]);
    for (int round = 0; round < 3; round++) { /* what is not given back makes the second one fail */
      bs_session *s = NULL;
      void *memory[PORTS] = {NULL};
      bs_error_clear(&split_err);
      int32_t rc = try_open(model, o, PROMPT, &s);
      if (rc == BS_OK) {
        feed(s, 0, memory);
        rc = bs_session_run(s, &split_err);
        unfeed(s, memory);
      }
      bs_session_close(s);
      ck_assert_msg(rc == BS_OK || rc == BS_NO_MEMORY, "%d: %s %s", rc, split_err.id, split_err.message);
      if (rc != BS_OK) ck_assert_msg(split_err.message[0] != '\0', "room %llu", (unsigned long long)room);
      refused += rc != BS_OK;
      opened += rc == BS_OK;
      if (opened > 0) ck_assert_int_eq(rc, BS_OK);
    }
    bs_graph_close(split_opened);
    split_opened = NULL;
    bs_model_close(&split_made);
    split_made = (bs_model){0};
  }
  ck_assert_int_gt(refused, 3);
}
END_TEST

static void see_device(void *user, const char *text) {
  unsigned long long *device = user;
  const char *at = strstr(text, "\"device\":{");
  ck_assert_msg(at != NULL, "%.200s", text);
  ck_assert_int_eq(sscanf(at, "\"device\":{\"held\":%llu,\"memory\":%llu,\"twice\":%llu}", &device[0],
                          &device[1], &device[2]),
                   3);
}

/* The plan counts the arena, which the first run takes, and a table that is also a packed weight. */
START_TEST(explain_counts_the_memory) {
  static const struct {
    const char *model;
    unsigned long long twice; /* 5 words of 48 numbers */
  } of[] = {{"gpt2/", 5 * 48 * 4}, {"builtin:lm:1x64", 0}};
  unsigned long long before_it[3], after[3];
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  bs_session *s = open_on(split_open(of[_i].model), "apart", PROMPT, NULL);
  split_ok(bs_session_text(s, BS_REPORT_PLAN, 1, see_device, before_it, &split_err), "plan");
  run(s, 0);
  split_ok(bs_session_text(s, BS_REPORT_PLAN, 1, see_device, after, &split_err), "plan");
  split_ok(bs_session_stats_get(s, &stats, &split_err), "stats");
  ck_assert_uint_eq(before_it[0], after[0]);
  ck_assert_uint_ge(after[0], stats.packed_bytes + stats.state_bytes + stats.arena_bytes);
  ck_assert_uint_eq(after[1], 1u << 30);
  ck_assert_uint_eq(after[2], of[_i].twice);
  bs_session_close(s);
}
END_TEST

int main(void) {
  const test_case rows[] = {{bits_of_the_host, TEST_COUNT(models)},
                            {lacked_nodes_run_on_the_host, TEST_COUNT(lacking)},
                            {lacked_nodes_are_refused_at_once},
                            {checks_see_copies, TEST_COUNT(models)},
                            {ids_are_looked_at, 2},
                            {memory_of_the_caller},
                            {slots},
                            {shared, 2},
                            {no_room, 2},
                            {explain_counts_the_memory, 2},
                            {0}};
  return run_tests("device_model", rows, (test_setup){.before = before, .after = split_end, .timeout = 60});
}
