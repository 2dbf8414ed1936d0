/* SPDX-License-Identifier: MIT
 * train_result.c - checks a training's options, allocates its result, and completes it after the run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "lab/activation.h"
#include "lab/case/joint.h"
#include "lab/case/loss.h"
#include "lab/case/train.h"
#include "lab/error.h"

#define KEPT_VALUES (INT64_C(1) << 22) /* weights and gradients of Y that are read back */
#define KEPT_WORK (INT64_C(1) << 30)   /* multiply-adds of their reference */

uint32_t bs_train_flags(const bs_train_options *o) {
  if (o->optimizer == BS_OPT_ADAMW) return BS_LAYER_BACKWARD | BS_LAYER_ADAMW;
  return BS_LAYER_BACKWARD | BS_LAYER_SGD | (o->momentum != 0.0 ? (uint32_t)BS_LAYER_MOMENTUM : 0u);
}

int bs_train_fused(const bs_train_options *o) {
  return o->optimizer == BS_OPT_SGD && o->momentum == 0.0 && o->weight_decay == 0.0;
}

int bs_train_remasks(const bs_train_options *o, int64_t step, int64_t steps) {
  return o->remask > 0 && step < steps && step % o->remask == 0;
}

/* Chooses as many rows of W as fit, evenly spread, including the first and the last. */
static int32_t choose_features(const bs_case *c, const bs_train_options *o, bs_train_result *out,
                               bs_error *err) {
  const int64_t N = c->spec.N, K = c->spec.K, B = c->spec.B, steps = out->steps;
  const double values = (double)KEPT_VALUES / ((double)(steps + 1) * (double)(K + B));
  const double work = (double)KEPT_WORK / ((double)steps * (double)B * (double)K);
  const double fit = values < work ? values : work;
  int64_t count = fit < 1.0 ? 1 : fit < (double)N ? (int64_t)fit : N;
  if (o->max_features > 0 && o->max_features < count) count = o->max_features;
  out->features = count;
  out->feature = calloc((size_t)count, sizeof *out->feature);
  if (!out->feature) return bs_no_memory(err, "training");
  for (int64_t f = 0; f < count; ++f) out->feature[f] = count > 1 ? f * (N - 1) / (count - 1) : 0;
  return BS_OK;
}

/* Takes one block of memory, so that ranks of other processes can send values by their offsets in it. */
static int32_t take_values(const bs_case *c, bs_train_result *out, bs_error *err) {
  const uint64_t F = (uint64_t)out->features, steps = (uint64_t)out->steps;
  const uint64_t w = (steps + 1) * F * (uint64_t)c->spec.K, dy = steps * F * (uint64_t)c->spec.B;
  out->n_values = w + 2 * dy + 2 * (steps + 1) * F;
  out->values = calloc(out->n_values + 1, sizeof *out->values);
  out->kept = c->peers != NULL ? calloc(out->n_values / 8 + 1, 1) : NULL;
  if (!out->values || (c->peers != NULL && !out->kept)) return bs_no_memory(err, "training");
  out->w = out->values;
  out->dy = out->w + w;
  out->y = out->dy + dy;
  out->zero = out->y + dy;
  out->zero_largest = out->zero + (steps + 1) * F;
  return BS_OK;
}

void bs_train_keep(bs_train_result *r, double *at, double value) {
  const uint64_t i = (uint64_t)(at - r->values);
  *at = value;
  if (r->kept) r->kept[i / 8] |= (uint8_t)(1u << i % 8);
}

int32_t bs_train_result_make(const bs_case *c, const bs_train_options *o, bs_train_result *out,
                             bs_error *err) {
  out->steps = o->warmup + (o->steps > 0 ? o->steps : 1);
  out->run.world_size = c->world_size;
  out->run.iterations = o->steps > 0 ? o->steps : 1;
  const size_t steps = (size_t)out->steps;
  int32_t rc = choose_features(c, o, out, err);
  if (rc == BS_OK) rc = take_values(c, out, err);
  if (rc != BS_OK) return rc;
  out->run.ranks = calloc(c->world_size, sizeof *out->run.ranks);
  out->ranks = calloc(c->world_size, sizeof *out->ranks);
  out->loss = calloc(steps + 1, sizeof *out->loss);
  if (!out->run.ranks || !out->ranks || !out->loss) return bs_no_memory(err, "training");
  for (uint32_t r = 0; r < c->world_size; ++r) {
    out->ranks[r].hash = calloc(steps + 1, sizeof *out->ranks[r].hash);
    out->ranks[r].loss = calloc(steps + 1, sizeof *out->ranks[r].loss);
    if (!out->ranks[r].hash || !out->ranks[r].loss) return bs_no_memory(err, "training");
  }
  return BS_OK;
}

/* The first token's largest value of the group of feature n, as sums in int8 steps are made. */
static double largest_of_group(const bs_case *c, const bs_case_rank *mine, const void *values, int64_t n) {
  int64_t begin = 0, count = 0;
  for (uint32_t r = 0; r < c->world_size && n >= begin + count; ++r)
    bs_share(c->spec.N, r, c->world_size, &begin, &count);
  const int64_t first = begin + (n - begin) / BS_WIRE_GROUP * BS_WIRE_GROUP;
  double most = 0.0;
  for (int64_t i = first; i < first + BS_WIRE_GROUP && i < begin + count; ++i)
    if (i >= mine->y_begin && i < mine->y_begin + mine->y_cols)
      most = fmax(most, fabs(bs_load_f64(c->spec.y_dtype, values, i - mine->y_begin)));
  return most;
}

void bs_train_keep_largest(const bs_case *c, bs_train_result *out, uint32_t rank, const void *values,
                           int64_t step) {
  const bs_case_rank *mine = &out->run.ranks[rank];
  if (c->spec.reduce_dtype != BS_I8 || c->world_size < 2) return;
  if (c->spec.y_placement != BS_SPLIT && rank != 0) return;
  for (int64_t f = 0; f < out->features; ++f) {
    const int64_t n = out->feature[f];
    if (n < mine->y_begin || n >= mine->y_begin + mine->y_cols) continue;
    bs_train_keep(out, out->zero_largest + step * out->features + f, largest_of_group(c, mine, values, n));
  }
}

/* The loss of each step: rank 0's, or with a split y the sum of the ranks' shares. */
void bs_train_sum_losses(const bs_case *c, const bs_train_options *o, bs_train_result *out) {
  const uint32_t ranks = c->spec.y_placement == BS_SPLIT ? c->world_size : 1;
  const double all = (double)c->spec.B * (double)c->spec.N;
  for (int64_t i = 0; i < out->steps; ++i) {
    for (uint32_t r = 0; r < ranks; ++r) out->loss[i] += out->ranks[r].loss[i];
    if (o->loss != BS_LOSS_SUM) out->loss[i] /= all;
  }
}

void bs_train_result_free(bs_train_result *result) {
  for (uint32_t r = 0; result->ranks && r < result->run.world_size; ++r) {
    free(result->ranks[r].hash);
    free(result->ranks[r].loss);
  }
  void *const all[] = {result->ranks, result->feature, result->values, result->kept, result->loss};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
  bs_case_result_free(&result->run);
  memset(result, 0, sizeof *result);
}

/* ---- ranks that are processes -------------------------------------------------------------------- */

static int is_kept(const uint8_t *kept, uint64_t i) {
  return kept[i / 8] >> i % 8 & 1;
}

static void put_rank(bs_parcel *p, const bs_train_result *out, const bs_train_rank *own) {
  const uint64_t steps = (uint64_t)out->steps + 1;
  bs_parcel_put(p, own->counters, sizeof own->counters);
  bs_parcel_put(p, &own->moved, sizeof own->moved);
  bs_parcel_put(p, own->hash, steps * sizeof *own->hash);
  bs_parcel_put(p, own->loss, steps * sizeof *own->loss);
  bs_parcel_put_block(p, out->kept, out->n_values / 8 + 1);
  for (uint64_t i = 0; i < out->n_values; ++i)
    if (is_kept(out->kept, i)) bs_parcel_put(p, &out->values[i], sizeof out->values[i]);
}

static int32_t get_rank(void *user, uint32_t r, bs_parcel *p, bs_error *err) {
  bs_train_result *out = user;
  bs_train_rank *own = &out->ranks[r];
  const uint64_t steps = (uint64_t)out->steps + 1;
  uint64_t of_kept = 0;
  bs_parcel_get(p, own->counters, sizeof own->counters);
  bs_parcel_get(p, &own->moved, sizeof own->moved);
  bs_parcel_get(p, own->hash, steps * sizeof *own->hash);
  bs_parcel_get(p, own->loss, steps * sizeof *own->loss);
  uint8_t *kept = bs_parcel_get_block(p, &of_kept);
  if (of_kept != out->n_values / 8 + 1) p->failed = 1;
  for (uint64_t i = 0; !p->failed && i < out->n_values; ++i)
    if (is_kept(kept, i)) bs_parcel_get(p, &out->values[i], sizeof out->values[i]);
  free(kept);
  return p->failed ? bs_no_memory(err, "what the ranks kept of training") : BS_OK;
}

int32_t bs_train_collect(bs_world *world, bs_train_result *out, bs_error *err) {
  bs_parcel mine = {0};
  if (!bs_exchange_joint(world)) return BS_OK;
  put_rank(&mine, out, &out->ranks[bs_world_own_rank(world)]);
  return bs_joint_gather(world, out->run.world_size, &mine, get_rank, out, err);
}

/* ---- deliberate faults -------------------------------------------------------------------------- */

int bs_train_of_slope(uint32_t fault) {
  return fault == BS_TRAIN_SLOPE_LOST || fault == BS_TRAIN_SLOPE_AT_Y;
}

void bs_train_activate(uint32_t activation, void *values, int64_t count, uint32_t dtype) {
  for (int64_t i = 0; activation != BS_ACT_NONE && i < count; ++i)
    bs_store_f64(dtype, values, i, bs_activation_value(activation, bs_load_f64(dtype, values, i)));
}

void bs_train_slope_at_y(uint32_t activation, const void *y, void *dy, int64_t count, uint32_t dtype) {
  for (int64_t i = 0; i < count; ++i)
    bs_store_f64(dtype, dy, i,
                 bs_load_f64(dtype, dy, i) * bs_activation_slope_at(activation, bs_load_f64(dtype, y, i)));
}

/* Changes the bias by 0.25 against the sign of its gradient. If all biases had one sign (after relu), the
 * length of AdamW's step would hardly change. */
int32_t bs_train_decay_bias(bs_rank *rank, const bs_tensor *db, bs_error *err) {
  const int64_t n = db->dims[0];
  double *values = malloc((size_t)(n + 1) * sizeof *values);
  if (values == NULL) return bs_no_memory(err, "training");
  int32_t rc = bs_rank_copy_out(rank, db, values, err);
  for (int64_t i = 0; i < n; ++i) {
    const double g = bs_load_f64(db->dtype, values, i);
    bs_store_f64(db->dtype, values, i, g - copysign(0.25, g));
  }
  bs_tensor row = *db;
  row.rank = 2;
  row.dims[1] = n;
  row.dims[0] = row.strides[1] = 1;
  row.strides[0] = n > 0 ? n : 1;
  if (rc == BS_OK && n > 0) rc = bs_loss_upload(rank, &row, values, err);
  free(values);
  return rc;
}
