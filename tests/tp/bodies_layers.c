/* SPDX-License-Identifier: MIT
 *
 * bodies_layers.c - T2: column and row layers equal the product with the whole matrix, forward, backward and
 * in a step. All numbers are small dyadic fractions, so every sum is exact in f32 and every rank must have
 * exactly the reference's values.
 */
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/tp/bodies.h"

enum { B = 5, MOST = 24 };

typedef struct layer_case {
  const char *name;
  uint32_t row, whole; /* whole: gather_output of a column layer, an x that is not split of a row layer */
  uint32_t bias, skip, dtype, activation;
  const char *method;
  int64_t N, K;
} layer_case;

static const layer_case cases[] = {
    {"column", 0, 0, 1, 0, BS_F32, BS_ACT_NONE, NULL, 12, 8},
    {"column, gathered", 0, 1, 1, 0, BS_F32, BS_ACT_NONE, NULL, 12, 8},
    {"column, uneven", 0, 0, 0, 0, BS_F32, BS_ACT_NONE, NULL, 7, 9},
    {"column, uneven, gathered, relu", 0, 1, 1, 0, BS_F32, BS_ACT_RELU, NULL, 7, 9},
    {"column, own bias", 0, 0, 1, 1, BS_F32, BS_ACT_NONE, NULL, 7, 8},
    {"column, gathered, own bias", 0, 1, 1, 1, BS_F32, BS_ACT_NONE, NULL, 7, 8},
    {"column, bf16", 0, 1, 1, 0, BS_BF16, BS_ACT_NONE, NULL, 12, 8},
    {"column, f64", 0, 0, 1, 0, BS_F64, BS_ACT_NONE, NULL, 12, 8},
    {"row", 1, 0, 1, 0, BS_F32, BS_ACT_NONE, NULL, 8, 12},
    {"row, whole x", 1, 1, 1, 0, BS_F32, BS_ACT_NONE, NULL, 8, 12},
    {"row, uneven, relu", 1, 0, 1, 0, BS_F32, BS_ACT_RELU, NULL, 5, 11},
    {"row, own bias", 1, 0, 1, 1, BS_F32, BS_ACT_NONE, NULL, 8, 12},
    {"row, bf16", 1, 0, 1, 0, BS_BF16, BS_ACT_NONE, NULL, 8, 12},
    {"row, f64", 1, 1, 0, 0, BS_F64, BS_ACT_NONE, NULL, 8, 12},
    {"row by blockshock", 1, 0, 1, 0, BS_F32, BS_ACT_NONE, "blockshock", 8, 16},
    {"row by blockshock, whole x", 1, 1, 1, 0, BS_F32, BS_ACT_NONE, "blockshock", 8, 16},
    {"row by masked_split", 1, 1, 0, 0, BS_F32, BS_ACT_NONE, "masked_split", 8, 16},
    {"column by row_parallel", 0, 0, 1, 0, BS_F32, BS_ACT_NONE, "row_parallel", 12, 8},
};

/* What a layer must make of these, in double. The groups have different x. */
typedef struct truth {
  float x[B * MOST], w[MOST * MOST], b[MOST], dy[B * MOST];
  double y[B * MOST], dx[B * MOST], dw[MOST * MOST], db[MOST];
} truth;

static void fill(float *out, int64_t n, int step, int modulus, float scale) {
  const int64_t middle = modulus / 2;
  for (int64_t i = 0; i < n; ++i) out[i] = (float)((i * step + 3) % modulus - middle) * scale;
}

static void compute(truth *t, const layer_case *c, uint32_t data_rank) {
  fill(t->x, B * c->K, 7 + (int)data_rank * 4, 13, 0.5f);
  fill(t->w, c->N * c->K, 5, 11, 0.25f);
  fill(t->b, c->N, 3, 7, 0.5f);
  fill(t->dy, B * c->N, 11, 9, 0.5f);
  memset(t->dx, 0, sizeof t->dx);
  memset(t->dw, 0, sizeof t->dw);
  memset(t->db, 0, sizeof t->db);
  for (int64_t i = 0; i < B; ++i)
    for (int64_t n = 0; n < c->N; ++n) {
      double y = c->bias && !c->skip ? t->b[n] : 0.0;
      for (int64_t k = 0; k < c->K; ++k) y += (double)t->x[i * c->K + k] * t->w[n * c->K + k];
      const int off = c->activation == BS_ACT_RELU && y <= 0.0;
      const double d = off ? 0.0 : t->dy[i * c->N + n];
      t->y[i * c->N + n] = off ? 0.0 : y;
      t->db[n] += d;
      for (int64_t k = 0; k < c->K; ++k) {
        t->dx[i * c->K + k] += d * t->w[n * c->K + k];
        t->dw[n * c->K + k] += d * t->x[i * c->K + k];
      }
    }
}

/* Column j of a rank's tensor in the whole. */
static int64_t column_of(const bs_partition *p, int64_t begin, int64_t j) {
  if (p == NULL) return begin + j;
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[j] : p->begin + j;
}

static double rounded(uint32_t dtype, double value) {
  const float narrow = (float)value;
  double room = 0.0;
  if (dtype != BS_BF16) return value;
  bs_convert(dtype, &room, BS_F32, &narrow, 1);
  return bs_load_f64(dtype, &room, 0);
}

/* Values of [rows, width] in the rank's columns, written to a tensor. */
static int32_t write(bs_rank *rank, const float *values, int64_t width, const bs_partition *p, int64_t begin,
                     bs_tensor *t, bs_error *err) {
  double room[B * MOST] = {0};
  for (int64_t i = 0; i < B; ++i)
    for (int64_t j = 0; j < t->dims[1]; ++j)
      bs_store_f64(t->dtype, room, i * t->dims[1] + j, values[i * width + column_of(p, begin, j)]);
  return bs_tp_copy_in(rank, room, t, err);
}

static int32_t expect(bs_rank *rank, const char *name, const char *what, const bs_tensor *t,
                      const double *want, int64_t width, int64_t row0, const bs_partition *p, int64_t begin,
                      bs_error *err) {
  double room[MOST * MOST] = {0};
  const int64_t rows = t->rank == 2 ? t->dims[0] : 1, cols = t->rank == 2 ? t->dims[1] : t->dims[0];
  TRY(bs_tp_copy_out(rank, t, room, err));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const double is = bs_load_f64(t->dtype, room, i * cols + j);
      const double must = rounded(t->dtype, want[(row0 + i) * width + column_of(p, begin, j)]);
      MUST(is == must, "%s: %s[%d,%d] is %g, not %g", name, what, (int)i, (int)j, is, must);
    }
  return BS_OK;
}

/* What a case holds while it runs, so that one place frees it. */
typedef struct held {
  bs_tp_linear *layer;
  bs_tensor x, y, dx, dy;
  bs_source w, b;
  double whole[MOST * MOST];
  truth t;
} held;

static int32_t make(bs_rank *rank, const layer_case *c, held *h, bs_error *err) {
  const bs_tp_linear_spec spec = {.struct_size = sizeof spec,
                                  .bias = c->bias,
                                  .tokens = B,
                                  .out_features = c->N,
                                  .in_features = c->K,
                                  .x_dtype = c->dtype,
                                  .gather_output = !c->row && c->whole,
                                  .input_is_parallel = c->row && !c->whole,
                                  .skip_bias_add = c->skip,
                                  .activation = c->activation,
                                  .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD,
                                  .method = c->method};
  TRY(bs_source_from_memory(h->t.w, BS_F32, c->N, c->K, c->K, &h->w, err));
  TRY(bs_source_from_memory(h->t.b, BS_F32, 1, c->N, c->N, &h->b, err));
  return (c->row ? bs_tp_row_linear : bs_tp_column_linear)(rank, &spec, &h->w, c->bias ? &h->b : NULL,
                                                           &h->layer, err);
}

static int32_t passes(bs_rank *rank, const layer_case *c, held *h, const bs_tp_linear_shape *s,
                      int64_t y_begin, bs_error *err) {
  bs_ownership own = {.struct_size = sizeof own};
  TRY(bs_tp_linear_owns(h->layer, &own, err));
  const bs_partition *x_cols = c->row && !c->whole ? own.columns : NULL;
  TRY(bs_tp_tensor_make(rank, c->dtype, B, s->x_features, &h->x, err));
  TRY(bs_tp_tensor_make(rank, c->dtype, B, s->x_features, &h->dx, err));
  TRY(bs_tp_tensor_make(rank, c->dtype, B, s->y_features, &h->y, err));
  TRY(bs_tp_tensor_make(rank, c->dtype, B, s->y_features, &h->dy, err));
  TRY(write(rank, h->t.x, c->K, x_cols, 0, &h->x, err));
  TRY(write(rank, h->t.dy, c->N, NULL, y_begin, &h->dy, err));
  TRY(bs_tp_linear_forward(h->layer, &h->x, &h->y, err));
  TRY(expect(rank, c->name, "y", &h->y, h->t.y, c->N, 0, NULL, y_begin, err));
  TRY(bs_tp_linear_backward(h->layer, &h->x, &h->dy, &h->dx, err));
  TRY(expect(rank, c->name, "dx", &h->dx, h->t.dx, c->K, 0, x_cols, 0, err));
  bs_tensor *dw = NULL, *db = NULL;
  TRY(bs_tp_linear_gradients(h->layer, &dw, &db, err));
  MUST((db != NULL) == (c->bias && !c->skip), "%s: db", c->name);
  TRY(expect(rank, c->name, "dw", dw, h->t.dw, c->K, own.row_begin, own.columns, 0, err));
  if (db != NULL) TRY(expect(rank, c->name, "db", db, h->t.db, c->N, 0, NULL, own.row_begin, err));
  return BS_OK;
}

/* The weights before and behind a step. */
static int32_t weights(const layer_case *c, held *h, bs_error *err) {
  const bs_step step = {.struct_size = sizeof step, .optimizer = BS_OPT_SGD, .lr = 0.25};
  for (int steps = 0; steps < 2; ++steps) {
    TRY(bs_tp_linear_gather_weights(h->layer, h->whole, err));
    for (int64_t i = 0; i < c->N * c->K; ++i) {
      const double want = rounded(c->dtype, h->t.w[i] - (steps ? 0.25 * h->t.dw[i] : 0.0));
      MUST(h->whole[i] == want, "%s: w[%d] behind %d steps is %g, not %g", c->name, (int)i, steps,
           h->whole[i], want);
    }
    if (steps == 0) TRY(bs_tp_linear_step(h->layer, &step, err));
  }
  return BS_OK;
}

static int32_t own_bias(bs_rank *rank, const layer_case *c, held *h, int64_t y_begin, bs_error *err) {
  const bs_tensor *bias = bs_tp_linear_bias(h->layer);
  double want[MOST] = {0};
  MUST((bias != NULL) == (c->bias && c->skip), "%s: the bias that the caller adds", c->name);
  if (bias == NULL) return BS_OK;
  for (int64_t n = 0; n < c->N; ++n) want[n] = h->t.b[n];
  return expect(rank, c->name, "bias", bias, want, c->N, 0, NULL, y_begin, err);
}

static int32_t run_case(bs_rank *rank, const layer_case *c, held *h, bs_error *err) {
  bs_tp_place p = {.struct_size = sizeof p};
  bs_tp_linear_shape s = {.struct_size = sizeof s};
  TRY(bs_tp_get_place(rank, &p, err));
  compute(&h->t, c, p.data_rank);
  TRY(make(rank, c, h, err));
  TRY(bs_tp_linear_get_shape(h->layer, &s, err));
  bs_tp_linear_shape shorter = {.struct_size = offsetof(bs_tp_linear_shape, rows), .rows = -1};
  TRY(bs_tp_linear_get_shape(h->layer, &shorter, err)); /* of an older header */
  MUST(shorter.y_features == s.y_features && shorter.rows == -1, "%s: a shorter shape", c->name);
  int64_t y_begin = 0;
  if (!c->row && !c->whole) { /* the even share */
    const int64_t base = c->N / p.tensor_size, extra = c->N % p.tensor_size, me = p.tensor_rank;
    y_begin = me * base + (me < extra ? me : extra);
    MUST(s.y_features == base + (me < extra), "%s: %d features of y", c->name, (int)s.y_features);
  }
  TRY(own_bias(rank, c, h, y_begin, err));
  TRY(passes(rank, c, h, &s, y_begin, err));
  return weights(c, h, err);
}

int32_t t2_layers(bs_rank *rank, void *user, bs_error *err) {
  int32_t rc = BS_OK;
  (void)user;
  held *h = calloc(1, sizeof *h);
  if (h == NULL) return BS_NO_MEMORY;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0] && rc == BS_OK; ++i) {
    const uint32_t size = bs_rank_get_api()->world_size(rank);
    if (cases[i].method != NULL && size == 3) continue; /* their masks need an even number of ranks */
    memset(h, 0, sizeof *h);
    rc = run_case(rank, &cases[i], h, err);
    bs_tensor *const all[] = {&h->x, &h->y, &h->dx, &h->dy};
    for (size_t t = 0; t < 4; ++t) bs_tp_tensor_free(rank, all[t]);
    bs_tp_linear_free(h->layer);
    bs_source_release(&h->w);
    bs_source_release(&h->b);
  }
  free(h);
  return rc;
}

/* ---- refusals -------------------------------------------------------------------------------- */

typedef struct refusal {
  bs_tp_linear_spec spec;
  uint32_t row;
  const char *id;
} refusal;

int32_t t2_refused(bs_rank *rank, void *user, bs_error *err) {
  static const float zeros[MOST] = {0};
  const bs_tp_linear_spec base = {
      .struct_size = sizeof base, .tokens = B, .out_features = 4, .in_features = 4};
  refusal r[] = {{base, 1, "BS-TP-LINEAR"},        {base, 0, "BS-TP-LINEAR"},  {base, 0, "BS-TP-LINEAR"},
                 {base, 0, "BS-METHOD-PLACEMENT"}, {base, 1, "BS-LAYER-BIAS"}, {base, 0, "BS-TP-STRUCT"}};
  (void)user;
  r[0].spec.gather_output = 1;
  r[1].spec.input_is_parallel = 1;
  r[2].spec.skip_bias_add = 1;
  r[2].spec.activation = BS_ACT_RELU;
  r[3].row = 1; /* column_parallel takes no x that is split */
  r[3].spec.input_is_parallel = 1;
  r[3].spec.method = "column_parallel";
  r[4].spec.bias = 1;
  r[5].spec.struct_size = 8;
  bs_source w;
  TRY(bs_source_from_memory(zeros, BS_F32, 4, 4, 4, &w, err));
  for (size_t i = 0; i < sizeof r / sizeof r[0]; ++i) {
    bs_tp_linear *layer = NULL;
    bs_error e = BS_ERROR_INIT;
    const int32_t rc =
        (r[i].row ? bs_tp_row_linear : bs_tp_column_linear)(rank, &r[i].spec, &w, NULL, &layer, &e);
    MUST(rc != BS_OK && strcmp(e.id, r[i].id) == 0 && layer == NULL, "refusal %d: %s %s", (int)i, e.id,
         e.message);
  }
  bs_tp_linear *layer = NULL;
  bs_tensor x = {.struct_size = sizeof x}, y = x;
  bs_error e = BS_ERROR_INIT;
  TRY(bs_tp_column_linear(rank, &base, &w, NULL, &layer, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, B, 4, &x, err));
  TRY(bs_tp_tensor_make(rank, BS_F32, B, 4, &y, err)); /* y needs two columns */
  MUST(bs_tp_linear_forward(layer, &x, &y, &e) != BS_OK && strcmp(e.id, "BS-TP-LINEAR") == 0, "%s", e.id);
  MUST(bs_tp_linear_forward(layer, NULL, &y, &e) != BS_OK && strcmp(e.id, "BS-TP-LINEAR") == 0, "%s", e.id);
  MUST(bs_tp_linear_backward(layer, &x, &y, NULL, &e) == BS_UNSUPPORTED, "forward only: %s", e.id);
  bs_tp_tensor_free(rank, &x);
  bs_tp_tensor_free(rank, &y);
  bs_tp_linear_free(layer);
  bs_source_release(&w);
  return BS_OK;
}
