/* SPDX-License-Identifier: MIT
 * test_bsrun_sweep.c - the sweep verb: the plan, duplicates, refused points, failures, going on after kills
 * of the program itself, and after a plugin was rebuilt. */
#include <dirent.h>
#include <jansson.h>
#include <sys/prctl.h>

#include "tests/child.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

#define QUICK "--phase", "0", "--set", "phase.timed_iters=1", "--set", "phase.warmup_iters=0"

static void set_up(void) {
  if (access("/dev/shm", W_OK) == 0)
    setenv("TMPDIR", "/dev/shm", 1); /* each run is synced: a disk takes long */
  dir = scratch_dir();
}

static void tear_down(void) {
  remove_dir(dir);
}

static json_t *rows_of(const ran *r) {
  json_t *rows = json_loads(r->out, 0, NULL);
  ck_assert_msg(json_is_array(rows), "%s\n%s", r->out, r->err);
  return rows;
}

static const char *cell(const json_t *rows, size_t i, const char *key) {
  const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
  return text != NULL ? text : "";
}

START_TEST(a_dry_run_shows_the_plan_and_makes_nothing) {
  ran r = bsrun(dir, "sweep", "-x", "N=64,80000000", "-x", "method=dense,blockshock", "-x",
                "mask=complement_1100_0011,interleave", "--phase", "0", "--dry-run", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 8);
  ck_assert_str_eq(cell(rows, 0, "plan"), "run");
  ck_assert_str_eq(cell(rows, 1, "plan"), "same as 0"); /* dense has no use for a mask */
  ck_assert_str_eq(cell(rows, 3, "plan"), "run");
  ck_assert_msg(strstr(cell(rows, 4, "plan"), "refused: [BS-RUN-MEMORY]") != NULL, "%s",
                cell(rows, 4, "plan"));
  ck_assert_str_eq(cell(rows, 4, "model.N"), "80000000");
  ck_assert_int_eq(result_files(dir), 0);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The row of a dry run's point with this value; there is one. */
static const char *plan_of(const json_t *rows, const char *key, const char *value) {
  const char *plan = NULL;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    if (strcmp(cell(rows, i, key), value) != 0) continue;
    ck_assert_msg(plan == NULL, "%s=%s is there twice", key, value);
    plan = cell(rows, i, "plan");
  }
  ck_assert_msg(plan != NULL, "there is no %s=%s", key, value);
  return plan;
}

/* "all" becomes the declared values; the plan refuses what is not declared, or cannot be run. */
START_TEST(declared_values_are_enumerated_and_checked) {
  static const struct {
    const char *axes[2], *method, *key;
    size_t n; /* points; 0: as many as there are */
    struct {
      const char *value, *plan;
    } has[4];
  } cases[] = {
      {{"method.overlap=all,9"},
       "row_parallel",
       "method.overlap",
       10,
       {{"off", "run"},
        {"8", "run"},
        {"9", "refused: [BS-METHOD-OPTION] method row_parallel: overlap=9; legal are off,auto,2,"}}},
      {{"method.overlap=all", "method=dense,row_parallel"},
       NULL,
       "method.overlap",
       10,
       {{"all", "refused: [BS-CFG-KEY] unknown key 'method.overlap'"}, {"auto", "run"}}},
      {{"algorithm=all,rng,ring:step=1"},
       "row_parallel",
       "hardware.algorithm",
       0,
       {{"ring", "run"},
        {"nccl230", "refused: [BS-COLL-ALGORITHM]"},
        {"rng", "did you mean 'ring'?"},
        {"ring:step=1", "refused: [BS-NAME-OPTIONS]"}}},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const char *const *axes = cases[i].axes;
    ran r = bsrun(dir, "sweep", "-n", "-o", "json", "--phase", "0", "--n", "64", "-P", "2", "-x", axes[0],
                  axes[1] != NULL ? "-x" : "--method", axes[1] != NULL ? axes[1] : cases[i].method, NULL);
    must_be(&r, 0);
    json_t *rows = rows_of(&r);
    if (cases[i].n > 0) ck_assert_uint_eq(json_array_size(rows), cases[i].n);
    for (size_t k = 0; k < 4 && cases[i].has[k].value != NULL; k++) {
      const char *plan = plan_of(rows, cases[i].key, cases[i].has[k].value);
      ck_assert_msg(strstr(plan, cases[i].has[k].plan) != NULL, "%s: %s", cases[i].has[k].value, plan);
    }
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

START_TEST(points_run_once_and_are_resumed) {
  ran r = bsrun(dir, "sweep", "-x", "method=dense,blockshock", "-x", "mask=complement_1100_0011,interleave",
                "-x", "N=64", QUICK, "--id", "s", "-o", "json", "--jobs", "2", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "done");
  ck_assert_str_eq(cell(rows, 1, "state"), "same as 0");
  for (size_t i = 0; i < 4; i++) ck_assert_str_eq(cell(rows, i, "word"), "RIGHT");
  json_decref(rows);
  ran_free(&r);
  const int files = result_files(dir);
  r = bsrun(dir, "sweep", "--resume", "s", "-o", "json", NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 3, "state"), "done before");
  ck_assert_str_eq(cell(rows, 3, "word"), "RIGHT");
  ck_assert_int_eq(result_files(dir), files);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The records below a folder, by request key; lines of files without a record are left out. */
static json_t *records_below(const char *folder) {
  char command[900], *line = NULL;
  size_t room = 0;
  json_t *records = json_object();
  snprintf(command, sizeof command, "cat $(find '%s' -name metrics.jsonl)", folder);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  while (getline(&line, &room, f) > 0) {
    json_t *record = json_loads(line, 0, NULL);
    ck_assert_ptr_nonnull(record);
    json_object_set_new(records, json_string_value(json_object_get(record, "request_key")), record);
  }
  free(line);
  pclose(f);
  return records;
}

static const char *text_of(const json_t *record, const char *key) {
  const char *text = json_string_value(json_object_get(record, key));
  return text != NULL ? text : "";
}

/* The words in a record of a point are those of a run of the same request; env has the sweep's command. */
START_TEST(a_point_says_how_to_run_it_alone) {
  const char *key;
  json_t *point;
  ran r = bsrun(dir, "sweep", "-x", "method=dense,row_parallel", "-x", "N=48", "-P", "1", "--b", "4", QUICK,
                "--id", "s", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  json_t *points = records_below(dir);
  ck_assert_uint_eq(json_object_size(points), 2);
  json_object_foreach(points, key, point) {
    const json_t *argv = json_object_get(point, "argv");
    char *words[32] = {NULL}, command[700];
    ck_assert_ptr_nonnull(
        strstr(text_of(json_object_get(point, "env"), "command"), "bsrun sweep -x method="));
    for (size_t i = 0; i < json_array_size(argv) && i < 31; i++)
      words[i] = (char *)(uintptr_t)json_string_value(json_array_get(argv, i));
    snprintf(command, sizeof command, "rm -rf '%s/results'", dir);
    ck_assert_int_eq(system(command), 0);
    r = finish_spawn(dir, start_bsrun(dir, words));
    must_be(&r, 0);
    ran_free(&r);
    json_t *alone = records_below(dir);
    ck_assert_uint_eq(json_object_size(alone), 1);
    ck_assert_msg(json_object_get(alone, key) != NULL, "%s is not %s",
                  json_object_iter_key(json_object_iter(alone)), key);
    json_decref(alone);
  }
  json_decref(points);
}
END_TEST

START_TEST(the_order_of_points_changes_no_result) {
  static const char *const axes[][2] = {{"N=48,64", "method=dense,row_parallel"},
                                        {"N=64,48", "method=row_parallel,dense"}};
  static const char *const same[] = {"result_key", "relative_error", "choices", "gates", "algorithms"};
  json_t *by[2], *record;
  const char *key;
  for (int i = 0; i < 2; i++) {
    char folder[700];
    ran r = bsrun(dir, "sweep", "-x", axes[i][0], "-x", axes[i][1], "--b", "4", QUICK, "--id",
                  i == 0 ? "s" : "t", "-q", NULL);
    must_be(&r, 0);
    ran_free(&r);
    snprintf(folder, sizeof folder, "%s/results/raw/%s", dir, i == 0 ? "s" : "t");
    by[i] = records_below(folder);
  }
  ck_assert_uint_eq(json_object_size(by[0]), 4);
  ck_assert_uint_eq(json_object_size(by[1]), 4);
  json_object_foreach(by[0], key, record) {
    const json_t *other = json_object_get(by[1], key);
    ck_assert_ptr_nonnull(other);
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++)
      ck_assert_msg(json_object_get(record, same[k]) != NULL &&
                        json_equal(json_object_get(record, same[k]), json_object_get(other, same[k])),
                    "%s of %s differs", same[k], key);
  }
  json_decref(by[0]);
  json_decref(by[1]);
}
END_TEST

START_TEST(tuned_layers_are_pinned) {
  ran r = bsrun(dir, "sweep", "-x", "N=64", "--method", "dense", SMALL, "--set", "tune.min_work=1", "--phase",
                "1", "--id", "s", "--tune-cache", "off", "-o", "json", NULL);
  must_be(&r, 2); /* model.N is given, and is also what varies */
  ran_free(&r);
  r = bsrun(dir, "sweep", "-x", "B=4,8", "--method", "dense", "--n", "64", "--set", "phase.pairs_seconds=0.1",
            "--set", "phase.pairs_min=5", "--set", "phase.pairs_max=5", "--phase", "1", "--id", "s",
            "--tune-cache", "off", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert(json_is_number(json_object_get(json_array_get(rows, 0), "median_ms")));
  json_decref(rows);
  ran_free(&r);
  char folder[700];
  snprintf(folder, sizeof folder, "%s/results/raw/s", dir);
  char *tuned = read_text(folder, "tuned.jsonl");
  ck_assert_ptr_nonnull(tuned);
  ck_assert_ptr_nonnull(strstr(tuned, "\"choices\""));
  free(tuned);
  const char *key;
  json_t *record, *points = records_below(folder);
  ck_assert_uint_eq(json_object_size(points), 2);
  json_object_foreach(points, key, record) {
    const json_t *choice = json_array_get(json_object_get(record, "choices"), 0);
    ck_assert_str_eq(text_of(choice, "origin"), "pinned");
  }
  json_decref(points);
}
END_TEST

START_TEST(points_that_fail_or_are_refused_are_told) {
  ran r = bsrun(dir, "sweep", "-x", "N=64,80000000", "--method", "dense", QUICK, "--id", "s", NULL);
  must_be(&r, 12);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-SWEEP-FAILED"));
  ck_assert_ptr_nonnull(strstr(r.out, "points that failed or were refused"));
  ck_assert_ptr_nonnull(strstr(r.out, "report: bsrun report results/raw/s"));
  ran_free(&r);
  r = bsrun(dir, "sweep", "-x", "N=64,128", "--method", "dense", "--set", "method.nothing=1", QUICK, NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-SWEEP-REFUSED"));
  ran_free(&r);
  /* the first point has no time; nothing more is begun */
  r = bsrun(dir, "sweep", "-x", "N=2048,64", "--method", "blockshock", "--phase", "0", "--set",
            "phase.timed_iters=100000", "--deadline", "0.2", "--fail-fast", "--id", "t", "-o", "json", NULL);
  must_be(&r, 12);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "FAILED");
  ck_assert_ptr_nonnull(strstr(cell(rows, 0, "why"), "BS-SWEEP-DEADLINE"));
  ck_assert_str_eq(cell(rows, 1, "state"), "not run");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(what_is_wrong_with_the_command_is_one_line) {
  static const struct {
    const char *words[8];
    int code;
    const char *id;
  } bad[] = {{{"-x", "M=3"}, 2, "BS-SWEEP-AXIS"},
             {{"--dry-run"}, 2, "BS-SWEEP-AXIS"},
             {{"-x", "N=8", "-x", "n=9"}, 2, "BS-SWEEP-AXIS"},
             {{"-x", "N=8", "--n", "9"}, 2, "BS-SWEEP-AXIS"},
             {{"-x", "N=8", "--deadline", "0"}, 2, "BS-USE-NUMBER"},
             {{"-x", "N=8", "--id", "a/b"}, 2, "BS-USE-NAME"},
             {{"--batch", "/nowhere"}, 4, "BS-SWEEP-BATCH"},
             {{"--resume", "none"}, 4, "BS-SWEEP-NONE"},
             {{"--resume", "none", "-x", "N=8"}, 2, "BS-SWEEP-RESUME"},
             {{"-x", "N=8", "--keep-going", "--fail-fast"}, 2, "BS-USE-TWICE"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    const char *const *w = bad[i].words;
    ran r = bsrun(dir, "sweep", w[0], w[1], w[2], w[3], w[4], NULL);
    must_be(&r, bad[i].code);
    ck_assert_msg(strstr(r.err, bad[i].id) != NULL, "%s", r.err);
    ck_assert_ptr_eq(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    ran_free(&r);
  }
  ran r = bsrun(dir, "run", "--point", "/nowhere", "--n", "8", NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "error[BS-POINT-OPTION]") != NULL, "%s", r.err);
  ran_free(&r);
  ck_assert_int_eq(result_files(dir), 0);
}
END_TEST

/* Committed runs below the sweep that did not break off. */
static int done_runs(const char *id) {
  char command[700], text[32] = "";
  snprintf(command, sizeof command, "grep -rlwF --include=DONE ok '%s/results/raw/%s' 2>/dev/null | wc -l",
           dir, id);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  pclose(f);
  return (int)strtol(text, NULL, 10);
}

/* The program at random moments: itself, the point's process, or a rank of it. 1: it was there. */
static int kill_at_random(pid_t pid, unsigned *seed) {
  const struct timespec some = {0, rand_r(seed) % 250000000};
  const int deep = rand_r(seed) % 3;
  nanosleep(&some, NULL);
  for (int i = 0; i < deep && pid > 0; i++) pid = child_of(pid);
  return pid > 0 && kill(pid, SIGKILL) == 0;
}

/* Waits for the program and for all that came to us from it. */
static int take_all(pid_t pid) {
  int status = 0, of = -1;
  pid_t got;
  while ((got = waitpid(-1, &status, 0)) > 0 || errno == EINTR)
    if (got == pid) of = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return of;
}

START_TEST(kills_lose_no_run) {
  char *begin[] = {"bsrun", "sweep", "-x",   "N=32,33", "-x",       "method=dense,blockshock",
                   "--b",   "2",     "--id", "s",       "--launch", "processes",
                   QUICK,   "-q",    NULL};
  char *go_on[] = {"bsrun", "sweep", "--resume", "s", "-q", NULL};
  const int kills = BS_SLOW && getenv("BS_TEST_BIG") == NULL ? 8 : 50;
  unsigned seed = 7;
  char plan[700], command[700];
  snprintf(plan, sizeof plan, "%s/results/raw/s/plan.jsonl", dir);
  snprintf(command, sizeof command, "rm -rf '%s/results'", dir);
  /* LeakSanitizer looks from a child process, and waits for ever when this child is killed. */
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  for (int hits = 0, before = 0; hits < kills;) {
    const pid_t pid = start_bsrun(dir, access(plan, F_OK) == 0 ? go_on : begin);
    hits += kill_at_random(pid, &seed);
    const int code = take_all(pid);
    const int now = done_runs("s");
    ck_assert_int_ge(now, before);
    before = now;
    if (code != 0) continue;
    ck_assert_int_eq(now, 4);
    ck_assert_int_eq(system(command), 0); /* all done: another one */
    before = 0;
  }
  if (access(plan, F_OK) != 0) ck_assert_int_eq(take_all(start_bsrun(dir, begin)), 0);
  ran r = bsrun(dir, "sweep", "--resume", "s", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  for (size_t i = 0; i < 4; i++) ck_assert_str_eq(cell(rows, i, "word"), "RIGHT");
  json_decref(rows);
  ran_free(&r);
  ck_assert_int_eq(done_runs("s"), 4);
  r = bsrun(dir, "fsck", "--repair", NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

START_TEST(a_rebuilt_plugin_makes_its_points_run_again) {
  char plugins[700], command[2400], trust[] = "plugin_trust=any";
  snprintf(plugins, sizeof plugins, "%s/plugins", dir);
  snprintf(command, sizeof command, "mkdir '%s' && cp '%s/bs_dense.so' '%s' 2>/dev/null", plugins,
           getenv("BS_TEST_PLUGIN_DIR"), plugins);
  if (system(command) != 0) return; /* the plugins are in the library */
  char place[800];
  snprintf(place, sizeof place, "plugin_dirs=[\"%s\"]", plugins);
  ran r = bsrun(dir, "sweep", "-x", "method=dense,blockshock", "--n", "64", QUICK, "--set", trust, "--set",
                place, "--id", "s", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  snprintf(command, sizeof command, "printf x >>'%s/bs_dense.so'", plugins);
  ck_assert_int_eq(system(command), 0);
  r = bsrun(dir, "sweep", "--resume", "s", "--any-build", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "done before");
  json_decref(rows);
  ran_free(&r);
  /* a point that fails now does not show what the other build measured */
  r = bsrun(dir, "sweep", "--resume", "s", "--deadline", "0.0001", "-o", "json", NULL);
  must_be(&r, 12);
  rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "FAILED");
  ck_assert_str_eq(cell(rows, 0, "word"), "");
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "sweep", "--resume", "s", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "1 point is done by another build") != NULL, "%s", r.err);
  rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "done");
  ck_assert_str_eq(cell(rows, 1, "state"), "done before");
  json_decref(rows);
  ran_free(&r);
  ck_assert_int_eq(done_runs("s"), 3); /* nothing was lost */
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_dry_run_shows_the_plan_and_makes_nothing},
                             {declared_values_are_enumerated_and_checked},
                             {points_run_once_and_are_resumed},
                             {a_point_says_how_to_run_it_alone},
                             {the_order_of_points_changes_no_result},
                             {tuned_layers_are_pinned},
                             {points_that_fail_or_are_refused_are_told},
                             {what_is_wrong_with_the_command_is_one_line},
                             {kills_lose_no_run},
                             {a_rebuilt_plugin_makes_its_points_run_again},
                             {0}};
  return run_tests("bsrun_sweep", tests, (test_setup){.before = set_up, .after = tear_down, .at_once = 3});
}
