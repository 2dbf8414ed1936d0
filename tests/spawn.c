/* SPDX-License-Identifier: MIT
 * spawn.c - see spawn.h. */
#include "tests/spawn.h"

#include <fnmatch.h>
#include <ftw.h>

#include "lab/process/child.h"

enum { CANNOT_ENTER = 98, CANNOT_RUN = 99 };
static const double LIMIT_S = 600.0; /* what hangs is ended; no test is about it */

const char *dir;

void dir_make(void) {
  dir = scratch_dir();
}

void dir_remove(void) {
  remove_dir(dir);
}

const char *run_env(const char *name) {
  const char *value = getenv(name);
  if (value == NULL || value[0] == '\0') ck_abort_msg("%s is not set: run this by ctest", name);
  return value;
}

const char *bsrun_path(void) {
  return run_env("BS_TEST_BSRUN");
}

static int open_stream(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) ck_abort_msg("cannot make %s: %s", path, strerror(errno));
  return fd;
}

static void enter(void *user) {
  const spawn_order *order = user;
  for (size_t i = 0; order->env != NULL && order->env[i] != NULL; i++)
    putenv((char *)(uintptr_t)order->env[i]);
  if (chdir(order->cwd) != 0) _exit(CANNOT_ENTER);
}

pid_t start_spawn(const spawn_order *order) {
  const int out = open_stream(order->cwd, ".stdout");
  const int err = order->together ? out : open_stream(order->cwd, ".stderr");
  const bs_child child = {.program = order->program,
                          .words = (char *const *)(uintptr_t)order->words,
                          .run = enter,
                          .user = (void *)(uintptr_t)order,
                          .stdio = {BS_CHILD_NULL, out, err},
                          .death = SIGKILL,
                          .not_run = CANNOT_RUN};
  const pid_t pid = bs_child_start(&child);
  if (pid < 0) ck_abort_msg("fork: %s", strerror(errno));
  close(out);
  if (err != out) close(err);
  return pid;
}

ran finish_spawn(const char *cwd, pid_t pid) {
  ran r = {0};
  int status = 0;
  const int ended = bs_child_ended(pid, LIMIT_S, &status);
  if (ended == 0) bs_child_kill(pid);
  if (ended != 1) ck_abort_msg("it ran for more than %.0f s, or is no child", LIMIT_S);
  r.killed = WIFSIGNALED(status);
  r.code = bs_child_code(status);
  r.out = read_text(cwd, ".stdout");
  r.err = read_text(cwd, ".stderr");
  ck_assert_int_ne(r.code, CANNOT_RUN);
  return r;
}

ran run_spawn(const spawn_order *order) {
  const double start = bs_process_now();
  ran r = finish_spawn(order->cwd, start_spawn(order));
  r.seconds = bs_process_now() - start;
  return r;
}

void ran_free(ran *r) {
  free(r->out);
  free(r->err);
  memset(r, 0, sizeof *r);
}

pid_t start_bsrun(const char *cwd, char *const argv[]) {
  return start_spawn(&(spawn_order){cwd, bsrun_path(), (const char *const *)(uintptr_t)argv, NULL, 0});
}

ran bsrun(const char *cwd, ...) {
  const char *argv[64] = {"bsrun"};
  va_list ap;
  int n = 1;
  va_start(ap, cwd);
  for (const char *word = va_arg(ap, const char *); word != NULL && n < 63; word = va_arg(ap, const char *))
    argv[n++] = word;
  va_end(ap);
  return run_spawn(&(spawn_order){cwd, bsrun_path(), argv, NULL, 0});
}

void run_bsrun(ran *out, const char *cwd, const char *const *env, const char *const *args) {
  const char *argv[98] = {"bsrun"};
  for (size_t n = 1; n < 97 && args[n - 1] != NULL; n++) argv[n] = args[n - 1];
  *out = run_spawn(&(spawn_order){cwd, bsrun_path(), argv, env, 0});
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

/* ---- what it said ----------------------------------------------------------------------------------- */

void run_expect(const ran *r, int code, const char *what) {
  if (r->code == code) return;
  ck_abort_msg("%s: exit %d%s, wanted %d\nstderr: %.3000s\nstdout: %.3000s", what, r->code,
               r->killed ? " (a signal)" : "", code, r->err, r->out);
}

static int starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

int is_aside(const char *line) {
  return starts(line, "bsrun: note: ") || starts(line, "bsrun: warning:") ||
         (starts(line, "==") && strstr(line, "ASan doesn't fully support makecontext") != NULL);
}

void run_expect_error(const ran *r, int no_stdout, char out_id[64], const char *what) {
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
    } else if (!is_aside(line)) {
      ck_abort_msg("%s: stderr has the line: %.*s", what, (int)length, line);
    }
    line += length + (line[length] == '\n');
  }
  if (found != 1) ck_abort_msg("%s: %zu error lines, wanted 1; stderr: %.1500s", what, found, r->err);
  if (no_stdout && r->out[0] != '\0') ck_abort_msg("%s: stdout has: %.500s", what, r->out);
}

/* ---- what it left ----------------------------------------------------------------------------------- */

void shell(const char *format, ...) {
  char command[4096];
  const int n = snprintf(command, sizeof command, "cd '%s' && { ", dir);
  va_list ap;
  va_start(ap, format);
  vsnprintf(command + n, sizeof command - (size_t)n - 4, format, ap);
  va_end(ap);
  ck_assert_msg(system(strcat(command, "\n}")) == 0, "%s", command);
}

char *run_read(const char *folder, const char *name, size_t *out_size) {
  char path[4096];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "rb");
  if (f == NULL || fstat(fileno(f), &st) != 0) return NULL;
  char *bytes = calloc(1, (size_t)st.st_size + 1);
  ck_assert_ptr_nonnull(bytes);
  *out_size = fread(bytes, 1, (size_t)st.st_size, f);
  fclose(f);
  return bytes;
}

void run_write(const char *folder, const char *name, const void *data, size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
    ck_abort_msg("cannot write %s: %s", path, strerror(errno));
}

/* nftw has no argument for its callback. */
static const char *count_name;
static size_t count_found;
static int count_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
  const char *name = path + ftw->base;
  (void)st;
  if (kind == FTW_D || kind == FTW_DP || strcmp(name, ".stdout") == 0 || strcmp(name, ".stderr") == 0)
    return 0;
  count_found += count_name == NULL || fnmatch(count_name, name, 0) == 0;
  return 0;
}

size_t run_count_files(const char *folder, const char *name) {
  count_name = name;
  count_found = 0;
  nftw(folder, count_one, 16, FTW_PHYS);
  return count_found;
}

int result_files(const char *in) {
  char path[700];
  snprintf(path, sizeof path, "%s/results", in);
  return (int)run_count_files(path, NULL);
}

int run_exists(const char *folder, const char *name) {
  char path[4096];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return lstat(path, &st) == 0;
}

const char *run_folder(const ran *r, const char *cwd, int index) {
  static char path[1200];
  const char *p = r->out;
  for (int i = 0; i <= index; i++) {
    p = strstr(p, "\nrun: ");
    ck_assert_ptr_nonnull(p);
    p += 6;
  }
  snprintf(path, sizeof path, "%s/%.*s", cwd, (int)strcspn(p, "\n"), p);
  return path;
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

json_t *run_record(const char *cwd, const char *run_dir) {
  char folder[3000];
  snprintf(folder, sizeof folder, "%s%s%s", run_dir[0] == '/' ? "" : cwd, run_dir[0] == '/' ? "" : "/",
           run_dir);
  char *text = read_text(folder, "metrics.jsonl");
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
