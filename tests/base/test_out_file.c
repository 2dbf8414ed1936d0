/* SPDX-License-Identifier: MIT
 * test_out_file.c - what stands where a file is written: it is replaced only when it is a regular one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/base/out_file.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static char path[600], other[600];

static void setup(void) {
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/out", dir);
  snprintf(other, sizeof other, "%s/other", dir);
}
static void teardown(void) {
  remove_dir(dir);
}

static void holds(const char *name, const char *want) {
  char *text = read_text(dir, name);
  ck_assert_msg(text != NULL && strcmp(text, want) == 0, "%s: %s", name, text != NULL ? text : "(none)");
  free(text);
}

static mode_t kind(const char *name) {
  struct stat at;
  return lstat(name, &at) == 0 ? at.st_mode & S_IFMT : 0;
}

static int entries(void) {
  char command[700];
  snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) -eq 1", dir);
  return system(command) == 0;
}

START_TEST(a_regular_file_is_replaced_with_its_mode) {
  struct stat at;
  ck_assert_int_eq(bs_out_text(path, "one", 3), 0);
  holds("out", "one");
  ck_assert_int_eq(chmod(path, 0600), 0);
  ck_assert_int_eq(bs_out_text(path, "two", 3), 0);
  holds("out", "two");
  ck_assert_int_eq(stat(path, &at), 0);
  ck_assert_uint_eq(at.st_mode & 0777, 0600);
  ck_assert(entries());
}
END_TEST

START_TEST(a_failure_keeps_the_old_file) {
  bs_out_file out;
  ck_assert_int_eq(bs_out_text(path, "old", 3), 0);
  ck_assert_int_eq(bs_out_open(path, &out), 0);
  ck_assert_int_eq(bs_out_write(&out, "new", 3), 0);
  ck_assert_int_eq(bs_out_close(&out, ENOSPC, 1), ENOSPC);
  holds("out", "old");
  ck_assert(entries());
}
END_TEST

START_TEST(a_link_is_followed) {
  ck_assert_int_eq(bs_out_text(other, "old", 3), 0);
  ck_assert_int_eq(symlink("other", path), 0);
  ck_assert_int_eq(bs_out_text(path, "new", 3), 0);
  holds("other", "new");
  ck_assert_uint_eq(kind(path), S_IFLNK);
  ck_assert_int_eq(unlink(other), 0); /* it points to what is not there yet */
  ck_assert_int_eq(bs_out_text(path, "made", 4), 0);
  holds("other", "made");
  ck_assert_uint_eq(kind(path), S_IFLNK);
}
END_TEST

START_TEST(a_fifo_is_written_to) {
  char got[16] = "";
  int sum[2];
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_assert_int_eq(pipe(sum), 0);
  const pid_t reader = fork();
  if (reader == 0) {
    char text[16];
    const int fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, text, sizeof text);
    _exit(write(sum[1], text, (size_t)n) == n ? 0 : 1);
  }
  ck_assert_int_eq(bs_out_text(path, "through", 7), 0);
  ck_assert_int_eq(waitpid(reader, NULL, 0), reader);
  ck_assert_int_eq(read(sum[0], got, sizeof got - 1), 7);
  ck_assert_str_eq(got, "through");
  ck_assert_uint_eq(kind(path), S_IFIFO);
  ck_assert(entries());
}
END_TEST

START_TEST(a_device_stays_one) {
  ck_assert_int_eq(symlink("/dev/full", path), 0);
  ck_assert_int_eq(bs_out_text(path, "x", 1), ENOSPC);
  ck_assert_uint_eq(kind("/dev/full"), S_IFCHR);
  ck_assert_int_eq(bs_out_text("/dev/full", "x", 1), ENOSPC);
  ck_assert_uint_eq(kind("/dev/full"), S_IFCHR);
  ck_assert_int_eq(bs_out_text("/dev/null", "x", 1), 0);
  ck_assert_uint_eq(kind("/dev/null"), S_IFCHR);
}
END_TEST

START_TEST(what_cannot_be_a_file_is_an_error) {
  char below[700];
  ck_assert_int_eq(bs_out_text(dir, "x", 1), EISDIR);
  snprintf(below, sizeof below, "%s/none/out", dir);
  ck_assert_int_eq(bs_out_text(below, "x", 1), ENOENT);
  ck_assert_int_eq(bs_out_text("", "x", 1), ENOENT);
}
END_TEST

/* "-", and stdout by its other names, even where it is a regular file. */
START_TEST(a_dash_is_stdout) {
  static const char *const names[] = {"-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"};
  const int fd = open(other, O_RDWR | O_CREAT, 0600);
  ck_assert_int_eq(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    ck_assert(bs_out_is_stdout(names[i]));
    ck_assert_int_eq(bs_out_text(names[i], "ab", 2), 0);
  }
  holds("other", "abababab");
  ck_assert_int_eq(access("-", F_OK), -1);
}
END_TEST

/* What is printed then goes to stderr. */
START_TEST(stdout_can_be_claimed) {
  const int fd = open(other, O_RDWR | O_CREAT, 0600), errors = open(path, O_RDWR | O_CREAT, 0600);
  ck_assert_int_eq(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
  ck_assert_int_eq(dup2(errors, STDERR_FILENO), STDERR_FILENO);
  ck_assert_int_eq(bs_out_claim_stdout(), 0);
  ck_assert_int_eq(bs_out_claim_stdout(), 0);
  printf("words");
  fflush(stdout);
  ck_assert_int_eq(bs_out_text("-", "pa", 2), 0);
  ck_assert_int_eq(bs_out_text("/dev/stdout", "ge", 2), 0);
  holds("other", "page");
  holds("out", "words");
}
END_TEST

START_TEST(our_own_names_replace_regular_files_alone) {
  const int fd = open(dir, O_RDONLY | O_DIRECTORY);
  ck_assert_int_eq(bs_out_text(path, "x", 1), 0);
  ck_assert_int_eq(mkfifo(other, 0600), 0);
  ck_assert_int_eq(bs_out_rename(fd, "out", "other"), EEXIST);
  ck_assert_uint_eq(kind(other), S_IFIFO);
  ck_assert_int_eq(bs_out_rename(fd, "out", "third"), 0);
  holds("third", "x");
  close(fd);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_regular_file_is_replaced_with_its_mode},
                             {a_failure_keeps_the_old_file},
                             {a_link_is_followed},
                             {a_fifo_is_written_to},
                             {a_device_stays_one},
                             {what_cannot_be_a_file_is_an_error},
                             {a_dash_is_stdout},
                             {stdout_can_be_claimed},
                             {our_own_names_replace_regular_files_alone},
                             {0}};
  return run_tests("out_file", tests, (test_setup){.before = setup, .after = teardown});
}
