/* SPDX-License-Identifier: MIT
 *
 * test_cpu_refusals.c - what the cpu plugin refuses, and why it says so; and its parameters: the set of
 * instructions, oneDNN's library, and the matmul that is forced. */
#include <stdio.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

/* A query that is answered NO, for this reason, with a text that has this word. */
typedef struct refusal {
  const char *op;
  uint32_t x, w, y, reason; /* reason 0: any */
  const char *word, *name;  /* name: of the implementation, by default "packed" */
  uint32_t accumulate, spread, activation;
  uint64_t limit; /* of the workspace */
  int no_kept;    /* 1: without positions */
  int64_t N;      /* columns of the first argument, more than any tensor has */
} refusal;

static const refusal refusals[] = {
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_DTYPE, "accumulates", .accumulate = BS_ACC_F64},
    {"matmul", BS_F32, BS_BF16, BS_F32, BS_REASON_DTYPE, ""},
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_LAYOUT, "element stride 2", .spread = 2},
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_WORKSPACE, "", .limit = 64},
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_LAYOUT, "", .spread = 2, .name = "dnnl"},
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_WORKSPACE, "", .limit = 1u << 30, .name = "dnnl"},
    {"matmul", BS_F32, BS_F32, BS_F32, BS_REASON_DTYPE, "tiles of AMX", .name = "amx"},
    {"matmul", BS_F16, BS_F16, BS_F32, BS_REASON_DTYPE, "tiles of AMX", .name = "amx"},
    {"matmul", BS_BF16, BS_F32, BS_F32, BS_REASON_DTYPE, "", .name = "amx"},
    {"matmul", BS_BF16, BS_BF16, BS_F32, BS_REASON_DTYPE, "accumulates", .name = "amx",
     .accumulate = BS_ACC_F64},
    {"matmul", BS_BF16, BS_BF16, BS_F32, BS_REASON_LAYOUT, "element stride 2", .name = "amx", .spread = 2},
    {"matmul", BS_BF16, BS_BF16, BS_F32, BS_REASON_WORKSPACE, "", .name = "amx", .limit = 64},
    {"matmul_dx", BS_F32, BS_F32, BS_F32, BS_REASON_DTYPE, "in f32", .accumulate = BS_ACC_F64},
    {"matmul_dx", BS_F32, BS_F32, BS_F64, BS_REASON_DTYPE, "dY of"},
    {"matmul_dx", BS_F32, BS_F32, BS_F32, BS_REASON_LAYOUT, "element stride 2", .spread = 2},
    {"matmul_dx", BS_F32, BS_F64, BS_F32, BS_REASON_DTYPE, "weight"},
    {"matmul_dw", BS_F32, BS_F32, BS_F32, BS_REASON_DTYPE, "in f32", .accumulate = BS_ACC_F64},
    {"matmul_dw", BS_F32, BS_F32, BS_F64, BS_REASON_DTYPE, "dY of"},
    {"matmul_dw", BS_F32, BS_F32, BS_F32, BS_REASON_LAYOUT, "element stride 2", .spread = 2},
    {"matmul_dw", BS_F32, BS_F64, BS_F32, BS_REASON_DTYPE, "f32 only"},
    {"matmul_update", BS_F32, BS_F32, BS_F32, BS_REASON_DTYPE, "in f32", .accumulate = BS_ACC_F64},
    {"matmul_update", BS_F32, BS_F32, BS_F64, BS_REASON_DTYPE, "dY of"},
    {"matmul_update", BS_F32, BS_F32, BS_F32, BS_REASON_LAYOUT, "element stride 2", .spread = 2},
    {"matmul_update", BS_F32, BS_F64, BS_F32, BS_REASON_DTYPE, "weight"},
    {"matmul24", BS_F32, BS_F32, BS_F32, BS_REASON_SPARSITY, "positions", .no_kept = 1},
    {"matmul24", BS_F32, BS_F32, BS_F32, BS_REASON_WORKSPACE, "", .limit = 64},
    {"matmul24", BS_F32, BS_I8, BS_F32, BS_REASON_DTYPE, ""},
    {"matmul24", BS_I8, BS_I8, BS_I32, BS_REASON_DTYPE, "", .accumulate = BS_ACC_F64},
    {"matmul24_dx", BS_I32, BS_I32, BS_I8, BS_REASON_DTYPE, ""},
    {"matmul24_dx", BS_I32, BS_I8, BS_I8, BS_REASON_DTYPE, "", .accumulate = BS_ACC_F64},
    {"matmul24_dx", BS_I32, BS_I8, BS_I8, BS_REASON_WORKSPACE, "", .limit = 64},
    {"matmul24_dx", BS_I32, BS_I8, BS_I8, BS_REASON_SPARSITY, "positions", .no_kept = 1},
    {"matmul24_dx", BS_I32, BS_I8, BS_I8, BS_REASON_SHAPE, "", .N = 1 << 17}, /* of -128 * -128: 2^31 */
    {"matmul24_dw", BS_I8, BS_I32, BS_I8, BS_REASON_DTYPE, "no steps"},
    {"activate", BS_F64, 0, BS_F32, BS_REASON_DTYPE, "", .name = "cpu"},
    {"activate", BS_F32, 0, BS_F32, 0, "", .name = "cpu", .activation = BS_ACT_GELU_TANH + 1},
    {"activate", BS_F32, 0, BS_F32, BS_REASON_LAYOUT, "", .name = "cpu", .spread = 2},
};

static bs_op_answer ask(const kit_actor *a, const kit_data *d) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  ck_assert_int_eq(a->impl->supports(a->state, &d->query, &answer), BS_OK);
  return answer;
}

START_TEST(queries_are_refused) {
  static ch c;
  const refusal *r = &refusals[_i];
  const char *name = r->name != NULL ? r->name : "packed";
  const kit_shape s = {.x = r->x,
                       .w = r->w,
                       .y = r->y,
                       .B = 4,
                       .N = 20,
                       .K = 40,
                       .accumulate = r->accumulate,
                       .activation = r->activation,
                       .spread = r->spread,
                       .seed = 2};
  kit_actor a;
  kit_data d;
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  ch_open(&c, strcmp(name, "amx") == 0 ? "amx_model" : "auto", "auto");
  if (!ch_find(&c, &a, r->op, name, 2)) return; /* built without oneDNN */
  kit_data_make(&d, r->op, &s);
  d.query.workspace_limit = r->limit;
  if (r->no_kept) d.query.kept = NULL;
  if (r->N > 0) d.a[0].d.dims[1] = d.a[0].d.strides[0] = r->N;
  const bs_op_answer answer = ask(&a, &d);
  const int missing = strcmp(name, "dnnl") == 0 && answer.reason == BS_REASON_LIB_VERSION;
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  if (r->reason != 0 && !missing)
    ck_assert_msg(answer.reason == r->reason, "%s: reason %u (%s)", kit_data_text(&d), answer.reason,
                  answer.text);
  ck_assert_msg(strstr(answer.text, r->word) != NULL, "\"%s\" lacks \"%s\"", answer.text, r->word);
  if (strcmp(r->word, "weight") != 0) { /* prepare sees that from the packed weight */
    ck_assert_int_eq(a.impl->prepare(a.state, &a.exec, &d.query, NULL, &plan, &err), BS_UNSUPPORTED);
    ck_assert_ptr_null(plan);
  }
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

static const kit_shape plain = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 8, .N = 20, .K = 30, .seed = 3};

START_TEST(weights_are_looked_at) {
  static const char *const ops[] = {"matmul_dx", "matmul_update"};
  static ch c;
  bs_error err = BS_ERROR_INIT;
  kit_actor a;
  kit_data d;
  ch_open(&c, "auto", "off");
  for (int i = 0; i < TEST_COUNT(ops); i++) {
    ch_actor(&c, &a, ops[i], "packed", 1);
    kit_data_make(&d, ops[i], &plain);
    ck_assert_int_eq(ch_try_plan(&a, &d, NULL, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-CPU-PACKED");
    kit_data_free(&a, &d);
    kit_actor_close(&a);
  }
  ch_actor(&c, &a, "matmul24", "packed", 2);
  kit_data_make(&d, "matmul24", &plain);
  d.groups[11] = 14;
  const bs_source source = kit_weight_source(&d);
  void *packed = NULL;
  uint64_t bytes = 0;
  ck_assert_int_eq(a.impl->pack(a.state, &a.exec, &d.query, &source, &packed, &bytes, &err),
                   BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "not two of four"));
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* More tokens than prepared is an error, not a write past Y. */
START_TEST(too_many_tokens_are_refused) {
  static const char *const names[] = {"packed", "dnnl", "amx"}, *const ops[] = {"matmul", "matmul_dx",
                                                                                "matmul24"};
  static ch c;
  const char *name = names[_i / TEST_COUNT(ops)];
  const int tiles = strcmp(name, "amx") == 0;
  kit_shape s = plain;
  bs_error err = BS_ERROR_INIT;
  kit_actor a;
  kit_data d;
  void *plan = NULL;
  const int i = _i % TEST_COUNT(ops);
  if (tiles) s.x = s.w = BS_BF16;
  ch_open(&c, tiles ? "amx_model" : "auto", "auto");
  if (!ch_find(&c, &a, ops[i], name, 1)) return;
  kit_data_make(&d, ops[i], &s);
  if (ask(&a, &d).level == BS_LEVEL_NO) return; /* no oneDNN here */
  void *packed = kit_data_pack(&a, &d);
  ck_assert_int_eq(a.impl->prepare(a.state, &a.exec, &d.query, packed, &plan, &err), BS_OK);
  kit_data_rows(&d, plain.B + 1);
  ck_assert_int_eq(kit_data_run_plan(&a, &d, plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-CPU-BATCH");
  a.impl->plan_free(plan);
  a.packer->packed_free(packed);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* ---- parameters ------------------------------------------------------------------------------- */

/* The device tells the name of its kernels, whole, and the class. */
static void must_tell(const kit_actor *a, const char *name) {
  bs_device_info info = {.struct_size = sizeof info};
  bs_error err = BS_ERROR_INIT;
  char kernels[64];
  ck_assert_int_eq(a->backend->device_info(a->state, 0, &info, &err), BS_OK);
  snprintf(kernels, sizeof kernels, "; own kernels: %s, class ", name);
  ck_assert_msg(strstr(info.detail, kernels) != NULL, "%s lacks %s", info.detail, kernels);
}

START_TEST(isa_is_forced) {
  static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16", "auto", "amx", "amx_model"};
  static ch c;
  char algo[64];
  const char *kernels = strcmp(isas[_i], "auto") == 0 ? ch_best_isa() : isas[_i];
  kit_actor a;
  kit_data d;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = ch_try_open(&c, isas[_i], "off", NULL, &err);
  if (!ch_has_isa(isas[_i])) {
    ck_assert_int_eq(rc, BS_UNAVAILABLE);
    ck_assert_str_eq(err.id, "BS-CPU-ISA");
    return;
  }
  ck_assert_int_eq(rc, BS_OK);
  ch_actor(&c, &a, "matmul", "packed", 1);
  kit_data_make(&d, "matmul", &plain);
  snprintf(algo, sizeof algo, "packed-%s", kernels);
  ck_assert_str_eq(ask(&a, &d).algo, algo);
  must_tell(&a, kernels);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* Without oneDNN: "dnnl" says why, "packed" serves and says so too. */
START_TEST(works_without_onednn) {
  static const char *const values[] = {"off", "/nowhere/libdnnl.so.3"};
  static ch c;
  kit_actor a;
  kit_data d;
  ch_open(&c, "auto", values[_i]);
  kit_data_make(&d, "matmul", &plain);
  if (ch_find(&c, &a, "matmul", "dnnl", 2)) {
    const bs_op_answer answer = ask(&a, &d);
    ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
    ck_assert_uint_eq(answer.reason, _i == 0 ? BS_REASON_DISABLED : BS_REASON_LIB_VERSION);
    ck_assert_msg(strstr(answer.text, _i == 0 ? "off" : "/nowhere") != NULL, "%s", answer.text);
    kit_actor_close(&a);
  }
  ch_actor(&c, &a, "matmul", "packed", 2);
  ck_assert_ptr_nonnull(strstr(ask(&a, &d).text, "oneDNN"));
  ch_check(&a, &d);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* "amx" is there where the kernels have tiles; to ask for it elsewhere is an error that says so. */
START_TEST(tiles_have_a_matmul) {
  static ch c;
  kit_actor a;
  kit_data d;
  bs_error err = BS_ERROR_INIT;
  kit_shape s = plain;
  s.x = s.w = BS_BF16;
  ch_open(&c, "amx_model", "off");
  ch_actor(&c, &a, "matmul", "amx", 1);
  kit_data_make(&d, "matmul", &s);
  ck_assert_str_eq(ask(&a, &d).algo, "tiles-amx_model");
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
  ch_open(&c, "portable", "off");
  ck_assert(!ch_find(&c, &a, "matmul", "amx", 1));
  ch_close(&c);
  ck_assert_int_eq(ch_try_open(&c, "portable", "off", "amx", &err), BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, "BS-CPU-ISA");
  ck_assert_ptr_nonnull(strstr(err.message, "the kernels portable have no tiles"));
  ch_close(&c);
}
END_TEST

/* matmul=NAME leaves only that one, and says so. */
START_TEST(matmul_is_forced) {
  static const char *const names[3] = {"packed", "dnnl", "amx"};
  static ch c;
  kit_actor a;
  kit_data d;
  bs_error err = BS_ERROR_INIT;
  kit_shape s = plain;
  s.x = s.w = BS_BF16;
  ck_assert_int_eq(ch_try_open(&c, "amx_model", "auto", names[_i], &err), BS_OK);
  kit_data_make(&d, "matmul", &s);
  for (int i = 0; i < 3; i++) {
    if (!ch_find(&c, &a, "matmul", names[i], 1)) continue; /* built without oneDNN */
    const bs_op_answer answer = ask(&a, &d);
    if (i == _i) {
      ck_assert(answer.level == BS_LEVEL_NATIVE || i == 1);
    } else {
      ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
      ck_assert_uint_eq(answer.reason, BS_REASON_DISABLED);
    }
    kit_actor_close(&a);
  }
  kit_data_free(&a, &d);
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{queries_are_refused, TEST_COUNT(refusals)},
                             {weights_are_looked_at},
                             {too_many_tokens_are_refused, 9},
                             {isa_is_forced, 7},
                             {tiles_have_a_matmul},
                             {works_without_onednn, 2},
                             {matmul_is_forced, 3},
                             {0}};
  return run_tests("cpu_refusals", tests, (test_setup){.timeout = 60});
}
