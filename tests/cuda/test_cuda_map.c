/* SPDX-License-Identifier: MIT
 * test_cuda_map.c - the interpreter of programs (plugins/cuda/ops/map.c), its kernels run by their CPU twins,
 * against ref: random programs of exact steps to the bit, over any layout; each function over the floats. */
#include <math.h>

#include "core/op/expr.h"
#include "plain.h"
#include "plugins/cuda/ops/map.h"
#include "tests/run_tests.h"

enum { ARGS = BS_EXPR_MAX_IN + BS_EXPR_MAX_OUT, PROGRAMS = 1200, DTYPES = 11 };

static const uint32_t dtypes[DTYPES] = {BS_I64, BS_I32, BS_I8,   BS_U8,     BS_BOOL,  BS_F64,
                                        BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
static const uint32_t computes[3] = {BS_F32, BS_F64, BS_I64};

/* Steps whose results are rounded once or not at all, so that all backends agree; FMA is rounded twice by
 * ref, and differs where its sum in f64 is a tie of f32. */
static const uint8_t exact_floats[] = {
    BS_EXPR_MOV,   BS_EXPR_NEG,  BS_EXPR_ABS,    BS_EXPR_SIGN, BS_EXPR_FLOOR, BS_EXPR_CEIL,
    BS_EXPR_ROUND, BS_EXPR_SQRT, BS_EXPR_RECIP,  BS_EXPR_NOT,  BS_EXPR_ISNAN, BS_EXPR_ISINF,
    BS_EXPR_ADD,   BS_EXPR_SUB,  BS_EXPR_MUL,    BS_EXPR_DIV,  BS_EXPR_FMOD,  BS_EXPR_MIN,
    BS_EXPR_MAX,   BS_EXPR_LT,   BS_EXPR_LE,     BS_EXPR_EQ,   BS_EXPR_AND,   BS_EXPR_OR,
    BS_EXPR_XOR,   BS_EXPR_FMA,  BS_EXPR_SELECT, BS_EXPR_TO,   BS_EXPR_INDEX};
static const uint8_t exact_integers[] = {
    BS_EXPR_MOV, BS_EXPR_NEG,   BS_EXPR_ABS, BS_EXPR_SIGN, BS_EXPR_NOT, BS_EXPR_ADD,
    BS_EXPR_SUB, BS_EXPR_MUL,   BS_EXPR_MIN, BS_EXPR_MAX,  BS_EXPR_LT,  BS_EXPR_LE,
    BS_EXPR_EQ,  BS_EXPR_AND,   BS_EXPR_OR,  BS_EXPR_XOR,  BS_EXPR_FMA, BS_EXPR_SELECT,
    BS_EXPR_TO,  BS_EXPR_INDEX, BS_EXPR_DIV, BS_EXPR_FMOD, BS_EXPR_POW};

/* ---- programs ------------------------------------------------------------------------------------ */

typedef struct program {
  bs_expr e;
  uint64_t consts[BS_EXPR_MAX_CONST];
  bs_expr_step steps[BS_EXPR_MAX_STEPS];
  uint8_t outs[BS_EXPR_MAX_OUT];
} program;

static void finish(program *p) {
  p->e.struct_size = (uint32_t)sizeof p->e;
  p->e.consts = p->consts;
  p->e.steps = p->steps;
  p->e.outs = p->outs;
  p->e.max_op = 0;
  for (uint32_t i = 0; i < p->e.n_steps; i++)
    if (p->steps[i].op > p->e.max_op) p->e.max_op = p->steps[i].op;
}

static uint64_t constant(uint32_t compute, uint64_t *seed) {
  static const double values[] = {0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.25, 1e30, 7.0, INFINITY, NAN, 100.0};
  static const int64_t edges[] = {INT64_MIN, INT64_MAX, -1, 0, 1};
  const double v = values[fx_below(seed, 12)];
  const float f = (float)v;
  uint64_t bits = 0;
  if (compute == BS_F32)
    memcpy(&bits, &f, sizeof f);
  else if (compute == BS_F64)
    memcpy(&bits, &v, sizeof v);
  else
    bits = (uint64_t)(fx_below(seed, 3) == 0 ? edges[fx_below(seed, 5)] : fx_below(seed, 200) - 100);
  return bits;
}

static bs_expr_step random_step(uint32_t compute, uint32_t values, uint32_t rank, uint64_t *seed) {
  const int64_t n = compute == BS_I64 ? (int64_t)sizeof exact_integers : (int64_t)sizeof exact_floats;
  bs_expr_step s = {0, 0, 0, 0};
  do {
    s.op = (compute == BS_I64 ? exact_integers : exact_floats)[fx_below(seed, n)];
  } while (s.op == BS_EXPR_INDEX ? rank == 0 : values == 0);
  if (s.op == BS_EXPR_INDEX) {
    s.a = (uint8_t)fx_below(seed, rank);
    return s;
  }
  s.a = (uint8_t)fx_below(seed, values);
  if (s.op == BS_EXPR_TO) {
    const uint32_t dtype = dtypes[fx_below(seed, compute == BS_I64 ? 5 : DTYPES)];
    s.b = (uint8_t)(dtype >> 8);
    s.c = (uint8_t)dtype;
    return s;
  }
  if (s.op >= BS_EXPR_ADD) s.b = (uint8_t)fx_below(seed, values);
  if (s.op >= BS_EXPR_FMA) s.c = (uint8_t)fx_below(seed, values);
  return s;
}

/* Some long, with many values that live; some without steps, inputs or constants. */
static void random_program(program *p, uint32_t compute, uint32_t rank, uint64_t *seed) {
  memset(p, 0, sizeof *p);
  bs_expr *e = &p->e;
  e->compute = compute;
  e->n_in = (uint32_t)fx_below(seed, fx_below(seed, 8) == 0 ? BS_EXPR_MAX_IN + 1 : 4);
  e->n_const = (uint32_t)fx_below(seed, fx_below(seed, 8) == 0 ? BS_EXPR_MAX_CONST + 1 : 3);
  e->n_steps = (uint32_t)fx_below(seed, fx_below(seed, 8) == 0 ? BS_EXPR_MAX_STEPS + 1 : 7);
  e->n_out = 1 + (uint32_t)fx_below(seed, BS_EXPR_MAX_OUT);
  if (e->n_in + e->n_const == 0) e->n_const = 1;
  for (uint32_t k = 0; k < e->n_const; k++) p->consts[k] = constant(compute, seed);
  const uint32_t first = e->n_in + e->n_const, all = first + e->n_steps;
  for (uint32_t s = 0; s < e->n_steps; s++) p->steps[s] = random_step(compute, first + s, rank, seed);
  for (uint32_t i = 0; i < e->n_out; i++) {
    const int64_t back = fx_below(seed, fx_below(seed, 2) == 0 ? 2 : all);
    p->outs[i] = (uint8_t)(all - 1 - (uint32_t)(back < all ? back : 0));
  }
  finish(p);
}

/* ---- tensors ------------------------------------------------------------------------------------- */

static int step_on(uint32_t rank, const int64_t *dims, int64_t *io_at) {
  for (uint32_t d = rank; d-- > 0;) {
    if (++io_at[d] < dims[d]) return 1;
    io_at[d] = 0;
  }
  return 0;
}

static unsigned char *element(const pl_tensor *t, const int64_t *at) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < t->t.rank; d++) offset += at[d] * t->t.strides[d];
  return (unsigned char *)t->t.data + offset * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
}

static int is_empty(const pl_tensor *t) {
  for (uint32_t d = 0; d < t->t.rank; d++)
    if (t->t.dims[d] == 0) return 1;
  return 0;
}

static double number(uint64_t *seed) {
  static const double values[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1e30, -1e30, 1e-40, 3e9, -200.5};
  const int64_t kind = fx_below(seed, 8);
  if (kind == 0) return values[fx_below(seed, 10)];
  if (kind < 4) return (double)(fx_below(seed, 41) - 20) / 2;
  return (double)(int64_t)(fx_next(seed) >> 11) * 0x1p-52 * 8.0 - 8.0;
}

static void fill(pl_tensor *t, uint64_t *seed) {
  int64_t at[BS_MAX_DIMS] = {0};
  if (is_empty(t)) return;
  do {
    const uint64_t bits = fx_next(seed);
    if (!bs_dtype_is_float(t->t.dtype) && t->t.dtype != BS_BOOL && fx_below(seed, 4) == 0)
      memcpy(element(t, at), &bits, BS_DTYPE_BYTES(t->t.dtype));
    else
      bs_store_f64(t->t.dtype, element(t, at), 0, number(seed));
  } while (step_on(t->t.rank, t->t.dims, at));
}

/* Dense, with gaps, or with dims in another order; an input may lack dims, or repeat along one. */
static void random_tensor(pl_tensor *t, uint32_t dtype, uint32_t rank, const int64_t *dims, int is_input,
                          int where, uint64_t *seed) {
  int64_t own[BS_MAX_DIMS], strides[BS_MAX_DIMS], step = 1;
  uint32_t order[BS_MAX_DIMS];
  const int64_t kind = fx_below(seed, 4);
  for (uint32_t d = 0; d < rank; d++) {
    own[d] = is_input && fx_below(seed, 4) == 0 ? 1 : dims[d];
    order[d] = rank - 1 - d;
  }
  for (uint32_t d = 0; d < rank && kind == 1; d++) {
    const uint32_t other = (uint32_t)fx_below(seed, rank), keep = order[d];
    order[d] = order[other];
    order[other] = keep;
  }
  for (uint32_t d = 0; d < rank; d++) {
    strides[order[d]] = step;
    step *= own[order[d]] > 0 ? own[order[d]] : 1;
    if (kind == 2) step += 4 * fx_below(seed, 2);
    if (kind == 3) step += fx_below(seed, 3);
  }
  if (is_input && rank > 0 && fx_below(seed, 6) == 0) strides[fx_below(seed, rank)] = 0;
  pl_make(t, dtype, rank, own, strides, where);
}

/* The same bits, but NaN of any sign where the other is NaN; and nothing else is written. */
static void same(pl_tensor *got, pl_tensor *want, int number_of) {
  int64_t at[BS_MAX_DIMS] = {0};
  const uint32_t size = BS_DTYPE_BYTES(got->t.dtype);
  if (!is_empty(got)) do {
      unsigned char *g = element(got, at), *w = element(want, at);
      const double x = bs_load_f64(got->t.dtype, g, 0), y = bs_load_f64(want->t.dtype, w, 0);
      if (memcmp(g, w, size) != 0 && !(isnan(x) && isnan(y)))
        ck_abort_msg("program %d: [%lld,%lld,%lld,..] of 0x%04x is %.17g, want %.17g", number_of,
                     (long long)at[0], (long long)at[1], (long long)at[2], got->t.dtype, x, y);
      memcpy(g, w, size);
    } while (step_on(got->t.rank, got->t.dims, at));
  ck_assert_msg(memcmp(got->pages, want->pages, got->bytes) == 0, "program %d: bytes beside the elements",
                number_of);
}

/* ---- random programs ----------------------------------------------------------------------------- */

typedef struct call {
  program p;
  pl_tensor in[BS_EXPR_MAX_IN], got[BS_EXPR_MAX_OUT], want[BS_EXPR_MAX_OUT];
  int place_of[BS_EXPR_MAX_OUT]; /* the input in whose place it is; -1: none */
} call;

static void random_dims(int c, uint32_t rank, int64_t *dims, uint64_t *seed) {
  for (uint32_t d = 0; d < rank; d++) dims[d] = 1 + fx_below(seed, rank > 3 ? 4 : 9);
  if (rank > 0 && fx_below(seed, 3) == 0) dims[rank - 1] = 4 * (1 + fx_below(seed, 8));
  if (rank == 2 && c % 10 == 0) dims[0] = 40, dims[1] = 100; /* several blocks */
  if (rank > 0 && c % 40 == 7) dims[fx_below(seed, rank)] = 0;
}

/* Inputs of i64 programs are no floats. An output in an input's place is laid out as it. */
static void make_call(call *c, uint32_t rank, const int64_t *dims, uint64_t *seed) {
  const bs_expr *e = &c->p.e;
  uint32_t taken = 0;
  for (uint32_t i = 0; i < e->n_in; i++) {
    const uint32_t dtype = dtypes[fx_below(seed, e->compute == BS_I64 ? 5 : DTYPES)];
    random_tensor(&c->in[i], dtype, rank, dims, 1, (int)fx_below(seed, PL_PLACES), seed);
    fill(&c->in[i], seed);
  }
  for (uint32_t i = 0; i < e->n_out; i++) {
    uint32_t j = e->n_in > 0 ? (uint32_t)fx_below(seed, e->n_in) : 0;
    int may = e->n_in > 0 && (taken >> j & 1u) == 0;
    for (uint32_t d = 0; may && d < rank; d++)
      may = c->in[j].t.dims[d] == dims[d] && (c->in[j].t.strides[d] > 0 || dims[d] == 1);
    c->place_of[i] = may ? (int)j : -1;
    const int where = (int)fx_below(seed, PL_PLACES);
    if (may) {
      taken |= 1u << j;
      pl_make(&c->got[i], c->in[j].t.dtype, rank, dims, c->in[j].t.strides, where);
    } else {
      random_tensor(&c->got[i], dtypes[fx_below(seed, DTYPES)], rank, dims, 0, where, seed);
    }
    pl_make(&c->want[i], c->got[i].t.dtype, rank, dims, c->got[i].t.strides, where);
    fill(&c->got[i], seed);
    pl_copy(&c->want[i], &c->got[i]);
  }
}

static void run_call(pl *p, call *c, pl_tensor *outs, int by_ref) {
  const bs_expr *e = &c->p.e;
  const bs_tensor_desc *descs[ARGS];
  bs_tensor *args[ARGS];
  for (uint32_t i = 0; i < e->n_in; i++) descs[i] = &c->in[i].d, args[i] = &c->in[i].t;
  for (uint32_t i = 0; i < e->n_out; i++) {
    descs[e->n_in + i] = &outs[i].d;
    args[e->n_in + i] = &outs[i].t;
    if (c->place_of[i] >= 0) args[c->place_of[i]] = &outs[i].t;
  }
  bs_op_query q = fx_query("map", descs, e->n_in + e->n_out);
  q.expr = e;
  if (by_ref)
    pl_run_ref(p, &q, NULL, args);
  else
    pl_run_cuda(p, &cuda_map, &q, NULL, args);
}

static void free_call(call *c) {
  for (uint32_t i = 0; i < c->p.e.n_in; i++) pl_free(&c->in[i]);
  for (uint32_t i = 0; i < c->p.e.n_out; i++) {
    pl_free(&c->got[i]);
    pl_free(&c->want[i]);
  }
}

START_TEST(exact_programs) {
  static call c;
  pl p;
  uint64_t seed = 101 + (uint64_t)_i;
  pl_open(&p);
  for (int k = 0; k < PROGRAMS; k++) {
    int64_t dims[BS_MAX_DIMS] = {0};
    bs_error err = BS_ERROR_INIT;
    const uint32_t rank = (uint32_t)fx_below(&seed, BS_MAX_DIMS + 1);
    random_program(&c.p, computes[_i], rank, &seed);
    ck_assert_msg(bs_expr_check("map", &c.p.e, rank, &err) == BS_OK, "%s", err.message);
    random_dims(k, rank, dims, &seed);
    make_call(&c, rank, dims, &seed);
    run_call(&p, &c, c.got, 0);
    run_call(&p, &c, c.want, 1);
    for (uint32_t i = 0; i < c.p.e.n_out; i++) same(&c.got[i], &c.want[i], k);
    free_call(&c);
  }
  pl_close(&p);
}
END_TEST

/* So many values live at once that blocks have few threads: 12 inputs and 40 steps before the first sum. */
START_TEST(many_values_live) {
  enum { KEPT = 31 };
  static call c;
  pl p;
  uint64_t seed = 7;
  const int64_t dims[2] = {5, 204};
  pl_open(&p);
  memset(&c, 0, sizeof c);
  bs_expr *e = &c.p.e;
  *e = (bs_expr){.compute = computes[_i], .n_in = 12, .n_steps = 2 * KEPT - 1, .n_out = 1};
  for (uint32_t s = 0; s < KEPT; s++)
    c.p.steps[s] = (bs_expr_step){BS_EXPR_SUB, (uint8_t)(s % 12), (uint8_t)((s * 5 + 1) % 12), 0};
  for (uint32_t s = KEPT; s < e->n_steps; s++)
    c.p.steps[s] = (bs_expr_step){s % 2 ? BS_EXPR_MAX : BS_EXPR_ADD, (uint8_t)(s == KEPT ? 12 : 11 + s),
                                  (uint8_t)(12 + 2 * KEPT - 1 - s), 0};
  c.p.outs[0] = (uint8_t)(11 + e->n_steps);
  finish(&c.p);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_expr_check("map", e, 2, &err) == BS_OK, "%s", err.message);
  make_call(&c, 2, dims, &seed);
  run_call(&p, &c, c.got, 0);
  run_call(&p, &c, c.want, 1);
  same(&c.got[0], &c.want[0], 0);
  ck_assert_int_gt(p.blocks, 5 * 204 / 256);
  free_call(&c);
  pl_close(&p);
}
END_TEST

/* ---- functions ----------------------------------------------------------------------------------- */

static const struct {
  uint8_t op;
  double units;
} curves[] = {{BS_EXPR_RSQRT, 1.5},   {BS_EXPR_EXP, 1},     {BS_EXPR_LOG, 1},      {BS_EXPR_TANH, 1},
              {BS_EXPR_ERF, 1},       {BS_EXPR_SIGMOID, 1}, {BS_EXPR_SOFTPLUS, 1}, {BS_EXPR_GELU, 1},
              {BS_EXPR_GELU_TANH, 1}, {BS_EXPR_SILU, 1},    {BS_EXPR_SIN, 1},      {BS_EXPR_COS, 1}};

static int only_f32(uint8_t op) {
  return op == BS_EXPR_GELU || op == BS_EXPR_GELU_TANH || op == BS_EXPR_SIN || op == BS_EXPR_COS;
}

static void check_curve(pl *p, uint32_t compute, uint32_t n_in, uint8_t op, double units, int64_t n,
                        float (*value)(uint32_t i, int64_t k)) {
  static call c;
  const uint32_t type = compute;
  memset(&c, 0, sizeof c);
  c.p.e = (bs_expr){.compute = compute, .n_in = n_in, .n_steps = 1, .n_out = 1};
  c.p.steps[0] = (bs_expr_step){op, 0, (uint8_t)(n_in - 1), 0};
  c.p.outs[0] = (uint8_t)n_in;
  c.place_of[0] = -1;
  finish(&c.p);
  for (uint32_t i = 0; i < n_in; i++) {
    pl_make(&c.in[i], type, 1, &n, NULL, PL_FIRST);
    for (int64_t k = 0; k < n; k++) pl_set(&c.in[i], 0, k, (double)value(i, k));
  }
  pl_make(&c.got[0], type, 1, &n, NULL, PL_FIRST);
  pl_make(&c.want[0], type, 1, &n, NULL, PL_FIRST);
  run_call(p, &c, c.got, 0);
  run_call(p, &c, c.want, 1);
  pl_near(&c.got[0], &c.want[0], units, compute, "a function");
  free_call(&c);
}

/* The floats of bf16, and one beside each. */
static float border(uint32_t i, int64_t k) {
  const uint32_t bits = (uint32_t)(k / 2) << 16 | (k % 2 != 0 ? 0x5a5bu : 0u);
  float v;
  (void)i;
  memcpy(&v, &bits, sizeof v);
  return v;
}

START_TEST(functions_over_the_floats) {
  pl p;
  pl_open(&p);
  check_curve(&p, BS_F32, 1, curves[_i].op, curves[_i].units, 131072, border);
  if (!only_f32(curves[_i].op)) check_curve(&p, BS_F64, 1, curves[_i].op, 4, 131072, border);
  pl_close(&p);
}
END_TEST

/* The floats nearest to quarters of a turn, of all sizes; then the large floats that come closest to one, and
 * their doubles: sines and cosines next to 0. */
enum { NEAR = 9, DOUBLES = 8, QUARTERS = 4096 * 50 };
static float quarter(uint32_t i, int64_t k) {
  static const float near[NEAR] = {0x1.f37c8ap+95f, 0x1.47d0fep+34f, 0x1.32ede2p+85f,
                                   0x1.13093p+76f,  0x1.628d4cp+40f, 0x1.b08c4ap+111f,
                                   0x1.abb4bp+89f,  0x1.0f79ap+57f,  0x1.5c0e66p+73f};
  const int64_t n = (k % 4096 + 1) << k / 4096;
  (void)i;
  if (k >= QUARTERS) return ldexpf(near[(k - QUARTERS) % NEAR], (int)((k - QUARTERS) / NEAR));
  return (float)((k % 2 != 0 ? -1.57079632679489661923 : 1.57079632679489661923) * (double)n);
}

START_TEST(quarters_of_a_turn) {
  pl p;
  pl_open(&p);
  check_curve(&p, BS_F32, 1, BS_EXPR_SIN, 1, QUARTERS + NEAR * DOUBLES, quarter);
  check_curve(&p, BS_F32, 1, BS_EXPR_COS, 1, QUARTERS + NEAR * DOUBLES, quarter);
  pl_close(&p);
}
END_TEST

/* Pairs of bases and exponents: what C's pow treats apart, and numbers in between. */
enum { EDGES = 26, MORE = 400 };
static float pow_value(uint32_t i, int64_t k) {
  static const float edges[EDGES] = {
      0.0f,    -0.0f,       1.0f,        -1.0f,  INFINITY, -INFINITY,    NAN,        2.0f,       -2.0f,
      3.0f,    -3.0f,       0.5f,        -0.5f,  2.5f,     -2.5f,        1e30f,      -1e30f,     1e-40f,
      -1e-40f, 16777216.0f, 16777215.0f, 0.999f, 1.001f,   -16777215.0f, 8388607.5f, 1.0f / 3.0f};
  uint64_t seed = (uint64_t)(i == 0 ? k / MORE : k % MORE) + 1000;
  const int64_t at = i == 0 ? k / MORE : k % MORE;
  if (at < EDGES) return edges[at];
  return (float)((double)(int64_t)(fx_next(&seed) >> 11) * 0x1p-52 * 30.0 - (i == 0 ? 3.0 : 30.0));
}

START_TEST(powers) {
  pl p;
  pl_open(&p);
  check_curve(&p, BS_F32, 2, BS_EXPR_POW, 1, (int64_t)MORE * MORE, pow_value);
  check_curve(&p, BS_F64, 2, BS_EXPR_POW, 4, (int64_t)MORE * MORE, pow_value);
  pl_close(&p);
}
END_TEST

/* ---- the rest ------------------------------------------------------------------------------------ */

/* Dense rows go in pieces of 16 bytes of values. */
START_TEST(pieces_are_taken) {
  static call c;
  pl p;
  const int64_t dims[2] = {64, 256}, row[2] = {1, 256}, gaps[2] = {264, 1};
  pl_open(&p);
  memset(&c, 0, sizeof c);
  c.p.e = (bs_expr){.compute = BS_F32, .n_in = 2, .n_steps = 1, .n_out = 1};
  c.p.steps[0] = (bs_expr_step){BS_EXPR_ADD, 0, 1, 0};
  c.p.outs[0] = 2;
  c.place_of[0] = -1;
  finish(&c.p);
  pl_make(&c.in[0], BS_BF16, 2, dims, gaps, PL_FIRST);
  pl_make(&c.in[1], BS_F64, 2, row, NULL, PL_FIRST);
  pl_make(&c.got[0], BS_F16, 2, dims, NULL, PL_FIRST);
  run_call(&p, &c, c.got, 0);
  ck_assert_int_eq(p.launches, 1);
  ck_assert_int_eq(p.blocks, 64 * 256 / 4 / 256);
  free_call(&c);
  pl_close(&p);
}
END_TEST

static const struct {
  uint32_t compute;
  uint8_t op;
  uint32_t level;
} answers[] = {{BS_F64, BS_EXPR_SIN, BS_LEVEL_NO},       {BS_F64, BS_EXPR_COS, BS_LEVEL_NO},
               {BS_F64, BS_EXPR_GELU, BS_LEVEL_NO},      {BS_F64, BS_EXPR_GELU_TANH, BS_LEVEL_NO},
               {BS_F32, BS_EXPR_OP_COUNT_, BS_LEVEL_NO}, {BS_F32, BS_EXPR_SIN, BS_LEVEL_NATIVE},
               {BS_I64, BS_EXPR_POW, BS_LEVEL_NATIVE}};

START_TEST(what_is_not_built_says_so) {
  const int64_t dims[1] = {4};
  pl_tensor t;
  program p;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  memset(&p, 0, sizeof p);
  p.e = (bs_expr){.compute = answers[_i].compute, .n_in = 1, .n_steps = 1, .n_out = 1};
  p.steps[0].op = answers[_i].op;
  p.outs[0] = 1;
  finish(&p);
  pl_make(&t, answers[_i].compute, 1, dims, NULL, PL_FIRST);
  const bs_tensor_desc *descs[2] = {&t.d, &t.d};
  bs_op_query q = fx_query("map", descs, 2);
  q.expr = &p.e;
  ck_assert_int_eq(cuda_map.supports(NULL, &q, &answer), BS_OK);
  ck_assert_uint_eq(answer.level, answers[_i].level);
  if (answer.level == BS_LEVEL_NO) ck_assert_uint_eq(answer.reason, BS_REASON_NOT_BUILT);
  pl_free(&t);
}
END_TEST

int main(void) {
  const test_case tests[] = {{exact_programs, 3},
                             {many_values_live, 3},
                             {functions_over_the_floats, TEST_COUNT(curves)},
                             {quarters_of_a_turn},
                             {powers},
                             {pieces_are_taken},
                             {what_is_not_built_says_so, TEST_COUNT(answers)},
                             {0}};
  return run_tests("cuda map", tests, (test_setup){.timeout = 60});
}
