/* SPDX-License-Identifier: MIT
 * test_split_exports.c - every export of models.txt by every method on 2, 3 and 4 ranks: the numbers of one
 * rank, with nodes, counters and outputs that the check accepts, or a refusal with its reason. */
#include <math.h>

#include "graph/split/front.h"
#include "graph/split/method.h"
#include "tests/graph/split_case.h"

enum { TOKENS = 5 };
static const double tolerance = 1e-4; /* of the largest number of the output */

static const char *const exports[] = {
    "gpt2_23",         "gpt2_20",         "qwen3_23",       "qwen3_20",       "bert_23_dynamic",
    "bert_20",         "llama_23",        "t5_encoder_23",  "vit_23",         "block_naive_toy_23",
    "mlp_4x128_23",    "gpt2_last_23",    "gpt2_23_batch2", "gpt2_20_batch2", "qwen3_23_batch2",
    "qwen3_20_batch2", "llama_23_batch2", "llama_20_batch2"};
static const char *const methods[] = {"row_parallel",
                                      "column_parallel",
                                      "blockshock",
                                      "masked_split",
                                      "column_parallel+row_parallel",
                                      "column_parallel+blockshock"};
enum { EXPORTS = sizeof exports / sizeof exports[0], METHODS = sizeof methods / sizeof methods[0] };

static double *wanted[SPLIT_MOST_PORTS];
static uint32_t layers_of_all, refused_of_all;

static const bs_dim *const *dims_of(const gmodel *m, uint32_t *out_n) {
  static bs_dim dims[8];
  static const bs_dim *list[8];
  ck_assert_uint_le(m->n_symbols, 8);
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : TOKENS};
    list[i] = &dims[i];
  }
  *out_n = m->n_symbols;
  return list;
}

static uint64_t count_of(const bs_tensor *t) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < t->rank; d++) count *= (uint64_t)t->dims[d];
  return count;
}

static void keep_wanted(bs_session *s, uint32_t n_inputs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    split_ok(bs_session_get(s, n_inputs + i, &t, &split_err), "get");
    wanted[i] = malloc((count_of(&t) + 1) * sizeof **wanted);
    bs_read_dense(BS_F64, wanted[i], &t);
  }
}

static void compare(bs_session *s, uint32_t n_inputs, uint32_t n, const char *name, const char *method,
                    uint32_t ranks) {
  for (uint32_t i = 0; i < n; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    double most = 1e-30, worst = 0;
    split_ok(bs_session_get(s, n_inputs + i, &t, &split_err), "get");
    const uint64_t count = count_of(&t);
    double *got = malloc((count + 1) * sizeof *got);
    bs_read_dense(BS_F64, got, &t);
    for (uint64_t k = 0; k < count; k++) most = fmax(most, fabs(wanted[i][k]));
    for (uint64_t k = 0; k < count; k++) worst = fmax(worst, fabs(got[k] - wanted[i][k]));
    free(got);
    ck_assert_msg(worst <= tolerance * most, "%s by %s on %u ranks: output %u differs by %g of %g", name,
                  method, ranks, i, worst, most);
  }
}

/* All ranks together hold each weight of a layer once, and none holds over 1 % more than its share, but for
 * what a whole row or column takes. */
static void expect_shares(const bs_session *s, uint32_t ranks, const char *name, const char *method) {
  const gcore *lead = gfront_member(s->front, 0)->core;
  for (uint32_t i = 0; i < lead->n_layers; i++) {
    const bs_layer_spec *spec = &lead->layers[i]->spec;
    const uint64_t size = BS_DTYPE_BYTES(spec->w_dtype), all = (uint64_t)(spec->N * spec->K) * size;
    const uint64_t line = (uint64_t)(spec->N > spec->K ? spec->N : spec->K) * size;
    uint64_t sum = 0, most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
      const uint64_t bytes = gfront_member(s->front, r)->core->layers[i]->bytes;
      sum += bytes;
      most = bytes > most ? bytes : most;
    }
    ck_assert_msg(sum == all && (double)most <= 1.01 * (double)all / ranks + (double)line,
                  "%s by %s on %u ranks: layer %u of %llu bytes: %llu on all ranks, %llu at most on one",
                  name, method, ranks, i, (unsigned long long)all, (unsigned long long)sum,
                  (unsigned long long)most);
  }
}

static void try_method(bs_graph *model, const char *name, const char *method, uint32_t ranks) {
  const bs_world_options of = {
      .struct_size = sizeof of, .world_size = ranks, .threads_per_rank = 1, .fallback = 1};
  const gmodel *m = model->model;
  bs_session_stats stats = {.struct_size = sizeof stats};
  bs_session_options o = {.struct_size = sizeof o, .method = method};
  bs_session *s = NULL;
  o.dims = dims_of(m, &o.n_dims);
  split_ok(bs_world_create(split_context, &of, &o.world, &split_err), "world");
  const int32_t rc = bs_session_open(split_context, model, &o, &s, &split_err);
  if (rc != BS_OK) {
    ck_assert_msg(strcmp(split_err.id, "BS-GRAPH-SPLIT") == 0, "%s by %s on %u ranks: %s %s", name, method,
                  ranks, split_err.id, split_err.message);
    refused_of_all++;
  } else {
    split_set_inputs(s, m->n_inputs);
    const int32_t checked = bs_session_check(s, NULL, NULL, &split_err);
    ck_assert_msg(checked == BS_OK, "%s by %s on %u ranks: %s %s", name, method, ranks, split_err.id,
                  split_err.message);
    compare(s, m->n_inputs, m->n_outputs, name, method, ranks);
    split_ok(bs_session_stats_get(s, &stats, &split_err), "stats");
    ck_assert_uint_gt(stats.layers, 0);
    layers_of_all += (uint32_t)stats.layers;
    expect_shares(s, ranks, name, method);
  }
  bs_session_close(s);
  bs_world_destroy(o.world);
}

START_TEST(methods_give_what_one_rank_gives) {
  const char *name = exports[_i];
  bs_graph *model = split_open(name);
  const gmodel *m = model->model;
  bs_session_options one = {.struct_size = sizeof one, .threads = 1};
  bs_session *s = NULL;
  one.dims = dims_of(m, &one.n_dims);
  ck_assert_uint_le(m->n_inputs, SPLIT_MOST_PORTS);
  ck_assert_uint_le(m->n_outputs, SPLIT_MOST_PORTS);
  split_ok(bs_session_open(split_context, model, &one, &s, &split_err), name);
  split_set_inputs(s, m->n_inputs);
  split_ok(bs_session_run(s, &split_err), name);
  keep_wanted(s, m->n_inputs, m->n_outputs);
  bs_session_close(s);
  for (uint32_t k = 0; k < METHODS; k++)
    for (uint32_t ranks = 2; ranks <= 4; ranks++) try_method(model, name, methods[k], ranks);
  for (uint32_t i = 0; i < m->n_outputs; i++) free(wanted[i]);
  ck_assert_uint_gt(layers_of_all, 0);
  ck_assert_uint_le(refused_of_all, 3); /* two halves on three ranks */
}
END_TEST

int main(void) {
  const test_case rows[] = {{methods_give_what_one_rank_gives, EXPORTS}, {0}};
  return run_tests("split_exports", rows, (test_setup){.before = split_begin, .after = split_end});
}
