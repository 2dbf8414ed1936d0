/* SPDX-License-Identifier: MIT
 * run.c - runs the checks with libcheck, each in a forked child with a time limit, and classes the results. A
 * child reports "unsupported" through shared memory; libcheck reports all other results. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/text.h"
#include "kit/kit.h"

kit_run kit;

uint64_t kit_next(uint64_t *seed) {
  *seed += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = *seed;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

int64_t kit_below(uint64_t *seed, int64_t n) {
  return (int64_t)(kit_next(seed) % (uint64_t)n);
}

void kit_unsupported(const char *fmt, ...) {
  struct kit_note *note = &kit.notes[kit.current];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(note->text, sizeof note->text, fmt, ap);
  va_end(ap);
  note->unsupported = 1;
}

START_TEST(one_case) {
  kit.current = (uint32_t)_i;
  kit_fence_watch();
  kit.cases[_i].body(&kit.cases[_i]);
  kit.notes[_i].done = 1;
}
END_TEST

/* ---- expected failures: "NAME: REASON" lines ------------------------------------------------ */

typedef struct xfail {
  char name[KIT_NAME];
  char reason[400];
} xfail;

typedef struct xfails {
  xfail *rows;
  size_t n;
} xfails;

static int32_t xfail_line(xfails *x, const char *file, int line, char *text, bs_error *err) {
  text[strcspn(text, "\n")] = '\0';
  text += strspn(text, " \t");
  if (text[0] == '\0' || text[0] == '#') return BS_OK;
  char *colon = strstr(text, ": ");
  if (colon == NULL || colon == text || colon[2 + strspn(colon + 2, " ")] == '\0') {
    bs_error_set(err, BS_INPUT, "BS-KIT-XFAIL", "'%.80s' is not NAME: REASON", text);
    bs_error_where(err, "%s:%d", file, line);
    return BS_INPUT;
  }
  xfail *rows = realloc(x->rows, (x->n + 1) * sizeof *rows);
  if (rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for %s", file);
  x->rows = rows;
  *colon = '\0';
  snprintf(rows[x->n].name, sizeof rows[0].name, "%s", text);
  snprintf(rows[x->n].reason, sizeof rows[0].reason, "%s", colon + 2 + strspn(colon + 2, " "));
  x->n++;
  return BS_OK;
}

static int32_t xfail_read(const char *file, xfails *out, bs_error *err) {
  char text[1024];
  int32_t rc = BS_OK;
  if (file == NULL) return BS_OK;
  FILE *f = fopen(file, "re");
  if (f == NULL) {
    bs_error_set(err, BS_INPUT, "BS-KIT-XFAIL", "the list of expected failures cannot be opened");
    bs_error_where(err, "%s", file);
    return BS_INPUT;
  }
  for (int line = 1; rc == BS_OK && fgets(text, sizeof text, f) != NULL; line++)
    rc = xfail_line(out, file, line, text, err);
  if (rc == BS_OK && ferror(f)) { /* a folder can be opened, not read */
    rc = bs_error_set(err, BS_INPUT, "BS-KIT-XFAIL", "the list of expected failures cannot be read: %s",
                      strerror(errno));
    bs_error_where(err, "%s", file);
  }
  fclose(f);
  return rc;
}

/* A line that names no check of the plugin is a mistake, or is out of date. */
static int32_t xfail_known(const xfails *x, const char *file, bs_error *err) {
  const char **names = calloc(kit.n_cases + 1, sizeof *names);
  int32_t rc = names != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory");
  for (uint32_t i = 0; rc == BS_OK && i < kit.n_cases; i++) names[i] = kit.cases[i].name;
  for (size_t k = 0; rc == BS_OK && k < x->n; k++) {
    uint32_t i = 0;
    while (i < kit.n_cases && strcmp(names[i], x->rows[k].name) != 0) i++;
    if (i < kit.n_cases) continue;
    const char *near = bs_nearest(x->rows[k].name, names, kit.n_cases);
    rc = bs_error_set(err, BS_INPUT, "BS-KIT-XFAIL", "this plugin has no check '%s'", x->rows[k].name);
    bs_error_where(err, "%s", file);
    if (near != NULL) bs_error_hint(err, "did you mean '%s'?", near);
  }
  free(names);
  return rc;
}

/* ---- running and classing ------------------------------------------------------------------- */

/* A group's name says all of it, a longer one the checks whose names begin so. */
static int stands_for(const char *name, size_t length, const kit_case *c) {
  if (strlen(c->group) == length && strncmp(name, c->group, length) == 0) return 1;
  return memchr(name, '.', length) != NULL && strncmp(name, c->name, length) == 0;
}

static int wanted(const bs_kit_options *o, const kit_case *c) {
  if (o->group == NULL) return 1;
  for (const char *name = o->group;; name++) {
    const size_t length = strcspn(name, ",");
    if (stands_for(name, length, c)) return 1;
    name += length;
    if (name[0] == '\0') return 0;
  }
}

/* Each name must stand for a check of this plugin. */
static int32_t check_groups(const char *groups, bs_error *err) {
  for (const char *name = groups; name != NULL;) {
    const size_t length = strcspn(name, ",");
    uint32_t i = 0;
    while (i < kit.n_cases && !stands_for(name, length, &kit.cases[i])) i++;
    if (i == kit.n_cases)
      return bs_error_set(err, BS_USAGE, "BS-KIT-GROUP",
                          "group %.*s has no check that fits this plugin's kinds", (int)length, name);
    name = name[length] == ',' ? name + length + 1 : NULL;
  }
  return BS_OK;
}

static void choose(const bs_kit_options *o) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < kit.n_cases; i++)
    kit.cases[i].chosen = wanted(o, &kit.cases[i]) && (o->parts == 0 || n++ % o->parts == o->part - 1);
}

static SRunner *make_runner(void) {
  SRunner *runner = NULL;
  for (uint32_t i = 0; i < kit.n_cases; i++) {
    if (!kit.cases[i].chosen) continue;
    Suite *suite = suite_create(kit.cases[i].group);
    TCase *tc = tcase_create(kit.cases[i].name);
    tcase_set_timeout(tc, kit_full() ? KIT_FULL_LIMIT_S : KIT_LIMIT_S);
    tcase_add_loop_test(tc, one_case, (int)i, (int)i + 1);
    suite_add_tcase(suite, tc);
    if (runner == NULL)
      runner = srunner_create(suite);
    else
      srunner_add_suite(runner, suite);
  }
  return runner;
}

static void class_row(const kit_case *c, uint32_t at, const xfails *x, TestResult *result, bs_kit_row *row) {
  const struct kit_note *note = &kit.notes[at];
  const xfail *expected = NULL;
  for (size_t k = 0; k < x->n; k++)
    if (strcmp(x->rows[k].name, c->name) == 0) expected = &x->rows[k];
  snprintf(row->group, sizeof row->group, "%s", c->group);
  snprintf(row->name, sizeof row->name, "%s", c->name);
  const int passed = tr_rtype(result) == CK_PASS;
  row->result = !passed ? BS_KIT_FAIL : note->unsupported ? BS_KIT_UNSUPPORTED : BS_KIT_PASS;
  snprintf(row->text, sizeof row->text, "%s", !passed ? tr_msg(result) : note->text);
  /* The message for a child that the check itself ended, or that a signal ended. */
  if (!passed && !note->unsupported && note->text[0] != '\0')
    snprintf(row->text, sizeof row->text, "%s", note->text);
  else if (!passed && strstr(row->text, "signal 6") != NULL)
    snprintf(row->text + strlen(row->text), sizeof row->text - strlen(row->text),
             ": a plugin may not call abort, and no exception may leave it");
  if (passed && !note->done) { /* an exit(0), which libcheck takes for a pass */
    row->result = BS_KIT_FAIL;
    snprintf(row->text, sizeof row->text, "the plugin ends the process: it may not call exit");
  }
  if (row->result == BS_KIT_UNSUPPORTED && c->least) {
    row->result = BS_KIT_FAIL;
    snprintf(row->text, sizeof row->text, "the least that its kind must do is not supported: %.500s",
             note->text);
  }
  if (expected == NULL) return;
  if (row->result == BS_KIT_FAIL) {
    row->result = BS_KIT_XFAIL;
    snprintf(row->text, sizeof row->text, "%s", expected->reason);
  } else {
    row->result = BS_KIT_FAIL;
    snprintf(row->text, sizeof row->text, "does not fail any more, but is expected to: %s", expected->reason);
  }
}

/* Results come in the order of the given checks. A check without a result is a failure, for any reason. */
static void class_all(SRunner *runner, const xfails *x, bs_kit_report *out) {
  TestResult **results = srunner_results(runner);
  const int n = srunner_ntests_run(runner);
  int next = 0;
  for (uint32_t i = 0; i < kit.n_cases; i++) {
    bs_kit_row *row = &out->rows[out->n_rows];
    if (!kit.cases[i].chosen) continue;
    if (next < n && strcmp(tr_tcname(results[next]), kit.cases[i].name) == 0) {
      class_row(&kit.cases[i], i, x, results[next++], row);
    } else {
      snprintf(row->group, sizeof row->group, "%s", kit.cases[i].group);
      snprintf(row->name, sizeof row->name, "%s", kit.cases[i].name);
      snprintf(row->text, sizeof row->text, "the check did not run: it has no result");
      row->result = BS_KIT_FAIL;
    }
    out->n_rows++;
    out->count[row->result]++;
  }
  free(results);
}

static void write_grade(bs_kit_report *r) {
  char kinds[96] = "", failed[32] = "";
  for (uint32_t k = 0; k < BS_KIND_COUNT_; k++)
    if (r->kinds & 1u << k)
      snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s%s", kinds[0] != '\0' ? "," : "",
               kit_kind_word(k));
  if (r->count[BS_KIT_FAIL] > 0) snprintf(failed, sizeof failed, "%u FAIL, ", r->count[BS_KIT_FAIL]);
  char words[300] = "blockshock-conformant";
  if (!bs_kit_passed(r))
    snprintf(words, sizeof words, "NOT blockshock-conformant");
  else if (r->group[0] != '\0') /* who passes a part may fail another */
    snprintf(words, sizeof words, "partial: group %s", r->group);
  snprintf(r->grade, sizeof r->grade, "%s %u.%u: %s (%s%u pass, %u unsupported, %u xfail)", words,
           BS_ABI_MAJOR, BS_ABI_MINOR, kinds[0] != '\0' ? kinds : "nothing", failed, r->count[BS_KIT_PASS],
           r->count[BS_KIT_UNSUPPORTED], r->count[BS_KIT_XFAIL]);
}

int bs_kit_passed(const bs_kit_report *r) {
  return r->count[BS_KIT_FAIL] == 0 && r->count[BS_KIT_PASS] > 0;
}

/* The file by its resolved path: a bare name would be looked for where libraries lie. */
static int32_t prepare(bs_kit_options *options, bs_kit_report *out, bs_error *err) {
  static char resolved[PATH_MAX];
  if (access(options->plugin, R_OK) != 0 || realpath(options->plugin, resolved) == NULL) {
    bs_error_set(err, BS_INPUT, "BS-KIT-FILE", "there is no such plugin file, or it cannot be read");
    bs_error_where(err, "%s", options->plugin);
    return BS_INPUT;
  }
  options->plugin = resolved;
  const size_t notes = KIT_MAX_CASES * sizeof *kit.notes;
  char *shared =
      mmap(NULL, notes + sizeof(kit_survey), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  kit.options = options;
  kit.cases = calloc(KIT_MAX_CASES, sizeof *kit.cases);
  if (shared == MAP_FAILED || kit.cases == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for the list of checks");
  kit.notes = (struct kit_note *)(void *)shared;
  kit.survey = (kit_survey *)(void *)(shared + notes);
  kit_survey_make(options, kit.survey);
  kit.n_cases = kit_list(kit.survey, kit.cases, KIT_MAX_CASES);
  choose(options);
  out->rows = calloc(kit.n_cases, sizeof *out->rows);
  snprintf(out->id, sizeof out->id, "%s", kit.survey->id);
  snprintf(out->version, sizeof out->version, "%s", kit.survey->version);
  snprintf(out->path, sizeof out->path, "%s", options->plugin);
  out->kinds = kit.survey->kinds;
  out->full = options->full;
  if (options->group != NULL) snprintf(out->group, sizeof out->group, "%s", options->group);
  if (options->parts > 0)
    snprintf(out->group, sizeof out->group, "%s, part %u/%u", options->group != NULL ? options->group : "all",
             options->part, options->parts);
  return out->rows != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory");
}

/* NAME=VALUE, and as many as there is room for. */
static int32_t settings(const char *what, const char *const *list, uint32_t n, bs_error *err) {
  if (n > KIT_MAX_PARAMS)
    return bs_error_set(err, BS_USAGE, "BS-KIT-SETTING", "%u %s, at most %d", n, what, KIT_MAX_PARAMS);
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == NULL || strchr(list[i], '=') == NULL || list[i][0] == '=')
      return bs_error_set(err, BS_USAGE, "BS-KIT-SETTING", "'%.80s' of the %s is not NAME=VALUE",
                          list[i] != NULL ? list[i] : "NULL", what);
  return BS_OK;
}

/* Variables that libcheck reads: they would leave checks out, run them in this process, or change limits. */
static const char *const of_libcheck[] = {"CK_RUN_SUITE",
                                          "CK_RUN_CASE",
                                          "CK_INCLUDE_TAGS",
                                          "CK_EXCLUDE_TAGS",
                                          "CK_FORK",
                                          "CK_VERBOSITY",
                                          "CK_LOG_FILE_NAME",
                                          "CK_XML_LOG_FILE_NAME",
                                          "CK_TAP_LOG_FILE_NAME",
                                          "CK_MAX_MSG_SIZE",
                                          "CK_DEFAULT_TIMEOUT",
                                          "CK_TIMEOUT_MULTIPLIER"};
enum { N_OF_LIBCHECK = sizeof of_libcheck / sizeof of_libcheck[0] };

/* Runs all without these variables; afterwards the caller's values are restored. */
static void run_all(SRunner *runner) {
  char *kept[N_OF_LIBCHECK] = {NULL};
  for (size_t i = 0; i < N_OF_LIBCHECK; i++) {
    const char *value = getenv(of_libcheck[i]);
    if (value != NULL) kept[i] = strdup(value);
    unsetenv(of_libcheck[i]);
  }
  srunner_set_fork_status(runner, CK_FORK);
  srunner_run_all(runner, CK_SILENT);
  for (size_t i = 0; i < N_OF_LIBCHECK; i++) {
    if (kept[i] != NULL) setenv(of_libcheck[i], kept[i], 1);
    free(kept[i]);
  }
}

/* Each check is a child process, and libcheck ends this one where it can start none. */
static int32_t try_child(bs_error *err) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (pid < 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-KIT-FORK", errno, "cannot start a child for a check");
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  return BS_OK;
}

int32_t bs_kit_run(const bs_kit_options *given, bs_kit_report *out, bs_error *err) {
  xfails x = {NULL, 0};
  bs_kit_options own = *given, *options = &own;
  memset(out, 0, sizeof *out);
  memset(&kit, 0, sizeof kit);
  int32_t rc = try_child(err);
  if (rc == BS_OK && options->parts > 0 && (options->part == 0 || options->part > options->parts))
    rc = bs_error_set(err, BS_USAGE, "BS-KIT-PART", "part %u of %u: the first is 1", options->part,
                      options->parts);
  if (rc == BS_OK) rc = settings("params", options->params, options->n_params, err);
  if (rc == BS_OK) rc = settings("options", options->options, options->n_options, err);
  if (rc == BS_OK) rc = xfail_read(options->xfail, &x, err);
  if (rc == BS_OK) rc = prepare(options, out, err);
  if (rc == BS_OK) rc = xfail_known(&x, options->xfail, err);
  if (rc == BS_OK) rc = check_groups(options->group, err);
  SRunner *runner = rc == BS_OK ? make_runner() : NULL;
  if (rc == BS_OK && runner == NULL)
    rc = bs_error_set(err, BS_USAGE, "BS-KIT-GROUP", "%s has no check", out->group);
  if (runner != NULL) {
    run_all(runner);
    class_all(runner, &x, out);
    srunner_free(runner);
  }
  if (rc == BS_OK) write_grade(out);
  if (kit.notes != NULL) munmap(kit.notes, KIT_MAX_CASES * sizeof *kit.notes + sizeof(kit_survey));
  free(kit.cases);
  free(x.rows);
  memset(&kit, 0, sizeof kit);
  if (rc != BS_OK) bs_kit_free(out);
  return rc;
}

void bs_kit_free(bs_kit_report *report) {
  free(report->rows);
  report->rows = NULL;
  report->n_rows = 0;
}
