/* SPDX-License-Identifier: MIT
 * test_run_point.c - a point becomes committed run folders in this very process: what its host is told, what
 * is refused before a folder exists, and that a host that listens to nothing changes no result. */
#include <dirent.h>

#include "lab/run/run.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static const char *dir;

/* What a host was told. */
typedef struct heard {
  int opened, closed, rows, gates, notes, last_fd;
  char folder[600], doing[200];
  json_t *record;
} heard;

static void on_note(void *user, const char *text) {
  heard *h = user;
  h->notes += text[0] != '\0';
}
static void on_gate(void *user, const bs_gate *gate) {
  heard *h = user;
  h->gates += gate->name[0] != '\0';
}
static void on_doing(void *user, const char *step, const char *what) {
  heard *h = user;
  if (step != NULL) snprintf(h->doing, sizeof h->doing, "%s: %s", step, what != NULL ? what : "");
}
static void on_opened(void *user, int run_fd) {
  heard *h = user;
  ck_assert_int_eq(h->opened++, h->closed);
  ck_assert_int_ge(run_fd, 0);
}
static void on_closed(void *user) {
  heard *h = user;
  h->closed++;
}
static int32_t on_row(void *user, json_t *record, json_t *folder, bs_error *err) {
  heard *h = user;
  (void)err;
  ck_assert_int_eq(h->opened, h->closed); /* it is committed */
  h->rows++;
  snprintf(h->folder, sizeof h->folder, "%s", json_string_value(folder));
  json_decref(h->record);
  h->record = json_incref(record);
  return BS_OK;
}

static lab_run_host host_of(heard *h) {
  return (lab_run_host){.user = h,
                        .note = on_note,
                        .gate = on_gate,
                        .doing = on_doing,
                        .opened = on_opened,
                        .closed = on_closed,
                        .row = on_row};
}

static void setup(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  dir = scratch_dir();
}
static void teardown(void) {
  bs_context_close(context);
  remove_dir(dir);
}

/* Runs a point of a small layer with the settings (NULL at the end) over it. */
static int32_t run_small(const lab_run_host *host, size_t n_phases, const char *const *more, bs_error *err) {
  char configs[600], out[600];
  const char *sets[24] = {"model.N=24",
                          "model.K=16",
                          "model.B=3",
                          "model.dtype=f32",
                          "hardware.backend=ref",
                          "phase.pairs_max=5",
                          "phase.pairs_min=5",
                          "phase.pairs_seconds=0.1",
                          "phase.integer_gate=false",
                          "phase.fault_gate=false"};
  size_t n = 10;
  snprintf(configs, sizeof configs, "%s/configs", getenv("BS_TEST_SOURCE_DIR"));
  snprintf(out, sizeof out, "logging.out_dir=%s", dir);
  sets[n++] = out;
  for (; more != NULL && *more != NULL; more++) sets[n++] = *more;
  const bs_compose_request compose = {.configs_dir = configs,
                                      .phase = n_phases == 1 ? "phase0_correctness" : NULL,
                                      .sets = sets,
                                      .n_sets = n};
  lab_run run = {.context = context, .host = host, .configs_dir = configs};
  const lab_point point = {.compose = &compose, .n_phases = n_phases, .group = "together"};
  const int32_t rc = lab_run_point(&run, &point, err);
  lab_run_close(&run);
  return rc;
}

static void must_have(const char *folder, const char *name, const char *part) {
  char *text = read_text(folder, name);
  ck_assert_msg(text != NULL, "%s/%s is missing", folder, name);
  ck_assert_msg(strstr(text, part) != NULL, "%s of %s lacks %s: %s", name, folder, part, text);
  free(text);
}

START_TEST(a_point_is_committed) {
  static const char *const two[] = {"method.name=row_parallel", "hardware.world_size=2", NULL};
  heard h = {0};
  const lab_run_host host = host_of(&h);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(run_small(&host, 2, two, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(h.opened, 2);
  ck_assert_int_eq(h.closed, 2);
  ck_assert_int_eq(h.rows, 2);
  ck_assert_int_gt(h.gates, 3);
  ck_assert_msg(strstr(h.doing, "phase1_forward of row_parallel") != NULL, "%s", h.doing);
  ck_assert_msg(strstr(h.folder, "/together/phase1_forward/row_parallel/") != NULL, "%s", h.folder);
  must_have(h.folder, "DONE", "\"ok\"");
  must_have(h.folder, "metrics.jsonl", "\"arms\"");
  ck_assert_ptr_nonnull(json_object_get(h.record, "comparisons"));
  json_decref(h.record);
}
END_TEST

START_TEST(nobody_need_listen) {
  static const char *const one[] = {"method.name=dense", NULL};
  const lab_run_host silent = {0};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(run_small(&silent, 1, one, &err) == BS_OK, "%s", err.message);
}
END_TEST

/* Told with an id and a code before anything is stored. */
START_TEST(what_cannot_run_leaves_nothing) {
  static const struct {
    const char *more[4];
    int32_t code;
    const char *id;
  } cases[] = {
      {{"method.name=nobody"}, BS_CONFIG, "BS-PLG-NOTFOUND"},
      {{"method.name=dense", "hardware.world_size=3"}, BS_UNSUPPORTED, "BS-METHOD-WORLD"},
      {{"method.name=dense", "model.N=1000000000", "model.K=1000000000"}, BS_NO_MEMORY, "BS-RUN-MEMORY"},
  };
  heard h = {0};
  const lab_run_host host = host_of(&h);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = run_small(&host, 1, cases[_i].more, &err);
  ck_assert_msg(rc == cases[_i].code, "%d %s: %s", rc, err.id, err.message);
  ck_assert_str_eq(err.id, cases[_i].id);
  ck_assert_int_eq(h.opened, h.closed);
  ck_assert_int_eq(h.rows, 0);
  char runs[600];
  snprintf(runs, sizeof runs, "%s/together/phase0_correctness/dense", dir);
  DIR *folder = opendir(runs);
  const struct dirent *entry = NULL;
  while (folder != NULL && (entry = readdir(folder)) != NULL)
    ck_assert_msg(entry->d_name[0] == '.', "%s stays", entry->d_name);
  if (folder != NULL) closedir(folder);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {a_point_is_committed}, {nobody_need_listen}, {what_cannot_run_leaves_nothing, 3}, {0}};
  return run_tests("run_point", tests, (test_setup){setup, teardown});
}
