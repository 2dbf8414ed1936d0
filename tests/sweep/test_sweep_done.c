/* SPDX-License-Identifier: MIT
 * test_sweep_done.c - what a resumed sweep takes from the runs that are there: right ones are done, wrong
 * ones are told again as failed, those that broke off run again. */
#include "lab/run/planned.h"
#include "lab/store/store.h"
#include "lab/sweep/sweep.h"
#include "lab/sweep/tuned.h"
#include "lab/yaml/config.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"
#include "tests/sweep/points.h"

static bs_context *context;
static char root[500];

static void set_up(void) {
  bs_error err = BS_ERROR_INIT;
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  snprintf(root, sizeof root, "%.499s", scratch_dir());
}

static void tear_down(void) {
  bs_context_close(context);
  remove_dir(root);
}

/* A committed run of point i. gate: what its one gate says, or NULL. */
static void commit(const char *key, int i, const char *status, const char *gate) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  bs_node *config = bs_config_new_map();
  const bs_run_request q = {.out_dir = root,
                            .group = "s",
                            .phase = "phase0_correctness",
                            .method = "dense",
                            .key = key,
                            .config = config,
                            .env = "{}\n"};
  json_t *record =
      json_pack("{s:s, s:s, s:i, s:s, s:b, s:[]}", "request_key", key, "phase", "phase0_correctness", "point",
                i, "status", status, "passed", strcmp(status, "ok") == 0, "gates");
  if (gate != NULL)
    json_array_append_new(json_object_get(record, "gates"),
                          json_pack("{s:s, s:s}", "name", "forward", "state", gate));
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
  ck_assert_int_eq(bs_store_commit(run, status, &err), BS_OK);
  json_decref(record);
  bs_config_free(config);
}

static const char *key_of(const bs_sweep *s, size_t i) {
  return json_string_value(json_object_get(json_array_get(s->points, i), "request_key"));
}

START_TEST(a_resumed_sweep_tells_what_was_wrong_and_runs_what_broke_off) {
  static const struct {
    const char *status, *gate, *again; /* again: status of a second run */
    int state, code;
  } rows[] = {{"ok", "pass", NULL, BS_POINT_BEFORE, 0},
              {"not passed", "fail", NULL, BS_POINT_FAILED, 6},
              {"not passed", "none", NULL, BS_POINT_FAILED, 15},
              {"failed", NULL, NULL, BS_POINT_LEFT, 0},
              {"failed", NULL, "ok", BS_POINT_BEFORE, 0},
              {"ok", "pass", "failed", BS_POINT_BEFORE, 0},
              {NULL, NULL, NULL, BS_POINT_LEFT, 0}};
  enum { N = sizeof rows / sizeof rows[0] };
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, N), &s, &err), BS_OK);
  for (int i = 0; i < N; i++) {
    if (rows[i].status != NULL) commit(key_of(&s, (size_t)i), i, rows[i].status, rows[i].gate);
    if (rows[i].again != NULL) commit(key_of(&s, (size_t)i), i, rows[i].again, "pass");
  }
  bs_sweep_close(&s);
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_OK);
  for (size_t i = 0; i < N; i++) {
    ck_assert_msg(s.outcomes[i].state == rows[i].state, "point %zu: %d", i, s.outcomes[i].state);
    ck_assert_int_eq(s.outcomes[i].code, rows[i].code);
    ck_assert_int_eq(s.outcomes[i].said != NULL, rows[i].code != 0);
  }
  bs_sweep_close(&s);
}
END_TEST

START_TEST(runs_of_another_build_count_when_asked_for) {
  static const char other[] = "00000000000000000000000000000000000000000000000000000000000000aa";
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, 2), &s, &err), BS_OK);
  bs_sweep_close(&s);
  commit(other, 0, "ok", "pass");
  commit(other, 1, "failed", NULL);
  for (int any = 0; any < 2; any++) {
    ck_assert_int_eq(bs_sweep_resume(root, "s", context, any, &s, &err), BS_OK);
    ck_assert_uint_eq(s.other_build, 1);
    ck_assert_int_eq(s.outcomes[0].state, any ? BS_POINT_BEFORE : BS_POINT_LEFT);
    ck_assert_int_eq(s.outcomes[1].state, BS_POINT_LEFT);
    bs_sweep_close(&s);
  }
}
END_TEST

static json_t *methods(bs_context *of, bs_error *err) {
  static const char *const sets[] = {"phase.name=phase0_correctness", "model.N=64"};
  const bs_compose_request q = {.sets = sets, .n_sets = 2};
  json_t *points = NULL, *settings = json_pack("[{s:s}, {s:s}, {s:s}]", "method.name", "dense", "method.name",
                                               "blockshock", "method.name", "row_parallel");
  ck_assert_msg(bs_points_make(&q, of, settings, &points, err) == BS_OK, "%s", err->message);
  json_decref(settings);
  return points;
}

/* A configuration that is no text ends the process that asks, as a plugin may that crashes when it is opened.
 */
START_TEST(a_point_that_ends_who_asks_costs_its_own_answer) {
  bs_error err = BS_ERROR_INIT;
  json_t *points = methods(context, &err);
  json_array_set_new(json_object_get(json_array_get(points, 1), "configs"), 0, json_null());
  ck_assert_msg(bs_points_check(context, NULL, NULL, points, &err) == BS_OK, "%s", err.message);
  for (size_t i = 0; i < 3; i++) {
    const json_t *point = json_array_get(points, i);
    ck_assert_int_eq(json_is_true(json_object_get(point, "unchecked")), i == 1);
    ck_assert_int_eq(json_is_true(json_object_get(point, "alone")), i == 1); /* phase 0 need not be */
    ck_assert_msg(json_is_null(json_object_get(point, "refused")), "%s",
                  json_string_value(json_object_get(point, "refused")));
  }
  ck_assert_uint_eq(bs_points_unchecked(points), 1);
  json_decref(points);
}
END_TEST

/* One was refused and can run by now; one still cannot. */
START_TEST(refused_points_are_asked_again) {
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  json_t *points = methods(context, &err);
  json_object_set_new(json_array_get(points, 0), "refused", json_string("[BS-RUN-MEMORY] of before"));
  json_object_set_new(json_array_get(points, 1), "refused", json_string("[BS-RUN-MEMORY] of before"));
  json_array_set_new(json_object_get(json_array_get(points, 1), "configs"), 0, json_string("model: [1]\n"));
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), points, &s, &err), BS_OK);
  ck_assert_int_eq(s.outcomes[0].state, BS_POINT_REFUSED);
  ck_assert_int_eq(bs_sweep_ask_again(&s, context, NULL, NULL, &err), BS_OK);
  ck_assert_int_eq(s.outcomes[0].state, BS_POINT_LEFT);
  ck_assert_int_eq(s.outcomes[1].state, BS_POINT_REFUSED);
  ck_assert_int_eq(s.outcomes[2].state, BS_POINT_LEFT);
  bs_sweep_close(&s);
}
END_TEST

/* Is the choice of a line in tuned.jsonl pinned? */
static int is_pinned(const char *id, const char *key) {
  static const char layer[] = "00000000000000000000000000000000000000000000000000000000000000bb";
  static const char *const words[] = {"true", NULL};
  const bs_sweep_options o = {.program = "/bin/true", .words = words, .jobs = 1};
  char line[800];
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  int number = 0;
  json_t *points = make_points(context, 1);
  json_object_set_new(json_array_get(points, 0), "layer", json_string(layer));
  ck_assert_int_eq(bs_sweep_begin(root, id, json_object(), points, &s, &err), BS_OK);
  snprintf(line, sizeof line,
           "{\"layer\":\"%s\",\"build\":\"%s\",\"request_key\":\"%s\",\"choices\":[\"a\"]}\n", layer,
           bs_build_id(), key != NULL ? key : key_of(&s, 0));
  write_text(s.folder.path, "tuned.jsonl", line);
  ck_assert_msg(bs_tuned_make(&s, &o, &number, &err) == BS_OK, "%s", err.message);
  const int pinned = json_object_get(s.choices, layer) != NULL;
  bs_sweep_close(&s);
  return pinned;
}

START_TEST(a_choice_of_a_plugin_that_was_rebuilt_is_not_pinned) {
  static const char other[] = "00000000000000000000000000000000000000000000000000000000000000aa";
  ck_assert_int_eq(is_pinned("now", NULL), 1);
  ck_assert_int_eq(is_pinned("other", other), 0);
}
END_TEST

START_TEST(a_point_carries_the_command_of_its_sweep) {
  char path[700];
  bs_error err = BS_ERROR_INIT;
  lab_planned planned;
  json_t *header = json_pack("{s:s}", "command", "bsrun sweep -x N=1"), *points = make_points(context, 1);
  char *input = bs_point_input(root, "s", header, json_array_get(points, 0), NULL, 0);
  write_text(root, "point", input);
  snprintf(path, sizeof path, "%s/point", root);
  ck_assert_msg(lab_planned_read(path, &planned, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(planned.command, "bsrun sweep -x N=1");
  lab_planned_free(&planned);
  free(input);
  json_decref(points);
  json_decref(header);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_resumed_sweep_tells_what_was_wrong_and_runs_what_broke_off},
                             {runs_of_another_build_count_when_asked_for},
                             {a_point_that_ends_who_asks_costs_its_own_answer},
                             {refused_points_are_asked_again},
                             {a_point_carries_the_command_of_its_sweep},
                             {a_choice_of_a_plugin_that_was_rebuilt_is_not_pinned},
                             {0}};
  return run_tests("sweep_done", tests, (test_setup){.before = set_up, .after = tear_down});
}
