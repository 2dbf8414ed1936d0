/* SPDX-License-Identifier: MIT
 * phase3.c - phase 3, training: forward, the loss's gradient, backward and a step of SGD or AdamW, several
 * times. After each step the weights of every rank are judged against fp64, with faults that must be caught.
 * Regions are kept for the record; times are not compared. */

#include "core/base/error.h"
#include "lab/activation.h"
#include "lab/gate/gradient.h"
#include "lab/gate/repro.h"
#include "lab/gate/step.h"
#include "lab/phase/frame.h"
#include "lab/phase/record_fields.h"
#include "lab/store/record.h"

/* The loss for training. The sum of Y, the default of workloads, has the same gradient for every Y: training
 * with it would test nothing. */
static uint32_t loss_of(const bs_experiment *e, const bs_subject *s) {
  const int asked = bs_config_find(e->config, "workload.loss") != NULL;
  return s->info.loss == BS_LOSS_SUM && !asked ? (uint32_t)BS_LOSS_MSE_ZERO : s->info.loss;
}

static bs_train_options options_of(const bs_experiment *e, const bs_subject *s) {
  return (bs_train_options){.optimizer = e->optimizer,
                            .lr = e->lr,
                            .momentum = e->momentum,
                            .beta1 = e->beta1,
                            .beta2 = e->beta2,
                            .eps = e->eps,
                            .weight_decay = e->weight_decay,
                            .warmup = e->warmup_iters,
                            .steps = e->timed_iters,
                            .remask = e->remask,
                            .loss = loss_of(e, s),
                            .target = s->info.has_target ? &s->target : NULL,
                            .max_features = e->reference_features};
}

static int32_t fault_gate(const bs_case *c, const bs_train_options *o, int wanted, bs_phase_result *out,
                          bs_error *err) {
  bs_fault_tally tally;
  if (!wanted) {
    bs_phase_add_skipped(out, "T6", "phase.fault_gate is off");
    return BS_OK;
  }
  const int32_t rc = bs_step_fault_gate(c, o, &tally, err);
  if (rc == BS_OK) bs_phase_add_fault_gate(out, &tally);
  return rc;
}

static int32_t add_training(json_t *record, const bs_case *c, const bs_train_options *o,
                            const bs_train_result *r, const bs_step_verdict *v, bs_error *err) {
  uint64_t flops = 0, wire = 0, moved = 0;
  json_t *losses = json_array();
  for (uint32_t k = 0; k < c->world_size; ++k) {
    flops += r->ranks[k].counters[BS_COUNT_FLOPS];
    wire += r->ranks[k].counters[BS_COUNT_WIRE_BYTES];
    moved += r->ranks[k].moved;
  }
  for (int64_t i = 0; i < r->steps; ++i) json_array_append_new(losses, bs_record_number(r->loss[i]));
  if (o->optimizer == BS_OPT_ADAMW)
    json_object_set_new(record, "adamw",
                        json_pack("{s:f,s:f,s:f}", "beta1", o->beta1, "beta2", o->beta2, "eps", o->eps));
  if (o->remask > 0) json_object_set_new(record, "weights_moved", json_integer((json_int_t)moved));
  return bs_record_add(
      record,
      json_pack("{s:s, s:f, s:f, s:f, s:I, s:I, s:o, s:I, s:I, s:I, s:{s:o, s:I, s:I}}", "optimizer",
                o->optimizer == BS_OPT_ADAMW ? "adamw" : "sgd", "lr", o->lr, "momentum", o->momentum,
                "weight_decay", o->weight_decay, "remask", (json_int_t)o->remask, "steps",
                (json_int_t)r->steps, "losses", losses, "flops_per_step", (json_int_t)flops,
                "wire_bytes_per_step", (json_int_t)wire, "collectives_per_step",
                (json_int_t)r->ranks[0].counters[BS_COUNT_COLLECTIVES], "weights", "relative_error",
                bs_record_number(v->relative), "rows_judged", (json_int_t)r->features, "weights_judged",
                (json_int_t)v->judged),
      err);
}

static int32_t fill(const bs_case *c, const bs_train_options *o, const bs_subject *s,
                    const bs_train_result *r, const bs_step_verdict *v, bs_phase_result *out, bs_error *err) {
  const int32_t rc = bs_record_judged(out, c, &r->run, s, o->loss, v->nonfinite == 0, err);
  return rc == BS_OK ? add_training(out->record, c, o, r, v, err) : rc;
}

/* The gradients of the first step, as phase 2 judges them. */
static int32_t gradient_gates(const bs_case *c, const bs_experiment *e, const bs_train_options *o,
                              bs_phase_result *out, bs_error *err) {
  bs_gradient_result result = {0};
  bs_gradient_verdict verdict;
  bs_case once = *c;
  once.warmup = 0;
  once.iterations = 1;
  int32_t rc = bs_gradient_run(&once, o->loss, o->target, &result, err);
  if (rc == BS_OK) rc = bs_gradient_judge(&once, &result, e->reference_features, &verdict, err);
  if (rc == BS_OK) bs_phase_add_gates(out, verdict.gates, verdict.n_gates);
  bs_gradient_result_free(&result);
  return rc;
}

/* Refuses a re-mask that is impossible. A half mask cannot choose new weights: the dropped ones are lost. A
 * bias with an activation cannot be read: forward of zeros gives act(b). */
static int32_t refuse_remask(const bs_case *c, const bs_train_options *o, bs_error *err) {
  bs_proposal p;
  const int32_t rc = bs_case_propose(c, 0, &p, err);
  if (rc != BS_OK || o->remask == 0) return rc;
  if (c->spec.has_bias && c->spec.activation != BS_ACT_NONE) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-PHASE-REMASK",
                 "phase.remask=%lld: the bias of the new layer cannot be read through model.activation=%s",
                 (long long)o->remask, bs_name_of(BS_NAMES_ACTIVATION, c->spec.activation));
    bs_error_hint(err, "phase.remask=0, method.bias=false or model.activation=none");
    return BS_UNSUPPORTED;
  }
  if (!(p.prune_error > 0.0)) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-PHASE-REMASK",
               "phase.remask=%lld: half a mask alone has no other weights to choose", (long long)o->remask);
  bs_error_hint(err, "phase.remask=0 keeps its positions; without method.half both halves are there");
  return BS_UNSUPPORTED;
}

static int32_t run_and_judge(bs_case *c, const bs_experiment *e, const bs_subject *s, bs_phase_result *out,
                             bs_error *err) {
  bs_train_result result = {0};
  bs_step_verdict verdict;
  bs_gate integers, promised;
  uint32_t n_promised = 0;
  const bs_train_options o = options_of(e, s);
  c->spec.flags |= bs_train_flags(&o);
  int32_t rc = refuse_remask(c, &o, err);
  if (rc == BS_OK) rc = gradient_gates(c, e, &o, out, err);
  if (rc == BS_OK) rc = bs_train_run(c, &o, &result, err);
  if (rc == BS_OK) rc = bs_step_judge(c, &o, &result, &verdict, err);
  if (rc == BS_OK) rc = bs_repro_step_gate(c, &o, &result.run, &promised, &n_promised, err);
  if (rc == BS_OK) rc = bs_step_integer_gate(c, &o, &integers, err);
  if (rc == BS_OK) {
    bs_phase_add_gates(out, verdict.gates, verdict.n_gates);
    bs_phase_add_gates(out, &promised, n_promised);
    bs_phase_add_gates(out, &integers, 1);
    rc = fault_gate(c, &o, (int)e->fault_gate, out, err);
  }
  if (rc == BS_OK && bs_case_judged(c)) rc = fill(c, &o, s, &result, &verdict, out, err);
  bs_train_result_free(&result);
  return rc;
}

int32_t bs_phase3_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  return bs_phase_run_judged(context, e, progress, user, run_and_judge, out, err);
}
