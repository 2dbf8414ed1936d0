/* SPDX-License-Identifier: MIT
 * test_tune_keep.c - what becomes of a measured choice when the phase with it has ended: the gates' word is
 * said of the method's products alone, and without a word nothing is kept, neither in the file nor for the
 * next point of a sweep; nor what would be otherwise with more time. */
#include "lab/config/experiment.h"
#include "lab/tune/internal.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static char path[700], said[1024];
static bs_tuner *tuner;

static void note(void *user, const char *text) {
  (void)user;
  snprintf(said, sizeof said, "%s", text);
}

static void setup(void) {
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/tuning.jsonl", dir);
  const bs_tuner_options options = {.path = path, .note = note, .detail = note};
  ck_assert_int_eq(bs_tuner_open(NULL, &options, &tuner, NULL), BS_OK);
}
static void teardown(void) {
  bs_tuner_close(tuner);
  remove_dir(dir);
}

static json_t *asked(const char *key) {
  return json_pack("{s:s,s:s,s:[{s:s,s:s,s:s},{s:s,s:s,s:s}]}", "key", key, "default", "cpu:packed",
                   "candidates", "name", "cpu:packed", "how", "avx2", "plugin", "aa", "name", "cpu:dnnl",
                   "how", "oneDNN", "plugin", "aa");
}

/* As measuring leaves it: cpu:dnnl won in world `arm`. */
static void measured(const char *key, int arm) {
  json_t *e = json_pack("{s:i,s:s,s:O}", "format", 1, "choice", "cpu:dnnl", "machine", tuner->cache.machine);
  ck_assert_int_eq(json_object_update_new(e, asked(key)), 0);
  json_object_set_new(e, "pending", json_integer(arm));
  ck_assert_int_eq(json_array_append_new(tuner->cache.lines.entries, e), 0);
}

/* What a cache knows of the key: a new reference, NULL nothing. */
static json_t *found_in(const bs_tune_cache *cache, const char *key) {
  json_t *of = asked(key);
  const json_t *e = bs_tune_cache_find(cache, of, NULL);
  json_decref(of);
  return e != NULL ? json_deep_copy(e) : NULL;
}

/* In the file, as another process will see it. */
static json_t *kept(const char *key) {
  bs_tune_cache cache;
  ck_assert_int_eq(bs_tune_cache_open(path, &cache, NULL), BS_OK);
  ck_assert_uint_eq(cache.lines.broken, 0);
  json_t *e = found_in(&cache, key);
  bs_tune_cache_close(&cache);
  return e;
}

static void must_keep(const char *key, const char *choice, int judged, const char *failed) {
  json_t *e = kept(key);
  ck_assert_ptr_nonnull(e);
  const json_t *dnnl = json_array_get(json_object_get(e, "candidates"), 1);
  const char *why = json_string_value(json_object_get(dnnl, "failed"));
  ck_assert_str_eq(json_string_value(json_object_get(e, "choice")), choice);
  ck_assert_int_eq(json_is_true(json_object_get(e, "judged")), judged);
  ck_assert_ptr_null(json_object_get(e, "pending"));
  ck_assert_str_eq(why != NULL ? why : "", failed);
  json_decref(e);
}

/* How phase 0 ended, and what is kept of the method's product; that of the peer stays as it is. */
static const struct {
  int judged;
  const char *wrong, *choice;
  int kept_judged;
} ends[] = {
    {1, NULL, "cpu:dnnl", 1},
    {1, "gate T1 failed", "cpu:packed", 0},
    {0, NULL, "cpu:dnnl", 0}, /* there was none */
};

START_TEST(the_gates_judge_the_method) {
  const char *wrong = ends[_i].wrong;
  measured("one", 0);
  measured("peer", _i == 1 ? 2 : 1);
  bs_tuner_keep(tuner, ends[_i].judged, wrong);
  must_keep("one", ends[_i].choice, ends[_i].kept_judged, wrong != NULL ? wrong : "");
  must_keep("peer", "cpu:dnnl", 0, ""); /* phase 0 ran no dense peer */
  ck_assert_ptr_nonnull(strstr(said, "kept in"));
}
END_TEST

/* The next point of the sweep finds nothing of it, and its gates judge only what is its own. */
START_TEST(without_a_verdict_it_is_forgotten) {
  measured("before", 0);
  bs_tuner_keep(tuner, 1, NULL);
  measured("one", 0);
  measured("peer", 1);
  bs_tuner_drop(tuner);
  ck_assert_msg(strstr(said, "not kept") != NULL, "%s", said);
  ck_assert_uint_eq(json_array_size(tuner->cache.lines.entries), 1);
  json_t *before = found_in(&tuner->cache, "before");
  ck_assert_ptr_nonnull(before);
  json_decref(before);
  ck_assert_ptr_null(found_in(&tuner->cache, "one"));
  measured("next", 0);
  bs_tuner_keep(tuner, 1, NULL);
  ck_assert_ptr_null(kept("one"));
  ck_assert_ptr_null(kept("peer"));
  must_keep("next", "cpu:dnnl", 1, "");
  said[0] = '\0';
  bs_tuner_drop(tuner); /* nothing to forget, nothing to say */
  ck_assert_str_eq(said, "");
}
END_TEST

/* bsrun's two implementations for ref, heavy (the default) and hollow (the faster one), beside its own. */
static bs_context *with_pair(void) {
  static char pair[700];
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  snprintf(pair, sizeof pair, "%s/tests/pair1/bs_pair.so", getenv("BS_TEST_BINARY_DIR"));
  const char *const plugins[] = {"ref", pair}, *const dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  const bs_context_options options = {.struct_size = sizeof options,
                                      .trust = BS_TRUST_ANY,
                                      .plugins = plugins,
                                      .n_plugins = 2,
                                      .n_plugin_dirs = 1,
                                      .plugin_dirs = dirs,
                                      .log_level = BS_LOG_ERROR};
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

/* Decides a layer in so many seconds; its only decision, a new reference. */
static json_t *decided(bs_context *context, double seconds) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  bs_node *tree = parse_tree(
      "method: {name: dense, bias: false}\nmodel: {N: 64, B: 8, dtype: f32}\n"
      "phase: {name: phase1_forward, dense_arm: false}\n"
      "hardware: {backend: ref}\ntune: {min_work: 0}\n");
  ck_assert_msg(bs_experiment_make(context, tree, NULL, NULL, &e, &err) == BS_OK, "%s", err.message);
  e.tune_seconds = seconds;
  tuner->context = context;
  ck_assert_msg(bs_tuner_choose(tuner, &e, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(json_array_size(e.choice_record), 1);
  json_t *row = json_incref(json_array_get(e.choice_record, 0));
  ck_assert_msg(json_array_size(json_object_get(row, "candidates")) == 3, "%s",
                json_string_value(json_object_get(row, "why")));
  bs_experiment_free(&e);
  return row;
}

/* The default serves for now, and nothing is kept. */
static void must_be_default(json_t *row, const char *why, const char *told) {
  ck_assert_str_eq(bs_tune_text(row, "origin"), "default");
  ck_assert_str_eq(bs_tune_text(row, "choice"), "pair:heavy");
  ck_assert_msg(strstr(bs_tune_text(row, "why"), why) != NULL, "%s", bs_tune_text(row, "why"));
  ck_assert_msg(strstr(said, told) != NULL, "%s", said);
  ck_assert_uint_eq(json_array_size(tuner->cache.lines.entries), 0);
  json_decref(row);
}

/* Whether packing is too slow is a matter of tune.seconds: another run may give it more. */
START_TEST(too_slow_to_pack_is_not_for_ever) {
  bs_context *context = with_pair();
  must_be_default(decided(context, 1e-9), "packing took", "packing took");
  /* a machine that does something else meanwhile must not leave it unclear */
  json_t *row = decided(context, 0.6);
  ck_assert_str_eq(bs_tune_text(row, "origin"), "measured");
  const json_t *arm = json_object_get(json_array_get(tuner->cache.lines.entries, 0), "pending");
  ck_assert(json_is_integer(arm) && json_integer_value(arm) == 0);
  json_decref(row);
  bs_context_close(context);
}
END_TEST

/* Nor is it for ever that there was no memory for one of them. */
START_TEST(no_memory_today_is_not_for_ever) {
  ck_assert_int_eq(setenv("BS_PAIR_FULL", "1", 1), 0);
  bs_context *context = with_pair();
  must_be_default(decided(context, 0.6), "no memory for nothing", "nothing is kept");
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_gates_judge_the_method, TEST_COUNT(ends)},
                             {without_a_verdict_it_is_forgotten},
                             {too_slow_to_pack_is_not_for_ever},
                             {no_memory_today_is_not_for_ever},
                             {0}};
  return run_tests("tune_keep", tests, (test_setup){setup, teardown});
}
