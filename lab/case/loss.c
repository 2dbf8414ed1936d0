/* SPDX-License-Identifier: MIT
 * loss.c - see loss.h. Called by phase0.c, gradient.c and train.c. */
#include "lab/case/loss.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/plugin/registry.h"
#include "core/world/world.h"
#include "lab/error.h"

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

/* d loss / d y of one output of B x N. */
static double slope(uint32_t loss, double y, double target, int64_t B, int64_t N) {
  if (loss == BS_LOSS_SUM) return 1.0;
  return 2.0 * (loss == BS_LOSS_MSE_TARGET ? y - target : y) / ((double)B * (double)N);
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
      bs_store_f64(s->y_dtype, values, at, slope(loss, y, t, s->B, s->N));
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

/* ---- by the backend's own op --------------------------------------------------------------------- */

enum { SUM = 0, SQUARES = 1 }; /* attrs[0] of loss_gradient */

static bs_tensor_desc desc_of(const bs_tensor *t) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = t->dtype, .rank = t->rank};
  memcpy(d.dims, t->dims, sizeof d.dims);
  memcpy(d.strides, t->strides, sizeof d.strides);
  return d;
}

static bs_tensor_desc f64_matrix(int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F64, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = cols;
  return d;
}

/* A rank's features of the targets. */
static int32_t take_target(bs_device_loss *l, const bs_layer_spec *s, const bs_case_rank *mine,
                           const bs_source *target, bs_rank *rank, bs_error *err) {
  const bs_partition features = {.struct_size = sizeof features,
                                 .kind = BS_PARTITION_CONTIGUOUS,
                                 .total = s->N,
                                 .begin = mine->y_begin,
                                 .count = mine->y_cols};
  const int32_t rc = bs_case_tensor(rank, BS_F64, 2, s->B, mine->y_cols, &l->target, err);
  return rc == BS_OK ? bs_rank_get_api()->tensor_read(rank, target, 0, &features, &l->target, err) : rc;
}

int32_t bs_device_loss_open(bs_device_loss *l, uint32_t loss, const bs_layer_spec *s,
                            const bs_case_rank *mine, const bs_source *target, bs_rank *rank,
                            const bs_tensor *y, const bs_tensor *dy, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  memset(l, 0, sizeof *l);
  if (s->y_placement == BS_PARTIAL || s->B == 0 || mine->y_cols == 0) return BS_OK;
  const bs_tensor_desc of_y = desc_of(y), of_dy = desc_of(dy), of_loss = f64_matrix(s->B, 1);
  const bs_tensor_desc of_target = f64_matrix(s->B, mine->y_cols);
  const bs_tensor_desc *args[4] = {&of_y, loss == BS_LOSS_MSE_TARGET ? &of_target : NULL, &of_dy, &of_loss};
  bs_op_query q = {.struct_size = sizeof q, .op = "loss_gradient", .nargs = 4, .args = args};
  q.attrs[0] = loss == BS_LOSS_SUM ? SUM : SQUARES;
  q.attrs[1] = s->B * s->N;
  int32_t rc = bs_rank_get_api()->op_prepare(rank, &q, NULL, &l->plan, &why);
  if (rc == BS_UNSUPPORTED) return BS_OK; /* the host takes it */
  if (rc != BS_OK) {
    if (err != NULL) *err = why;
    return rc;
  }
  rc = bs_case_tensor(rank, BS_F64, 2, s->B, 1, &l->loss, err);
  return rc == BS_OK && args[1] != NULL ? take_target(l, s, mine, target, rank, err) : rc;
}

int32_t bs_device_loss_run(bs_device_loss *l, bs_rank *rank, bs_tensor *y, bs_tensor *dy, void *out_dy,
                           double *out_sum, bs_error *err) {
  bs_tensor *args[4] = {y, l->target.data != NULL ? &l->target : NULL, dy, &l->loss};
  const int64_t B = l->loss.dims[0];
  double *tokens = malloc((size_t)B * sizeof *tokens);
  if (tokens == NULL) return bs_no_memory(err, "the losses of %lld tokens", (long long)B);
  int32_t rc = bs_rank_get_api()->op_run(l->plan, args, 4, NULL, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, dy, out_dy, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &l->loss, tokens, err);
  double sum = 0.0;
  for (int64_t b = 0; rc == BS_OK && b < B; ++b) sum += tokens[b];
  free(tokens);
  if (out_sum) *out_sum = sum;
  return rc;
}

void bs_device_loss_close(bs_device_loss *l, bs_rank *rank) {
  const bs_rank_api *api = bs_rank_get_api();
  if (l->plan != NULL) api->op_release(l->plan);
  if (l->target.data != NULL) api->tensor_free(rank, &l->target);
  if (l->loss.data != NULL) api->tensor_free(rank, &l->loss);
  memset(l, 0, sizeof *l);
}

/* ---- the whole output ---------------------------------------------------------------------------- */

int32_t bs_whole_open(bs_whole *whole, const bs_case *c, bs_rank *rank, bs_error *err) {
  const bs_layer_spec *s = &c->spec;
  memset(whole, 0, sizeof *whole);
  if (s->y_placement != BS_PARTIAL || c->world_size < 2) return BS_OK;
  const bs_collective sum = {.struct_size = sizeof sum,
                             .kind = BS_COLL_ALL_REDUCE,
                             .dtype_in = s->y_dtype,
                             .dtype_out = s->y_dtype,
                             .rows = (uint64_t)s->B,
                             .count = (uint64_t)s->N,
                             .site = "lab.y",
                             .flags = BS_COLL_NATIVE};
  const int32_t rc = bs_case_tensor(rank, s->y_dtype, 2, s->B, s->N, &whole->y, err);
  return rc == BS_OK ? bs_rank_get_api()->collective_prepare(rank, &sum, &whole->plan, err) : rc;
}

int32_t bs_whole_read(bs_whole *whole, bs_rank *rank, const bs_tensor *y, void *values, bs_error *err) {
  if (whole->plan == NULL) return bs_rank_copy_out(rank, y, values, err);
  const int32_t rc = bs_rank_get_api()->collective_run(whole->plan, y, &whole->y, NULL, err);
  return rc == BS_OK ? bs_rank_copy_out(rank, &whole->y, values, err) : rc;
}

void bs_whole_close(bs_whole *whole, bs_rank *rank) {
  if (whole->plan) bs_rank_get_api()->collective_release(whole->plan);
  if (whole->y.data) bs_rank_get_api()->tensor_free(rank, &whole->y);
  memset(whole, 0, sizeof *whole);
}
