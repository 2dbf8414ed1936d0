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
#include "tests/cuda/standin/splt/control.h"

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
  ck_assert_int_eq(cuda_splt_new(&p->state, wanted, tune, &err), BS_OK);
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
      pc_read(&c);
      pc_close(&c);
    }
  splt_close(&p);
}
END_TEST

int main(void) {
  Suite *s = suite_create("cusparselt");
  TCase *c = tcase_create("cusparselt");
  tcase_add_loop_test(c, every_type, 0, SERVED);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_ENV);
  const int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
