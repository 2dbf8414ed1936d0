/* SPDX-License-Identifier: MIT
 * judge.c - the gates of one set of tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
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

/* Fails if X and W come from one generator in the same order: then their outputs are not random. */
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
  for (uint32_t r = 0; r < c->set->y.n; r++) {
    const bs_check_tensor *t = &c->set->y.of[r];
    for (int64_t i = 0; i < t->rows * t->cols; i++) {
      const double value = bs_load_f64(t->dtype, t->data, i);
      lost += isfinite(value) && bs_checking_stored(c->options.y_dtype, value) != value;
    }
  }
  bs_gate_set(next_gate(out, "dtype"), "dtype", -1, (double)lost, 0.0,
              "values of Y that %s does not have; the file's is %s", bs_dtype_name(c->options.y_dtype),
              bs_dtype_name(c->set->y.of[0].dtype));
}

/* Fails features that are all zero although none of their outputs should be near zero. */
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

static int worse(const bs_judgement *a, const bs_judgement *b) {
  return a->worst_ratio > b->worst_ratio;
}

static int is_nothing(const bs_checking *c, const bs_judgement *j) {
  if (j->propagated >= (uint64_t)(c->B * j->features)) return 1;
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (c->reference.magnitude[at] != 0.0) return 0;
  return 1;
}

static int is_wrong(const bs_checking *c, const bs_judgement *j) {
  bs_gate gates[4];
  const uint32_t n = bs_gates_from_judgement(&c->reference, j, -1, gates, 4);
  for (uint32_t g = 0; g < n; g++)
    if (gates[g].state == BS_GATE_FAIL) return 1;
  return 0;
}

static void note(bs_gate *gate, const char *text) {
  const size_t n = strlen(gate->text);
  snprintf(gate->text + n, sizeof gate->text - n, "%s", text);
}

/* finite, and T1 to T3 of the worst rank. */
static int32_t judge_outputs(bs_checking *c, bs_check_result *out, bs_error *err) {
  bs_judgement j, worst = {0};
  for (uint32_t r = 0; r < c->n_whole; r++) {
    bs_judge(&c->reference, &c->arithmetic, &c->prediction, c->y[r], c->N, 0, c->N, &j);
    if (r == 0 || worse(&j, &worst)) {
      worst = j;
      c->worst_rank = r;
    }
  }
  if (is_wrong(c, &worst)) {
    const int32_t rc = bs_checking_try_stored(c, &worst, err);
    if (rc != BS_OK) return rc;
  }
  const int32_t rank = c->layout == BS_CHECK_ALIKE ? (int32_t)c->worst_rank : -1;
  c->noise = worst.predicted > 0 ? worst.measured / worst.predicted : INFINITY;
  c->relative = worst.relative;
  c->worst_ratio = worst.worst_ratio;
  c->wrong = worst.wrong;
  c->misplaced = worst.misplaced;
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
  if (c->sum_stored) note(&first[3], "; the sum was rounded to Y's dtype before the activation");
  if (first[3].state != BS_GATE_SKIPPED) bs_check_drift(c, next_gate(out, "drift"));
  return BS_OK;
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

/* --reduce-dtype without a word of how many ranks there are. */
static void judge_ranks_told(const bs_checking *c, bs_check_result *out) {
  if (!c->reduce_given || c->ranks > 1) return;
  bs_gate_skip(next_gate(out, "ranks"),
               "--reduce-dtype has no effect: nothing tells of ranks whose products are summed (-P N)");
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
    rc = judge_outputs(&c, out, err);
  }
  if (rc == BS_OK) {
    judge_ranks(&c, out);
    bs_check_partials(&c, next_gate(out, "partial"));
    bs_check_sum(&c, next_gate(out, "sum"));
    judge_ranks_told(&c, out);
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
