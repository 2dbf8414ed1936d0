/* SPDX-License-Identifier: MIT
 * mistake.c - computes the Y of each known mistake and names the one that fits best. It also names a second
 * one that fits as well: Y does not tell them apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

enum kind {
  MIXED,   /* act(sum S + partial P_rank + bias b): S = X W^T, P the product of one rank's columns */
  PRODUCT, /* of other inputs or weights */
  LATE,    /* the bias added after the activation */
  EARLY,   /* the activation of each partial; bias: in rank 0's, in each, or afterwards */
};

typedef struct mistake {
  enum kind kind;
  uint32_t activation, rank;
  double sum, partial, bias;
  const char *text; /* printf text of `number` and `which` */
  double number;
  const char *which;
} mistake;

typedef struct fit {
  mistake m;
  double off; /* in bounds */
} fit;

enum { FITS = 3 };
typedef struct search {
  const bs_checking *c;
  const double *product; /* of PRODUCT */
  double none;           /* by how many bounds the right outputs miss Y */
  fit best[FITS];        /* the nearest first */
  int n;
} search;

#define NEAR 8.0     /* bounds: mistakes make sums of more terms than the right layer */
#define EXPLAINS 4.0 /* so much nearer than the right outputs a mistake must be */
#define SURE 2.0     /* bounds: a mistake this near fits too */

static int has_partials(const bs_checking *c) {
  return c->ranks > 1 && (c->columns_known || (c->terms && c->set->partial.n == c->ranks));
}

/* The partial as it should be if the columns are known, since the partial in the file may be wrong. */
static double partial_of(const bs_checking *c, uint32_t r, int64_t at) {
  return c->columns_known ? bs_checking_product(c, r, at) : bs_checking_partial(c, r, at);
}

static double early(const bs_checking *c, const mistake *m, int64_t at) {
  const double bias = bs_checking_bias(c, at);
  double sum = m->bias < 0 ? bias : 0.0;
  for (uint32_t r = 0; r < c->ranks; r++) {
    const int with = m->bias > 1 || (m->bias > 0 && r == 0);
    sum += bs_activation_value(m->activation, partial_of(c, r, at) + (with ? bias : 0.0));
  }
  return sum;
}

/* The value of Y at this place under the mistake. */
static double would_be(const search *s, const mistake *m, int64_t at) {
  const bs_checking *c = s->c;
  const double bias = bs_checking_bias(c, at), product = bs_checking_sum(c, at) - bias;
  if (m->kind == PRODUCT) return bs_activation_value(m->activation, s->product[at]);
  if (m->kind == EARLY) return early(c, m, at);
  if (m->kind == LATE) return bs_activation_value(m->activation, product) + bias;
  double z = m->sum * product + m->bias * bias;
  if (m->partial != 0) z += m->partial * partial_of(c, m->rank, at);
  return bs_activation_value(m->activation, z);
}

/* The distance of whole Y number `y` from the mistake's result, in bounds; or more than `limit`. */
static double off_by(const search *s, const mistake *m, uint32_t y, double limit) {
  const bs_checking *c = s->c;
  const double u = bs_dtype_unit_roundoff(c->options.y_dtype), size = fmax(1.0, fabs(m->sum));
  double worst = 0;
  for (int64_t at = 0; at < c->B * c->reference.features && worst <= limit; at++) {
    const double want = would_be(s, m, at), error = fabs(bs_checking_y(c, y, at) - want);
    const double bound = size * c->bound[at] + u * fabs(want);
    if (!isfinite(bs_checking_sum(c, at))) continue; /* the gates finite and T3 report it */
    worst = fmax(worst, error == 0 ? 0 : isfinite(error) && bound > 0 ? error / bound : INFINITY);
  }
  return worst;
}

static void try_one(search *s, mistake m) {
  const fit mine = {m, off_by(s, &m, s->c->worst_rank, NEAR)};
  int at = s->n < FITS ? s->n : FITS;
  if (!(mine.off <= NEAR && mine.off * EXPLAINS <= s->none)) return;
  while (at > 0 && s->best[at - 1].off > mine.off) {
    if (at < FITS) s->best[at] = s->best[at - 1];
    at--;
  }
  if (at < FITS) s->best[at] = mine;
  if (s->n < FITS) s->n++;
}

static mistake mixed(const bs_checking *c, double sum, double bias, const char *text, double number) {
  return (mistake){.kind = MIXED,
                   .activation = c->options.activation,
                   .sum = sum,
                   .bias = bias,
                   .text = text,
                   .number = number};
}

static void try_bias(search *s) {
  const bs_checking *c = s->c;
  const uint32_t most = c->ranks > 16 ? c->ranks : 16;
  if (c->set->bias.n == 0) return;
  try_one(s, mixed(c, 1, 0, "the bias is lost: Y has none", 0));
  try_one(s, mixed(c, 1, 2, "the bias is added twice", 0));
  for (uint32_t n = 2; n <= most; n++) {
    if (n > 2)
      try_one(
          s, mixed(c, 1, n,
                   n == c->ranks ? "the bias is added by every rank: %g times" : "the bias is added %g times",
                   n));
    try_one(s, mixed(c, 1, 1.0 / n, "only a part of the bias is added: 1/%g of it", n));
    try_one(s, mixed(c, 1.0 / n, 1,
                     "the sum is divided by %g before the bias is added: a mean in the place of a sum", n));
    try_one(s,
            mixed(c, n, 1,
                  "the sum is multiplied by %g before the bias is added, as if it was reduced more than once",
                  n));
  }
  if (c->options.activation != BS_ACT_NONE)
    try_one(s, (mistake){.kind = LATE,
                         .activation = c->options.activation,
                         .sum = 1,
                         .text = "the bias is added after the activation"});
}

static void try_activations(search *s) {
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_GELU_TANH; a++) {
    mistake m = mixed(s->c, 1, 1, "Y was made with %s, where %s was asked for (--activation)", 0);
    m.activation = a;
    m.which = a == BS_ACT_NONE ? "no activation" : bs_name_of(BS_NAMES_ACTIVATION, a);
    if (a != s->c->options.activation) try_one(s, m);
  }
}

/* A partial may hold the bias, which then is lost or counted with it. */
static void try_rank(search *s, uint32_t r, double sum, double partial, double bias, const char *text) {
  const bs_checking *c = s->c;
  mistake m = mixed(c, sum, bias, text, r);
  m.partial = partial;
  m.rank = r;
  try_one(s, m);
}

static void try_partials(search *s) {
  const bs_checking *c = s->c;
  const int biased = c->set->bias.n > 0;
  if (!has_partials(c)) return;
  for (int with = -1; with <= 2 && c->options.activation != BS_ACT_NONE; with++) {
    if (with == 0 || (with != 1 && !biased)) continue;
    try_one(s, (mistake){.kind = EARLY,
                         .activation = c->options.activation,
                         .sum = 1,
                         .bias = with,
                         .text = "the activation is applied to each partial, not to their sum"});
  }
  for (uint32_t r = 0; r < c->ranks; r++) {
    try_rank(s, r, 1, -1, 1, "the partial of a rank is missing in the sum: rank %g");
    try_rank(s, r, 1, 1, 1, "the partial of a rank is counted twice: rank %g");
    if (biased) {
      try_rank(s, r, 1, -1, 0, "the partial of a rank is missing in the sum, and the bias with it: rank %g");
      try_rank(s, r, 1, 1, 2, "the partial of a rank is counted twice, and the bias with it: rank %g");
      if (c->ranks > 2)
        try_rank(s, r, 0, 1, 1,
                 "Y is the partial of one rank and the bias: the partials were not summed: rank %g");
    }
    if (c->ranks > 2) /* of two ranks it is the same as the other one lost */
      try_rank(s, r, 0, 1, 0, "Y is the partial of one rank: the partials were not summed: rank %g");
  }
}

/* 1: each rank's Y is its own partial, with `bias` biases. */
static int all_alone(const search *s, double bias) {
  const bs_checking *c = s->c;
  for (uint32_t r = 0; r < c->n_whole; r++) {
    mistake m = mixed(c, 0, bias, "", 0);
    m.partial = 1;
    m.rank = r;
    if (off_by(s, &m, r, NEAR) > NEAR) return 0;
  }
  return c->n_whole > 1 && c->n_whole == c->ranks && has_partials(c);
}

/* n or 1/n if the factor is near that: Y's own roundings change it. */
static double plain_factor(double factor) {
  const double n = factor < 1 ? round(1 / factor) : round(factor);
  const double plain = factor < 1 ? 1 / n : n;
  return n >= 1 && fabs(factor / plain - 1) < 1e-3 ? plain : factor;
}

/* Y = s X W^T + t b, by least squares; s = t is a multiple of the whole. */
static void try_factors(search *s) {
  const bs_checking *c = s->c;
  double pp = 0, pb = 0, bb = 0, yp = 0, yb = 0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double b = bs_checking_bias(c, at), p = bs_checking_sum(c, at) - b,
                 y = bs_checking_y(c, c->worst_rank, at);
    if (!isfinite(p) || !isfinite(b) || !isfinite(y)) continue;
    pp += p * p, pb += p * b, bb += b * b, yp += y * p, yb += y * b;
  }
  const double whole = plain_factor((yp + yb) / (pp + 2 * pb + bb)), det = pp * bb - pb * pb;
  if (isfinite(whole))
    try_one(s, mixed(c, whole, whole, "Y is a multiple of the right outputs: %.6g times", whole));
  if (s->n > 0 || !(det > 1e-9 * pp * bb)) return;
  mistake m = mixed(c, (yp * bb - yb * pb) / det, (yb * pp - yp * pb) / det, NULL, 0);
  try_one(s, m);
}

static void say(const mistake *m, const bs_checking *c, char *text, size_t size) {
  if (m->text == NULL)
    snprintf(text, size, "Y is %.4g X W^T + %.4g bias", m->sum, m->bias);
  else if (m->which != NULL)
    snprintf(text, size, m->text, m->which, bs_name_of(BS_NAMES_ACTIVATION, c->options.activation));
  else
    snprintf(text, size, m->text, m->number);
}

static void say_best(const search *s, char *text, size_t size) {
  for (int i = 0; i < s->n; i++) {
    const size_t at = strlen(text);
    if (i > 0 && s->best[i].off > fmax(SURE, s->best[0].off)) break;
    if (i > 0) snprintf(text + at, size - at, "; or ");
    say(&s->best[i].m, s->c, text + strlen(text), size - strlen(text));
  }
}

/* Y = act(x w^T + b) of another x or w. */
static int32_t try_product(search *s, const bs_source *x, const bs_source *w, const char *text,
                           const char *which, bs_error *err) {
  const bs_checking *c = s->c;
  const bs_reference_request request = {
      .x = x,
      .w = w,
      .bias = c->set->bias.n > 0 ? &c->bias : NULL,
      .world_size = 1,
      .max_features = c->options.max_features < c->N ? c->options.max_features : 0};
  bs_reference other = {0};
  const int32_t rc = bs_reference_compute(&request, &other, err);
  if (rc != BS_OK) return rc;
  s->product = other.y;
  mistake m = mixed(c, 1, 1, text, 0);
  m.kind = PRODUCT;
  m.which = which;
  try_one(s, m);
  bs_reference_free(&other);
  return BS_OK;
}

static int32_t round_to(const bs_source *from, uint32_t dtype, double **out_values, bs_source *out,
                        bs_error *err) {
  double *values = malloc((size_t)(from->rows * from->cols) * sizeof *values);
  *out_values = values;
  if (values == NULL) return bs_no_memory(err, "rounded inputs");
  int32_t rc = from->read(from->ctx, 0, from->rows, NULL, BS_F64, values, from->cols, err);
  for (int64_t i = 0; rc == BS_OK && i < from->rows * from->cols; i++)
    values[i] = bs_checking_stored(dtype, values[i]);
  return rc == BS_OK ? bs_source_from_memory(values, BS_F64, from->rows, from->cols, from->cols, out, err)
                     : rc;
}

static int32_t try_rounded_to(search *s, uint32_t dtype, bs_error *err) {
  const bs_checking *c = s->c;
  const char *name = bs_dtype_name(dtype);
  double *x_values = NULL, *w_values = NULL;
  bs_source x = {0}, w = {0};
  int32_t rc = round_to(&c->x, dtype, &x_values, &x, err);
  if (rc == BS_OK) rc = round_to(&c->w, dtype, &w_values, &w, err);
  if (rc == BS_OK) rc = try_product(s, &c->x, &w, "W was rounded to a narrower dtype, %s", name, err);
  if (rc == BS_OK) rc = try_product(s, &x, &c->w, "X was rounded to a narrower dtype, %s", name, err);
  if (rc == BS_OK) rc = try_product(s, &x, &w, "X and W were rounded to a narrower dtype, %s", name, err);
  bs_source_release(&x);
  bs_source_release(&w);
  free(x_values);
  free(w_values);
  return rc;
}

/* Tries dtypes whose rounding causes an error of the observed size. */
static int32_t try_rounded(search *s, bs_error *err) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof dtypes / sizeof dtypes[0]; i++) {
    const double u = bs_dtype_unit_roundoff(dtypes[i]);
    if (u > bs_dtype_unit_roundoff(s->c->options.y_dtype) && s->c->relative <= 2.0 * u &&
        s->c->relative >= 0.05 * u)
      rc = try_rounded_to(s, dtypes[i], err);
  }
  return rc;
}

static void try_formulas(search *s) {
  try_bias(s);
  try_activations(s);
  try_partials(s);
  if (s->c->options.activation == BS_ACT_NONE) try_factors(s);
}

int32_t bs_check_mistake(const bs_checking *c, char *text, size_t size, bs_error *err) {
  search s = {.c = c};
  int32_t rc = BS_OK;
  const mistake right = mixed(c, 1, 1, "", 0);
  text[0] = '\0';
  s.none = off_by(&s, &right, c->worst_rank, INFINITY);
  for (int with = 0; with <= (c->set->bias.n > 0); with++) {
    if (!all_alone(&s, with)) continue;
    snprintf(text, size,
             "the partials were not summed (no all-reduce): the Y of each rank is its own partial%s",
             with ? " and the bias" : "");
    return BS_OK;
  }
  if (c->N == c->K)
    rc = try_product(&s, &c->x, &c->w_turned, "W is transposed: Y is X W, not X W^T", NULL, err);
  if (rc == BS_OK) try_formulas(&s);
  if (rc == BS_OK && s.n == 0) rc = try_rounded(&s, err);
  if (rc == BS_OK) say_best(&s, text, size);
  return rc;
}
