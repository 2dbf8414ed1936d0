/* SPDX-License-Identifier: MIT
 * test_cusparselt_run.c - a layer of 2:4 halves through bsrun, over the stand-ins of the driver and of
 * cuSPARSELt: which kernel multiplied is in the record, gates judge what it made, and what a failing call or
 * one that does not return ends in. */
#include "tests/cuda/backend.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static void setup(void) {
  const char *plugins = getenv("BS_TEST_PLUGIN_DIR");
  ck_assert_ptr_nonnull(plugins);
  dir = scratch_dir();
  setenv("BS_PLUGIN_PATH", plugins, 1);
  setenv("BS_CUDA_DRIVER", standin_path(), 1);
}

static ran layer_within(const char *seconds, const char *dtype, const char *phase, const char *more) {
  char of[64];
  snprintf(of, sizeof of, "model.dtype=%s", dtype);
  return bsrun(dir, "--plugin", "cuda", "--method", "blockshock", "--mask", "complement_1100_0011", "-P", "2",
               "--phase", phase, "--threads", "1", "--timeout", seconds, "--tune-cache", "off", "--set",
               "plugin_trust=any", "--set", "method.kernel=sparse24", "--set", "method.bias=false", "--set",
               "method.reduce_dtype=bf16", "--set", "model.B=32", "--set", "model.N=64", "--set",
               "model.K=128", "--set", "phase.timed_iters=1", "--set", "phase.warmup_iters=1", "--set", of,
               "--set", more, NULL);
}
static ran layer(const char *dtype, const char *phase, const char *more) {
  return layer_within("60", dtype, phase, more);
}

/* One kernel served every product of 2:4 weights. */
static void served_by(ran *r, const char *one, const char *other) {
  char record_of[64];
  must_be(r, 0);
  char *record = read_text(run_folder(r, dir, 0), "metrics.jsonl");
  snprintf(record_of, sizeof record_of, "\"matmul24@cuda/%s", one);
  ck_assert_msg(strstr(record, record_of) != NULL, "%s", record);
  snprintf(record_of, sizeof record_of, "\"matmul24@cuda/%s", other);
  ck_assert_msg(strstr(record, record_of) == NULL, "%s", record);
  free(record);
  ran_free(r);
}

START_TEST(a_gated_layer_by_it) {
  ran r = layer("bf16", "0", "method.bias=false");
  served_by(&r, "cusparselt", "tiles");
}
END_TEST

/* f32 partial sums, a backward pass, no library: our own tiles. */
START_TEST(a_gated_layer_by_our_tiles) {
  static const struct {
    const char *dtype, *phase, *more;
  } cases[] = {{"bf16", "0", "plugins.cuda.cusparselt=off"},
               {"bf16", "0", "method.reduce_dtype=f32"},
               {"bf16", "2", "method.bias=false"}};
  ran r = layer(cases[_i].dtype, cases[_i].phase, cases[_i].more);
  served_by(&r, "tiles", "cusparselt");
}
END_TEST

START_TEST(a_call_that_fails) {
  static const struct {
    const char *plan, *says;
    int code;
  } cases[] = {{"plan=cusparseLtMatmul:1=6", "cusparseLtMatmul: CUSPARSE_STATUS_EXECUTION_FAILED (6)", 7},
               {"plan=cusparseLtMatmul:1=hang", "BS-COLL-DEADLINE", 8}};
  setenv("BS_CUSPARSELT_STANDIN", cases[_i].plan, 1);
  ran r = layer_within(cases[_i].code == 8 ? "1" : "60", "bf16", "0", "method.bias=false");
  must_be(&r, cases[_i].code);
  ck_assert_msg(strstr(r.err, cases[_i].says) != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {a_gated_layer_by_it}, {a_gated_layer_by_our_tiles, 3}, {a_call_that_fails, 2}, {0}};
  return run_tests("cusparselt_run", tests, (test_setup){setup, dir_remove});
}
