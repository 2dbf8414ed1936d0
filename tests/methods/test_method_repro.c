/* SPDX-License-Identifier: MIT
 *
 * test_method_repro.c - the reproducibility classes, bits compared: R0 over runs, R1 over ranks, R2 over what
 * else is in the batch, R3 over 1, 2, 4 and 8 ranks, R4 over methods. Where a class claims something the
 * class below must be seen not to keep it, or the comparison proves nothing. That leaves give the exact
 * product of integers is asked in test_method_exact.
 */
#include <stdlib.h>
#include <string.h>

#include "core/partition/partition.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 6, N = 19, K = 531 };

static const char *const repro_key[] = {"repro", "kernel"};
static const char *const classes[5][2] = {
    {"R0", "auto"}, {"R1", "auto"}, {"R2", "auto"}, {"R3", "auto"}, {"R4", "auto"}};
static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F64};
#define N_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))
static const uint32_t worlds[] = {1, 2, 4, 8};

typedef struct data {
  float *x, *w, *bias;
} data;

static data data_make(int turn) {
  const uint64_t seed = 21 + 10 * (uint64_t)turn;
  return (data){mf_normals(seed, 64 * K), mf_normals(seed + 1, (int64_t)N * K), mf_normals(seed + 2, N)};
}

static void data_free(data *d) {
  free(d->x);
  free(d->w);
  free(d->bias);
}

/* f64 is the portable backend's alone. */
static const char *backend_of(uint32_t dtype, int i) {
  return dtype == BS_F64 || i == 0 ? "ref" : "cpu";
}

static mf_case make(const data *d, const char *method, uint32_t world, int repro, uint32_t dtype) {
  mf_case c = {.method = method, .world = world, .x = d->x, .w = d->w, .bias = d->bias, .backend = "ref"};
  c.spec = mf_spec(B, N, K, dtype);
  c.spec.has_bias = 1;
  c.spec.activation = BS_ACT_GELU;
  c.spec.n_options = 1;
  c.spec.option_keys = repro_key;
  c.spec.option_values = classes[repro];
  return c;
}

/* 1 when both runs' y on every rank is the first one's on rank 0. */
static int same_y(const mf_result *a, const mf_result *b, uint32_t world) {
  int same = 1;
  for (uint32_t r = 0; r < world; r++)
    same &= a->rank[0].y_bytes == b->rank[r].y_bytes &&
            memcmp(a->rank[0].y_bits, b->rank[r].y_bits, a->rank[0].y_bytes) == 0;
  return same;
}

/* The first six have leaves (R3, R4); masked_split and 2:4 halves promise R2 at most. */
static const struct {
  const char *method, *mask;
} splits[] = {
    {"row_parallel", NULL},       {"blockshock", NULL},           {"blockshock", "0110"},
    {"blockshock", "interleave"}, {"blockshock", "contiguous"},   {"column_parallel", NULL},
    {"masked_split", "0110"},     {"masked_split", "interleave"}, {"blockshock", "random_2of4"},
    {"blockshock", "magnitude"},
};
#define N_SPLITS 6
#define N_ALL ((int)(sizeof splits / sizeof splits[0]))

/* Complement and 2:4 halves want pairs of ranks. */
static uint32_t world_of(const bs_mask *mask, const char *method, uint32_t odd, uint32_t even) {
  if (strcmp(method, "blockshock") != 0 && strcmp(method, "masked_split") != 0) return odd;
  return mask == NULL || (mask->kind != BS_MASK_INTERLEAVE && mask->kind != BS_MASK_CONTIGUOUS) ? even : odd;
}

START_TEST(r0_and_r1_over_runs_and_ranks) {
  bs_context *context = mf_context();
  data d = data_make(_i / N_ALL);
  const int split = _i % N_ALL;
  for (int i = 0; i < 2; i++)
    for (size_t t = 0; t < 3; t++) {
      mf_case c = make(&d, splits[split].method, 3, 0, dtypes[t]);
      bs_mask mask;
      c.spec.mask = mf_mask_in(splits[split].mask, &mask);
      c.backend = backend_of(dtypes[t], i);
      c.world = world_of(c.spec.mask, c.method, 3, 4);
      mf_result a, b;
      mf_run_ok(context, &c, &a);
      c.forwards = 3;
      mf_run_ok(context, &c, &b);
      ck_assert_msg(same_y(&a, &b, c.world), "%s on %s: other bits the second time or on another rank",
                    c.method, c.backend);
      ck_assert_uint_eq(a.rank[0].proposal.repro, BS_REPRO_R1); /* without being asked */
      mf_free(&a);
      mf_free(&b);
    }
  data_free(&d);
  bs_context_close(context);
}
END_TEST

/* The bits of token t of a batch of `tokens`, made for `most`. */
static void token_bits(bs_context *context, mf_case c, const data *d, int64_t first, int64_t tokens,
                       int64_t most, int64_t t, uint8_t *out, size_t bytes) {
  mf_result result;
  c.spec.B = most;
  c.rows = tokens;
  c.x = d->x + first * K;
  mf_run_ok(context, &c, &result);
  memcpy(out, result.rank[0].y_bits + (size_t)(t - first) * bytes, bytes);
  mf_free(&result);
}

START_TEST(r2_whatever_the_batch) {
  bs_context *context = mf_context();
  data d = data_make(_i / N_ALL);
  const int split = _i % N_ALL;
  for (int i = 0; i < 2; i++)
    for (size_t t = 0; t < 3; t++)
      for (int repro = 2; repro <= (split < N_SPLITS ? 4 : 2); repro++) {
        mf_case c = make(&d, splits[split].method, worlds[(t + (size_t)repro) % 4], repro, dtypes[t]);
        bs_mask mask;
        c.spec.mask = mf_mask_in(splits[split].mask, &mask);
        if (split >= N_SPLITS) c.world = t == 0 ? 2 : world_of(c.spec.mask, c.method, 3, 4);
        c.backend = backend_of(dtypes[t], i);
        const size_t bytes = N * BS_DTYPE_BYTES(dtypes[t]);
        uint8_t alone[N * 8], batch[N * 8];
        token_bits(context, c, &d, 13, 1, 1, 13, alone, bytes);
        token_bits(context, c, &d, 0, 50, 50, 13, batch, bytes);
        ck_assert_mem_eq(alone, batch, bytes);
        token_bits(context, c, &d, 11, 7, 64, 13, batch, bytes);
        ck_assert_mem_eq(alone, batch, bytes);
      }
  data_free(&d);
  bs_context_close(context);
}
END_TEST

START_TEST(r3_on_any_number_of_ranks) {
  bs_context *context = mf_context();
  data d = data_make(_i / N_SPLITS);
  const int split = _i % N_SPLITS;
  int differs = 0;
  for (int i = 0; i < 2; i++)
    for (size_t t = 0; t < 3; t++)
      for (int repro = 2; repro <= 3; repro++) {
        mf_result first = {0};
        for (size_t p = 0; p < 4; p++) {
          mf_case c = make(&d, splits[split].method, worlds[p], repro, dtypes[t]);
          bs_mask mask;
          c.spec.mask = mf_mask_in(splits[split].mask, &mask);
          c.backend = backend_of(dtypes[t], i);
          c.spec.x_placement = p % 2 && strcmp(c.method, "column_parallel") != 0 ? BS_SPLIT : BS_REPLICATED;
          mf_result result;
          mf_run_ok(context, &c, &result);
          ck_assert_uint_eq(result.rank[0].proposal.repro, (uint32_t)repro);
          if (p == 0) {
            first = result;
            continue;
          }
          const int same = same_y(&first, &result, c.world);
          if (repro == 3)
            ck_assert_msg(same, "%s on %s, dtype %zu: P=%u gives other bits than one rank", c.method,
                          c.backend, t, c.world);
          differs += repro == 2 && !same;
          mf_free(&result);
        }
        mf_free(&first);
      }
  /* R2 alone does not keep it; whole features are summed by one rank in any class. */
  if (strcmp(splits[split].method, "column_parallel") == 0)
    ck_assert_int_eq(differs, 0);
  else
    ck_assert_int_ge(differs, 6);
  data_free(&d);
  bs_context_close(context);
}
END_TEST

/* One rank sums whole features: R3 adds nothing to R2's one product, R4 has leaves in the order of a mask. */
START_TEST(whole_features_have_no_leaves) {
  bs_context *context = mf_context();
  data d = data_make(0);
  for (int i = 0; i < 2; i++)
    for (int repro = 2; repro <= 4; repro++) {
      mf_case c = make(&d, "column_parallel", 4, repro, BS_F32);
      mf_result result;
      c.backend = backend_of(BS_F32, i);
      mf_run_ok(context, &c, &result);
      ck_assert_int_eq(strstr(result.algorithms, "tree_sum") != NULL, repro == 4);
      mf_free(&result);
    }
  data_free(&d);
  bs_context_close(context);
}
END_TEST

/* On tiles of AMX, by their model: a rank's narrow part of the layer is multiplied as the whole is. */
START_TEST(r3_by_tiles) {
  enum { OUTPUTS = 70 };
  static const char *const params[] = {"cpu.isa=amx_model"}, *const methods[] = {"column_parallel",
                                                                                 "row_parallel"};
  bs_context *context = mf_context_with(params, 1);
  float *x = mf_normals(5, B * K), *w = mf_normals(6, (int64_t)OUTPUTS * K);
  mf_result first = {0}, result;
  for (size_t p = 0; p < 4; p++) {
    mf_case c = {.method = methods[_i], .world = worlds[p], .x = x, .w = w, .backend = "cpu"};
    c.spec = mf_spec(B, OUTPUTS, K, BS_BF16);
    c.spec.n_options = 1;
    c.spec.option_keys = repro_key;
    c.spec.option_values = classes[3];
    mf_run_ok(context, &c, &result);
    ck_assert_ptr_nonnull(strstr(result.algorithms, "matmul@cpu/amx"));
    if (p > 0) {
      ck_assert_msg(same_y(&first, &result, c.world), "P=%u gives other bits than one rank", c.world);
      mf_free(&result);
    } else {
      first = result;
    }
  }
  mf_free(&first);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

/* Every method over the columns in the order of one mask; `masks` are orders. */
START_TEST(r4_for_every_method) {
  static const char *const masks[] = {"contiguous", "1100", "1010", "interleave"};
  static const struct {
    const char *method, *kernel;
    uint32_t world, y_split;
  } peers[] = {
      {"dense", NULL, 1, 0},           {"row_parallel", NULL, 1, 0},    {"row_parallel", NULL, 2, 0},
      {"row_parallel", NULL, 4, 0},    {"row_parallel", NULL, 8, 0},    {"column_parallel", NULL, 1, 0},
      {"column_parallel", NULL, 2, 0}, {"column_parallel", NULL, 3, 0}, {"column_parallel", NULL, 4, 0},
      {"column_parallel", NULL, 8, 0}, {"blockshock", "auto", 1, 0},    {"blockshock", "auto", 2, 0},
      {"blockshock", "auto", 4, 0},    {"blockshock", "auto", 8, 0},    {"blockshock", "gather", 2, 0},
      {"blockshock", "auto", 2, 1},    {"column_parallel", NULL, 2, 1}, {"row_parallel", NULL, 4, 1}};
  static const char *const gather[] = {"R4", "gather"};
  bs_context *context = mf_context();
  data d = data_make(_i / N_DTYPES);
  const uint32_t dtype = dtypes[_i % N_DTYPES];
  const size_t size = BS_DTYPE_BYTES(dtype);
  mf_result of_mask[4];
  for (size_t m = 0; m < 4; m++) {
    const bs_mask mask = mf_mask(masks[m]);
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
      mf_case c = make(&d, peers[i].method, peers[i].world, 4, dtype);
      c.spec.mask = &mask;
      c.spec.y_placement = peers[i].y_split ? BS_SPLIT : BS_REPLICATED;
      c.backend = dtype == BS_F64 ? "ref" : "cpu";
      if (peers[i].kernel != NULL) c.spec.n_options = 2;
      if (peers[i].kernel != NULL && strcmp(peers[i].kernel, "gather") == 0) c.spec.option_values = gather;
      mf_result result;
      mf_run_ok(context, &c, &result);
      if (i == 0) {
        of_mask[m] = result;
        continue;
      }
      for (uint32_t r = 0; r < c.world; r++) {
        int64_t begin = 0, count = N;
        if (peers[i].y_split) bs_share(N, r, c.world, &begin, &count);
        ck_assert_int_eq(result.rank[r].y_cols, count);
        for (int64_t b = 0; b < B; b++)
          ck_assert_msg(memcmp(of_mask[m].rank[0].y_bits + (size_t)(b * N + begin) * size,
                               result.rank[r].y_bits + (size_t)(b * count) * size, (size_t)count * size) == 0,
                        "%s on %u ranks, mask %s: other bits than dense", c.method, c.world, masks[m]);
      }
      mf_free(&result);
    }
  }
  /* Another order of columns is another sum: the comparison above could fail. */
  for (size_t m = 1; dtype != BS_BF16 && m < 4; m++) ck_assert(!same_y(&of_mask[0], &of_mask[m], 1));
  for (size_t m = 0; m < 4; m++) mf_free(&of_mask[m]);
  data_free(&d);
  bs_context_close(context);
}
END_TEST

/* oneDNN chooses its blocks by the number of tokens: it may serve R1, never R2. */
START_TEST(r2_is_not_given_to_who_cannot_keep_it) {
  static const char *const params[] = {"cpu.matmul=dnnl"};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY};
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  options.plugin_dirs = &dir;
  options.n_plugin_dirs = dir != NULL;
  options.params = params;
  options.n_params = 1;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  data d = data_make(0);
  mf_result result;
  mf_case c = make(&d, "row_parallel", 2, 1, BS_F32);
  c.backend = "cpu";
  if (mf_run(context, &c, &result, &err) == BS_OK) { /* there is a oneDNN */
    mf_free(&result);
    for (int repro = 2; repro <= 3; repro++) {
      c.spec.option_values = classes[repro];
      ck_assert_int_eq(mf_run(context, &c, &result, &err), BS_UNSUPPORTED);
      ck_assert_msg(strstr(err.message, "number of tokens") != NULL, "%s", err.message);
      mf_free(&result);
    }
  }
  data_free(&d);
  bs_context_close(context);
}
END_TEST

static void refused(bs_context *context, const mf_case *c, const char *why) {
  bs_error err = BS_ERROR_INIT;
  mf_result result;
  ck_assert_int_eq(mf_run(context, c, &result, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-REPRO");
  ck_assert_msg(strstr(err.message, why) != NULL, "%s", err.message);
  ck_assert(err.hint[0] != '\0');
  mf_free(&result);
}

START_TEST(what_cannot_be_promised) {
  static const double shares[2] = {1, 2};
  bs_context *context = mf_context();
  data d = data_make(0);
  mf_case c = make(&d, "row_parallel", 3, 3, BS_F32);
  refused(context, &c, "1, 2, 4 and 8 ranks");
  c = make(&d, "masked_split", 2, 4, BS_F32);
  refused(context, &c, "multiplies the zeros");
  c = make(&d, "row_parallel", 2, 3, BS_F32);
  bs_mask mask = mf_mask("uneven");
  mask.n_shares = 2;
  mask.shares = shares;
  c.spec.mask = &mask;
  refused(context, &c, "one number of ranks");
  c = make(&d, "blockshock", 2, 4, BS_F32);
  mask = mf_mask("magnitude");
  c.spec.mask = &mask;
  refused(context, &c, "other columns in other rows");
  c = make(&d, "blockshock", 2, 3, BS_BF16);
  c.spec.reduce_dtype = BS_BF16;
  refused(context, &c, "sums in f32");
  c = make(&d, "row_parallel", 2, 3, BS_F32);
  c.spec.activation = BS_ACT_NONE;
  c.spec.flags = BS_LAYER_BACKWARD;
  refused(context, &c, "bits of definition 1"); /* of ref */
  c.spec.option_values = classes[4];
  refused(context, &c, "forward pass alone");
  c = make(&d, "column_parallel", 3, 3, BS_F32);
  c.spec.flags = BS_LAYER_BACKWARD;
  refused(context, &c, "1, 2, 4 and 8 ranks");
  c.world = 2;
  c.spec.y_placement = BS_SPLIT;
  refused(context, &c, "even shares");
  c = make(&d, "row_parallel", 2, 2, BS_F32);
  c.spec.activation = BS_ACT_NONE;
  c.spec.y_placement = BS_PARTIAL;
  refused(context, &c, "partial sum");
  c = make(&d, "row_parallel", 2, 1, BS_F32);
  c.spec.activation = BS_ACT_NONE;
  c.spec.y_placement = BS_PARTIAL;
  mf_result result;
  mf_run_ok(context, &c, &result);
  ck_assert_uint_eq(result.rank[0].proposal.repro, BS_REPRO_R0);
  mf_free(&result);
  data_free(&d);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const int big = (int)mf_big(); /* so many times other data */
  const test_case tests[] = {{r0_and_r1_over_runs_and_ranks, big * N_ALL},
                             {r2_whatever_the_batch, big * N_ALL},
                             {r3_on_any_number_of_ranks, big * N_SPLITS},
                             {whole_features_have_no_leaves},
                             {r3_by_tiles, 2},
                             {r4_for_every_method, big * N_DTYPES},
                             {r2_is_not_given_to_who_cannot_keep_it},
                             {what_cannot_be_promised},
                             {0}};
  return run_tests("method_repro", tests, (test_setup){.timeout = 60});
}
