/* SPDX-License-Identifier: MIT
 * test_bsrun_check.c - `bsrun check DIR`: what our own --to writes passes; each planted fault fails the
 * gate that is named for it, and the sentence names the fault; bad files end with exit 4. */
#include <jansson.h>
#include <math.h>

#include "core/base/dtype.h"
#include "formats/npy.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

enum { B = 16, N = 64, K = 64, ALL = B * N };

#define FILES                                                                                         \
  "--workload file --set workload.weights=t/w.npy --set workload.x=t/x.npy --set model.B=null --set " \
  "workload.allow_nonfinite=true"
#define HALF "--workload file --set workload.weights=t/half.npy --set workload.x=t/x2.npy --set model.B=null"

/* The values of a file of `dir`/t; the caller frees. */
static double *values_of(const char *name, int64_t count) {
  char path[700];
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  double *out = calloc((size_t)count, sizeof *out);
  snprintf(path, sizeof path, "%s/t/%s.npy", dir, name);
  ck_assert_msg(bs_npy_open(path, &npy, &err) == BS_OK, "%s: %s", path, err.message);
  ck_assert_int_eq((int64_t)npy.count, count);
  for (int64_t i = 0; i < count; i++) out[i] = bs_load_f64(npy.dtype, npy.data, i);
  bs_npy_close(&npy);
  return out;
}

static void put_values(const char *name, uint32_t dtype, int64_t rows, int64_t cols, const double *values) {
  char path[700];
  const int64_t dims[2] = {rows, cols};
  bs_error err = BS_ERROR_INIT;
  void *data = malloc((size_t)(rows * cols) * 8);
  for (int64_t i = 0; i < rows * cols; i++) bs_store_f64(dtype, data, i, values[i]);
  snprintf(path, sizeof path, "%s/t/%s.npy", dir, name);
  ck_assert_int_eq(bs_npy_write(path, dtype, 2, dims, data, &err), BS_OK);
  free(data);
}

static void dump_layer(const char *dtype) {
  char key[40];
  snprintf(key, sizeof key, "model.dtype=%s", dtype);
  ran r = bsrun(dir, "--method", "row_parallel", "-P", "2", "--phase", "0", "--set", "model.N=64", "--set",
                "model.K=64", "--set", "model.B=16", "--set", key, "--to", "whole", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
}

/* The state of a gate; "" where there is no row of it. */
static const char *state_in(const json_t *rows, const char *gate) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "gate")), gate) == 0)
      return json_string_value(json_object_get(row, "state"));
  }
  return "";
}

static void must_say(const char *what, int code, const char *gate, const char *state, const char *sentence) {
  ran r = bsrun(dir, "check", "t", "-o", "json", NULL);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(r.code == code, "%s: exit %d, wanted %d\n%s%s", what, r.code, code, r.out, r.err);
  ck_assert_msg(strcmp(state_in(rows, gate), state) == 0, "%s: %s is not %s\n%s%s", what, gate, state, r.out,
                r.err);
  ck_assert_msg(strstr(r.err, sentence) != NULL, "%s: no '%s' in %s", what, sentence, r.err);
  json_decref(rows);
  ran_free(&r);
}

static void put_y(const double *y, const char *plus, double factor) {
  double *more = plus != NULL ? values_of(plus, strcmp(plus, "bias") == 0 ? N : ALL) : NULL;
  double out[ALL];
  for (int i = 0; i < ALL; i++)
    out[i] = y[i] + (more != NULL ? factor * more[strcmp(plus, "bias") == 0 ? i % N : i] : 0.0);
  put_values("y_rank0", BS_F32, B, N, out);
  put_values("y_rank1", BS_F32, B, N, out);
  free(more);
}

static void plant_nan(double *y) {
  y[5 * N + 7] = NAN;
  put_y(y, NULL, 0);
}
static void plant_zero(double *y) {
  memset(y, 0, ALL * sizeof *y);
  put_y(y, NULL, 0);
}
static void plant_feature(double *y) {
  for (int b = 0; b < B; b++) y[b * N + 9] = 0.0;
  put_y(y, NULL, 0);
}
static void plant_lost(double *y) {
  put_y(y, "partial_rank1", -1);
}
static void plant_twice(double *y) {
  put_y(y, "partial_rank1", 1);
}
static void plant_sum(double *y) { /* reduced twice, with the bias in the sum */
  for (int i = 0; i < ALL; i++) y[i] *= 2;
  put_y(y, NULL, 0);
}
static void plant_bias(double *y) {
  put_y(y, "bias", 1);
}
static void plant_no_bias(double *y) {
  put_y(y, "bias", -1);
}
static void plant_relu(double *y) {
  for (int i = 0; i < ALL; i++) y[i] = fmax(y[i], 0);
  put_y(y, NULL, 0);
}
static void plant_one(double *y) {
  y[3 * N + 4] += 0.1;
  put_y(y, NULL, 0);
}
static void plant_bit(double *y) {
  y[3 * N + 4] = (double)nextafterf((float)y[3 * N + 4], INFINITY);
  put_values("y_rank1", BS_F32, B, N, y);
}
static void plant_partial(double *y) {
  double zeros[ALL] = {0};
  (void)y;
  put_values("partial_rank1", BS_F64, B, N, zeros);
}
static void plant_turned(double *y) {
  double *w = values_of("w", N * K), turned[N * K];
  (void)y;
  for (int n = 0; n < N; n++)
    for (int k = 0; k < K; k++) turned[k * N + n] = w[n * K + k];
  put_values("w", BS_F32, N, K, turned);
  free(w);
}
static void plant_narrow(double *y) {
  uint16_t h;
  for (int i = 0; i < ALL; i++) h = bs_f64_to_bf16(y[i]), y[i] = (double)bs_bf16_to_f32(h);
  put_y(y, NULL, 0);
}

START_TEST(planted_faults_are_named) {
  static const struct {
    const char *what;
    void (*plant)(double *y);
    const char *gate, *sentence;
  } faults[] = {
      {"a NaN", plant_nan, "finite", "NaN or Inf where X W^T is finite: the first is at token 5, feature 7"},
      {"all zeros", plant_zero, "zero", "Y is all zeros"},
      {"a feature of zeros", plant_feature, "zero", "whole features of Y are zeros"},
      {"a partial lost", plant_lost, "sum", "missing in the sum: rank 1"},
      {"a partial counted twice", plant_twice, "sum", "counted twice: rank 1"},
      {"reduced twice", plant_sum, "T1", "multiple of the right outputs: 2 times"},
      {"the bias twice", plant_bias, "T3", "the bias is added twice"},
      {"the bias lost", plant_no_bias, "T3", "the bias is lost"},
      {"an activation", plant_relu, "T3", "made with relu, where none was asked for"},
      {"one output off", plant_one, "T3", "1 of 1024 outputs are wrong and the others right"},
      {"other bits", plant_bit, "T4", "rank 1 holds other bits"},
      {"a partial that is zeros", plant_partial, "partial", "the partial of rank 1"},
      {"W transposed", plant_turned, "T3", "W is transposed"},
      {"Y through bf16", plant_narrow, "T1", "narrower dtype, bf16"},
  };
  dump_layer("f32");
  shell("cp -R whole t");
  must_say("as it was dumped", 0, "T3", "pass", "");
  must_say("as it was dumped", 0, "partial", "pass", "");
  must_say("as it was dumped", 0, "sum", "pass", "");
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    shell("rm -rf t && cp -R whole t");
    double *y = values_of("y_rank0", ALL);
    faults[i].plant(y);
    must_say(faults[i].what, 6, faults[i].gate, "FAIL", faults[i].sentence);
    free(y);
  }
}
END_TEST

/* What a run here has dumped is right: ranks that own nothing, sums of f64, weights with NaN and Inf, a half
 * of a 2:4 mask that is all zeros. */
static const char *const own[][4] = {
    {"row_parallel", "--n=2 --k=5 --b=2 -P 3 --dtype f32 --set method.y_placement=split", ""},
    {"row_parallel", "--n=7 --k=2 --b=2 -P 3 --dtype f32", ""},
    {"column_parallel", "--n=2 --k=5 --b=2 -P 3 --dtype f32", ""},
    {"row_parallel", "--n=64 --k=64 --b=8 -P 2 --dtype f64 --backend ref", ""},
    {"row_parallel", "--n=64 --k=64 --b=8 -P 8 --dtype bf16 --set method.reduce_dtype=bf16",
     "--reduce-dtype bf16"},
    {"row_parallel", FILES " -P 3 --dtype f32", ""},
    {"masked_split", FILES " -P 2 --dtype f32", ""},
    {"blockshock", FILES " -P 2 --dtype f32 --mask magnitude", ""},
    {"blockshock", HALF " -P 2 --dtype f32 --mask magnitude", ""},
};
START_TEST(own_dumps_are_right) {
  double w[32 * 16], x[4 * 16], half[32 * 16];
  shell("mkdir t");
  for (int i = 0; i < 32 * 16; i++) w[i] = sin(3.1 * i * i), half[i] = i % 4 < 2 ? w[i] + 2 : 0;
  for (int i = 0; i < 4 * 16; i++) x[i] = sin(7.3 * i + 1);
  w[40] = NAN, w[80] = INFINITY, x[7] = -INFINITY;
  put_values("w", BS_F32, 32, 16, w);
  put_values("x", BS_F32, 4, 16, x);
  put_values("half", BS_F32, 32, 16, half);
  x[7] = 0.5;
  put_values("x2", BS_F32, 4, 16, x);
  char command[1200];
  snprintf(command, sizeof command,
           "'%s' --method %s %s --phase numbers -q --set phase.fault_gate=false --to d >out 2>&1 && grep -q "
           "RIGHT out && "
           "'%s' check d %s >out 2>&1 || { cat out; false; }",
           bsrun_path(), own[_i][0], own[_i][1], bsrun_path(), own[_i][2]);
  shell("%s", command);
}
END_TEST

/* Half of the outputs one step up: half a step on average. */
START_TEST(half_a_step_is_seen) {
  dump_layer("bf16");
  shell("cp -R whole t");
  must_say("as it was dumped", 0, "drift", "pass", "");
  double *y = values_of("y_rank0", ALL);
  for (int i = 0; i < ALL; i += 2) y[i] += ldexp(1.0, ilogb(y[i]) - 7);
  put_y(y, NULL, 0);
  must_say("half a step", 6, "drift", "FAIL", "have one sign");
  free(y);
}
END_TEST

/* X [4,8], W [8,8] of the caller's, and their product in f64. */
static void put_plain(double scale, int turned) {
  double x[16 * 24], w[32 * 24], y[16 * 32], t[32 * 24];
  for (int i = 0; i < 16 * 24; i++) x[i] = scale * sin(7.3 * i + 1.0);
  for (int i = 0; i < 32 * 24; i++) w[i] = scale * sin(3.1 * i * i);
  for (int b = 0; b < 16; b++) {
    for (int n = 0; n < 32; n++) {
      double sum = 0;
      for (int k = 0; k < 24; k++) sum += x[b * 24 + k] * w[n * 24 + k];
      y[b * 32 + n] = sum;
    }
  }
  for (int i = 0; i < 32 * 24; i++) t[i % 24 * 32 + i / 24] = w[i];
  put_values("X", BS_F64, 16, 24, x);
  put_values("W", BS_F64, turned ? 24 : 32, turned ? 32 : 24, turned ? t : w);
  put_values("Y", BS_F64, 16, 32, y);
}

START_TEST(plain_names_and_shapes) {
  shell("mkdir t");
  put_plain(1.0, 0);
  must_say("three files", 0, "T3", "pass", "");
  put_plain(1.0, 1);
  must_say("W as [K,N]", 6, "shape", "FAIL", "W is transposed: it is [K,N]");
  ran r = bsrun(dir, "check", "t", "--transposed", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "right: Y is act(X W^T + b) in f64; B 16, N 32"));
  ran_free(&r);
  put_plain(0.0, 0);
  must_say("zeros prove nothing", 15, "T3", "skipped", "BS-CHECK-NOTHING");
}
END_TEST

START_TEST(one_stream_is_warned_of) {
  double same[64 * 8], y[64 * 64];
  shell("mkdir t");
  for (int i = 0; i < 64 * 8; i++) same[i] = sin(7.3 * i * i);
  for (int i = 0; i < 64 * 64; i++) {
    y[i] = 0;
    for (int k = 0; k < 8; k++) y[i] += same[i / 64 * 8 + k] * same[i % 64 * 8 + k];
  }
  put_values("X", BS_F64, 64, 8, same);
  put_values("W", BS_F64, 64, 8, same);
  put_values("Y", BS_F64, 64, 64, y);
  must_say("X is W", 0, "stream", "UNKNOWN", "");
}
END_TEST

START_TEST(one_safetensors_file) {
  static const char header[] =
      "{\"X\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
      "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
      "\"Y0\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[24,28]},"
      "\"Y1\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[28,32]}}";
  const float data[8] = {1, 2, 3, 4, 5, 6, 11, 17};
  const uint64_t length = sizeof header - 1;
  char path[700];
  snprintf(path, sizeof path, "%s/layer.safetensors", dir);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, length, f);
  fwrite(data, sizeof data, 1, f);
  fclose(f);
  ran r = bsrun(dir, "check", "layer.safetensors", NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

START_TEST(bad_files_and_use) {
  static const struct {
    const char *plant, *id;
    int code;
  } bad[] = {{"truncate -s -8 t/Y.npy", "BS-NPY-", 4},
             {"truncate -s 40 t/W.npy", "BS-NPY-", 4},
             {"rm t/Y.npy", "BS-CHECK-MISSING", 4},
             {"mv t/Y.npy t/Y1.npy", "BS-CHECK-MISSING", 4},
             {"cp t/X.npy t/x.npy", "BS-CHECK-NAME", 4},
             {"cp t/X.npy t/Y.npy", "BS-CHECK-SHAPE", 4},
             {"cp t/X.npy t/b.npy", "BS-CHECK-SHAPE", 4},
             {"cp t/X.npy t/Y999999999999999999999.npy", "BS-CHECK-NAME", 4},
             {"rm -r t", "BS-CHECK-OPEN", 4}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    shell("rm -rf t && mkdir t");
    put_plain(1.0, 0);
    shell("%s", bad[i].plant);
    ran r = bsrun(dir, "check", "t", NULL);
    ck_assert_msg(r.code == bad[i].code && strstr(r.err, bad[i].id), "%s: %d %s", bad[i].plant, r.code,
                  r.err);
    ck_assert_str_eq(r.out, "");
    ran_free(&r);
  }
  static const char *const words[][4] = {{"check", NULL},
                                         {"check", "t", "more"},
                                         {"check", "t", "--dtype", "bf17"},
                                         {"check", "t", "--activation", "rely"},
                                         {"check", "t", "-P", "0"},
                                         {"check", "t", "-P", "257"},
                                         {"check", "t", "--limit", "0"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    ran r = bsrun(dir, words[i][0], words[i][1], words[i][2], words[i][3], NULL);
    must_be(&r, 2);
    ran_free(&r);
  }
}
END_TEST

/* ---- --selftest ----------------------------------------------------------------------------------- */

static const char *text_in(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

/* Every gate of the file has caught a fault that it names, each fault of T6 is there, and nothing else fails.
 */
START_TEST(the_gates_catch_their_faults) {
  static const struct {
    const char *fault, *gate, *other, *cell; /* another gate, and what it made of the fault */
  } wanted[] = {
      {"refused", "prepared", "spills", "unknown"},
      {"lost_knob", "knobs", "same_code", "not applicable"},
      {"rebuilt", "same_code", "rmse", "let pass"},
      {"spilled", "spills", "registers", "let pass"},
      {"many_registers", "registers", "spills", "let pass"},
      {"much_shared", "shared_memory", "rmse", "let pass"},
      {"nan", "finite", "repeatable", "let pass"},
      {"zero", "rmse", "finite", "let pass"},
      {"zero_long", "rmse", "finite", "let pass"},
      {"half_lsb", "rmse", "finite", "let pass"},
      {"taylor_exp", "rmse", "finite", "let pass"},
      {"last_tile", "worst", "finite", "let pass"},
      {"one_output", "worst", "rmse", "let pass"}, /* it is too little for the mean */
      {"batch", "each_head", "finite", "let pass"},
      {"unsteady", "repeatable", "rmse", "let pass"},
      {"greedy", "memory", "rmse", "let pass"},
      {"much_slower_twin", "kept", "below_bound", "let pass"},
      {"slow_twin", "promoted", "kept", "let pass"},
      {"no_progress", "progress", "kept", "let pass"},
      {"too_fast", "below_bound", "kept", "let pass"},
      {"per_item", "below_bound", "kept", "let pass"},
      {"no_samples", "samples", "kept", "let pass"},
      {"forward scale_block", "T1 to T4", "T1", "caught"},
      {"forward rank_diverged", "T1 to T4", "T4", "caught"},
      {"forward integer weight_lost", "T5", "T5", "caught"},
      {"backward db_twice", "dX, dW, db", "db.T3", "caught"},
      {"backward not_gathered", "dX, dW, db", "dX.T3", "caught"},
      {"training old_weights", "W, b, y", "y.T1", "caught"},
  };
  enum { WANTED = sizeof wanted / sizeof wanted[0], KERNEL_ROWS = 25, LAYER_ROWS = 53 };
  ran r = bsrun(dir, "check", "--selftest", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL), *row;
  size_t i, found = 0;
  json_array_foreach(rows, i, row) {
    const int clean = strncmp(text_in(row, "fault"), "none", 4) == 0;
    ck_assert_msg(strcmp(text_in(row, "state"), clean ? "clean" : "caught") == 0, "%s: %s",
                  text_in(row, "fault"), text_in(row, "state"));
    for (size_t w = 0; w < WANTED; w++) {
      if (strcmp(text_in(row, "fault"), wanted[w].fault) != 0) continue;
      ck_assert_str_eq(text_in(row, "gate"), wanted[w].gate);
      ck_assert_msg(strcmp(text_in(row, wanted[w].other), wanted[w].cell) == 0, "%s: %s has %s",
                    wanted[w].fault, wanted[w].other, text_in(row, wanted[w].other));
      found++;
    }
  }
  ck_assert_uint_eq(found, WANTED);
  ck_assert_uint_eq(json_array_size(rows), KERNEL_ROWS + LAYER_ROWS);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

#define RULE "rules:\n- {name: mine, stage: numeric, says: nothing, "
/* A gate that cannot fail, one that always does, one whose value nobody knows, and a control that nobody has.
 */
static const struct {
  const char *yaml, *says;
  int code;
} poor[] = {
    {RULE "metric: numeric.relative_rmse, compare: le, limit: 2, control: zero}", "not caught: zero (mine)",
     6},
    {RULE "metric: numeric.relative_rmse, compare: le, limit: 0, control: zero}", "none: f32 (none)", 6},
    {RULE "metric: numeric.colour, compare: le, limit: 0, control: zero}", "BS-RULES-NONE", 2},
    {RULE "metric: numeric.rows, compare: gt, limit: 0, control: zerro}", "did you mean 'zero'?", 3},
    {"rules:\n- {name: fault, stage: numeric, says: nothing, metric: numeric.relative_rmse, compare: le, "
     "limit: 1e-3, control: zero}",
     "BS-RULES-NAME", 3},
};
START_TEST(poor_gates_are_told) {
  write_text(dir, "gates.yaml", poor[_i].yaml);
  ran r = bsrun(dir, "check", "--selftest", "--gates", "./gates.yaml", NULL);
  must_be(&r, poor[_i].code);
  ck_assert_msg(strstr(r.err, poor[_i].says) != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{planted_faults_are_named},
                             {own_dumps_are_right, TEST_COUNT(own)},
                             {half_a_step_is_seen},
                             {plain_names_and_shapes},
                             {one_stream_is_warned_of},
                             {one_safetensors_file},
                             {bad_files_and_use},
                             {the_gates_catch_their_faults},
                             {poor_gates_are_told, TEST_COUNT(poor)},
                             {0}};
  return run_tests("bsrun_check", tests, (test_setup){dir_make, dir_remove});
}
