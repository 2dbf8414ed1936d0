/* SPDX-License-Identifier: MIT
 *
 * bodies_mlp.c - T6: the MLP is trained, its batch divided over data groups, and follows the same training of
 * the whole model in double.
 */
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/tp/bodies.h"

enum { TOKENS = 8, IN = 6, HIDDEN = 16, OUT = 5, STEPS = 4 };
#define LR 0.125

typedef struct model {
  double w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT];
  double y[TOKENS * OUT], loss;
} model;

typedef struct data {
  float x[TOKENS * IN], target[TOKENS * OUT];
  float w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT];
} data;

static void fill(float *out, int n, int step, int modulus, float scale) {
  const int middle = modulus / 2;
  for (int i = 0; i < n; ++i) out[i] = (float)((i * step + 5) % modulus - middle) * scale;
}

static void data_make(data *d, model *m) {
  fill(d->x, TOKENS * IN, 7, 17, 0.125f);
  fill(d->target, TOKENS * OUT, 3, 11, 0.25f);
  fill(d->w1, HIDDEN * IN, 5, 13, 0.0625f);
  fill(d->b1, HIDDEN, 3, 7, 0.0625f);
  fill(d->w2, OUT * HIDDEN, 11, 19, 0.03125f);
  fill(d->b2, OUT, 2, 5, 0.125f);
  for (int i = 0; i < HIDDEN * IN; ++i) m->w1[i] = d->w1[i];
  for (int i = 0; i < HIDDEN; ++i) m->b1[i] = d->b1[i];
  for (int i = 0; i < OUT * HIDDEN; ++i) m->w2[i] = d->w2[i];
  for (int i = 0; i < OUT; ++i) m->b2[i] = d->b2[i];
}

/* One step of the whole model on the whole batch: the mean of half the squared error. */
static void model_step(model *m, const data *d) {
  double dw1[HIDDEN * IN] = {0}, db1[HIDDEN] = {0}, dw2[OUT * HIDDEN] = {0}, db2[OUT] = {0};
  m->loss = 0.0;
  for (int t = 0; t < TOKENS; ++t) {
    const float *x = d->x + t * IN;
    double h[HIDDEN], dh[HIDDEN] = {0};
    for (int j = 0; j < HIDDEN; ++j) {
      h[j] = m->b1[j];
      for (int k = 0; k < IN; ++k) h[j] += m->w1[j * IN + k] * x[k];
      if (h[j] < 0.0) h[j] = 0.0;
    }
    for (int o = 0; o < OUT; ++o) {
      double y = m->b2[o];
      for (int j = 0; j < HIDDEN; ++j) y += m->w2[o * HIDDEN + j] * h[j];
      m->y[t * OUT + o] = y;
      const double e = y - d->target[t * OUT + o], g = e / TOKENS;
      m->loss += 0.5 * e * e / TOKENS;
      db2[o] += g;
      for (int j = 0; j < HIDDEN; ++j) {
        dw2[o * HIDDEN + j] += g * h[j];
        dh[j] += g * m->w2[o * HIDDEN + j];
      }
    }
    for (int j = 0; j < HIDDEN; ++j) {
      const double g = h[j] > 0.0 ? dh[j] : 0.0;
      db1[j] += g;
      for (int k = 0; k < IN; ++k) dw1[j * IN + k] += g * x[k];
    }
  }
  for (int i = 0; i < HIDDEN * IN; ++i) m->w1[i] -= LR * dw1[i];
  for (int i = 0; i < HIDDEN; ++i) m->b1[i] -= LR * db1[i];
  for (int i = 0; i < OUT * HIDDEN; ++i) m->w2[i] -= LR * dw2[i];
  for (int i = 0; i < OUT; ++i) m->b2[i] -= LR * db2[i];
}

static int near(double is, double must) {
  return fabs(is - must) <= 2e-6 * (1.0 + fabs(must));
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Sums of the gradients over the data group, started and left to the step to wait for. */
typedef struct sums {
  bs_tensor *gradient[4];
  bs_coll_plan *plan[4];
} sums;

static int32_t sums_make(bs_rank *rank, bs_tp_mlp *mlp, bs_group *group, sums *s, bs_error *err) {
  TRY(bs_tp_linear_gradients(bs_tp_mlp_column(mlp), &s->gradient[0], &s->gradient[1], err));
  TRY(bs_tp_linear_gradients(bs_tp_mlp_row(mlp), &s->gradient[2], &s->gradient[3], err));
  for (int i = 0; i < 4; ++i) {
    const bs_tensor *g = s->gradient[i];
    const bs_collective what = {.struct_size = sizeof what,
                                .kind = BS_COLL_ALL_REDUCE,
                                .dtype_in = BS_F32,
                                .rows = g->rank == 2 ? (uint64_t)g->dims[0] : 1,
                                .count = (uint64_t)g->dims[g->rank - 1],
                                .site = "t6.gradient",
                                .group = group};
    TRY(bs_rank_get_api()->collective_prepare(rank, &what, &s->plan[i], err));
  }
  return BS_OK;
}

/* The bits of y are the same on all ranks of the tensor group. */
static int32_t alike(bs_rank *rank, const bs_tp_place *p, const float *y, int n, bs_error *err) {
  for (uint32_t op = BS_REDUCE_MAX; op <= BS_REDUCE_MIN; ++op) {
    float most[TOKENS * OUT];
    const bs_collective what = {.struct_size = sizeof what,
                                .kind = BS_COLL_ALL_REDUCE,
                                .dtype_in = BS_F32,
                                .reduce_op = op,
                                .rows = 1,
                                .count = (uint64_t)n,
                                .site = "t6.alike",
                                .group = p->tensor_group};
    TRY(bs_rank_collective_host(rank, &what, y, (uint64_t)n, most, (uint64_t)n, err));
    MUST(memcmp(most, y, (size_t)n * sizeof *y) == 0, "y differs between the ranks of a tensor group");
  }
  return BS_OK;
}

typedef struct job {
  bs_tp_place p;
  int first, tokens; /* of the batch */
  data d;
  model m;
  bs_source w1, b1, w2, b2;
  bs_tp_mlp *mlp;
  sums s;
  bs_tensor x, y, dy, dx;
  double loss[STEPS], whole[HIDDEN * IN + OUT * HIDDEN];
} job;

static int32_t make(bs_rank *rank, job *j, const char *method, bs_error *err) {
  const bs_tp_mlp_spec spec = {.struct_size = sizeof spec,
                               .bias = 1,
                               .tokens = j->tokens,
                               .in_features = IN,
                               .hidden_features = HIDDEN,
                               .out_features = OUT,
                               .activation = BS_ACT_RELU,
                               .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD,
                               .row_method = method};
  TRY(bs_source_from_memory(j->d.w1, BS_F32, HIDDEN, IN, IN, &j->w1, err));
  TRY(bs_source_from_memory(j->d.b1, BS_F32, 1, HIDDEN, HIDDEN, &j->b1, err));
  TRY(bs_source_from_memory(j->d.w2, BS_F32, OUT, HIDDEN, HIDDEN, &j->w2, err));
  TRY(bs_source_from_memory(j->d.b2, BS_F32, 1, OUT, OUT, &j->b2, err));
  TRY(bs_tp_mlp_make(rank, &spec, &j->w1, &j->b1, &j->w2, &j->b2, &j->mlp, err));
  TRY(sums_make(rank, j->mlp, j->p.data_group, &j->s, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, j->tokens, IN, &j->x, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, j->tokens, IN, &j->dx, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, j->tokens, OUT, &j->y, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, j->tokens, OUT, &j->dy, err));
  return bs_tp_copy_in(rank, j->d.x + j->first * IN, &j->x, err);
}

static int32_t train_step(bs_rank *rank, job *j, bs_error *err) {
  const bs_step step = {.struct_size = sizeof step, .optimizer = BS_OPT_SGD, .lr = LR};
  float y[TOKENS * OUT], dy[TOKENS * OUT];
  TRY(bs_tp_mlp_forward(j->mlp, &j->x, &j->y, err));
  TRY(bs_tp_copy_out(rank, &j->y, y, err));
  model_step(&j->m, &j->d);
  for (int i = 0; i < j->tokens * OUT; ++i) {
    const double want = j->m.y[j->first * OUT + i];
    MUST(near(y[i], want), "y[%d] is %.9g, not %.9g", i, (double)y[i], want);
    dy[i] = (y[i] - j->d.target[j->first * OUT + i]) / TOKENS;
  }
  TRY(alike(rank, &j->p, y, j->tokens * OUT, err));
  TRY(bs_tp_copy_in(rank, dy, &j->dy, err));
  TRY(bs_tp_mlp_backward(j->mlp, &j->x, &j->dy, &j->dx, err));
  for (int i = 0; i < 4; ++i) TRY(bs_tp_start(rank, j->s.plan[i], j->s.gradient[i], j->s.gradient[i], err));
  return bs_tp_mlp_step(j->mlp, &step, err);
}

static int32_t train(bs_rank *rank, job *j, bs_error *err) {
  for (int i = 0; i < STEPS; ++i) {
    TRY(train_step(rank, j, err));
    j->loss[i] = j->m.loss;
    MUST(i == 0 || j->loss[i] < j->loss[i - 1], "the loss rises from %g to %g", j->loss[i - 1], j->loss[i]);
  }
  TRY(bs_tp_linear_gather_weights(bs_tp_mlp_column(j->mlp), j->whole, err));
  TRY(bs_tp_linear_gather_weights(bs_tp_mlp_row(j->mlp), j->whole + HIDDEN * IN, err));
  for (int i = 0; i < HIDDEN * IN; ++i)
    MUST(near(j->whole[i], j->m.w1[i]), "w1[%d] is %.9g, not %.9g", i, j->whole[i], j->m.w1[i]);
  for (int i = 0; i < OUT * HIDDEN; ++i) MUST(near(j->whole[HIDDEN * IN + i], j->m.w2[i]), "w2[%d]", i);
  bs_tensor x = j->x, y = j->y; /* fewer tokens than the layer was made for */
  x.dims[0] = y.dims[0] = 1;
  double now = 0.0, before = 0.0;
  TRY(bs_tp_mlp_forward(j->mlp, &j->x, &j->y, err));
  TRY(bs_tp_get(rank, &j->y, 0, OUT - 1, &before, err));
  TRY(bs_tp_mlp_forward(j->mlp, &x, &y, err));
  TRY(bs_tp_get(rank, &y, 0, OUT - 1, &now, err));
  MUST(near(now, before), "one token gives %g, not %g", now, before);
  return BS_OK;
}

static int32_t run(bs_rank *rank, const char *method, bs_error *err) {
  job *j = calloc(1, sizeof *j);
  if (j == NULL) return BS_NO_MEMORY;
  j->p.struct_size = sizeof j->p;
  int32_t rc = bs_tp_get_place(rank, &j->p, err);
  if (rc == BS_OK) {
    data_make(&j->d, &j->m);
    j->tokens = TOKENS / (int)j->p.data_size;
    j->first = j->tokens * (int)j->p.data_rank;
    rc = make(rank, j, method, err);
  }
  if (rc == BS_OK) rc = train(rank, j, err);
  for (int i = 0; i < 4; ++i) bs_tp_plan_release(rank, j->s.plan[i]);
  bs_tensor *const all[] = {&j->x, &j->y, &j->dx, &j->dy};
  for (int i = 0; i < 4; ++i) bs_tp_tensor_free(rank, all[i]);
  bs_tp_mlp_free(j->mlp);
  bs_source *const sources[] = {&j->w1, &j->b1, &j->w2, &j->b2};
  for (int i = 0; i < 4; ++i) bs_source_release(sources[i]);
  free(j);
  return rc;
}

int32_t t6_mlp(bs_rank *rank, void *user, bs_error *err) {
  (void)user;
  TRY(run(rank, NULL, err));
  return run(rank, "blockshock", err);
}

/* A second layer that takes other shares than the first makes. */
int32_t t6_refused(bs_rank *rank, void *user, bs_error *err) {
  static const float zeros[HIDDEN * HIDDEN] = {0};
  static const double shares[] = {3.0, 1.0};
  static const bs_mask uneven = {.struct_size = sizeof uneven,
                                 .kind = BS_MASK_UNEVEN,
                                 .n_shares = 2,
                                 .shares = shares,
                                 .name = "uneven"};
  const bs_tp_mlp_spec spec = {.struct_size = sizeof spec,
                               .tokens = 2,
                               .in_features = IN,
                               .hidden_features = HIDDEN,
                               .out_features = OUT,
                               .row_mask = &uneven};
  bs_source w1, w2;
  bs_tp_mlp *mlp = NULL;
  bs_error e = BS_ERROR_INIT;
  (void)user;
  TRY(bs_source_from_memory(zeros, BS_F32, HIDDEN, IN, IN, &w1, err));
  TRY(bs_source_from_memory(zeros, BS_F32, OUT, HIDDEN, HIDDEN, &w2, err));
  const int32_t rc = bs_tp_mlp_make(rank, &spec, &w1, NULL, &w2, NULL, &mlp, &e);
  MUST(rc == BS_UNSUPPORTED && strcmp(e.id, "BS-TP-PAIR") == 0 && mlp == NULL, "%s %s", e.id, e.message);
  bs_source_release(&w1);
  bs_source_release(&w2);
  return BS_OK;
}
