/* SPDX-License-Identifier: MIT
 * scaled_case.h - a query of scaled_matmul with its tensors, for the plugin and for ref, and how near the two
 * results must be. */
#ifndef BS_TESTS_CUDA_SCALED_CASE_H
#define BS_TESTS_CUDA_SCALED_CASE_H
#include <math.h>

#include "plain.h"
#include "products_case.h"

enum { SC_BIAS = 1, SC_BASE = 2, SC_IN_PLACE = 4 }; /* IN_PLACE: base is out */

typedef struct sc_shape {
  int64_t B, N, K, group;
  uint32_t x, w, out, activation;
  int with, lay, where;
} sc_shape;

typedef struct sc {
  sc_shape s;
  pl_tensor x, xs, w, ws, bias, base, out[2];
  bs_tensor *args[2][7];
  const bs_tensor_desc *descs[2][7];
  bs_op_query query[2]; /* of out[0], of out[1] */
} sc;

static inline void sc_open(sc *c, const sc_shape *s, uint64_t *seed) {
  const int64_t G = (s->K + s->group - 1) / s->group, step = s->lay == PC_SPREAD ? 2 : 1;
  const int lays[2] = {s->lay == PC_DENSE ? s->lay : (s->lay + 1) % PC_LAYS,
                       s->lay == PC_DENSE ? s->lay : (s->lay + 2) % PC_LAYS};
  c->s = *s;
  pc_lay(&c->x, s->x, s->B, s->K, s->lay, s->where);
  pc_lay(&c->xs, BS_F32, s->B, G, lays[0], s->where);
  pc_lay(&c->w, s->w, s->N, s->K, s->lay, s->where);
  pc_lay(&c->ws, BS_F32, s->N, G, lays[1], s->where);
  pl_make(&c->bias, BS_F32, 1, &s->N, &step, s->where);
  pc_lay(&c->base, BS_F32, s->B, s->N, s->lay, s->where);
  for (int i = 0; i < 2; i++) pc_lay(&c->out[i], s->out, s->B, s->N, s->lay, s->where);
  pl_tensor *const all[] = {&c->x, &c->xs, &c->w, &c->ws, &c->bias, &c->base, &c->out[0]};
  for (size_t i = 0; i < 7; i++) pl_fill(all[i], seed, 0);
  if (s->with & SC_IN_PLACE)
    for (int64_t b = 0; b < s->B; b++)
      for (int64_t n = 0; n < s->N; n++) pl_set(&c->base, b, n, pl_get(&c->out[0], b, n));
  pl_copy(&c->out[1], &c->out[0]);
  for (int i = 0; i < 2; i++) {
    pl_tensor *const base = s->with & SC_IN_PLACE ? &c->out[i] : s->with & SC_BASE ? &c->base : NULL;
    pl_tensor *const in[7] = {&c->x, &c->xs,    &c->w, &c->ws, s->with & SC_BIAS ? &c->bias : NULL,
                              base,  &c->out[i]};
    for (int k = 0; k < 7; k++) {
      c->args[i][k] = in[k] != NULL ? &in[k]->t : NULL;
      c->descs[i][k] = in[k] != NULL ? &in[k]->d : NULL;
    }
    c->query[i] = fx_query("scaled_matmul", c->descs[i], 7);
    c->query[i].attrs[0] = s->group;
    c->query[i].activation = s->activation;
  }
}

/* Sums in two orders; and one rounding each to out's dtype. */
static inline void sc_near(sc *c, const char *what) {
  const sc_shape *s = &c->s;
  const double u = bs_dtype_unit_roundoff(s->out);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      double size = 0.0;
      for (int64_t k = 0; k < s->K; k++)
        size += fabs(pl_get(&c->x, b, k) * pl_get(&c->w, n, k) * pl_get(&c->xs, b, k / s->group) *
                     pl_get(&c->ws, n, k / s->group));
      if (s->with & SC_BIAS) size += fabs(pl_get(&c->bias, 0, n));
      if (s->with & (SC_BASE | SC_IN_PLACE)) size += fabs(pl_get(&c->base, b, n));
      const double got = pl_get(&c->out[0], b, n), want = pl_get(&c->out[1], b, n);
      const double slack =
          (4.0 * sqrt((double)s->K) + 16.0) * 0x1p-24 * size + 2.1 * u * fabs(want) + 0x1p-16 * (u > 0x1p-6);
      ck_assert_msg(fabs(got - want) <= slack, "%s: [%lld,%lld] is %.9g, want %.9g within %.3g", what,
                    (long long)b, (long long)n, got, want, slack);
    }
}

/* One plan: all its tokens, then the first `fewer` of them, whose bits by `exact` are those of the first run;
 * the rows behind them stay. */
static inline void sc_fewer(pl *p, const bs_op_impl *impl, sc *c, int64_t fewer, int exact) {
  static const int batch[] = {0, 1, 5, 6};
  void *plan = NULL;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  ck_assert_int_eq(impl->prepare(&p->state, &p->exec, &c->query[0], NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(impl->run(plan, c->args[0], 7, NULL, &err), BS_OK);
  pl_copy(&c->out[1], &c->out[0]);
  for (int64_t b = 0; b < c->s.B; b++)
    for (int64_t n = 0; n < c->s.N; n++) pl_set(&c->out[0], b, n, 77.0);
  for (int i = 0; i < 4; i++)
    if (c->args[0][batch[i]] != NULL) c->args[0][batch[i]]->dims[0] = fewer;
  ck_assert_int_eq(impl->run(plan, c->args[0], 7, NULL, &err), BS_OK);
  impl->plan_free(plan);
  for (int i = 0; i < 4; i++)
    if (c->args[0][batch[i]] != NULL) c->args[0][batch[i]]->dims[0] = c->s.B;
  for (int64_t b = 0; b < c->s.B; b++)
    for (int64_t n = 0; n < c->s.N; n++) {
      const double got = pl_get(&c->out[0], b, n), want = b < fewer ? pl_get(&c->out[1], b, n) : 77.0;
      const double slack = exact || b >= fewer ? 0.0 : 0x1p-10 * (1.0 + fabs(want));
      ck_assert_msg(fabs(got - want) <= slack || (isnan(got) && isnan(want)),
                    "%lld of %lld tokens: [%lld,%lld] is %.9g, want %.9g", (long long)fewer,
                    (long long)c->s.B, (long long)b, (long long)n, got, want);
    }
}

static inline void sc_close(sc *c) {
  pl_tensor *const all[] = {&c->x, &c->xs, &c->w, &c->ws, &c->bias, &c->base, &c->out[0], &c->out[1]};
  for (size_t i = 0; i < 8; i++) pl_free(all[i]);
}
#endif
