/* SPDX-License-Identifier: MIT
 * test_op_knob.c - knobs: sets of values, declarations and settings that are refused, the way of a setting
 * from a choice to supports, pack and prepare of the one implementation that it names, and plans whose echo
 * does not show what they were told. */
#include <string.h>

#include "core/op/choice.h"
#include "core/op/knob.h"
#include "op_actor.h"
#include "tests/run_tests.h"

static const char matmul_key[] = "matmul@ref x=f32 w=f32 y=f32 N=6 K=8 B=4 threads=2 P=3";
static const char convert_key[] = "convert@ref f32[4,8] f16[4,8] threads=2 P=3";

/* ---- sets ----------------------------------------------------------------------------------- */

START_TEST(sets_of_values) {
  static const struct {
    const char *values, *all; /* all NULL: no set */
  } cases[] = {{"exact,fast", "exact fast"},
               {"48,96,192", "48 96 192"},
               {"16:256*2", "16 32 64 128 256"},
               {"8:64+24", "8 32 56"},
               {"0:2+1", "0 1 2"},
               {"off,1:9*3,on", "off 1 3 9 on"},
               {"3:3*2", "3"},
               {"", NULL},
               {"a,", NULL},
               {",a", NULL},
               {"a b", NULL},
               {"4:2*2", NULL},
               {"1:8", NULL},
               {"1:8*1", NULL},
               {"0:8*2", NULL},
               {"1:8+0", NULL},
               {"01:8+1", NULL},
               {"1:8+1x", NULL},
               {"1:999999999999999+1", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const bs_knob k = {sizeof k, 0, "k", cases[i].values, "auto", ""};
    char all[256] = "", value[BS_KNOB_VALUE];
    const uint32_t n = bs_knob_count(&k);
    ck_assert_msg((n > 0) == (cases[i].all != NULL), "'%s' has %u values", cases[i].values, n);
    if (n == 0) continue;
    for (uint32_t v = 0; v < n; v++) {
      ck_assert_int_eq(bs_knob_value(&k, v, value, sizeof value, NULL), BS_OK);
      ck_assert_int_eq(bs_knob_legal(&k, value), 1);
      snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", v > 0 ? " " : "", value);
    }
    ck_assert_str_eq(all, cases[i].all);
    ck_assert_int_eq(bs_knob_value(&k, n, value, sizeof value, NULL), BS_INVALID_ARGUMENT);
    ck_assert_int_eq(bs_knob_legal(&k, "auto"), 1);
    ck_assert_int_eq(bs_knob_legal(&k, "none"), 0);
  }
}
END_TEST

START_TEST(declarations_that_are_refused) {
  static const bs_knob good = {sizeof good, 0, "keys", "16:256*2", "auto", ""};
  static const bs_knob bad[] = {
      {sizeof good, 0, "Keys", "1,2", "1", ""},    {sizeof good, 0, NULL, "1,2", "1", ""},
      {sizeof good, 0, "keys", "1:2", "auto", ""}, {sizeof good, 0, "keys", NULL, "auto", ""},
      {sizeof good, 0, "keys", "1,2", "3", ""},    {sizeof good, 0, "keys", "1,2", NULL, ""},
      {sizeof good, 2, "keys", "1,2", "1", ""}};
  const bs_knob *list[BS_MAX_KNOBS + 1];
  bs_error err = BS_ERROR_INIT;
  list[0] = &good;
  ck_assert_int_eq(bs_knobs_declared(list, 1, "it", &err), BS_OK);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    list[0] = &bad[i];
    ck_assert_msg(bs_knobs_declared(list, 1, "it", &err) == BS_PLUGIN, "%zu was taken", i);
    ck_assert_str_eq(err.id, "BS-PLG-KNOB");
  }
  list[0] = list[1] = &good;
  ck_assert_int_eq(bs_knobs_declared(list, 2, "it", &err), BS_PLUGIN);
  ck_assert_ptr_nonnull(strstr(err.message, "twice"));
  ck_assert_int_eq(bs_knobs_declared(list, BS_MAX_KNOBS + 1, "it", &err), BS_PLUGIN);
  ck_assert_int_eq(bs_knobs_declared(NULL, 1, "it", &err), BS_PLUGIN);
  ck_assert_int_eq(bs_knobs_declared(NULL, 0, "it", &err), BS_OK);
}
END_TEST

START_TEST(settings_that_are_refused) {
  static const struct {
    const char *settings, *message, *hint;
  } cases[] = {{"keys=100", "legal are 16:256*2", "the nearest is keys=128"},
               {"keys=7", "legal are", "the nearest is keys=16"},
               {"keys=9999", "legal are", "the nearest is keys=256"},
               {"keys=064", "legal are", "the nearest is keys=64"},
               {"exp=fas", "exact,fast", "the nearest is exp=fast"},
               {"exp=zzzz", "exact,fast", "the default is auto"},
               {"key=64", "no knob 'key'; it has keys, exp, tile", "did you mean 'keys'?"},
               {"keys=64;keys=32", "given twice", ""},
               {"keys", "is not KNOB=VALUE", ""},
               {"keys=", "is not KNOB=VALUE", ""},
               {"=64", "is not KNOB=VALUE", ""},
               {"keys=64;;", "is not KNOB=VALUE", ""}};
  const bs_op_impl impl = fx_actor_knobs("matmul", "fast");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_knobs_check(impl.knobs, 3, "it", cases[i].settings, &err) == BS_CONFIG, "'%s' was taken",
                  cases[i].settings);
    ck_assert_str_eq(err.id, "BS-OP-KNOB");
    ck_assert_msg(strstr(err.message, cases[i].message) != NULL, "%s: %s", cases[i].settings, err.message);
    ck_assert_msg(strstr(err.hint, cases[i].hint) != NULL, "%s: %s", cases[i].settings, err.hint);
    if (cases[i].hint[0] == '\0') ck_assert_str_eq(err.hint, "");
  }
  ck_assert_int_eq(bs_knobs_check(impl.knobs, 3, "it", "exp=auto;keys=64;tile=64", NULL), BS_OK);
  ck_assert_int_eq(bs_knobs_check(impl.knobs, 3, "it", "", NULL), BS_OK);
}
END_TEST

START_TEST(helpers_of_plugins_read_settings) {
  char value[8];
  ck_assert_int_eq(bs_knob_find("keys=64;exp=fast", "exp", value, sizeof value), 1);
  ck_assert_str_eq(value, "fast");
  ck_assert_int_eq(bs_knob_find("keys=64;exp=auto", "exp", value, sizeof value), 0);
  ck_assert_str_eq(value, "");
  ck_assert_int_eq(bs_knob_find("monkeys=1;keysx=2", "keys", value, sizeof value), 0);
  ck_assert_int_eq(bs_knob_find(NULL, "keys", value, sizeof value), 0);
  ck_assert_int_eq(bs_knob_int("a=1;keys=64", "keys", 7), 64);
  ck_assert_int_eq(bs_knob_int("a=1", "keys", 7), 7);
}
END_TEST

/* ---- the way to the plan -------------------------------------------------------------------- */

typedef struct stage {
  fx f;
  actor first, second;
  bs_op_impl impls[2];
} stage;

static stage s; /* each test forks */

static void open_stage(const char *op, const char *const *choices, uint32_t n) {
  bs_error err = BS_ERROR_INIT;
  memset(&s, 0, sizeof s);
  fx_open(&s.f, 2, 0);
  s.first = (actor){.level = BS_LEVEL_NATIVE, .score = 900};
  s.second = (actor){.level = BS_LEVEL_NATIVE, .score = 100};
  s.impls[0] = fx_actor_knobs(op, "first");
  s.impls[1] = fx_actor_knobs(op, "second");
  fx_add("p", &s.impls[0], &s.first);
  fx_add("p", &s.impls[1], &s.second);
  s.f.ops.world_size = 3;
  ck_assert_msg(bs_choice_book_new(choices, n, &s.f.ops.choices, &err) == BS_OK, "%s", err.message);
}

static void close_stage(void) {
  bs_choice_book_free(s.f.ops.choices);
  s.f.ops.choices = NULL;
  fx_close(&s.f);
}

/* Packs, prepares and releases; what the plan said of itself goes into out. */
static int32_t once(bs_op_echo *out, bs_error *err) {
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  const bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  int32_t rc = bs_dispatch_pack(&s.f.ops, &q, &w, &packed, err);
  if (rc == BS_OK) rc = bs_dispatch_prepare(&s.f.ops, &q, packed, &plan, err);
  if (rc == BS_OK && bs_plan_echo(plan) != NULL) *out = *bs_plan_echo(plan);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
  return rc;
}

START_TEST(a_choice_carries_knobs_to_one_implementation) {
  char text[256];
  bs_op_echo echo = {0};
  bs_error err = BS_ERROR_INIT;
  snprintf(text, sizeof text, "%s -> p:second{keys=64;exp=fast}", matmul_key);
  const char *const choices[] = {text};
  open_stage("matmul", choices, 1);
  ck_assert_msg(once(&echo, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(s.second.asked_knobs, "keys=64;exp=fast");
  ck_assert_str_eq(s.second.pack_knobs, "keys=64;exp=fast");
  ck_assert_str_eq(s.second.plan_knobs, "keys=64;exp=fast");
  ck_assert_str_eq(s.first.asked_knobs, "");
  ck_assert_str_eq(echo.knobs, "keys=64;exp=fast;tile=32");
  ck_assert_int_eq(echo.registers, -1);
  bs_choice_info info = {.struct_size = sizeof info};
  ck_assert_int_eq(bs_choice_get(s.f.ops.choices, 0, &info, NULL), BS_OK);
  ck_assert_str_eq(info.chosen, "p:second");
  ck_assert_str_eq(info.wanted, "p:second");
  ck_assert_str_eq(info.knobs, "keys=64;exp=fast");
  ck_assert_str_eq(info.echo->knobs, "keys=64;exp=fast;tile=32");
  ck_assert_ptr_nonnull(strstr(s.f.notes, "matmul@ref/second{keys=64;exp=fast}"));
  close_stage();
}
END_TEST

/* A reader keeps what it was given while other ranks prepare the same key. */
START_TEST(an_echo_that_was_given_does_not_change) {
  static const char *const builds[] = {"b1", "b2", "b1"};
  const bs_op_echo *given[3];
  bs_choice_book *book = NULL;
  const bs_op_impl impl = {.struct_size = sizeof impl, .op = "convert", .backend = "ref", .name = "first"};
  const bs_thing thing = {.plugin = "p", .name = "convert", .vtable = &impl};
  ck_assert_int_eq(bs_choice_book_new(NULL, 0, &book, NULL), BS_OK);
  for (size_t i = 0; i < 3; i++) {
    bs_choice_info info = {.struct_size = sizeof info};
    bs_op_echo echo = {.struct_size = sizeof echo};
    snprintf(echo.build, sizeof echo.build, "%s", builds[i]);
    bs_choice_echo(book, "key", &thing, &echo);
    ck_assert_int_eq(bs_choice_get(book, 0, &info, NULL), BS_OK);
    given[i] = info.echo;
    for (size_t k = 0; k <= i; k++) ck_assert_str_eq(given[k]->build, builds[k]);
  }
  ck_assert_ptr_eq(given[0], given[2]); /* the same words are kept once */
  bs_choice_book_free(book);
}
END_TEST

START_TEST(without_a_choice_the_standards_serve) {
  bs_op_echo echo = {0};
  bs_error err = BS_ERROR_INIT;
  open_stage("matmul", NULL, 0);
  ck_assert_msg(once(&echo, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(s.first.plan_knobs, "");
  ck_assert_str_eq(echo.knobs, "keys=128;exp=exact;tile=32");
  ck_assert_ptr_null(strchr(s.f.notes, '{'));
  close_stage();
}
END_TEST

START_TEST(knobs_that_the_named_one_does_not_have) {
  static const char *const knobs[] = {"key=64", "keys=100"};
  for (size_t i = 0; i < 2; i++) {
    char text[256];
    bs_op_echo echo = {0};
    bs_error err = BS_ERROR_INIT;
    snprintf(text, sizeof text, "%s -> p:second{%s}", matmul_key, knobs[i]);
    const char *const choices[] = {text};
    open_stage("matmul", choices, 1);
    ck_assert_int_eq(once(&echo, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-OP-KNOB");
    ck_assert_ptr_nonnull(strstr(err.message, "matmul@ref/second"));
    ck_assert_int_eq(s.second.packs + s.first.packs, 0);
    close_stage();
  }
}
END_TEST

START_TEST(texts_of_choices_with_knobs) {
  static const char *const bad[] = {"k -> p:x{",   "k -> p:x{}",      "k -> p:x}", "k -> p:x{a=1}b",
                                    "k -> x{a=1}", "k -> p:x{a={1}}", "k -> {a=1}"};
  bs_choice_book *book = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_choice_book_new(&bad[i], 1, &book, &err) == BS_CONFIG, "'%s' was taken", bad[i]);
    ck_assert_str_eq(err.id, "BS-OP-CHOICE");
  }
  static const char *const twice[] = {"k -> p:x{a=1}", "k -> p:x{a=1}", "k -> p:x{a=2}"};
  ck_assert_int_eq(bs_choice_book_new(twice, 2, &book, NULL), BS_OK);
  bs_choice_book_free(book);
  ck_assert_int_eq(bs_choice_book_new(twice, 3, &book, NULL), BS_CONFIG);
}
END_TEST

START_TEST(who_asks_gives_no_knobs) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  bs_error err = BS_ERROR_INIT;
  open_stage("matmul", NULL, 0);
  bs_op_query q = fx_matmul_query();
  q.knobs = "keys=64";
  ck_assert_int_eq(bs_dispatch_supports(&s.f.ops, &q, &answer, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-KNOB");
  close_stage();
}
END_TEST

/* ---- echoes --------------------------------------------------------------------------------- */

/* The knob does not reach the plan: two plans with different knobs are one. */
START_TEST(a_plan_that_does_not_show_what_it_was_told) {
  static const char *const keys[] = {"128", "64", "256"};
  for (size_t i = 0; i < 3; i++) {
    char text[256];
    bs_op_echo echo = {0};
    bs_error err = BS_ERROR_INIT;
    snprintf(text, sizeof text, "%s -> p:second{keys=%s}", matmul_key, keys[i]);
    const char *const choices[] = {text};
    open_stage("matmul", choices, 1);
    s.second.deaf = 1;
    const int32_t rc = once(&echo, &err);
    ck_assert_int_eq(s.second.prepares, 1);
    ck_assert_int_eq(s.second.plan_frees, 1);
    ck_assert_int_eq(s.second.packed_frees, 1);
    if (i == 0) {
      ck_assert_int_eq(rc, BS_OK); /* it happens to be the standard */
    } else {
      char want[64];
      snprintf(want, sizeof want, "asked keys=%s, the plan reports keys=128", keys[i]);
      ck_assert_int_eq(rc, BS_PLUGIN);
      ck_assert_str_eq(err.id, "BS-OP-KNOB-ECHO");
      ck_assert_str_eq(err.message, want);
      ck_assert_ptr_nonnull(strstr(err.where, "matmul@ref/second"));
    }
    close_stage();
  }
}
END_TEST

static int32_t silent_echo(const void *plan, bs_op_echo *out_echo) {
  (void)plan;
  bs_op_echo echo;
  bs_echo_begin(&echo);
  bs_echo_int(&echo, "keys", 128);
  bs_out_copy(out_echo, &echo, sizeof echo);
  return BS_OK;
}

START_TEST(an_echo_names_every_knob) {
  bs_op_echo echo = {0};
  bs_error err = BS_ERROR_INIT;
  open_stage("matmul", NULL, 0);
  s.impls[0].echo = silent_echo;
  ck_assert_int_eq(once(&echo, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-OP-KNOB-ECHO");
  ck_assert_ptr_nonnull(strstr(err.message, "lacks the knob exp"));
  close_stage();
}
END_TEST

/* A knob that selects a binary: two values of it with one build id are one binary. */
START_TEST(two_knobs_with_one_build) {
  static const struct {
    const char *knobs, *builds[2];
    int caught;
  } cases[] = {{"{tile=64}", {"b1", "b1"}, 1},
               {"{tile=64}", {"b1", "b2"}, 0},
               {"{tile=64}", {NULL, NULL}, 0}, /* no build is known */
               {"{keys=64}", {"b1", "b1"}, 0}, /* one binary serves all keys */
               {"{tile=32}", {"b1", "b1"}, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[256];
    bs_plan *plan = NULL;
    bs_error err = BS_ERROR_INIT;
    snprintf(text, sizeof text, "%s -> p:first%s", convert_key, cases[i].knobs);
    const char *const choices[] = {text};
    open_stage("convert", choices, 1);
    s.first.build = cases[i].builds[0];
    bs_op_query q = fx_convert_query();
    ck_assert_msg(bs_dispatch_prepare(&s.f.ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
    const bs_op_echo echo = *bs_plan_echo(plan);
    bs_dispatch_release(plan);
    ck_assert_str_eq(echo.build, cases[i].builds[0] != NULL ? cases[i].builds[0] : "");
    fx_desc_x.dims[0] = fx_desc_y.dims[0] = 3; /* another key, which no choice names: the standards */
    s.first.build = cases[i].builds[1];
    const int32_t rc = bs_dispatch_prepare(&s.f.ops, &q, NULL, &plan, &err);
    ck_assert_msg(rc == (cases[i].caught ? BS_PLUGIN : BS_OK), "%zu: %s", i, err.message);
    if (cases[i].caught) {
      ck_assert_str_eq(err.id, "BS-OP-KNOB-ECHO");
      ck_assert_ptr_nonnull(strstr(err.message, "tile=64 and one with tile=32 report one build, b1"));
    } else {
      bs_dispatch_release(plan);
    }
    close_stage();
  }
}
END_TEST

/* A rehearsal prepares nothing, and still refuses knobs that there are not. */
START_TEST(rehearsals_check_knobs) {
  bs_op_echo echo = {0};
  bs_error err = BS_ERROR_INIT;
  char text[256];
  snprintf(text, sizeof text, "%s -> p:second{keys=64}", matmul_key);
  const char *choices[] = {text};
  open_stage("matmul", choices, 1);
  s.f.ops.rehearse = 1;
  ck_assert_msg(once(&echo, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(s.second.prepares, 0);
  ck_assert_str_eq(echo.knobs, "");
  close_stage();
  snprintf(text, sizeof text, "%s -> p:second{keys=65}", matmul_key);
  open_stage("matmul", choices, 1);
  s.f.ops.rehearse = 1;
  ck_assert_int_eq(once(&echo, &err), BS_CONFIG);
  close_stage();
}
END_TEST

static void look(void *user, const bs_op_candidate *c) {
  char *out = user;
  ck_assert_uint_eq(c->n_knobs, 3);
  ck_assert_str_eq(c->knobs[1]->name, "exp");
  if (c->place == 0) snprintf(out, 64, "%s %s", c->name, c->given);
}

START_TEST(explain_tells_the_knobs) {
  char text[256], first[64] = "";
  bs_error err = BS_ERROR_INIT;
  snprintf(text, sizeof text, "%s -> p:second{exp=fast}", matmul_key);
  const char *const choices[] = {text};
  const bs_op_site site = {
      .struct_size = sizeof site, .threads = 2, .world_size = 3, .n_choices = 1, .choices = choices};
  open_stage("matmul", NULL, 0);
  bs_context *context = (bs_context *)(uintptr_t)&s;
  const bs_op_query q = fx_matmul_query();
  ck_assert_int_eq(bs_op_explain_at(context, "ref", &site, &q, look, first, &err), BS_OK);
  ck_assert_str_eq(first, "matmul@ref/second exp=fast");
  close_stage();
}
END_TEST

int main(void) {
  const test_case tests[] = {{sets_of_values},
                             {declarations_that_are_refused},
                             {settings_that_are_refused},
                             {helpers_of_plugins_read_settings},
                             {a_choice_carries_knobs_to_one_implementation},
                             {an_echo_that_was_given_does_not_change},
                             {without_a_choice_the_standards_serve},
                             {knobs_that_the_named_one_does_not_have},
                             {texts_of_choices_with_knobs},
                             {who_asks_gives_no_knobs},
                             {a_plan_that_does_not_show_what_it_was_told},
                             {an_echo_names_every_knob},
                             {two_knobs_with_one_build},
                             {rehearsals_check_knobs},
                             {explain_tells_the_knobs},
                             {0}};
  return run_tests("op_knob", tests, (test_setup){0});
}
