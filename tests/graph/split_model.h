/* SPDX-License-Identifier: MIT
 * split_model.h - what test_split_model.c and test_split_faults.c share: a small model of a folder, a world,
 * and a session of one over the other. */
#ifndef BS_TESTS_GRAPH_SPLIT_MODEL_H
#define BS_TESTS_GRAPH_SPLIT_MODEL_H
#include <math.h>
#include <string.h>

#include "blockshock/graph.h"
#include "graph/run/session.h"
#include "graph/split/front.h"
#include "graph/split/method.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 5, PROMPT = 4, ALL = 8 };
static const entry no_change[] = {{0}};
static const struct {
  const entry *config, *weights;
} models[] = {{gpt2_config, gpt2_weights}, {llama_config, llama_weights}};
static const int64_t tokens[ALL] = {3, 1, 4, 1, 3, 4, 3, 4};

static bs_context *context;
static bs_graph *model;
static bs_world *world;
static bs_error err;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, err.id, err.message);
}

static void before(void) {
  files_begin();
  ok(bs_context_open(NULL, &context, &err), "context");
}

static void after(void) {
  gmethod_fault = NULL;
  bs_graph_close(model);
  bs_world_destroy(world);
  bs_context_close(context);
  model = NULL;
  world = NULL;
  files_end();
}

static void open_model(int which) {
  write_config(models[which].config, no_change);
  write_weights("model.safetensors", models[which].weights, 0, 100, no_change);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
}

static void open_world(uint32_t ranks) {
  const bs_world_options options = {
      .struct_size = (uint32_t)sizeof options, .world_size = ranks, .threads_per_rank = 1, .fallback = 1};
  ok(bs_world_create(context, &options, &world, &err), "world");
}

static const bs_dim *const *dims_of(int64_t n) {
  static bs_dim dim;
  static const bs_dim *list[1] = {&dim};
  dim = (bs_dim){.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = n};
  return list;
}

/* method NULL: one rank. */
static int32_t try_session(const char *method, uint32_t bits, int64_t n, bs_session **out) {
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .threads = method == NULL,
                                      .dims = dims_of(n),
                                      .n_dims = 1,
                                      .world = method != NULL ? world : NULL,
                                      .method = method,
                                      .tokenwise = bits};
  return bs_session_open(context, model, &options, out, &err);
}

/* The logits of the last of n tokens behind those in the cache. */
static int32_t run(bs_session *s, const int64_t *ids, int64_t n, float *out_logits) {
  bs_tensor in = {.struct_size = (uint32_t)sizeof in,
                  .dtype = BS_I64,
                  .rank = 2,
                  .dims = {1, n},
                  .strides = {n, 1},
                  .data = (void *)(uintptr_t)ids,
                  .bytes = 8 * (uint64_t)n};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  ok(bs_session_bind(s, dims_of(n), 1, &err), "bind");
  ok(bs_session_set(s, 0, &in, &err), "set");
  const int32_t rc = bs_session_run(s, &err);
  if (rc != BS_OK) return rc;
  ok(bs_session_get(s, 1, &logits, &err), "get");
  memcpy(out_logits, (const float *)logits.data + (n - 1) * WORDS, WORDS * sizeof *out_logits);
  return rc;
}

#endif
