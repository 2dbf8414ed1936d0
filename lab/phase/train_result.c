/* SPDX-License-Identifier: MIT
 * train_result.c - what follows of a training's options, the memory of its result, and what is made of it
 * when the ranks are done. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "lab/error.h"
#include "lab/gate/judge.h"
#include "lab/phase/train.h"

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

/* As many rows of W as fit, evenly spread, the first and the last among them. */
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

/* One memory, so that what ranks of other processes kept is told by places in it. */
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
    free(result->ranks[r].regions);
  }
  void *const all[] = {result->ranks, result->feature, result->values, result->kept, result->loss};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
  bs_case_result_free(&result->run);
  memset(result, 0, sizeof *result);
}
