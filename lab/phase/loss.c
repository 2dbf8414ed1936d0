/* SPDX-License-Identifier: MIT
 * loss.c - see loss.h. Called by phase0.c, gradient.c and train.c. */
#include "lab/phase/loss.h"

#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/error.h"
#include "lab/phase/gradient.h"

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
    return bs_no_memory(err, "a row of %lld targets", (long long)N);
  for (int64_t b = 0; rc == BS_OK && b < c->spec.B; ++b) {
    if (target) rc = target->read(target->ctx, b, 1, NULL, BS_F64, row, N, err);
    for (uint32_t r = 0; rc == BS_OK && r < ranks; ++r) sum += token_loss(loss, c, &result->ranks[r], b, row);
  }
  free(row);
  *out_value = loss == BS_LOSS_SUM ? sum : sum / ((double)c->spec.B * (double)N);
  return rc;
}

int32_t bs_loss_gradients(uint32_t loss, const bs_layer_spec *s, const bs_case_rank *mine,
                          const bs_source *target, void *values, double *out_sum, bs_error *err) {
  const int needs = loss == BS_LOSS_MSE_TARGET;
  double *row = needs ? malloc((size_t)(s->N > 0 ? s->N : 1) * sizeof *row) : NULL;
  if (needs && row == NULL) return bs_no_memory(err, "a row of %lld targets", (long long)s->N);
  double sum = 0.0;
  int32_t rc = BS_OK;
  for (int64_t b = 0; rc == BS_OK && b < s->B; ++b) {
    if (needs) rc = target->read(target->ctx, b, 1, NULL, BS_F64, row, s->N, err);
    for (int64_t n = 0; rc == BS_OK && n < mine->y_cols; ++n) {
      const int64_t at = b * mine->y_cols + n;
      const double y = bs_load_f64(s->y_dtype, values, at), t = needs ? row[mine->y_begin + n] : 0.0;
      sum += loss == BS_LOSS_SUM ? y : (y - t) * (y - t);
      bs_store_f64(s->y_dtype, values, at, bs_loss_gradient(loss, y, t, s->B, s->N));
    }
  }
  free(row);
  if (out_sum) *out_sum = sum;
  return rc;
}

int32_t bs_loss_upload(bs_rank *rank, bs_tensor *to, void *values, bs_error *err) {
  bs_source source;
  if (to->dims[0] == 0 || to->dims[1] == 0) return BS_OK;
  int32_t rc = bs_source_from_memory(values, to->dtype, to->dims[0], to->dims[1], to->dims[1], &source, err);
  if (rc == BS_OK) rc = bs_rank_get_api()->tensor_read(rank, &source, 0, NULL, to, err);
  bs_source_release(&source);
  return rc;
}
