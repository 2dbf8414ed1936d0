/* SPDX-License-Identifier: MIT
 * store_runs.h - what the tests of kept runs share: a results folder, and small runs in it. */
#ifndef TESTS_LAB_STORE_RUNS_H
#define TESTS_LAB_STORE_RUNS_H
#include "lab/store/store.h"
#include "tests/lab/lab_test.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char *dir;
static bs_node *config;

static inline void setup(void) {
  dir = scratch_dir();
  config = parse_tree("model: {N: 4}\n");
}

static inline void teardown(void) {
  bs_config_free(config);
  remove_dir(dir);
}

static inline bs_run *begin(const char *id) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run;
  const bs_run_request q = {.out_dir = dir,
                            .phase = "phase0_correctness",
                            .method = "dense",
                            .run_id = id,
                            .key = KEY,
                            .config = config,
                            .env = "{}\n",
                            .seed = 7};
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  return run;
}

/* Commits a run of two records with this request key. */
static inline void keep(const char *id, const char *key) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = begin(id);
  for (int i = 0; i < 2; i++) {
    json_t *record = json_pack("{s:f, s:s?, s:i, s:s, s:i}", "timestamp_unix", 5.0, "request_key", key,
                               "seed", 7, "method", "dense", "N", 4 + i);
    ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
    json_decref(record);
  }
  ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_OK);
}

static inline const char *file_of(const char *id, const char *name) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/%s/%s", dir, id, name);
  return path;
}

static inline void append_text(const char *path, const char *text) {
  FILE *f = fopen(path, "a");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}
#endif
