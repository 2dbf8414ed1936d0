/* SPDX-License-Identifier: MIT
 * test_choose_history.c - the file of measured points: each line is judged by itself, failures are kept, a
 * value more or less voids no other line; and replays of such a file. */
#include <math.h>

#include "lab/choose/history.h"
#include "lab/choose/replay.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static char path[600];
static bs_space space;
static json_t *machine, *settings;

static void before(void) {
  bs_error err = BS_ERROR_INIT;
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/points.jsonl", dir);
  machine = json_pack("{s:s,s:i}", "cpu", "a cpu", "cores", 2);
  settings = json_pack("{s:{s:s}}", "cpu", "isa", "avx2");
  bs_space_init(&space);
  ck_assert_int_eq(bs_space_add(&space, "keys", "16,64,256", "auto", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(&space, "exp", "exact,fast", "exact", &err), BS_OK);
}

static void after(void) {
  json_decref(machine);
  json_decref(settings);
  remove_dir(dir);
}

static bs_history_key key_of(const char *problem) {
  return (bs_history_key){.problem = problem,
                          .provider = "cpu:online",
                          .plugin = "0123",
                          .how = "own kernels",
                          .backend = "cpu",
                          .regime = "hot",
                          .threads = 2,
                          .machine = machine,
                          .settings = settings,
                          .space = &space};
}

static void open_history(const bs_history_key *key, bs_history *out) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_history_open(path, key, out, &err) == BS_OK, "%s", err.message);
}

static json_t *result(int effort, double seconds, const char *verdict) {
  return json_pack("{s:i,s:f,s:s,s:s}", "effort", effort, "seconds", seconds, "verdict", verdict, "cause",
                   strcmp(verdict, "ok") == 0 ? "" : "it crashed");
}

static void add(bs_history *h, uint64_t point, int effort, double seconds, const char *verdict) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_history_add(h, point, result(effort, seconds, verdict), &err) == BS_OK, "%s", err.message);
}

static double seconds_of(const bs_history *h, uint64_t point) {
  const json_t *e = bs_history_find(h, point);
  return e != NULL ? bs_history_seconds(e) : -1.0;
}

START_TEST(what_was_measured_is_found_again) {
  const bs_history_key key = key_of("p");
  bs_history h;
  open_history(&key, &h);
  ck_assert_double_eq(seconds_of(&h, 0), -1.0);
  add(&h, 0, 0, 1e-3, "ok");
  add(&h, 1, 0, 0.0, "failed");
  add(&h, 2, 0, 2e-3, "ok");
  add(&h, 2, 1, 3e-3, "ok");
  add(&h, 2, 0, 4e-3, "ok"); /* newer, but less was spent on it */
  add(&h, 3, 0, 1e-9, "wrong");
  for (int again = 0; again < 2; again++) {
    ck_assert_double_eq(seconds_of(&h, 0), 1e-3);
    ck_assert(isinf(seconds_of(&h, 1)));
    ck_assert_double_eq(seconds_of(&h, 2), 3e-3);
    ck_assert(isinf(seconds_of(&h, 3)));
    ck_assert_double_eq(seconds_of(&h, 4), -1.0);
    ck_assert_str_eq(json_string_value(json_object_get(bs_history_find(&h, 1), "cause")), "it crashed");
    ck_assert_uint_eq(json_array_size(h.lines.entries), 6);
    bs_history_close(&h);
    if (again == 0) open_history(&key, &h); /* and from the file */
  }
}
END_TEST

START_TEST(lines_of_others_are_skipped) {
  bs_history h;
  bs_history_key key = key_of("p");
  json_t *other = json_pack("{s:s,s:i}", "cpu", "another", "cores", 2);
  open_history(&key, &h);
  add(&h, 0, 0, 1e-3, "ok");
  bs_history_close(&h);
  json_t *portable = json_pack("{s:{s:s}}", "cpu", "isa", "portable");
  for (int i = 0; i < 9; i++) {
    key = key_of("p");
    if (i == 0) key.problem = "q";
    if (i == 1) key.provider = "cpu:dnnl";
    if (i == 2) key.plugin = "4567"; /* rebuilt */
    if (i == 3) key.regime = "cold";
    if (i == 4) key.threads = 1;
    if (i == 5) key.machine = other;
    if (i == 6) key.settings = portable; /* --set plugins.cpu.isa=portable */
    if (i == 7) key.how = "oneDNN 3.2.0 (OpenMP)";
    if (i == 8) key.backend = "ref";
    open_history(&key, &h);
    ck_assert_double_eq(seconds_of(&h, 0), -1.0);
    ck_assert_uint_eq(h.lines.foreign, 1);
    bs_history_close(&h);
  }
  json_decref(other);
  json_decref(portable);
}
END_TEST

/* Nobody knows by what parameters they were measured. */
START_TEST(lines_before_how_and_settings_are_foreign) {
  static const char *const without[] = {"how", "settings"};
  for (int i = 0; i < 2; i++) {
    bs_history h;
    const bs_history_key key = key_of("p");
    open_history(&key, &h);
    add(&h, 0, 0, 1e-3, "ok");
    json_t *line = json_deep_copy(bs_history_find(&h, 0));
    bs_history_close(&h);
    json_object_del(line, without[i]);
    ck_assert_int_eq(json_dump_file(line, path, JSON_COMPACT), 0);
    json_decref(line);
    open_history(&key, &h);
    ck_assert_double_eq(seconds_of(&h, 0), -1.0);
    ck_assert_uint_eq(h.lines.foreign, 1);
    bs_history_close(&h);
  }
}
END_TEST

/* triton#9822: a value more voids nothing; a value that is gone voids its own lines alone. */
START_TEST(each_line_is_judged_by_itself) {
  bs_history h;
  bs_error err = BS_ERROR_INIT;
  const bs_history_key key = key_of("p");
  open_history(&key, &h);
  for (uint64_t p = 0; p < space.size; p++) add(&h, p, 0, 1e-3 * (double)(p + 1), "ok");
  bs_history_close(&h);
  bs_space_init(&space);
  ck_assert_int_eq(bs_space_add(&space, "exp", "exact,fast,poly", "exact", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(&space, "keys", "16,64,512", "auto", &err), BS_OK);
  open_history(&key, &h);
  ck_assert_uint_eq(json_array_size(h.lines.entries), 4);
  uint64_t p = 0;
  ck_assert(bs_space_find(&space, "keys=64;exp=fast", &p));
  ck_assert_double_eq(seconds_of(&h, p), 4e-3);
  ck_assert(bs_space_find(&space, "keys=64;exp=poly", &p));
  ck_assert_double_eq(seconds_of(&h, p), -1.0);
  bs_history_close(&h);
  ck_assert_int_eq(bs_space_add(&space, "warps", "1,2", "1", &err), BS_OK); /* another kernel than before */
  open_history(&key, &h);
  ck_assert_uint_eq(json_array_size(h.lines.entries), 0);
  bs_history_close(&h);
}
END_TEST

START_TEST(broken_lines_harm_nobody) {
  const bs_history_key key = key_of("p");
  bs_history h;
  open_history(&key, &h);
  add(&h, 0, 0, 1e-3, "ok");
  bs_history_close(&h);
  FILE *f = fopen(path, "a");
  ck_assert_ptr_nonnull(f);
  fputs("{\"format\":1,\"problem\":\"p\"}\nnonsense\n[1]\n{\"format\":1,\"verdict\":\"ok\",\"seconds\":-1",
        f);
  fclose(f);
  open_history(&key, &h);
  ck_assert_uint_eq(h.lines.broken, 4);
  add(&h, 1, 0, 2e-3, "ok"); /* behind a torn line */
  bs_history_close(&h);
  open_history(&key, &h);
  ck_assert_double_eq(seconds_of(&h, 0), 1e-3);
  ck_assert_double_eq(seconds_of(&h, 1), 2e-3);
  bs_history_close(&h);
}
END_TEST

START_TEST(a_file_is_replayed) {
  static const double at[] = {9e-3, 8e-3, 4e-3, 2e-3, 3e-3, 0.0};
  const bs_history_key p = key_of("p");
  bs_history_key q = key_of("q");
  bs_history h;
  bs_replay r;
  bs_replayed got;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_replay_open(path, NULL, NULL, &r, &err), BS_INPUT);
  ck_assert_ptr_nonnull(strstr(err.message, "No such file"));
  bs_replay_free(&r);
  write_text(dir, "points.jsonl", "");
  ck_assert_int_eq(bs_replay_open(path, NULL, NULL, &r, &err), BS_NOT_FOUND);
  bs_replay_free(&r);
  open_history(&p, &h);
  for (uint64_t i = space.size; i-- > 0;) add(&h, i, 0, at[i], at[i] > 0 ? "ok" : "failed");
  bs_history_close(&h);
  open_history(&q, &h);
  add(&h, 5, 0, 1e-3, "ok");
  bs_history_close(&h);

  q.provider = "cpu:dnnl"; /* the last line's; another one is asked for by name */
  open_history(&q, &h);
  add(&h, 4, 0, 1e-3, "ok");
  bs_history_close(&h);
  ck_assert_int_eq(bs_replay_open(path, "q", "cpu:online", &r, &err), BS_OK);
  ck_assert_str_eq(r.of, "q cpu:online");
  bs_replay_free(&r);
  ck_assert_int_eq(bs_replay_open(path, "p", "cpu:dnnl", &r, &err), BS_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "no points of p by cpu:dnnl"));
  bs_replay_free(&r);

  ck_assert_int_eq(bs_replay_open(path, "p", NULL, &r, &err), BS_OK);
  ck_assert_str_eq(r.of, "p cpu:online");
  ck_assert_uint_eq(r.space.size, 6);
  ck_assert_uint_eq(r.present, 6);
  ck_assert_uint_eq(r.failed, 1);
  char text[BS_SPACE_TEXT];
  ck_assert_str_eq(bs_space_text(&r.space, r.best, text, sizeof text), "keys=64;exp=fast");
  const bs_replay_options o = {.strategy = BS_STRATEGY_FULL, .repeats = 3, .goal = 0.95};
  ck_assert_int_eq(bs_replay_run(&r, &o, &got, &err), BS_OK);
  ck_assert_uint_eq(got.reached, 3);
  ck_assert_double_eq(got.found, 1.0);
  ck_assert_double_eq(got.measured, 1.0);
  bs_replay_free(&r);

  ck_assert_int_eq(bs_replay_open(path, NULL, NULL, &r, &err), BS_OK); /* the last line's */
  ck_assert_str_eq(r.of, "q cpu:dnnl");
  ck_assert_uint_eq(r.space.size, 1);
  bs_replay_free(&r);
  /* a knob of numbers and words: the numbers rise, the words stand behind them */
  static const char *const rising[] = {"1", "6", "64", "auto", "off"};
  bs_space mixed;
  bs_space_init(&mixed);
  ck_assert_int_eq(bs_space_add(&mixed, "ahead", "64,off,6,auto,1", "off", &err), BS_OK);
  q.problem = "m";
  q.space = &mixed;
  open_history(&q, &h);
  for (uint64_t i = 0; i < mixed.size; i++) add(&h, i, 0, 1e-3, "ok");
  bs_history_close(&h);
  ck_assert_int_eq(bs_replay_open(path, "m", NULL, &r, &err), BS_OK);
  for (uint32_t i = 0; i < 5; i++) ck_assert_str_eq(r.space.knob[0].value[i], rising[i]);
  bs_replay_free(&r);
  ck_assert_int_eq(bs_replay_open(path, "s", NULL, &r, &err), BS_NOT_FOUND);
  ck_assert_str_eq(err.id, "BS-TUNE-REPLAY");
  bs_replay_free(&r);
}
END_TEST

int main(void) {
  const test_case rows[] = {{what_was_measured_is_found_again},
                            {lines_of_others_are_skipped},
                            {lines_before_how_and_settings_are_foreign},
                            {each_line_is_judged_by_itself},
                            {broken_lines_harm_nobody},
                            {a_file_is_replayed},
                            {0}};
  return run_tests("choose_history", rows, (test_setup){.before = before, .after = after});
}
