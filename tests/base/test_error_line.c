/* SPDX-License-Identifier: MIT
 * test_error_line.c - the status table, filling bs_error, the one error line, and the log. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

START_TEST(status_table) {
  static const struct {
    int32_t code, exit_code;
    const char *name;
  } rows[] = {{BS_OK, 0, "OK"},
              {BS_USAGE, 2, "USAGE"},
              {BS_CONFIG, 3, "CONFIG"},
              {BS_INPUT, 4, "INPUT"},
              {BS_UNAVAILABLE, 5, "UNAVAILABLE"},
              {BS_PLUGIN, 5, "PLUGIN"},
              {BS_ABI, 5, "ABI"},
              {BS_UNSUPPORTED, 3, "UNSUPPORTED"},
              {BS_NUMERIC, 6, "NUMERIC"},
              {BS_RANK_FAILED, 7, "RANK_FAILED"},
              {BS_DEADLINE, 8, "DEADLINE"},
              {BS_MISMATCH, 9, "MISMATCH"},
              {BS_NO_MEMORY, 10, "NO_MEMORY"},
              {BS_IO, 10, "IO"},
              {BS_BUSY, 11, "BUSY"},
              {BS_SOME_FAILED, 12, "SOME_FAILED"},
              {BS_CORRUPT, 13, "CORRUPT"},
              {BS_PERF, 14, "PERF"},
              {BS_INCONCLUSIVE, 15, "INCONCLUSIVE"},
              {BS_INTERNAL, 70, "INTERNAL"},
              {BS_INVALID_ARGUMENT, 70, "INVALID_ARGUMENT"},
              {BS_OVERFLOW, 10, "OVERFLOW"},
              {BS_NOT_FOUND, 5, "NOT_FOUND"},
              {BS_ABORTED, 7, "ABORTED"},
              {9999, 70, "INTERNAL"},
              {-1, 70, "INTERNAL"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ck_assert_str_eq(bs_status_name(rows[i].code), rows[i].name);
    ck_assert_int_eq(bs_status_exit_code(rows[i].code), rows[i].exit_code);
    ck_assert(bs_status_text(rows[i].code)[0] != '\0');
  }
  ck_assert_str_eq(bs_status_text(BS_BUSY), "store busy");
}
END_TEST

START_TEST(line) {
  bs_error err = BS_ERROR_INIT;
  char out[1200];
  ck_assert_int_eq(bs_error_set(&err, BS_ABI, "BS-PLG-ABI", "built for plugin ABI %d, host has %d", 2, 1),
                   BS_ABI);
  ck_assert_int_eq(err.code, BS_ABI);
  ck_assert_int_eq(err.rank, -1);
  ck_assert_uint_eq(err.struct_size, sizeof err);
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_str_eq(out, "bsrun: error[BS-PLG-ABI] built for plugin ABI 2, host has 1");
  bs_error_where(&err, "bs_%s.so", "x");
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_str_eq(out, "bsrun: error[BS-PLG-ABI] bs_x.so: built for plugin ABI 2, host has 1");
  err.rank = 3;
  bs_error_hint(&err, "rebuild it with %s", "these headers");
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_str_eq(
      out,
      "bsrun: error[BS-PLG-ABI] bs_x.so: built for plugin ABI 2, host has 1; rank 3; hint: rebuild it "
      "with these headers");
  bs_error_format(&err, "", out, sizeof out);
  ck_assert_int_eq(strncmp(out, "error[BS-PLG-ABI] ", 18), 0);
  bs_error_format(NULL, "bsrun", out, sizeof out);
  ck_assert_str_eq(out, "");
  bs_error_clear(&err);
  ck_assert(err.code == 0 && err.rank == -1 && err.id[0] == '\0' && err.hint[0] == '\0');
}
END_TEST

/* A plugin may leave parts out, fill fields to the last byte without a NUL, or put anything into them. */
/* The file's path comes first in the message and in the place, and once in the line, also where it is long.
 */
START_TEST(files_in_messages) {
  static const struct {
    const char *where, *message;
  } rows[] = {{"", "m.onnx: it is cut"},
              {"m.onnx", "m.onnx: it is cut"},
              {"m.onnx:7", "m.onnx:7: it is cut"},
              {"node 'x'", "m.onnx: node 'x': it is cut"}};
  bs_error err = BS_ERROR_INIT;
  char out[1200], wanted[1200], path[300];
  bs_error_file(NULL, "m.onnx");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    bs_error_set(&err, BS_INPUT, "BS-X", "it is cut");
    bs_error_where(&err, "%s", rows[i].where);
    for (int k = 0; k < 2; k++) { /* the second time changes nothing */
      bs_error_file(&err, "m.onnx");
      ck_assert_str_eq(err.message, rows[i].message);
    }
    snprintf(wanted, sizeof wanted, "error[BS-X] %s", rows[i].message);
    bs_error_format(&err, "", out, sizeof out);
    ck_assert_str_eq(out, wanted);
    ck_assert_int_eq(strncmp(err.where, "m.onnx", 6), 0);
  }
  memset(path, 'p', sizeof path - 1);
  path[sizeof path - 1] = '\0';
  bs_error_set(&err, BS_INPUT, "BS-X", "it is cut");
  bs_error_where(&err, "%s", path);
  bs_error_file(&err, path);
  snprintf(wanted, sizeof wanted, "error[BS-X] %s: it is cut", path);
  bs_error_format(&err, "", out, sizeof out);
  ck_assert_str_eq(out, wanted);
}
END_TEST

START_TEST(line_of_hostile_records) {
  bs_error err = BS_ERROR_INIT;
  char out[2048];
  err.code = BS_DEADLINE;
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_str_eq(out, "bsrun: error[BS-DEADLINE] deadline passed");
  bs_error_set(&err, BS_CONFIG, "BS-X", "two\nlines\tand \x1b[31m red \x7f");
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_str_eq(out, "bsrun: error[BS-X] two lines and ?[31m red ?");
  memset(err.id, 'I', sizeof err.id);
  memset(err.where, 'W', sizeof err.where);
  memset(err.message, 'M', sizeof err.message);
  memset(err.hint, 'H', sizeof err.hint);
  bs_error_format(&err, "bsrun", out, sizeof out);
  ck_assert_uint_eq(strlen(out), strlen("bsrun: error[] : ; hint: ") + 32 + 160 + 512 + 256);
  ck_assert_int_eq(strspn(out + 13, "I"), 32);
  /* any room: always ended, never beyond it, a prefix of the whole line */
  for (size_t size = 0; size < 64; size++) {
    char small[66];
    memset(small, 'z', sizeof small);
    bs_error_format(&err, "bsrun", small, size);
    ck_assert(small[size] == 'z');
    if (size > 0) ck_assert(strlen(small) == size - 1 && strncmp(small, out, size - 1) == 0);
  }
}
END_TEST

/* A long text is cut at a character, not inside one. */
START_TEST(cut_utf8) {
  bs_error err = BS_ERROR_INIT;
  char text[600], out[1200];
  for (int pad = 0; pad < 3; pad++) {
    memset(text, 'a', sizeof text);
    for (int i = pad; i + 3 < 597; i += 3) memcpy(text + i, "\xe2\x82\xac", 3);
    text[597] = '\0';
    bs_error_set(&err, BS_CONFIG, "BS-X", "%s", text);
    bs_error_format(&err, "p", out, sizeof out);
    size_t n = strlen(out), last = n - 1;
    ck_assert_uint_gt(n, 500);
    ck_assert(((unsigned char)out[last] & 0x80) == 0 || memcmp(out + n - 3, "\xe2\x82\xac", 3) == 0);
  }
}
END_TEST

START_TEST(wrapping_and_errno) {
  bs_error err = BS_ERROR_INIT;
  bs_error_set(&err, BS_INPUT, "BS-A", "inner");
  bs_error_set(&err, BS_RANK_FAILED, err.id, "outer of (%s)", err.message);
  ck_assert_str_eq(err.message, "outer of (inner)");
  ck_assert_str_eq(err.id, "BS-A");
  bs_error_where(&err, "x");
  bs_error_where(&err, "%s.y", err.where);
  ck_assert_str_eq(err.where, "x.y");
  bs_error_hint(&err, "h");
  bs_error_hint(&err, "%s and i", err.hint);
  ck_assert_str_eq(err.hint, "h and i");
  ck_assert_int_eq(bs_error_errno(&err, BS_IO, "BS-B", ENOSPC, "writing %d bytes", 7), BS_IO);
  ck_assert_str_eq(err.message, "writing 7 bytes: No space left on device (errno 28)");
  ck_assert_str_eq(err.domain, "errno");
  ck_assert_int_eq(err.native_code, ENOSPC);
  ck_assert_str_eq(err.where, ""); /* a new error starts clean */
  /* no record: only the code */
  ck_assert_int_eq(bs_error_set(NULL, BS_USAGE, "BS-C", "x"), BS_USAGE);
  ck_assert_int_eq(bs_error_errno(NULL, BS_IO, "BS-C", 1, "x"), BS_IO);
  bs_error_where(NULL, "x");
  bs_error_hint(NULL, "x");
  bs_error_clear(NULL);
  char long_text[700];
  memset(long_text, 'q', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = '\0';
  bs_error_set(&err, BS_USAGE, long_text, "%s", long_text);
  ck_assert_uint_eq(strlen(err.id), sizeof err.id - 1);
  ck_assert_uint_eq(strlen(err.message), sizeof err.message - 1);
}
END_TEST

/* ---- log ---------------------------------------------------------------------------------------- */

static char seen[256];
static int seen_count;
static void collect(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  snprintf(seen, sizeof seen, "%d|%s|%d|%s", (int)level, plugin, (int)rank, message);
  *(int *)user += 1;
}

START_TEST(log_levels) {
  bs_logger logger;
  bs_logger_init(&logger, 0, collect, &seen_count);
  ck_assert_int_eq(logger.level, BS_LOG_WARN);
  ck_assert(bs_log_enabled(&logger, BS_LOG_WARN) && !bs_log_enabled(&logger, BS_LOG_INFO));
  ck_assert(!bs_log_enabled(&logger, 0) && !bs_log_enabled(NULL, BS_LOG_ERROR));
  bs_log_write(&logger, BS_LOG_INFO, "cpu", 1, "not seen");
  ck_assert_int_eq(seen_count, 0);
  bs_log_write(&logger, BS_LOG_ERROR, "cpu", 1, "K = %d", 7);
  ck_assert_int_eq(seen_count, 1);
  ck_assert_str_eq(seen, "1|cpu|1|K = 7");
  bs_log_write(&logger, BS_LOG_WARN, NULL, -1, "x");
  ck_assert_str_eq(seen, "2||-1|x");
}
END_TEST

static void *rank_thread(void *arg) {
  int32_t *out = arg;
  out[0] = bs_log_rank();
  bs_log_set_rank(5);
  out[1] = bs_log_rank();
  return NULL;
}

START_TEST(log_rank_is_the_threads_own) {
  int32_t got[2] = {0, 0};
  pthread_t thread;
  bs_log_set_rank(2);
  ck_assert_int_eq(pthread_create(&thread, NULL, rank_thread, got), 0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(got[0], -1);
  ck_assert_int_eq(got[1], 5);
  ck_assert_int_eq(bs_log_rank(), 2);
}
END_TEST

START_TEST(log_to_stderr_is_one_line) {
  int pipes[2];
  ck_assert_int_eq(pipe(pipes), 0);
  int saved = dup(STDERR_FILENO);
  ck_assert_int_ge(dup2(pipes[1], STDERR_FILENO), 0);
  bs_logger logger;
  bs_logger_init(&logger, BS_LOG_INFO, NULL, NULL);
  bs_log_write(&logger, BS_LOG_WARN, "cpu", 3, "two\nlines");
  bs_log_write(&logger, BS_LOG_INFO, "", -1, "plain");
  char big[5000];
  memset(big, 'b', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  bs_log_write(&logger, BS_LOG_ERROR, "cpu", 0, "%s", big);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(pipes[1]);
  char text[4096];
  size_t n = 0;
  for (ssize_t r; (r = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)r;
  text[n] = '\0';
  close(pipes[0]);
  const char *want = "warning: cpu: rank 3: two lines\ninfo: plain\nerror: cpu: rank 0: bbb";
  ck_assert_msg(strncmp(text, want, strlen(want)) == 0, "%s", text);
  ck_assert(text[n - 1] == '\n');
  int lines = 0;
  for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
  ck_assert_int_eq(lines, 3);
}
END_TEST

int main(void) {
  const test_case tests[] = {{status_table},
                             {line},
                             {files_in_messages},
                             {line_of_hostile_records},
                             {cut_utf8},
                             {wrapping_and_errno},
                             {log_levels},
                             {log_rank_is_the_threads_own},
                             {log_to_stderr_is_one_line},
                             {0}};
  return run_tests("error_line", tests, (test_setup){0});
}
