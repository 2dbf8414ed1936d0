/* SPDX-License-Identifier: MIT
 * layer_costs.c - checks of a layer that compare it with a variant in which one thing is changed, and its
 * one-off costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/cores.h"
#include "lab/diagnose/layer_checks.h"
#include "lab/error.h"

int32_t diag_layer_threads(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  const uint32_t cores = bs_machine_cores(), ranks = l->c.world_size, all = ranks * l->c.threads_per_rank;
  bs_pair_times t;
  bs_fact(d, "cores", cores, "");
  bs_fact(d, "threads of all ranks", all, "");
  if (all <= cores && l->c.threads_per_rank == 1) return BS_OK;
  bs_case other = l->c;
  other.threads_per_rank = all > cores && cores / ranks > 0 ? cores / ranks : 1;
  if (ranks > cores) { /* no number of threads mends that */
    bs_find(d, 0, NULL, "%u ranks on %u cores take turns", ranks, cores);
    return BS_OK;
  }
  const int32_t rc = diag_layer_pair(d, l, &other, BS_ARM_FORWARD, &t, err);
  if (rc == BS_OK && (all > cores || bs_pair_is_slower(&t)))
    bs_find_pair(d, &t, "%u threads (%u a rank) on %u cores: %.3g ms a pass; with %u a rank: %.3g ms", all,
                 l->c.threads_per_rank, cores, 1e3 * t.as_is, other.threads_per_rank, 1e3 * t.other);
  return rc;
}

int32_t diag_layer_epilogue(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  bs_pair_times t;
  if (l->c.spec.activation == BS_ACT_NONE) return bs_skip(d, "the layer has no activation");
  if (strstr(l->result.algorithms, "activate@") == NULL) {
    bs_fact_text(d, "activation", "in the product");
    return BS_OK;
  }
  if (l->c.world_size > 1 && l->proposal.split == BS_SPLIT_K) {
    bs_fact_text(d, "activation", "behind the sum over the ranks: no product can take it");
    return BS_OK;
  }
  bs_case other = l->c;
  other.spec.activation = BS_ACT_NONE;
  const int32_t rc = diag_layer_pair(d, l, &other, BS_ARM_FORWARD, &t, err);
  if (rc == BS_OK)
    bs_find_pair(d, &t,
                 "the activation is an op of its own behind the product: %.3g ms a pass with it, %.3g ms "
                 "without; in the "
                 "product it costs less, so the difference is at most what is lost",
                 1e3 * t.as_is, 1e3 * t.other);
  return rc;
}

/* Reports one-off costs, and after how many passes the layer has recovered them compared with the dense
 * one. */
int32_t diag_layer_plan(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  double steady = 0, first = 0, calls = 0;
  bs_span once[2];
  bs_fact(d, "build (packing included)", l->build.seconds, "s");
  bs_fact(d, "pack", l->pack.seconds, "s");
  bs_fact(d, "first pass", l->first, "s");
  bs_fact(d, "steady pass", l->steady, "s");
  if (l->dense.method == NULL) return BS_OK;
  int32_t rc = diag_layer_time(d, &l->dense, BS_ARM_FORWARD, &steady, &first, once, NULL, err);
  if (rc != BS_OK) return rc;
  const bs_span mine[2] = {l->build, bs_span_make(BS_TIME_FIRST, l->first, 1)},
                other[2] = {once[0], bs_span_make(BS_TIME_FIRST, first, 1)},
                each = bs_span_make(BS_TIME_HOT, l->steady, 1),
                each_other = bs_span_make(BS_TIME_HOT, steady, 1);
  bs_fact(d, "dense on all cores: steady pass", steady, "s");
  rc = bs_span_break_even(mine, other, &each, &each_other, &calls, err);
  if (rc == BS_OK && isfinite(calls))
    bs_fact(d, "passes until it has made up for its build against dense", calls, "");
  else if (rc == BS_OK)
    bs_fact_text(d, "passes until it has made up for its build against dense", "never: dense is faster");
  return rc;
}

int32_t diag_layer_memory(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  const bs_layer_spec *s = &l->c.spec;
  (void)err;
  const uint64_t x_bytes = BS_DTYPE_BYTES(s->x_dtype), y_bytes = BS_DTYPE_BYTES(s->y_dtype);
  const double x = (double)s->B * (double)s->K * (double)x_bytes,
               y = (double)s->B * (double)s->N * (double)y_bytes;
  bs_fact(d, "most at one time, all ranks, building included", (double)l->result.memory_peak, "bytes");
  bs_fact(d, "packed weights, all ranks", (double)l->result.weight_bytes, "bytes");
  bs_fact(d, "X and Y of one rank", x + y, "bytes");
  bs_fact(d, "inside the layer, rank 0", (double)l->proposal.workspace_bytes, "bytes");
  return BS_OK;
}

int32_t diag_layer_train(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  static const char *const names[BS_ARM_WORKS_] = {"", "backward",
                                                   "step with SGD (forward, backward, update)",
                                                   "step with AdamW (forward, backward, update)"};
  const bs_method *method = NULL;
  void *state = NULL;
  int32_t rc = bs_find_method(l->context, l->e.method, &method, &state, err);
  if (rc == BS_OK && method->backward == NULL)
    return bs_skip(d, "method %s has no backward pass", l->e.method);
  bs_fact(d, "forward", l->steady, "s");
  for (uint32_t work = BS_ARM_BACKWARD; rc == BS_OK && work < BS_ARM_WORKS_; work++) {
    bs_case_result result = {0};
    bs_error why = BS_ERROR_INIT;
    bs_span once[2];
    double steady = 0, first = 0;
    rc = diag_layer_time(d, &l->c, work, &steady, &first, once, &result, &why);
    if (rc == BS_UNSUPPORTED) {
      bs_fact_text(d, names[work], "not served: %s", why.message);
      rc = BS_OK;
    } else if (rc == BS_OK) {
      bs_fact(d, names[work], steady, "s");
    } else if (err != NULL) {
      *err = why;
    }
    bs_case_result_free(&result);
  }
  return rc;
}
