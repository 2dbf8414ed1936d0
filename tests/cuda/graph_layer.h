/* SPDX-License-Identifier: MIT
 * graph_layer.h - a small layer on the cuda backend over the stand-in, whose captures refuse what a driver's
 * do, and worlds of ranks that run it. */
#ifndef BS_TESTS_CUDA_GRAPH_LAYER_H
#define BS_TESTS_CUDA_GRAPH_LAYER_H
#include <string.h>

#include "blockshock/plugin.h"
#include "core/world/world.h"
#include "tests/cuda/backend.h"
#include "tests/lab/lab_test.h"

enum { B = 3, N = 24, K = 16 };

static const bs_rank_api *api;

typedef struct pattern {
  int64_t seed, cols;
} pattern;

static int32_t read_values(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const pattern *p = ctx;
  const int64_t n = cols != NULL ? cols->count : p->cols;
  (void)err;
  ck_assert_uint_eq(dtype, BS_F32);
  for (int64_t i = 0; i < nrows; i++)
    for (int64_t j = 0; j < n; j++) {
      const int64_t col = cols == NULL                        ? j
                          : cols->kind == BS_PARTITION_GATHER ? cols->columns[j]
                                                              : cols->begin + j;
      ((float *)out)[i * out_stride + j] = (float)((p->seed + (row + i) * 7 + col * 3) % 11 - 5);
    }
  return BS_OK;
}

static bs_source source_of(const pattern *p, int64_t rows) {
  return (bs_source){.struct_size = sizeof(bs_source),
                     .dtype = BS_F32,
                     .rows = rows,
                     .cols = p->cols,
                     .read = read_values,
                     .ctx = (void *)(uintptr_t)p};
}

typedef struct layer_case {
  const char *method, *mask;
  uint32_t activation, has_bias, y_placement, flags;
} layer_case;

/* One rank's layer and tensors; of a layer without BS_LAYER_BACKWARD x and y alone. */
typedef struct made {
  bs_layer *layer;
  bs_tensor x, y, dy, dx, dw, db;
} made;

static inline int32_t take(bs_rank *rank, uint32_t dims, int64_t rows, int64_t cols, bs_tensor *out,
                           bs_error *err) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = dims, .dims = {rows, cols}};
  if (dims == 1) d.dims[1] = 0;
  return api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, out, err);
}

static inline int32_t take_gradients(bs_rank *rank, int64_t features, made *m, bs_error *err) {
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = bs_layer_owns(m->layer, &own, err);
  int64_t cols = own.columns != NULL ? own.columns->count : K;
  if (own.kept != NULL) cols = (cols + 3) / 4 * 2;
  if (rc == BS_OK) rc = take(rank, 2, B, features, &m->dy, err);
  if (rc == BS_OK) rc = take(rank, 2, B, K, &m->dx, err);
  if (rc == BS_OK) rc = take(rank, 2, own.row_count, cols, &m->dw, err);
  return rc == BS_OK ? take(rank, 1, own.row_count, 0, &m->db, err) : rc;
}

static inline int32_t make(bs_rank *rank, const layer_case *c, made *m, bs_error *err) {
  static const pattern weights = {1, K}, biases = {4, N};
  bs_mask mask;
  bs_layer_spec spec = {.struct_size = sizeof spec,
                        .has_bias = c->has_bias,
                        .B = B,
                        .N = N,
                        .K = K,
                        .x_dtype = BS_F32,
                        .w_dtype = BS_F32,
                        .y_dtype = BS_F32,
                        .reduce_dtype = BS_F32,
                        .activation = c->activation,
                        .y_placement = c->y_placement,
                        .flags = c->flags};
  const bs_source w = source_of(&weights, N), bias = source_of(&biases, 1);
  const int64_t features = c->y_placement == BS_SPLIT ? N / api->world_size(rank) : N;
  memset(m, 0, sizeof *m);
  if (c->mask != NULL) {
    const int32_t rc = bs_mask_parse(c->mask, NULL, NULL, &mask, err);
    if (rc != BS_OK) return rc;
    spec.mask = &mask;
  }
  int32_t rc = bs_layer_build(rank, c->method, &spec, &w, c->has_bias ? &bias : NULL, &m->layer, err);
  if (rc == BS_OK) rc = take(rank, 2, B, K, &m->x, err);
  if (rc == BS_OK) rc = take(rank, 2, B, features, &m->y, err);
  return rc == BS_OK && (c->flags & BS_LAYER_BACKWARD) ? take_gradients(rank, features, m, err) : rc;
}

static inline void unmake(bs_rank *rank, made *m) {
  bs_tensor *const all[] = {&m->x, &m->y, &m->dy, &m->dx, &m->dw, &m->db};
  bs_layer_free(m->layer);
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i]->data != NULL) api->tensor_free(rank, all[i]);
}

static inline int32_t fill(bs_rank *rank, bs_tensor *t, int64_t seed, bs_error *err) {
  const pattern p = {seed, t->dims[1]};
  const bs_source source = source_of(&p, t->dims[0]);
  return api->tensor_read(rank, &source, 0, NULL, t, err);
}

/* The output for the X of a seed. */
static inline int32_t forward(bs_rank *rank, made *m, int64_t seed, float out[B * N], bs_error *err) {
  int32_t rc = fill(rank, &m->x, seed, err);
  if (rc == BS_OK) rc = bs_layer_forward(m->layer, &m->x, &m->y, NULL, err);
  return rc == BS_OK ? bs_rank_copy_out(rank, &m->y, out, err) : rc;
}

/* kept: passes that the record says were run as graphs, "forward,step"; of no other it does. */
static inline void with_world(const char *setup, uint32_t ranks,
                              int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err), const void *arg,
                              const char *kept) {
  static const char *const passes[] = {"forward", "backward", "step"};
  const over o = over_open(NULL, setup);
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = ranks,
                                    .threads_per_rank = 1,
                                    .backend = "cuda",
                                    .sync_mode = BS_SYNC_EVENTS};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  api = bs_rank_get_api();
  int32_t rc = bs_world_create(o.context, &options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, (void *)(uintptr_t)arg, &err);
  ck_assert_msg(rc == BS_OK, "%d %s: %s", rc, err.id, err.message);
  for (size_t i = 0; i < 3; i++) {
    char note[32];
    snprintf(note, sizeof note, "%s@cuda/graph", passes[i]);
    ck_assert_msg((strstr(bs_world_algorithms(world), note) != NULL) == (strstr(kept, passes[i]) != NULL),
                  "%s, not %s", bs_world_algorithms(world), kept);
  }
  bs_world_destroy(world);
  bs_context_close(o.context);
}

#endif
