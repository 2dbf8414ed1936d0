/* SPDX-License-Identifier: MIT
 * loss.c - see loss.h. Called by phase0.c. */
#include "lab/phase/loss.h"

#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/error.h"

const char *bs_loss_name(uint32_t loss) {
  static const char *const names[] = {"sum", "mse_zero", "mse_target"};
  return loss < sizeof names / sizeof names[0] ? names[loss] : "?";
}

/* One token's share of the loss, over the features that `rank` holds; target is the token's row or NULL. */
static double token_loss(uint32_t loss, const bs_case *c, const bs_case_rank *rank, int64_t token,
                         const double *target) {
  double sum = 0.0;
  for (int64_t n = 0; n < rank->y_cols; ++n) {
    const double y = bs_load_f64(c->spec.y_dtype, rank->y, token * rank->y_cols + n);
    const double d = target ? y - target[rank->y_begin + n] : y;
    sum += loss == BS_LOSS_SUM ? y : d * d;
  }
  return sum;
}

int32_t bs_loss_value(uint32_t loss, const bs_case *c, const bs_case_result *result, const bs_source *target,
                      double *out_value, bs_error *err) {
  const int64_t N = c->spec.N;
  const uint32_t ranks = c->spec.y_placement == BS_SPLIT ? result->world_size : 1;
  double *row = NULL;
  double sum = 0.0;
  int32_t rc = BS_OK;
  if (loss != BS_LOSS_MSE_TARGET) target = NULL;
  if (target && !(row = malloc((size_t)(N > 0 ? N : 1) * sizeof *row)))
    return bs_error_set(err, BS_NO_MEMORY, "BS-LOSS-MEMORY", "no memory for a row of %lld targets",
                        (long long)N);
  for (int64_t b = 0; rc == BS_OK && b < c->spec.B; ++b) {
    if (target) rc = target->read(target->ctx, b, 1, NULL, BS_F64, row, N, err);
    for (uint32_t r = 0; rc == BS_OK && r < ranks; ++r) sum += token_loss(loss, c, &result->ranks[r], b, row);
  }
  free(row);
  *out_value = loss == BS_LOSS_SUM ? sum : sum / ((double)c->spec.B * (double)N);
  return rc;
}
