/* SPDX-License-Identifier: MIT
 * judge.c - the gates of one set of tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

enum { STREAM_LEAST = 64, STREAM_MOST = 65536 };

static bs_gate *next_gate(bs_check_result *out, const char *name) {
  bs_gate *gate = &out->gates[out->n_gates++];
  memset(gate, 0, sizeof *gate);
  snprintf(gate->name, sizeof gate->name, "%s", name);
  gate->rank = -1;
  return gate;
}

static void judge_shape(const bs_checking *c, bs_check_result *out) {
  bs_gate_set(next_gate(out, "shape"), "shape", -1, c->was_turned, 0.0,
              c->was_turned
                  ? "W is [K,N]: a layer has [N,K] (--transposed says that it is meant); judged as turned"
                  : "B %lld, N %lld, K %lld",
              (long long)c->B, (long long)c->N, (long long)c->K);
}

/* Values of one generator have the same order in X and in W: their outputs are no random ones. */
static void judge_stream(const bs_checking *c, bs_check_result *out) {
  const bs_check_tensor *x = &c->set->x.of[0], *w = &c->set->w.of[0];
  int64_t n = c->B * c->K < c->N * c->K ? c->B * c->K : c->N * c->K;
  double sx = 0, sw = 0, sxx = 0, sww = 0, sxw = 0;
  bs_gate *gate = next_gate(out, "stream");
  if (n > STREAM_MOST) n = STREAM_MOST;
  for (int64_t i = 0; i < n; i++) {
    const double a = bs_load_f64(x->dtype, x->data, i), b = bs_load_f64(w->dtype, w->data, i);
    sx += a, sw += b, sxx += a * a, sww += b * b, sxw += a * b;
  }
  const double count = (double)n, vx = sxx - sx * sx / count, vw = sww - sw * sw / count;
  const double r = fabs(sxw - sx * sw / count) / sqrt(vx * vw);
  if (n < STREAM_LEAST || !isfinite(r)) {
    bs_gate_skip(gate, "too few values, or constant ones");
    return;
  }
  bs_gate_set(gate, "stream", -1, r, fmax(0.5, 6.0 / sqrt(count)),
              "correlation of X and W, value by value, of the first %lld", (long long)n);
  if (gate->state == BS_GATE_FAIL) gate->state = BS_GATE_UNKNOWN; /* a warning: it is the user's choice */
}

static void judge_dtype(const bs_checking *c, bs_check_result *out) {
  uint64_t lost = 0;
  uint64_t room = 0;
  for (uint32_t r = 0; r < c->set->y.n; r++) {
    const bs_check_tensor *t = &c->set->y.of[r];
    for (int64_t i = 0; i < t->rows * t->cols; i++) {
      const double value = bs_load_f64(t->dtype, t->data, i);
      bs_store_f64(c->options.y_dtype, &room, 0, value);
      lost += isfinite(value) && bs_load_f64(c->options.y_dtype, &room, 0) != value;
    }
  }
  bs_gate_set(next_gate(out, "dtype"), "dtype", -1, (double)lost, 0.0,
              "values of Y that %s does not have; the file's is %s", bs_dtype_name(c->options.y_dtype),
              bs_dtype_name(c->set->y.of[0].dtype));
}

/* Features that are all zero though none of their outputs should be near it. */
static void judge_zero(const bs_checking *c, bs_check_result *out) {
  const int64_t features = c->reference.features;
  uint64_t empty = 0;
  int32_t rank = -1;
  for (uint32_t r = 0; r < c->n_whole; r++) {
    for (int64_t f = 0; f < features; f++) {
      int zeros = 1, due = 0;
      for (int64_t at = f; zeros && at < c->B * features; at += features) {
        zeros = bs_checking_y(c, r, at) == 0.0;
        due |= fabs(c->reference.y[at]) > c->prediction.bound[at];
      }
      empty += zeros && due;
      if (zeros && due) rank = (int32_t)r;
    }
  }
  bs_gate_set(next_gate(out, "zero"), "zero", rank, (double)empty, 0.0,
              "features of Y that are all zeros and should not be, of %lld",
              (long long)features * c->n_whole);
}

/* Errors to one side, of all outputs or away from zero: in units of the predicted deviation. */
static void judge_drift(const bs_checking *c, bs_check_result *out) {
  bs_gate *gate = next_gate(out, "drift");
  double sum = 0, away = 0, square = 0, n = 0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double want = c->reference.y[at], error = bs_checking_y(c, c->worst_rank, at) - want;
    const double deviation = sqrt(c->prediction.variance[at]);
    if (!isfinite(error) || !(deviation > 0)) continue;
    sum += error / deviation;
    away += (want < 0 ? -error : error) / deviation;
    square += error / deviation * (error / deviation);
    n++;
  }
  if (c->options.activation > BS_ACT_RELU || n < BS_T1_MIN_OUTPUTS) {
    bs_gate_skip(gate,
                 n < BS_T1_MIN_OUTPUTS
                     ? "fewer than 128 outputs"
                     : "gelu and silu may be off to one side within what share/doc/blockshock/ops.md allows");
    return;
  }
  bs_gate_set(gate, "drift", (int32_t)c->worst_rank, fmax(fabs(sum), fabs(away)) / n,
              0.25 + 6.0 / sqrt(n) * fmax(1.0, sqrt(square / n)),
              "mean signed error, in units of the predicted deviation (half an ulp: 1.7)");
}

static int worse(const bs_judgement *a, const bs_judgement *b) {
  return a->worst_ratio > b->worst_ratio;
}

static int is_nothing(const bs_checking *c, const bs_judgement *j) {
  if (j->propagated >= (uint64_t)(c->B * j->features)) return 1;
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (c->reference.magnitude[at] != 0.0) return 0;
  return 1;
}

/* finite, and T1 to T3 of the worst rank. */
static void judge_outputs(bs_checking *c, bs_check_result *out) {
  bs_judgement j, worst = {0};
  for (uint32_t r = 0; r < c->n_whole; r++) {
    bs_judge(&c->reference, &c->arithmetic, &c->prediction, c->y[r], c->N, 0, c->N, &j);
    if (r == 0 || worse(&j, &worst)) {
      worst = j;
      c->worst_rank = r;
    }
  }
  const int32_t rank = c->layout == BS_CHECK_ALIKE ? (int32_t)c->worst_rank : -1;
  c->noise = worst.predicted > 0 ? worst.measured / worst.predicted : INFINITY;
  c->relative = worst.relative;
  c->wrong = worst.wrong;
  c->at_token = worst.at_token;
  c->at_feature = worst.at_feature;
  bs_gate_set(next_gate(out, "finite"), "finite", rank, (double)worst.nonfinite, 0.0,
              "values of Y that are NaN or Inf and should be finite; inputs that are: %llu",
              (unsigned long long)c->reference.nonfinite_inputs);
  judge_zero(c, out);
  bs_gate *first = &out->gates[out->n_gates];
  out->n_gates += bs_gates_from_judgement(&c->reference, &worst, rank, first, 4);
  for (int i = 0; i < 4 && is_nothing(c, &worst); i++)
    if (i < 3 || first[i].state == BS_GATE_PASS)
      bs_gate_skip(&first[i], "every output is zero or not finite by X, W and bias: this proves nothing");
  if (first[3].state != BS_GATE_SKIPPED) judge_drift(c, out);
}

static void judge_ranks(const bs_checking *c, bs_check_result *out) {
  bs_gate *gate = next_gate(out, "T4");
  const size_t bytes = (size_t)c->B * (size_t)c->N * BS_DTYPE_BYTES(c->options.y_dtype);
  int32_t rank = -1;
  uint32_t differ = 0;
  if (c->n_whole < 2) {
    bs_gate_skip(gate, "one Y: there is no other rank's");
    return;
  }
  for (uint32_t r = c->n_whole; r-- > 1;) {
    if (memcmp(c->y[r], c->y[0], bytes) == 0) continue;
    differ++;
    rank = (int32_t)r;
  }
  bs_gate_set(gate, "T4", rank, differ, 0.0, "ranks whose Y has other bits than rank 0's, of %u", c->n_whole);
}

static int is_zero(const bs_checking *c, uint32_t r) {
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (bs_checking_partial(c, r, at) != 0.0) return 0;
  return 1;
}

/* The worst share of its bound by which rank r's partial misses the product of its columns; the bias may be
 * in rank 0's. */
static double partial_off(const bs_checking *c, uint32_t r) {
  double plain = 0, biased = 0;
  const int64_t features = c->reference.features;
  for (int64_t at = 0; at < c->B * features; at++) {
    const double bias = r == 0 && c->set->bias.n > 0
                            ? bs_load_f64(c->set->bias.of[0].dtype, c->set->bias.of[0].data,
                                          c->reference.feature[at % features])
                            : 0.0;
    const double want = c->reference.partial[r][at], got = bs_checking_partial(c, r, at);
    const double with = fabs(got - want), without = fabs(got - (want - bias));
    biased = fmax(biased, isfinite(with) && c->bound[at] > 0 ? with / c->bound[at] : with > 0 ? INFINITY : 0);
    plain = fmax(plain, isfinite(without) && c->bound[at] > 0 ? without / c->bound[at]
                        : without > 0                         ? INFINITY
                                                              : 0);
    if (!isfinite(got) && isfinite(want)) return INFINITY;
  }
  return fmin(plain, biased);
}

static void judge_partials(const bs_checking *c, bs_check_result *out) {
  bs_gate *gate = next_gate(out, "partial");
  double worst = 0;
  int32_t rank = -1;
  for (uint32_t r = 0; r < c->set->partial.n && c->terms; r++) {
    double off = c->columns_known && c->reference.partial ? partial_off(c, r) : 0.0;
    if (!c->columns_known && c->ranks > 1 && is_zero(c, r)) off = INFINITY;
    if (off > worst) rank = (int32_t)r;
    worst = fmax(worst, off);
  }
  if (rank < 0 && !(c->columns_known && c->terms)) {
    bs_gate_skip(gate, c->terms ? "no columns_0, columns_1 ..: which columns of W each rank has is not told"
                                : "no partials of [B,N]");
    return;
  }
  bs_gate_set(gate, "partial", rank, worst, 1.0, "worst |error|/bound of a rank's partial%s",
              isinf(worst) ? ": not finite or all zeros" : "");
}

/* Y against the sum of the partials as they are, with the bias or without. Either may be off by its bound. */
static void judge_sum(const bs_checking *c, bs_check_result *out) {
  bs_gate *gate = next_gate(out, "sum");
  double off[2] = {0, 0};
  const int64_t features = c->reference.features;
  if (!c->terms || c->set->partial.n < c->ranks) {
    bs_gate_skip(gate, c->terms ? "partials of some ranks only" : "no partials of [B,N]");
    return;
  }
  for (int64_t at = 0; at < c->B * features; at++) {
    double sum = 0;
    for (uint32_t r = 0; r < c->set->partial.n; r++) sum += bs_checking_partial(c, r, at);
    for (int with = 0; with <= (c->set->bias.n > 0); with++) {
      if (with)
        sum += bs_load_f64(c->set->bias.of[0].dtype, c->set->bias.of[0].data,
                           c->reference.feature[at % features]);
      const double want = bs_activation_value(c->options.activation, sum);
      const double error = fabs(bs_checking_y(c, c->worst_rank, at) - want), bound = c->prediction.bound[at];
      off[with] = fmax(off[with], error == 0 ? 0 : isfinite(error) && bound > 0 ? error / bound : INFINITY);
    }
  }
  bs_gate_set(gate, "sum", (int32_t)c->worst_rank, c->set->bias.n > 0 ? fmin(off[0], off[1]) : off[0], 2.0,
              "worst |Y - sum of partials|/bound; %u partials", c->set->partial.n);
}

int32_t bs_check_judge(const bs_check_set *set, const bs_check_options *options, bs_check_result *out,
                       bs_error *err) {
  bs_checking c;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_checking_open(set, options, &c, err);
  if (rc == BS_OK) {
    judge_shape(&c, out);
    judge_stream(&c, out);
    judge_dtype(&c, out);
    judge_outputs(&c, out);
    judge_ranks(&c, out);
    judge_partials(&c, out);
    judge_sum(&c, out);
    out->y_dtype = c.options.y_dtype;
    out->B = c.B, out->N = c.N, out->K = c.K;
    out->features = c.reference.features;
    out->ranks = c.ranks;
    for (uint32_t g = 0; g < out->n_gates; g++) out->wrong |= out->gates[g].state == BS_GATE_FAIL;
    if (out->wrong) rc = bs_check_cause(&c, out, err);
  }
  bs_checking_close(&c);
  return rc;
}
