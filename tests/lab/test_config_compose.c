/* SPDX-License-Identifier: MIT
 * test_config_compose.c - the order of composition, the three ways to name a part, and known answer K22
 * through files. */
#include "lab/config/compose.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

#include <sys/stat.h>

static const char *dir;
static char path_a[600], path_b[600];

static void setup(void) {
  static const char *const groups[] = {"phases", "methods", "masks", "workloads", "hardware", "sweeps"};
  dir = scratch_dir();
  for (size_t i = 0; i < 6; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, groups[i]);
    ck_assert_int_eq(mkdir(path, 0700), 0);
  }
  write_text(dir, "base.yaml",
             "experiment:\n  name: base\nmodel:\n  N: 1\n  B: 1\nphase:\n  name: phase0_correctness\n");
  write_text(dir, "phases/phase1_forward.yaml",
             "phase:\n  name: phase1_forward\nexperiment:\n  name: phase\n");
  write_text(dir, "methods/two.yaml", "method:\n  name: two\nexperiment:\n  name: method\n");
  write_text(dir, "masks/half.yaml", "mask:\n  name: half\nexperiment:\n  name: mask\n");
  write_text(dir, "workloads/w.yaml", "workload:\n  name: w\nexperiment:\n  name: workload\n");
  write_text(dir, "hardware/h.yaml", "hardware:\n  name: h\nexperiment:\n  name: hardware\n");
  write_text(dir, "sweeps/s.yaml", "sweep:\n  param: model.N\nexperiment:\n  name: sweep\n");
  write_text(dir, "a.yaml", "experiment:\n  name: a\nmodel:\n  N: 2\n");
  write_text(dir, "b.yaml", "experiment:\n  name: b\nmodel:\n  dtype: bf16\n");
  snprintf(path_a, sizeof path_a, "%s/a.yaml", dir);
  snprintf(path_b, sizeof path_b, "%s/b.yaml", dir);
}

static void teardown(void) {
  remove_dir(dir);
}

static bs_composed compose(const bs_compose_request *q) {
  bs_error err = BS_ERROR_INIT;
  bs_composed out;
  ck_assert_msg(bs_compose(q, &out, &err) == BS_OK, "%s %s", err.where, err.message);
  return out;
}

static void is(const bs_node *config, const char *path, const char *want) {
  const char *got = NULL;
  ck_assert_int_eq(bs_config_str(config, path, NULL, &got, NULL), BS_OK);
  if (want == NULL) {
    ck_assert_ptr_null(got);
  } else {
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got, want);
  }
}

/* Each stage overwrites experiment.name: adding them one after the other must move it each time. */
START_TEST(later_stages_win) {
  const char *configs[] = {path_a, path_b};
  const char *sets[] = {"experiment.name=set", "model.N=9", "model.N=10"};
  bs_compose_request q = {.configs_dir = dir};
  static const char *const names[] = {"base",     "b",        "phase", "method", "mask",
                                      "workload", "hardware", "sweep", "set"};
  for (int stage = 0; stage < 9; stage++) {
    if (stage == 1) q.configs = configs, q.n_configs = 2;
    if (stage == 2) q.phase = "phase1_forward";
    if (stage == 3) q.method = "two";
    if (stage == 4) q.mask = "half";
    if (stage == 5) q.workload = "w";
    if (stage == 6) q.hardware = "h";
    if (stage == 7) q.sweep = "s";
    if (stage == 8) q.sets = sets, q.n_sets = 3;
    bs_composed c = compose(&q);
    is(c.config, "experiment.name", names[stage]);
    is(c.config, "model.N", stage == 0 ? "1" : stage < 8 ? "2" : "10");
    is(c.config, "model.B", "1");
    is(c.config, "model.dtype", stage == 0 ? NULL : "bf16");
    ck_assert_uint_eq(c.phase_given, stage >= 2);
    bs_config_free(c.config);
  }
}
END_TEST

START_TEST(paths_are_stored_in_order) {
  const char *configs[] = {path_b, path_a};
  char want[2000];
  bs_compose_request q = {.configs_dir = dir, .configs = configs, .n_configs = 2, .method = "two"};
  bs_composed c = compose(&q);
  const bs_node *list = bs_config_find(c.config, "config_paths");
  ck_assert_ptr_nonnull(list);
  snprintf(want, sizeof want, "%s/base.yaml|%s|%s|%s/methods/two.yaml|", dir, path_b, path_a, dir);
  char got[2000] = "";
  for (const bs_node *n = list->first; n != NULL; n = n->next) {
    strcat(got, n->text);
    strcat(got, "|");
  }
  ck_assert_str_eq(got, want);
  is(c.config, "experiment.name", "method");
  bs_config_free(c.config);
}
END_TEST

START_TEST(k22_merge_through_files) {
  write_text(dir, "k1.yaml", "model: {N: 1}\nworkload: {c: 2}\n");
  write_text(dir, "k2.yaml", "workload: {c: 3, d: 4}\nhardware: {name: e}\n");
  char one[600], two[600];
  snprintf(one, sizeof one, "%s/k1.yaml", dir);
  snprintf(two, sizeof two, "%s/k2.yaml", dir);
  const char *configs[] = {one, two};
  const char *sets[] = {"workload=7"};
  bs_compose_request q = {.configs = configs, .n_configs = 2};
  bs_composed c = compose(&q);
  is(c.config, "model.N", "1");
  is(c.config, "workload.c", "3");
  is(c.config, "workload.d", "4");
  is(c.config, "hardware.name", "e");
  bs_config_free(c.config);
  q.sets = sets;
  q.n_sets = 1;
  c = compose(&q);
  is(c.config, "workload", "7");
  bs_config_free(c.config);
}
END_TEST

START_TEST(names_without_a_file_are_left_to_the_registry) {
  bs_compose_request q = {
      .configs_dir = dir, .method = "acme", .mask = "interleave", .workload = "fromplugin"};
  bs_composed c = compose(&q);
  is(c.config, "method.name", "acme");
  is(c.config, "mask.name", "interleave");
  is(c.config, "mask.use", "always");
  is(c.config, "workload.type", "fromplugin");
  bs_config_free(c.config);
}
END_TEST

START_TEST(phases_have_short_names) {
  static const char *const words[] = {"1", "time", "phase1_forward"};
  for (size_t i = 0; i < 3; i++) {
    bs_compose_request q = {.configs_dir = dir, .phase = words[i]};
    bs_composed c = compose(&q);
    is(c.config, "phase.name", "phase1_forward");
    is(c.config, "experiment.name", "phase"); /* its file was read */
    bs_config_free(c.config);
  }
  bs_compose_request q = {.phase = "0"}; /* no folder at all */
  bs_composed c = compose(&q);
  is(c.config, "phase.name", "phase0_correctness");
  bs_config_free(c.config);
}
END_TEST

START_TEST(options_are_literal_and_sets_are_yaml) {
  const char *texts[] = {"logging.out_dir=a: [b]"};
  const char *sets[] = {"mask.shares=[3, 1]", "hardware={name: x}"};
  const char *plugins[] = {"cpu", "./a \"b\"/bs_c.so"};
  bs_compose_request q = {.texts = texts, .n_texts = 1, .sets = sets, .n_sets = 2, .world_size = 6};
  q.plugins = plugins;
  q.n_plugins = 2;
  bs_composed c = compose(&q);
  is(c.config, "logging.out_dir", "a: [b]");
  is(c.config, "hardware.name", "x");
  const bs_node *list = bs_config_find(c.config, "plugin");
  ck_assert_str_eq(list->first->next->text, "./a \"b\"/bs_c.so");
  ck_assert_uint_eq(bs_config_find(c.config, "mask.shares")->kind, BS_NODE_LIST);
  bs_config_free(c.config);
}
END_TEST

/* A mapping merges, in a file and in --set; a section without keys is none. */
START_TEST(sections_are_never_wiped) {
  static const struct {
    const char *file, *set, *n, *dtype;
  } rows[] = {
      {"model:\n  # N: 7\n", NULL, "1", "bf16"},
      {"model: null\nphase: ~\n", NULL, "1", "bf16"},
      {"model: {}\n", NULL, "1", "bf16"},
      {"model:\n  N: 7\n", NULL, "7", "bf16"},
      {NULL, "model=", "1", "bf16"},
      {NULL, "model=null", "1", "bf16"},
      {NULL, "model={N: 9}", "9", "bf16"},
      {NULL, "model={dtype: f16}", "1", "f16"},
      {NULL, "model={dtype: null}", "1", NULL},
      {"model: {dtype: f16}\n", "model={N: 9}", "9", "f16"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char path[600];
    const char *files[] = {path_b, path}, *sets[] = {rows[i].set};
    bs_compose_request q = {.configs_dir = dir, .configs = files, .n_configs = 1, .sets = sets};
    snprintf(path, sizeof path, "%s/user.yaml", dir);
    if (rows[i].file != NULL) write_text(dir, "user.yaml", rows[i].file), q.n_configs = 2;
    q.n_sets = rows[i].set != NULL;
    bs_composed c = compose(&q);
    is(c.config, "model.N", rows[i].n);
    is(c.config, "model.B", "1");
    is(c.config, "model.dtype", rows[i].dtype);
    is(c.config, "phase.name", "phase0_correctness");
    bs_config_free(c.config);
  }
}
END_TEST

START_TEST(a_mapping_can_name_the_phase) {
  const char *sets[] = {"phase={name: phase1_forward}"};
  bs_compose_request q = {.configs_dir = dir, .sets = sets, .n_sets = 1};
  bs_composed c = compose(&q);
  ck_assert_uint_eq(c.phase_given, 1);
  is(c.config, "phase.name", "phase1_forward");
  bs_config_free(c.config);
}
END_TEST

static const struct {
  bs_compose_request q;
  const char *id, *hint;
  int code;
} bad[] = {
    {{.hardware = "hh"}, "BS-CFG-NAME", "'h'", 3},
    {{.phase = "phase1_forwrd"}, "BS-CFG-NAME", "phase1_forward", 3},
    {{.phase = "tiem"}, "BS-CFG-NAME", "did you mean 'time'", 3},
    {{.phase = "forward"}, "BS-CFG-NAME", "numbers, time, backward or train (0 to 3)", 3},
    {{.sweep = "nothing_like_it"}, "BS-CFG-NAME", "known: s", 3},
    {{.method = "a\nb"}, "BS-USE-NAME", "", 2},
    {{.method = ""}, "BS-USE-EMPTY", "", 2},
    {{.method = "./none.yaml"}, "BS-CFG", "", 4},
    {{.sets = (const char *const[]){"model.N"}, .n_sets = 1}, "BS-USE-SET", "model.N=", 2},
    {{.sets = (const char *const[]){"=4"}, .n_sets = 1}, "BS-USE-SET", "", 2},
    {{.sets = (const char *const[]){"run_id=x"}, .n_sets = 1}, "BS-USE-SET", "--run-id", 2},
    {{.sets = (const char *const[]){"a.b=[1"}, .n_sets = 1}, "BS-CFG", "", 3},
};

START_TEST(bad_requests_are_refused) {
  bs_error err = BS_ERROR_INIT;
  bs_composed out;
  bs_compose_request q = bad[_i].q;
  q.configs_dir = dir;
  const int32_t rc = bs_compose(&q, &out, &err);
  ck_assert_int_eq(rc, err.code);
  ck_assert_ptr_null(out.config);
  ck_assert_msg(strstr(err.id, bad[_i].id) == err.id, "%s", err.id);
  ck_assert_msg(strstr(err.hint, bad[_i].hint) != NULL, "%s", err.hint);
  ck_assert_int_eq(bs_status_exit_code(err.code), bad[_i].code);
}
END_TEST

START_TEST(configs_dir_is_the_environments_or_beside_the_program) {
  char *found = NULL;
  bs_error err = BS_ERROR_INIT;
  setenv("BS_CONFIG_DIR", dir, 1);
  ck_assert_int_eq(bs_configs_dir(&found, &err), BS_OK);
  ck_assert_str_eq(found, dir);
  free(found);
  setenv("BS_CONFIG_DIR", "/nonexistent", 1);
  ck_assert_int_eq(bs_configs_dir(&found, &err), BS_CONFIG);
  ck_assert_ptr_null(found);
  unsetenv("BS_CONFIG_DIR");
  ck_assert_int_eq(bs_configs_dir(&found, &err), BS_OK);
  ck_assert_ptr_nonnull(found); /* <build>/tests/../share/blockshock/configs */
  ck_assert(strstr(found, "/share/blockshock/configs") != NULL);
  free(found);
}
END_TEST

/* A registered id, a name in the configs, a path: in that order. */
START_TEST(order_of_lookup) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  ck_assert_msg(bs_context_open(NULL, &context, &err) == BS_OK, "%s", err.message);
  write_text(dir, "methods/dense.yaml", "method:\n  name: blockshock\n  bias: true\n");
  write_text(dir, "methods/dense_single.yaml", "method:\n  name: dense_single\n  accumulate: f32\n");
  write_text(dir, "methods/mine.yaml", "method:\n  name: blockshock\n");
  write_text(dir, "workloads/gaussian.yaml", "workload:\n  name: gaussian\n  type: integer\n");
  write_text(dir, "masks/interleave.yaml", "mask:\n  name: complement_1100_0011\n  seed: 3\n");
  write_text(dir, "phases/phase0_correctness.yaml", "phase:\n  name: phase1_forward\n  timed_iters: 3\n");
  char nested[600];
  snprintf(nested, sizeof nested, "%s/methods/sub", dir);
  ck_assert_int_eq(mkdir(nested, 0700), 0);
  write_text(dir, "methods/sub/x.yaml", "method:\n  name: row_parallel\n");
  bs_compose_request q = {.configs_dir = dir, .context = context};
  q.method = "dense"; /* registered: the file of its name gives settings, not another method */
  q.workload = "gaussian";
  q.mask = "interleave";
  q.phase = "phase0_correctness";
  bs_composed c = compose(&q);
  is(c.config, "method.name", "dense");
  is(c.config, "method.bias", "true");
  is(c.config, "workload.type", "gaussian");
  is(c.config, "mask.name", "interleave");
  is(c.config, "phase.name", "phase0_correctness");
  is(c.config, "phase.timed_iters", "3");
  bs_config_free(c.config);
  q = (bs_compose_request){.configs_dir = dir, .context = context, .method = "dense_single"};
  c = compose(&q); /* an alias and the file that has it agree */
  is(c.config, "method.name", "dense_single");
  is(c.config, "method.accumulate", "f32");
  bs_config_free(c.config);
  q.method = "mine"; /* not registered: the file says what it is */
  c = compose(&q);
  is(c.config, "method.name", "blockshock");
  bs_config_free(c.config);
  q.method = "sub/x"; /* a name before a path */
  c = compose(&q);
  is(c.config, "method.name", "row_parallel");
  bs_config_free(c.config);
  char path[600];
  snprintf(path, sizeof path, "%s/methods/mine.yaml", dir);
  q.method = path;
  c = compose(&q);
  is(c.config, "method.name", "blockshock");
  bs_config_free(c.config);
  q.method = "../a"; /* does not climb out of the folder: it is a path, and there is no such file */
  ck_assert_int_ne(bs_compose(&q, &c, &err), BS_OK);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{later_stages_win},
                             {order_of_lookup},
                             {paths_are_stored_in_order},
                             {k22_merge_through_files},
                             {names_without_a_file_are_left_to_the_registry},
                             {phases_have_short_names},
                             {options_are_literal_and_sets_are_yaml},
                             {sections_are_never_wiped},
                             {a_mapping_can_name_the_phase},
                             {bad_requests_are_refused, TEST_COUNT(bad)},
                             {configs_dir_is_the_environments_or_beside_the_program},
                             {0}};
  return run_tests("config_compose", tests, (test_setup){setup, teardown});
}
