/* SPDX-License-Identifier: MIT
 * test_device_loss.c - the loss of phases 2 and 3 where Y lies: on a backend with loss_gradient it is named
 * in the run's algorithms, and its gradients and values are those that the host takes on one without; not
 * where Y is a partial sum, nor where a fault changes it. */
#include <math.h>
#include <string.h>

#include "lab/case/gradient.h"
#include "lab/case/loss.h"
#include "lab/case/train.h"
#include "tests/gate/right_run.h"
#include "tests/run_tests.h"

enum { B = 8, N = 24, K = 40 };

static bs_context *context;

static void open_context(void) {
  context = right_context();
}
static void close_context(void) {
  bs_context_close(context);
}

typedef struct data {
  float x[B * K], w[N * K], t[B * N];
  bs_source sx, sw, st;
} data;

static bs_case make_case(data *d, const char *backend, const char *method, uint32_t placement) {
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < B * K; ++i) d->x[i] = (float)((i * 37 + 11) % 101 - 50) / 25.0f;
  for (int i = 0; i < N * K; ++i) d->w[i] = (float)((i * 53 + 29) % 103 - 51) / 25.0f;
  for (int i = 0; i < B * N; ++i) d->t[i] = (float)((i * 41 + 3) % 97 - 48) / 5.0f;
  ck_assert_int_eq(bs_source_from_memory(d->x, BS_F32, B, K, K, &d->sx, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(d->w, BS_F32, N, K, K, &d->sw, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(d->t, BS_F32, B, N, N, &d->st, &err), BS_OK);
  bs_case c = {.context = context,
               .method = method,
               .backend = backend,
               .comm = "threads",
               .world_size = 3,
               .threads_per_rank = 1,
               .timeout_s = 60,
               .iterations = 1,
               .x = &d->sx,
               .w = &d->sw};
  c.spec = (bs_layer_spec){.struct_size = sizeof c.spec, .B = B, .N = N, .K = K, .y_placement = placement};
  c.spec.x_dtype = c.spec.w_dtype = c.spec.y_dtype = BS_F32;
  return c;
}

static void free_sources(data *d) {
  bs_source_release(&d->sx);
  bs_source_release(&d->sw);
  bs_source_release(&d->st);
}

/* What one backend makes of a loss. */
typedef struct made {
  float y[B * N], dy[B * N];
  double loss[2];
  int there; /* by the device */
} made;

static made make(const char *backend, const char *method, uint32_t placement, uint32_t loss) {
  static data d;
  made m = {.there = -1};
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result r;
  bs_train_result trained;
  const bs_case c = make_case(&d, backend, method, placement);
  const bs_source *target = loss == BS_LOSS_MSE_TARGET ? &d.st : NULL;
  ck_assert_msg(bs_gradient_run(&c, loss, target, &r, &err) == BS_OK, "%s", err.message);
  memcpy(m.y, r.y, sizeof m.y);
  memcpy(m.dy, r.dy, sizeof m.dy);
  m.there = strstr(r.run.algorithms, "loss_gradient@") != NULL;
  bs_gradient_result_free(&r);
  const bs_train_options o = {
      .optimizer = BS_OPT_SGD, .lr = 0.01, .steps = 2, .loss = loss, .target = target};
  ck_assert_msg(bs_train_run(&c, &o, &trained, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(strstr(trained.run.algorithms, "loss_gradient@") != NULL, m.there);
  memcpy(m.loss, trained.loss, sizeof m.loss);
  bs_train_result_free(&trained);
  free_sources(&d);
  return m;
}

static const struct {
  const char *method;
  uint32_t placement, loss;
} cases[] = {
    {"row_parallel", BS_REPLICATED, BS_LOSS_SUM},        {"row_parallel", BS_REPLICATED, BS_LOSS_MSE_ZERO},
    {"row_parallel", BS_REPLICATED, BS_LOSS_MSE_TARGET}, {"column_parallel", BS_SPLIT, BS_LOSS_MSE_TARGET},
    {"row_parallel", BS_PARTIAL, BS_LOSS_MSE_TARGET},
};
START_TEST(as_the_host_takes_it) {
  const made there = make("ref", cases[_i].method, cases[_i].placement, cases[_i].loss);
  const made here = make("cpu", cases[_i].method, cases[_i].placement, cases[_i].loss);
  ck_assert_int_eq(there.there, cases[_i].placement != BS_PARTIAL);
  ck_assert_int_eq(here.there, 0);
  for (int i = 0; i < B * N; ++i) { /* each of its own Y: those differ by the order of sums */
    const double off = fabs((double)there.dy[i] - (double)here.dy[i]);
    const double apart = 2.0 / (B * N) * fabs((double)there.y[i] - (double)here.y[i]);
    ck_assert_msg(off <= apart + 2e-7 * fabs((double)here.dy[i]), "%d: %.9g, not %.9g", i,
                  (double)there.dy[i], (double)here.dy[i]);
  }
  for (int i = 0; i < 2; ++i)
    ck_assert_msg(fabs(there.loss[i] - here.loss[i]) <= 1e-5 * (1.0 + fabs(here.loss[i])), "%.17g, not %.17g",
                  there.loss[i], here.loss[i]);
}
END_TEST

int main(void) {
  const test_case tests[] = {{as_the_host_takes_it, TEST_COUNT(cases)}, {0}};
  return run_tests("device_loss", tests, (test_setup){open_context, close_context, 60});
}
