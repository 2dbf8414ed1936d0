/* SPDX-License-Identifier: MIT
 * test_bsrun_run.c - whole runs: the bare form, folders and records, replay from a stored config, sweeps,
 * dumps, formats, signals, results folders that cannot be written. */
#include <jansson.h>

#include "lab/store/sha256.h"
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *last_record(const char *folder) {
  char *text = read_text(folder, "metrics.jsonl");
  ck_assert_ptr_nonnull(text);
  json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, NULL); /* one line */
  ck_assert_ptr_nonnull(record);
  free(text);
  return record;
}

START_TEST(the_bare_form_proves_then_times) {
  ran r = bsrun(dir, "--plugin", "cpu", "--method", "blockshock", SMALL, NULL);
  must_be(&r, 0);
  ck_assert(strstr(r.out, "RIGHT") != NULL && strstr(r.out, " dense on ") != NULL &&
            strstr(r.out, " dense on all ") != NULL);
  ck_assert(strstr(r.out, "\nrepeat: bsrun --plugin cpu --method blockshock --set model.N=64") != NULL);
  static const char *const phases[] = {"/phase0_correctness/blockshock/", "/phase1_forward/blockshock/"};
  for (int i = 0; i < 2; i++) {
    static const char *const files[] = {"config.yaml", "env.json", "seed.txt", "metrics.jsonl", "DONE"};
    const char *folder = run_folder(&r, dir, i);
    ck_assert(strstr(folder, phases[i]) != NULL && strstr(folder, "/results/raw/") != NULL);
    for (size_t f = 0; f < 5; f++) {
      char *text = read_text(folder, files[f]);
      ck_assert_msg(text != NULL, "%s", files[f]);
      free(text);
    }
    json_t *record = last_record(folder);
    ck_assert_int_eq(json_integer_value(json_object_get(record, "world_size")), 2);
    ck_assert_str_eq(json_string_value(json_object_get(record, "status")), "ok");
    ck_assert(i == 1 || json_is_true(json_object_get(record, "passed")));
    ck_assert(i == 0 || json_array_size(json_object_get(record, "comparisons")) == 2);
    ck_assert_uint_ge(json_array_size(json_object_get(record, "plugins")), 4);
    ck_assert(json_is_object(json_object_get(record, "timings_ms")));
    json_decref(record);
  }
  ran_free(&r);
}
END_TEST

START_TEST(a_stored_configuration_repeats_its_run) {
  ran first =
      bsrun(dir, "--method", "blockshock", "--mask", "complement_1010_0101", "--phase", "0", SMALL, NULL);
  must_be(&first, 0);
  char config[1300], folder[1200];
  snprintf(folder, sizeof folder, "%s", run_folder(&first, dir, 0));
  snprintf(config, sizeof config, "%s/config.yaml", folder);
  ran again = bsrun(dir, "--config", config, NULL);
  must_be(&again, 0);
  ck_assert_ptr_null(strstr(again.out, "phase1_forward")); /* the stored phase, and it alone */
  json_t *a = last_record(folder), *b = last_record(run_folder(&again, dir, 0));
  static const char *const same[] = {"max_abs_error", "relative_error", "mask", "method", "world_size", "N",
                                     "seed"};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    ck_assert_msg(json_equal(json_object_get(a, same[i]), json_object_get(b, same[i])), "%s differs",
                  same[i]);
  }
  /* The same key: the twelve digits behind the time agree. */
  const char *id_a = json_string_value(json_object_get(a, "run_id"));
  const char *id_b = json_string_value(json_object_get(b, "run_id"));
  ck_assert_msg(strncmp(id_a + 15, id_b + 15, 13) == 0, "%s and %s", id_a, id_b);
  json_decref(a);
  json_decref(b);
  ran_free(&first);
  ran_free(&again);
}
END_TEST

START_TEST(every_format_has_the_same_rows) {
  ran r = bsrun(dir, "--method", "row_parallel", SMALL, "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_uint_eq(json_array_size(rows), 4); /* phase 0; method and two dense arms */
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "gates")), "7 of 7");
  ck_assert(json_is_real(json_object_get(json_array_get(rows, 2), "speedup")));
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "--method", "row_parallel", SMALL, "-o", "csv", NULL);
  must_be(&r, 0);
  int lines = 0;
  for (const char *p = r.out; (p = strstr(p, "\r\n")) != NULL; p += 2) lines++;
  ck_assert_int_eq(lines, 5);
  ran_free(&r);
}
END_TEST

START_TEST(printing_the_configuration_creates_nothing) {
  ran r = bsrun(dir, "--method", "blockshock", "--set", "model.N=64", "--print-config", NULL);
  must_be(&r, 0);
  ck_assert_int_eq(result_files(dir), 0);
  bs_node *tree = parse_tree(r.out);
  const char *name = NULL;
  ck_assert_int_eq(bs_config_str(tree, "method.name", NULL, &name, NULL), BS_OK);
  ck_assert_str_eq(name, "blockshock");
  bs_config_free(tree);
  ran_free(&r);
}
END_TEST

START_TEST(names_and_groups_of_folders) {
  ran r =
      bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--run-id", "mine", "--out", "deep/er", NULL);
  must_be(&r, 0);
  ck_assert(strstr(r.out, "run: deep/er/phase0_correctness/dense/mine\n") != NULL);
  ran_free(&r);
  r = bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--run-id", "mine", "--out", "deep/er", NULL);
  must_be(&r, 0);
  ck_assert(strstr(r.out, "/mine-2\n") != NULL);
  ran_free(&r);
  r = bsrun(dir, "--method", "dense", SMALL, "--set", "logging.auto_group=true", NULL);
  must_be(&r, 0);
  char one[1200], two[1200];
  snprintf(one, sizeof one, "%s", run_folder(&r, dir, 0));
  snprintf(two, sizeof two, "%s", run_folder(&r, dir, 1));
  const char *phase = strstr(one, "/phase0_correctness/");
  ck_assert_ptr_nonnull(phase);
  ck_assert_int_eq(strncmp(one, two, (size_t)(phase - one)), 0); /* both in one group */
  ck_assert_int_eq(phase[-16], '/');
  ran_free(&r);
}
END_TEST

START_TEST(a_sweep_runs_every_point_and_counts_failures) {
  ran r = bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--set",
                "sweep={param: model.K, values: [2, 3, 5]}", "-o", "jsonl", NULL);
  must_be(&r, 0);
  int lines = 0;
  for (const char *p = r.out; *p != '\0'; p++) lines += *p == '\n';
  ck_assert_int_eq(lines, 3);
  ran_free(&r);
  r = bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--set",
            "sweep={param: model.K, values: [32, 0, 48]}", NULL);
  must_be(&r, 12);
  ck_assert(strstr(r.err, "1 of 3 points failed") != NULL && strstr(r.err, "BS-CFG-RANGE") != NULL);
  ck_assert(strstr(r.out, "48") != NULL); /* the points after the failure ran */
  ran_free(&r);
}
END_TEST

START_TEST(a_dump_lies_where_it_was_asked) {
  ran r = bsrun(dir, "--method", "blockshock", "--phase", "0", SMALL, "--dump", "tensors", NULL);
  must_be(&r, 0);
  char path[600];
  snprintf(path, sizeof path, "%s/tensors", dir);
  static const char *const files[] = {"x.npy", "w.npy", "y_rank0.npy", "y_rank1.npy"};
  for (size_t i = 0; i < 4; i++) {
    char *data = read_text(path, files[i]);
    ck_assert_msg(data != NULL && memcmp(data, "\x93NUMPY", 6) == 0, "%s", files[i]);
    free(data);
  }
  ran_free(&r);
}
END_TEST

START_TEST(refused_requests_keep_no_folder) {
  ran r = bsrun(dir, "--method", "blockshock", "-P", "3", "--phase", "0", SMALL, NULL);
  must_be(&r, 3);
  ck_assert(strstr(r.err, "interleave") != NULL); /* the hint */
  ck_assert_int_eq(result_files(dir), 0);
  ran_free(&r);
}
END_TEST

START_TEST(results_that_cannot_be_written) {
  write_text(dir, "file", "x");
  static const char *const outs[] = {"file", "file/below", "/dev/null", "/proc/none", "/dev/full"};
  for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++) {
    ran r = bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--out", outs[i], NULL);
    must_be(&r, 10);
    ck_assert(strstr(r.err, "error[BS-STO-IO]") != NULL);
    ran_free(&r);
  }
  if (geteuid() == 0) return; /* root may write a read-only folder */
  char path[600];
  snprintf(path, sizeof path, "%s/locked", dir);
  ck_assert_int_eq(mkdir(path, 0500), 0);
  ran r = bsrun(dir, "--method", "dense", "--phase", "0", SMALL, "--out", "locked/results", NULL);
  must_be(&r, 10);
  ran_free(&r);
}
END_TEST

static ran through_shell(const char *format) {
  char script[2048];
  char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", script, NULL};
  char out[600], err[600];
  snprintf(script, sizeof script, format, bsrun_path());
  snprintf(out, sizeof out, "%s/.stdout", dir);
  snprintf(err, sizeof err, "%s/.stderr", dir);
  const pid_t pid = fork();
  if (pid == 0) {
    const int o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600),
              e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (chdir(dir) != 0) _exit(98);
    dup2(o, 1);
    dup2(e, 2);
    execv("/bin/sh", argv);
    _exit(99);
  }
  return finish_bsrun(dir, pid);
}

START_TEST(a_full_stdout_is_told) {
  ran r = through_shell("exec '%s' plugins list > /dev/full");
  must_be(&r, 10);
  ck_assert(strstr(r.err, "BS-OUT-WRITE") != NULL);
  ran_free(&r);
  r = through_shell("exec '%s' --help > /dev/full");
  must_be(&r, 10);
  ran_free(&r);
}
END_TEST

START_TEST(a_file_size_limit_is_a_full_disk) {
  ran r = through_shell(
      "ulimit -f 1; exec '%s' --method dense --phase 0 --set model.N=64 --set model.B=8 "
      "--set phase.timed_iters=1 --set experiment.name=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
  /* One block of 512 or 1024 bytes: env.json does not fit. */
  must_be(&r, 10);
  ck_assert_int_eq(result_files(dir), 0);
  ran_free(&r);
}
END_TEST

static int count_named(const char *name) {
  char command[700];
  int n = -1;
  snprintf(command, sizeof command, "find '%s/results' -name '%s' 2>/dev/null | wc -l", dir, name);
  FILE *f = popen(command, "r");
  ck_assert_int_eq(fscanf(f, "%d", &n), 1);
  pclose(f);
  return n;
}

START_TEST(signals_leave_a_marked_run) {
  const int number = _i == 0 ? SIGINT : SIGTERM;
  const char *words[] = {"bsrun",
                         "--method",
                         "dense",
                         "--phase",
                         "1",
                         "--set",
                         "model.N=256",
                         "--set",
                         "phase.pairs_seconds=60",
                         "--set",
                         "phase.pairs_max=100000",
                         "--set",
                         "phase.pairs_min=100000",
                         NULL};
  char *argv[16];
  for (int i = 0; i < 14; i++) argv[i] = (char *)(uintptr_t)words[i];
  const pid_t pid = start_bsrun(dir, argv);
  for (int i = 0; i < 3000 && count_named("log.txt") == 0; i++)
    usleep(20000); /* then a signal is the run's */
  ck_assert_int_eq(count_named("lock"), 1);
  usleep(100000);
  ck_assert_int_eq(kill(pid, number), 0);
  ran r = finish_bsrun(dir, pid);
  must_be(&r, 128 + number);
  ck_assert(!r.killed);
  ck_assert_int_eq(count_named("INTERRUPTED"), 1);
  ck_assert_int_eq(count_named("DONE"), 0);
  ck_assert_int_eq(count_named(".*"), 0); /* no temporary folder */
  ran_free(&r);
}
END_TEST

START_TEST(several_at_once_share_a_root) {
  enum { N = 4 };
  pid_t pids[N];
  char homes[N][600];
  for (int i = 0; i < N; i++) {
    snprintf(homes[i], sizeof homes[i], "%s/home%d", dir, i);
    ck_assert_int_eq(mkdir(homes[i], 0700), 0);
    const char *words[] = {"bsrun",
                           "--method",
                           "dense",
                           "--phase",
                           "0",
                           "--run-id",
                           "same",
                           "--out",
                           dir,
                           "--set",
                           "model={N: 32, B: 4}",
                           "--set",
                           "phase.timed_iters=1",
                           NULL};
    char *argv[16];
    for (int w = 0; w < 14; w++) argv[w] = (char *)(uintptr_t)words[w];
    pids[i] = start_bsrun(homes[i], argv);
  }
  for (int i = 0; i < N; i++) {
    ran r = finish_bsrun(homes[i], pids[i]);
    must_be(&r, 0);
    ran_free(&r);
  }
  static const char *const want[] = {"same", "same-2", "same-3", "same-4"};
  for (int i = 0; i < N; i++) {
    char folder[700];
    snprintf(folder, sizeof folder, "%s/phase0_correctness/dense/%s", dir, want[i]);
    char *done = read_text(folder, "DONE");
    ck_assert_ptr_nonnull(done);
    free(done);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {the_bare_form_proves_then_times},  {a_stored_configuration_repeats_its_run},
      {every_format_has_the_same_rows},   {printing_the_configuration_creates_nothing},
      {names_and_groups_of_folders},      {a_sweep_runs_every_point_and_counts_failures},
      {a_dump_lies_where_it_was_asked},   {refused_requests_keep_no_folder},
      {results_that_cannot_be_written},   {a_full_stdout_is_told},
      {a_file_size_limit_is_a_full_disk}, {signals_leave_a_marked_run, 2},
      {several_at_once_share_a_root},     {0}};
  return run_tests("bsrun_run", tests, (test_setup){setup, teardown});
}
