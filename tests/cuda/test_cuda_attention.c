/* SPDX-License-Identifier: MIT
 * test_cuda_attention.c - attention on the cuda plugin, the bodies run by the CPU twins, beside ref: the
 * kernels on tensor cores (mma) and the one of a warp a query (rows), all dtypes, masks, windows, lengths,
 * groups of heads, tiles and parts of keys; NaN where no query sees it; what is refused and why. */
#include <math.h>

#include "plain.h"
#include "plugins/cuda/ops/attention.h"
#include "tests/run_tests.h"

enum { DENSE, TOKENS, OFF, LAYS }; /* OFF: rows that begin on no 16 bytes */
enum { NO_MASK, BOOL_MASK, FLOAT_MASK };

typedef struct shape {
  uint32_t of, to, mask_dtype;
  int64_t B, H, G, S, T, D, E;
  int64_t causal, left, right;
  int mask, lengths, lse, lay, special, zeros; /* zeros: weights of a query whose scores have no sum */
  double softcap;
} shape;

typedef struct attend {
  shape s;
  pl_tensor a[CUDA_ATTEND_ARGS], want, want_lse; /* want: f32, by ref */
  const bs_tensor_desc *descs[CUDA_ATTEND_ARGS];
  bs_tensor *args[CUDA_ATTEND_ARGS];
  bs_op_query query;
} attend;

/* ---- tensors ------------------------------------------------------------------------------------- */

static unsigned char *element(const pl_tensor *t, int64_t n) {
  int64_t at = 0;
  for (uint32_t i = t->t.rank; i-- > 0;) {
    at += n % t->t.dims[i] * t->t.strides[i];
    n /= t->t.dims[i];
  }
  return (unsigned char *)t->t.data + at * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
}
static double get(const pl_tensor *t, int64_t n) {
  return bs_load_f64(t->t.dtype, element(t, n), 0);
}
static void set(const pl_tensor *t, int64_t n, double v) {
  bs_store_f64(t->t.dtype, element(t, n), 0, v);
}
static int64_t count(const pl_tensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->t.rank; i++) n *= t->t.dims[i];
  return n;
}
static double number(uint64_t *seed) {
  return (double)(int64_t)(fx_next(seed) >> 11) * 0x1p-52 - 1.0;
}

/* TOKENS: heads beside each other; OFF: a row is an element longer. */
static void make(pl_tensor *t, uint32_t dtype, const int64_t *d, int lay, int where) {
  const int64_t row = lay == OFF ? d[3] + 1 : d[3];
  const int64_t dense[4] = {d[1] * d[2] * row, d[2] * row, row, 1},
                tokens[4] = {d[1] * d[2] * row, row, d[1] * row, 1};
  pl_make(t, dtype, 4, d, lay == TOKENS ? tokens : dense, where);
}

static void make_mask(attend *c, uint64_t *seed) {
  const shape *s = &c->s;
  const int64_t dims[4] = {s->B, 1, s->S, s->T};
  if (s->mask == NO_MASK) return;
  pl_tensor *m = &c->a[CUDA_ATTEND_MASK];
  pl_make(m, s->mask == BOOL_MASK ? BS_BOOL : s->mask_dtype, 4, dims, NULL, PL_LAST);
  for (int64_t i = 0; i < count(m); i++) {
    const int64_t drawn = fx_below(seed, 8);
    set(m, i, s->mask == BOOL_MASK ? drawn > 2 : drawn < 2 ? -INFINITY : 0.25 * (double)drawn - 1.0);
  }
}

/* What is behind a length is never read. */
static void make_lengths(attend *c) {
  const shape *s = &c->s;
  pl_tensor *lengths = &c->a[CUDA_ATTEND_LENGTHS];
  if (!s->lengths) return;
  pl_make(lengths, BS_I32, 1, &s->B, NULL, PL_LAST);
  for (int64_t b = 0; b < s->B; b++) {
    const int64_t length = b == 0 ? s->T - s->T / 3 : s->T * b / s->B;
    set(lengths, b, (double)length);
    for (int which = CUDA_ATTEND_K; which <= CUDA_ATTEND_V; which++) {
      const int64_t *d = c->a[which].t.dims;
      for (int64_t i = 0; i < count(&c->a[which]); i++)
        if (i / (d[1] * d[2] * d[3]) == b && i / d[3] % d[2] >= length) set(&c->a[which], i, NAN);
    }
  }
}

static void begin(attend *c, const shape *s, uint64_t *seed) {
  const int64_t dims[][4] = {{s->B, s->H, s->S, s->D}, {s->B, s->G, s->T, s->D}, {s->B, s->G, s->T, s->E}};
  const int64_t y[4] = {s->B, s->H, s->S, s->E}, three = 3;
  memset(c, 0, sizeof *c);
  c->s = *s;
  for (int i = 0; i < 3; i++) {
    make(&c->a[i], s->of, dims[i], s->lay, s->lay == OFF ? PL_LAST : PL_FIRST);
    for (int64_t n = 0; n < count(&c->a[i]); n++) set(&c->a[i], n, 2.0 * number(seed));
  }
  make_mask(c, seed);
  make_lengths(c);
  for (int64_t n = 0; s->special && n < 6; n++) /* some queries see them, some do not */
    set(&c->a[n % 3], fx_below(seed, count(&c->a[n % 3])), n < 3 ? NAN : INFINITY);
  if (BS_DTYPE_BYTES(s->of) == 1) {
    pl_make(&c->a[CUDA_ATTEND_DESCALE], BS_F32, 1, &three, NULL, PL_LAST);
    for (int64_t i = 0; i < 3; i++) set(&c->a[CUDA_ATTEND_DESCALE], i, 0.5 + 0.25 * (double)i);
  }
  make(&c->a[CUDA_ATTEND_Y], s->to, y, s->lay == OFF ? OFF : TOKENS, PL_FIRST);
  make(&c->want, BS_F32, y, DENSE, PL_FIRST);
  if (s->lse) {
    pl_make(&c->a[CUDA_ATTEND_LSE], BS_F32, 3, y, NULL, PL_LAST);
    pl_make(&c->want_lse, BS_F32, 3, y, NULL, PL_LAST);
  }
  for (int i = 0; i < CUDA_ATTEND_ARGS; i++) {
    c->args[i] = c->a[i].pages != NULL ? &c->a[i].t : NULL;
    c->descs[i] = c->a[i].pages != NULL ? &c->a[i].d : NULL;
  }
  c->query = fx_query("attention", c->descs, CUDA_ATTEND_ARGS);
  c->query.attrs[0] = s->causal;
  c->query.attrs[1] = s->left;
  c->query.attrs[2] = s->right;
  c->query.attrs[3] = s->zeros;
  c->query.numbers[0] = 0.9 / sqrt((double)s->D);
  c->query.numbers[1] = s->softcap;
}

static void end(attend *c) {
  for (int i = 0; i < CUDA_ATTEND_ARGS; i++) pl_free(&c->a[i]);
  pl_free(&c->want);
  pl_free(&c->want_lse);
}

/* Ref's, in f32. */
static void by_ref(attend *c, pl *p) {
  const bs_tensor_desc *descs[CUDA_ATTEND_ARGS];
  bs_tensor *args[CUDA_ATTEND_ARGS];
  memcpy(descs, c->descs, sizeof descs);
  memcpy(args, c->args, sizeof args);
  descs[CUDA_ATTEND_Y] = &c->want.d;
  args[CUDA_ATTEND_Y] = &c->want.t;
  if (c->s.lse) {
    descs[CUDA_ATTEND_LSE] = &c->want_lse.d;
    args[CUDA_ATTEND_LSE] = &c->want_lse.t;
  }
  bs_op_query q = c->query;
  q.args = descs;
  pl_run_ref(p, &q, NULL, args);
}

/* ---- judging ------------------------------------------------------------------------------------- */

static const char *text_of(const attend *c, const char *what) {
  static char text[300];
  const shape *s = &c->s;
  snprintf(text, sizeof text,
           "%s: 0x%04x B%lld H%lld/%lld S%lld T%lld D%lld E%lld causal %lld window %lld %lld mask %d lay %d",
           what, s->of, (long long)s->B, (long long)s->H, (long long)s->G, (long long)s->S, (long long)s->T,
           (long long)s->D, (long long)s->E, (long long)s->causal, (long long)s->left, (long long)s->right,
           s->mask, s->lay);
  return text;
}

static int same_class(double got, double want) {
  return isnan(want) ? isnan(got) : isinf(want) ? got == want : isfinite(got);
}

static void near(const attend *c, const pl_tensor *got, const pl_tensor *want, double slack, double unit,
                 const char *what) {
  for (int64_t i = 0; i < count(want); i++) {
    const double g = get(got, i), w = get(want, i);
    const int fits = same_class(g, w) && (!isfinite(w) || fabs(g - w) <= slack + unit * fabs(w));
    ck_assert_msg(fits, "%s [%lld] is %.9g, want %.9g within %.3g", text_of(c, what), (long long)i, g, w,
                  slack);
  }
}

/* Powers are rounded to the operands' type, V is at most 2: a part of that. Nothing beside Y's elements is
 * written. */
static void judge(attend *c, int by_mma) {
  const double step = !by_mma ? 0x1p-18 : c->s.of == BS_BF16 ? 0x1p-8 : 0x1p-11;
  pl_tensor *y = &c->a[CUDA_ATTEND_Y];
  near(c, y, &c->want, 2.0 * step, 1.01 * bs_dtype_unit_roundoff(c->s.to), "Y");
  if (c->s.lse) near(c, &c->a[CUDA_ATTEND_LSE], &c->want_lse, 0x1p-16, 0x1p-20, "LSE");
  for (int64_t i = 0; i < count(y); i++) memset(element(y, i), 0xA5, BS_DTYPE_BYTES(c->s.to));
  for (uint64_t i = 0; i < y->bytes; i++)
    ck_assert_msg(y->pages[i] == 0xA5, "%s: a byte beside the elements", text_of(c, "Y"));
}

/* Twice, with the same bits; `kernels`: launches of a run, of mma 1, with parts of the keys 2. */
static void run_case(pl *p, const bs_op_impl *impl, const shape *s, uint64_t *seed, int by_mma,
                     int64_t kernels, const char *settings) {
  static attend c;
  pl_tensor first;
  begin(&c, s, seed);
  c.query.knobs = settings;
  by_ref(&c, p);
  const int64_t before = p->launches;
  pl_run_cuda(p, impl, &c.query, NULL, c.args);
  ck_assert_msg(p->launches - before == kernels, "%s: %lld launches", text_of(&c, "run"),
                (long long)(p->launches - before));
  const int64_t y[4] = {s->B, s->H, s->S, s->E};
  make(&first, s->to, y, s->lay == OFF ? OFF : TOKENS, PL_FIRST);
  pl_copy(&first, &c.a[CUDA_ATTEND_Y]);
  pl_run_cuda(p, impl, &c.query, NULL, c.args);
  ck_assert_msg(memcmp(first.pages, c.a[CUDA_ATTEND_Y].pages, first.bytes) == 0, "%s",
                text_of(&c, "other bits the second time"));
  judge(&c, by_mma);
  pl_free(&first);
  end(&c);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static const shape shapes[] = {
    {.B = 1, .H = 1, .G = 1, .S = 16, .T = 32, .D = 64, .E = 64},
    {.B = 2, .H = 2, .G = 1, .S = 70, .T = 70, .D = 64, .E = 64, .causal = 1, .lse = 1},
    {.B = 1, .H = 4, .G = 2, .S = 33, .T = 150, .D = 80, .E = 40, .causal = 2, .lengths = 1, .lay = TOKENS},
    {.B = 2, .H = 1, .G = 1, .S = 90, .T = 200, .D = 128, .E = 128, .left = 37, .right = 5, .lse = 1},
    {.B = 1, .H = 2, .G = 2, .S = 20, .T = 77, .D = 24, .E = 136, .mask = BOOL_MASK, .lse = 1},
    {.B = 2, .H = 2, .G = 2, .S = 5, .T = 65, .D = 256, .E = 256, .mask = FLOAT_MASK, .softcap = 1.5},
    {.B = 1, .H = 2, .G = 1, .S = 1, .T = 700, .D = 64, .E = 64, .lse = 1}, /* its keys are cut */
    {.B = 3, .H = 2, .G = 1, .S = 2, .T = 600, .D = 8, .E = 16, .lengths = 1, .mask = BOOL_MASK, .lse = 1},
    {.B = 1, .H = 1, .G = 1, .S = 40, .T = 48, .D = 64, .E = 64, .mask = BOOL_MASK, .special = 1, .lse = 1},
    {.B = 1, .H = 1, .G = 1, .S = 3, .T = 560, .D = 64, .E = 64, .causal = 2, .special = 1, .lse = 1},
    {.B = 1,
     .H = 1,
     .G = 1,
     .S = 40,
     .T = 48,
     .D = 64,
     .E = 64,
     .mask = BOOL_MASK,
     .special = 1,
     .lse = 1,
     .zeros = 1},
    {.B = 1, .H = 1, .G = 1, .S = 3, .T = 560, .D = 64, .E = 64, .causal = 2, .special = 1, .zeros = 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

START_TEST(tensor_cores) {
  static const uint32_t types[][3] = {{BS_BF16, BS_BF16, BS_F32},
                                      {BS_F16, BS_F16, BS_F16},
                                      {BS_BF16, BS_F32, BS_BF16},
                                      {BS_F8E4M3, BS_BF16, BS_F32},
                                      {BS_F8E5M2, BS_F16, BS_F32}};
  pl p;
  uint64_t seed = 5 + (uint64_t)_i;
  pl_open(&p);
  for (int t = 0; t < 5; t++) {
    shape s = shapes[_i];
    s.of = types[t][0];
    s.to = types[t][1];
    s.mask_dtype = types[t][2];
    run_case(&p, &cuda_attention, &s, &seed, 1, s.T >= 512 ? 2 : 1, NULL);
  }
  pl_close(&p);
}
END_TEST

START_TEST(rows) {
  static const uint32_t types[][2] = {
      {BS_F32, BS_F32}, {BS_BF16, BS_F8E5M2}, {BS_F16, BS_BF16}, {BS_F8E4M3, BS_F32}};
  pl p;
  uint64_t seed = 11 + (uint64_t)_i;
  pl_open(&p);
  for (int t = 0; t < 4; t++)
    for (int lay = t % 2; lay < LAYS; lay += 2) {
      shape s = shapes[_i];
      s.of = types[t][0];
      s.to = types[t][1];
      s.mask_dtype = types[t][0];
      s.lay = lay;
      if (lay == OFF) { /* widths that are multiples of nothing */
        s.D -= 1;
        s.E -= 3;
      }
      run_case(&p, &cuda_attention_rows, &s, &seed, 0, 1, NULL);
    }
  pl_close(&p);
}
END_TEST

typedef struct setting {
  const char *knobs;
  int64_t D;
  int64_t kernels;  /* of a run */
  const char *echo; /* what the plan says of itself; NULL: refused */
  const char *why;
} setting;
#define REST(split, exp, persistent) \
  ";split=" split ";exp=" exp ";persistent=" persistent ";warp_specialize=off"
static const setting settings[] = {
    {NULL, 64, 1, "rows=64;keys=64;stages=2;warps=4" REST("1", "exact", "off"), NULL},
    {"keys=auto", 128, 1, "rows=64;keys=64;stages=2;warps=4" REST("1", "exact", "off"), NULL},
    {"", 256, 1, "rows=64;keys=32;stages=2;warps=4" REST("1", "exact", "off"), NULL},
    {"rows=128;keys=32;stages=3", 64, 1, "rows=128;keys=32;stages=3;warps=8" REST("1", "exact", "off"), NULL},
    {"warps=8;stages=1", 64, 1, "rows=128;keys=64;stages=1;warps=8" REST("1", "exact", "off"), NULL},
    {"keys=128;stages=1;exp=fast", 64, 1, "rows=64;keys=128;stages=1;warps=4" REST("1", "fast", "off"), NULL},
    {"stages=3", 128, 1, "rows=64;keys=32;stages=3;warps=4" REST("1", "exact", "off"), NULL},
    {"rows=128", 256, 1, "rows=128;keys=32;stages=1;warps=8" REST("1", "exact", "off"), NULL},
    {"split=4", 64, 2, "rows=64;keys=64;stages=2;warps=4" REST("4", "exact", "off"), NULL},
    {"split=8;keys=32;stages=1", 128, 2, "rows=64;keys=32;stages=1;warps=4" REST("8", "exact", "off"), NULL},
    {"persistent=on", 64, 1, "rows=64;keys=64;stages=2;warps=4" REST("1", "exact", "on"), NULL},
    {"persistent=on;split=2;keys=32;stages=3", 64, 2,
     "rows=64;keys=32;stages=3;warps=4" REST("2", "exact", "on"), NULL},
    /* The second part of the first queries has no keys that they see: an item of no tile between others. */
    {"persistent=on;split=2;keys=32;stages=1", 64, 2,
     "rows=64;keys=32;stages=1;warps=4" REST("2", "exact", "on"), NULL},
    {"keys=128", 256, 0, NULL, "rows=64 keys=128 stages=1 of 256 elements need 163840 bytes"},
    {"rows=64;warps=8", 64, 0, NULL, "rows=64 with warps=8"},
    {"warp_specialize=on", 64, 0, NULL, "there is no such kernel"},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* What is told reaches the plan, and every way of working has the same numbers. */
START_TEST(knobs) {
  const setting *k = &settings[_i];
  static attend c;
  pl p;
  uint64_t seed = 31;
  void *plan = NULL;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  bs_op_echo echo = {.struct_size = (uint32_t)sizeof echo};
  const shape s = {.of = BS_BF16,
                   .to = BS_BF16,
                   .B = 1,
                   .H = 2,
                   .G = 1,
                   .S = 150,
                   .T = 120,
                   .D = k->D,
                   .E = k->D,
                   .causal = 2,
                   .lse = 1};
  pl_open(&p);
  p.device.multiprocessors = 1; /* persistent blocks have several items each */
  begin(&c, &s, &seed);
  c.query.knobs = k->knobs;
  ck_assert_int_eq(cuda_attention.supports(&p.state, &c.query, &answer), BS_OK);
  const int32_t rc = cuda_attention.prepare(&p.state, &p.exec, &c.query, NULL, &plan, &err);
  if (k->echo == NULL) {
    ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
    ck_assert_msg(strstr(answer.text, k->why) != NULL, "%s", answer.text);
    ck_assert_int_eq(rc, BS_UNSUPPORTED);
  } else {
    ck_assert_msg(rc == BS_OK, "%s", err.message);
    ck_assert_int_eq(cuda_attention.echo(plan, &echo), BS_OK);
    ck_assert_str_eq(echo.knobs, k->echo);
    cuda_attention.plan_free(plan);
    run_case(&p, &cuda_attention, &s, &seed, 1, k->kernels, k->knobs);
  }
  end(&c);
  pl_close(&p);
}
END_TEST

/* What cutting the keys needs of memory is bounded by the query: less of it, or none. */
START_TEST(workspace) {
  static attend c;
  pl p;
  uint64_t seed = 37;
  pl_open(&p);
  const shape s = {.of = BS_F16, .to = BS_F16, .B = 1, .H = 2, .G = 1, .S = 1, .T = 2048, .D = 64, .E = 64};
  begin(&c, &s, &seed);
  const uint64_t part = 2 * (64 + 2) * sizeof(float);
  const struct {
    const char *knobs;
    uint64_t limit, want; /* want 0: no split */
    uint32_t reason;
  } cases[] = {{NULL, 0, 8 * part, 0},
               {NULL, 8 * part - 1, 0, 0},
               {"split=4", 0, 4 * part, 0},
               {"split=4", 4 * part - 1, 0, BS_REASON_WORKSPACE}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    c.query.knobs = cases[i].knobs;
    c.query.workspace_limit = cases[i].limit;
    ck_assert_int_eq(cuda_attention.supports(&p.state, &c.query, &answer), BS_OK);
    ck_assert_msg(
        answer.reason == cases[i].reason && (answer.reason != 0 || answer.workspace == cases[i].want),
        "case %zu: %llu bytes, %s", i, (unsigned long long)answer.workspace, answer.text);
  }
  end(&c);
  pl_close(&p);
}
END_TEST

/* A plan of mma whose run has rows off 16 bytes: served by the other kernel. */
START_TEST(rows_off_16_bytes) {
  pl p;
  attend c;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  void *plan = NULL;
  uint64_t seed = 3;
  pl_open(&p);
  const shape s = {
      .of = BS_BF16, .to = BS_BF16, .B = 1, .H = 2, .G = 1, .S = 9, .T = 40, .D = 64, .E = 64, .lay = OFF};
  begin(&c, &s, &seed);
  by_ref(&c, &p);
  bs_tensor_desc dense[3] = {c.a[0].d, c.a[1].d, c.a[2].d};
  bs_op_query q = c.query;
  const bs_tensor_desc *descs[CUDA_ATTEND_ARGS] = {&dense[0], &dense[1], &dense[2]};
  bs_tensor_desc y = c.a[CUDA_ATTEND_Y].d;
  for (int i = 0; i < 3; i++) memset(dense[i].strides, 0, sizeof dense[i].strides);
  memset(y.strides, 0, sizeof y.strides);
  descs[CUDA_ATTEND_Y] = &y;
  q.args = descs;
  ck_assert_int_eq(cuda_attention.prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(cuda_attention.run(plan, c.args, CUDA_ATTEND_ARGS, NULL, &err), BS_OK);
  cuda_attention.plan_free(plan);
  judge(&c, 0);
  end(&c);
  pl_close(&p);
}
END_TEST

/* Fewer sequences, queries and keys than prepared. */
START_TEST(fewer_than_prepared) {
  pl p;
  attend c;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  void *plan = NULL;
  uint64_t seed = 17;
  pl_open(&p);
  const shape s = {
      .of = BS_F16, .to = BS_F16, .B = 2, .H = 2, .G = 2, .S = 3, .T = 600, .D = 64, .E = 64, .causal = 2};
  for (int64_t keys = 0; keys <= 600; keys += 300) {
    begin(&c, &s, &seed);
    ck_assert_int_eq(cuda_attention.prepare(&p.state, &p.exec, &c.query, NULL, &plan, &err), BS_OK);
    for (int i = CUDA_ATTEND_K; i <= CUDA_ATTEND_V; i++) c.a[i].t.dims[2] = c.a[i].d.dims[2] = keys;
    c.a[CUDA_ATTEND_Q].t.dims[2] = c.a[CUDA_ATTEND_Q].d.dims[2] = c.a[CUDA_ATTEND_Y].t.dims[2] = 2;
    c.want.t.dims[2] = c.want.d.dims[2] = c.a[CUDA_ATTEND_Y].d.dims[2] = 2;
    by_ref(&c, &p);
    ck_assert_int_eq(cuda_attention.run(plan, c.args, CUDA_ATTEND_ARGS, NULL, &err), BS_OK);
    near(&c, &c.a[CUDA_ATTEND_Y], &c.want, 0x1p-10, 0x1p-11, "fewer");
    cuda_attention.plan_free(plan);
    end(&c);
  }
  pl_close(&p);
}
END_TEST

typedef struct refusal {
  shape s;
  uint32_t flags, accumulate;
  uint64_t workspace;
  uint32_t mma, rows; /* enum bs_reason; 0: served */
} refusal;

START_TEST(refused) {
#define TINY .B = 1, .H = 2, .G = 1, .S = 4, .T = 9
  static const refusal cases[] = {
      {{TINY, .D = 64, .E = 64, .of = BS_BF16, .to = BS_BF16}, 0, 0, 0, 0, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F32, .to = BS_F32}, 0, 0, 0, BS_REASON_DTYPE, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F64, .to = BS_F64}, 0, 0, 0, BS_REASON_DTYPE, BS_REASON_DTYPE},
      {{TINY, .D = 264, .E = 64, .of = BS_F16, .to = BS_F16}, 0, 0, 0, BS_REASON_SHAPE, BS_REASON_SHAPE},
      {{TINY, .D = 60, .E = 64, .of = BS_F16, .to = BS_F16}, 0, 0, 0, BS_REASON_SHAPE, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F16, .to = BS_F8E4M3}, 0, 0, 0, BS_REASON_DTYPE, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F16, .to = BS_F16, .lay = OFF}, 0, 0, 0, BS_REASON_ALIGNMENT, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F16, .to = BS_F16}, BS_QUERY_TOKENWISE, 0, 0, BS_REASON_DISABLED, 0},
      {{TINY, .D = 64, .E = 64, .of = BS_F16, .to = BS_F16},
       0,
       BS_ACC_F64,
       0,
       BS_REASON_DTYPE,
       BS_REASON_DTYPE},
  };
#undef TINY
  pl p;
  attend c;
  uint64_t seed = 1;
  pl_open(&p);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    begin(&c, &cases[i].s, &seed);
    c.query.flags = cases[i].flags;
    c.query.accumulate = cases[i].accumulate;
    const bs_op_impl *impls[2] = {&cuda_attention, &cuda_attention_rows};
    for (int k = 0; k < 2; k++) {
      bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
      ck_assert_int_eq(impls[k]->supports(&p.state, &c.query, &answer), BS_OK);
      const uint32_t want = k == 0 ? cases[i].mma : cases[i].rows;
      ck_assert_msg((answer.level == BS_LEVEL_NO) == (want != 0) && answer.reason == want,
                    "case %zu of %s: %u, %s", i, impls[k]->name, answer.reason, answer.text);
      ck_assert(answer.text[0] != '\0');
    }
    end(&c);
  }
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{tensor_cores, .end = SHAPES},
                             {rows, .end = SHAPES},
                             {knobs, .end = SETTINGS},
                             {workspace},
                             {rows_off_16_bytes},
                             {fewer_than_prepared},
                             {refused},
                             {0}};
  return run_tests("cuda attention", tests, (test_setup){0});
}
