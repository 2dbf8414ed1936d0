/* SPDX-License-Identifier: MIT
 * test_plugin_params.c - plugin parameters: default, environment and configuration, their order, wrong
 * values, unknown names. */
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

static int32_t open_with(const char *const *params, uint32_t n, bs_context **out, bs_error *err) {
  static test_log log = TEST_LOG_INIT;
  const char *path = fixture("good");
  bs_context_options o = test_options(&log);
  o.plugins = &path;
  o.n_plugins = 1;
  o.params = params;
  o.n_params = n;
  bs_error_clear(err);
  int32_t rc = bs_context_open(&o, out, err);
  return rc == BS_OK ? bs_plugin_activate(*out, "good", err) : rc;
}

/* The values as the plugin sees them. */
static void values_are(bs_context *c, const char *expected) {
  const bs_workload *w = NULL;
  void *state = NULL, *instance = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_workload_request request;
  memset(&request, 0, sizeof request);
  ck_assert_int_eq(bs_find_workload(c, "good_work", &w, &state, &err), BS_OK);
  ck_assert_int_eq(w->open(state, &request, &instance, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-FIX-PARAMS");
  ck_assert_has(err.message, expected);
}

static bs_param_info param(bs_context *c, const char *name) {
  bs_param_info info;
  for (uint32_t i = 0; i < bs_param_count(c, "good"); i++) {
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    ck_assert_int_eq(bs_param_info_get(c, "good", i, &info, NULL), BS_OK);
    if (strcmp(info.desc.name, name) == 0) return info;
  }
  ck_abort_msg("no parameter %s", name);
  return info;
}

START_TEST(defaults) {
  bs_context *c = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(open_with(NULL, 0, &c, &err), BS_OK);
  values_are(c, "size=4096 scale=1.5 fast=0 mode=auto");
  ck_assert_uint_eq(bs_param_count(c, "good"), 4);
  ck_assert_str_eq(param(c, "size").value_text, "4Ki");
  ck_assert_str_eq(param(c, "size").origin, "default");
  ck_assert_str_eq(param(c, "size").desc.doc, "how large");
  bs_context_close(c);
}
END_TEST

START_TEST(environment_and_configuration) {
  static const char *const params[] = {"good.size=3", "good.mode=on", "good.size=64Ki"};
  bs_context *c = NULL;
  bs_error err = BS_ERROR_INIT;
  setenv("BS_GOOD_SIZE", "17", 1);
  setenv("BS_GOOD_FAST", "true", 1);
  ck_assert_int_eq(open_with(NULL, 0, &c, &err), BS_OK);
  values_are(c, "size=17 scale=1.5 fast=1 mode=auto");
  ck_assert_str_eq(param(c, "size").origin, "environment");
  bs_context_close(c);
  ck_assert_int_eq(open_with(params, 3, &c, &err), BS_OK);
  values_are(c, "size=65536 scale=1.5 fast=1 mode=on"); /* the configuration wins, and in it the last */
  ck_assert_str_eq(param(c, "size").origin, "config");
  ck_assert_str_eq(param(c, "size").value_text, "64Ki");
  ck_assert_str_eq(param(c, "fast").origin, "environment");
  bs_context_close(c);
}
END_TEST

typedef struct wrong {
  const char *variable, *value;
  const char *setting;
  const char *text;
} wrong;

static const wrong wrongs[] = {
    {"BS_GOOD_SIZE", "0", NULL, "BS_GOOD_SIZE=0 (environment): must be an integer of 1..1M, in bytes"},
    {"BS_GOOD_SIZE", "2M", NULL, "1..1M"},
    {"BS_GOOD_SIZE", "", NULL, "must be an integer"},
    {"BS_GOOD_SIZE", "12x", NULL, "must be an integer"},
    {"BS_GOOD_SIZE", "99999999999999999999", NULL, "must be an integer"},
    {"BS_GOOD_SCALE", "nan", NULL, "BS_GOOD_SCALE=nan (environment): must be a number of 0..10"},
    {"BS_GOOD_FAST", "maybe", NULL, "must be true or false"},
    {NULL, NULL, "good.size=-1", "plugins.good.size=-1 (config): must be an integer"},
    {NULL, NULL, "good.scale=10.5", "must be a number of 0..10"},
    {NULL, NULL, "good.mode=onn", "must be a text of auto|on|off"},
    {NULL, NULL, "good.mode=", "must be a text of auto|on|off"},
    {NULL, NULL, "good.sise=1", "plugin good has no parameter 'sise'"},
    {NULL, NULL, "goood.size=1", "no plugin 'goood' is found"},
    {NULL, NULL, "size=1", "is not id.name=value"},
    {NULL, NULL, "good.size", "is not id.name=value"},
};

START_TEST(wrong_values) {
  const wrong *w = &wrongs[_i];
  bs_context *c = NULL;
  bs_error err = BS_ERROR_INIT;
  if (w->variable != NULL) setenv(w->variable, w->value, 1);
  int32_t rc = open_with(w->setting != NULL ? &w->setting : NULL, w->setting != NULL, &c, &err);
  ck_assert_int_eq(rc, BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-PLG-PARAM");
  ck_assert_has(err.message, w->text);
  if (w->setting != NULL && strstr(w->setting, "sise") != NULL)
    ck_assert_has(err.hint, "did you mean 'size'?");
  if (w->setting != NULL && strstr(w->setting, "goood") != NULL)
    ck_assert_has(err.hint, "did you mean 'good'?");
  if (c != NULL) { /* nothing of the plugin stayed */
    ck_assert_uint_eq(bs_param_count(c, "good"), 0);
    ck_assert_uint_eq(bs_thing_count(c, "good"), 0);
  }
  bs_context_close(c);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {defaults}, {environment_and_configuration}, {wrong_values, TEST_COUNT(wrongs)}, {0}};
  return run_tests("plugin_params", tests, (test_setup){0});
}
