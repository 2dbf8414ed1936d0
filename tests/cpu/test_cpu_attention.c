/* SPDX-License-Identifier: MIT
 * test_cpu_attention.c - the powers of attention over their whole range, exact and fast, on every instruction
 * set; what its knobs change and report; and that parts of the keys, tiles and blocks of any size give the
 * same outputs. */
#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "cpu_fixture.h"
#include "tests/run_tests.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS };
static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { SETS = 4 };

static bs_tensor dense(uint32_t dtype, const int64_t *dims, void *data) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = dtype, .data = data};
  int64_t stride = 1;
  for (; t.rank < 4 && dims[t.rank] > 0; t.rank++) t.dims[t.rank] = dims[t.rank];
  for (uint32_t i = t.rank; i-- > 0; stride *= t.dims[i]) t.strides[i] = stride;
  t.bytes = (uint64_t)stride * BS_DTYPE_BYTES(dtype);
  return t;
}

/* One run with knobs; the echo of its plan, and the class of the answer. */
static uint32_t run(cx *c, const char *knobs, bs_tensor *t, bs_op_echo *out_echo) {
  void *state = NULL, *plan = NULL;
  const bs_op_impl *impl = cx_impl(c, "attention", "online", &state);
  bs_error err = BS_ERROR_INIT;
  bs_tensor_desc descs[ARGS];
  const bs_tensor_desc *asked[ARGS] = {NULL};
  bs_tensor *args[ARGS] = {NULL};
  for (uint32_t i = 0; i < ARGS; i++) {
    if (t[i].data == NULL) continue;
    descs[i] = (bs_tensor_desc){.struct_size = sizeof descs[i], .dtype = t[i].dtype, .rank = t[i].rank};
    memcpy(descs[i].dims, t[i].dims, sizeof descs[i].dims);
    memcpy(descs[i].strides, t[i].strides, sizeof descs[i].strides);
    asked[i] = &descs[i];
    args[i] = &t[i];
  }
  bs_op_query q = {.struct_size = sizeof q, .op = "attention", .nargs = ARGS, .args = asked, .knobs = knobs};
  bs_op_answer answer = {.struct_size = sizeof answer};
  q.numbers[0] = 1.0;
  ck_assert_int_eq(impl->supports(state, &q, &answer), BS_OK);
  ck_assert_int_eq(answer.level, BS_LEVEL_NATIVE);
  ck_assert_msg(impl->prepare(state, &c->exec, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(impl->run(plan, args, ARGS, NULL, &err) == BS_OK, "%s", err.message);
  *out_echo = (bs_op_echo){.struct_size = sizeof *out_echo};
  ck_assert_int_eq(impl->echo(plan, out_echo), BS_OK);
  impl->plan_free(plan);
  return answer.tolerance;
}

/* ---- powers ----------------------------------------------------------------------------------- */

enum { POINTS = 4000 };

/* From -infinity to 0, densely where e^x is a normal number, and the ends of ranges. */
static float point(int i) {
  static const float ends[] = {-INFINITY, -3.4e38f, -1e30f,  -1e10f,  -1000.0f, -127.0f,
                               -126.5f,   -104.0f,  -103.9f, -88.8f,  -87.4f,   -87.3f,
                               -87.2f,    -10.0f,   -1e-7f,  -1e-40f, -0.0f,    0.0f};
  enum { ENDS = sizeof ends / sizeof ends[0] };
  return i < ENDS ? ends[i] : -90.0f * (float)(i - ENDS) / (float)(POINTS - ENDS);
}

/* A query that sees two keys with the scores 0 and x, and V of 0 and 1: Y = e^x / (1 + e^x). */
START_TEST(powers_are_right_everywhere) {
  static const char *const words[] = {"exp=exact", "exp=fast"};
  static float q[POINTS], mask[POINTS][2], y[POINTS], lse[POINTS];
  float k[2] = {0}, v[2] = {0.0f, 1.0f};
  const int fast = _i % 2;
  const char *isa = sets[_i / 2];
  cx c;
  bs_op_echo echo;
  if (!cx_has_isa(isa)) return;
  memset(&c, 0, sizeof c);
  cx_open(&c, isa, "off", 2);
  for (int i = 0; i < POINTS; i++) {
    mask[i][0] = 0.0f;
    mask[i][1] = point(i);
  }
  bs_tensor t[ARGS] = {[Q] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 1}, q),
                       [K] = dense(BS_F32, (const int64_t[4]){1, 1, 2, 1}, k),
                       [V] = dense(BS_F32, (const int64_t[4]){1, 1, 2, 1}, v),
                       [MASK] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 2}, mask),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 1}, y),
                       [LSE] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 0}, lse)};
  const uint32_t class = run(&c, words[fast], t, &echo);
  ck_assert_uint_eq(class, fast ? BS_TOL_ACC_LOW : BS_TOL_ACC_F32);
  ck_assert_ptr_nonnull(strstr(echo.knobs, words[fast]));
  double worst = 0.0;
  for (int i = 0; i < POINTS; i++) {
    const double x = (double)point(i), power = exp(x), want = power / (1.0 + power);
    /* 2 ulp, or what is stated of fast ones; the score by log2 e, the sum, the quotient. */
    const double off = (fast ? 1.1e-4 : 0x1p-22) + (isfinite(x) ? 3.0 * fabs(x) + 8.0 : 0.0) * 0x1p-24;
    ck_assert_msg(fabs((double)y[i] - want) <= want * off + 0x1p-125, "%s, %s: e^%g gives %g, not %g", isa,
                  words[fast], x, (double)y[i], want);
    ck_assert_msg(fabs((double)lse[i] - log1p(power)) <= off, "%s, %s: LSE of %g is %g", isa, words[fast], x,
                  (double)lse[i]);
    if (x > -10.0 && fabs((double)y[i] / want - 1.0) > worst) worst = fabs((double)y[i] / want - 1.0);
  }
  ck_assert_msg(!fast || worst > 1e-5, "fast powers are exact: %g", worst); /* the knob reaches them */
  cx_close(&c);
}
END_TEST

/* ---- knobs ------------------------------------------------------------------------------------ */

typedef struct setting {
  const char *knobs, *echo;
  int64_t S;
  float grows; /* key j is 1 + grows j times as long: later tiles have scores far above those before */
} setting;
static const setting settings[] = {
    {NULL, "rows=192;keys=128;split=1;exp=exact", 400, 0.0f},
    {NULL, "rows=192;keys=128;split=1;exp=exact", 400, 0.003f},
    {"rows=48", "rows=48;keys=128;split=1;exp=exact", 400, 0.0f},
    {"rows=384;keys=64", "rows=384;keys=64;split=1;exp=exact", 400, 0.0f},
    {"keys=256;exp=auto", "rows=192;keys=256;split=1;exp=exact", 400, 0.0f},
    {NULL, "rows=48;keys=128;split=2;exp=exact", 3, 0.0f},
    {NULL, "rows=48;keys=128;split=2;exp=exact", 3, 0.003f},
    {"split=1", "rows=48;keys=128;split=1;exp=exact", 3, 0.0f},
    {"split=64;keys=64", "rows=48;keys=64;split=64;exp=exact", 3, 0.0f},
};

START_TEST(knobs_change_no_output) {
  enum { T = 700, D = 20, MOST = T * D };
  static float q[MOST], k[MOST], v[MOST], y[MOST], want[MOST];
  const setting *s = &settings[_i];
  cx c;
  bs_op_echo echo;
  memset(&c, 0, sizeof c);
  cx_open(&c, "auto", "off", 2);
  bs_rng_normal(1, 1, 0, MOST, q);
  bs_rng_normal(1, 2, 0, MOST, k);
  bs_rng_normal(1, 3, 0, MOST, v);
  for (int64_t j = 0; j < T; j++)
    for (int d = 0; d < D; d++) k[j * D + d] *= 1.0f + s->grows * (float)j;
  bs_tensor t[ARGS] = {[Q] = dense(BS_F32, (const int64_t[4]){1, 1, s->S, D}, q),
                       [K] = dense(BS_F32, (const int64_t[4]){1, 1, T, D}, k),
                       [V] = dense(BS_F32, (const int64_t[4]){1, 1, T, D}, v),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, 1, s->S, D}, y)};
  (void)run(&c, s->knobs, t, &echo);
  ck_assert_str_eq(echo.knobs, s->echo);
  for (int64_t i = 0; i < s->S; i++) {
    double sum[D] = {0}, total = 0.0;
    for (int64_t j = 0; j < T; j++) {
      double score = 0.0;
      for (int d = 0; d < D; d++) score += (double)q[i * D + d] * (double)k[j * D + d];
      total += exp(score);
      for (int d = 0; d < D; d++) sum[d] += exp(score) * (double)v[j * D + d];
    }
    for (int d = 0; d < D; d++) want[i * D + d] = (float)(sum[d] / total);
  }
  for (int64_t i = 0; i < s->S * D; i++)
    ck_assert_msg(fabsf(y[i] - want[i]) < 2e-5f, "%s: %g, not %g", s->knobs, (double)y[i], (double)want[i]);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {powers_are_right_everywhere, SETS * 2}, {knobs_change_no_output, TEST_COUNT(settings)}, {0}};
  return run_tests("cpu_attention", tests, (test_setup){0});
}
