/* SPDX-License-Identifier: MIT
 * test_request_key.c - the key of a request: equal for equal requests, another one after a change of what it
 * asks for or of the files that serve it, and no plugin is opened for it. */
#include "lab/store/request_key.h"

#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

#define BASE \
  "method: {name: dense}\nmodel: {dtype: bf16, N: 8, B: 2}\nhardware: {backend: cpu, comm: threads}\n"

static bs_context *open_with(const char *dir) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const char *const dirs[] = {dir};
  const bs_context_options options = {.struct_size = sizeof options,
                                      .plugin_dirs = dirs,
                                      .n_plugin_dirs = dir != NULL,
                                      .trust = BS_TRUST_ANY,
                                      .log_level = BS_LOG_ERROR};
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

static const char *key_in(bs_context *context, const char *yaml) {
  static char keys[8][65];
  static int next;
  bs_error err = BS_ERROR_INIT;
  char *key = keys[next++ % 8];
  bs_node *tree = parse_tree(yaml);
  ck_assert_msg(bs_request_key(context, tree, key, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(strlen(key), 64);
  bs_config_free(tree);
  return key;
}

START_TEST(equal_requests_have_equal_keys) {
  bs_context *context = open_with(NULL);
  const char *base = key_in(context, BASE);
  ck_assert_str_eq(base, key_in(context, BASE));
  ck_assert_str_eq(base, key_in(context,
                                "model: {N: 8, B: 2, dtype: bf16}\nhardware: {comm: threads, backend: cpu}\n"
                                "method: {name: dense}\n"));
  ck_assert_str_eq(base, key_in(context, BASE "run_id: x\nconfig_paths: [a]\nlogging: {out_dir: elsewhere}\n"
                                              "sweep: {param: model.N, values: [8]}\n"));
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    ck_assert_int_eq(bs_plugin_get(context, i, &info, NULL), BS_OK);
    ck_assert_msg(info.state != BS_PLUGIN_ACTIVE || info.builtin, "%s was opened", info.id);
  }
  bs_context_close(context);
}
END_TEST

START_TEST(another_request_has_another_key) {
  static const char *const others[] = {
      "method: {name: blockshock}\nmodel: {dtype: bf16, N: 8, B: 2}\nhardware: {backend: cpu, comm: "
      "threads}\n",
      "method: {name: dense}\nmodel: {dtype: bf16, N: 8, B: 3}\nhardware: {backend: cpu, comm: threads}\n",
      BASE "mask: {name: interleave}\n", BASE "tune: {choices: ['k -> cpu:dnnl']}\n",
      BASE "plugins: {cpu: {isa: avx2}}\n"};
  bs_context *context = open_with(NULL);
  bs_error err = BS_ERROR_INIT;
  char rebuilt[65];
  const char *base = key_in(context, BASE);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    ck_assert_str_ne(base, key_in(context, others[i]));
  bs_node *tree = parse_tree(BASE);
  ck_assert_int_eq(bs_request_key_of_build(context, tree, "0123", rebuilt, &err), BS_OK);
  ck_assert_str_ne(base, rebuilt);
  bs_config_free(tree);
  bs_context_close(context);
}
END_TEST

/* Ways to write one request, of each type of key, and of names. */
START_TEST(other_spellings_have_the_same_key) {
  static const struct {
    const char *one, *ways[8];
  } rows[] = {
      {"model: {dtype: f16}\n",
       {"model: {dtype: fp16}\n", "model: {dtype: half}\n", "model: {dtype: float16}\n",
        "model: {dtype: FP16}\n", "model: {dtype: \"f16\"}\n"}},
      {"model: {dtype: bf16}\n", {"model: {dtype: bfloat16}\n", "model: {dtype: BF16}\n"}},
      {"model: {dtype: f8e4m3}\n", {"model: {dtype: fp8}\n", "model: {dtype: float8_e4m3fn}\n"}},
      {"method: {reduce_dtype: i8}\n", {"method: {reduce_dtype: int8}\n"}},
      {"model: {activation: silu}\n", {"model: {activation: swish}\n", "model: {activation: SiLU}\n"}},
      {"phase: {sync_mode: events}\n", {"phase: {sync_mode: cuda_events}\n"}},
      {"phase: {lr: 0.01}\n", {"phase: {lr: 1e-2}\n", "phase: {lr: 0.010}\n", "phase: {lr: 1.0e-2}\n"}},
      {"model: {N: 4096}\n", {"model: {N: 4Ki}\n", "model: {N: 4ki}\n"}},
      {"model: {N: 4000}\n", {"model: {N: 4k}\n", "model: {N: 4K}\n"}},
      {"phase: {cold: true}\n", {"phase: {cold: yes}\n", "phase: {cold: on}\n", "phase: {cold: True}\n"}},
      {"mask: {pattern_a: '1100'}\n", {"mask: {pattern_a: 1100}\n", "mask: {pattern_a: [1, 1, 0, 0]}\n"}},
      {"mask: {name: complement_1100_0011}\n",
       {"mask: {name: 1100/0011}\n", "mask: {name: 1100_0011}\n", "mask: {name: 1100}\n",
        "mask: {pattern: 1100}\n", "mask: {name: x, pattern_a: [1, 1, 0, 0], pattern_b: '0011'}\n",
        "mask: {name: complement_1100_0011, pattern_a: 1100}\n"}},
      {"phase: {name: phase1_forward}\n", {"phase: {name: time}\n", "phase: {name: 1}\n"}},
      {"mask: {shares: [1, 2]}\n", {"mask: {shares: [1.0, 2]}\n", "mask: {shares: [1e0, 2.00]}\n"}},
      {"phase: {lr: 0}\n", {"phase: {lr: -0}\n", "phase: {lr: 0.0}\n", "phase: {lr: 0e5}\n"}},
      {"phase: {eps: 1e-8}\n", {"phase: {eps: 0.00000001}\n", "phase: {eps: 1.0e-08}\n"}},
      {"model: {N: 8}\n", {"model: {N: 8, dtype: null}\n", "model: {N: 8, K: ~}\n"}},
      {"logging: {}\nmask: {name: interleave}\n", {"mask: {name: \"interleave\"}\n"}},
      {"workload: {name: a, type: random_normal}\n",
       {"workload: {type: random_normal}\n", "workload: {name: b, type: normal}\n"}},
      {"method: {name: dense}\n", {"method: {name: \"dense\"}\n", "method: {name: 'dense'}\n"}},
      {"method: {name: blockshock}\n", {"method: {name: block_shock_2gpu}\n"}},
      {"workload: {type: gaussian}\n", {"workload: {type: random_normal}\n"}},
  };
  bs_context *context = open_with(NULL);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (size_t k = 0; rows[i].ways[k] != NULL; k++)
      ck_assert_msg(strcmp(key_in(context, rows[i].one), key_in(context, rows[i].ways[k])) == 0, "%s",
                    rows[i].ways[k]);
  bs_context_close(context);
}
END_TEST

static void copy_plugin(const char *dir, const char *name, const char *tail) {
  char command[2048];
  snprintf(command, sizeof command, "cp '%s/%s' '%s/%s' && printf '%s' >>'%s/%s' && chmod 755 '%s/%s'",
           getenv("BS_TEST_PLUGIN_DIR"), name, dir, name, tail, dir, name, dir, name);
  ck_assert_int_eq(system(command), 0);
}

/* The key of BASE with a folder of copies before the library's own. */
static const char *key_with_copy(const char *dir, const char *name, const char *tail) {
  copy_plugin(dir, name, tail);
  bs_context *context = open_with(dir);
  const char *key = key_in(context, BASE);
  bs_context_close(context);
  return key;
}

START_TEST(the_files_of_what_is_named_are_in_the_key) {
  const char *dir = scratch_dir();
  char file[1024];
  snprintf(file, sizeof file, "%s/bs_dense.so", getenv("BS_TEST_PLUGIN_DIR"));
  if (access(file, R_OK) != 0) return; /* the plugins are in the library */
  bs_context *context = open_with(NULL);
  const char *base = key_in(context, BASE);
  bs_context_close(context);
  ck_assert_str_eq(base, key_with_copy(dir, "bs_dense.so", ""));  /* another place, the same bytes */
  ck_assert_str_ne(base, key_with_copy(dir, "bs_dense.so", "x")); /* the method's file */
  ck_assert_str_eq(base, key_with_copy(dir, "bs_dense.so", ""));  /* and back */
  ck_assert_str_ne(base, key_with_copy(dir, "bs_cpu.so", "x"));   /* the backend's and its ops' */
  ck_assert_str_eq(base, key_with_copy(dir, "bs_cpu.so", ""));
  ck_assert_str_eq(base, key_with_copy(dir, "bs_blockshock.so", "x")); /* nobody names it */
  remove_dir(dir);
}
END_TEST

int main(void) {
  const test_case rows[] = {{equal_requests_have_equal_keys},
                            {another_request_has_another_key},
                            {other_spellings_have_the_same_key},
                            {the_files_of_what_is_named_are_in_the_key},
                            {0}};
  return run_tests("request_key", rows, (test_setup){0});
}
