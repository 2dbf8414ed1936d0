/* SPDX-License-Identifier: MIT
 * test_config_schema.c - the key table against itself and against wrong trees: unknown keys with the nearest
 * name and the place, types, ranges, notes for keys without effect. */
#include "core/op/knob.h"
#include "lab/config/schema.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const struct {
  const char *yaml, *id, *place, *text, *hint;
} wrong[] = {
    {"model:\n  M: 4\n", "BS-CFG-KEY", "test.yaml:2:3", "model.M", "model.N"},
    {"modle:\n  N: 4\n", "BS-CFG-KEY", "test.yaml:1:1", "modle", "model"},
    {"phase:\n  warmup_iter: 4\n", "BS-CFG-KEY", "test.yaml:2:3", "phase.warmup_iter", "phase.warmup_iters"},
    {"model:\n  world_size: 4\n", "BS-CFG-KEY", "test.yaml:2:3", "model.world_size", "hardware.world_size"},
    {"model:\n  N: many\n", "BS-CFG-TYPE", "test.yaml:2", "model.N", ""},
    {"model:\n  N: [1]\n", "BS-CFG-TYPE", "test.yaml:2", "model.N", ""},
    {"model: 5\n", "BS-CFG-TYPE", "test.yaml:1", "model", ""},
    {"model:\n  N: 0\n", "BS-CFG-RANGE", "test.yaml:2", "model.N", ""},
    {"model:\n  N: 1073741825\n", "BS-CFG-RANGE", "test.yaml:2", "1073741824", ""},
    {"model:\n  N: 99999999999999999999\n", "BS-CFG", "test.yaml:2", "model.N", ""},
    {"phase:\n  sync_mode: snyc\n", "BS-CFG-RANGE", "test.yaml:2", "snyc", "sync"},
    {"phase:\n  pairs_seconds: 0\n", "BS-CFG-RANGE", "test.yaml:2", "0.01..86400", ""},
    {"phase:\n  pairs_seconds: .nan\n", "BS-CFG", "test.yaml:2", "phase.pairs_seconds", ""},
    {"phase:\n  dense_arm: maybe\n", "BS-CFG", "test.yaml:2", "phase.dense_arm", ""},
    {"mask:\n  shares: [1, x]\n", "BS-CFG-TYPE", "test.yaml:2", "mask.shares", ""},
    {"sweep:\n  values: 4\n", "BS-CFG-TYPE", "test.yaml:2", "sweep.values", ""},
    {"hardware:\n  world_size: -1\n", "BS-CFG-RANGE", "test.yaml:2", "-1", ""},
    {"experiment:\n  seed: -5\n", "BS-CFG-RANGE", "test.yaml:2", "-5", ""},
    {"model.dtype: f32\n", "BS-CFG-FLAT", "test.yaml:1:1", "model.dtype", "model: {dtype: f32}"},
    {"hardware.world_size: 3\n", "BS-CFG-FLAT", "test.yaml:1:1", "nested", "hardware: {world_size: 3}"},
    {"plugin_trust: everyone\n", "BS-CFG-RANGE", "test.yaml:1", "everyone", ""},
};

START_TEST(wrong_trees_are_refused) {
  bs_error err = BS_ERROR_INIT;
  bs_node *root = parse_tree(wrong[_i].yaml);
  ck_assert_int_eq(bs_schema_check(root, NULL, NULL, &err), BS_CONFIG);
  ck_assert_int_eq(bs_status_exit_code(err.code), 3);
  ck_assert_msg(strstr(err.id, wrong[_i].id) == err.id, "%s: id %s", wrong[_i].yaml, err.id);
  ck_assert_msg(strstr(err.where, wrong[_i].place) == err.where, "%s: place '%s'", wrong[_i].yaml, err.where);
  ck_assert_msg(strstr(err.message, wrong[_i].text) != NULL, "%s: %s", wrong[_i].yaml, err.message);
  ck_assert_msg(strstr(err.hint, wrong[_i].hint) != NULL, "%s: hint '%s'", wrong[_i].yaml, err.hint);
  bs_config_free(root);
}
END_TEST

START_TEST(edges_of_ranges_are_accepted) {
  static const char *const right[] = {"model:\n  N: 1\n",
                                      "model:\n  N: 1073741824\n",
                                      "model:\n  N: null\n",
                                      "experiment:\n  seed: 9223372036854775807\n",
                                      "phase:\n  pairs_seconds: 0.01\n",
                                      "phase:\n",
                                      "",
                                      "workload:\n  anything: 5\n",
                                      "method:\n  kernel: gather\n",
                                      "plugins:\n  cpu:\n    x: 1\n",
                                      "mask:\n  pattern_a: [1, 1, 0, 0]\n",
                                      "mask:\n  pattern_a: \"1100\"\n",
                                      "run_id: x\nconfig_paths: [a, b]\n"};
  for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    bs_node *root = parse_tree(right[i]);
    ck_assert_msg(bs_schema_check(root, NULL, NULL, &err) == BS_OK, "%s: %s", right[i], err.message);
    bs_config_free(root);
  }
}
END_TEST

/* Every row has a value that its own rules accept, and no name twice. */
START_TEST(the_table_agrees_with_itself) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  ck_assert_uint_gt(count, 50);
  for (size_t i = 0; i < count; i++) {
    ck_assert_ptr_eq(bs_schema_find(keys[i].path), &keys[i]);
    ck_assert_msg(keys[i].doc[0] != '\0', "%s has no text", keys[i].path);
    ck_assert_str_ne(bs_key_type_name(keys[i].type), "?");
    ck_assert_str_ne(bs_key_effect_name(keys[i].effect), "?");
    if (keys[i].default_text[0] == '\0') continue;
    bs_error err = BS_ERROR_INIT;
    bs_node *root = bs_config_new_map();
    ck_assert_int_eq(bs_config_set_text(root, keys[i].path, keys[i].default_text, &err), BS_OK);
    ck_assert_msg(bs_schema_check(root, NULL, NULL, &err) == BS_OK, "default of %s: %s", keys[i].path,
                  err.message);
    bs_config_free(root);
  }
}
END_TEST

/* Every key of the original (spec/blockshock.md 2.1) is known. */
START_TEST(the_originals_keys_are_known) {
  static const char *const original[] = {"experiment.name",
                                         "experiment.seed",
                                         "model.dtype",
                                         "model.N",
                                         "model.B",
                                         "phase.name",
                                         "phase.forward_only",
                                         "phase.check_correctness",
                                         "phase.check_grad_input",
                                         "phase.train_step",
                                         "phase.record_timings",
                                         "phase.sync_mode",
                                         "phase.warmup_iters",
                                         "phase.timed_iters",
                                         "phase.tol_max_abs",
                                         "phase.tol_max_rel",
                                         "phase.rel_eps",
                                         "phase.include_compress_time",
                                         "method.name",
                                         "method.mode",
                                         "method.tensor_parallel",
                                         "method.bias",
                                         "method.lr",
                                         "method.device",
                                         "method.drop_full_weight",
                                         "method.validate_weight_2of4",
                                         "method.recompress_each_step",
                                         "method.debug",
                                         "mask.name",
                                         "mask.pattern_a",
                                         "mask.pattern",
                                         "mask.pattern_b",
                                         "mask.mode",
                                         "mask.seed",
                                         "workload.name",
                                         "workload.type",
                                         "workload.seed",
                                         "workload.note",
                                         "hardware.name",
                                         "hardware.launcher",
                                         "hardware.world_size",
                                         "hardware.backend",
                                         "logging.out_dir",
                                         "logging.table_dir",
                                         "logging.plot_dir",
                                         "logging.auto_group",
                                         "logging.run_group",
                                         "sweep.param",
                                         "sweep.values"};
  for (size_t i = 0; i < sizeof original / sizeof original[0]; i++) {
    ck_assert_msg(bs_schema_find(original[i]) != NULL, "%s", original[i]);
  }
}
END_TEST

START_TEST(keys_without_effect_give_one_note_and_leave) {
  bs_notes notes = {0};
  bs_node *root = parse_tree("phase:\n  tol_max_abs: 64.0\n  tol_max_rel: 64.0\nworkload:\n  note: x\n");
  ck_assert_int_eq(bs_schema_check(root, NULL, &notes, NULL), BS_OK);
  ck_assert_int_eq(bs_schema_check(root, NULL, &notes, NULL), BS_OK);
  ck_assert_uint_eq(notes.count, 1);
  ck_assert_msg(strstr(notes.items[0], "phase.tol_max_abs, phase.tol_max_rel, workload.note") != NULL, "%s",
                notes.items[0]);
  bs_schema_drop_idle(root);
  ck_assert_ptr_null(root->first); /* the sections with them */
  bs_notes_free(&notes);
  bs_config_free(root);
}
END_TEST

START_TEST(notes_of_shipped_files_are_kept_quiet) {
  const char *dir = scratch_dir();
  char path[600];
  bs_notes notes = {0};
  bs_node *root = NULL;
  write_text(dir, "a.yaml", "phase:\n  tol_max_abs: 64.0\n");
  snprintf(path, sizeof path, "%s/a.yaml", dir);
  ck_assert_int_eq(bs_config_load(path, &root, NULL), BS_OK);
  ck_assert_int_eq(bs_schema_check(root, dir, &notes, NULL), BS_OK);
  ck_assert_uint_eq(notes.count, 0);
  ck_assert_int_eq(bs_schema_check(root, "/elsewhere", &notes, NULL), BS_OK);
  ck_assert_uint_eq(notes.count, 1);
  bs_notes_free(&notes);
  bs_config_free(root);
  remove_dir(dir);
}
END_TEST

START_TEST(option_docs_are_read_by_line) {
  const char *docs = "kernel=auto: text with key=value: inside\nsplit: other\n";
  ck_assert(bs_option_listed(docs, "kernel"));
  ck_assert(bs_option_listed(docs, "split"));
  ck_assert(!bs_option_listed(docs, "kern"));
  ck_assert(!bs_option_listed(docs, "key"));
  ck_assert(!bs_option_listed(docs, ""));
  ck_assert(!bs_option_listed(NULL, "kernel"));
}
END_TEST

int main(void) {
  const test_case tests[] = {{wrong_trees_are_refused, TEST_COUNT(wrong)},
                             {edges_of_ranges_are_accepted},
                             {the_table_agrees_with_itself},
                             {the_originals_keys_are_known},
                             {keys_without_effect_give_one_note_and_leave},
                             {notes_of_shipped_files_are_kept_quiet},
                             {option_docs_are_read_by_line},
                             {0}};
  return run_tests("config_schema", tests, (test_setup){0});
}
