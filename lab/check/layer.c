/* SPDX-License-Identifier: MIT
 * layer.c - makes a layer from tensors: its shape, its dtypes, the ranks' parts, and its reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

enum { FEWEST_FEATURES = 16 };
#define MOST_PRODUCTS ((int64_t)1 << 30) /* of the reference if the number of features is not given */
#define MOST_OUTPUTS ((int64_t)1 << 22)

/* Every value is one of `dtype`. */
static int holds(const bs_check_tensor *t, uint32_t dtype) {
  for (int64_t i = 0; i < t->rows * t->cols; i++) {
    const double value = bs_load_f64(t->dtype, t->data, i);
    if (bs_checking_stored(dtype, value) != value && value == value) return 0;
  }
  return 1;
}

/* .npy has no bf16: such values are written as f32. */
static uint32_t dtype_of(const bs_check_set *set) {
  const bs_check_tensor *y = &set->y.of[0];
  if (y->dtype != BS_F32 || !holds(&set->x.of[0], BS_BF16) || !holds(&set->w.of[0], BS_BF16)) return y->dtype;
  for (uint32_t r = 0; r < set->y.n; r++)
    if (!holds(&set->y.of[r], BS_BF16)) return y->dtype;
  return BS_BF16;
}

static int32_t bad_shape(bs_error *err, const char *name, uint32_t rank, const bs_check_tensor *t,
                         const bs_checking *c) {
  bs_error_set(err, BS_INPUT, "BS-CHECK-SHAPE",
               "%s of rank %u is %lld x %lld: the layer is B %lld, N %lld, K %lld", name, rank,
               (long long)t->rows, (long long)t->cols, (long long)c->B, (long long)c->N, (long long)c->K);
  bs_error_hint(err, "X is [B,K], W [N,K] (--transposed: [K,N]), Y [B,N] or its parts on ranks");
  return BS_INPUT;
}

static void *turn(const bs_check_tensor *t) {
  const size_t bytes = BS_DTYPE_BYTES(t->dtype);
  char *out = malloc((size_t)t->rows * (size_t)t->cols * bytes);
  if (out == NULL) return NULL;
  for (int64_t r = 0; r < t->rows; r++) {
    for (int64_t k = 0; k < t->cols; k++)
      memcpy(out + (size_t)(k * t->rows + r) * bytes,
             (const char *)t->data + (size_t)(r * t->cols + k) * bytes, bytes);
  }
  return out;
}

static int is_empty(const bs_check_tensor *t) {
  return t->rows * t->cols == 0;
}

/* Are they terms of a sum over ranks: of [B,N], or empty? */
static int are_terms(const bs_checking *c, const bs_check_list *partial) {
  uint32_t whole = 0, empty = 0;
  for (uint32_t r = 0; r < partial->n; r++) {
    whole += partial->of[r].rows == c->B && partial->of[r].cols == c->N;
    empty += is_empty(&partial->of[r]);
  }
  return whole > 0 && whole + empty == partial->n;
}

static uint32_t most_ranks(const bs_check_set *set) {
  uint32_t most = set->partial.n > set->y.n ? set->partial.n : set->y.n;
  return set->columns.n > most ? set->columns.n : most;
}

static int32_t find_ranks(bs_checking *c, bs_error *err) {
  c->ranks = most_ranks(c->set);
  if (c->options.ranks != 0 && c->options.ranks < c->ranks)
    return bs_error_set(err, BS_INPUT, "BS-CHECK-RANKS",
                        "%u ranks are asked for, and there are tensors of %u", c->options.ranks, c->ranks);
  if (c->options.ranks != 0) c->ranks = c->options.ranks;
  return BS_OK;
}

/* Finds how Y is divided over the ranks; 0: its shape fits no division. */
static int lay_out(bs_checking *c) {
  const bs_check_list *y = &c->set->y;
  int64_t rows = 0, cols = 0, alike = 1, narrow = 1, low = 1;
  for (uint32_t r = 0; r < y->n; r++) {
    alike = alike && !is_empty(&y->of[r]);
    if (is_empty(&y->of[r])) continue; /* an empty part */
    rows += y->of[r].rows;
    cols += y->of[r].cols;
    alike = alike && y->of[r].rows == c->B && y->of[r].cols == c->N;
    narrow = narrow && y->of[r].rows == c->B;
    low = low && y->of[r].cols == c->N;
  }
  c->layout = alike ? BS_CHECK_ALIKE : narrow ? BS_CHECK_FEATURES : BS_CHECK_TOKENS;
  return alike || (narrow && cols == c->N) || (low && rows == c->B);
}

static int32_t find_shape(bs_checking *c, bs_error *err) {
  const bs_check_tensor *x = &c->set->x.of[0], *w = &c->set->w.of[0];
  c->B = x->rows;
  c->K = x->cols;
  c->was_turned = !c->options.transposed && w->cols != c->K && w->rows == c->K;
  const int turned = c->options.transposed || c->was_turned;
  c->N = turned ? w->cols : w->rows;
  if ((turned ? w->rows : w->cols) != c->K) return bad_shape(err, "W", 0, w, c);
  if (c->set->bias.n > 0 && c->set->bias.of[0].rows * c->set->bias.of[0].cols != c->N)
    return bad_shape(err, "bias", 0, &c->set->bias.of[0], c);
  for (uint32_t r = 0; r < c->set->y.n; r++)
    if (!lay_out(c)) return bad_shape(err, "Y", r, &c->set->y.of[r], c);
  c->terms = are_terms(c, &c->set->partial);
  return find_ranks(c, err);
}

static int32_t open_sources(bs_checking *c, bs_error *err) {
  const bs_check_tensor *x = &c->set->x.of[0], *w = &c->set->w.of[0], *b = &c->set->bias.of[0];
  const int turned = c->options.transposed || c->was_turned;
  if (turned || c->N == c->K) {
    c->turned = turn(w);
    if (c->turned == NULL) return bs_no_memory(err, "W transposed");
  }
  int32_t rc = bs_source_from_memory(x->data, x->dtype, c->B, c->K, c->K, &c->x, err);
  if (rc == BS_OK)
    rc = bs_source_from_memory(turned ? c->turned : w->data, w->dtype, c->N, c->K, c->K, &c->w, err);
  if (rc == BS_OK && c->N == c->K)
    rc = bs_source_from_memory(turned ? w->data : c->turned, w->dtype, c->N, c->K, c->K, &c->w_turned, err);
  if (rc == BS_OK && c->set->bias.n > 0)
    rc = bs_source_from_memory(b->data, b->dtype, 1, c->N, c->N, &c->bias, err);
  return rc;
}

/* Takes rank r's columns. Returns 0 if one is outside the layer or belongs to another rank too; columns_why
 * names it. */
static int take_columns(bs_checking *c, uint32_t r, const bs_check_tensor *t) {
  for (int64_t i = 0; i < t->rows * t->cols; i++) {
    const double k = bs_load_f64(t->dtype, t->data, i);
    if (!(k >= 0.0 && k < (double)c->K && k == floor(k))) {
      snprintf(c->columns_why, sizeof c->columns_why, "columns of rank %u hold %.6g: no column of 0 to %lld",
               r, k, (long long)c->K - 1);
      return 0;
    }
    uint32_t *owner = &c->column_rank[(int64_t)k];
    if (*owner != UINT32_MAX) {
      snprintf(c->columns_why, sizeof c->columns_why, "column %.0f belongs to rank %u and to rank %u", k,
               *owner, r);
      return 0;
    }
    *owner = r;
  }
  return 1;
}

/* Gives columns without a known rank to one additional rank, which stands for the ranks that are not in the
 * file. */
static void give_rest(bs_checking *c, uint32_t told) {
  if (c->ranks <= told) c->ranks = told + 1;
  for (int64_t k = 0; k < c->K; k++)
    if (c->column_rank[k] == UINT32_MAX) c->column_rank[k] = c->ranks - 1;
}

static int are_known(bs_checking *c) {
  const bs_check_list *columns = &c->set->columns;
  int64_t left = 0;
  if (columns->n == 0 && c->ranks < 2) return 1; /* all are the one rank's */
  if (columns->n == 0)
    snprintf(c->columns_why, sizeof c->columns_why,
             "no columns_0, columns_1 ..: the columns of W of each rank are not known");
  for (uint32_t r = 0; r < columns->n; r++)
    if (!take_columns(c, r, &columns->of[r])) return 0;
  for (int64_t k = 0; k < c->K; k++) left += c->column_rank[k] == UINT32_MAX;
  if (columns->n == 0 || left == 0) return columns->n > 0;
  snprintf(c->columns_why, sizeof c->columns_why, "%lld of %lld columns belong to no rank", (long long)left,
           (long long)c->K);
  if (c->set->partial.n > columns->n) return 0;
  give_rest(c, columns->n);
  return 1;
}

/* Finds which rank multiplies column k, if the ranks' products are terms of a sum. The columns of the ranks
 * must be all of K, each once; otherwise equal shares in order are assumed, for the prediction only. */
static int32_t find_columns(bs_checking *c, bs_error *err) {
  if (!c->terms && !(c->ranks > 1 && (c->reduce_given || c->set->columns.n > 1))) return BS_OK;
  c->column_rank = malloc((size_t)c->K * sizeof *c->column_rank);
  if (c->column_rank == NULL) return bs_no_memory(err, "the ranks of %lld columns", (long long)c->K);
  for (int64_t k = 0; k < c->K; k++) c->column_rank[k] = UINT32_MAX;
  c->columns_known = are_known(c);
  for (int64_t k = 0; !c->columns_known && k < c->K; k++)
    c->column_rank[k] = (uint32_t)((uint64_t)k * c->ranks / (uint64_t)c->K);
  if (c->ranks < 2) {
    free(c->column_rank);
    c->column_rank = NULL;
  }
  return BS_OK;
}

static void put_y(bs_checking *c, uint32_t whole, const bs_check_tensor *t, int64_t row, int64_t col) {
  for (int64_t b = 0; b < t->rows; b++) {
    for (int64_t n = 0; n < t->cols; n++)
      bs_store_f64(c->options.y_dtype, c->y[whole], (row + b) * c->N + col + n,
                   bs_load_f64(t->dtype, t->data, b * t->cols + n));
  }
}

/* Takes each rank's own Y if all ranks have all of it, else joins their parts. */
static int32_t gather_y(bs_checking *c, bs_error *err) {
  int64_t row = 0, col = 0;
  c->n_whole = c->layout == BS_CHECK_ALIKE ? c->set->y.n : 1;
  c->y = calloc(c->n_whole, sizeof *c->y);
  for (uint32_t r = 0; c->y != NULL && r < c->n_whole; r++) {
    c->y[r] = malloc((size_t)c->B * (size_t)c->N * BS_DTYPE_BYTES(c->options.y_dtype));
    if (c->y[r] == NULL) return bs_no_memory(err, "Y of rank %u", r);
  }
  if (c->y == NULL) return bs_no_memory(err, "Y");
  for (uint32_t r = 0; r < c->set->y.n; r++) {
    const bs_check_tensor *t = &c->set->y.of[r];
    put_y(c, c->layout == BS_CHECK_ALIKE ? r : 0, t, row, col);
    if (c->layout == BS_CHECK_FEATURES) col += t->cols;
    if (c->layout == BS_CHECK_TOKENS) row += t->rows;
  }
  return BS_OK;
}

static int32_t settle(bs_checking *c, bs_error *err) {
  bs_check_options *o = &c->options;
  if (o->y_dtype == 0) o->y_dtype = dtype_of(c->set);
  if (!bs_dtype_is_float(o->y_dtype))
    return bs_error_set(err, BS_INPUT, "BS-CHECK-DTYPE", "Y is %s: outputs of floating point are judged",
                        bs_dtype_name(o->y_dtype));
  c->reduce_given = o->reduce_dtype != 0;
  if (o->reduce_dtype == 0) o->reduce_dtype = o->y_dtype == BS_F64 ? BS_F64 : BS_F32;
  int64_t most = MOST_PRODUCTS / c->K / c->B;
  if (most > MOST_OUTPUTS / c->B) most = MOST_OUTPUTS / c->B;
  if (o->max_features == 0) o->max_features = most > FEWEST_FEATURES ? most : FEWEST_FEATURES;
  c->arithmetic = (bs_arithmetic){.y_dtype = o->y_dtype,
                                  .reduce_dtype = o->reduce_dtype,
                                  .accumulate = o->y_dtype == BS_F64 ? BS_ACC_F64 : BS_ACC_F32,
                                  .activation = o->activation,
                                  .usual_tail = 1,
                                  .wire_steps = 2};
  return BS_OK;
}

/* Detects ranks that multiply zeros instead of others' weights: a partial is NaN although its own product is
 * not, and the token's X holds NaN or Inf. */
static uint32_t has_zero_products(const bs_checking *c) {
  const bs_reference *ref = &c->reference;
  for (uint32_t r = 0; c->terms && c->ranks > 1 && r < c->set->partial.n; r++) {
    for (int64_t at = 0; at < c->B * ref->features; at++) {
      if (!ref->token_nonfinite[at / ref->features] || !isnan(bs_checking_partial(c, r, at))) continue;
      if (!isnan(c->columns_known ? ref->partial[r][at] : bs_checking_sum(c, at))) return 1;
    }
  }
  return 0;
}

static int32_t refer(bs_checking *c, bs_error *err) {
  const bs_reference_request request = {
      .x = &c->x,
      .w = &c->w,
      .bias = c->set->bias.n > 0 ? &c->bias : NULL,
      .world_size = c->column_rank ? c->ranks : 1,
      .column_rank = c->column_rank,
      .max_features = c->options.max_features < c->N ? c->options.max_features : 0,
      .activation = c->options.activation};
  int32_t rc = bs_reference_compute(&request, &c->reference, err);
  if (rc == BS_OK) c->arithmetic.zero_products = has_zero_products(c);
  if (rc == BS_OK) rc = bs_predict(&c->reference, &c->arithmetic, &c->prediction, err);
  if (rc != BS_OK) return rc;
  c->bound = malloc((size_t)(c->B * c->reference.features) * sizeof *c->bound);
  if (c->bound == NULL) return bs_no_memory(err, "the bounds of the sums");
  bs_reference plain = c->reference; /* before the activation; owns nothing */
  bs_arithmetic sums = c->arithmetic;
  if (plain.pre != NULL) plain.y = plain.pre;
  plain.pre = NULL;
  sums.activation = BS_ACT_NONE;
  rc = bs_bound_sums(&plain, &sums, c->bound, err);
  if (rc != BS_OK) return rc;
  return bs_checking_allow(c, err);
}

int32_t bs_checking_open(const bs_check_set *set, const bs_check_options *options, bs_checking *out,
                         bs_error *err) {
  memset(out, 0, sizeof *out);
  out->set = set;
  out->options = *options;
  int32_t rc = find_shape(out, err);
  if (rc == BS_OK) rc = settle(out, err);
  if (rc == BS_OK) rc = open_sources(out, err);
  if (rc == BS_OK) rc = find_columns(out, err);
  if (rc == BS_OK) rc = gather_y(out, err);
  return rc == BS_OK ? refer(out, err) : rc;
}

void bs_checking_close(bs_checking *c) {
  bs_source *all[] = {&c->x, &c->w, &c->w_turned, &c->bias};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) bs_source_release(all[i]);
  for (uint32_t r = 0; c->y != NULL && r < c->n_whole; r++) free(c->y[r]);
  bs_prediction_free(&c->prediction);
  bs_reference_free(&c->reference);
  free(c->column_rank);
  free(c->turned);
  free(c->bound);
  free(c->y);
}

double bs_checking_sum(const bs_checking *c, int64_t at) {
  return bs_reference_sum(&c->reference, at);
}

static int64_t place_of(const bs_checking *c, int64_t at) {
  const int64_t features = c->reference.features;
  return at / features * c->N + c->reference.feature[at % features];
}

double bs_checking_y(const bs_checking *c, uint32_t r, int64_t at) {
  return bs_load_f64(c->options.y_dtype, c->y[r], place_of(c, at));
}

double bs_checking_partial(const bs_checking *c, uint32_t r, int64_t at) {
  const bs_check_tensor *t = &c->set->partial.of[r];
  return is_empty(t) ? 0.0 : bs_load_f64(t->dtype, t->data, place_of(c, at));
}

double bs_checking_bias(const bs_checking *c, int64_t at) {
  const bs_check_tensor *b = &c->set->bias.of[0];
  return c->set->bias.n > 0 ? bs_load_f64(b->dtype, b->data, c->reference.feature[at % c->reference.features])
                            : 0.0;
}

/* Computes the product element by element: rank 0's product cannot be separated from a sum with a bias that
 * is not finite. */
static double product_of(const bs_checking *c, uint32_t r, int64_t at) {
  const bs_check_tensor *x = &c->set->x.of[0], *w = &c->set->w.of[0];
  const int turned = c->options.transposed || c->was_turned;
  const int64_t b = at / c->reference.features, n = c->reference.feature[at % c->reference.features];
  double sum = 0.0;
  for (int64_t k = 0; k < c->K; k++)
    if (c->column_rank == NULL || c->column_rank[k] == r)
      sum += bs_load_f64(x->dtype, x->data, b * c->K + k) *
             bs_load_f64(w->dtype, w->data, turned ? k * c->N + n : n * c->K + k);
  return sum;
}

double bs_checking_product(const bs_checking *c, uint32_t r, int64_t at) {
  const double bias = r == 0 ? bs_checking_bias(c, at) : 0.0;
  if (!isfinite(bias)) return product_of(c, r, at);
  return (c->reference.partial != NULL ? c->reference.partial[r][at] : bs_checking_sum(c, at)) - bias;
}

double bs_checking_stored(uint32_t dtype, double value) {
  uint64_t room = 0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}
