/* SPDX-License-Identifier: MIT
 * test_cublaslt.c - products by cuBLASLt over its stand-in, beside ref: every type that it multiplies, odd
 * shapes, strides, partitions and alignment; what is served and what is refused and why; which algorithm is
 * taken and when the heuristics are asked; a library that is missing, too old, or fails at any call. */
#include <dlfcn.h>
#include <stdlib.h>

#include "plugins/cuda/cublaslt/product.h"
#include "scaled_case.h"
#include "tests/run_tests.h"
#include "tools/standin/lt/control.h"

/* ---- the plugin's state over the stand-in ----------------------------------------------------- */

static const lt_told *told;

static struct {
  CUevent event;
  double at;
} stamps[4];

/* Events tell the stand-in's clock. */
static CUresult stamp(CUevent event, CUstream stream) {
  (void)stream;
  for (int i = 0; i < 4; i++)
    if (stamps[i].event == event || stamps[i].event == NULL) {
      stamps[i].event = event;
      stamps[i].at = told->clock;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_HANDLE;
}
static CUresult elapsed(float *out_ms, CUevent start, CUevent stop) {
  double at[2] = {-1.0, -1.0};
  for (int i = 0; i < 4; i++) {
    if (stamps[i].event == start) at[0] = stamps[i].at;
    if (stamps[i].event == stop) at[1] = stamps[i].at;
  }
  *out_ms = (float)(at[1] - at[0]);
  return at[0] < 0.0 || at[1] < 0.0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static void ask_standin(void) {
  void *library = dlopen(LT_STANDIN, RTLD_NOW), *at = NULL;
  ck_assert_msg(library != NULL, "%s", dlerror());
  lt_told_fn tell;
  at = dlsym(library, LT_TOLD_SYMBOL);
  memcpy(&tell, &at, sizeof tell);
  told = tell();
}

static void again(const char *setup) {
  void *library = dlopen(LT_STANDIN, RTLD_NOW), *at = dlsym(library, LT_AGAIN_SYMBOL);
  lt_again_fn call;
  memcpy(&call, &at, sizeof call);
  setenv("BS_CUBLASLT_STANDIN", setup, 1);
  call();
}

static int driver_version; /* 0: unknown */

static void lt_open(pl *p, const char *setup, const char *wanted, int tune) {
  bs_error err = BS_ERROR_INIT;
  ask_standin();
  again(setup);
  pl_open(p);
  p->state.driver.tried = 1; /* there is none to ask */
  p->state.driver.why.code = BS_UNAVAILABLE;
  p->state.driver.version = driver_version;
  p->state.driver.call.event_record = stamp;
  p->state.driver.call.event_elapsed = elapsed;
  p->device.capability = 90;
  p->device.multiprocessors = 132;
  p->device.memory = (uint64_t)1 << 30;
  ck_assert_int_eq(cuda_lt_new(&p->state, wanted, tune, &err), BS_OK);
  (void)cuda_lt_open(&p->state);
  p->state.lt->capability = 90;
}

static void lt_close(pl *p) {
  cuda_lt_close(&p->device);
  cuda_lt_delete(&p->state);
  ck_assert_int_eq(told->handles, 0);
  pl_close(p);
}

static bs_op_answer ask(pl *p, const bs_op_impl *impl, const bs_op_query *q) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  ck_assert_int_eq(impl->supports(&p->state, q, &answer), BS_OK);
  return answer;
}

static const bs_op_impl *by_lt(const char *op) {
  static const bs_op_impl *const all[] = {&cuda_lt_matmul, &cuda_lt_matmul_dx, &cuda_lt_matmul_dw,
                                          &cuda_lt_matmul_update};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(all[i]->op, op) == 0) return all[i];
  ck_abort_msg("no %s", op);
  return NULL;
}

/* Products that the stand-in made while `what` ran. */
static uint64_t made(void (*what)(pc *c), pc *c) {
  const uint64_t before = told->products;
  what(c);
  return told->products - before;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

typedef struct types {
  uint32_t x, w, y, bias;
  int bytes; /* 4 or 16: what sizes are multiples of */
} types;
static const types served[] = {
    {BS_F64, BS_F64, BS_F64, BS_F64, 0},
    {BS_F32, BS_F32, BS_F32, BS_F32, 0},
    {BS_F16, BS_F16, BS_F16, BS_F16, 0},
    {BS_F16, BS_F16, BS_F32, BS_F32, 0},
    {BS_BF16, BS_BF16, BS_BF16, BS_BF16, 0},
    {BS_BF16, BS_BF16, BS_F32, BS_F32, 0},
    {BS_I8, BS_I8, BS_I32, 0, 4},
    {BS_F8E4M3, BS_F8E4M3, BS_F32, BS_BF16, 16},
    {BS_F8E4M3, BS_F8E5M2, BS_BF16, BS_BF16, 16},
    {BS_F8E5M2, BS_F8E4M3, BS_F16, BS_F16, 16},
};
enum { SERVED = sizeof served / sizeof served[0] };

static pc_shape shape_of(const types *t, int64_t B, int64_t N, int64_t K) {
  const int64_t unit = t->bytes > 0 ? t->bytes : 1;
  return (pc_shape){.x = t->x,
                    .w = t->w,
                    .y = t->y,
                    .bias = t->bias,
                    .grad = t->x,
                    .sums = t->y == BS_F64   ? BS_F64
                            : t->y == BS_I32 ? BS_I32
                                             : BS_F32,
                    .B = B,
                    .N = (N + unit - 1) / unit * unit,
                    .K = (K + unit - 1) / unit * unit,
                    .impl = by_lt};
}

/* An activation is none of cuBLASLt's: its relu makes 0 of NaN. */
static void not_served(pl *p, pc *c) {
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  bs_op_query q = pc_query(c, "matmul", args, 4);
  q.activation = BS_ACT_RELU;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  ck_assert_int_eq(cuda_lt_matmul.supports(&p->state, &q, &answer), BS_OK);
  ck_assert_msg(answer.level == BS_LEVEL_NO, "%s", pc_text(c, "by cuBLASLt"));
}

START_TEST(every_type) {
  const types *t = &served[_i];
  static const int64_t sizes[][3] = {{1, 1, 1}, {3, 70, 21}, {65, 17, 33}, {16, 64, 48}};
  pl p;
  uint64_t seed = 3 + (uint64_t)_i;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int i = 0; i < 4; i++)
    for (int epilogue = 0; epilogue < 5; epilogue++) {
      pc_shape s = shape_of(t, sizes[i][0], sizes[i][1], sizes[i][2]);
      s.epilogue = t->x == BS_I8                    ? 0
                   : epilogue == 1 || epilogue == 4 ? PC_BIAS
                   : epilogue == 2                  ? PC_RESIDUAL
                                                    : 0;
      s.activation = t->x == BS_I8 || epilogue < 3 ? BS_ACT_NONE : BS_ACT_RELU;
      pc c;
      pc_open(&c, &p, &s, &seed);
      if (t->x == BS_F64 && s.activation != BS_ACT_NONE) { /* no epilogue, and no sums in f32 */
        not_served(&p, &c);
        pc_close(&c);
        continue;
      }
      ck_assert_msg(made(pc_forward, &c) == 1, "%s", pc_text(&c, "not by cuBLASLt"));
      if (epilogue == 0 && t->bytes == 0) {
        ck_assert_uint_eq(made(pc_dx, &c), 1);
        ck_assert_uint_ge(made(pc_dw, &c), 1);
      } else if (epilogue == 0) {
        ck_assert_uint_eq(made(pc_dx, &c), 0); /* bytes: by our own tiles, and dw is refused */
      }
      pc_close(&c);
    }
  lt_close(&p);
}
END_TEST

/* What no epilogue of cuBLASLt does: f32 sums by it, and the rest by a kernel of ours. Biases as methods have
 * them, activations, a residual behind one, outputs of a byte; rows with gaps, and few of them. */
static const struct {
  uint32_t x, w, y, bias, activation;
  int epilogue;
} finishes[] = {
    {BS_BF16, BS_BF16, BS_BF16, BS_F32, BS_ACT_NONE, PC_BIAS},
    {BS_BF16, BS_BF16, BS_BF16, BS_F32, BS_ACT_GELU, 1},
    {BS_BF16, BS_BF16, BS_F32, BS_BF16, BS_ACT_SILU, 1},
    {BS_F16, BS_F16, BS_F16, BS_BF16, BS_ACT_RELU, 1},
    {BS_F32, BS_F32, BS_F32, BS_F32, BS_ACT_GELU, 0},
    {BS_F32, BS_F32, BS_BF16, BS_F32, BS_ACT_NONE, 0},
    {BS_F8E4M3, BS_F8E4M3, BS_BF16, BS_F32, BS_ACT_NONE, PC_BIAS},
    {BS_F8E4M3, BS_F8E5M2, BS_F8E4M3, BS_F32, BS_ACT_SILU, 1},
    {BS_BF16, BS_BF16, BS_BF16, BS_F32, BS_ACT_GELU_TANH, 1},
};
START_TEST(sums_are_finished) {
  static const int64_t sizes[][3] = {{1, 16, 16}, {3, 70, 21}, {65, 17, 33}, {16, 64, 48}};
  static const int lays[] = {PC_DENSE, PC_GAPS, PC_WIDE};
  const int bytes = BS_DTYPE_BYTES(finishes[_i].x) == 1 ? 16 : 0;
  const types t = {finishes[_i].x, finishes[_i].w, finishes[_i].y, finishes[_i].bias, bytes};
  pl p;
  uint64_t seed = 23 + (uint64_t)_i;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int i = 0; i < 4; i++)
    for (int lay = 0; lay < (bytes ? 1 : 3); lay++) {
      pc_shape s = shape_of(&t, sizes[i][0], sizes[i][1], sizes[i][2]);
      s.lay = lays[lay];
      s.epilogue = finishes[_i].epilogue;
      s.activation = finishes[_i].activation;
      pc c;
      pc_open(&c, &p, &s, &seed);
      const int64_t before = p.launches;
      ck_assert_msg(made(pc_forward, &c) == 1, "%s", pc_text(&c, "not by cuBLASLt"));
      ck_assert_int_eq(p.launches - before, 1);
      pc_close(&c);
    }
  lt_close(&p);
}
END_TEST

/* fp8 with one scale a row: the library's sums, scaled behind them by one launch of ours. */
START_TEST(scales_are_put_behind) {
  static const uint32_t f8[][2] = {{BS_F8E4M3, BS_F8E4M3}, {BS_F8E4M3, BS_F8E5M2}, {BS_F8E5M2, BS_F8E4M3}};
  static const uint32_t outs[] = {BS_F32, BS_BF16, BS_F64, BS_F8E4M3, BS_F16};
  static const int64_t sizes[][3] = {{1, 16, 16}, {5, 32, 48}, {70, 64, 160}};
  pl p;
  uint64_t seed = 31;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int i = 0; i < 24; i++) {
    const int64_t *size = sizes[i % 3];
    const int in_out = i % 5 == 0;
    const sc_shape s = {.B = size[0],
                        .N = size[1],
                        .K = size[2],
                        .group = size[2] + i % 2,
                        .x = f8[i / 3 % 3][0],
                        .w = f8[i / 3 % 3][1],
                        .out = outs[i % 5],
                        .activation = (uint32_t)i % 4,
                        .with = in_out ? SC_BIAS | SC_IN_PLACE : i / 2 % 4};
    sc c;
    sc_open(&c, &s, &seed);
    const uint64_t products = told->products;
    const int64_t launches = p.launches;
    pl_run_cuda(&p, &cuda_lt_scaled_matmul, &c.query[0], NULL, c.args[0]);
    pl_run_ref(&p, &c.query[1], NULL, c.args[1]);
    ck_assert_uint_eq(told->products - products, 1);
    ck_assert_int_eq(p.launches - launches, 1);
    sc_near(&c, "scaled_matmul by cuBLASLt");
    sc_close(&c);
  }
  lt_close(&p);
}
END_TEST

START_TEST(scaled_fewer_tokens) {
  pl p;
  uint64_t seed = 41;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int64_t fewer = 0; fewer <= 9; fewer += 3) {
    const sc_shape s = {.B = 9,
                        .N = 32,
                        .K = 48,
                        .group = 48,
                        .x = BS_F8E4M3,
                        .w = BS_F8E4M3,
                        .out = BS_F32,
                        .with = SC_BIAS | SC_BASE};
    sc c;
    sc_open(&c, &s, &seed);
    const uint64_t products = told->products;
    sc_fewer(&p, &cuda_lt_scaled_matmul, &c, fewer, 0);
    ck_assert_uint_eq(told->products - products, 1 + (fewer > 0));
    sc_close(&c);
  }
  lt_close(&p);
}
END_TEST

static const struct {
  const char *what;
  int64_t N, K, group;
  uint64_t limit;
  uint32_t flags, accumulate;
  int lay;
  int32_t capability;
  const char *why; /* our own kernel serves; NULL: cuBLASLt */
} scaled_table[] = {
    {"one scale a row", 32, 48, 48, 0, 0, 0, PC_DENSE, 90, NULL},
    {"blocks", 32, 256, 128, 0, 0, 0, PC_DENSE, 90, "one scale a row only"},
    {"8 outputs", 24, 48, 48, 0, 0, 0, PC_DENSE, 90, "in 16s"},
    {"8 columns", 32, 40, 40, 0, 0, 0, PC_DENSE, 90, "in 16s"},
    {"no columns", 32, 0, 16, 0, 0, 0, PC_DENSE, 90, "one scale a row only"},
    {"columns apart", 32, 48, 48, 0, 0, 0, PC_SPREAD, 90, "rows must be dense"},
    {"token by token", 32, 48, 48, 0, BS_QUERY_TOKENWISE, 0, PC_DENSE, 90, "not token by token"},
    {"no room for sums", 32, 48, 48, 64, 0, 0, PC_DENSE, 90, "the limit is 64"},
    {"Ampere", 32, 48, 48, 0, 0, 0, PC_DENSE, 80, "8.9"},
    {"sums in f32", 32, 48, 48, 0, 0, BS_ACC_F32, PC_DENSE, 90, "fewer bits"},
};
START_TEST(scaled_selections) {
  pl p;
  sc c;
  uint64_t seed = 37;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  p.state.lt->capability = scaled_table[_i].capability;
  const sc_shape s = {.B = 6,
                      .N = scaled_table[_i].N,
                      .K = scaled_table[_i].K,
                      .group = scaled_table[_i].group,
                      .x = BS_F8E4M3,
                      .w = BS_F8E4M3,
                      .out = BS_F32,
                      .lay = scaled_table[_i].lay};
  sc_open(&c, &s, &seed);
  c.query[0].flags = scaled_table[_i].flags;
  c.query[0].workspace_limit = scaled_table[_i].limit;
  c.query[0].accumulate = scaled_table[_i].accumulate;
  const bs_op_answer answer = ask(&p, &cuda_lt_scaled_matmul, &c.query[0]);
  const int own = scaled_table[_i].why != NULL;
  ck_assert_msg(answer.level == (own ? (uint32_t)BS_LEVEL_EMULATED : (uint32_t)BS_LEVEL_NATIVE) &&
                    strstr(answer.text, own ? scaled_table[_i].why : "behind them") != NULL,
                "%s: level %u: %s", scaled_table[_i].what, answer.level, answer.text);
  const uint64_t products = told->products;
  pl_run_cuda(&p, &cuda_lt_scaled_matmul, &c.query[0], NULL, c.args[0]);
  pl_run_ref(&p, &c.query[1], NULL, c.args[1]);
  ck_assert_uint_eq(told->products - products, !own);
  sc_near(&c, scaled_table[_i].what);
  sc_close(&c);
  lt_close(&p);
}
END_TEST

/* Whole numbers, so that both ways of rounding agree. */
static void whole(pl_tensor *t, uint64_t *seed) {
  for (int64_t r = 0; r < t->t.dims[0]; r++)
    for (int64_t c = 0; c < t->t.dims[1]; c++) pl_set(t, r, c, (double)(fx_below(seed, 9) - 4));
}

START_TEST(weights_are_updated) {
  const types *t = &served[_i];
  pl p;
  uint64_t seed = 5;
  lt_open(&p, "plain=1", LT_STANDIN, 1);
  pc_shape s = shape_of(t, 7, 33, 20);
  s.sums = BS_F64;
  for (int full = 0; full < 3; full++) {
    s.full = full > 0;
    s.part = full == 0 ? PC_ALL : full == 1 ? PC_RUN : PC_LIST;
    pc c;
    pc_open(&c, &p, &s, &seed);
    whole(&c.x, &seed);
    whole(&c.dy, &seed);
    pl_set(&c.alpha, 0, 0, -0.5);
    ck_assert_uint_ge(made(pc_update, &c), t->bytes == 0 ? 1 : 0);
    if (t->bytes == 0) ck_assert_uint_eq(told->last_adds, 1);
    pc_close(&c);
  }
  lt_close(&p);
}
END_TEST

/* However rows lie and wherever they begin, and every kind of partition. */
START_TEST(strides_and_partitions) {
  static const int lays[] = {PC_DENSE, PC_GAPS, PC_WIDE};
  static const uint32_t of[3] = {1, 4, 5}; /* f32; bf16 to bf16, to f32 */
  pl p;
  uint64_t seed = 7;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int lay = 0; lay < 3; lay++)
    for (int part = PC_ALL; part <= PC_LIST; part++)
      for (int full = 0; full < 2; full++) {
        pc_shape s = shape_of(&served[of[(lay + part) % 3]], 5, 12, 50);
        s.lay = lays[lay];
        s.where = PL_FIRST;
        s.part = part;
        s.full = full;
        pc c;
        pc_open(&c, &p, &s, &seed);
        ck_assert_msg(made(pc_forward, &c) == 1, "%s", pc_text(&c, "not by cuBLASLt"));
        ck_assert_uint_eq(made(pc_dx, &c), 1);
        ck_assert_uint_eq(made(pc_dw, &c), 1);
        pc_close(&c);
      }
  lt_close(&p);
}
END_TEST

/* Rows of 16 bytes whose tensor begins an element late: the algorithm does not take them, our own tiles do.
 */
START_TEST(pointers_off_their_alignment) {
  pl p;
  uint64_t seed = 11;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  for (int i = 1; i < SERVED; i++) {
    pc_shape s = shape_of(&served[i], 6, 32, 64);
    s.where = PL_ODD;
    pc c;
    pc_open(&c, &p, &s, &seed);
    ck_assert_msg(made(pc_forward, &c) == 0, "%s", pc_text(&c, "off its alignment"));
    ck_assert_uint_eq(made(pc_dx, &c), 0);
    pc_close(&c);
  }
  lt_close(&p);
}
END_TEST

/* ---- fewer rows than prepared ----------------------------------------------------------------- */

static void run_rows(pl *p, pc *c, int64_t rows, uint64_t want) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  const bs_op_query q = pc_query(c, "matmul", args, 4);
  void *plan = NULL;
  ck_assert_int_eq(cuda_lt_matmul.prepare(&p->state, &p->exec, &q, c->packed[0], &plan, &err), BS_OK);
  bs_tensor x = c->x.t, y = c->y[0].t, want_y = c->y[1].t;
  bs_tensor *ours[4] = {&x, NULL, NULL, &y}, *refs[4] = {&x, NULL, NULL, &want_y};
  x.dims[0] = y.dims[0] = want_y.dims[0] = rows;
  const uint64_t before = told->products;
  ck_assert_msg(cuda_lt_matmul.run(plan, ours, 4, NULL, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(told->products - before, want);
  pl_run_ref(p, &q, c->packed[1], refs);
  pl_same_bits(&c->y[0], &c->y[1], "fewer rows");
  cuda_lt_matmul.plan_free(plan);
}

START_TEST(fewer_rows) {
  static const types finished = {BS_F32, BS_F32, BS_BF16, 0, 0};
  pl p;
  pc c;
  uint64_t seed = 13;
  lt_open(&p, "plain=1;least=4", LT_STANDIN, 0);
  const pc_shape s = shape_of(_i == 0 ? &served[4] : &finished, 9, 24, 40);
  pc_open(&c, &p, &s, &seed);
  run_rows(&p, &c, 9, 1);
  run_rows(&p, &c, 5, 1);
  run_rows(&p, &c, 3, 0); /* the stand-in refuses: our own tiles */
  run_rows(&p, &c, 0, 0);
  pc_close(&c);
  lt_close(&p);
}
END_TEST

/* dW of no tokens is zeros, not what lay there. */
START_TEST(no_tokens) {
  pl p;
  pc c;
  uint64_t seed = 17;
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  const pc_shape s = shape_of(&served[1], 4, 6, 10);
  pc_open(&c, &p, &s, &seed);
  const bs_tensor_desc *args[3] = {&c.x.d, &c.dy.d, &c.dw[0].d};
  const bs_op_query q = pc_query(&c, "matmul_dw", args, 3);
  ck_assert_int_eq(cuda_lt_matmul_dw.prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_OK);
  bs_tensor *run[3] = {&c.x.t, &c.dy.t, &c.dw[0].t};
  c.x.t.dims[0] = c.dy.t.dims[0] = 0;
  ck_assert_int_eq(cuda_lt_matmul_dw.run(plan, run, 3, NULL, &err), BS_OK);
  for (int64_t r = 0; r < 6; r++)
    for (int64_t k = 0; k < 10; k++) ck_assert(pl_get(&c.dw[0], r, k) == 0.0);
  cuda_lt_matmul_dw.plan_free(plan);
  pc_close(&c);
  lt_close(&p);
}
END_TEST

/* ---- what is served --------------------------------------------------------------------------- */

typedef struct selection {
  const char *what;
  uint32_t x, w, y, bias, residual; /* 0: none */
  int64_t B, N, K;
  uint32_t activation, accumulate, flags;
  int lay;
  int32_t capability;
  uint32_t level, reason;
} selection;

#define NO(reason) BS_LEVEL_NO, BS_REASON_##reason
#define YES BS_LEVEL_NATIVE, BS_REASON_NONE
static const selection table[] = {
    {"bf16", BS_BF16, BS_BF16, BS_BF16, BS_BF16, BS_BF16, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, YES},
    {"f32 of bf16", BS_BF16, BS_BF16, BS_F32, BS_F32, BS_F32, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, YES},
    {"relu", BS_BF16, BS_BF16, BS_F32, BS_F32, 0, 3, 5, 7, BS_ACT_RELU, 0, 0, PC_DENSE, 90, YES},
    {"gelu", BS_BF16, BS_BF16, BS_F32, 0, 0, 3, 5, 7, BS_ACT_GELU, 0, 0, PC_DENSE, 90, YES},
    {"silu", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, BS_ACT_SILU, 0, 0, PC_DENSE, 90, YES},
    {"gelu_tanh", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, BS_ACT_GELU_TANH, 0, 0, PC_DENSE, 90, YES},
    {"relu, then residual", BS_F32, BS_F32, BS_F32, 0, BS_F32, 3, 5, 7, BS_ACT_RELU, 0, 0, PC_DENSE, 90, YES},
    {"bias of X's type", BS_BF16, BS_BF16, BS_F32, BS_BF16, 0, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, YES},
    {"residual of X's type", BS_BF16, BS_BF16, BS_F32, 0, BS_BF16, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, YES},
    {"f64 bias", BS_BF16, BS_BF16, BS_BF16, BS_F64, 0, 3, 5, 7, 0, BS_ACC_F32, 0, PC_DENSE, 90, NO(DTYPE)},
    {"gelu of f64", BS_F64, BS_F64, BS_F64, 0, 0, 3, 5, 7, BS_ACT_GELU, 0, 0, PC_DENSE, 90, NO(NOT_BUILT)},
    {"two types", BS_BF16, BS_F16, BS_F32, 0, 0, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, NO(DTYPE)},
    {"bf16 of f32", BS_F32, BS_F32, BS_BF16, 0, 0, 3, 5, 7, 0, 0, 0, PC_DENSE, 90, YES},
    {"f32 in f64", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, 0, BS_ACC_F64, 0, PC_DENSE, 90, NO(DTYPE)},
    {"f64 in f64", BS_F64, BS_F64, BS_F64, 0, 0, 3, 5, 7, 0, BS_ACC_F64, 0, PC_DENSE, 90, YES},
    {"token by token", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, 0, 0, BS_QUERY_TOKENWISE, PC_DENSE, 90,
     NO(DISABLED)},
    {"the same bits", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, 0, 0, BS_QUERY_DETERMINISTIC, PC_DENSE, 90, YES},
    {"columns apart", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, 0, 0, 0, PC_SPREAD, 90, NO(LAYOUT)},
    {"turned", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 7, 0, 0, 0, PC_TURNED, 90, NO(LAYOUT)},
    {"no tokens", BS_F32, BS_F32, BS_F32, 0, 0, 0, 5, 7, 0, 0, 0, PC_DENSE, 90, NO(SHAPE)},
    {"no columns", BS_F32, BS_F32, BS_F32, 0, 0, 3, 5, 0, 0, 0, 0, PC_DENSE, 90, NO(SHAPE)},
    {"int8", BS_I8, BS_I8, BS_I32, 0, 0, 3, 8, 12, 0, 0, 0, PC_DENSE, 90, YES},
    {"int8, odd outputs", BS_I8, BS_I8, BS_I32, 0, 0, 3, 7, 12, 0, 0, 0, PC_DENSE, 90, NO(ALIGNMENT)},
    {"int8, odd columns", BS_I8, BS_I8, BS_I32, 0, 0, 3, 8, 10, 0, 0, 0, PC_DENSE, 90, NO(ALIGNMENT)},
    {"int8, odd rows", BS_I8, BS_I8, BS_I32, 0, 0, 3, 8, 12, 0, 0, 0, PC_GAPS, 90, NO(ALIGNMENT)},
    {"int8, relu", BS_I8, BS_I8, BS_I32, 0, 0, 3, 8, 12, BS_ACT_RELU, 0, 0, PC_DENSE, 90, NO(NOT_BUILT)},
    {"int8, bias", BS_I8, BS_I8, BS_I32, BS_I32, 0, 3, 8, 12, 0, 0, 0, PC_DENSE, 90, NO(NOT_BUILT)},
    {"int8, long sums", BS_I8, BS_I8, BS_I32, 0, 0, 1, 4, 131072, 0, 0, 0, PC_DENSE, 90, NO(SHAPE)},
    {"int8 to i64", BS_I8, BS_I8, BS_I64, 0, 0, 3, 8, 12, 0, 0, 0, PC_DENSE, 90, NO(DTYPE)},
    {"fp8", BS_F8E4M3, BS_F8E4M3, BS_BF16, BS_BF16, BS_BF16, 3, 32, 48, 0, 0, 0, PC_DENSE, 90, YES},
    {"fp8 in f32", BS_F8E4M3, BS_F8E4M3, BS_F32, 0, 0, 3, 32, 48, 0, BS_ACC_F32, 0, PC_DENSE, 90, NO(DTYPE)},
    {"fp8 on Ada", BS_F8E4M3, BS_F8E5M2, BS_F32, BS_BF16, 0, 3, 32, 48, 0, 0, 0, PC_DENSE, 89, YES},
    {"fp8 on Ampere", BS_F8E4M3, BS_F8E4M3, BS_F32, 0, 0, 3, 32, 48, 0, 0, 0, PC_DENSE, 80, NO(ARCH)},
    {"bf16 on Turing", BS_BF16, BS_BF16, BS_F32, 0, 0, 3, 5, 7, 0, 0, 0, PC_DENSE, 75, NO(ARCH)},
    {"two of e5m2", BS_F8E5M2, BS_F8E5M2, BS_F32, 0, 0, 3, 32, 48, 0, 0, 0, PC_DENSE, 90, NO(DTYPE)},
    {"fp8 to fp8", BS_F8E4M3, BS_F8E4M3, BS_F8E4M3, 0, 0, 3, 32, 48, 0, 0, 0, PC_DENSE, 90, YES},
    {"fp8, 8 columns", BS_F8E4M3, BS_F8E4M3, BS_F32, 0, 0, 3, 32, 40, 0, 0, 0, PC_DENSE, 90, NO(ALIGNMENT)},
    {"fp8, 8 outputs", BS_F8E4M3, BS_F8E4M3, BS_F32, 0, 0, 3, 24, 48, 0, 0, 0, PC_DENSE, 90, NO(ALIGNMENT)},
    {"fp8, f32 bias", BS_F8E4M3, BS_F8E4M3, BS_F32, BS_F32, 0, 3, 32, 48, 0, 0, 0, PC_DENSE, 90, YES},
};

START_TEST(selections) {
  const selection *s = &table[_i];
  pl p;
  pl_tensor x, y, bias, residual;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  p.state.lt->capability = s->capability;
  pc_lay(&x, s->x, s->B, s->K, s->lay, PL_FIRST);
  pc_lay(&y, s->y, s->B, s->N, PC_DENSE, PL_FIRST);
  pl_make(&bias, s->bias != 0 ? s->bias : BS_F32, 1, &s->N, NULL, PL_FIRST);
  pl_matrix(&residual, s->residual != 0 ? s->residual : BS_F32, s->B, s->N, s->N, 1, PL_FIRST);
  const bs_tensor_desc *args[4] = {&x.d, s->bias != 0 ? &bias.d : NULL, s->residual != 0 ? &residual.d : NULL,
                                   &y.d};
  bs_op_query q = fx_query("matmul", args, 4);
  q.weight_dtype = s->w;
  q.activation = s->activation;
  q.accumulate = s->accumulate;
  q.flags = s->flags;
  const bs_op_answer answer = ask(&p, &cuda_lt_matmul, &q);
  ck_assert_msg(answer.level == s->level && answer.reason == s->reason, "%s: level %u, reason %u: %s",
                s->what, answer.level, answer.reason, answer.text);
  ck_assert_msg(answer.text[0] != '\0', "%s: no text", s->what);
  pl_free(&x);
  pl_free(&y);
  pl_free(&bias);
  pl_free(&residual);
  lt_close(&p);
}
END_TEST

/* A weight that it has packed can be trained, whatever the type: by our own tiles where it must, and said. */
START_TEST(siblings_serve_what_they_must) {
  pl p;
  pc c;
  uint64_t seed = 19;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  const pc_shape s = shape_of(&served[7], 6, 32, 64);
  pc_open(&c, &p, &s, &seed);
  const bs_tensor_desc *args[2] = {&c.dy.d, &c.dx[0].d};
  const bs_op_query q = pc_query(&c, "matmul_dx", args, 2);
  const bs_op_answer answer = ask(&p, &cuda_lt_matmul_dx, &q);
  ck_assert_uint_eq(answer.level, BS_LEVEL_EMULATED);
  ck_assert_str_eq(answer.algo, "tiles");
  ck_assert_ptr_nonnull(strstr(answer.text, "our own tiles"));
  pc_dx(&c);
  pc_close(&c);
  lt_close(&p);
}
END_TEST

START_TEST(without_a_library) {
  static const struct {
    const char *wanted, *setup, *text;
    uint32_t reason;
    int driver;
  } cases[] = {{"/nowhere/libcublasLt.so.13", "plain=1", "not available", BS_REASON_LIB_VERSION, 0},
               {"off", "plain=1", "switched off", BS_REASON_DISABLED, 0},
               {LT_STANDIN, "plain=1;version=110900", "110900", BS_REASON_LIB_VERSION, 0},
               {"auto", "plain=1", "for a driver of CUDA 11", BS_REASON_LIB_VERSION, 11080}};
  pl p;
  pl_tensor x, y;
  driver_version = cases[_i].driver;
  lt_open(&p, cases[_i].setup, cases[_i].wanted, 1);
  pl_matrix(&x, BS_F32, 3, 5, 5, 1, PL_FIRST);
  pl_matrix(&y, BS_F32, 3, 7, 7, 1, PL_FIRST);
  const bs_tensor_desc *args[4] = {&x.d, NULL, NULL, &y.d}, *back[2] = {&y.d, &x.d},
                       *dw[3] = {&x.d, &y.d, &y.d};
  bs_op_query q[3] = {fx_query("matmul", args, 4), fx_query("matmul_dx", back, 2),
                      fx_query("matmul_dw", dw, 3)};
  for (int i = 0; i < 3; i++) {
    q[i].weight_dtype = BS_F32;
    const bs_op_answer answer = ask(&p, by_lt(q[i].op), &q[i]);
    ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
    ck_assert_uint_eq(answer.reason, cases[_i].reason);
    ck_assert_msg(strstr(answer.text, cases[_i].text) != NULL, "%s", answer.text);
  }
  pl_free(&x);
  pl_free(&y);
  lt_close(&p);
}
END_TEST

/* ---- choices ---------------------------------------------------------------------------------- */

static uint64_t algorithm(pl *p, pc *c, uint32_t flags, uint64_t limit) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  bs_op_query q = pc_query(c, "matmul", args, 4);
  void *plan = NULL;
  bs_tensor *run[4] = {&c->x.t, NULL, NULL, &c->y[0].t};
  q.flags |= flags;
  q.workspace_limit = limit;
  ck_assert_msg(cuda_lt_matmul.prepare(&p->state, &p->exec, &q, c->packed[0], &plan, &err) == BS_OK, "%s",
                err.message);
  ck_assert_int_eq(cuda_lt_matmul.run(plan, run, 4, NULL, &err), BS_OK);
  cuda_lt_matmul.plan_free(plan);
  return told->last_algorithm;
}

START_TEST(the_fastest_is_kept) {
  pl p;
  pc c;
  uint64_t seed = 23;
  lt_open(&p, "plain=1;algorithms=4;workspace=4096;cost=3:2:0.5:2", LT_STANDIN, 1);
  const pc_shape s = shape_of(&served[1], 8, 24, 40);
  pc_open(&c, &p, &s, &seed);
  const uint64_t asked = told->heuristics, hits = p.state.lt->hits;
  ck_assert_uint_eq(algorithm(&p, &c, 0, 0), 3);
  ck_assert_uint_eq(told->last_workspace, 4096);
  ck_assert_uint_eq(told->heuristics - asked, 1);
  const uint64_t products = told->products;
  ck_assert_uint_eq(algorithm(&p, &c, 0, 0), 3);
  ck_assert_uint_eq(told->products - products, 1); /* nothing was timed again */
  ck_assert_uint_eq(told->heuristics - asked, 1);
  ck_assert_uint_eq(p.state.lt->hits - hits, 1);
  /* No clock decides for who asks for equal bits, and what needs a workspace is not taken without one. */
  ck_assert_uint_eq(algorithm(&p, &c, BS_QUERY_DETERMINISTIC, 0), 1);
  ck_assert_uint_eq(algorithm(&p, &c, 0, 100), 1);
  ck_assert_uint_eq(told->last_workspace, 0);
  p.state.lt->tune = 0;
  p.device.multiprocessors = 114; /* another kind of device: its own choice */
  ck_assert_uint_eq(algorithm(&p, &c, 0, 0), 1);
  ck_assert_uint_eq(told->heuristics - asked, 4);
  /* Sums in parts are added in f32, f32 is not made of smaller pieces. */
  ck_assert_uint_eq(told->schemes, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  ck_assert_uint_eq(told->ways & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32, 0);
  ck_assert_uint_ne(told->ways & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F, 0);
  pc_close(&c);
  lt_close(&p);
}
END_TEST

/* ---- failures --------------------------------------------------------------------------------- */

static int32_t whole_life(pl *p, pc *c, bs_error *err) {
  const bs_tensor_desc *args[4] = {&c->x.d, NULL, NULL, &c->y[0].d};
  const bs_op_query q = pc_query(c, "matmul", args, 4);
  void *plan = NULL;
  bs_tensor *run[4] = {&c->x.t, NULL, NULL, &c->y[0].t};
  int32_t rc = cuda_lt_matmul.prepare(&p->state, &p->exec, &q, c->packed[0], &plan, err);
  if (rc != BS_OK) return rc;
  rc = cuda_lt_matmul.run(plan, run, 4, NULL, err);
  cuda_lt_matmul.plan_free(plan);
  return rc;
}

static const struct {
  const char *function;
  int calls, prepares; /* of the calls, those that the preparation of a plan makes: they come first */
} failing[] = {{"cublasLtCreate", 1, 1},
               {"cublasLtMatmulAlgoGetHeuristic", 1, 1},
               {"cublasLtMatmulPreferenceInit", 1, 1},
               {"cublasLtMatmulPreferenceSetAttribute", 7, 7},
               {"cublasLtMatrixLayoutInit", 8, 4},
               {"cublasLtMatmulDescInit", 2, 1},
               {"cublasLtMatmulDescSetAttribute", 2, 1},
               {"cublasLtMatmulAlgoConfigGetAttribute", 1, 1},
               {"cublasLtMatmul", 1, 0}};

START_TEST(every_call_fails) {
  static const struct {
    int status;
    int32_t code;
  } statuses[] = {
      {CUBLAS_STATUS_NOT_INITIALIZED, BS_UNAVAILABLE},  {CUBLAS_STATUS_ALLOC_FAILED, BS_NO_MEMORY},
      {CUBLAS_STATUS_INVALID_VALUE, BS_INTERNAL},       {CUBLAS_STATUS_ARCH_MISMATCH, BS_UNAVAILABLE},
      {CUBLAS_STATUS_EXECUTION_FAILED, BS_RANK_FAILED}, {CUBLAS_STATUS_INTERNAL_ERROR, BS_RANK_FAILED},
      {CUBLAS_STATUS_NOT_SUPPORTED, BS_UNSUPPORTED}};
  pl p;
  pc c;
  uint64_t seed = 29;
  lt_open(&p, "plain=1", LT_STANDIN, 0);
  const pc_shape s = shape_of(&served[1], 8, 24, 40);
  pc_open(&c, &p, &s, &seed);
  for (int call = 1; call <= failing[_i].calls; call++)
    for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++) {
      char setup[160];
      bs_error err = BS_ERROR_INIT;
      cuda_lt_close(&p.device);
      p.state.lt->n_choices = 0;
      snprintf(setup, sizeof setup, "plain=1;plan=%s:%d=%d", failing[_i].function, call, statuses[k].status);
      again(setup);
      const int64_t live = p.f.live;
      const int32_t rc = whole_life(&p, &c, &err);
      if (statuses[k].status == CUBLAS_STATUS_NOT_SUPPORTED &&
          call <= failing[_i].prepares) { /* tiles serve it */
        ck_assert_msg(rc == BS_OK, "%s: %d: %s %s", setup, rc, err.id, err.message);
        continue;
      }
      ck_assert_msg(rc == statuses[k].code, "%s: %d: %s %s", setup, rc, err.id, err.message);
      ck_assert_msg(strncmp(err.id, "BS-CUDA-LT", 10) == 0 && err.hint[0] != '\0', "%s: %s", err.id,
                    err.hint);
      ck_assert_msg(p.f.live - live <= 1, "%s leaves %lld", setup,
                    (long long)(p.f.live - live)); /* its choices */
      const int64_t then = p.f.live;
      ck_assert_msg(whole_life(&p, &c, &err) == BS_OK, "after %s: %s", setup, err.message);
      ck_assert_int_eq(p.f.live, then);
    }
  pc_close(&c);
  lt_close(&p);
}
END_TEST

START_TEST(memory_fails) {
  pl p;
  pc c;
  uint64_t seed = 31;
  lt_open(&p, "plain=1;cost=3:1", LT_STANDIN, 1);
  const pc_shape s = shape_of(&served[1], 8, 24, 40);
  pc_open(&c, &p, &s, &seed);
  for (int64_t n = 1;; n++) {
    bs_error err = BS_ERROR_INIT;
    const int64_t live = p.f.live;
    p.state.lt->n_choices = 0;
    p.f.fail_alloc_at = n;
    const int32_t rc = whole_life(&p, &c, &err);
    const int left = p.f.fail_alloc_at != 0;
    p.f.fail_alloc_at = 0;
    ck_assert(rc == BS_OK || rc == BS_NO_MEMORY);
    ck_assert_int_eq(p.f.live, live);
    if (rc == BS_OK && left && n > 12) break;
    ck_assert_int_lt(n, 40);
  }
  pc_close(&c);
  lt_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_type, SERVED},
                             {weights_are_updated, 6},
                             {strides_and_partitions},
                             {pointers_off_their_alignment},
                             {fewer_rows, 2},
                             {no_tokens},
                             {sums_are_finished, TEST_COUNT(finishes)},
                             {selections, TEST_COUNT(table)},
                             {scales_are_put_behind},
                             {scaled_fewer_tokens},
                             {scaled_selections, TEST_COUNT(scaled_table)},
                             {siblings_serve_what_they_must},
                             {without_a_library, 4},
                             {the_fastest_is_kept},
                             {every_call_fails, TEST_COUNT(failing)},
                             {memory_fails},
                             {0}};
  return run_tests("cublaslt", tests, (test_setup){0});
}
