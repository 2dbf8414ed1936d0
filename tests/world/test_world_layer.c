/* SPDX-License-Identifier: MIT
 * bs_layer_* and bs_method_propose around a method of the fixture plugin: what is refused before the method
 * is asked, the timers they fill, what passes through. */
#include "tests/run_tests.h"
#include "world_help.h"

static bs_layer_spec spec_of(int64_t n) {
  bs_layer_spec s = {.struct_size = sizeof s,
                     .B = 2,
                     .N = n,
                     .K = n,
                     .x_dtype = BS_F32,
                     .w_dtype = BS_F32,
                     .y_dtype = BS_F32};
  return s;
}
static uint64_t samples(bs_rank *rank, uint32_t region) {
  bs_region_stats s;
  ck_assert_int_eq(bs_rank_region_stats(rank, region, &s, NULL), BS_OK);
  return s.count;
}

static int32_t layer_main(bs_rank *rank, void *arg, bs_error *e) {
  float w[9] = {0}, b[3] = {0}, x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
  bs_source weights, bias;
  bs_layer *layer = NULL;
  bs_ownership owns;
  const bs_rank_api *api = bs_rank_get_api();
  (void)arg;
  ck_assert_int_eq(bs_source_from_memory(w, BS_F32, 3, 3, 3, &weights, e), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(b, BS_F32, 1, 3, 3, &bias, e), BS_OK);
  bs_layer_spec s = spec_of(3);
  ck_assert_int_eq(bs_layer_build(rank, "testcopi", &s, &weights, NULL, &layer, e), BS_NOT_FOUND);
  s.B = 0;
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e), BS_CONFIG);
  s = spec_of(4);
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e), BS_INVALID_ARGUMENT);
  s = spec_of(3);
  s.x_dtype = 1;
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e), BS_CONFIG);
  s = spec_of(3);
  s.w_dtype = BS_I8;
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e), BS_UNSUPPORTED);
  ck_assert_str_eq(e->message, "x f32, w i8, y f32: all float or all integer");
  s = spec_of(3);
  s.has_bias = 1;
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e), BS_INVALID_ARGUMENT);
  ck_assert_uint_eq(samples(rank, BS_REGION_BUILD), 0);
  ck_assert_int_eq(bs_layer_build(rank, "testcopy", &s, &weights, &bias, &layer, e), BS_OK);
  ck_assert_uint_eq(samples(rank, BS_REGION_BUILD), 1);
  bs_tensor tx = view_of(x, BS_F32, 2, 3, 3);
  bs_tensor ty = tx;
  ty.data = y;
  ck_assert_int_eq(bs_layer_forward(layer, &tx, &ty, NULL, e), BS_OK);
  ck_assert_mem_eq(x, y, sizeof x);
  ck_assert_uint_eq(samples(rank, BS_REGION_FORWARD), 1);
  api->region_begin(rank, BS_REGION_FORWARD); /* the caller times two calls as one */
  ck_assert_int_eq(bs_layer_forward(layer, &tx, &ty, NULL, e), BS_OK);
  ck_assert_int_eq(bs_layer_forward(layer, &tx, &ty, NULL, e), BS_OK);
  api->region_end(rank, BS_REGION_FORWARD);
  ck_assert_uint_eq(samples(rank, BS_REGION_FORWARD), 2);
  ck_assert_int_eq(bs_layer_owns(layer, &owns, e), BS_OK);
  ck_assert_int_eq(owns.row_count, 3);
  ck_assert_int_eq(bs_layer_read_weights(layer, 0, &ty, e), BS_UNSUPPORTED);
  bs_layer_free(layer);
  bs_source_release(&bias);
  bs_source_release(&weights);
  return BS_OK;
}
START_TEST(test_layer) {
  run_once(2, "ref", layer_main, NULL, BS_OK);
}
END_TEST

static const char *const owns_says[] = {"build returned OK and no layer",
                                        "",
                                        "3 columns from 1 on, of 3",
                                        "4 columns of 3",
                                        "-1 columns of 3",
                                        "1 columns from 9223372036854775807 on, of 3",
                                        "column 3 at place 1 of its list",
                                        "column 1 at place 1 of its list",
                                        "2 columns without a list of 3",
                                        "4 rows from 0 on, of 3",
                                        "3 rows from 1 on, of 3",
                                        "3 rows from -1 on, of 3",
                                        "positions of 3 x 3 weights, without `read`,"};

/* What a method says that it owns is believed only where it lies within W. */
static int32_t owns_main(bs_rank *rank, void *arg, bs_error *e) {
  static const char *const keys[] = {"owns"};
  char text[8];
  const char *const values[] = {text};
  float w[9] = {0};
  bs_source weights;
  bs_ownership owns;
  (void)arg;
  ck_assert_int_eq(bs_source_from_memory(w, BS_F32, 3, 3, 3, &weights, e), BS_OK);
  for (int i = 0; i < (int)(sizeof owns_says / sizeof owns_says[0]); ++i) {
    bs_layer *layer = NULL;
    bs_layer_spec s = spec_of(3);
    snprintf(text, sizeof text, "%d", i - 1);
    s.n_options = 1;
    s.option_keys = keys;
    s.option_values = values;
    int32_t rc = bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e);
    if (rc == BS_OK) rc = bs_layer_owns(layer, &owns, e);
    ck_assert_msg(rc == (i == 1 ? BS_OK : BS_PLUGIN), "%d: %s", i, e->message);
    if (rc != BS_OK) ck_assert_str_eq(e->id, i == 0 ? "BS-LAYER-NULL" : "BS-LAYER-OWNS");
    if (rc != BS_OK) ck_assert_msg(strstr(e->message, owns_says[i]) != NULL, "%s", e->message);
    if (rc != BS_OK) ck_assert_ptr_nonnull(strstr(e->message, "rank 0"));
    bs_layer_free(layer);
    e->code = BS_OK;
  }
  bs_source_release(&weights);
  return BS_OK;
}
START_TEST(test_owns) {
  run_once(1, "ref", owns_main, NULL, BS_OK);
}
END_TEST

static int32_t crowd_main(bs_rank *rank, void *arg, bs_error *e) {
  float w[9] = {0};
  bs_source weights;
  bs_layer *layer = NULL;
  bs_layer_spec s = spec_of(3);
  (void)arg;
  ck_assert_int_eq(bs_source_from_memory(w, BS_F32, 3, 3, 3, &weights, e), BS_OK);
  int32_t rc = bs_layer_build(rank, "testcopy", &s, &weights, NULL, &layer, e);
  bs_source_release(&weights);
  return rc;
}
START_TEST(test_crowd) {
  run_once(3, "ref", crowd_main, NULL, BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-LAYER-WORLD");
  ck_assert_ptr_nonnull(strstr(err.message, "3 ranks"));
}
END_TEST

START_TEST(test_propose) {
  bs_proposal p;
  bs_layer_spec s = spec_of(3);
  ck_assert_int_eq(bs_method_propose(context, "testcopy", &s, 1, 2, &p, &err), BS_OK);
  ck_assert_uint_eq(p.flops, 4);
  ck_assert_uint_eq(p.struct_size, sizeof p);
  ck_assert_int_eq(bs_method_propose(context, "testcopy", &s, 2, 2, &p, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_method_propose(context, "testcopy", &s, 0, 3, &p, &err), BS_UNSUPPORTED);
  ck_assert_int_eq(bs_method_propose(context, "nosuchthing", &s, 0, 1, &p, &err), BS_NOT_FOUND);
}
END_TEST

/* Eight are told; more, which every reader of the lists would follow out of them, are the method's error. */
START_TEST(test_propose_counts) {
  static const struct {
    const char *key, *value;
    int32_t rc;
  } cases[] = {{"forward", "8", BS_OK},
               {"backward", "8", BS_OK},
               {"forward", "9", BS_PLUGIN},
               {"backward", "9", BS_PLUGIN},
               {"forward", "4294967295", BS_PLUGIN},
               {"backward", "20000", BS_PLUGIN}};
  bs_proposal p;
  bs_layer_spec s = spec_of(3);
  s.n_options = 1;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    s.option_keys = &cases[i].key;
    s.option_values = &cases[i].value;
    ck_assert_int_eq(bs_method_propose(context, "testcopy", &s, 0, 1, &p, &err), cases[i].rc);
    ck_assert_uint_le(p.n_collectives, BS_MAX_PROPOSED);
    ck_assert_uint_le(p.n_backward, BS_MAX_PROPOSED);
    if (cases[i].rc == BS_OK) continue;
    ck_assert_str_eq(err.id, "BS-LAYER-PROPOSAL");
    ck_assert_ptr_nonnull(strstr(err.message, "method testcopy proposes"));
    ck_assert_ptr_nonnull(strstr(err.message, cases[i].value));
  }
  static const char *const key = "text", *const value = "160"; /* a text without an end */
  s.option_keys = &key;
  s.option_values = &value;
  ck_assert_int_eq(bs_method_propose(context, "testcopy", &s, 0, 1, &p, &err), BS_OK);
  ck_assert_uint_eq(strlen(p.text), sizeof p.text - 1);
}
END_TEST

int main(void) {
  Suite *s = suite_create("world layer");
  TCase *c = tcase_create("layer");
  tcase_add_unchecked_fixture(c, open_context, close_context);
  tcase_add_test(c, test_layer);
  tcase_add_test(c, test_owns);
  tcase_add_test(c, test_crowd);
  tcase_add_test(c, test_propose);
  tcase_add_test(c, test_propose_counts);
  suite_add_tcase(s, c);
  return run_suite(s);
}
