/* SPDX-License-Identifier: MIT
 *
 * test_method_overlap.c - forward in chunks: the same bits as without on real numbers, exact on integers, as
 * many collectives and bytes as proposed, weights read back from their pieces; what cannot be divided says
 * so.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const char *const methods[] = {"row_parallel", "blockshock", "masked_split", "column_parallel"};
static const char *const keys[] = {"overlap", "overlap_axis"};
static const char *const counts[] = {"2", "3", "8"};

typedef struct variant {
  uint32_t dtype, reduce_dtype, x_placement, y_placement, activation, flags;
  const char *backend;
  int64_t B, N, K;
} variant;
static const variant variants[] = {
    {BS_F32, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, 0, "cpu", 9, 150, 61},
    {BS_BF16, 0, BS_SPLIT, BS_REPLICATED, BS_ACT_GELU, 0, "cpu", 5, 139, 64},
    {BS_F32, 0, BS_REPLICATED, BS_SPLIT, BS_ACT_RELU, 0, "cpu", 53, 40, 36},
    {BS_F16, BS_F16, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, 0, "ref", 3, 21, 13},
    {BS_F32, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, BS_LAYER_BACKWARD, "cpu", 71, 200, 40},
    {BS_F32, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_RELU, 0, "cpu", 200, 33, 24},
    {BS_BF16, BS_BF16, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, 0, "ref", 1, 5, 7},
};
#define N_VARIANTS ((int)(sizeof variants / sizeof variants[0]))

static int serves(const char *method, const variant *v) {
  return strcmp(method, "column_parallel") != 0 || v->x_placement == BS_REPLICATED;
}

static mf_case case_of(const char *method, const variant *v, uint32_t P) {
  mf_case c = {.method = method, .backend = v->backend, .world = P, .forwards = 2};
  c.spec = mf_spec(v->B, v->N, v->K, v->dtype);
  c.spec.reduce_dtype = v->reduce_dtype;
  c.spec.x_placement = v->x_placement;
  c.spec.y_placement = v->y_placement;
  c.spec.activation = v->activation;
  c.spec.flags = v->flags;
  c.spec.has_bias = 1;
  return c;
}

/* A split y of column_parallel takes no collective, so there is nothing to hide. */
static uint32_t most(const variant *v, const char *method, uint32_t want) {
  if (strcmp(method, "column_parallel") == 0 && v->y_placement == BS_SPLIT) return 1;
  const int features = strcmp(method, "column_parallel") != 0 && v->y_placement == BS_REPLICATED &&
                       v->flags == 0 && v->B <= v->N;
  const int64_t total = features ? v->N : v->B;
  return (int64_t)want < total ? want : (uint32_t)total;
}

/* axis: what chunks are to be runs of, and then how many there can be; NULL: left to the model. */
static void check_point(bs_context *context, const char *method, const variant *v, uint32_t P,
                        const char *axis) {
  float *x = mf_normals(1, v->B * v->K), *w = mf_normals(2, v->N * v->K), *bias = mf_normals(3, v->N);
  mf_case c = case_of(method, v, P);
  c.x = x, c.w = w, c.bias = bias;
  mf_result plain;
  mf_run_ok(context, &c, &plain);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    mf_result chunked;
    const char *const values[] = {counts[i], axis};
    const int64_t total = axis == NULL ? INT64_MAX : strcmp(axis, "tokens") == 0 ? v->B : v->N;
    c.spec.n_options = axis == NULL ? 1 : 2;
    c.spec.option_keys = keys;
    c.spec.option_values = values;
    mf_run_ok(context, &c, &chunked);
    for (uint32_t r = 0; r < P; r++) {
      const mf_rank *k = &chunked.rank[r];
      ck_assert_mem_eq(k->y_bits, plain.rank[r].y_bits, k->y_bytes);
      const uint32_t asked = (uint32_t)(counts[i][0] - '0');
      const uint32_t able = axis == NULL ? most(v, method, asked) : total < asked ? (uint32_t)total : asked;
      const uint32_t want = P > 1 ? able : 1;
      ck_assert_uint_eq(k->proposal.chunks > 1 ? k->proposal.chunks : 1, want);
      if (want > 1) ck_assert_uint_eq(k->proposal.n_collectives, want);
      if (want > 1 && axis != NULL) ck_assert_uint_eq(k->proposal.chunk_tokens, total == v->B);
      ck_assert_uint_eq(k->regions[BS_REGION_ALLREDUCE], 2 * k->proposal.n_collectives);
    }
    mf_check_counters(&c, &chunked);
    if (v->dtype == BS_F32) mf_check_ownership(&c, &chunked, 0);
    mf_free(&chunked);
  }
  mf_free(&plain);
  free(x);
  free(w);
  free(bias);
}

START_TEST(same_bits_as_without) {
  bs_context *context = mf_context();
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++)
    for (uint32_t P = 1; P <= 4; P += P == 1 ? 1 : 2)
      if (serves(methods[m], &variants[_i])) check_point(context, methods[m], &variants[_i], P, NULL);
  bs_context_close(context);
}
END_TEST

/* Either axis, where nothing is a multiple of anything, of one token and of fewer features than tokens. */
static const variant awkward[] = {
    {BS_F32, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, 0, "cpu", 1, 37, 29},
    {BS_BF16, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_GELU, 0, "cpu", 7, 131, 61},
    {BS_F32, BS_BF16, BS_SPLIT, BS_REPLICATED, BS_ACT_RELU, 0, "cpu", 53, 41, 36},
    {BS_F16, 0, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, 0, "ref", 19, 3, 5},
};
#define N_AWKWARD ((int)(sizeof awkward / sizeof awkward[0]))

START_TEST(same_bits_by_either_axis) {
  bs_context *context = mf_context();
  for (size_t m = 0; m < 3; m++) {
    check_point(context, methods[m], &awkward[_i], 2, "features");
    check_point(context, methods[m], &awkward[_i], 4, "tokens");
  }
  bs_context_close(context);
}
END_TEST

/* With fewer tokens than the layer was built for, down to none for some chunks. */
START_TEST(fewer_rows) {
  bs_context *context = mf_context();
  const variant v = {BS_F32, 0, BS_REPLICATED, BS_REPLICATED, 0, 0, "ref", 80, 24, 12};
  float *x = mf_integers(1, v.B * v.K), *w = mf_integers(2, v.N * v.K), *bias = mf_integers(3, v.N);
  /* Of 40 tokens the last chunk has 8; of 32 it has a whole unit. */
  static const struct {
    int64_t B, rows;
    int count;
  } of[] = {{80, 1, 1}, {80, 24, 1}, {80, 47, 1}, {80, 70, 1}, {40, 32, 0}, {40, 25, 0}, {40, 40, 0}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    variant now = v;
    now.B = of[i].B;
    mf_case c = case_of(methods[_i], &now, 3);
    mf_result result;
    if (_i == 1 || _i == 2) c.world = 2;
    c.x = x, c.w = w, c.bias = bias;
    c.rows = of[i].rows;
    c.spec.n_options = 1;
    c.spec.option_keys = keys;
    c.spec.option_values = &counts[of[i].count];
    mf_run_ok(context, &c, &result);
    mf_check_outputs(&c, &result);
    mf_free(&result);
  }
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
}
END_TEST

static bs_proposal propose(bs_context *context, const char *value, int64_t B, int64_t N, int64_t K,
                           uint32_t reduce, int32_t want) {
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  bs_layer_spec spec = mf_spec(B, N, K, BS_F32);
  spec.reduce_dtype = reduce;
  spec.n_options = 1;
  spec.option_keys = keys;
  spec.option_values = &value;
  ck_assert_msg(bs_method_propose(context, "row_parallel", &spec, 0, 2, &p, &err) == want, "%s", err.message);
  if (want != BS_OK) ck_assert(strncmp(err.id, "BS-METHOD-O", 11) == 0 && err.hint[0] != '\0');
  return p;
}

/* auto divides where by the model it gains: a small layer not, a large one yes. */
START_TEST(chosen_by_the_model) {
  bs_context *context = mf_context();
  ck_assert_uint_le(propose(context, "auto", 8, 64, 64, 0, BS_OK).chunks, 1);
  ck_assert_uint_gt(propose(context, "auto", 512, 16384, 64, 0, BS_OK).chunks, 1);
  ck_assert_uint_le(propose(context, "off", 512, 16384, 64, 0, BS_OK).chunks, 1);
  propose(context, "9", 8, 64, 64, 0, BS_CONFIG);
  propose(context, "1", 8, 64, 64, 0, BS_CONFIG);
  bs_context_close(context);
}
END_TEST

/* A number given, the axis is the model's: features where the weights are most of what is read, tokens where
 * reading them again is hidden and the sums are of short runs; always one that can be divided so often. */
START_TEST(axis_by_the_model) {
  static const struct {
    const char *count;
    int64_t B, N, K;
    uint32_t tokens;
  } of[] = {{"4", 8, 4096, 4096, 0},    {"4", 4096, 64, 64, 1}, {"4", 1024, 1024, 1024, 1},
            {"8", 3, 4096, 1, 0},       {"2", 64, 1, 4096, 1},  {"auto", 512, 16384, 64, 1},
            {"auto", 16, 16384, 128, 0}};
  bs_context *context = mf_context();
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    const bs_proposal p = propose(context, of[i].count, of[i].B, of[i].N, of[i].K, 0, BS_OK);
    ck_assert_uint_ge(p.chunks, 2);
    ck_assert_msg(p.chunk_tokens == of[i].tokens, "row %zu: %s", i, p.text);
    ck_assert_ptr_nonnull(strstr(p.text, of[i].tokens ? "chunks of tokens" : "chunks of features"));
  }
  bs_context_close(context);
}
END_TEST

/* Where only tokens can be divided features are refused, and of overlap=auto nothing is divided. */
START_TEST(axis_refused) {
  static const struct {
    const char *method;
    uint32_t y_placement, flags;
  } of[] = {{"row_parallel", BS_SPLIT, 0},
            {"column_parallel", BS_REPLICATED, 0},
            {"blockshock", BS_REPLICATED, BS_LAYER_BACKWARD}};
  static const char *const axes[][2] = {{"4", "features"}, {"auto", "features"}, {"4", "tokens"}};
  bs_context *context = mf_context();
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
    for (size_t a = 0; a < 3; a++) {
      bs_proposal p = {.struct_size = sizeof p};
      bs_error err = BS_ERROR_INIT;
      bs_layer_spec spec = mf_spec(512, 16384, 64, BS_F32);
      spec.y_placement = of[i].y_placement;
      spec.flags = of[i].flags;
      spec.n_options = 2;
      spec.option_keys = keys;
      spec.option_values = axes[a];
      const int32_t rc = bs_method_propose(context, of[i].method, &spec, 0, 2, &p, &err);
      ck_assert_int_eq(rc, a == 0 ? BS_UNSUPPORTED : BS_OK);
      if (a == 0) ck_assert(strcmp(err.id, "BS-METHOD-OVERLAP") == 0 && strstr(err.hint, "tokens") != NULL);
      if (a > 0) ck_assert_uint_eq(p.chunks > 1 ? p.chunks : 1, a == 1 ? 1 : 4);
    }
  bs_context_close(context);
}
END_TEST

/* Ranks whose shares of W differ divide Y alike: their sums meet. */
START_TEST(ranks_of_uneven_shares_agree) {
  static const double shares[] = {1, 511};
  const bs_mask mask = {
      .struct_size = sizeof mask, .kind = BS_MASK_UNEVEN, .name = "uneven", .shares = shares, .n_shares = 2};
  static const char *const wanted[] = {"auto", "4"};
  bs_context *context = mf_context();
  for (size_t w = 0; w < 2; w++)
    for (int64_t B = 4; B <= 4096; B *= 4) {
      bs_proposal p[2] = {{.struct_size = sizeof p[0]}, {.struct_size = sizeof p[1]}};
      bs_error err = BS_ERROR_INIT;
      bs_layer_spec spec = mf_spec(B, 2048, 4096, BS_F32);
      spec.mask = &mask;
      spec.n_options = 1;
      spec.option_keys = keys;
      spec.option_values = &wanted[w];
      for (uint32_t r = 0; r < 2; r++)
        ck_assert_msg(bs_method_propose(context, "row_parallel", &spec, r, 2, &p[r], &err) == BS_OK, "%s",
                      err.message);
      ck_assert_uint_eq(p[0].chunks, p[1].chunks);
      ck_assert_uint_eq(p[0].chunk_tokens, p[1].chunk_tokens);
    }
  bs_context_close(context);
}
END_TEST

/* overlap=auto divides what sums columns; of halves it divides nothing, and their weights can be read. */
START_TEST(auto_overlap_leaves_halves_whole) {
  static const char *const value[] = {"auto", "features"};
  const int64_t B = 2048, N = 2048, K = 64;
  bs_context *context = mf_context();
  float *x = mf_integers(1, B * K), *w = mf_integers(2, N * K);
  bs_mask mask = mf_mask("random_2of4");
  mf_case c = {
      .method = "blockshock", .backend = "cpu", .world = 2, .forwards = 1, .rows = 1, .x = x, .w = w};
  c.spec = mf_spec(B, N, K, BS_F32);
  c.spec.mask = &mask;
  c.spec.n_options = 2;
  c.spec.option_keys = keys;
  c.spec.option_values = value;
  bs_mask columns = mf_mask("interleave"); /* which would be divided here, in runs of features */
  bs_layer_spec divided = c.spec;
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  divided.mask = &columns;
  ck_assert_int_eq(bs_method_propose(context, "blockshock", &divided, 0, 2, &p, &err), BS_OK);
  ck_assert_uint_gt(p.chunks, 1);
  ck_assert_ptr_nonnull(strstr(p.text, "features"));
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < 2; r++) {
    const mf_rank *k = &result.rank[r];
    for (int64_t i = 0; i < k->row_count * k->k_own; i += 997)
      ck_assert_float_eq(k->weights[i],
                         w[(k->row_begin + i / k->k_own) * K + mf_column(k, i / k->k_own, i % k->k_own)]);
  }
  mf_free(&result);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{same_bits_as_without, N_VARIANTS},
                             {fewer_rows, 4},
                             {same_bits_by_either_axis, N_AWKWARD},
                             {chosen_by_the_model},
                             {axis_by_the_model},
                             {axis_refused},
                             {ranks_of_uneven_shares_agree},
                             {auto_overlap_leaves_halves_whole},
                             {0}};
  return run_tests("method_overlap", tests, (test_setup){.timeout = 60});
}
