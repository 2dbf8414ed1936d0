/* SPDX-License-Identifier: MIT
 * test_cpu_attention.c - the powers of attention over their whole range, exact and fast, on every instruction
 * set; what its knobs change and report, and what is refused; that parts of the keys, tiles and blocks of any
 * size give the same outputs; and that the bits of a query do not depend on the others. */
#include <math.h>

#include "attention_ask.h"
#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { SETS = 4 };
static const char *const of_pairs[] = {"avx512_bf16", "amx_model"}; /* with own products of bf16 */

/* A team whose members work one after the other; those that change its scratch are counted. */
static kit_actor *team;
static int64_t workers;
static uint64_t scratch_sum(void) {
  const unsigned char *at = team->scratch;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < team->scratch_bytes; i++) sum = sum * 31 + at[i];
  return sum;
}
static int32_t counted(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  (void)ctx;
  workers = 0;
  for (uint32_t m = 0; m < team->exec.width; m++) {
    const uint64_t before = scratch_sum();
    body(arg, m, team->exec.width);
    workers += scratch_sum() != before;
  }
  return BS_OK;
}

static uint32_t run(kit_actor *c, const char *knobs, bs_tensor *t, bs_op_echo *out_echo) {
  bs_error err = BS_ERROR_INIT;
  ask a;
  make_ask(&a, "attention", knobs, t, ARGS, NULL);
  workers = 1; /* without the team */
  const uint32_t class = try_run(c, &a, out_echo, &err);
  ck_assert_msg(class != 0, "%s", err.message);
  return class;
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

/* A query that sees two keys with the scores 0 and x, and V of 0 and 1: Y = e^x / (1 + e^x). Of bf16 the
 * powers are rounded to bf16. */
START_TEST(powers_are_right_everywhere) {
  static const char *const words[] = {"exp=exact", "exp=fast"};
  static float q[POINTS], mask[POINTS][2], y[POINTS], lse[POINTS];
  float k[2] = {0}, v[2] = {0.0f, 1.0f};
  uint16_t v_pair[2] = {0, 0x3f80};
  const int fast = _i % 2, pairs = _i / 2 >= SETS;
  const char *isa = pairs ? of_pairs[_i / 2 - SETS] : sets[_i / 2];
  const uint32_t dtype = pairs ? BS_BF16 : BS_F32;
  static ch host;
  kit_actor c;
  bs_op_echo echo;
  if (!ch_has_isa(isa)) return;
  ch_open(&host, isa, "off");
  ch_actor(&host, &c, "attention", "online", 2);
  for (int i = 0; i < POINTS; i++) {
    mask[i][0] = 0.0f;
    mask[i][1] = point(i);
  }
  bs_tensor t[ARGS] = {[Q] = dense(dtype, (const int64_t[4]){1, 1, POINTS, 1}, q),
                       [K] = dense(dtype, (const int64_t[4]){1, 1, 2, 1}, k),
                       [V] = dense(dtype, (const int64_t[4]){1, 1, 2, 1}, pairs ? (void *)v_pair : v),
                       [MASK] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 2}, mask),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 1}, y),
                       [LSE] = dense(BS_F32, (const int64_t[4]){1, 1, POINTS, 0}, lse)};
  const uint32_t class = run(&c, words[fast], t, &echo);
  ck_assert_uint_eq(class, fast || pairs ? BS_TOL_ACC_LOW : BS_TOL_ACC_F32);
  ck_assert_ptr_nonnull(strstr(echo.knobs, words[fast]));
  double worst = 0.0;
  for (int i = 0; i < POINTS; i++) {
    const double x = (double)point(i), power = exp(x), want = power / (1.0 + power);
    /* 2 ulp, or what is stated of fast ones; the score by log2 e, the sum, the quotient. */
    const double off = (fast ? 1.1e-4 : 0x1p-22) + (isfinite(x) ? 3.0 * fabs(x) + 8.0 : 0.0) * 0x1p-24;
    const double rounded = pairs ? 0x1p-8 : 0.0;
    ck_assert_msg(fabs((double)y[i] - want) <= want * (off + rounded) + 0x1p-125,
                  "%s, %s: e^%g gives %g, not %g", isa, words[fast], x, (double)y[i], want);
    ck_assert_msg(fabs((double)lse[i] - log1p(power)) <= off, "%s, %s: LSE of %g is %g", isa, words[fast], x,
                  (double)lse[i]);
    if (x > -10.0 && fabs((double)y[i] / want - 1.0) > worst) worst = fabs((double)y[i] / want - 1.0);
  }
  ck_assert_msg(!fast || worst > 1e-5, "fast powers are exact: %g", worst); /* the knob reaches them */
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

enum { FAR_KEYS = 700 };

/* Scores far from 0: one query sees keys whose scores lie close together at a height, so that by * most has
 * no digits left where powers are made. Y is the mean of V by their powers. */
START_TEST(scores_far_from_zero) {
  static const float heights[] = {0.0f, 88.0f, 2839.0f, 2840.0f, 1e5f, 8e6f, 1e20f, 3e38f, -8e6f, -3e38f};
  static const char *const words[] = {"split=1", "split=2"};
  float q[1] = {0}, k[FAR_KEYS] = {0}, v[FAR_KEYS], mask[FAR_KEYS], y, lse;
  static ch host;
  kit_actor c;
  bs_op_echo echo;
  if (!ch_has_isa(sets[_i / 2])) return;
  ch_open(&host, sets[_i / 2], "off");
  ch_actor(&host, &c, "attention", "online", 2);
  bs_tensor t[ARGS] = {[Q] = dense(BS_F32, (const int64_t[4]){1, 1, 1, 1}, q),
                       [K] = dense(BS_F32, (const int64_t[4]){1, 1, FAR_KEYS, 1}, k),
                       [V] = dense(BS_F32, (const int64_t[4]){1, 1, FAR_KEYS, 1}, v),
                       [MASK] = dense(BS_F32, (const int64_t[4]){1, 1, 1, FAR_KEYS}, mask),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, 1, 1, 1}, &y),
                       [LSE] = dense(BS_F32, (const int64_t[4]){1, 1, 1, 0}, &lse)};
  for (int h = 0; h < TEST_COUNT(heights); h++) {
    double sum = 0.0, total = 0.0, most = -INFINITY;
    for (int j = 0; j < FAR_KEYS; j++) {
      v[j] = (float)(j % 7 - 2);
      mask[j] = heights[h] + (float)(j * 37 % 23) - 20.0f;
      most = fmax(most, (double)mask[j]);
    }
    for (int j = 0; j < FAR_KEYS; j++) {
      const double power = exp((double)mask[j] - most);
      total += power;
      sum += power * (double)v[j];
    }
    run(&c, words[_i % 2], t, &echo);
    ck_assert_msg(fabs((double)y - sum / total) <= 2e-5, "%s, %s: scores of %g give %g, not %g", sets[_i / 2],
                  words[_i % 2], (double)heights[h], (double)y, sum / total);
    const double want = most + log(total);
    ck_assert_msg(fabs((double)lse - want) <= 2e-6 * fabs(want) + 1e-5, "%s: LSE %g, not %g", sets[_i / 2],
                  (double)lse, want);
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* ---- knobs ------------------------------------------------------------------------------------ */

typedef struct setting {
  const char *knobs;
  const char *echo; /* or what the refusal says */
  int64_t S, T;
  float grows; /* key j is 1 + grows j times as long: later tiles have scores far above those before */
  int64_t causal, left;
} setting;
#define ECHO(rows, keys, split, threads) \
  "rows=" #rows ";keys=" #keys ";split=" #split ";exp=exact;threads=" #threads
static const setting settings[] = {
    {NULL, ECHO(192, 128, 1, 2), 400, 700, 0.0f, 0, 0},
    {NULL, ECHO(192, 128, 1, 2), 400, 700, 0.003f, 0, 0},
    {"rows=48", ECHO(48, 128, 1, 2), 400, 700, 0.0f, 0, 0},
    {"rows=384;keys=64", ECHO(384, 64, 1, 2), 400, 700, 0.0f, 0, 0},
    {"keys=256;exp=auto", ECHO(192, 256, 1, 2), 400, 700, 0.0f, 0, 0},
    {NULL, ECHO(48, 128, 2, 2), 3, 700, 0.0f, 0, 0},
    {NULL, ECHO(48, 128, 2, 2), 3, 700, 0.003f, 0, 0},
    {"split=1", ECHO(48, 128, 1, 1), 3, 700, 0.0f, 0, 0},
    {"split=2;keys=64", ECHO(48, 64, 2, 1), 3, 90, 0.0f, 0, 0}, /* too little work to wake members for it */
    /* what cannot be kept is refused */
    {"split=8", "split=8: keys of up to 8 queries are cut, here are 400", 400, 700, 0.0f, 0, 0},
    {"split=64;keys=64", "split=64: the 700 keys that are seen have 11 tiles of 64", 3, 700, 0.0f, 0, 0},
    {"split=4", "split=4 asked, 2 members and 1 groups of heads", 3, 700, 0.0f, 0, 0},
    {"rows=384", "rows=384: the 64 queries that share a K are one block of rows=96", 64, 700, 0.0f, 0, 0},
    {"rows=96", ECHO(96, 128, 1, 1), 64, 700, 0.0f, 0, 0},
    {"keys=256", "keys=256: the 100 keys that are seen are one tile of keys=128", 400, 100, 0.0f, 0, 0},
    {"keys=128", ECHO(192, 128, 1, 2), 400, 100, 0.0f, 0, 0},
    {NULL, ECHO(192, 64, 1, 2), 400, 60, 0.0f, 0, 0},
    /* keys that no query sees make no tiles */
    {"split=2", "split=2: the 3 keys that are seen have 1 tiles", 3, 700, 0.0f, BS_CAUSAL_UPPER_LEFT, 0},
    {"split=2", "split=2: the 102 keys that are seen have 1 tiles", 3, 700, 0.0f, BS_CAUSAL_LOWER_RIGHT, 100},
    {"split=2;keys=64", ECHO(48, 64, 2, 2), 3, 700, 0.0f, BS_CAUSAL_LOWER_RIGHT, 100},
    /* members */
    {"threads=1", ECHO(192, 128, 1, 1), 400, 700, 0.0f, 0, 0},
    {"threads=2", ECHO(192, 128, 1, 2), 400, 700, 0.0f, 0, 0},
    {"threads=1", ECHO(48, 128, 1, 1), 3, 700, 0.0f, 0, 0},
    {"threads=1;split=2", "split=2 asked, 1 members and 1 groups of heads", 3, 700, 0.0f, 0, 0},
    {"threads=3", "threads=3 asked, 2 can work", 400, 700, 0.0f, 0, 0},
    {"threads=2;rows=96", "threads=2 asked, there is work for 1", 64, 700, 0.0f, 0, 0},
    {NULL, ECHO(96, 64, 1, 1), 100, 10, 0.0f, 0, 0}, /* too little work */
    {"threads=2", ECHO(96, 64, 1, 2), 100, 10, 0.0f, 0, 0},
};

enum { MOST_T = 700, D = 20, MOST = MOST_T * D };

static void reference(const setting *s, const float *q, const float *k, const float *v, float *want) {
  for (int64_t i = 0; i < s->S; i++) {
    const int64_t at = i + (s->causal == BS_CAUSAL_LOWER_RIGHT ? s->T - s->S : 0);
    double sum[D] = {0}, total = 0.0;
    for (int64_t j = s->left > 0 ? at - s->left + 1 : 0; j < s->T && (s->causal == 0 || j <= at); j++) {
      double score = 0.0;
      for (int d = 0; d < D; d++) score += (double)q[i * D + d] * (double)k[j * D + d];
      total += exp(score);
      for (int d = 0; d < D; d++) sum[d] += exp(score) * (double)v[j * D + d];
    }
    for (int d = 0; d < D; d++) want[i * D + d] = (float)(sum[d] / total);
  }
}

START_TEST(knobs_change_no_output) {
  static float q[MOST], k[MOST], v[MOST], y[MOST], want[MOST];
  const setting *s = &settings[_i];
  const int64_t attrs[3] = {s->causal, s->left, 0};
  bs_error err = BS_ERROR_INIT;
  static ch host;
  kit_actor c;
  ask a;
  bs_op_echo echo;
  ch_open(&host, "auto", "off");
  ch_actor(&host, &c, "attention", "online", 2);
  team = &c;
  c.exec.parallel_for = counted;
  bs_rng_normal(1, 1, 0, MOST, q);
  bs_rng_normal(1, 2, 0, MOST, k);
  bs_rng_normal(1, 3, 0, MOST, v);
  for (int64_t j = 0; j < s->T; j++)
    for (int d = 0; d < D; d++) k[j * D + d] *= 1.0f + s->grows * (float)j;
  bs_tensor t[ARGS] = {[Q] = dense(BS_F32, (const int64_t[4]){1, 1, s->S, D}, q),
                       [K] = dense(BS_F32, (const int64_t[4]){1, 1, s->T, D}, k),
                       [V] = dense(BS_F32, (const int64_t[4]){1, 1, s->T, D}, v),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, 1, s->S, D}, y)};
  make_ask(&a, "attention", s->knobs, t, ARGS, attrs);
  workers = 1;
  if (try_run(&c, &a, &echo, &err) == 0) {
    ck_assert_msg(strstr(err.message, s->echo) != NULL, "%s: refused, but: %s", s->knobs, err.message);
    kit_actor_close(&c);
    ch_close(&host);
    return;
  }
  ck_assert_str_eq(echo.knobs, s->echo);
  ck_assert_int_eq(workers, bs_knob_int(echo.knobs, "threads", 0));
  reference(s, q, k, v, want);
  for (int64_t i = 0; i < s->S * D; i++)
    ck_assert_msg(fabsf(y[i] - want[i]) < 2e-5f, "%s: %g, not %g", s->knobs, (double)y[i], (double)want[i]);
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* ---- gradients -------------------------------------------------------------------------------- */

START_TEST(threads_of_the_gradients) {
  enum { LONG = 200, FEW = 4, SIZE = LONG * D };
  static const struct {
    const char *knobs, *echo; /* or what the refusal says */
    int64_t n;
  } cases[] = {{NULL, "threads=2", LONG},        {"threads=1", "threads=1", LONG},
               {"threads=2", "threads=2", LONG}, {"threads=3", "threads=3 asked, 2 can work", LONG},
               {NULL, "threads=1", FEW},         {"threads=2", "threads=2", FEW}};
  static float memory[DX_ARGS][SIZE], first[3][SIZE];
  static ch host;
  kit_actor c;
  ch_open(&host, "auto", "off");
  ch_actor(&host, &c, "attention_dx", "tiles", 2);
  team = &c;
  c.exec.parallel_for = counted;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const int64_t n = cases[i].n;
    bs_tensor t[DX_ARGS] = {{0}};
    bs_error err = BS_ERROR_INIT;
    bs_op_echo echo;
    ask a;
    for (uint32_t arg = 0; arg < DX_ARGS; arg++) {
      if (arg >= MASK && arg <= DESCALE) continue;
      bs_rng_normal(2, arg, 0, SIZE, memory[arg]);
      t[arg] = dense(BS_F32, (const int64_t[4]){1, 1, n, arg == LSE ? 0 : D}, memory[arg]);
    }
    for (int64_t row = 0; row < n; row++) memory[LSE][row] = 20.0f; /* powers are small numbers */
    make_ask(&a, "attention_dx", cases[i].knobs, t, DX_ARGS, NULL);
    workers = 1;
    if (try_run(&c, &a, &echo, &err) == 0) {
      ck_assert_msg(strchr(cases[i].echo, ' ') != NULL && strstr(err.message, cases[i].echo) != NULL,
                    "%s: %s", cases[i].knobs, err.message);
      continue;
    }
    ck_assert_str_eq(echo.knobs, cases[i].echo);
    ck_assert_int_eq(workers, bs_knob_int(echo.knobs, "threads", 0));
    for (uint32_t g = 0; g < 3; g++) {
      if (cases[i].knobs == NULL) memcpy(first[g], memory[DQ + g], sizeof first[g]);
      ck_assert_msg(memcmp(first[g], memory[DQ + g], (size_t)(n * D) * sizeof(float)) == 0, "%s: other bits",
                    cases[i].knobs);
    }
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* ---- bits of a query -------------------------------------------------------------------------- */

/* Two whole tiles of keys: a block of later queries sees a part of the second, whose panels are kept. */
enum { BIT_T = 256, BIT_S = 200, BIT_H = 3, BIT_D = 20 };
static unsigned char bit_q[4 * BIT_H * BIT_S * BIT_D], bit_k[4 * BIT_T * BIT_D], bit_v[4 * BIT_T * BIT_D];

static void draw_bits(uint32_t dtype, unsigned char *to, uint32_t stream, int64_t n) {
  static float one[BIT_H * BIT_S * BIT_D];
  bs_rng_normal(5, stream, 0, (uint64_t)n, one);
  for (int64_t i = 0; i < n; i++) {
    const uint16_t half = bs_f32_to_bf16(one[i]);
    memcpy(to + i * BS_DTYPE_BYTES(dtype), dtype == BS_F32 ? (void *)&one[i] : (void *)&half,
           BS_DTYPE_BYTES(dtype));
  }
}

/* Queries first .. first+n of each head, as a call of their own; `length`: the keys that are there. */
static void some_queries(kit_actor *c, uint32_t dtype, uint32_t flags, const int64_t attrs[3], int64_t first,
                         int64_t n, int32_t length, float *y) {
  static unsigned char part[sizeof bit_q];
  const size_t row = BIT_D * BS_DTYPE_BYTES(dtype);
  for (int64_t h = 0; h < BIT_H; h++)
    memcpy(part + (size_t)(h * n) * row, bit_q + (size_t)(h * BIT_S + first) * row, (size_t)n * row);
  bs_error err = BS_ERROR_INIT;
  bs_op_echo echo;
  ask a;
  bs_tensor t[ARGS] = {[Q] = dense(dtype, (const int64_t[4]){1, BIT_H, n, BIT_D}, part),
                       [K] = dense(dtype, (const int64_t[4]){1, 1, BIT_T, BIT_D}, bit_k),
                       [V] = dense(dtype, (const int64_t[4]){1, 1, BIT_T, BIT_D}, bit_v),
                       [LENGTHS] = dense(BS_I32, (const int64_t[4]){1, 0, 0, 0}, &length),
                       [Y] = dense(BS_F32, (const int64_t[4]){1, BIT_H, n, BIT_D}, y)};
  make_ask(&a, "attention", NULL, t, ARGS, attrs);
  a.q.flags = flags;
  ck_assert_msg(try_run(c, &a, &echo, &err) != 0, "%s", err.message);
}

/* The queries of all heads as one call and each call of `n` of them: the bits are equal. */
static void same_as_parts(kit_actor *c, uint32_t dtype, const int64_t attrs[3], int64_t all, int64_t n,
                          const float *whole, const char *isa) {
  static float part[BIT_H * BIT_S * BIT_D];
  for (int64_t s = 0; s + n <= all; s += n) {
    some_queries(c, dtype, BS_QUERY_TOKENWISE, attrs, s, n, (int32_t)(BIT_T - all + s + n), part);
    for (int64_t h = 0; h < BIT_H; h++)
      ck_assert_msg(memcmp(&whole[(h * all + s) * BIT_D], &part[h * n * BIT_D],
                           (size_t)(n * BIT_D) * sizeof *part) == 0,
                    "%s, causal %lld, window %lld: queries %lld.. of %lld as %lld, head %lld", isa,
                    (long long)attrs[0], (long long)attrs[1], (long long)s, (long long)all, (long long)n,
                    (long long)h);
  }
}

/* Token by token the bits of a query do not depend on the others, or on the members: more than 8 queries of
 * all heads are multiplied by tiles, fewer with keys in place. bit_y: those of the first set. */
enum { BIT_KINDS = 3, BIT_COUNTS = 3 };
static float bit_y[BIT_KINDS][BIT_COUNTS][BIT_H * BIT_S * BIT_D];
static void bits_of(const char *isa, uint32_t dtype, int is_first) {
  static const int64_t kinds[BIT_KINDS][3] = {
      {BS_CAUSAL_LOWER_RIGHT}, {BS_CAUSAL_LOWER_RIGHT, 140}, {BS_CAUSAL_LOWER_RIGHT, 5}};
  static const int64_t counts[BIT_COUNTS] = {8, 65, BIT_S}, parts[] = {1, 2, 3, 5, 40};
  static float whole[BIT_H * BIT_S * BIT_D];
  static ch host;
  kit_actor c[2];
  ch_open(&host, isa, "off");
  for (int m = 0; m < 2; m++) ch_actor(&host, &c[m], "attention", "online", m == 0 ? 1 : 4);
  for (int kind = 0; kind < BIT_KINDS; kind++)
    for (int n = 0; n < BIT_COUNTS; n++) {
      some_queries(&c[0], dtype, BS_QUERY_TOKENWISE, kinds[kind], 0, counts[n], BIT_T, whole);
      same_as_parts(&c[1], dtype, kinds[kind], counts[n], counts[n], whole, isa);
      for (int p = 0; p < 5; p++)
        if (parts[p] < counts[n])
          same_as_parts(&c[p % 2], dtype, kinds[kind], counts[n], parts[p], whole, isa);
      if (is_first) memcpy(bit_y[kind][n], whole, sizeof whole);
      ck_assert_msg(memcmp(bit_y[kind][n], whole, (size_t)(BIT_H * counts[n] * BIT_D) * sizeof *whole) == 0,
                    "%s: other bits than %s, kind %d, %lld queries", isa, sets[0], kind,
                    (long long)counts[n]);
    }
  for (int m = 0; m < 2; m++) kit_actor_close(&c[m]);
  ch_close(&host);
}

START_TEST(queries_have_their_own_bits) {
  const uint32_t dtype = _i == 0 ? BS_F32 : BS_BF16;
  draw_bits(dtype, bit_q, 1, BIT_H * BIT_S * BIT_D);
  draw_bits(dtype, bit_k, 2, BIT_T * BIT_D);
  draw_bits(dtype, bit_v, 3, BIT_T * BIT_D);
  for (int s = 0; s < SETS; s++)
    if (ch_has_isa(sets[s])) bits_of(sets[s], dtype, s == 0);
}
END_TEST

/* Of products of pairs, the last 3 rows of 195, which are 3 heads of 65 queries, have the bits that they have
 * among more. */
START_TEST(a_last_block_has_the_bits_of_a_whole_one) {
  static const int64_t kinds[][3] = {{0}, {BS_CAUSAL_LOWER_RIGHT}};
  static float all[BIT_H * BIT_S * BIT_D], one[BIT_H * BIT_S * BIT_D];
  static ch host;
  kit_actor c[2];
  if (!ch_has_isa(of_pairs[_i])) return;
  ch_open(&host, of_pairs[_i], "off");
  for (int m = 0; m < 2; m++) ch_actor(&host, &c[m], "attention", "online", m == 0 ? 1 : 4);
  draw_bits(BS_BF16, bit_q, 1, BIT_H * BIT_S * BIT_D);
  draw_bits(BS_BF16, bit_k, 2, BIT_T * BIT_D);
  draw_bits(BS_BF16, bit_v, 3, BIT_T * BIT_D);
  for (int m = 0; m < 4; m++) {
    const int64_t *attrs = kinds[m / 2];
    some_queries(&c[0], BS_BF16, 0, attrs, 0, BIT_S, BIT_T, all);
    some_queries(&c[m % 2], BS_BF16, 0, attrs, 0, 65, m / 2 == 0 ? BIT_T : BIT_T - BIT_S + 65, one);
    for (int h = 0; h < BIT_H; h++)
      ck_assert_msg(memcmp(&all[h * BIT_S * BIT_D], &one[h * 65 * BIT_D], 65 * BIT_D * sizeof *one) == 0,
                    "%s: 65 queries of head %d", of_pairs[_i], h);
  }
  for (int m = 0; m < 2; m++) kit_actor_close(&c[m]);
  ch_close(&host);
}
END_TEST

int main(void) {
  const test_case tests[] = {{scores_far_from_zero, 2 * SETS},
                             {powers_are_right_everywhere, (SETS + TEST_COUNT(of_pairs)) * 2},
                             {knobs_change_no_output, TEST_COUNT(settings)},
                             {threads_of_the_gradients},
                             {queries_have_their_own_bits, 2},
                             {a_last_block_has_the_bits_of_a_whole_one, TEST_COUNT(of_pairs)},
                             {0}};
  return run_tests("cpu_attention", tests, (test_setup){0});
}
