/* SPDX-License-Identifier: MIT
 * test_cudnn.c - attention by cuDNN over its stand-in, beside ref: what it serves, what the blocklist keeps
 * from it, other shapes than prepared, a library that is missing, too old, refuses or fails. */
#include <dlfcn.h>
#include <math.h>

#include "cudnn_header.h"
#include "plain.h"
#include "plugins/cuda/cudnn/blocklist.h"
#include "plugins/cuda/cudnn/library.h"
#include "plugins/cuda/ops/attention.h"
#include "tests/run_tests.h"
#include "tools/standin/dnn/control.h"

static const dnn_told *told;

static void *standin(const char *symbol) {
  void *library = dlopen(DNN_STANDIN, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  void *at = dlsym(library, symbol);
  ck_assert_ptr_nonnull(at);
  return at;
}

static void dnn_open(pl *p, const char *setup, const char *wanted) {
  bs_error err = BS_ERROR_INIT;
  void *at = standin(DNN_TOLD_SYMBOL), *again_at = standin(DNN_AGAIN_SYMBOL);
  dnn_told_fn tell;
  dnn_again_fn again;
  memcpy(&tell, &at, sizeof tell);
  memcpy(&again, &again_at, sizeof again);
  told = tell();
  setenv("BS_CUDNN_STANDIN", setup, 1);
  again();
  pl_open(p);
  ck_assert_int_eq(cuda_dnn_new(&p->state, wanted, &err), BS_OK);
}

static void dnn_close(pl *p) {
  ck_assert_int_eq(told->descriptors, 0);
  cuda_dnn_close(&p->device);
  ck_assert_int_eq(told->handles, 0);
  cuda_dnn_delete(&p->state);
  pl_close(p);
}

/* ---- a query ------------------------------------------------------------------------------------- */

typedef struct attend {
  pl_tensor q, k, v, y, want;
  const bs_tensor_desc *descs[CUDA_ATTEND_ARGS];
  bs_tensor *args[CUDA_ATTEND_ARGS];
  bs_op_query query;
} attend;
enum { B = 2, H = 4, G = 2, S = 5, T = 9, D = 24, E = 16 };

static int64_t count(const pl_tensor *t) {
  return t->t.dims[0] * t->t.dims[1] * t->t.dims[2] * t->t.dims[3];
}
static unsigned char *element(const pl_tensor *t, int64_t n) {
  return (unsigned char *)t->t.data + n * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
}

static void begin(attend *c, uint32_t of, uint32_t to) {
  const int64_t dims[4][4] = {{B, H, S, D}, {B, G, T, D}, {B, G, T, E}, {B, H, S, E}};
  uint64_t seed = 7;
  memset(c, 0, sizeof *c);
  pl_tensor *const all[4] = {&c->q, &c->k, &c->v, &c->y};
  static const uint32_t at[4] = {CUDA_ATTEND_Q, CUDA_ATTEND_K, CUDA_ATTEND_V, CUDA_ATTEND_Y};
  for (int i = 0; i < 4; i++) {
    pl_make(all[i], i < 3 ? of : to, 4, dims[i], NULL, PL_FIRST);
    for (int64_t n = 0; n < count(all[i]); n++)
      bs_store_f64(all[i]->t.dtype, element(all[i], n), 0, (double)fx_below(&seed, 64) / 16.0 - 2.0);
    c->args[at[i]] = &all[i]->t;
    c->descs[at[i]] = &all[i]->d;
  }
  pl_make(&c->want, to, 4, dims[3], NULL, PL_FIRST);
  c->query = fx_query("attention", c->descs, CUDA_ATTEND_ARGS);
  c->query.numbers[0] = 0.2;
}

static void end(attend *c) {
  pl_tensor *const all[5] = {&c->q, &c->k, &c->v, &c->y, &c->want};
  for (int i = 0; i < 5; i++) pl_free(all[i]);
}

static void judge(attend *c, pl *p) {
  bs_tensor *args[CUDA_ATTEND_ARGS];
  memcpy(args, c->args, sizeof args);
  c->want.t.dims[0] = c->y.t.dims[0];
  args[CUDA_ATTEND_Y] = &c->want.t;
  pl_run_ref(p, &c->query, NULL, args);
  for (int64_t n = 0; n < count(&c->y); n++) {
    const double got = bs_load_f64(c->y.t.dtype, element(&c->y, n), 0);
    const double want = bs_load_f64(c->y.t.dtype, element(&c->want, n), 0);
    ck_assert_msg(fabs(got - want) <= 0x1p-7, "[%lld] is %g, want %g", (long long)n, got, want);
  }
}

/* ---- tests ----------------------------------------------------------------------------------------- */

START_TEST(numbers) {
  static const uint32_t types[] = {BS_BF16, BS_F16};
  static const char *const setups[] = {"plain=1", "plain=1;refuse=1", "plain=1;workspace=0"};
  for (int i = 0; i < 6; i++) {
    pl p;
    attend c;
    dnn_open(&p, setups[i / 2], DNN_STANDIN);
    begin(&c, types[i % 2], types[i % 2]);
    const uint64_t before = told->executions;
    pl_run_cuda(&p, &cuda_dnn_attention, &c.query, NULL, c.args);
    ck_assert_uint_eq(told->executions - before, 1);
    ck_assert_int_eq(told->engine, i / 2 == 1); /* the second, where the first cannot be made */
    judge(&c, &p);
    end(&c);
    dnn_close(&p);
  }
}
END_TEST

/* One sequence of two: a plan of the library is for one shape, and ours serve all. */
START_TEST(fewer_than_prepared) {
  pl p;
  attend c;
  void *plan = NULL;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  dnn_open(&p, "plain=1", DNN_STANDIN);
  begin(&c, BS_BF16, BS_BF16);
  ck_assert_int_eq(cuda_dnn_attention.prepare(&p.state, &p.exec, &c.query, NULL, &plan, &err), BS_OK);
  c.q.t.dims[0] = c.k.t.dims[0] = c.v.t.dims[0] = c.y.t.dims[0] = 1;
  const uint64_t before = told->executions;
  ck_assert_int_eq(cuda_dnn_attention.run(plan, c.args, CUDA_ATTEND_ARGS, NULL, &err), BS_OK);
  ck_assert_uint_eq(told->executions, before);
  judge(&c, &p);
  cuda_dnn_attention.plan_free(plan);
  end(&c);
  dnn_close(&p);
}
END_TEST

/* What the library refuses is ours, and noted; what breaks ends the run. */
START_TEST(failures) {
  static const struct {
    const char *setup;
    int32_t prepare, run;
  } cases[] = {{"plain=1;engines=0", BS_OK, BS_OK},
               {"plain=1;refuse=2", BS_OK, BS_OK},
               {"plain=1;fail=cudnnBackendFinalize:2000", BS_OK, BS_OK},
               {"plain=1;fail=cudnnCreate:1001", BS_OK, BS_OK},
               {"plain=1;fail=cudnnBackendSetAttribute:4000", BS_OK, BS_OK},
               {"plain=1;fail=cudnnBackendSetAttribute:5000", BS_RANK_FAILED, BS_OK},
               {"plain=1;fail=cudnnBackendExecute:3000", BS_OK, BS_OK},
               {"plain=1;fail=cudnnBackendExecute:5000", BS_OK, BS_RANK_FAILED}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pl p;
    attend c;
    void *plan = NULL;
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    dnn_open(&p, cases[i].setup, DNN_STANDIN);
    begin(&c, BS_F16, BS_F16);
    int32_t rc = cuda_dnn_attention.prepare(&p.state, &p.exec, &c.query, NULL, &plan, &err);
    ck_assert_msg(rc == cases[i].prepare, "%s: %d, %s", cases[i].setup, rc, err.message);
    if (rc == BS_OK) {
      rc = cuda_dnn_attention.run(plan, c.args, CUDA_ATTEND_ARGS, NULL, &err);
      ck_assert_msg(rc == cases[i].run, "%s: %d, %s", cases[i].setup, rc, err.message);
      if (rc == BS_OK) judge(&c, &p);
      cuda_dnn_attention.plan_free(plan);
    }
    end(&c);
    dnn_close(&p);
  }
}
END_TEST

static const char *answer_of(pl *p, const bs_op_query *q, uint32_t *out_reason) {
  static bs_op_answer answer;
  answer = (bs_op_answer){.struct_size = (uint32_t)sizeof answer};
  ck_assert_int_eq(cuda_dnn_attention.supports(&p->state, q, &answer), BS_OK);
  ck_assert_int_eq(answer.level == BS_LEVEL_NO, answer.reason != BS_REASON_NONE);
  *out_reason = answer.reason;
  return answer.text;
}

START_TEST(not_to_be_had) {
  static const struct {
    const char *setup, *wanted;
    uint32_t reason;
    const char *says;
  } cases[] = {{"plain=1", "off", BS_REASON_DISABLED, "switched off"},
               {"plain=1", "/nowhere/libcudnn.so.9", BS_REASON_LIB_VERSION, "not available"},
               {"plain=1;version=90800", DNN_STANDIN, BS_REASON_LIB_VERSION, "9.8.0 is not used"},
               {"plain=1;version=100000", DNN_STANDIN, BS_REASON_LIB_VERSION, "10.0.0 is not used"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pl p;
    attend c;
    uint32_t reason = 0;
    dnn_open(&p, cases[i].setup, cases[i].wanted);
    begin(&c, BS_F16, BS_F16);
    const char *text = answer_of(&p, &c.query, &reason);
    ck_assert_msg(reason == cases[i].reason && strstr(text, cases[i].says) != NULL, "case %zu: %s", i, text);
    end(&c);
    dnn_close(&p);
  }
}
END_TEST

/* The table by itself: rows of versions that are too old for us anyway count too. */
START_TEST(blocklist) {
  static const struct {
    int64_t version;
    uint32_t dtype, features;
    const char *says; /* NULL: not blocked */
  } cases[] = {{91900, BS_BF16, 0, NULL},
               {91301, BS_F16, 0, NULL},
               {91000, BS_BF16, 0, "bf16 is wrong"},
               {91001, BS_BF16, 0, "bf16 is wrong"},
               {91002, BS_BF16, 0, NULL},
               {91001, BS_F16, 0, NULL},
               {91000, BS_F8E4M3, 0, "fp8 is wrong"},
               {91900, BS_F8E4M3, 0, "its output would be fp8"},
               {91400, BS_F16, DNN_WINDOW, "windows are wrong"},
               {91401, BS_F16, DNN_WINDOW, "softcap and windows"},
               {91900, BS_F16, DNN_CAUSAL, "came with 9.21"},
               {92100, BS_F16, DNN_CAUSAL, "causal masks, bias, lengths and LSE"},
               {91900, BS_BF16, DNN_STATS, "came with 9.21"},
               {91400, BS_BF16, DNN_LENGTHS, "came with 9.15"},
               {92200, BS_BF16, DNN_SOFTCAP, "softcap and windows"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const cuda_dnn_block *b = cuda_dnn_block_of(cases[i].version, cases[i].dtype, cases[i].features);
    ck_assert_msg(
        (b == NULL) == (cases[i].says == NULL) && (b == NULL || strstr(b->why, cases[i].says) != NULL),
        "case %zu: %s", i, b != NULL ? b->why : "not blocked");
  }
}
END_TEST

/* The library takes no stride of 0, which a dimension of one element has here. */
START_TEST(one_sequence) {
  pl p;
  attend c;
  dnn_open(&p, "plain=1", DNN_STANDIN);
  begin(&c, BS_BF16, BS_BF16);
  pl_tensor *const all[4] = {&c.q, &c.k, &c.v, &c.y};
  for (int i = 0; i < 4; i++) all[i]->t.dims[0] = all[i]->d.dims[0] = 1;
  const uint64_t before = told->executions;
  pl_run_cuda(&p, &cuda_dnn_attention, &c.query, NULL, c.args);
  ck_assert_uint_eq(told->executions - before, 1);
  judge(&c, &p);
  c.q.d.dims[2] = c.y.d.dims[2] = 1; /* one query */
  uint32_t reason = 0;
  (void)answer_of(&p, &c.query, &reason);
  ck_assert_uint_eq(reason, BS_REASON_SHAPE);
  end(&c);
  dnn_close(&p);
}
END_TEST

/* Queries of what is blocked, of other dtypes and widths, and of promises. */
START_TEST(refused) {
  static const struct {
    uint32_t of, to, flags;
    int64_t causal, left, zeros;
    double softcap;
    uint32_t reason;
  } cases[] = {{BS_BF16, BS_BF16, 0, 0, 0, 0, 0, BS_REASON_NONE},
               {BS_F32, BS_F32, 0, 0, 0, 0, 0, BS_REASON_DTYPE},
               {BS_F16, BS_F32, 0, 0, 0, 0, 0, BS_REASON_DTYPE},
               {BS_F8E4M3, BS_BF16, 0, 0, 0, 0, 0, BS_REASON_NOT_BUILT},
               {BS_F16, BS_F16, 0, 1, 0, 0, 0, BS_REASON_LIB_VERSION},
               {BS_F16, BS_F16, 0, 2, 0, 0, 0, BS_REASON_LIB_VERSION},
               {BS_F16, BS_F16, 0, 0, 3, 0, 0, BS_REASON_NOT_BUILT},
               {BS_F16, BS_F16, 0, 0, 0, 0, 2.0, BS_REASON_NOT_BUILT},
               {BS_F16, BS_F16, 0, 0, 0, 1, 0, BS_REASON_NOT_BUILT},
               {BS_F16, BS_F16, BS_QUERY_TOKENWISE, 0, 0, 0, 0, BS_REASON_DISABLED}};
  pl p;
  dnn_open(&p, "plain=1", DNN_STANDIN);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attend c;
    uint32_t reason = 0;
    begin(&c, cases[i].of, cases[i].to);
    c.query.flags = cases[i].flags;
    c.query.attrs[0] = cases[i].causal;
    c.query.attrs[1] = cases[i].left;
    c.query.attrs[3] = cases[i].zeros;
    c.query.numbers[1] = cases[i].softcap;
    const char *text = answer_of(&p, &c.query, &reason);
    ck_assert_msg(reason == cases[i].reason, "case %zu: %u, %s", i, reason, text);
    end(&c);
  }
  dnn_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{numbers},       {fewer_than_prepared}, {one_sequence}, {failures},
                             {not_to_be_had}, {blocklist},           {refused},      {0}};
  return run_tests("cuDNN", tests, (test_setup){0});
}
