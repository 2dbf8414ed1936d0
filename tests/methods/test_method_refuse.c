/* SPDX-License-Identifier: MIT
 *
 * test_method_refuse.c - what the methods cannot do, each with its code, id and hint, from propose and from
 * build alike; and that their neighbours (one rank, an uneven mask) do work.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

typedef struct refusal {
  const char *method, *mask;
  uint32_t world;
  int32_t code;
  const char *id, *hint; /* hint must contain this */
  const char *key, *value;
  uint32_t x_placement, y_placement, activation;
} refusal;

static const refusal refusals[] = {
    {"dense", NULL, 2, BS_UNSUPPORTED, "BS-METHOD-WORLD", "row_parallel", NULL, NULL, 0, 0, 0},
    {"blockshock", "1100", 3, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave", NULL, NULL, 0, 0, 0},
    {"masked_split", NULL, 5, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave", NULL, NULL, 0, 0, 0},
    {"blockshock", "random_2of4", 3, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave", NULL, NULL, 0, 0, 0},
    {"blockshock", "magnitude", 5, BS_UNSUPPORTED, "BS-MASK-WORLD", "half=0", NULL, NULL, 0, 0, 0},
    {"blockshock", "1100", 3, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave", "kernel", "sparse24", 0, 0, 0},
    {"blockshock", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-KERNEL", "sparse24", "kernel", "gather", 0, 0,
     0},
    {"blockshock", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-HALVES", "the same columns", "overlap", "2", 0,
     0, 0},
    {"blockshock", "random_2of4", 2, BS_UNSUPPORTED, "BS-METHOD-REPRO", "the same columns", "repro", "R3", 0,
     0, 0},
    {"blockshock", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-HALVES", "the same columns", NULL, NULL, 0,
     BS_SPLIT_TOKENS, 0},
    {"blockshock", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-HALVES", "the same columns", NULL, NULL,
     BS_PARTIAL, 0, 0},
    {"blockshock", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "replicated", NULL, NULL, BS_SPLIT,
     0, 0},
    {"blockshock", "magnitude", 4, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "slices=row", "slices", "column", 0,
     BS_PARTIAL, 0},
    {"blockshock", "magnitude", 4, BS_UNSUPPORTED, "BS-METHOD-ACTIVATION", "after the reduction", NULL, NULL,
     0, BS_PARTIAL, BS_ACT_RELU},
    {"blockshock", "interleave", 2, BS_UNSUPPORTED, "BS-METHOD-KERNEL", "complement", "kernel", "sparse24", 0,
     0, 0},
    {"blockshock", "contiguous", 2, BS_UNSUPPORTED, "BS-METHOD-KERNEL", "complement", "half", "0", 0, 0, 0},
    {"blockshock", "1100", 2, BS_UNSUPPORTED, "BS-METHOD-SLICES", "slices=row", "slices", "column", 0, 0, 0},
    {"blockshock", "magnitude", 2, BS_CONFIG, "BS-METHOD-OPTION", "0,1", "half", "2", 0, 0, 0},
    {"masked_split", "transposable", 3, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave", NULL, NULL, 0, 0, 0},
    {"masked_split", "magnitude", 2, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "replicated", NULL, NULL,
     BS_SPLIT, 0, 0},
    {"masked_split", "random_2of4", 2, BS_UNSUPPORTED, "BS-METHOD-REPRO", "the same columns", "repro", "R3",
     0, 0, 0},
    {"masked_split", "random_2of4", 2, BS_UNSUPPORTED, "BS-METHOD-MIXED", "blockshock", "mixed", "0.25", 0, 0,
     0},
    {"row_parallel", "1100", 2, BS_UNSUPPORTED, "BS-METHOD-MASK", "blockshock", NULL, NULL, 0, 0, 0},
    {"row_parallel", "interleave", 2, BS_UNSUPPORTED, "BS-METHOD-MASK", "blockshock", NULL, NULL, 0, 0, 0},
    {"row_parallel", "random_2of4", 2, BS_UNSUPPORTED, "BS-METHOD-MASK", "blockshock", NULL, NULL, 0, 0, 0},
    {"blockshock", NULL, 2, BS_CONFIG, "BS-METHOD-OPTION", "auto,gather,sparse24", "kernel", "gath", 0, 0, 0},
    {"blockshock", NULL, 2, BS_CONFIG, "BS-METHOD-OPTION", "kernel", "kernels", "auto", 0, 0, 0},
    {"dense", NULL, 1, BS_CONFIG, "BS-METHOD-OPTION", "its options: repro", "kernel", "auto", 0, 0, 0},
    {"row_parallel", NULL, 2, BS_CONFIG, "BS-METHOD-OPTION", "its options: overlap, overlap_axis, repro",
     "kernel", "auto", 0, 0, 0},
    {"column_parallel", NULL, 2, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "row_parallel", NULL, NULL, BS_SPLIT,
     0, 0},
    {"column_parallel", NULL, 2, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "replicated", NULL, NULL, 0,
     BS_PARTIAL, 0},
    {"column_parallel", NULL, 2, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "scatter tokens", NULL, NULL, 0,
     BS_SPLIT_TOKENS, 0},
    {"row_parallel", NULL, 2, BS_CONFIG, "BS-METHOD-PLACEMENT", "", NULL, NULL, 4, 0, 0},
    {"blockshock", NULL, 2, BS_UNSUPPORTED, "BS-METHOD-ACTIVATION", "after the reduction", NULL, NULL, 0,
     BS_PARTIAL, BS_ACT_GELU},
    {"row_parallel", NULL, 2, BS_CONFIG, "BS-METHOD-ACTIVATION", "", NULL, NULL, 0, 0, 9},
};
#define N_REFUSALS ((int)(sizeof refusals / sizeof refusals[0]))

static void expect(const refusal *f, const bs_error *err, int32_t rc, const char *where) {
  ck_assert_msg(rc == f->code, "%s of %s: code %d, not %d (%s)", where, f->method, rc, f->code, err->message);
  ck_assert_int_eq(err->code, f->code);
  ck_assert_str_eq(err->id, f->id);
  ck_assert_msg(strstr(err->hint, f->hint) != NULL, "%s of %s: hint '%s' lacks '%s'", where, f->method,
                err->hint, f->hint);
  ck_assert_int_eq(bs_status_exit_code(rc), 3);
}

START_TEST(refused_by_propose_and_by_build) {
  const refusal *f = &refusals[_i];
  bs_context *context = mf_context();
  float *x = mf_integers(1, 4 * 8), *w = mf_integers(2, 4 * 8);
  mf_case c = {.method = f->method, .world = f->world, .x = x, .w = w};
  bs_mask mask;
  c.spec = mf_spec(4, 4, 8, BS_F32);
  c.spec.x_placement = f->x_placement;
  c.spec.y_placement = f->y_placement;
  c.spec.activation = f->activation;
  c.spec.mask = mf_mask_in(f->mask, &mask);
  if (f->key != NULL) {
    c.spec.n_options = 1;
    c.spec.option_keys = &f->key;
    c.spec.option_values = &f->value;
  }
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_method(context, f->method, &c.table, &c.table_state, &err), BS_OK);
  bs_proposal proposal = {.struct_size = sizeof proposal};
  expect(f, &err, c.table->propose(c.table_state, &c.spec, 0, f->world, &proposal, &err), "propose");
  mf_result result;
  bs_error built = BS_ERROR_INIT;
  expect(f, &built, mf_run(context, &c, &result, &built), "build");
  for (int i = 0; i < 32; i++) ck_assert_uint_eq(result.read_by[i], 0); /* refused before a weight was read */
  mf_free(&result);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

/* The embedding API stops these before the method is asked. */
START_TEST(refused_by_the_embedding_api) {
  bs_context *context = mf_context();
  bs_layer_spec spec = mf_spec(4, 4, 8, BS_F32);
  bs_proposal proposal = {.struct_size = sizeof proposal};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_method_propose(context, "dense_single", &spec, 0, 2, &proposal, &err), BS_UNSUPPORTED);
  ck_assert(err.hint[0] != '\0');
  spec.flags = BS_LAYER_BACKWARD;
  spec.activation = BS_ACT_GELU;
  ck_assert_int_eq(bs_method_propose(context, "dense_single", &spec, 0, 1, &proposal, &err), BS_OK);
  spec.flags = 64; /* of no meaning */
  ck_assert_int_eq(bs_method_propose(context, "dense_single", &spec, 0, 1, &proposal, &err), BS_CONFIG);
  spec = mf_spec(4, 4, 8, BS_I32);
  spec.flags = BS_LAYER_BACKWARD; /* integers have no gradient */
  ck_assert_int_eq(bs_method_propose(context, "dense_single", &spec, 0, 1, &proposal, &err), BS_UNSUPPORTED);
  bs_context_close(context);
}
END_TEST

static int32_t propose_sizes(bs_context *context, int64_t B, int64_t N, int64_t K, bs_error *err) {
  const bs_method *m = NULL;
  void *state = NULL;
  ck_assert_int_eq(bs_find_method(context, "blockshock", &m, &state, err), BS_OK);
  bs_layer_spec spec = mf_spec(B, N, K, BS_F32);
  bs_proposal proposal = {.struct_size = sizeof proposal};
  return m->propose(state, &spec, 0, 2, &proposal, err);
}

START_TEST(hostile_sizes) {
  bs_context *context = mf_context();
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(propose_sizes(context, 0, 4, 8, &err), BS_CONFIG);
  ck_assert_int_eq(propose_sizes(context, 4, -1, 8, &err), BS_CONFIG);
  ck_assert_int_eq(propose_sizes(context, 4, 4, -1, &err), BS_CONFIG);
  ck_assert_int_eq(propose_sizes(context, 4, 4, INT64_C(1) << 40, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-METHOD-SHAPE");
  ck_assert_int_eq(propose_sizes(context, INT64_C(1) << 40, INT64_C(1) << 40, 8, &err), BS_OVERFLOW);
  ck_assert_int_eq(propose_sizes(context, INT64_MAX, INT64_MAX, 8, &err), BS_OVERFLOW);
  ck_assert_int_eq(propose_sizes(context, INT64_C(1) << 30, INT64_C(1) << 30, 1 << 20, &err), BS_OVERFLOW);
  ck_assert_str_eq(err.id, "BS-METHOD-SHAPE");
  bs_context_close(context);
}
END_TEST

/* Forward with tensors that are not the layer's. */
typedef struct wrong_forward {
  const bs_source *w;
  uint32_t failures;
} wrong_forward;

static int32_t forward_wrong(bs_rank *rank, void *arg, bs_error *err) {
  wrong_forward *f = arg;
  const bs_rank_api *api = bs_rank_get_api();
  bs_layer_spec spec = mf_spec(2, 4, 8, BS_F32);
  bs_layer *layer = NULL;
  int32_t rc = bs_layer_build(rank, "blockshock", &spec, f->w, NULL, &layer, err);
  if (rc != BS_OK) return rc;
  bs_tensor x, y;
  bs_tensor_desc dx = {
      .struct_size = sizeof dx, .dtype = BS_F32, .rank = 2, .dims = {3, 8}, .strides = {8, 1}};
  bs_tensor_desc dy = {
      .struct_size = sizeof dy, .dtype = BS_F32, .rank = 2, .dims = {3, 4}, .strides = {4, 1}};
  if ((rc = api->tensor_alloc(rank, &dx, BS_LIFE_ACTIVATION, &x, err)) != BS_OK) return rc;
  if ((rc = api->tensor_alloc(rank, &dy, BS_LIFE_ACTIVATION, &y, err)) != BS_OK) return rc;
  for (int i = 0; i < 6; i++) {
    bs_tensor bx = x, by = y;
    bx.dims[0] = by.dims[0] = 2;
    if (i == 0) bx.dims[0] = by.dims[0] = 3; /* more rows than the layer was built for */
    if (i == 1) bx.dims[1] = 7;
    if (i == 2) by.dims[1] = 5;
    if (i == 3) bx.dtype = BS_BF16;
    if (i == 4) by.dims[0] = 1; /* another number of rows than x */
    if (i == 5) bx.strides[0] = 9;
    bs_error why = BS_ERROR_INIT;
    f->failures += bs_layer_forward(layer, &bx, &by, NULL, &why) == BS_INVALID_ARGUMENT &&
                   strcmp(why.id, "BS-METHOD-FORWARD") == 0;
  }
  /* And a layer that was built for forward alone has no backward pass; it says how to have one. */
  bs_error why = BS_ERROR_INIT;
  ck_assert_int_eq(bs_layer_backward(layer, &x, &y, &x, NULL, NULL, NULL, &why), BS_UNSUPPORTED);
  ck_assert_str_eq(why.id, "BS-METHOD-BACKWARD");
  ck_assert_ptr_nonnull(strstr(why.hint, "BS_LAYER_BACKWARD"));
  api->tensor_free(rank, &y);
  api->tensor_free(rank, &x);
  bs_layer_free(layer);
  return BS_OK;
}

START_TEST(forward_checks_its_tensors) {
  bs_context *context = mf_context();
  float *data = mf_integers(3, 4 * 8);
  bs_source w = {.struct_size = sizeof w};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_source_from_memory(data, BS_F32, 4, 8, 8, &w, &err), BS_OK);
  wrong_forward f = {.w = &w};
  bs_world_options options = {
      .struct_size = sizeof options, .world_size = 1, .backend = "ref", .threads_per_rank = 1};
  bs_world *world = NULL;
  ck_assert_int_eq(bs_world_create(context, &options, &world, &err), BS_OK);
  ck_assert_msg(bs_world_run(world, forward_wrong, &f, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(f.failures, 6);
  bs_world_destroy(world);
  bs_source_release(&w);
  free(data);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{refused_by_propose_and_by_build, N_REFUSALS},
                             {refused_by_the_embedding_api},
                             {hostile_sizes},
                             {forward_checks_its_tensors},
                             {0}};
  return run_tests("method_refuse", tests, (test_setup){.timeout = 120});
}
