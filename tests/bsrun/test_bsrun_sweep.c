/* SPDX-License-Identifier: MIT
 * test_bsrun_sweep.c - the sweep verb: records of points, going on after kills of the program itself, and
 * after a plugin was rebuilt. tests/cases/sweep.case has the rest. */
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
                "--run-id", "s", "-q", NULL);
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
    ran r = bsrun(dir, "sweep", "-x", axes[i][0], "-x", axes[i][1], "--b", "4", QUICK, "--run-id",
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

/* A point whose numbers were proven and whose time was interrupted is not "not run". */
START_TEST(an_interrupted_point_tells_its_phases) {
  char *words[] = {"bsrun",    "sweep",
                   "-x",       "N=64,65",
                   "--method", "dense",
                   "--b",      "8",
                   "--set",    "phase.pairs_seconds=60",
                   "--set",    "phase.pairs_min=99999",
                   "--set",    "phase.pairs_max=100000",
                   "--run-id", "s",
                   "-q",       "-o",
                   "json",     NULL};
  const pid_t pid = start_bsrun(dir, words);
  for (int i = 0; i < 6000 && done_runs("s") == 0; i++) nanosleep(&(struct timespec){0, 10000000}, NULL);
  ck_assert_int_eq(kill(pid, SIGINT), 0);
  ran r = finish_spawn(dir, pid);
  must_be(&r, 130);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "word"), "RIGHT");
  ck_assert_str_eq(cell(rows, 0, "state"), "1 of 2 phases");
  ck_assert_str_eq(cell(rows, 1, "state"), "not run");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(kills_lose_no_run) {
  char *begin[] = {"bsrun", "sweep", "-x",       "N=32,33", "-x",       "method=dense,blockshock",
                   "--b",   "2",     "--run-id", "s",       "--launch", "processes",
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
  r = bsrun(dir, "runs", "fsck", "--repair", NULL);
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
                place, "--run-id", "s", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  snprintf(command, sizeof command, "printf x >>'%s/bs_dense.so'", plugins);
  ck_assert_int_eq(system(command), 0);
  r = bsrun(dir, "sweep", "--resume", "s", "--force", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(cell(rows, 0, "state"), "done before");
  json_decref(rows);
  ran_free(&r);
  /* a point that fails now does not show what the other build measured */
  r = bsrun(dir, "sweep", "--resume", "s", "--with", "point-timeout=0.0001", "-o", "json", NULL);
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
  const test_case tests[] = {{a_point_says_how_to_run_it_alone},
                             {the_order_of_points_changes_no_result},
                             {an_interrupted_point_tells_its_phases},
                             {kills_lose_no_run},
                             {a_rebuilt_plugin_makes_its_points_run_again},
                             {0}};
  return run_tests("bsrun_sweep", tests, (test_setup){.before = set_up, .after = tear_down, .at_once = 3});
}
