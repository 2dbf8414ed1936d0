/* SPDX-License-Identifier: MIT
 * test_config_experiment.c - from a tree to the values of an experiment, the original's spellings, and what
 * is refused. With and without plugins. */
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_context *context;

static void open_context(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
}

static void close_context(void) {
  bs_context_close(context);
}

static bs_experiment make(bs_context *with, const char *yaml, bs_notes *notes) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  ck_assert_msg(bs_experiment_make(with, parse_tree(yaml), NULL, notes, &e, &err) == BS_OK, "%s: %s", yaml,
                err.message);
  return e;
}

static void refuse(bs_context *with, const char *yaml, int32_t code, const char *id, const char *text) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  const int32_t rc = bs_experiment_make(with, parse_tree(yaml), NULL, NULL, &e, &err);
  ck_assert_msg(rc == code, "%s: %d %s", yaml, rc, err.message);
  ck_assert_msg(strcmp(err.id, id) == 0, "%s: %s", yaml, err.id);
  ck_assert_msg(strstr(err.message, text) != NULL || strstr(err.hint, text) != NULL, "%s; %s", err.message,
                err.hint);
  ck_assert_ptr_null(e.config);
}

START_TEST(defaults) {
  bs_experiment e = make(NULL, "method: {name: dense}\n", NULL);
  ck_assert_uint_eq(e.dtype, BS_BF16); /* that of base.yaml */
  ck_assert_uint_eq(e.seed, 725);
  ck_assert_uint_eq(e.workload_seed, 725);
  ck_assert_int_eq(e.N, 0);
  ck_assert_int_eq(e.K, 0);
  ck_assert_uint_eq(e.has_bias, 1); /* whatever the method */
  ck_assert_uint_eq(e.phase, BS_PHASE_CORRECTNESS);
  ck_assert_int_eq(e.warmup_iters, 10);
  ck_assert_int_eq(e.timed_iters, 100);
  ck_assert_uint_eq(e.sync_mode, BS_SYNC_SYNC);
  ck_assert_str_eq(e.backend, "cpu");
  ck_assert_str_eq(e.comm, "threads");
  ck_assert_uint_eq(e.world_size, 0);
  ck_assert_uint_eq(e.mask_given, 0);
  ck_assert_str_eq(e.workload, "gaussian");
  ck_assert_str_eq(e.out_dir, "results/raw");
  ck_assert_uint_eq(e.reduce_dtype, 0); /* the layer's rule: f32, f64 where Y is f64 */
  ck_assert(e.dense_arm && e.integer_gate && e.fault_gate && e.bind);
  ck_assert_ptr_null(e.dump_dir);
  ck_assert_ptr_null(e.run_group);
  bs_experiment_free(&e);
}
END_TEST

START_TEST(dtypes_in_the_originals_spellings) {
  static const struct {
    const char *name;
    uint32_t dtype;
  } rows[] = {{"bf16", BS_BF16},   {"bfloat16", BS_BF16}, {"fp16", BS_F16},
              {"float16", BS_F16}, {"half", BS_F16},      {"fp32", BS_F32},
              {"float32", BS_F32}, {"float", BS_F32},     {"f64", BS_F64}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char yaml[128];
    snprintf(yaml, sizeof yaml, "method: {name: dense}\nmodel: {dtype: %s}\n", rows[i].name);
    bs_experiment e = make(NULL, yaml, NULL);
    ck_assert_msg(e.dtype == rows[i].dtype, "%s", rows[i].name);
    bs_experiment_free(&e);
  }
  refuse(NULL, "method: {name: dense}\nmodel: {dtype: bf61}\n", BS_CONFIG, "BS-CFG-DTYPE", "bf16");
  refuse(NULL, "method: {name: dense}\nmodel: {dtype: i32}\n", BS_CONFIG, "BS-CFG-DTYPE", "i32");
}
END_TEST

START_TEST(sizes_and_seeds) {
  bs_experiment e = make(NULL,
                         "method: {name: dense, bias: true}\nmodel: {N: 12, B: 3}\n"
                         "experiment: {seed: 5}\nworkload: {seed: 6}\n",
                         NULL);
  ck_assert_int_eq(e.N, 12);
  ck_assert_int_eq(e.K, 12); /* square when K is not given */
  ck_assert_int_eq(e.B, 3);
  ck_assert_uint_eq(e.seed, 5);
  ck_assert_uint_eq(e.workload_seed, 6);
  ck_assert_uint_eq(e.has_bias, 1);
  bs_experiment_free(&e);
  e = make(NULL, "method: {name: dense}\nmodel: {N: 12, K: 7}\n", NULL);
  ck_assert_int_eq(e.K, 7);
  bs_experiment_free(&e);
}
END_TEST

START_TEST(masks) {
  bs_experiment e = make(NULL, "method: {name: blockshock}\nmask: {name: complement_1001_0110}\n", NULL);
  ck_assert_uint_eq(e.mask_given, 1);
  ck_assert_uint_eq(e.mask.kind, BS_MASK_COMPLEMENT);
  ck_assert_uint_eq(e.mask.pattern_a, 0x9);
  ck_assert_uint_eq(e.mask.pattern_b, 0x6);
  bs_experiment_free(&e);
  e = make(NULL,
           "method: {name: blockshock}\nmask: {name: x, pattern_a: [1, 0, 1, 0], pattern_b: [0, 1, 0, 1]}\n",
           NULL);
  ck_assert_uint_eq(e.mask.pattern_a, 0x5);
  bs_experiment_free(&e);
  e = make(NULL, "method: {name: row_parallel}\nmask: {name: uneven, shares: [3, 1.5], use: always}\n", NULL);
  ck_assert_uint_eq(e.mask.n_shares, 2);
  ck_assert(e.mask.shares[0] == 3 && e.mask.shares[1] == 1.5);
  ck_assert_uint_eq(e.mask_given, 1);
  bs_experiment_free(&e);
  e = make(NULL, "method: {name: blockshock}\nmask: {name: interleave, use: never}\n", NULL);
  ck_assert_uint_eq(e.mask_given, 0);
  bs_experiment_free(&e);
  /* base.yaml names a mask for every method: the contiguous ones must not take it. */
  e = make(context, "method: {name: dense_tp}\nmask: {name: complement_1100_0011}\n", NULL);
  ck_assert_uint_eq(e.mask_given, 0);
  bs_experiment_free(&e);
  refuse(NULL, "method: {name: blockshock}\nmask: {name: m, pattern_a: [1, 1, 0, 2]}\n", BS_CONFIG,
         "BS-MASK-PATTERN", "");
  refuse(NULL, "method: {name: blockshock}\nmask: {name: m, pattern_a: [11, 00]}\n", BS_CONFIG,
         "BS-MASK-PATTERN", "");
  refuse(NULL, "method: {name: blockshock}\nmask: {name: complement_1100_0101}\n", BS_CONFIG,
         "BS-MASK-COMPLEMENT", "");
}
END_TEST

/* A mask from a user's own file is used where it can be and noted where not; base.yaml's is neither. */
START_TEST(a_typed_mask_is_used_or_noted) {
  bs_notes notes = {0};
  bs_experiment e =
      make(context, "method: {name: row_parallel}\nmask: {name: uneven, shares: [3, 1]}\n", &notes);
  ck_assert_uint_eq(e.mask_given, 1);
  ck_assert_uint_eq(notes.count, 0);
  bs_experiment_free(&e);
  e = make(context, "method: {name: row_parallel}\nmask: {name: interleave}\n", &notes);
  ck_assert_uint_eq(e.mask_given, 0);
  ck_assert_uint_eq(notes.count, 1);
  ck_assert_ptr_nonnull(strstr(notes.items[0], "mask interleave has no effect"));
  bs_notes_free(&notes);
  bs_experiment_free(&e);
  e = make(context, "method: {name: row_parallel}\nmask: {name: interleave, use: never}\n", &notes);
  ck_assert_uint_eq(notes.count, 0);
  bs_experiment_free(&e);
}
END_TEST

/* base.yaml's mask goes to the methods that say that they can use one. */
START_TEST(a_shipped_mask_is_for_methods_that_take_one) {
  const char *dir = scratch_dir();
  char path[600];
  bs_error err = BS_ERROR_INIT;
  static const char *const methods[] = {"blockshock", "masked_split", "column_parallel", "row_parallel"};
  for (int typed = 0; typed <= 1; typed++) {
    for (size_t i = 0; i < 4; i++) {
      char text[128];
      bs_notes notes = {0};
      bs_experiment e;
      bs_node *tree = NULL;
      snprintf(text, sizeof text, "method: {name: %s}\nmask: {name: complement_1001_0110}\n", methods[i]);
      write_text(dir, "base.yaml", text);
      snprintf(path, sizeof path, "%s/base.yaml", dir);
      ck_assert_int_eq(bs_config_load(path, &tree, &err), BS_OK);
      ck_assert_int_eq(bs_experiment_make(context, tree, typed ? NULL : dir, &notes, &e, &err), BS_OK);
      ck_assert_uint_eq(e.mask_given, i < 2);
      ck_assert_uint_eq(notes.count, typed && i >= 2);
      bs_notes_free(&notes);
      bs_experiment_free(&e);
    }
  }
  remove_dir(dir);
}
END_TEST

START_TEST(an_asked_mask_without_use_is_a_note) {
  bs_notes notes = {0};
  bs_experiment e =
      make(context, "method: {name: dense}\nmask: {name: complement_1100_0011, use: always}\n", &notes);
  ck_assert_uint_eq(e.mask_given, 0);
  ck_assert_uint_eq(notes.count, 1);
  ck_assert(strstr(notes.items[0], "complement_1100_0011") != NULL);
  bs_experiment_free(&e);
  bs_notes_free(&notes);
}
END_TEST

START_TEST(phases_that_are_not_there) {
  refuse(NULL, "method: {name: dense}\nphase: {name: phase9}\n", BS_CONFIG, "BS-CFG-RANGE", "phase9");
  refuse(NULL, "phase: {name: phase0_correctness}\n", BS_CONFIG, "BS-CFG-METHOD", "--method");
  refuse(NULL, "method: {name: dense}\nphase: {pairs_min: 9, pairs_max: 8}\n", BS_CONFIG, "BS-CFG-RANGE",
         "9");
}
END_TEST

START_TEST(the_originals_hardware_means_threads) {
  bs_notes notes = {0};
  bs_experiment e = make(context,
                         "method: {name: dense_single}\nmodel: {N: 8, B: 2}\n"
                         "phase: {sync_mode: cuda_events}\n"
                         "hardware: {world_size: 2, backend: nccl, launcher: slurm}\n",
                         &notes);
  ck_assert_str_eq(e.backend, "cpu");
  ck_assert_str_eq(e.comm, "threads");
  ck_assert_uint_eq(e.world_size, 1); /* dense is single rank */
  ck_assert_uint_eq(e.sync_mode, BS_SYNC_EVENTS);
  ck_assert_uint_eq(notes.count, 5);
  ck_assert_str_eq(e.method, "dense"); /* the tree and the record have one name of it */
  const char *world = NULL;
  bs_config_str(e.config, "hardware.world_size", NULL, &world, NULL);
  ck_assert_str_eq(world, "1"); /* the tree repeats the run */
  bs_experiment_free(&e);
  bs_notes_free(&notes);
}
END_TEST

START_TEST(options_belong_to_the_chosen_plugin) {
  bs_experiment e = make(context,
                         "method: {name: blockshock, kernel: gather, drop_full_weight: true}\n"
                         "workload: {type: uniform, low: -2, high: 3}\nmodel: {N: 8, B: 2}\n",
                         NULL);
  ck_assert_uint_eq(e.n_method_options, 1);
  ck_assert_str_eq(e.method_keys[0], "kernel");
  ck_assert_str_eq(e.method_values[0], "gather");
  ck_assert_uint_eq(e.n_workload_options, 2);
  ck_assert_str_eq(e.workload_keys[1], "high");
  bs_experiment_free(&e);
  refuse(context, "method: {name: blockshock, kernal: gather}\n", BS_CONFIG, "BS-CFG-KEY", "method.kernel");
  refuse(context, "method: {name: dense}\nworkload: {type: uniform, hihg: 3}\n", BS_CONFIG, "BS-CFG-KEY",
         "workload.high");
  refuse(context, "method: {name: blokshock}\n", BS_CONFIG, "BS-PLG-NOTFOUND", "blockshock");
  refuse(context, "method: {name: dense}\nworkload: {type: gausian}\n", BS_CONFIG, "BS-PLG-NOTFOUND",
         "gaussian");
}
END_TEST

START_TEST(a_key_for_another_plugin_from_another_file_is_a_note) {
  bs_notes notes = {0};
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  bs_node *first = parse_tree("method: {name: dense}\nworkload: {type: random_normal, mean: 0.5}\n"),
          *second = NULL;
  const char *text = "workload: {type: uniform}\n";
  ck_assert_int_eq(bs_config_parse("second.yaml", text, strlen(text), &second, &err), BS_OK);
  ck_assert_int_eq(bs_config_merge(first, second, &err), BS_OK);
  bs_config_free(second);
  ck_assert_msg(bs_experiment_make(context, first, NULL, &notes, &e, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(e.n_workload_options, 0);
  ck_assert_uint_eq(notes.count, 1);
  ck_assert(strstr(notes.items[0], "workload.mean") != NULL);
  bs_experiment_free(&e);
  bs_notes_free(&notes);
}
END_TEST

START_TEST(plugin_selects_its_backend) {
  bs_experiment e = make(context, "method: {name: dense}\nplugin: [ref]\n", NULL);
  ck_assert_str_eq(e.backend, "ref");
  bs_experiment_free(&e);
  e = make(context, "method: {name: dense}\nplugin: [ref]\nhardware: {backend: cpu}\n", NULL);
  ck_assert_str_eq(e.backend, "cpu"); /* what is named beside the plugin wins */
  bs_experiment_free(&e);
  bs_notes notes = {0};
  e = make(context, "method: {name: row_parallel}\nhardware: {world_size: 2, threads_per_rank: 4096}\n",
           &notes);
  ck_assert(e.oversubscribed && strstr(notes.items[0], "2 ranks of 4096 threads share ") != NULL);
  bs_notes_free(&notes);
  bs_experiment_free(&e);
  refuse(context, "method: {name: blockshock}\nhardware: {world_size: 1025}\n", BS_CONFIG, "BS-CFG-RANGE",
         "1025");
  refuse(context, "method: {name: blockshock}\nhardware: {world_size: 129, comm: shm}\n", BS_CONFIG,
         "BS-CFG-RANGE", "the communicator shm serves at most 128 ranks");
  refuse(context, "method: {name: blockshock}\nhardware: {world_size: 129, comm: \"fault:shm\"}\n", BS_CONFIG,
         "BS-CFG-RANGE", "the communicator fault:shm serves at most 128 ranks");
  e = make(context, "method: {name: row_parallel}\nhardware: {world_size: 129}\n", NULL);
  bs_experiment_free(&e);
}
END_TEST

START_TEST(plugin_ids_of_values) {
  static const char *const rows[][2] = {
      {"cpu", "cpu"}, {"./bs_acme.so", "acme"}, {"/a/b.c/bs_x_y.so", "x_y"}, {"/a/plain.so", "plain"}};
  for (size_t i = 0; i < 4; i++) {
    char id[32];
    bs_plugin_id_of(rows[i][0], id, sizeof id);
    ck_assert_str_eq(id, rows[i][1]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("config_experiment");
  TCase *plain = tcase_create("plain"), *with = tcase_create("with plugins");
  tcase_add_test(plain, defaults);
  tcase_add_test(plain, dtypes_in_the_originals_spellings);
  tcase_add_test(plain, sizes_and_seeds);
  tcase_add_test(with, masks);
  tcase_add_test(with, a_typed_mask_is_used_or_noted);
  tcase_add_test(with, a_shipped_mask_is_for_methods_that_take_one);
  tcase_add_test(with, an_asked_mask_without_use_is_a_note);
  tcase_add_test(plain, phases_that_are_not_there);
  tcase_add_test(plain, plugin_ids_of_values);
  tcase_add_checked_fixture(with, open_context, close_context);
  tcase_add_test(with, the_originals_hardware_means_threads);
  tcase_add_test(with, options_belong_to_the_chosen_plugin);
  tcase_add_test(with, a_key_for_another_plugin_from_another_file_is_a_note);
  tcase_add_test(with, plugin_selects_its_backend);
  suite_add_tcase(suite, plain);
  suite_add_tcase(suite, with);
  return run_suite(suite);
}
