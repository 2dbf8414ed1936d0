/* SPDX-License-Identifier: MIT
 * test_cusparselt.c - matmul24 by cuSPARSELt over its stand-in, beside ref: every type that it multiplies,
 * partitions, epilogues; what is served, by whom, and what is refused and why; which algorithm is taken; a
 * weight that is changed or holds zeros; a library that is missing, too old, or fails at any call. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "cusparselt_header.h"
#include "plugins/cuda/cusparselt/choose.h"
#include "products_case.h"
#include "tests/run_tests.h"
#include "tools/standin/splt/control.h"

/* ---- the plugin's state over the stand-in ----------------------------------------------------- */

static const splt_told *told;

static void *standin(const char *symbol) {
  void *library = dlopen(SPLT_STANDIN, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  void *at = dlsym(library, symbol);
  ck_assert_ptr_nonnull(at);
  return at;
}

static void again(const char *setup) {
  void *at = standin(SPLT_AGAIN_SYMBOL);
  splt_again_fn call;
  memcpy(&call, &at, sizeof call);
  setenv("BS_CUSPARSELT_STANDIN", setup, 1);
  call();
}

static void splt_open(pl *p, const char *setup, const char *wanted, int tune) {
  bs_error err = BS_ERROR_INIT;
  void *at = standin(SPLT_TOLD_SYMBOL);
  splt_told_fn tell;
  memcpy(&tell, &at, sizeof tell);
  told = tell();
  again(setup);
  pl_open(p);
  p->state.driver.tried = 1; /* there is none to ask */
  p->state.driver.why.code = BS_UNAVAILABLE;
  p->device.capability = 90;
  p->device.multiprocessors = 132;
  p->device.memory = (uint64_t)1 << 30;
  ck_assert_int_eq(cuda_splt_new(&p->state, wanted, tune, 1, &err), BS_OK);
  (void)cuda_splt_open(&p->state);
  p->state.splt->capability = 90;
}

static void splt_close(pl *p) {
  ck_assert_int_eq(told->living, 0);
  cuda_splt_close(&p->device);
  cuda_splt_delete(&p->state);
  ck_assert_int_eq(told->handles, 0);
  pl_close(p);
}

static const bs_op_impl *by_splt(const char *op) {
  ck_assert_str_eq(op, "matmul24");
  return &cuda_splt_matmul24;
}

/* Products that the stand-in made while `what` ran. */
static uint64_t made(void (*what)(pc *c), pc *c) {
  const uint64_t before = told->products;
  what(c);
  return told->products - before;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

typedef struct types {
  uint32_t of, to;
  int64_t unit, tokens; /* what N and K, and what B is a multiple of */
} types;
static const types served[] = {
    {BS_BF16, BS_BF16, 16, 8},   {BS_F16, BS_F16, 16, 8},      {BS_I8, BS_I32, 32, 16},
    {BS_F8E4M3, BS_F32, 32, 16}, {BS_F8E4M3, BS_BF16, 32, 16}, {BS_F8E4M3, BS_F16, 32, 16},
    {BS_F8E5M2, BS_F32, 32, 16}, {BS_F8E5M2, BS_BF16, 32, 16}, {BS_F8E5M2, BS_F16, 32, 16},
};
enum { SERVED = sizeof served / sizeof served[0] };

/* B, N and K in those units. */
static pc_shape shape_of(const types *t, int64_t B, int64_t N, int64_t K) {
  return (pc_shape){.x = t->of,
                    .w = t->of,
                    .y = t->to,
                    .grad = t->of,
                    .sums = t->to == BS_I32 ? BS_I32 : BS_F32,
                    .B = B * t->tokens,
                    .N = N * t->unit,
                    .K = K * t->unit,
                    .of24 = 1,
                    .impl = by_splt};
}

START_TEST(every_type) {
  const types *t = &served[_i];
  static const int64_t sizes[][3] = {{1, 1, 1}, {3, 2, 5}, {4, 5, 2}};
  pl p;
  uint64_t seed = 3 + (uint64_t)_i;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  for (int i = 0; i < 3; i++)
    for (int epilogue = 0; epilogue < (t->of == BS_I8 ? 1 : 3); epilogue++) {
      pc_shape s = shape_of(t, sizes[i][0], sizes[i][1], sizes[i][2]);
      s.epilogue = epilogue == 1 ? PC_RESIDUAL : 0;
      s.activation = epilogue == 2 ? BS_ACT_RELU : BS_ACT_NONE;
      s.lay = i == 2 ? PC_WIDE : PC_DENSE;
      pc c;
      pc_open(&c, &p, &s, &seed);
      ck_assert_msg(made(pc_forward, &c) == 1, "%s", pc_text(&c, "not by cuSPARSELt"));
      /* Our own values and codes, and theirs. */
      const uint64_t values = (uint64_t)(s.N * s.K / 2) * BS_DTYPE_BYTES(t->of);
      ck_assert_uint_ge(c.bytes[PC_CUDA], 2 * values + (uint64_t)(s.N * s.K / 4));
      pc_read(&c);
      pc_close(&c);
    }
  splt_close(&p);
}
END_TEST

/* A run of whole groups of a larger X, cut out or picked from it. */
START_TEST(runs_of_columns) {
  pl p;
  uint64_t seed = 7;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  for (int full = 0; full < 2; full++) {
    pc_shape s = shape_of(&served[_i], 2, 2, 6);
    s.part = PC_RUN;
    s.full = full;
    pc c;
    pc_open(&c, &p, &s, &seed);
    ck_assert_int_eq(c.kept, s.K - s.K / 3);
    ck_assert_msg(made(pc_forward, &c) == 1, "%s", pc_text(&c, "not by cuSPARSELt"));
    pc_close(&c);
  }
  splt_close(&p);
}
END_TEST

static bs_op_query query_of(const pc *c, const bs_tensor_desc *const *args) {
  return pc_query(c, "matmul24", args, 4);
}

/* ---- what our own tiles multiply of a weight that it packed ------------------------------------- */

/* Prepared for c's B and run with `rows`, beside ref. */
static void run_rows(pl *p, pc *c, int64_t rows, uint64_t want) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  const bs_op_query q = query_of(c, args);
  void *plan = NULL;
  ck_assert_int_eq(cuda_splt_matmul24.prepare(&p->state, &p->exec, &q, c->packed[0], &plan, &err), BS_OK);
  bs_tensor x = c->x.t, y = c->y[0].t, want_y = c->y[1].t;
  bs_tensor *ours[4] = {&x, NULL, NULL, &y}, *refs[4] = {&x, NULL, NULL, &want_y};
  x.dims[0] = y.dims[0] = want_y.dims[0] = rows;
  const uint64_t before = told->products;
  ck_assert_msg(cuda_splt_matmul24.run(plan, ours, 4, NULL, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(told->products - before, want);
  pl_run_ref(p, &q, c->packed[1], refs);
  pl_same_bits(&c->y[0], &c->y[1], "fewer rows");
  cuda_splt_matmul24.plan_free(plan);
}

START_TEST(fewer_rows) {
  pl p;
  pc c;
  uint64_t seed = 13;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  const pc_shape s = shape_of(&served[0], 3, 2, 3);
  pc_open(&c, &p, &s, &seed);
  run_rows(&p, &c, 24, 1);
  run_rows(&p, &c, 16, 0); /* a plan is for one B, whatever the unit */
  run_rows(&p, &c, 5, 0);
  run_rows(&p, &c, 0, 0);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

START_TEST(pointers_off_their_alignment) {
  pl p;
  uint64_t seed = 11;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  for (int i = 0; i < SERVED; i++) {
    pc_shape s = shape_of(&served[i], 1, 2, 2);
    s.where = PL_ODD;
    pc c;
    pc_open(&c, &p, &s, &seed);
    ck_assert_msg(made(pc_forward, &c) == 0, "%s", pc_text(&c, "off its alignment"));
    pc_close(&c);
  }
  splt_close(&p);
}
END_TEST

/* A weight is shared by plans of any B, any epilogue: what cuSPARSELt has not is ours, with ref's bits. */
START_TEST(any_plan_over_its_weight) {
  pl p;
  uint64_t seed = 17;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  for (int i = 0; i < 6; i++) {
    pc_shape s = shape_of(&served[0], 1, 2, 2);
    s.N -= i == 4; /* nothing is compressed */
    s.K -= i == 5 ? 3 : 0;
    s.B = i == 0 ? 5 : s.B;
    s.epilogue = i == 1 ? PC_BIAS : i == 2 ? 1 : 0;
    s.activation = i == 2 ? BS_ACT_RELU : BS_ACT_NONE;
    s.lay = i == 3 ? PC_GAPS : PC_DENSE;
    pc c;
    pc_open(&c, &p, &s, &seed);
    ck_assert_msg(made(pc_forward, &c) == 0, "%s", pc_text(&c, "by cuSPARSELt"));
    pc_close(&c);
  }
  splt_close(&p);
}
END_TEST

/* ---- the weight ------------------------------------------------------------------------------- */

START_TEST(a_changed_weight_is_compressed_anew) {
  pl p;
  pc c;
  uint64_t seed = 19;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  const pc_shape s = shape_of(&served[0], 2, 3, 2);
  pc_open(&c, &p, &s, &seed);
  const uint64_t before = told->compressed;
  const int64_t live = p.f.live;
  pl_fill(&c.dw[0], &seed, 0);
  ck_assert_int_eq(cuda_splt_matmul24.packed_update(c.packed[0], &c.dw[0].t, &err), BS_OK);
  ck_assert_int_eq(fx_impl("matmul24", &state)->packed_update(c.packed[1], &c.dw[0].t, &err), BS_OK);
  ck_assert_uint_eq(told->compressed - before, 1);
  ck_assert_int_eq(p.f.live, live);
  pc_read(&c);
  ck_assert_uint_eq(made(pc_forward, &c), 1);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* Pack c's weight once more, by both. */
static void pack_again(pl *p, pc *c) {
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  void *state = NULL;
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  const bs_op_query q = query_of(c, args);
  const bs_source source = fx_source(&c->w);
  const bs_op_impl *ref = fx_impl("matmul24", &state);
  cuda_splt_matmul24.packed_free(c->packed[0]);
  ref->packed_free(c->packed[1]);
  ck_assert_int_eq(cuda_splt_matmul24.pack(&p->state, &p->exec, &q, &source, &c->packed[0], &bytes, &err),
                   BS_OK);
  ck_assert_int_eq(ref->pack(state, &p->f.exec, &q, &source, &c->packed[1], &bytes, &err), BS_OK);
}

/* Zeros of both signs among the kept ones: cuSPARSELt chooses their places, and finite X does not show it. */
START_TEST(zeros_among_the_kept) {
  pl p;
  pc c;
  uint64_t seed = 23;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  const pc_shape s = shape_of(&served[_i], 1, 2, 2);
  pc_open(&c, &p, &s, &seed);
  for (int64_t r = 0; r < s.N; r++)
    for (int64_t k = 0; k < s.K; k++)
      if (fx_below(&seed, 3) == 0) fx_set(&c.w, r, k, k % 2 == 0 ? 0.0 : -0.0);
  const uint64_t before = told->dropped;
  pack_again(&p, &c);
  ck_assert_uint_gt(told->dropped, before);
  pc_read(&c); /* with their signs */
  ck_assert_uint_eq(made(pc_forward, &c), 1);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* A row of them, with cusparselt_zeros=off: of integers they have no sign, and nothing shows. */
START_TEST(negative_zeros) {
  pl p;
  pc c;
  uint64_t seed = 25;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  p.state.splt->zeros = 0;
  const pc_shape s = shape_of(&served[_i], 1, 2, 2);
  pc_open(&c, &p, &s, &seed);
  for (int64_t r = 0; r < s.N; r++)
    for (int64_t k = 0; k < s.K; k++) fx_set(&c.w, r, k, r == s.N - 1 ? -0.0 : 1.5);
  pack_again(&p, &c);
  ck_assert_uint_eq(made(pc_forward, &c), served[_i].of == BS_I8);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* With cusparselt_zeros=off: whether a weight is ours hangs on what it holds at the time. */
START_TEST(zeros_that_keep_their_places) {
  pl p;
  pc c;
  uint64_t seed = 27;
  bs_error err = BS_ERROR_INIT;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  p.state.splt->zeros = 0;
  const pc_shape s = shape_of(&served[_i], 1, 2, 2);
  const int64_t row = s.N - 1, value = s.K / 2 - 1;
  pc_open(&c, &p, &s, &seed);
  pl_tensor *d = &c.dw[0];
  for (int64_t r = 0; r < s.N; r++)
    for (int64_t v = 0; v < s.K / 2; v++) pl_set(d, r, v, 0.0);
  for (int times = 0; times < 3; times++) { /* the last value to 1, to zero, and back */
    void *state = NULL;
    pc_read(&c);
    const double now = pl_get(&c.back[1], row, value);
    pl_set(d, row, value, times == 1 ? -now : 1.0 - now);
    ck_assert_int_eq(cuda_splt_matmul24.packed_update(c.packed[0], &d->t, &err), BS_OK);
    ck_assert_int_eq(fx_impl("matmul24", &state)->packed_update(c.packed[1], &d->t, &err), BS_OK);
    ck_assert_uint_eq(made(pc_forward, &c), times != 1);
  }
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* ---- what is served --------------------------------------------------------------------------- */

typedef struct selection {
  const char *what;
  uint32_t x, w, y, bias, residual; /* 0: none */
  int64_t B, N, K;
  uint32_t activation, accumulate, flags;
  int lay;
  int32_t capability, version; /* version 0: 0.8.1 */
  uint32_t level, reason;
  const char *text;
} selection;

#define NO(reason) BS_LEVEL_NO, BS_REASON_##reason
#define YES BS_LEVEL_NATIVE, BS_REASON_NONE
#define OURS BS_LEVEL_EMULATED, BS_REASON_NONE
#define BF BS_BF16, BS_BF16, BS_BF16
#define E4 BS_F8E4M3, BS_F8E4M3
static const selection table[] = {
    {"bf16", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 80, 0, YES, "sparse tensor cores"},
    {"f16", BS_F16, BS_F16, BS_F16, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 80, 0, YES, "sparse tensor cores"},
    {"residual", BF, 0, BS_BF16, 8, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, YES, ""},
    {"relu", BF, 0, 0, 8, 16, 16, BS_ACT_RELU, 0, 0, PC_DENSE, 90, 0, YES, ""},
    {"the same bits", BF, 0, 0, 8, 16, 16, 0, 0, BS_QUERY_DETERMINISTIC, PC_DENSE, 90, 0, YES, ""},
    {"rows apart", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_WIDE, 90, 0, YES, ""},
    {"relu, then residual", BF, 0, BS_BF16, 8, 16, 16, BS_ACT_RELU, 0, 0, PC_DENSE, 90, 0, OURS, "residual"},
    {"residual in f32", BF, 0, BS_F32, 8, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "one type"},
    {"bias", BF, BS_BF16, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "bias"},
    {"gelu", BF, 0, 0, 8, 16, 16, BS_ACT_GELU, 0, 0, PC_DENSE, 90, 0, OURS, "gelu"},
    {"silu", BF, 0, 0, 8, 16, 16, BS_ACT_SILU, 0, 0, PC_DENSE, 90, 0, OURS, "silu"},
    {"f32 of bf16", BS_BF16, BS_BF16, BS_F32, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS,
     "multiplies no"},
    {"two types", BS_F16, BS_BF16, BS_BF16, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "multiplies no"},
    {"in f64", BF, 0, 0, 8, 16, 16, 0, BS_ACC_F64, 0, PC_DENSE, 90, 0, OURS, "in f32"},
    {"token by token", BF, 0, 0, 8, 16, 16, 0, 0, BS_QUERY_TOKENWISE, PC_DENSE, 90, 0, OURS,
     "token by token"},
    {"odd tokens", BF, 0, 0, 12, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "multiples of 8"},
    {"no tokens", BF, 0, 0, 0, 16, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "B = 0"},
    {"columns apart", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_SPREAD, 90, 0, OURS, "strides"},
    {"rows off 16 bytes", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_GAPS, 90, 0, OURS, "16 bytes"},
    {"odd outputs", BF, 0, 0, 8, 24, 16, 0, 0, 0, PC_DENSE, 90, 0, OURS, "multiples of 16"},
    {"odd columns", BF, 0, 0, 8, 16, 24, 0, 0, 0, PC_DENSE, 90, 0, OURS, "[16,24]"},
    {"half a group", BF, 0, 0, 8, 16, 18, 0, 0, 0, PC_DENSE, 90, 0, OURS, "multiples of 16"},
    {"no columns", BF, 0, 0, 8, 16, 0, 0, 0, 0, PC_DENSE, 90, 0, OURS, "[16,0]"},
    {"Turing", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 75, 0, NO(ARCH), "8.0, there is 7.5"},
    {"no device", BF, 0, 0, 8, 16, 16, 0, 0, 0, PC_DENSE, 0, 0, NO(ARCH), "8.0"},
    {"f32", BS_F32, BS_F32, BS_F32, 0, 0, 8, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, NO(DTYPE), "TF32"},
    {"f64", BS_F64, BS_F64, BS_F64, 0, 0, 8, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, NO(DTYPE), "compresses no"},
    {"i32", BS_I32, BS_I32, BS_I32, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, NO(DTYPE), "compresses no"},
    {"int8", BS_I8, BS_I8, BS_I32, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 80, 0, YES, ""},
    {"int8 to i64", BS_I8, BS_I8, BS_I64, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 80, 0, OURS, "multiplies no"},
    {"int8, 8 tokens", BS_I8, BS_I8, BS_I32, 0, 0, 8, 32, 32, 0, 0, 0, PC_DENSE, 80, 0, OURS,
     "multiples of 16"},
    {"int8, 16 outputs", BS_I8, BS_I8, BS_I32, 0, 0, 16, 16, 32, 0, 0, 0, PC_DENSE, 80, 0, OURS, "of 32"},
    {"int8, 48 columns", BS_I8, BS_I8, BS_I32, 0, 0, 16, 32, 48, 0, 0, 0, PC_DENSE, 80, 0, OURS, "of 32"},
    {"int8, relu", BS_I8, BS_I8, BS_I32, 0, 0, 16, 32, 32, BS_ACT_RELU, 0, 0, PC_DENSE, 80, 0, OURS,
     "integers"},
    {"int8, residual", BS_I8, BS_I8, BS_I32, 0, BS_I32, 16, 32, 32, 0, 0, 0, PC_DENSE, 80, 0, OURS,
     "integers"},
    {"int8, long sums", BS_I8, BS_I8, BS_I32, 0, 0, 16, 32, 262144, 0, 0, 0, PC_DENSE, 80, 0, OURS,
     "32 bits"},
    {"fp8", E4, BS_F32, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, YES, ""},
    {"fp8 on Ada", E4, BS_BF16, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 89, 0, YES, ""},
    {"fp8 on Ada by 0.7", E4, BS_BF16, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 89, 701, NO(ARCH),
     "9.0, there is 8.9"},
    {"fp8 on Hopper by 0.7", E4, BS_BF16, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 90, 701, YES, ""},
    {"fp8 on Ampere", E4, BS_BF16, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 80, 0, NO(ARCH), "8.9, there is 8.0"},
    {"two of fp8", BS_F8E5M2, BS_F8E4M3, BS_F32, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, OURS,
     "multiplies no"},
    {"fp8 to fp8", E4, BS_F8E4M3, 0, 0, 16, 32, 32, 0, 0, 0, PC_DENSE, 90, 0, OURS, "multiplies no"},
};

static bs_op_answer ask(pl *p, const bs_op_query *q) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  ck_assert_int_eq(cuda_splt_matmul24.supports(&p->state, q, &answer), BS_OK);
  return answer;
}

/* supports looks at the positions' sizes alone. */
static int32_t unread(void *ctx, int64_t row, int64_t rows, int64_t group, int64_t groups, unsigned char *out,
                      int64_t stride, bs_error *err) {
  (void)ctx, (void)row, (void)rows, (void)group, (void)groups, (void)out, (void)stride;
  return bs_fail(err, BS_INTERNAL, "TEST", "supports reads positions");
}

START_TEST(selections) {
  const selection *s = &table[_i];
  pl p;
  pl_tensor x, y, bias, residual;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  p.state.splt->capability = s->capability;
  if (s->version != 0) p.state.splt->version = s->version;
  pc_lay(&x, s->x, s->B, s->K, s->lay, PL_FIRST);
  pc_lay(&y, s->y, s->B, s->N, PC_DENSE, PL_FIRST);
  pl_make(&bias, s->bias != 0 ? s->bias : BS_F32, 1, &s->N, NULL, PL_FIRST);
  pl_matrix(&residual, s->residual != 0 ? s->residual : BS_F32, s->B, s->N, s->N, 1, PL_FIRST);
  const bs_tensor_desc *args[4] = {&x.d, s->bias != 0 ? &bias.d : NULL, s->residual != 0 ? &residual.d : NULL,
                                   &y.d};
  const bs_kept kept = {.struct_size = sizeof kept, .rows = s->N, .cols = s->K, .read = unread};
  bs_op_query q = fx_query("matmul24", args, 4);
  q.weight_dtype = s->w;
  q.activation = s->activation;
  q.accumulate = s->accumulate;
  q.flags = s->flags;
  q.kept = &kept;
  const bs_op_answer answer = ask(&p, &q);
  ck_assert_msg(answer.level == s->level && answer.reason == s->reason, "%s: level %u, reason %u: %s",
                s->what, answer.level, answer.reason, answer.text);
  ck_assert_msg(answer.text[0] != '\0' && strstr(answer.text, s->text) != NULL, "%s: %s", s->what,
                answer.text);
  ck_assert_str_eq(answer.algo, s->level == BS_LEVEL_NATIVE ? "cusparselt"
                                : s->level == BS_LEVEL_NO   ? answer.algo
                                                            : "tiles");
  pl_free(&x);
  pl_free(&y);
  pl_free(&bias);
  pl_free(&residual);
  splt_close(&p);
}
END_TEST

START_TEST(without_a_library) {
  static const struct {
    const char *wanted, *setup, *text;
    uint32_t reason;
  } cases[] = {
      {"/nowhere/libcusparseLt.so.0", "plain=1", "not available", BS_REASON_LIB_VERSION},
      {"off", "plain=1", "switched off", BS_REASON_DISABLED},
      {"libm.so.6", "plain=1", "has no cusparseLtInit", BS_REASON_LIB_VERSION},
      {SPLT_STANDIN, "plain=1;version=0.6.3", "0.6.3 is not used", BS_REASON_LIB_VERSION},
      {SPLT_STANDIN, "plain=1;version=1.0.0", "1.0.0 is not used", BS_REASON_LIB_VERSION},
      {SPLT_STANDIN, "plain=1;plan=cusparseLtGetProperty:2=7", "its version", BS_REASON_LIB_VERSION}};
  pl p;
  pc c;
  uint64_t seed = 29;
  splt_open(&p, cases[_i].setup, cases[_i].wanted, 1);
  pc_shape s = shape_of(&served[0], 1, 1, 1);
  s.impl = NULL; /* our own tiles pack, and serve */
  pc_open(&c, &p, &s, &seed);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  const bs_op_query q = query_of(&c, args);
  const bs_op_answer answer = ask(&p, &q);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, cases[_i].reason);
  ck_assert_msg(strstr(answer.text, cases[_i].text) != NULL, "%s", answer.text);
  ck_assert_uint_eq(made(pc_forward, &c), 0);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* ---- choices ---------------------------------------------------------------------------------- */

enum { EVENTS = 32 }; /* each is known by where it was made */
static struct {
  CUevent event;
  double at;
} stamps[EVENTS];

/* Events tell the stand-in's clock. */
static CUresult stamp(CUevent event, CUstream stream) {
  (void)stream;
  for (int i = 0; i < EVENTS; i++)
    if (stamps[i].event == event || stamps[i].event == NULL) {
      stamps[i].event = event;
      stamps[i].at = told->clock;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_HANDLE;
}
static CUresult elapsed(float *out_ms, CUevent start, CUevent stop) {
  double at[2] = {-1.0, -1.0};
  for (int i = 0; i < EVENTS; i++) {
    if (stamps[i].event == start) at[0] = stamps[i].at;
    if (stamps[i].event == stop) at[1] = stamps[i].at;
  }
  *out_ms = (float)(at[1] - at[0]);
  return at[0] < 0.0 || at[1] < 0.0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static void with_a_clock(pl *p) {
  p->state.driver.call.event_record = stamp;
  p->state.driver.call.event_elapsed = elapsed;
}

/* The algorithm that a plan of c's shape runs; below 0: what its prepare failed with. */
static int64_t algorithm(pl *p, pc *c, uint32_t flags, uint64_t limit) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  bs_op_query q = query_of(c, args);
  void *plan = NULL;
  bs_tensor *run[4] = {&c->x.t, NULL, NULL, &c->y[0].t};
  q.flags |= flags;
  q.workspace_limit = limit;
  const int32_t rc = cuda_splt_matmul24.prepare(&p->state, &p->exec, &q, c->packed[0], &plan, &err);
  if (rc != BS_OK) return -rc;
  ck_assert_int_eq(cuda_splt_matmul24.run(plan, run, 4, NULL, &err), BS_OK);
  cuda_splt_matmul24.plan_free(plan);
  return told->last_algorithm;
}

START_TEST(the_fastest_is_kept) {
  pl p;
  pc c;
  uint64_t seed = 31;
  splt_open(&p, "plain=1;algorithms=4;workspace=4096;cost=3:2:0.5:2", SPLT_STANDIN, 1);
  with_a_clock(&p);
  const pc_shape s = shape_of(&served[0], 2, 2, 3);
  pc_open(&c, &p, &s, &seed);
  const uint64_t hits = p.state.splt->hits;
  ck_assert_int_eq(algorithm(&p, &c, 0, 0), 2);
  ck_assert_uint_eq(told->last_workspace, 4096);
  const uint64_t products = told->products, plans = told->plans;
  ck_assert_int_eq(algorithm(&p, &c, 0, 0), 2);
  ck_assert_uint_eq(told->products - products, 1); /* nothing was timed again */
  ck_assert_uint_eq(told->plans - plans, 1);
  ck_assert_uint_eq(p.state.splt->hits - hits, 1);
  /* No clock decides for who asks for equal bits, and what needs a workspace is not taken without one. */
  ck_assert_int_eq(algorithm(&p, &c, BS_QUERY_DETERMINISTIC, 0), 0);
  ck_assert_int_eq(algorithm(&p, &c, 0, 100), 0);
  ck_assert_uint_eq(told->last_workspace, 0);
  p.state.splt->tune = 0;
  p.device.multiprocessors = 114; /* another kind of device: its own choice */
  ck_assert_int_eq(algorithm(&p, &c, 0, 0), 0);
  ck_assert_uint_eq(p.state.splt->hits - hits, 1);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

START_TEST(a_workspace_beyond_the_limit) {
  pl p;
  pc c;
  uint64_t seed = 37;
  splt_open(&p, "plain=1;first=8192", SPLT_STANDIN, 0);
  const pc_shape s = shape_of(&served[0], 1, 1, 1);
  pc_open(&c, &p, &s, &seed);
  ck_assert_int_eq(algorithm(&p, &c, 0, 8191), -BS_UNSUPPORTED);
  ck_assert_int_eq(algorithm(&p, &c, 0, 8192), 0);
  ck_assert_uint_eq(told->last_workspace, 8192);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* ---- failures --------------------------------------------------------------------------------- */

static int32_t whole_life(pl *p, pc *c, bs_error *err) {
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  bs_op_query q = query_of(c, args);
  const bs_source source = fx_source(&c->w);
  uint64_t bytes = 0;
  void *plan = NULL, *packed = NULL;
  bs_tensor *run[4] = {&c->x.t, NULL, NULL, &c->y[0].t};
  q.activation = BS_ACT_RELU;
  int32_t rc = cuda_splt_matmul24.pack(&p->state, &p->exec, &q, &source, &packed, &bytes, err);
  if (rc != BS_OK) return rc;
  rc = cuda_splt_matmul24.prepare(&p->state, &p->exec, &q, packed, &plan, err);
  if (rc == BS_OK) {
    rc = cuda_splt_matmul24.run(plan, run, 4, NULL, err);
    cuda_splt_matmul24.plan_free(plan);
  }
  cuda_splt_matmul24.packed_free(packed);
  return rc;
}

static const struct {
  const char *function;
  int calls;
} failing[] = {{"cusparseLtInit", 1},
               {"cusparseLtStructuredDescriptorInit", 2},
               {"cusparseLtDenseDescriptorInit", 2},
               {"cusparseLtSpMMACompressedSize2", 1},
               {"cusparseLtSpMMACompress2", 1},
               {"cusparseLtMatmulDescriptorInit", 1},
               {"cusparseLtMatmulDescSetAttribute", 1},
               {"cusparseLtMatmulAlgSelectionInit", 1},
               {"cusparseLtMatmulAlgGetAttribute", 1},
               {"cusparseLtMatmulAlgSetAttribute", 2},
               {"cusparseLtMatmulPlanInit", 1},
               {"cusparseLtMatmulGetWorkspace", 1},
               {"cusparseLtMatmul", 1}};

static char noted[256];
static void note(void *ctx, const char *text) {
  (void)ctx;
  snprintf(noted, sizeof noted, "%s", text);
}

START_TEST(every_call_fails) {
  static const struct {
    int status;
    int32_t code; /* BS_OK: our own tiles serve, and the record says why */
  } statuses[] = {{SPLT_NOT_INITIALIZED, BS_OK},
                  {SPLT_ALLOC_FAILED, BS_NO_MEMORY},
                  {SPLT_INVALID_VALUE, BS_OK},
                  {SPLT_ARCH_MISMATCH, BS_OK},
                  {SPLT_EXECUTION_FAILED, BS_RANK_FAILED},
                  {SPLT_INTERNAL_ERROR, BS_OK},
                  {SPLT_MATRIX_TYPE_NOT_SUPPORTED, BS_OK},
                  {SPLT_NOT_SUPPORTED, BS_OK},
                  {SPLT_INSUFFICIENT_RESOURCES, BS_OK},
                  {77, BS_RANK_FAILED}};
  pl p;
  pc c;
  uint64_t seed = 41;
  splt_open(&p, "plain=1", SPLT_STANDIN, 0);
  const pc_shape s = shape_of(&served[0], 1, 2, 2);
  pc_open(&c, &p, &s, &seed);
  cuda_splt_matmul24.packed_free(c.packed[0]);
  c.packed[0] = NULL;
  p.exec.note = note;
  /* Our tiles' bits: where the library gives none. */
  unsigned char *by_tiles;
  const size_t y_bytes = c.y[0].t.bytes;
  bs_error none = BS_ERROR_INIT;
  again("plain=1;plan=cusparseLtInit:1=10");
  ck_assert_int_eq(whole_life(&p, &c, &none), BS_OK);
  by_tiles = malloc(y_bytes);
  ck_assert_ptr_nonnull(by_tiles);
  memcpy(by_tiles, c.y[0].t.data, y_bytes);
  for (int call = 1; call <= failing[_i].calls; call++)
    for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++) {
      char setup[160];
      bs_error err = BS_ERROR_INIT;
      cuda_splt_close(&p.device);
      p.state.splt->n_choices = 0;
      const int64_t live = p.f.live;
      snprintf(setup, sizeof setup, "plain=1;plan=%s:%d=%d", failing[_i].function, call, statuses[k].status);
      again(setup);
      noted[0] = '\0';
      const int32_t rc = whole_life(&p, &c, &err);
      const char *says = rc == BS_OK ? noted : err.message;
      ck_assert_msg(rc == statuses[k].code, "%s: %d: %s %s", setup, rc, err.id, err.message);
      ck_assert_msg(strstr(says, failing[_i].function) != NULL, "%s: %s", setup, says);
      if (rc == BS_OK) {
        ck_assert_msg(strncmp(noted, "matmul24@cuda/tiles (", 21) == 0, "%s", noted);
        ck_assert_msg(memcmp(c.y[0].t.data, by_tiles, y_bytes) == 0, "%s: other than our tiles' bits", setup);
      } else {
        ck_assert_msg(strncmp(err.id, "BS-CUDA-SPLT", 12) == 0 && err.hint[0] != '\0', "%s: %s", err.id,
                      err.hint);
        ck_assert_int_eq(err.native_code, statuses[k].status);
      }
      ck_assert_int_eq(told->living, 0);
      ck_assert_msg(whole_life(&p, &c, &err) == BS_OK, "after %s: %s", setup, err.message);
      cuda_splt_close(&p.device);
      ck_assert_msg(p.f.live == live, "%s leaves %lld", setup, (long long)(p.f.live - live));
      memset(c.y[0].t.data, 0x5A, y_bytes);
    }
  free(by_tiles);
  pc_close(&c);
  splt_close(&p);
}
END_TEST

/* No memory, of the host or the device, at any allocation; of timing too, which is done without then. */
START_TEST(memory_fails) {
  pl p;
  pc c;
  uint64_t seed = 43;
  splt_open(&p, "plain=1;cost=3:1;first=64", SPLT_STANDIN, 1);
  with_a_clock(&p);
  const pc_shape s = shape_of(&served[0], 1, 2, 2);
  pc_open(&c, &p, &s, &seed);
  for (int64_t n = 1;; n++) {
    bs_error err = BS_ERROR_INIT;
    cuda_splt_close(&p.device);
    const int64_t live = p.f.live;
    p.state.splt->n_choices = 0;
    p.f.fail_alloc_at = n;
    const int32_t rc = whole_life(&p, &c, &err);
    const int left = p.f.fail_alloc_at != 0;
    p.f.fail_alloc_at = 0;
    ck_assert_msg(rc == BS_OK || rc == BS_NO_MEMORY, "%d: %s", rc, err.message);
    ck_assert_int_eq(told->living, 0);
    cuda_splt_close(&p.device);
    ck_assert_int_eq(p.f.live, live);
    if (rc == BS_OK && left && n > 12) break;
    ck_assert_int_lt(n, 60);
  }
  pc_close(&c);
  splt_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_type, SERVED},
                             {runs_of_columns, SERVED},
                             {fewer_rows},
                             {pointers_off_their_alignment},
                             {any_plan_over_its_weight},
                             {a_changed_weight_is_compressed_anew},
                             {zeros_among_the_kept, SERVED},
                             {negative_zeros, SERVED},
                             {zeros_that_keep_their_places, 2},
                             {selections, TEST_COUNT(table)},
                             {without_a_library, 6},
                             {the_fastest_is_kept},
                             {a_workspace_beyond_the_limit},
                             {every_call_fails, TEST_COUNT(failing)},
                             {memory_fails},
                             {0}};
  return run_tests("cusparselt", tests, (test_setup){0});
}
