/* SPDX-License-Identifier: MIT
 * step_faults.c - training on a small shape: on integers, and with a fault that must be caught. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/error.h"
#include "lab/gate/faults.h"
#include "lab/gate/small.h"
#include "lab/gate/step.h"

static const char *const names[BS_TRAIN_FAULTS_] = {
    "(none)",       "step_skipped", "lr_doubled",   "sign_turned", "bias_decayed", "moments_lost",
    "column_moved", "old_weights",  "value_missed", "slope_lost",  "slope_at_y",
};

/* Changes every output by the contribution of a weight of 0.25 in a column that no rank owns. */
static int32_t move_column(const bs_case *c, bs_train_result *r, bs_error *err) {
  for (int64_t b = 0; b < c->spec.B; ++b) {
    double x = 0.0;
    const bs_partition first = {
        .struct_size = sizeof first, .kind = BS_PARTITION_CONTIGUOUS, .total = c->spec.K, .count = 1};
    const int32_t rc = c->x->read(c->x->ctx, b, 1, &first, BS_F64, &x, 1, err);
    if (rc != BS_OK) return rc;
    for (uint32_t p = 0; p < r->run.world_size; ++p) {
      const bs_case_rank *rank = &r->run.ranks[p];
      for (int64_t n = 0; n < rank->y_cols; ++n) {
        const int64_t at = b * rank->y_cols + n;
        bs_store_f64(c->spec.y_dtype, rank->y, at, bs_load_f64(c->spec.y_dtype, rank->y, at) + 0.25 * x);
      }
    }
  }
  return BS_OK;
}

/* Undoes a step in the weights that were read back: in the first row whose weight with the largest gradient
 * has moved. No error of dZ hides this change (the gradient of Y is a good enough estimate). */
static int32_t miss_value(const bs_case *c, bs_train_result *r, bs_error *err) {
  const int64_t F = r->features, K = c->spec.K, B = c->spec.B;
  double *before = r->w + F * K, *x = malloc((size_t)(B * K + 1) * sizeof *x); /* after the first step */
  int64_t missed = -1;
  int32_t rc = x ? c->x->read(c->x->ctx, 0, B, NULL, BS_F64, x, K, err) : bs_no_memory(err, "X");
  for (int64_t f = 0; rc == BS_OK && missed < 0 && f < F; ++f) {
    double most = -1.0;
    for (int64_t k = 0; k < K; ++k) {
      double g = 0.0;
      if (before[f * K + k] == before[(F + f) * K + k]) continue;
      for (int64_t b = 0; b < B; ++b) g += r->dy[(B + b) * F + f] * x[b * K + k];
      if (!(fabs(g) > most)) continue;
      most = fabs(g);
      missed = f * K + k;
    }
  }
  if (missed >= 0) before[F * K + missed] = before[missed];
  free(x);
  return rc;
}

/* Can the fault be made? With an activation a layer is built again without a bias, because that cannot be
 * read. */
static int can_make(uint32_t fault, const bs_train_options *o, const bs_case *c) {
  switch (fault) {
    case BS_TRAIN_MOMENTS_LOST: /* of weights of a byte the rounding hides it */
      if (BS_DTYPE_BYTES(c->spec.w_dtype) == 1) return 0;
      return o->optimizer == BS_OPT_ADAMW || o->momentum != 0.0;
    case BS_TRAIN_SLOPE_LOST:
      return c->spec.activation != BS_ACT_NONE;
    case BS_TRAIN_SLOPE_AT_Y: /* of relu it is the same */
      return c->spec.activation > BS_ACT_RELU;
    default:
      return 1;
  }
}

/* Adds what gates measured that fail without a fault. */
static void note_numbers(char *list, size_t size, const bs_gate *gates, uint32_t n) {
  char text[160];
  for (uint32_t g = 0; g < n; ++g) {
    if (gates[g].state != BS_GATE_FAIL) continue;
    snprintf(text, sizeof text, " is %.9g, limit %.9g (%s)", gates[g].value, gates[g].limit, gates[g].text);
    bs_fault_note(list, size, gates[g].name, text);
  }
}

/* gates: those that failed are added. */
static int32_t inject(const bs_case *base, const bs_train_options *o, int *caught, char gates[256],
                      bs_error *err) {
  bs_train_result result = {0};
  bs_step_verdict verdict;
  bs_case c = *base;
  if (o->fault == BS_TRAIN_MOMENTS_LOST && c.spec.activation != BS_ACT_NONE) {
    c.spec.has_bias = 0;
    c.bias = NULL;
  }
  int32_t rc = bs_train_run(&c, o, &result, err);
  if (rc == BS_OK && o->fault == BS_TRAIN_COLUMN_MOVED) rc = move_column(&c, &result, err);
  if (rc == BS_OK && o->fault == BS_TRAIN_VALUE_MISSED) rc = miss_value(&c, &result, err);
  if (rc == BS_OK) rc = bs_step_judge(&c, o, &result, &verdict, err);
  if (rc == BS_OK) *caught |= !bs_verdict_passed(verdict.gates, verdict.n_gates);
  if (rc == BS_OK) bs_fault_note_failed(gates, 256, verdict.gates, verdict.n_gates);
  if (rc == BS_OK && o->fault == BS_TRAIN_RIGHT) note_numbers(gates, 256, verdict.gates, verdict.n_gates);
  bs_train_result_free(&result);
  return rc;
}

/* Runs a fault with the loss that shows it. The gradient of the mean of Y^2 is zero where relu's slope is;
 * that of the sum shows the slopes. The run without a fault must pass with both losses; processes that do not
 * judge run both too. */
static int32_t inject_with_its_loss(const bs_case *c, const bs_train_options *options, int *caught,
                                    char gates[256], bs_error *err) {
  bs_train_options o = *options;
  if (bs_train_of_slope(o.fault)) o.loss = BS_LOSS_SUM;
  const int32_t rc = inject(c, &o, caught, gates, err);
  if (rc != BS_OK || o.fault != BS_TRAIN_RIGHT || c->spec.activation == BS_ACT_NONE) return rc;
  o.loss = BS_LOSS_SUM;
  return inject(c, &o, caught, gates, err);
}

int32_t bs_step_fault_gate(const bs_case *like, const bs_train_options *options, bs_fault_tally *out,
                           bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_layer_spec spec = bs_small_spec(like, bs_train_flags(options));
  bs_train_options o = *options;
  o.lr = o.optimizer == BS_OPT_ADAMW ? 0.05 : 1.0; /* steps that no rounding hides */
  o.loss = BS_LOSS_MSE_ZERO;
  o.target = NULL;
  o.warmup = o.remask = o.max_features = 0;
  o.steps = 3;
  bs_small subject;
  bs_case c;
  int32_t rc = bs_small_open(like->context, "random_normal", &spec, &subject, err);
  if (rc != BS_OK) return rc;
  bs_small_case(like, &spec, &subject, &c);
  c.progress = NULL; /* small: the fault's name is enough */
  for (o.fault = 0; o.fault < BS_TRAIN_FAULTS_ && rc == BS_OK; ++o.fault) {
    int caught = 0;
    char gates[256] = "";
    bs_case_tell(like, "T6 fault", o.fault + 1, BS_TRAIN_FAULTS_);
    if (!can_make(o.fault, &o, &c)) continue;
    rc = inject_with_its_loss(&c, &o, &caught, gates, err);
    if (rc == BS_OK)
      bs_fault_tally_add(out, o.fault != BS_TRAIN_RIGHT ? names[o.fault] : NULL, caught, gates);
  }
  bs_small_close(&subject);
  return rc;
}

int32_t bs_step_integer_gate(const bs_case *like, const bs_train_options *options, bs_gate *out,
                             bs_error *err) {
  *out = (bs_gate){.name = "W.T5", .rank = -1, .state = BS_GATE_SKIPPED};
  if (options->optimizer == BS_OPT_ADAMW) {
    snprintf(out->text, sizeof out->text, "AdamW divides: T1 to T3 judge it");
    return BS_OK;
  }
  bs_layer_spec spec = bs_small_spec(like, bs_train_flags(options));
  if (BS_DTYPE_BYTES(spec.w_dtype) == 1) { /* whole numbers up to 16 or 8 */
    snprintf(out->text, sizeof out->text, "%s has too few whole numbers for exact steps: T1 to T3 judge it",
             bs_dtype_name(spec.w_dtype));
    return BS_OK;
  }
  if (spec.reduce_dtype == BS_I8) spec.reduce_dtype = 0; /* a wire that rounds integers: without it */
  if (spec.activation != BS_ACT_RELU) spec.activation = BS_ACT_NONE; /* gelu and silu give no integers */
  bs_train_options o = *options;
  o.lr = 0.5;
  if (o.momentum != 0.0) o.momentum = 0.5;
  o.weight_decay = 0.0;
  o.loss = BS_LOSS_SUM;
  o.target = NULL;
  o.warmup = o.remask = o.max_features = o.fault = 0;
  o.steps = 2;
  bs_small subject;
  bs_case c;
  bs_train_result result = {0};
  bs_step_verdict verdict = {0};
  int32_t rc = bs_small_open(like->context, "integer", &spec, &subject, err);
  if (rc != BS_OK) return rc;
  bs_small_case(like, &spec, &subject, &c);
  c.progress = NULL;
  rc = bs_train_run(&c, &o, &result, err);
  if (rc == BS_OK) rc = bs_step_judge(&c, &o, &result, &verdict, err);
  if (rc == BS_OK) {
    out->value = (double)verdict.inexact;
    out->state = verdict.inexact == 0 && verdict.judged > 0 ? BS_GATE_PASS : BS_GATE_FAIL;
    snprintf(out->text, sizeof out->text,
             "%llu of %llu weights and biases differ from exact steps on integers%s%s%s",
             (unsigned long long)verdict.inexact, (unsigned long long)verdict.judged + 96u,
             spec.reduce_dtype == like->spec.reduce_dtype ? "" : "; sums in f32",
             spec.activation == like->spec.activation ? "" : "; without ",
             spec.activation == like->spec.activation
                 ? ""
                 : bs_name_of(BS_NAMES_ACTIVATION, like->spec.activation));
  }
  bs_train_result_free(&result);
  bs_small_close(&subject);
  return rc;
}
