/* SPDX-License-Identifier: MIT
 * run_help.c - see run_help.h. */
#include "run_help.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *run_env(const char *name) {
  const char *value = getenv(name);
  if (value == NULL || value[0] == '\0') ck_abort_msg("%s is not set: run this by ctest", name);
  return value;
}

void run_make_folder(char out_path[64]) {
  snprintf(out_path, 64, "/tmp/bs-e2e-XXXXXX");
  if (mkdtemp(out_path) == NULL) ck_abort_msg("mkdtemp: %s", strerror(errno));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
  (void)st, (void)kind, (void)ftw;
  return remove(path);
}

void run_remove(const char *path) {
  nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int open_stream(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static _Noreturn void child(const char *cwd, const char *const *env, const char *const *args, int out,
                            int err) {
  const char *argv[64] = {run_env("BS_TEST_BSRUN")};
  size_t n = 1;
  while (args[n - 1] != NULL && n < 63) {
    argv[n] = args[n - 1];
    n++;
  }
  for (size_t i = 0; env != NULL && env[i] != NULL; i++) putenv((char *)(size_t)env[i]);
  if (dup2(out, 1) < 0 || dup2(err, 2) < 0 || chdir(cwd) != 0) _exit(125);
  execv(argv[0], (char *const *)(size_t)argv);
  _exit(126);
}

static int wait_child(pid_t pid, double limit) {
  const double start = seconds_now();
  const struct timespec pause = {0, 2000000};
  int status;
  for (;;) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) return status;
    if (got < 0 && errno != EINTR) ck_abort_msg("waitpid: %s", strerror(errno));
    if (seconds_now() - start > limit) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      ck_abort_msg("bsrun ran for more than %.0f s", limit);
    }
    nanosleep(&pause, NULL);
  }
}

const char **run_words(const char *line, ...) {
  static struct {
    char text[2048];
    const char *words[97];
  } lists[4];
  static unsigned turn;
  size_t n = 0;
  const unsigned at = turn++ % 4;
  ck_assert_uint_lt(strlen(line), sizeof lists[at].text);
  memset(lists[at].words, 0, sizeof lists[at].words);
  strcpy(lists[at].text, line);
  va_list more;
  va_start(more, line);
  for (char *word = strtok(lists[at].text, " "); word != NULL; word = strtok(NULL, " ")) {
    ck_assert_uint_lt(n, 96);
    lists[at].words[n] = strcmp(word, "%s") == 0 ? va_arg(more, const char *) : word;
    if (lists[at].words[n++] == NULL) break;
  }
  va_end(more);
  return lists[at].words;
}

void run_bsrun(run_result *r, const char *cwd, const char *const *env, const char *const *args) {
  char streams[64];
  memset(r, 0, sizeof *r);
  run_make_folder(streams);
  const int out = open_stream(streams, "out"), err = open_stream(streams, "err");
  if (out < 0 || err < 0) ck_abort_msg("cannot make files in %s", streams);
  const double start = seconds_now();
  const pid_t pid = fork();
  if (pid < 0) ck_abort_msg("fork: %s", strerror(errno));
  if (pid == 0) child(cwd, env, args, out, err);
  const int status = wait_child(pid, 600.0);
  r->seconds = seconds_now() - start;
  close(out);
  close(err);
  r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  r->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  r->out = run_read(streams, "out", NULL);
  r->err = run_read(streams, "err", NULL);
  run_remove(streams);
}

void run_free(run_result *r) {
  free(r->out);
  free(r->err);
  memset(r, 0, sizeof *r);
}

void run_expect(const run_result *r, int code, const char *what) {
  if (r->signal == 0 && r->code == code) return;
  ck_abort_msg("%s: exit %d signal %d, wanted exit %d\nstdout: %.1500s\nstderr: %.1500s", what, r->code,
               r->signal, code, r->out, r->err);
}

static int starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

void run_expect_error(const run_result *r, int no_stdout, char out_id[64], const char *what) {
  static const char lead[] = "bsrun: error[";
  size_t found = 0;
  out_id[0] = '\0';
  for (const char *line = r->err; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    if (starts(line, lead)) {
      const char *id = line + sizeof lead - 1;
      const size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
      if (n < 4 || n > 63 || !starts(id, "BS-") || !starts(id + n, "] ") || length < n + sizeof lead + 8)
        ck_abort_msg("%s: not an error line: %.*s", what, (int)length, line);
      snprintf(out_id, 64, "%.*s", (int)n, id);
      found++;
    } else if (!starts(line, "bsrun: note: ") && !starts(line, "bsrun: warning:") &&
               !(starts(line, "==") && strstr(line, "ASan doesn't fully support makecontext") != NULL)) {
      ck_abort_msg("%s: stderr has the line: %.*s", what, (int)length, line);
    }
    line += length + (line[length] == '\n');
  }
  if (found != 1) ck_abort_msg("%s: %zu error lines, wanted 1; stderr: %.1500s", what, found, r->err);
  if (no_stdout && r->out[0] != '\0') ck_abort_msg("%s: stdout has: %.500s", what, r->out);
}

static void join(const char *const *common, const char *const *args, const char *out[64]) {
  size_t n = 0;
  for (; common != NULL && *common != NULL && n < 60; common++) out[n++] = *common;
  for (; *args != NULL && n < 60; args++) out[n++] = *args;
  out[n] = NULL;
}

void run_check_bad(const char *cwd, const char *const *env, const char *const *common, const run_bad *row) {
  const char *args[64];
  char id[64];
  run_result r;
  join(common, row->args, args);
  run_bsrun(&r, cwd, env, args);
  run_expect(&r, row->code, row->what);
  run_expect_error(&r, 1, id, row->what);
  if (strcmp(id, row->id) != 0) ck_abort_msg("%s: id %s, wanted %s: %s", row->what, id, row->id, r.err);
  if (row->says != NULL && strstr(r.err, row->says) == NULL)
    ck_abort_msg("%s: no '%s' in: %s", row->what, row->says, r.err);
  char out[128];
  snprintf(out, sizeof out, "%.100s/out", cwd);
  if (run_count_files(out, NULL) != 0) ck_abort_msg("%s: files were left in %s", row->what, out);
  run_free(&r);
}

void run_check_good(const char *cwd, const char *const *env, const char *const *common,
                    const char *const *more) {
  const char *args[64];
  run_result r;
  join(common, more, args);
  run_bsrun(&r, cwd, env, args);
  run_expect(&r, 0, "the control, without the bad part");
  run_free(&r);
}

char *run_read(const char *folder, const char *name, size_t *out_size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "rb");
  if (f == NULL) return NULL;
  size_t used = 0, room = 4096;
  char *text = malloc(room);
  for (size_t n = 1; text != NULL && n > 0; used += n) {
    if (room - used < 2) text = realloc(text, room *= 2);
    n = text == NULL ? 0 : fread(text + used, 1, room - used - 1, f);
  }
  fclose(f);
  if (text == NULL) ck_abort_msg("no memory for %s", path);
  text[used] = '\0';
  if (out_size != NULL) *out_size = used;
  return text;
}

void run_write(const char *folder, const char *name, const void *data, size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
    ck_abort_msg("cannot write %s: %s", path, strerror(errno));
}

int run_exists(const char *folder, const char *name) {
  char path[4096];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return lstat(path, &st) == 0;
}

/* nftw has no argument for its callback. */
static const char *count_name;
static size_t count_found;
static int count_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
  (void)st;
  if (kind != FTW_D && kind != FTW_DP)
    count_found += count_name == NULL || strcmp(path + ftw->base, count_name) == 0;
  return 0;
}

size_t run_count_files(const char *folder, const char *name) {
  count_name = name;
  count_found = 0;
  nftw(folder, count_one, 16, FTW_PHYS);
  return count_found;
}

json_t *run_rows(const char *text) {
  json_t *rows = json_array();
  for (const char *line = text; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    json_error_t why;
    json_t *row = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(row)) ck_abort_msg("not a JSON object (%s): %.*s", why.text, (int)length, line);
    json_array_append_new(rows, row);
    line += length + (line[length] == '\n');
  }
  return rows;
}

size_t run_same_files(const char *cwd, const char *a, const char *b) {
  char left[160], right[160];
  size_t n = 0;
  snprintf(left, sizeof left, "%s/%s", cwd, a);
  snprintf(right, sizeof right, "%s/%s", cwd, b);
  DIR *dir = opendir(left);
  ck_assert_ptr_nonnull(dir);
  for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
    if (e->d_name[0] == '.') continue;
    size_t size_a = 0, size_b = 0;
    char *x = run_read(left, e->d_name, &size_a), *y = run_read(right, e->d_name, &size_b);
    if (x == NULL || y == NULL || size_a != size_b || memcmp(x, y, size_a) != 0)
      ck_abort_msg("%s differs between %s and %s", e->d_name, a, b);
    free(x);
    free(y);
    n++;
  }
  closedir(dir);
  return n;
}

json_t *run_record(const char *cwd, const char *run_dir) {
  char folder[4096];
  snprintf(folder, sizeof folder, "%s%s%s", run_dir[0] == '/' ? "" : cwd, run_dir[0] == '/' ? "" : "/",
           run_dir);
  char *text = run_read(folder, "metrics.jsonl", NULL);
  if (text == NULL) ck_abort_msg("no metrics.jsonl in %s", folder);
  json_t *rows = run_rows(text);
  free(text);
  ck_assert_uint_eq(json_array_size(rows), 1);
  json_t *record = json_incref(json_array_get(rows, 0));
  json_decref(rows);
  return record;
}

const char *run_str(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) ck_abort_msg("no text in field %s", key);
  return json_string_value(value);
}

double run_num(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) ck_abort_msg("no number in field %s", key);
  return json_number_value(value);
}
