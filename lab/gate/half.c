/* SPDX-License-Identifier: MIT
 * half.c - see half.h. */
#include "lab/gate/half.h"

#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/case/arms.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/judge.h"

int32_t bs_half_figure(const bs_case *c, double *out, bs_error *err) {
  bs_proposal p;
  const int32_t rc = bs_case_propose(c, 0, &p, err);
  *out = rc == BS_OK ? p.prune_error : 0.0;
  return rc;
}

int32_t bs_half_measure(const bs_case *c, const bs_case_result *result, int64_t max_features,
                        double *out_error, double *out_outputs, bs_error *err) {
  bs_metrics m = {0};
  bs_reference ref;
  const uint32_t ranks = c->spec.y_placement == BS_SPLIT ? result->world_size : 1;
  const bs_reference_request request = {.x = c->x,
                                        .w = c->w,
                                        .bias = c->spec.has_bias ? c->bias : NULL,
                                        .world_size = 1,
                                        .max_features = max_features};
  const int32_t rc = bs_reference_compute(&request, &ref, err);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < ranks; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    for (int64_t f = 0; f < ref.features; ++f) {
      const int64_t n = ref.feature[f] - rank->y_begin;
      if (n < 0 || n >= rank->y_cols) continue;
      for (int64_t b = 0; b < ref.B; ++b)
        bs_metrics_add(&m, ref.y[b * ref.features + f],
                       bs_load_f64(c->spec.y_dtype, rank->y, b * rank->y_cols + n), BS_REL_EPS_HALF);
    }
  }
  *out_outputs = (double)m.count;
  *out_error = bs_metrics_frobenius(&m);
  bs_reference_free(&ref);
  return BS_OK;
}

/* Weights that are owned and should not be, or the other way round. */
static int32_t count_wrong(const bs_case *c, const bs_case_result *result, const bs_kept *kept,
                           uint64_t *out_wrong, bs_error *err) {
  const int64_t K = c->spec.K, groups = (K + 3) / 4;
  bs_owners owners = bs_owners_of(c, result);
  uint32_t *owner = malloc((size_t)(K + 1) * sizeof *owner), first;
  uint8_t *bits = malloc((size_t)groups + 1);
  int32_t rc = owner && bits ? BS_OK : bs_no_memory(err, "a row");
  for (int64_t n = 0; rc == BS_OK && n < c->spec.N; ++n) {
    rc = kept->read(kept->ctx, n, 1, 0, groups, bits, groups, err);
    if (rc == BS_OK) rc = bs_owners_read(&owners, n, owner, &first, err);
    for (int64_t k = 0; rc == BS_OK && k < K; ++k)
      *out_wrong += (owner[k] != BS_OWNER_NONE) != (bits[k / 4] >> (k % 4) & 1);
  }
  free(owner);
  free(bits);
  return rc;
}

int32_t bs_half_gate(const bs_case *c, const bs_case_result *result, bs_gate *gate, bs_error *err) {
  const bs_layer_spec *s = &c->spec;
  const char *half = bs_case_option(s, "half");
  bs_mask fixed;
  const bs_mask *mask = s->mask;
  const bs_kept *kept = NULL;
  uint64_t wrong = 0;
  bs_gate_set(gate, "HALF", -1, 0.0, 0.0, "%s", "");
  if (half[0] != '0' && half[0] != '1') {
    bs_gate_skip(gate, "no half of a mask is asked for");
    return BS_OK;
  }
  int32_t rc = mask ? BS_OK : bs_mask_parse("complement_1100_0011", NULL, NULL, &fixed, err);
  if (rc == BS_OK)
    rc = bs_kept_make(mask ? mask : &fixed, s->N, s->K, c->w, (uint32_t)(half[0] - '0'), &kept, err);
  if (rc == BS_OK) rc = count_wrong(c, result, kept, &wrong, err);
  if (kept != NULL) bs_kept_free(kept);
  bs_gate_set(gate, "HALF", -1, (double)wrong, 0.0,
              "weights that are not at the positions of half %c of the mask", half[0]);
  return rc;
}
