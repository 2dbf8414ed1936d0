/* SPDX-License-Identifier: MIT
 * test_bsrun_wrap.c - fault and slow without a plan change nothing: every method, over a wrapped communicator
 * and on a wrapped backend, writes the same tensors bit for bit, by the same kernels; and the record names
 * the plugins of both. Plans are in tests/cases/wrap.case. */
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                      "blockshock"};
static const struct {
  const char *backend, *comm;
} wrappers[] = {{"cpu", "fault:threads"}, {"fault:cpu", "threads"}, {"slow:fault:cpu", "fault:slow:threads"}};

/* The record of a run of two ranks that wrote its tensors to dir/dump. The caller releases it. */
static json_t *run_layer(const char *method, const char *backend, const char *comm, const char *dump) {
  ran r = bsrun(dir, "--method", method, "--backend", backend, "--comm", comm, "--phase", "0", "--dump", dump,
                "--tune-cache", "off", "--run-id", dump, "--out", "out", "--set", "phase.fault_gate=false",
                "--set", "model.dtype=bf16", SMALL, NULL);
  must_be(&r, 0);
  const char *folder = run_folder(&r, dir, 0);
  char *line = read_text(folder, "metrics.jsonl");
  ck_assert_ptr_nonnull(line);
  json_t *record = json_loads(line, 0, NULL);
  ck_assert_ptr_nonnull(record);
  free(line);
  ran_free(&r);
  return record;
}

/* The algorithms without the wrappers' names. */
static char *kernels_of(const json_t *record) {
  char *text = json_dumps(json_object_get(record, "algorithms"), JSON_ENCODE_ANY);
  static const char *const wraps[] = {"fault:", "slow:"};
  ck_assert_ptr_nonnull(text);
  for (size_t i = 0; i < 2; i++)
    for (char *p; (p = strstr(text, wraps[i])) != NULL;)
      memmove(p, p + strlen(wraps[i]), strlen(p + strlen(wraps[i])) + 1);
  return text;
}

static int names_plugin(const json_t *record, const char *id) {
  size_t i;
  json_t *plugin;
  json_array_foreach(json_object_get(record, "plugins"), i, plugin) {
    const char *name = json_string_value(json_object_get(plugin, "id"));
    if (name != NULL && strcmp(name, id) == 0) return json_is_string(json_object_get(plugin, "version"));
  }
  return 0;
}

START_TEST(nothing_is_changed) {
  const char *method = methods[_i];
  json_t *plain = run_layer(method, "cpu", "threads", "plain");
  char *kernels = kernels_of(plain);
  ck_assert_msg(strstr(kernels, "matmul@cpu/") != NULL, "%s", kernels);
  ck_assert(!names_plugin(plain, "fault"));
  for (size_t w = 0; w < 3; w++) {
    char name[16], command[1400];
    snprintf(name, sizeof name, "wrapped%zu", w);
    json_t *record = run_layer(method, wrappers[w].backend, wrappers[w].comm, name);
    char *same = kernels_of(record);
    ck_assert_str_eq(same, kernels);
    ck_assert(names_plugin(record, "fault") && names_plugin(record, "cpu") &&
              names_plugin(record, "threads"));
    snprintf(command, sizeof command, "cd '%s' && diff -r plain %s", dir, name);
    ck_assert_msg(system(command) == 0, "%s: tensors of %s on %s over %s differ", method, name,
                  wrappers[w].backend, wrappers[w].comm);
    free(same);
    json_decref(record);
  }
  free(kernels);
  json_decref(plain);
}
END_TEST

int main(void) {
  const test_case tests[] = {{nothing_is_changed, 5}, {0}};
  return run_tests("bsrun_wrap", tests, (test_setup){dir_make, dir_remove});
}
