/* SPDX-License-Identifier: MIT
 * test_fsck.c - damage and remains below a results folder: found, repaired where that loses nothing, told of
 * where not; the plans of sweeps; what became of a run. */
#include "lab/store/fsck.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/base/text.h"
#include "core/world/flight.h"
#include "lab/store/env.h"
#include "lab/store/read.h"
#include "lab/store/sha256.h"
#include "lab/store/why.h"
#include "tests/lab/store_runs.h"
#include "tests/run_tests.h"

static int fsck(int repair, bs_fsck *out) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_fsck_run(dir, repair, out, &err);
  return rc == BS_OK ? 0 : (int)bs_status_exit_code(rc);
}

/* The row of a run, or NULL. */
static const json_t *row_of(const bs_fsck *f, const char *id) {
  for (size_t i = 0; i < json_array_size(f->rows); i++) {
    const json_t *row = json_array_get(f->rows, i);
    if (strstr(json_string_value(json_object_get(row, "run")), id) != NULL) return row;
  }
  return NULL;
}

static void must_be(const bs_fsck *f, const char *id, const char *state, const char *done) {
  const json_t *row = row_of(f, id);
  const char *did = json_string_value(json_object_get(row, "done"));
  ck_assert_msg(row != NULL, "%s: no row", id);
  ck_assert_str_eq(json_string_value(json_object_get(row, "state")), state);
  ck_assert_msg(done == NULL ? did == NULL : did != NULL && strstr(did, done) != NULL, "%s: %s", id, did);
}

START_TEST(whole_runs_are_counted_and_nothing_is_written) {
  bs_fsck f;
  keep("a", NULL);
  keep("b", NULL);
  ck_assert_int_eq(fsck(1, &f), 0);
  ck_assert_uint_eq(f.runs, 2);
  ck_assert_uint_eq(f.whole, 2);
  ck_assert_uint_eq(json_array_size(f.rows), 0);
  bs_fsck_free(&f);
}
END_TEST

START_TEST(a_torn_tail_is_cut_and_kept) {
  bs_fsck f;
  keep("committed", NULL);
  bs_run *run = begin("killed");
  bs_error err = BS_ERROR_INIT;
  json_t *record = json_pack("{s:i}", "v", 1);
  ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
  json_decref(record);
  append_text(file_of("committed", "metrics.jsonl"), "{\"torn\": ");
  append_text(file_of("killed", "metrics.jsonl"), "{\"torn\": ");
  ck_assert_int_eq(fsck(0, &f), 13); /* in no list until it is cut */
  must_be(&f, "committed", "torn", NULL);
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "at work", NULL); /* its lock is held: not touched */
  must_be(&f, "committed", "torn", "cut");
  ck_assert_uint_eq(f.whole, 1);
  bs_fsck_free(&f);
  char *kept = read_text(file_of("committed", ""), "metrics.jsonl.torn");
  ck_assert_str_eq(kept, "{\"torn\": ");
  free(kept);
  bs_store_interrupt(run, 15);
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, "killed", "torn", NULL); /* told, not repaired */
  ck_assert_ptr_null(row_of(&f, "committed"));
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "torn", "cut");
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "interrupted", NULL);
  bs_fsck_free(&f);
}
END_TEST

START_TEST(damage_in_the_middle_is_never_repaired) {
  bs_fsck f;
  keep("good", NULL);
  keep("bad", NULL);
  FILE *file = fopen(file_of("bad", "metrics.jsonl"), "r+");
  ck_assert_ptr_nonnull(file);
  fseek(file, 10, SEEK_SET);
  fputc('7', file);
  fclose(file);
  for (int repair = 0; repair < 2; repair++) {
    ck_assert_int_eq(fsck(repair, &f), 13);
    must_be(&f, "bad", "damaged", NULL);
    ck_assert_uint_eq(f.damaged, 1);
    ck_assert_uint_eq(f.whole, 1);
    bs_fsck_free(&f);
  }
}
END_TEST

START_TEST(copies_are_written_anew) {
  bs_fsck f;
  static const char *const names[] = {"config.yaml", "env.json", "seed.txt"};
  keep("run", NULL);
  char *before[3];
  for (int i = 0; i < 3; i++) {
    before[i] = read_text(file_of("run", ""), names[i]);
    if (i == 0)
      ck_assert_int_eq(unlink(file_of("run", names[i])), 0);
    else
      append_text(file_of("run", names[i]), "x");
  }
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, "run", "copy differs", NULL);
  ck_assert_uint_eq(json_array_size(f.rows), 3);
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  ck_assert_uint_eq(f.repaired, 3);
  bs_fsck_free(&f);
  for (int i = 0; i < 3; i++) {
    char *after = read_text(file_of("run", ""), names[i]);
    ck_assert_str_eq(after, before[i]);
    free(after);
    free(before[i]);
  }
}
END_TEST

/* A run that is being made has a temporary folder under a lock; one that was killed then leaves it free. */
START_TEST(folders_that_were_left_over_are_removed) {
  bs_fsck f;
  char path[700];
  struct stat st;
  keep("run", NULL);
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/.tmp.0123456789ab.1.2", dir);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  write_text(path, "lock", "");
  write_text(path, "metrics.jsonl", "");
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, ".tmp.", "left over", NULL);
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, ".tmp.", "left over", "removed");
  bs_fsck_free(&f);
  ck_assert_int_ne(stat(path, &st), 0);
}
END_TEST

/* Between the folder and its lock only the name tells that its writer is at work. */
START_TEST(a_run_that_is_being_made_is_left_alone) {
  bs_fsck f;
  char path[700];
  struct stat st;
  const long pid = (long)getpid();
  keep("run", NULL);
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/.tmp.0123456789ab.%ld.%llu", dir, pid,
           (unsigned long long)bs_env_process_start(pid));
  ck_assert_int_eq(mkdir(path, 0700), 0);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, ".tmp.", "at work", NULL);
  bs_fsck_free(&f);
  ck_assert_int_eq(stat(path, &st), 0);
}
END_TEST

/* A folder of another user hides nothing but itself. */
START_TEST(a_closed_folder_is_told_and_the_others_are_read) {
  char path[700];
  int status;
  keep("run", NULL);
  snprintf(path, sizeof path, "%s/private", dir);
  ck_assert_int_eq(mkdir(path, 0), 0);
  snprintf(path, sizeof path, "%s/listed_only", dir);
  ck_assert_int_eq(mkdir(path, 0744), 0);
  ck_assert_int_eq(chmod(path, getuid() == 0 ? 0744 : 0444), 0);
  ck_assert_int_eq(chmod(dir, 0755), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    bs_error err = BS_ERROR_INIT;
    bs_runs_stats stats;
    json_t *rows;
    bs_fsck f;
    if (getuid() == 0 && setuid(65534) != 0) _exit(97);
    ck_assert_msg(bs_runs_index(dir, &rows, &stats, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(json_array_size(rows), 2);
    ck_assert_uint_eq(stats.closed, 2);
    ck_assert_uint_eq(stats.damaged, 0);
    json_decref(rows);
    bs_runs_stats_free(&stats);
    ck_assert_int_eq(fsck(0, &f), 10);
    must_be(&f, "private", "closed", NULL);
    must_be(&f, "listed_only", "closed", NULL);
    ck_assert_uint_eq(f.whole, 1);
    bs_fsck_free(&f);
    _exit(0); /* not exit: a leak checker may not trace a process that changed its user */
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(chmod(path, 0755), 0);
  snprintf(path, sizeof path, "%s/private", dir);
  ck_assert_int_eq(chmod(path, 0755), 0);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* Keys of planned points. */
#define P0 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0"
#define K1 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb1"
#define K2 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb2"
#define POINT(i, key, twin)                                            \
  "{\"i\": " #i ", \"request_key\": \"" P0                             \
  "\", \"phases\": [\"0\"], \"configs\": [\"\"], "                     \
  "\"keys\": [\"" key "\"], \"settings\": {}, \"duplicate_of\": " twin \
  ", \"refused\": null, "                                              \
  "\"layer\": null, \"alone\": false}\n"

/* A plan whose last line has the sum, and says that there are three points. */
static void write_plan(const char *points) {
  char hex[65];
  bs_text text = {0};
  bs_sha256 h;
  bs_text_printf(&text, "{}\n%s", points);
  bs_sha256_init(&h);
  bs_sha256_add(&h, text.data, text.size);
  bs_sha256_hex(&h, hex);
  bs_text_printf(&text, "{\"n\": 3, \"sha256\": \"%s\"}\n", hex);
  write_text(dir, "plan.jsonl", text.data);
  bs_text_free(&text);
}

START_TEST(the_plan_of_a_sweep_is_counted) {
  bs_fsck f;
  keep("one", K1);
  keep("foreign", "other");
  write_plan(POINT(0, K1, "null") POINT(1, K2, "null") POINT(2, K1, "0"));
  ck_assert_int_eq(fsck(0, &f), 0);
  const json_t *sweep = json_array_get(f.sweeps, 0);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "planned")), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "committed")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "foreign")), 1);
  bs_fsck_free(&f);
  char path[700];
  snprintf(path, sizeof path, "%s/plan.jsonl", dir);
  append_text(path, "x");
  ck_assert_int_eq(fsck(0, &f), 13);
  bs_fsck_free(&f);
}
END_TEST

/* Plans whose sum is right and which no sweep takes. */
START_TEST(a_plan_that_no_sweep_takes_is_damaged) {
  static const char *const plans[] = {
      POINT(0, K1, "null") POINT(1, K2, "null"),                      /* a point is missing */
      POINT(0, K1, "null") POINT(1, K2, "null") POINT(2, K1, "3"),    /* a twin that follows */
      POINT(0, K1, "null") POINT(1, "k2", "null") POINT(2, K1, "0"),  /* no key */
      POINT(0, K1, "null") POINT(2, K2, "null") POINT(1, K1, "null"), /* another order */
      POINT(0, K1, "null") POINT(1, K2, "null") "nothing\n"};
  for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
    bs_fsck f;
    write_plan(plans[i]);
    ck_assert_msg(fsck(0, &f) == 13, "plan %zu", i);
    ck_assert_uint_eq(f.damaged, 1);
    ck_assert_uint_eq(json_array_size(f.sweeps), 0);
    bs_fsck_free(&f);
  }
}
END_TEST

static int says(const char *id, const char *what, const char *part) {
  bs_error err = BS_ERROR_INIT;
  char run[200];
  json_t *rows, *row;
  size_t i;
  int found = 0;
  snprintf(run, sizeof run, "phase0_correctness/dense/%s", id);
  ck_assert_msg(bs_run_why(dir, run, &rows, &err) == BS_OK, "%s", err.message);
  json_array_foreach(rows, i, row) {
    found |= strcmp(json_string_value(json_object_get(row, "what")), what) == 0 &&
             strstr(json_string_value(json_object_get(row, "answer")), part) != NULL;
  }
  json_decref(rows);
  return found;
}

START_TEST(why_tells_every_end_of_a_run) {
  keep("ok", NULL);
  ck_assert(says("ok", "status", "committed: ok"));
  bs_run *run = begin("stopped");
  ck_assert(says("stopped", "status", "at work"));
  bs_store_interrupt(run, 15);
  ck_assert(says("stopped", "status", "interrupted by signal 15"));
  ck_assert(says("stopped", "next", "--config"));
  const pid_t pid = fork();
  if (pid == 0) {
    begin("killed");
    raise(SIGKILL);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(says("killed", "status", "killed"));
  append_text(file_of("ok", "metrics.jsonl"), "{}\n");
  ck_assert(says("ok", "status", "damaged"));
}
END_TEST

START_TEST(every_kind_of_collective_has_its_name) {
  static const char *const names[BS_COLL_COUNT_] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                    "all_to_all", "send",       "recv",           "barrier"};
  bs_error err = BS_ERROR_INIT;
  json_t *ranks;
  bs_flight_file *file = calloc(1, sizeof *file);
  const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ck_assert(file != NULL && fd >= 0);
  memcpy(file->magic, "BSFLIGHT", sizeof file->magic);
  file->version = 1;
  for (int k = 0; k < BS_COLL_COUNT_; k++)
    file->slot[k][0] = (bs_flight_slot){.kind = (uint8_t)k, .state = BS_FLIGHT_LEFT};
  const int out = openat(fd, "flight", O_WRONLY | O_CREAT, 0600);
  ck_assert_int_eq(bs_store_write_all(out, (const char *)file, sizeof *file), 0);
  close(out);
  free(file);
  ck_assert_int_eq(bs_flight_read(fd, &ranks, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(ranks), BS_COLL_COUNT_);
  for (size_t k = 0; k < BS_COLL_COUNT_; k++)
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(ranks, k), "op")), names[k]);
  json_decref(ranks);
  close(fd);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {whole_runs_are_counted_and_nothing_is_written},   {a_torn_tail_is_cut_and_kept},
      {damage_in_the_middle_is_never_repaired},          {copies_are_written_anew},
      {folders_that_were_left_over_are_removed},         {a_run_that_is_being_made_is_left_alone},
      {a_closed_folder_is_told_and_the_others_are_read}, {the_plan_of_a_sweep_is_counted},
      {a_plan_that_no_sweep_takes_is_damaged},           {why_tells_every_end_of_a_run},
      {every_kind_of_collective_has_its_name},           {0}};
  return run_tests("fsck", tests, (test_setup){setup, teardown});
}
