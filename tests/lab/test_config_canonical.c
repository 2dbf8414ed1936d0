/* SPDX-License-Identifier: MIT
 * test_config_canonical.c - the one spelling of each value, which our reader and any other reader of YAML
 * take alike. */
#include "lab/config/schema.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const struct {
  const char *yaml, *path, *text;
  uint32_t quoted;
} rows[] = {
    /* numbers: without an exponent where that is short, else with the dot that YAML 1.1 wants */
    {"hardware: {timeout_s: 100}", "hardware.timeout_s", "100", 0},
    {"hardware: {timeout_s: 6e+01}", "hardware.timeout_s", "60", 0},
    {"hardware: {timeout_s: 1e3}", "hardware.timeout_s", "1000", 0},
    {"hardware: {timeout_s: 0.50}", "hardware.timeout_s", "0.5", 0},
    {"phase: {lr: 0.1}", "phase.lr", "0.1", 0},
    {"phase: {lr: 1e-4}", "phase.lr", "0.0001", 0},
    {"phase: {eps: 1e-8}", "phase.eps", "1.0e-08", 0},
    {"phase: {eps: 1.25e-10}", "phase.eps", "1.25e-10", 0},
    {"phase: {lr: 0.30000000000000004}", "phase.lr", "0.30000000000000004", 0},
    {"phase: {lr: -0}", "phase.lr", "0", 0},
    {"model: {N: 4Ki}", "model.N", "4096", 0},
    {"model: {N: 4k}", "model.N", "4000", 0},
    {"phase: {cold: on}", "phase.cold", "true", 0},
    {"model: {dtype: 'half'}", "model.dtype", "f16", 0},
    {"model: {dtype: int8}", "model.dtype", "int8", 0}, /* no dtype of a layer: an error shows it as typed */
    {"method: {reduce_dtype: int8}", "method.reduce_dtype", "i8", 0},
    {"model: {activation: Swish}", "model.activation", "silu", 0},
    {"phase: {sync_mode: cuda_events}", "phase.sync_mode", "events", 0},
    /* strings that would be read as something else keep their quotes */
    {"logging: {run_group: '007'}", "logging.run_group", "007", 1},
    {"logging: {run_group: 007}", "logging.run_group", "007", 1},
    {"logging: {run_group: 'true'}", "logging.run_group", "true", 1},
    {"logging: {run_group: '.5'}", "logging.run_group", ".5", 1},
    {"logging: {run_group: 'Off'}", "logging.run_group", "Off", 1},
    {"logging: {run_group: '-1'}", "logging.run_group", "-1", 1},
    {"logging: {run_group: 'abc'}", "logging.run_group", "abc", 0},
    {"mask: {pattern_b: 0011}", "mask.pattern_b", "0011", 1},
    {"mask: {pattern_a: [1, 1, 1, 0]}", "mask.pattern_a", "1110", 1}, /* as it is: whoever reads it refuses */
    /* one name for a mask and for a phase */
    {"mask: {pattern_a: [1, 1, 0, 0]}", "mask.name", "complement_1100_0011", 0},
    {"mask: {name: complement, pattern: 1010}", "mask.name", "complement_1010_0101", 0},
    {"mask: {name: 0110/1001}", "mask.name", "complement_0110_1001", 0},
    {"mask: {name: interleaved}", "mask.name", "interleave", 0},
    {"mask: {name: nosuch}", "mask.name", "nosuch", 0},
    {"phase: {name: backward}", "phase.name", "phase2_backward_input", 0},
    {"phase: {name: 3}", "phase.name", "phase3_train_step", 0},
    {"phase: {name: 4}", "phase.name", "4", 1},
};

/* Written once, read back and written again: the same. */
START_TEST(values_have_one_spelling) {
  bs_error err = BS_ERROR_INIT;
  bs_node *tree = parse_tree(rows[_i].yaml);
  for (int turn = 0; turn < 2; turn++) {
    ck_assert_msg(bs_schema_canonical(NULL, tree, NULL, &err) == BS_OK, "%s", err.message);
    const bs_node *node = bs_config_find(tree, rows[_i].path);
    ck_assert_msg(strcmp(node->text, rows[_i].text) == 0, "%s: %s", rows[_i].yaml, node->text);
    ck_assert_msg(node->quoted == rows[_i].quoted, "%s: quoted %u", rows[_i].yaml, node->quoted);
    bs_text text = {0};
    bs_config_print(tree, &text);
    bs_config_free(tree);
    tree = parse_tree(text.data);
    bs_text_free(&text);
  }
  bs_config_free(tree);
}
END_TEST

int main(void) {
  const test_case cases[] = {{values_have_one_spelling, TEST_COUNT(rows)}, {0}};
  return run_tests("config canonical", cases, (test_setup){0});
}
