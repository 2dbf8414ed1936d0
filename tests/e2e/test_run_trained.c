/* SPDX-License-Identifier: MIT
 * test_run_trained.c - a trained layer (all-MiniLM-L6-v2's first feed-forward weight, 1536 x 384, with its
 * bias) through phase 0 and phase 1 by all five methods, by the last in the layer's own f32 too. The file:
 * BS_TEST_MINILM, or .deps/minilm/ of the source tree where scripts/fetch-trained-layer put it; without
 * either, the test is skipped and says so. */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                      "blockshock"};
static char model[1024];

static int find_model(void) {
  const char *named = getenv("BS_TEST_MINILM");
  if (named != NULL && named[0] != '\0') {
    snprintf(model, sizeof model, "%s", named);
    return 1; /* named: then it has to be there */
  }
  snprintf(model, sizeof model, "%s/.deps/minilm/model.safetensors", run_env("BS_TEST_SOURCE_DIR"));
  FILE *f = fopen(model, "rb");
  if (f == NULL) return 0;
  fclose(f);
  return 1;
}

START_TEST(trained_layer) {
  const char *dtype = _i < 5 ? "model.dtype=bf16" : "model.dtype=f32", *method = methods[_i < 5 ? _i : 4];
  char weights[1200];
  ran r;
  snprintf(weights, sizeof weights, "workload.weights=%s#encoder.layer.0.intermediate.dense.weight", model);
  const char **args = run_words(
      "--plugin cpu --method %s --workload file --set %s --set workload.bias=auto --set %s --set model.B=32 "
      "--set phase.timed_iters=3 --set phase.warmup_iters=1 --set phase.pairs_min=5 --set phase.pairs_max=5 "
      "--set phase.pairs_seconds=0.5 --set tune.measure=false --out out -o jsonl",
      method, weights, dtype);
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, method);
  json_t *rows = run_rows(r.out);
  for (size_t phase = 0; phase < 2; phase++) {
    const json_t *row = json_array_get(rows, phase);
    json_t *record = run_record(dir, run_str(row, "run_dir"));
    ck_assert_str_eq(run_str(record, "method"), method);
    ck_assert_int_eq((int)run_num(record, "N"), 1536);
    ck_assert_int_eq((int)run_num(record, "K"), 384);
    ck_assert_int_eq((int)run_num(record, "B"), 32);
    ck_assert(json_is_true(json_object_get(record, "bias")));
    ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
    ck_assert_ptr_nonnull(strstr(run_str(record, "workload_text"), "intermediate.dense.weight"));
    ck_assert_ptr_nonnull(strstr(run_str(record, "workload_text"), "bias from file"));
    if (phase == 0) {
      ck_assert(json_is_true(json_object_get(record, "passed")));
      ck_assert_uint_eq(json_array_size(json_object_get(record, "gates")), 7);
    } else {
      const size_t beside =
          strcmp(method, "dense") == 0 ? 0 : 1; /* dense on all cores has nothing beside it */
      ck_assert_uint_ge(json_array_size(json_object_get(record, "arms")), 1 + beside);
    }
    json_decref(record);
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  if (!find_model()) {
    printf("skipped: no trained layer; scripts/fetch-trained-layer .deps/minilm fetches one\n");
    return 77;
  }
  const test_case tests[] = {{trained_layer, 6}, {0}};
  return run_tests("run_trained", tests, (test_setup){dir_make, dir_remove, .timeout = 180});
}
