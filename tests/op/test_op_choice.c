/* SPDX-License-Identifier: MIT
 * test_op_choice.c - choices of implementations: each can force either candidate, keys tell apart what may
 * differ in speed, a choice that cannot be followed is warned of and the default is taken, and the book
 * reports what was asked and taken. */
#include <string.h>

#include "core/op/choice.h"
#include "op_actor.h"
#include "tests/run_tests.h"

typedef struct stage {
  fx f;
  actor fast, slow;
  bs_op_impl impls[2];
  char warned[1024];
  int warnings;
} stage;

static stage s; /* each test forks */

static void warn(void *user, const char *text) {
  (void)user;
  snprintf(s.warned, sizeof s.warned, "%s", text);
  s.warnings++;
}

/* "fast" (score 900) and "slow" (100) of plugin p, with the given choices. */
static void open_stage(const char *op, const char *const *choices, uint32_t n) {
  bs_error err = BS_ERROR_INIT;
  fx_open(&s.f, 2, 0);
  s.fast = (actor){.level = BS_LEVEL_NATIVE, .score = 900};
  s.slow = (actor){.level = BS_LEVEL_NATIVE, .score = 100, .text = "by hand"};
  s.impls[0] = fx_actor_impl(op, "fast", 0);
  s.impls[1] = fx_actor_impl(op, "slow", 0);
  fx_add("p", &s.impls[0], &s.fast);
  fx_add("p", &s.impls[1], &s.slow);
  s.f.ops.warn = warn;
  s.f.ops.world_size = 3;
  ck_assert_msg(bs_choice_book_new(choices, n, &s.f.ops.choices, &err) == BS_OK, "%s", err.message);
}

static void close_stage(void) {
  bs_choice_book_free(s.f.ops.choices);
  s.f.ops.choices = NULL;
  fx_close(&s.f);
}

static const char matmul_key[] = "matmul@ref x=f32 w=f32 y=f32 N=6 K=8 B=4 threads=2 P=3";

static void pack_and_release(void) {
  bs_error err = BS_ERROR_INIT;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  const bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  ck_assert_msg(bs_dispatch_pack(&s.f.ops, &q, &w, &packed, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_prepare(&s.f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
}

static bs_choice_info entry(uint32_t index) {
  bs_choice_info info = {.struct_size = sizeof info};
  ck_assert_int_eq(bs_choice_get(s.f.ops.choices, index, &info, NULL), BS_OK);
  return info;
}

START_TEST(a_choice_forces_either) {
  static const char *const names[] = {"p:fast", "p:slow", "slow"};
  for (size_t i = 0; i < 3; i++) {
    char text[256];
    snprintf(text, sizeof text, "%s -> %s", matmul_key, names[i]);
    const char *const choices[] = {"convert@ref other -> p:fast", text};
    open_stage("matmul", choices, 2);
    pack_and_release();
    ck_assert_int_eq(s.fast.packs, i == 0);
    ck_assert_int_eq(s.slow.packs, i != 0);
    ck_assert_int_eq(s.slow.prepares, i != 0);
    ck_assert_int_eq(s.warnings, 0);
    ck_assert_uint_eq(bs_choice_count(s.f.ops.choices), 1);
    const bs_choice_info info = entry(0);
    ck_assert_str_eq(info.key, matmul_key);
    ck_assert_str_eq(info.chosen, i == 0 ? "p:fast" : "p:slow");
    ck_assert_str_eq(info.wanted, names[i]);
    ck_assert_str_eq(info.why, "");
    close_stage();
  }
}
END_TEST

START_TEST(without_one_the_defaults_decide) {
  open_stage("matmul", NULL, 0);
  pack_and_release();
  ck_assert_int_eq(s.fast.packs, 1);
  const bs_choice_info info = entry(0);
  ck_assert_str_eq(info.chosen, "p:fast");
  ck_assert_str_eq(info.wanted, "");
  ck_assert_str_eq(info.candidates, "p:fast\t\np:slow\t, by hand");
  bs_choice_info none = {.struct_size = sizeof none};
  ck_assert_int_eq(bs_choice_get(s.f.ops.choices, 1, &none, NULL), BS_NOT_FOUND);
  close_stage();
}
END_TEST

/* An op without packed weights chooses when it prepares. */
START_TEST(ops_without_weights_choose_too) {
  static const char *const choices[] = {"convert@ref f32[4,8] f16[4,8] threads=2 P=3 -> p:slow"};
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  open_stage("convert", choices, 1);
  const bs_op_query q = fx_convert_query();
  ck_assert_msg(bs_dispatch_prepare(&s.f.ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  ck_assert_int_eq(s.slow.prepares, 1);
  ck_assert_int_eq(s.fast.prepares, 0);
  ck_assert_str_eq(entry(0).chosen, "p:slow");
  close_stage();
}
END_TEST

START_TEST(what_cannot_be_followed_is_warned_of_once) {
  static const struct {
    const char *name, *why;
  } cases[] = {{"p:gone", "no plugin here offers it"}, {"q:slow", "no plugin"}, {"p:slow", "shape: odd K"}};
  for (size_t i = 0; i < 3; i++) {
    char text[256];
    snprintf(text, sizeof text, "%s -> %s", matmul_key, cases[i].name);
    const char *const choices[] = {text};
    memset(&s, 0, sizeof s);
    open_stage("matmul", choices, 1);
    if (i == 2) s.slow = (actor){.level = BS_LEVEL_NO, .reason = BS_REASON_SHAPE, .text = "odd K"};
    pack_and_release();
    pack_and_release();
    ck_assert_int_eq(s.fast.packs, 2);
    ck_assert_int_eq(s.warnings, 1);
    ck_assert_ptr_nonnull(strstr(s.warned, cases[i].name));
    ck_assert_msg(strstr(s.warned, cases[i].why) != NULL, "%s", s.warned);
    ck_assert_ptr_nonnull(strstr(s.warned, "p:fast serves"));
    ck_assert_ptr_nonnull(strstr(entry(0).why, cases[i].why));
    close_stage();
  }
}
END_TEST

/* An UNKNOWN answer that turns out unsupported: the choice falls, the default serves. */
START_TEST(a_choice_that_fails_its_trial) {
  char text[256];
  snprintf(text, sizeof text, "%s -> p:slow", matmul_key);
  const char *const choices[] = {text};
  open_stage("matmul", choices, 1);
  s.slow = (actor){.level = BS_LEVEL_UNKNOWN, .pack_rc = BS_UNSUPPORTED};
  pack_and_release();
  ck_assert_int_eq(s.fast.packs, 1);
  ck_assert_int_eq(s.warnings, 1);
  ck_assert_ptr_nonnull(strstr(s.warned, "tried: "));
  close_stage();
}
END_TEST

/* A form that the chosen one can serve must look better to a method than one that it cannot. */
START_TEST(answers_lead_to_the_chosen_form) {
  char text[256];
  bs_op_answer answer = {.struct_size = sizeof answer};
  bs_error err = BS_ERROR_INIT;
  snprintf(text, sizeof text, "%s -> p:slow", matmul_key);
  const char *const choices[] = {text};
  open_stage("matmul", choices, 1);
  s.fast.score = 1000;
  const bs_op_query q = fx_matmul_query();
  ck_assert_int_eq(bs_dispatch_supports(&s.f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.score, 1000);
  ck_assert_str_eq(answer.text, "by hand");
  s.slow.level = BS_LEVEL_NO;
  ck_assert_int_eq(bs_dispatch_supports(&s.f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.score, 999);
  ck_assert_int_eq(s.warnings, 0); /* only asked */
  close_stage();
}
END_TEST

static void key_of(const bs_op_query *q, char out[BS_CHOICE_KEY]) {
  bs_choice_key(&s.f.ops, q, out, BS_CHOICE_KEY);
}

START_TEST(keys_tell_apart_what_differs) {
  char base[BS_CHOICE_KEY], other[BS_CHOICE_KEY];
  uint32_t columns[8];
  bs_tensor_desc row = {.struct_size = sizeof row, .dtype = BS_F32, .rank = 1, .dims = {6}, .strides = {1}};
  open_stage("matmul", NULL, 0);
  bs_op_query q = fx_matmul_query();
  key_of(&q, base);
  ck_assert_str_eq(base, matmul_key);
  q.activation = BS_ACT_GELU;
  q.flags = BS_QUERY_DETERMINISTIC;
  q.accumulate = BS_ACC_F64;
  q.workspace_limit = 7;
  const bs_tensor_desc *args[4] = {q.args[0], &row, q.args[3], q.args[3]};
  q.args = args;
  key_of(&q, other);
  ck_assert_str_eq(other,
                   "matmul@ref x=f32 w=f32 y=f32 N=6 K=8 B=4 bias=f32 residual=f32 act=gelu sum=f64 "
                   "deterministic workspace=7 threads=2 P=3");
  /* The two forms of X over gathered columns are one product. */
  const bs_partition half = fx_gather(16, 2, 1, columns);
  q = fx_matmul_query();
  q.partition = &half;
  key_of(&q, base);
  ck_assert_ptr_nonnull(strstr(base, "K=8 columns=gather"));
  const bs_tensor_desc full = bs_desc_2d(BS_F32, 4, 16);
  const bs_tensor_desc *whole[4] = {&full, NULL, NULL, q.args[3]};
  q.args = whole;
  q.flags |= BS_QUERY_X_FULL;
  key_of(&q, other);
  ck_assert_str_eq(base, other);
  const bs_partition run = fx_contiguous(16, 8, 8);
  q.partition = &run;
  key_of(&q, other);
  ck_assert_ptr_nonnull(strstr(other, "columns=run"));
  s.f.exec.width = 1;
  s.f.ops.world_size = 0;
  key_of(&q, other);
  ck_assert_ptr_nonnull(strstr(other, " threads=1 P=1"));
  q = fx_convert_query();
  q.attrs[3] = -5;
  key_of(&q, other);
  ck_assert_str_eq(other, "convert@ref f32[4,8] f16[4,8] attr3=-5 threads=1 P=1");
  bs_choice_key(&s.f.ops, &q, other, 20); /* never a cut key: it could be another's */
  ck_assert_str_eq(other, "");
  close_stage();
}
END_TEST

START_TEST(keys_have_the_activation_of_every_op) {
  static const char *const names[] = {"", " act=relu", " act=gelu", " act=silu", " act=gelu_tanh"};
  const bs_tensor_desc in = bs_desc_2d(BS_F32, 3, 16), to = bs_desc_2d(BS_BF16, 3, 16);
  const bs_tensor_desc *args[2] = {&in, &to};
  open_stage("activate", NULL, 0);
  bs_op_query q = fx_query("activate", args, 2);
  for (q.activation = BS_ACT_NONE; q.activation <= BS_ACT_GELU_TANH; q.activation++) {
    char key[BS_CHOICE_KEY], want[BS_CHOICE_KEY];
    key_of(&q, key);
    snprintf(want, sizeof want, "activate@ref f32[3,16] bf16[3,16]%s threads=2 P=3", names[q.activation]);
    ck_assert_str_eq(key, want);
  }
  close_stage();
}
END_TEST

/* Shapes that differ far behind: two keys as long as they fit, and no key at all beyond. */
START_TEST(long_shapes_are_never_cut) {
  enum { N = BS_MAX_OP_ARGS };
  char one[BS_CHOICE_KEY], other[BS_CHOICE_KEY];
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = BS_MAX_DIMS}, last;
  const bs_tensor_desc *args[N];
  open_stage("acme_scan", NULL, 0);
  for (int i = 0; i < BS_MAX_DIMS; i++) d.dims[i] = 123456;
  for (int i = 0; i < N; i++) args[i] = &d;
  last = d;
  last.dims[BS_MAX_DIMS - 1]++;
  bs_op_query q = fx_query("acme_scan", args, N);
  key_of(&q, one);
  args[N - 1] = &last;
  key_of(&q, other);
  ck_assert_uint_gt(strlen(one), 256);
  ck_assert_str_ne(one, other);
  for (int i = 0; i < BS_MAX_DIMS; i++) d.dims[i] = INT64_C(123456789012);
  key_of(&q, one);
  ck_assert_str_eq(one, "");
  close_stage();
}
END_TEST

START_TEST(texts_that_are_no_choices) {
  static const char *const bad[] = {"", "key", "key ->", "key -> ", " -> p:fast", "key -> two words", "k->p"};
  bs_choice_book *book = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_choice_book_new(&bad[i], 1, &book, &err) == BS_CONFIG, "'%s' was taken", bad[i]);
    ck_assert_str_eq(err.id, "BS-OP-CHOICE");
    ck_assert_ptr_null(book);
  }
  static const char *const twice[] = {"k a -> p:x", "k a -> p:x", "k a -> p:y"};
  ck_assert_int_eq(bs_choice_book_new(twice, 2, &book, NULL), BS_OK);
  bs_choice_book_free(book);
  ck_assert_int_eq(bs_choice_book_new(twice, 3, &book, NULL), BS_CONFIG);
}
END_TEST

START_TEST(a_rehearsal_packs_nothing) {
  bs_error err = BS_ERROR_INIT;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  open_stage("matmul", NULL, 0);
  s.f.ops.rehearse = 1;
  const bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  ck_assert_int_eq(bs_dispatch_pack(&s.f.ops, &q, &w, &packed, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &q, packed, &plan, &err), BS_OK);
  ck_assert_str_eq(entry(0).chosen, "p:fast");
  fx_tensor x, y;
  fx_matrix(&x, BS_F32, 4, 8);
  fx_matrix(&y, BS_F32, 4, 6);
  bs_tensor *args[4] = {&x.t, NULL, NULL, &y.t};
  ck_assert_int_eq(bs_dispatch_run(plan, args, 4, NULL, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-REHEARSAL");
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &y.t, &err), BS_UNSUPPORTED);
  ck_assert_int_eq(bs_dispatch_packed_update(packed, &y.t, &err), BS_UNSUPPORTED);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
  ck_assert_int_eq(s.fast.packs + s.fast.prepares + s.fast.packed_frees + s.fast.plan_frees, 0);
  fx_tensor_free(&x);
  fx_tensor_free(&y);
  close_stage();
}
END_TEST

typedef struct ladder {
  char first[64];
  char key[BS_CHOICE_KEY];
  uint32_t wanted;
} ladder;

static void keep_first(void *user, const bs_op_candidate *c) {
  ladder *l = user;
  l->wanted += c->wanted;
  if (c->place > 0) return;
  snprintf(l->first, sizeof l->first, "%s", c->name);
  snprintf(l->key, sizeof l->key, "%s", c->key);
  ck_assert_uint_eq(c->chosen, 1);
}

START_TEST(explain_shows_the_choice_of_a_site) {
  char text[256];
  ladder l = {0};
  bs_error err = BS_ERROR_INIT;
  snprintf(text, sizeof text, "%s -> p:slow", matmul_key);
  const char *const choices[] = {text};
  const bs_op_site site = {
      .struct_size = sizeof site, .threads = 2, .world_size = 3, .n_choices = 1, .choices = choices};
  open_stage("matmul", NULL, 0);
  bs_context *context = (bs_context *)(uintptr_t)&s;
  const bs_op_query q = fx_matmul_query();
  ck_assert_int_eq(bs_op_explain_at(context, "ref", &site, &q, keep_first, &l, &err), BS_OK);
  ck_assert_str_eq(l.first, "matmul@ref/slow");
  ck_assert_str_eq(l.key, matmul_key);
  ck_assert_uint_eq(l.wanted, 1);
  ck_assert_int_eq(bs_op_explain_at(context, "ref", NULL, &q, keep_first, &l, &err), BS_OK);
  ck_assert_str_eq(l.first, "matmul@ref/fast");
  ck_assert_ptr_nonnull(strstr(l.key, "threads=1 P=1"));
  static const char *const bad[] = {"nonsense"};
  const bs_op_site broken = {.struct_size = sizeof broken, .n_choices = 1, .choices = bad};
  ck_assert_int_eq(bs_op_explain_at(context, "ref", &broken, &q, keep_first, &l, &err), BS_CONFIG);
  close_stage();
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_choice_forces_either},
                             {without_one_the_defaults_decide},
                             {ops_without_weights_choose_too},
                             {what_cannot_be_followed_is_warned_of_once},
                             {a_choice_that_fails_its_trial},
                             {answers_lead_to_the_chosen_form},
                             {keys_tell_apart_what_differs},
                             {keys_have_the_activation_of_every_op},
                             {long_shapes_are_never_cut},
                             {texts_that_are_no_choices},
                             {a_rehearsal_packs_nothing},
                             {explain_shows_the_choice_of_a_site},
                             {0}};
  return run_tests("op_choice", tests, (test_setup){0});
}
