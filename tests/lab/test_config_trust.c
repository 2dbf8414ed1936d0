/* SPDX-License-Identifier: MIT
 * test_config_trust.c - what of a stored configuration is code: each key that names some; the parameters of
 * all plugins there are; what a replay takes of it; and whose mark a plan bears. */
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

#include "blockshock/blockshock.h"
#include "lab/compare/replay.h"
#include "lab/config/trust.h"
#include "lab/store/own.h"
#include "lab/store/sha256.h"
#include "lab/sweep/owned.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* ---- the keys ---------------------------------------------------------------------------------- */

static const struct {
  const char *yaml, *code; /* "key=value, ..." */
} trees[] = {
    {"model: {N: 64}\nhardware: {backend: cpu, comm: threads, launch: processes}\n", ""},
    {"plugin: [acme, sim]\n", ""},
    {"plugin: [acme, ./bs_evil.so, /x/bs_y.so]\n", "plugin=./bs_evil.so, plugin=/x/bs_y.so"},
    {"plugin: /x/bs_y.so\n", "plugin=/x/bs_y.so"},
    {"plugin_dirs: [a, /b]\n", "plugin_dirs=a /b"},
    {"plugin_dirs: /b\n", "plugin_dirs=/b"},
    {"plugin_dirs: []\nplugin_trust: owner\n", ""},
    {"plugin_trust: any\n", "plugin_trust=any"},
    {"hardware: {launch: mpi, mpirun: 'touch x --'}\n", "hardware.mpirun=touch x --"},
    {"plugins: {cpu: {dnnl_library: libevil, isa: avx2}}\n", "plugins.cpu.dnnl_library=libevil"},
    {"plugins: {cpu: {dnnl_library: auto, matmul: dnnl}}\n", ""},
    {"plugins: {cuda: {driver: a, cublaslt: b, cusparselt: c, cudnn: d, nccl: e, nvml: f, tune: on}}\n",
     "plugins.cuda.driver=a, plugins.cuda.cublaslt=b, plugins.cuda.cusparselt=c, plugins.cuda.cudnn=d, "
     "plugins.cuda.nccl=e, plugins.cuda.nvml=f"},
    {"plugins: {acme: {lib: ./x, other: libx.so.1, tool: sh x, level: 3, mode: fast}}\n",
     "plugins.acme.lib=./x, plugins.acme.other=libx.so.1, plugins.acme.tool=sh x"},
    {"sweep: {param: model.N, values: [1, 2]}\n", ""},
    {"sweep: {param: hardware.mpirun, values: ['touch x --', y]}\n", "sweep=hardware.mpirun: touch x -- y"},
    {"sweep: {param: plugins.cpu.dnnl_library, values: [/x.so]}\n", "sweep=plugins.cpu.dnnl_library: /x.so"},
    {"plugins: {fault: {plan: 'rank 1 /a/ b'}, sim: {alpha_s: 1e-6, buffering: eager, device: '{name: a, b: "
     "[c]}'}}\n",
     ""},
};

START_TEST(code_is_found) {
  bs_node *tree = parse_tree(trees[_i].yaml);
  json_t *code = bs_config_code(tree), *row;
  char text[600] = "";
  size_t i;
  ck_assert_ptr_nonnull(code);
  json_array_foreach(code, i, row) {
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s%s=%s", i > 0 ? ", " : "",
             json_string_value(json_object_get(row, "key")),
             json_string_value(json_object_get(row, "value")));
  }
  ck_assert_str_eq(text, trees[_i].code);
  json_decref(code);
  bs_config_free(tree);
}
END_TEST

/* A parameter of ours that takes any text is one that the table knows, a plan, the text of a device, or names
 * of ops that a plugin has. */
START_TEST(every_parameter_of_ours_is_known) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  uint32_t seen = 0;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  for (uint32_t p = 0; p < bs_plugin_count(context); p++) {
    bs_plugin_info plugin = {.struct_size = sizeof plugin};
    ck_assert_int_eq(bs_plugin_get(context, p, &plugin, &err), BS_OK);
    if (bs_plugin_activate(context, plugin.id, NULL) != BS_OK) continue;
    for (uint32_t i = 0; i < bs_param_count(context, plugin.id); i++) {
      char yaml[256];
      bs_param_info param = {.struct_size = sizeof param};
      ck_assert_int_eq(bs_param_info_get(context, plugin.id, i, &param, &err), BS_OK);
      if (param.desc.type != BS_PARAM_STRING || param.desc.choices != NULL) continue;
      if (strcmp(param.desc.name, "plan") == 0) continue;
      if (strcmp(plugin.id, "sim") == 0 && strcmp(param.desc.name, "device") == 0) continue;
      if (strcmp(plugin.id, "cuda") == 0 && strcmp(param.desc.name, "without") == 0) continue;
      snprintf(yaml, sizeof yaml, "plugins: {%s: {%s: word}}\n", plugin.id, param.desc.name);
      bs_node *tree = parse_tree(yaml);
      json_t *code = bs_config_code(tree);
      ck_assert_msg(json_array_size(code) == 1, "plugins.%s.%s: does it name code?", plugin.id,
                    param.desc.name);
      json_decref(code);
      bs_config_free(tree);
      seen++;
    }
  }
  ck_assert_uint_gt(seen, 0);
  bs_context_close(context);
}
END_TEST

/* ---- a replay ---------------------------------------------------------------------------------- */

/* A run in root/run whose record lists the plugin file `listed` with the sum of what stands there. */
static bs_stored_run run_of(const char *root, const char *yaml, const char *listed) {
  char folder[700], sum[65] = "";
  bs_stored_run run = {.root = strdup(root), .path = strdup("run")};
  snprintf(folder, sizeof folder, "%s/run", root);
  mkdir(root, 0755);
  mkdir(folder, 0755);
  write_text(folder, "config.yaml", yaml);
  if (listed != NULL) ck_assert_int_eq(bs_sha256_file(listed, sum, NULL), BS_OK);
  run.records = json_pack("[{s:[{s:s, s:s, s:s}]}]", "plugins", "id", "acme", "path",
                          listed != NULL ? listed : "/x/bs_acme.so", "sha256", sum);
  ck_assert_ptr_nonnull(run.records);
  return run;
}

static char *words_of(const bs_replay_code *code) {
  static char text[2000];
  text[0] = '\0';
  for (size_t i = 0; i < json_array_size(code->words); i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "",
             json_string_value(json_array_get(code->words, i)));
  return text;
}

typedef struct place {
  char dir[300], plugin[400], root[400];
} place;

static place make_place(void) {
  place p;
  snprintf(p.dir, sizeof p.dir, "%.250s", scratch_dir());
  snprintf(p.plugin, sizeof p.plugin, "%s/bs_acme.so", p.dir);
  snprintf(p.root, sizeof p.root, "%s/bundle", p.dir);
  mkdir(p.root, 0755);
  snprintf(p.root, sizeof p.root, "%s/bundle/runs", p.dir);
  write_text(p.dir, "bs_acme.so", "the plugin");
  return p;
}

static int32_t ask(const place *p, const char *yaml, const char *listed, int trusted, char *out_words,
                   bs_error *err) {
  bs_replay_code code;
  bs_stored_run run = run_of(p->root, yaml, listed);
  const int32_t rc = bs_replay_code_of(&run, trusted, &code, err);
  strcpy(out_words, words_of(&code));
  bs_replay_code_free(&code);
  bs_stored_close(&run);
  return rc;
}

START_TEST(a_replay_takes_what_the_record_lists) {
  const place p = make_place();
  char yaml[900], words[2000], wanted[2000];
  bs_error err = BS_ERROR_INIT;
  snprintf(yaml, sizeof yaml, "plugin: [sim, %s]\nhardware: {mpirun: 'touch x'}\n", p.plugin);
  ck_assert_int_eq(ask(&p, yaml, p.plugin, 0, words, &err), BS_OK);
  snprintf(wanted, sizeof wanted, "--set hardware.mpirun=null --plugin sim --plugin %s", p.plugin);
  ck_assert_str_eq(words, wanted);
  /* Named by another path: where the run had it. */
  ck_assert_int_eq(ask(&p, "plugin: [/nowhere/bs_acme.so]\n", p.plugin, 0, words, &err), BS_OK);
  snprintf(wanted, sizeof wanted, "--plugin %s", p.plugin);
  ck_assert_str_eq(words, wanted);
  /* Found in a folder of plugins. */
  snprintf(yaml, sizeof yaml, "plugin_dirs: [/a, %s]\nplugin_trust: any\n", p.dir);
  ck_assert_int_eq(ask(&p, yaml, p.plugin, 0, words, &err), BS_OK);
  snprintf(wanted, sizeof wanted, "--set plugin_dirs=null --set plugin_trust=null --plugin %s", p.plugin);
  ck_assert_str_eq(words, wanted);
  /* Trusted: as it stands. */
  ck_assert_int_eq(ask(&p, "plugin: [./bs_evil.so]\n", p.plugin, 1, words, &err), BS_OK);
  ck_assert_str_eq(words, "");
  remove_dir(p.dir);
}
END_TEST

START_TEST(a_replay_refuses_what_it_does_not_list) {
  const place p = make_place();
  char yaml[1200], words[2000], inside[900];
  bs_error err = BS_ERROR_INIT;
  write_text(p.dir, "bs_evil.so", "evil");
  snprintf(yaml, sizeof yaml, "plugin: [%s/bs_evil.so]\n", p.dir);
  ck_assert_int_eq(ask(&p, yaml, p.plugin, 0, words, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-REPLAY-CODE");
  ck_assert_ptr_nonnull(strstr(err.message, "bs_evil.so"));
  /* The file is another one by now. */
  snprintf(yaml, sizeof yaml, "plugin: [%s]\n", p.plugin);
  bs_stored_run run = run_of(p.root, yaml, p.plugin);
  bs_replay_code code;
  write_text(p.dir, "bs_acme.so", "another");
  ck_assert_int_eq(bs_replay_code_of(&run, 0, &code, &err), BS_PLUGIN);
  bs_replay_code_free(&code);
  bs_stored_close(&run);
  /* The bundle brings it along, and lists it. */
  snprintf(inside, sizeof inside, "%s/../bs_acme.so", p.root);
  snprintf(yaml, sizeof yaml, "plugin: [%s]\n", inside);
  write_text(p.root, "../bs_acme.so", "brought along");
  write_text(p.root, "../MANIFEST", "");
  ck_assert_int_eq(ask(&p, yaml, inside, 0, words, &err), BS_PLUGIN);
  remove_dir(p.dir);
}
END_TEST

/* ---- whose plan -------------------------------------------------------------------------------- */

START_TEST(a_key_is_the_users_alone) {
  char dir[300], key[400], mark[65], again[65], other[65];
  snprintf(dir, sizeof dir, "%.250s", scratch_dir());
  snprintf(key, sizeof key, "%s/cache/own.key", dir);
  ck_assert(!bs_own_mark(NULL, 1, "text", mark));
  ck_assert(!bs_own_mark(key, 0, "text", mark)); /* there is none */
  ck_assert(bs_own_mark(key, 1, "text", mark));
  ck_assert(bs_own_mark(key, 0, "text", again) && bs_own_mark(key, 1, "texts", other));
  ck_assert_str_eq(mark, again);
  ck_assert_str_ne(mark, other);
  ck_assert_uint_eq(strlen(mark), 64);
  ck_assert_int_eq(chmod(key, 0644), 0); /* others have read it */
  ck_assert(!bs_own_mark(key, 1, "text", again));
  remove_dir(dir);
}
END_TEST

START_TEST(a_plan_of_others_runs_no_code) {
  char dir[300], key[400];
  bs_error err = BS_ERROR_INIT;
  bs_sweep_folder folder;
  json_t *code, *header = json_pack("{s:s}", "base", "plugin_trust: any\n"),
                *points = json_pack("[{s:[s]}]", "configs", "hardware: {mpirun: evil}\n");
  snprintf(dir, sizeof dir, "%.250s", scratch_dir());
  snprintf(key, sizeof key, "%s/own.key", dir);
  ck_assert_int_eq(bs_sweep_folder_open(dir, "s", 0, &folder, &err), BS_OK);
  write_text(folder.path, "plan.jsonl", "a plan\n");
  for (int own = 0; own < 2; own++) {
    if (own) bs_plan_own(&folder, key);
    const int32_t rc = bs_plan_judge(&folder, key, 0, header, points, &code, &err);
    ck_assert_int_eq(rc, own ? BS_OK : BS_CONFIG);
    if (!own) ck_assert_ptr_nonnull(strstr(err.message, "plugin_trust=any, hardware.mpirun=evil"));
    json_decref(code);
  }
  write_text(folder.path, "plan.jsonl", "another plan\n"); /* beside the mark of the first */
  ck_assert_int_eq(bs_plan_judge(&folder, key, 0, header, points, &code, &err), BS_CONFIG);
  json_decref(code);
  ck_assert_int_eq(bs_plan_judge(&folder, key, 1, header, points, &code, &err), BS_OK);
  ck_assert_uint_eq(json_object_size(code), 2);
  json_decref(code);
  ck_assert_int_eq(bs_plan_judge(&folder, key, 0, json_null(), json_null(), &code, &err), BS_OK);
  json_decref(code);
  json_decref(header);
  json_decref(points);
  bs_sweep_folder_close(&folder);
  remove_dir(dir);
}
END_TEST

int main(void) {
  const test_case tests[] = {{code_is_found, TEST_COUNT(trees)},
                             {every_parameter_of_ours_is_known},
                             {a_replay_takes_what_the_record_lists},
                             {a_replay_refuses_what_it_does_not_list},
                             {a_key_is_the_users_alone},
                             {a_plan_of_others_runs_no_code},
                             {0}};
  return run_tests("config_trust", tests, (test_setup){0});
}
