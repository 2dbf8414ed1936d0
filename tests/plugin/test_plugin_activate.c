/* SPDX-License-Identifier: MIT
 * test_plugin_activate.c - activation: several kinds, host copies, clashes, order of deactivation, two
 * contexts, threads, look-ups by name and alias. */
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

START_TEST(things_of_several_kinds) {
  const char *path = fixture("good");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_thing_info thing;
  bs_context *c = test_open(&log, &path, 1);
  ck_assert_uint_eq(bs_thing_count(c, "good"), 0); /* not opened yet */
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_OK);
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_OK); /* again: nothing to do */
  ck_assert_uint_eq(test_row(c, "good", 0).state, BS_PLUGIN_ACTIVE);
  ck_assert_uint_eq(bs_thing_count(c, "good"), 2);
  memset(&thing, 0, sizeof thing);
  thing.struct_size = (uint32_t)sizeof thing;
  ck_assert_int_eq(bs_thing_get(c, "good", 0, &thing, &err), BS_OK);
  ck_assert_uint_eq(thing.kind, BS_KIND_METHOD);
  ck_assert_str_eq(thing.name, "good_method");
  ck_assert_str_eq(thing.plugin, "good");
  ck_assert_str_eq(thing.aliases, "good_alias, good_other");
  ck_assert_str_eq(thing.at.file, "good.c");
  ck_assert_uint_eq(thing.at.line, 42);
  ck_assert_int_eq(bs_thing_get(c, "good", 1, &thing, &err), BS_OK);
  ck_assert_uint_eq(thing.kind, BS_KIND_WORKLOAD);
  ck_assert_int_eq(bs_thing_get(c, "good", 2, &thing, &err), BS_INVALID_ARGUMENT);
  bs_context_close(c);
}
END_TEST

START_TEST(found_by_name_and_alias) {
  const char *path = fixture("good");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *by_alias = NULL, *by_name = NULL;
  const bs_workload *work = NULL;
  bs_context *c = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_find_method(c, "good_other", &by_alias, NULL, &err), BS_OK);
  ck_assert_int_eq(bs_find_method(c, "good_method", &by_name, NULL, &err), BS_OK);
  ck_assert_ptr_eq(by_alias, by_name);
  ck_assert_int_eq(bs_find_workload(c, "good_work", &work, NULL, &err), BS_OK);
  ck_assert_int_eq(bs_find_workload(c, "good_method", &work, NULL, &err), BS_NOT_FOUND); /* kinds are apart */
  ck_assert_int_eq(bs_find_method(c, "god_method", &by_name, NULL, &err), BS_NOT_FOUND);
  ck_assert_str_eq(err.id, "BS-PLG-NOTFOUND");
  ck_assert_has(err.message, "no method 'god_method'; known: ");
  ck_assert_has(err.message, "good_method");
  ck_assert_has(err.hint, "did you mean 'good_method'?");
  bs_context_close(c);
}
END_TEST

/* The plugin changes its own struct after registering; the host's copy stays as registered. */
START_TEST(host_keeps_its_copy) {
  const char *path = fixture("good");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *m = NULL;
  bs_context *c = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_find_method(c, "good_method", &m, NULL, &err), BS_OK);
  ck_assert_str_eq(m->name, "good_method");
  ck_assert(m->forward != NULL);
  ck_assert(m->backward == NULL);
  ck_assert_uint_eq(m->struct_size, sizeof(bs_method));
  bs_context_close(c);
}
END_TEST

START_TEST(no_registration_outside_activate) {
  const char *path = fixture("good");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state = NULL;
  bs_context *c = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_find_method(c, "good_method", &m, &state, &err), BS_OK);
  ck_assert_int_eq(m->propose(state, NULL, 0, 1, NULL, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-PHASE");
  ck_assert_int_eq(bs_find_method(c, "late", &m, &state, &err), BS_NOT_FOUND);
  bs_context_close(c);
}
END_TEST

START_TEST(clashing_alias) {
  const char *plugins[2] = {fixture("good"), fixture("clash")};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = test_open(&log, plugins, 2);
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_OK);
  ck_assert_int_eq(bs_plugin_activate(c, "clash", &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-DUP");
  ck_assert_has(err.message, "method 'good_other' of plugin clash is already registered by plugin good");
  ck_assert_uint_eq(bs_thing_count(c, "clash"), 0);
  ck_assert_uint_eq(test_row(c, "clash", 0).state, BS_PLUGIN_REFUSED);
  bs_context_close(c);
}
END_TEST

START_TEST(deactivated_in_reverse_order) {
  const char *plugins[2] = {fixture("other"), fixture("good")};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = test_open(&log, plugins, 2);
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_OK);
  ck_assert_int_eq(bs_plugin_activate(c, "other", &err), BS_OK);
  ck_assert_str_eq(log.text, "");
  bs_context_close(c);
  ck_assert_str_eq(log.text, "3 other -1: deactivated\n3 good -1: deactivated\n");
}
END_TEST

START_TEST(failed_plugin_is_not_deactivated) {
  const char *path = fixture("bad");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  setenv("BS_BAD_FAULT", "failing", 1);
  bs_context *c = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_plugin_activate(c, "bad", &err), BS_PLUGIN);
  ck_assert_has(err.message, "BS-FIX-FAIL");
  const bs_method *m = NULL;
  ck_assert_int_ne(bs_find_method(c, "bad_method", &m, NULL, &err), BS_OK);
  ck_assert_int_ne(bs_find_method(c, "bad_alias", &m, NULL, &err), BS_OK);
  bs_context_close(c);
  ck_assert_str_eq(log.text, "");
}
END_TEST

/* One .so in two contexts: a state each, and one closing does not disturb the other. */
START_TEST(two_contexts) {
  const char *path = fixture("good");
  test_log log_a = TEST_LOG_INIT, log_b = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *a = NULL, *b = NULL;
  void *state_a = NULL, *state_b = NULL;
  bs_context *ca = test_open(&log_a, &path, 1), *cb = test_open(&log_b, &path, 1);
  ck_assert_int_eq(bs_find_method(ca, "good_method", &a, &state_a, &err), BS_OK);
  ck_assert_int_eq(bs_find_method(cb, "good_method", &b, &state_b, &err), BS_OK);
  ck_assert_ptr_ne(a, b);
  ck_assert_ptr_ne(state_a, state_b);
  bs_context_close(ca);
  ck_assert_str_eq(log_a.text, "3 good -1: deactivated\n");
  ck_assert_str_eq(log_b.text, "");
  ck_assert_int_eq(bs_find_method(cb, "good_alias", &b, &state_b, &err), BS_OK);
  ck_assert_int_eq(b->propose(state_b, NULL, 0, 1, NULL, &err), BS_PLUGIN); /* its state is alive */
  bs_context_close(cb);
  for (int i = 0; i < 20; i++) { /* and again, many times */
    bs_context *c = test_open(&log_a, &path, 1);
    ck_assert_int_eq(bs_find_method(c, "good_method", &a, &state_a, &err), BS_OK);
    bs_context_close(c);
  }
}
END_TEST

typedef struct finder {
  bs_context *context;
  int failures;
} finder;

static void *find_many(void *arg) {
  finder *f = arg;
  for (int i = 0; i < 50; i++) {
    bs_error err = BS_ERROR_INIT;
    const bs_method *m = NULL;
    const bs_workload *w = NULL;
    bs_plugin_info row;
    void *state = NULL, *instance = NULL;
    bs_workload_request request;
    memset(&request, 0, sizeof request);
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    f->failures += bs_find_method(f->context, i % 2 ? "good_alias" : "other_method", &m, NULL, &err) != BS_OK;
    f->failures += bs_find_workload(f->context, "good_work", &w, &state, &err) != BS_OK;
    if (w != NULL) f->failures += w->open(state, &request, &instance, &err) != BS_UNSUPPORTED;
    f->failures += bs_plugin_get(f->context, 0, &row, &err) != BS_OK;
    f->failures += bs_find_method(f->context, "nobody_has_it", &m, NULL, &err) != BS_NOT_FOUND;
  }
  return NULL;
}

START_TEST(many_threads_one_context) {
  const char *plugins[2] = {fixture("good"), fixture("other")};
  test_log log = TEST_LOG_INIT;
  pthread_t threads[4];
  finder finders[4];
  bs_context *c = test_open(&log, plugins, 2);
  for (int i = 0; i < 4; i++) {
    finders[i].context = c;
    finders[i].failures = 0;
    ck_assert_int_eq(pthread_create(&threads[i], NULL, find_many, &finders[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_eq(finders[i].failures, 0);
  }
  bs_context_close(c);
}
END_TEST

/* A log callback that asks the context while a plugin is being activated does not lock up. */
static bs_context *asking;
static void asking_log(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  int *asked = user;
  (void)level, (void)plugin, (void)rank, (void)message;
  if (asking != NULL) *asked += bs_plugin_count(asking) > 0;
}

START_TEST(log_callback_may_ask) {
  const char *path = fixture("nothing"); /* warns while registering */
  int asked = 0;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  bs_context_options o = test_options(NULL);
  o.plugins = &path;
  o.n_plugins = 1;
  o.log = asking_log;
  o.log_user = &asked;
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_OK);
  asking = c;
  ck_assert_int_eq(bs_plugin_activate(c, "nothing", &err), BS_OK);
  ck_assert_int_gt(asked, 0);
  asking = NULL;
  bs_context_close(c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{things_of_several_kinds},
                             {found_by_name_and_alias},
                             {host_keeps_its_copy},
                             {no_registration_outside_activate},
                             {clashing_alias},
                             {deactivated_in_reverse_order},
                             {failed_plugin_is_not_deactivated},
                             {two_contexts},
                             {many_threads_one_context},
                             {log_callback_may_ask},
                             {0}};
  return run_tests("plugin_activate", tests, (test_setup){0});
}
