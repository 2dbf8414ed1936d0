/* SPDX-License-Identifier: MIT
 * judge.c - when a value is wrong.
 *
 * The truth t is the graph as it is written: no pass, every float in f64, on ref. Each run in the graph's own
 * dtypes rounds: a step gives its exact result times 1 + d with |d| <= 4 ulp = 8 u (expr.h), a sum of
 * products that of inputs which differ by such factors (backward error). So the graph is also run in f64 with
 * every input, every weight and every result that rounding touches multiplied by factors 1 + 8 u r, r uniform
 * in -1..1, independent for each element. The largest deviation of some such runs from t is S, for each
 * element of each output. What steps give exactly (views, min, max, select) gets no factor: limits stay
 * limits.
 *
 *   right: |y - z| <= 4 S + 16 u |z| + the smallest normal number, where z is t, or what cpu or ref gives
 *          without passes. NaN must be NaN and infinities equal.
 *
 * S comes from 8 runs; before a value is called wrong, from 64 more, every second of which also adds numbers
 * of the size of the smallest normal one to what nodes give (kernels may flush what is smaller to 0). An
 * element whose class (NaN, infinity, finite) is not the same in all noisy runs is not judged. At last the
 * value may be that of the graph in its stable spelling: softplus for log(1 + e^x), softmax for e / sum(e), 0
 * for what a row of -inf attends to (docs/models.md lists these). */
#include "tests/graph/fuzz_passes/judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tests/graph/fuzz_passes/patterns.h"

enum { FEW = 8, MANY = 64 };

static const mode mode_off = {"cpu", 0, 1, {"all"}}, mode_ref = {"ref", 0, 1, {"all"}},
                  mode_truth = {"ref", 1, 1, {"all"}};

typedef struct bench {
  judging *j;
  machine *plain, *noisy, *stable;
  result off, ref, truth, stable_truth, stable_off,
      stable_ref; /* off: cpu; off and ref: in the graph's dtypes */
  result few[FEW], many[MANY], stable_few[FEW];
  int has_few, has_many, has_stable;
} bench;

static double rounded(uint32_t dtype, double x) {
  unsigned char one[8];
  bs_store_f64(dtype, one, 0, x);
  return bs_load_f64(dtype, one, 0);
}

static int class_of(double x) {
  return isnan(x) ? 3 : isinf(x) ? (x > 0 ? 1 : 2) : 0;
}

static int agree(double x, double want, double bound) {
  if (class_of(x) != class_of(want)) return 0;
  return class_of(x) != 0 || fabs(x - want) <= bound;
}

/* A cast may have made the output wider than what it comes from. */
static double base_bound(const bench *b, uint32_t dtype, double z) {
  if (!isfinite(z) || !is_float_dtype(dtype)) return 0;
  const double own = smallest_normal(dtype), graph = smallest_normal(b->j->graph->dtype);
  return 16 * bs_dtype_unit_roundoff(dtype) * fabs(z) + (own > graph ? own : graph);
}

/* The largest deviation of noisy runs; -1: the element has no one class. */
static double spread_of(const result *runs, uint32_t n, uint32_t k, int64_t i, double t) {
  double most = 0;
  for (uint32_t r = 0; r < n; r++) {
    if (runs[r].status != BS_OK) continue;
    const double x = runs[r].outputs[k][i];
    if (class_of(x) != class_of(t)) return -1;
    if (class_of(t) == 0 && fabs(x - t) > most) most = fabs(x - t);
  }
  return most;
}

static void need_noise(bench *b) {
  char error[240];
  if (b->noisy == NULL &&
      machine_open(b->j->context, b->j->graph, 1, &b->noisy, error, sizeof error) != BS_OK)
    return;
  if (!b->has_few) {
    machine_noise(b->noisy, 1, 0, FEW, b->few);
    b->has_few = 1;
  } else if (!b->has_many) {
    machine_noise(b->noisy, 1000, 1, MANY, b->many);
    b->has_many = 1;
  }
}

/* The truth of the stable spelling. */
static const result *stable_truth(bench *b, choices *c) {
  char error[240];
  machine *noisy = NULL;
  choices again = *c;
  if (b->has_stable) return &b->stable_truth;
  b->has_stable = 1;
  b->stable_truth.status = BS_INTERNAL;
  memcpy(again.given, c->made, sizeof again.given);
  again.n_given = c->n;
  again.quiet = 1;
  if (make_spec(b->j->stable, &again, b->j->only, 1) &&
      machine_open(b->j->context, b->j->stable, 0, &b->stable, error, sizeof error) == BS_OK)
    machine_run(b->stable, &mode_truth, &b->stable_truth);
  if (b->stable_truth.status == BS_OK) machine_run(b->stable, &mode_off, &b->stable_off);
  if (b->stable_truth.status == BS_OK) machine_run(b->stable, &mode_ref, &b->stable_ref);
  if (b->stable_off.status == BS_OK && b->stable_ref.status == BS_OK && b->stable_truth.status == BS_OK &&
      machine_open(b->j->context, b->j->stable, 1, &noisy, error, sizeof error) == BS_OK)
    machine_noise(noisy, 2000, 1, FEW, b->stable_few);
  machine_close(noisy);
  return &b->stable_truth;
}

/* Is element i of output k right, by the noise that is known? *out_bound: what was allowed beside t. */
static int within(bench *b, const result *on, uint32_t k, int64_t i, double spread, double *out_bound) {
  const uint32_t dtype = on->dtypes[k];
  const double y = on->outputs[k][i], t = b->truth.outputs[k][i];
  const double each[4] = {rounded(dtype, t), b->off.outputs[k][i], b->ref.outputs[k][i], t};
  *out_bound = 4 * spread + base_bound(b, dtype, each[0]);
  for (uint32_t z = 0; z < 4; z++)
    if (agree(y, each[z], 4 * spread + base_bound(b, dtype, each[z]))) return 1;
  return 0;
}

/* The graph as written overflows in its own dtypes, and has a finite value for all that. */
static int overflows_as_written(const bench *b, uint32_t k, int64_t i) {
  return isfinite(b->truth.outputs[k][i]) && !isfinite(b->off.outputs[k][i]) &&
         !isfinite(b->ref.outputs[k][i]);
}

static int element_is_right(bench *b, choices *c, const result *on, uint32_t k, int64_t i,
                            double *out_bound) {
  const double t = b->truth.outputs[k][i];
  if (within(b, on, k, i, 0, out_bound) || overflows_as_written(b, k, i)) return 1;
  if (!b->has_few) need_noise(b);
  double spread = spread_of(b->few, FEW, k, i, t);
  if (spread < 0 || within(b, on, k, i, spread, out_bound)) return 1;
  if (!b->has_many) need_noise(b);
  const double more = spread_of(b->many, MANY, k, i, t);
  if (more > spread) spread = more;
  if (more < 0 || within(b, on, k, i, spread, out_bound)) return 1;
  const result *other = stable_truth(b, c);
  if (other->status != BS_OK || b->stable_off.status != BS_OK || b->stable_ref.status != BS_OK ||
      other->counts[k] != on->counts[k])
    return 0;
  const double apart = spread_of(b->stable_few, FEW, k, i, other->outputs[k][i]);
  const double each[3] = {rounded(on->dtypes[k], other->outputs[k][i]), b->stable_off.outputs[k][i],
                          b->stable_ref.outputs[k][i]};
  for (uint32_t z = 0; z < 3; z++)
    if (agree(on->outputs[k][i], each[z],
              (apart > 0 ? 8 * apart : 0) + base_bound(b, on->dtypes[k], each[z])))
      return 1;
  return apart < 0;
}

/* Judges one run with passes; 1: it is right. */
static int run_is_right(bench *b, choices *c, const result *on, verdict *out) {
  if (on->status != BS_OK) {
    out->outcome = OUTCOME_STATUS;
    snprintf(out->why, sizeof out->why, "%s", on->error);
    return 0;
  }
  for (uint32_t k = 0; k < on->n_outputs; k++)
    for (int64_t i = 0; i < on->counts[k]; i++) {
      double bound;
      if (element_is_right(b, c, on, k, i, &bound)) continue;
      out->outcome = OUTCOME_VALUE;
      out->expected = b->truth.outputs[k][i];
      out->got = on->outputs[k][i];
      out->bound = bound;
      snprintf(out->why, sizeof out->why,
               "y%u[%lld] is %.9g; as written %.9g (in its dtype cpu %.9g, ref %.9g), allowed %.3g", k,
               (long long)i, out->got, out->expected, b->off.outputs[k][i], b->ref.outputs[k][i], bound);
      return 0;
    }
  return 1;
}

static mode mode_on(const judging *j, uint32_t first_off) {
  mode m = {"cpu", 0, 0, {NULL}};
  for (uint32_t i = 0; i < j->n_off; i++) m.off[m.n_off++] = j->off[i];
  for (uint32_t i = first_off; bs_graph_pass_name(i) != NULL && m.n_off < MAX_PASSES; i++)
    m.off[m.n_off++] = bs_graph_pass_name(i);
  return m;
}

/* The first pass behind which the graph is wrong. */
static void name_pass(bench *b, choices *c, verdict *io) {
  for (uint32_t i = 1; bs_graph_pass_name(i - 1) != NULL; i++) {
    const mode m = mode_on(b->j, i);
    result on;
    verdict v = {0};
    machine_run(b->plain, &m, &on);
    const int right = run_is_right(b, c, &on, &v);
    result_clear(&on);
    if (right) continue;
    snprintf(io->pass, sizeof io->pass, "%s", bs_graph_pass_name(i - 1));
    return;
  }
}

/* The largest number of the graph's inputs and constants. */
static double largest_number(const spec *s) {
  double most = 0;
  for (uint32_t i = 0; i < s->n_values; i++)
    for (int64_t k = 0; s->values[i].data != NULL && k < spec_count(&s->values[i]); k++)
      if (isfinite(s->values[i].data[k])) most = fmax(most, fabs(s->values[i].data[k]));
  return most;
}

/* Sums of a product that takes a number over may be 16 times as large (docs/models.md), and overflow where
 * those as written do not: with numbers beyond 1e36 a value may be right without the pass alone. f16 has no
 * such room: there nothing grows. */
static int overflows_by_alpha(bench *b, choices *c, const verdict *found) {
  const int large = b->j->graph->dtype == BS_F16
                        ? fabs(found->expected) > 65504
                        : largest_number(b->j->graph) > 1e36 || !(fabs(found->expected) < 1e36);
  mode m = mode_on(b->j, UINT32_MAX);
  result off;
  verdict v = {0};
  if (!large || found->outcome != OUTCOME_VALUE || m.n_off == MAX_PASSES) return 0;
  m.off[m.n_off++] = "alpha";
  machine_run(b->plain, &m, &off);
  const int right = run_is_right(b, c, &off, &v);
  result_clear(&off);
  return right;
}

static void close_bench(bench *b) {
  result *all[] = {&b->off, &b->ref, &b->truth, &b->stable_truth, &b->stable_off, &b->stable_ref};
  for (uint32_t i = 0; i < 6; i++) result_clear(all[i]);
  for (uint32_t i = 0; i < FEW; i++) result_clear(&b->few[i]);
  for (uint32_t i = 0; i < FEW; i++) result_clear(&b->stable_few[i]);
  for (uint32_t i = 0; i < MANY; i++) result_clear(&b->many[i]);
  machine_close(b->plain);
  machine_close(b->noisy);
  machine_close(b->stable);
}

void judge(judging *j, choices *c, verdict *out) {
  bench b = {.j = j};
  result on = {0};
  *out = (verdict){.outcome = OUTCOME_NO_GRAPH};
  if (!make_spec(j->graph, c, j->only, 0)) return;
  out->outcome = OUTCOME_REFUSED;
  if (machine_open(j->context, j->graph, 0, &b.plain, out->why, sizeof out->why) == BS_OK) {
    const mode m = mode_on(j, UINT32_MAX);
    machine_run(b.plain, &mode_off, &b.off);
    if (b.off.status == BS_OK) machine_run(b.plain, &mode_ref, &b.ref);
    if (b.off.status == BS_OK) machine_run(b.plain, &mode_truth, &b.truth);
    if (b.off.status != BS_OK || b.ref.status != BS_OK || b.truth.status != BS_OK) {
      snprintf(out->why, sizeof out->why, "%.100s %.100s %.100s", b.off.error, b.ref.error, b.truth.error);
    } else {
      out->outcome = OUTCOME_RIGHT;
      machine_run(b.plain, &m, &on);
      const int right = run_is_right(&b, c, &on, out);
      if (!right && overflows_by_alpha(&b, c, out)) *out = (verdict){.outcome = OUTCOME_RIGHT};
      if (out->outcome != OUTCOME_RIGHT) name_pass(&b, c, out);
    }
  }
  result_clear(&on);
  close_bench(&b);
}
