/* SPDX-License-Identifier: MIT
 * test_op_ask.c - every op of the schema table has its name in names.h and roles of its arguments, by which a
 * query of any sizes, dtypes and options is made that bs_op_check lets pass. */
#include "core/op/ask.h"

#include <string.h>

#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "tests/run_tests.h"

static bs_partition partition = {
    .struct_size = sizeof partition, .kind = BS_PARTITION_CONTIGUOUS, .count = 12, .total = 24};

static bs_op_sizes sizes_of(uint32_t dtype, int64_t B, int64_t N, int64_t K) {
  return (bs_op_sizes){.B = B, .N = N, .K = K, .dtype = dtype, .out_dtype = dtype, .weight_dtype = dtype};
}

/* The op's query, which must pass. */
static void must_pass(const char *op, const bs_op_sizes *s) {
  bs_op_question q;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_op_ask(op, s, &q, &err) == BS_OK, "%s: %s", op, err.message);
  ck_assert_msg(bs_op_check(&q.query, &err) == BS_OK, "%s: %s", op, err.message);
}

static const bs_kept *kept_of(int64_t N, int64_t K) {
  bs_error err = BS_ERROR_INIT;
  const bs_kept *kept = NULL;
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("random_2of4", NULL, NULL, &mask, &err), BS_OK);
  ck_assert_msg(bs_kept_make(&mask, N, K, NULL, 0, &kept, &err) == BS_OK, "%s", err.message);
  return kept;
}

START_TEST(a_name_and_roles_for_each_op) {
  const bs_op_schema *schema = bs_op_schema_at((uint32_t)_i);
  ck_assert_uint_eq(bs_op_schema_count(), BS_CORE_OPS);
  ck_assert_str_eq(bs_name_of(BS_NAMES_OP, (uint32_t)_i), schema->name);
  ck_assert_ptr_eq(bs_op_schema_find(schema->name), schema);
  ck_assert_msg(schema->roles != NULL, "%s has no roles", schema->name);
}
END_TEST

START_TEST(sizes_make_a_query_that_passes) {
  const char *op = bs_op_schema_at((uint32_t)_i)->name;
  static const uint32_t dtypes[] = {BS_F32, BS_F64, BS_BF16, BS_F16};
  static const int64_t dims[][3] = {{4, 16, 24}, {1, 8, 24}, {64, 4096, 24}, {7, 130, 24}};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
      bs_op_sizes s = sizes_of(dtypes[d], dims[i][0], dims[i][1], dims[i][2]);
      const bs_kept *kept = bs_op_needs_kept(op) ? kept_of(s.N, s.K) : NULL;
      s.kept = kept;
      if (bs_op_needs_partition(op)) s.partition = &partition;
      must_pass(op, &s);
      s.bias = s.residual = 1;
      must_pass(op, &s);
      s.partition = &partition;
      must_pass(op, &s);
      s.flags = BS_QUERY_X_FULL | BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE;
      must_pass(op, &s);
      if (kept != NULL) bs_kept_free(kept);
    }
}
END_TEST

/* An op takes a layer's activation where its query with one passes. */
START_TEST(activations_of_a_layer) {
  const char *op = bs_op_schema_at((uint32_t)_i)->name;
  bs_op_question q;
  bs_error err = BS_ERROR_INIT;
  bs_op_sizes s = sizes_of(BS_F32, 4, 16, 24);
  const bs_kept *kept = bs_op_needs_kept(op) ? kept_of(s.N, s.K) : NULL;
  s.kept = kept;
  s.partition = &partition;
  for (s.activation = BS_ACT_RELU; s.activation <= BS_ACT_GELU_TANH; s.activation++) {
    const int of_gradient =
        strcmp(op, "activate_dx") == 0 && s.activation == BS_ACT_GELU_TANH; /* there is none */
    ck_assert_msg(bs_op_ask(op, &s, &q, &err) == BS_OK, "%s: %s", op, err.message);
    ck_assert_msg((bs_op_check(&q.query, &err) == BS_OK) == !of_gradient, "%s, activation %u: %s", op,
                  s.activation, err.message);
    const int shown = q.query.activation == s.activation || (q.query.expr != NULL && q.expr.n_steps == 1);
    ck_assert_int_eq(shown, bs_op_takes(op, "activation"));
  }
  if (kept != NULL) bs_kept_free(kept);
  ck_assert(bs_op_takes("matmul", "bias") && bs_op_takes("normalize", "residual") &&
            !bs_op_takes("convert", "bias"));
  ck_assert(!bs_op_takes("nosuch", "bias") && !bs_op_takes("attention", "residual"));
}
END_TEST

START_TEST(what_is_missing_is_refused) {
  bs_op_question q;
  bs_error err = BS_ERROR_INIT;
  const bs_op_sizes s = sizes_of(BS_F32, 4, 16, 24);
  ck_assert_int_eq(bs_op_ask("matmull", &s, &q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-NAME");
  ck_assert_int_eq(bs_op_ask("gather_columns", &s, &q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-PARTITION");
  ck_assert_int_eq(bs_op_ask("expand24", &s, &q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-KEPT");
}
END_TEST

int main(void) {
  const test_case rows[] = {{a_name_and_roles_for_each_op, BS_CORE_OPS},
                            {sizes_make_a_query_that_passes, BS_CORE_OPS},
                            {activations_of_a_layer, BS_CORE_OPS},
                            {what_is_missing_is_refused},
                            {0}};
  return run_tests("op_ask", rows, (test_setup){0});
}
