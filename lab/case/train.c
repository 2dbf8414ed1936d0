/* SPDX-License-Identifier: MIT
 * train.c - see train.h. Weights are read back between two steps, outside of every region. */
#include "lab/case/train.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/plugin/registry.h"
#include "lab/case/loss.h"
#include "lab/case/owners.h"
#include "lab/case/remask.h"
#include "lab/case/watch.h"
#include "lab/error.h"
#include "lab/stop.h"

typedef struct train_run {
  bs_case_kept kept;
  const bs_case *c;
  const bs_train_options *o;
  bs_train_result *out;
  bs_watch watch;
  bs_case copy;
  bs_train_options options;
  bs_train_result result;
  bs_remask remask;
  uint32_t outside; /* the activation, if a fault of its slope removes it from the layer */
} train_run;

/* One rank's layer and tensors. */
typedef struct trainer {
  train_run *run;
  bs_rank *rank;
  uint32_t index, loss_region, remask_region;
  int packs; /* a layer is being built that does not time its packing as `compress` itself */
  bs_layer *layer;
  bs_tensor x, y, dy, dx, dw, db, row;
  bs_whole whole;
  bs_device_loss loss;
  uint64_t t; /* steps that this layer has taken */
} trainer;

/* ---- reading back -------------------------------------------------------------------------------- */

/* Reads the sampled rows that this rank owns, after `step` steps. */
static int32_t read_rows(trainer *t, int64_t step, bs_error *err) {
  bs_train_result *out = t->run->out;
  const bs_ownership *own = &out->run.ranks[t->index].owns;
  const int64_t K = t->run->c->spec.K, cols = t->row.dims[1];
  double *line = malloc((size_t)(cols + 1) * sizeof *line);
  int64_t *column = malloc((size_t)(cols + 1) * sizeof *column);
  int32_t rc = line && column ? BS_OK : bs_no_memory(err, "training");
  for (int64_t f = 0; rc == BS_OK && cols > 0 && f < out->features; ++f) {
    const int64_t row = out->feature[f] - own->row_begin;
    if (row < 0 || row >= own->row_count) continue;
    rc = bs_layer_read_weights(t->layer, row, &t->row, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(t->rank, &t->row, line, err);
    if (rc == BS_OK) rc = bs_owners_row_columns(own, K, row, column, err);
    double *to = out->w + (step * out->features + f) * K;
    for (int64_t j = 0; rc == BS_OK && j < cols; ++j)
      if (column[j] >= 0) bs_train_keep(out, to + column[j], line[j]);
  }
  free(column);
  free(line);
  return rc;
}

/* The sampled features among a rank's outputs; of those that all ranks hold, rank 0's. */
static void keep_features(const trainer *t, const void *values, int64_t rows, double *to) {
  const bs_case_rank *mine = &t->run->out->run.ranks[t->index];
  const bs_layer_spec *s = &t->run->c->spec;
  bs_train_result *out = t->run->out;
  if (s->y_placement != BS_SPLIT && t->index != 0) return;
  for (int64_t f = 0; f < out->features; ++f) {
    const int64_t n = out->feature[f] - mine->y_begin;
    for (int64_t b = 0; n >= 0 && n < mine->y_cols && b < rows; ++b)
      bs_train_keep(out, to + b * out->features + f, bs_load_f64(s->y_dtype, values, b * mine->y_cols + n));
  }
}

static size_t y_bytes(const trainer *t) {
  const bs_layer_spec *s = &t->run->c->spec;
  return (size_t)(s->B * t->run->out->run.ranks[t->index].y_cols) * BS_DTYPE_BYTES(s->y_dtype);
}

static int64_t y_count(const trainer *t) {
  return t->run->c->spec.B * t->run->out->run.ranks[t->index].y_cols;
}

static int32_t read_y(trainer *t, void *values, bs_error *err) {
  const int32_t rc = bs_whole_read(&t->whole, t->rank, &t->y, values, err);
  if (rc == BS_OK) bs_train_activate(t->run->outside, values, y_count(t), t->run->c->spec.y_dtype);
  return rc;
}

/* Reads y of an x of zeros, which is activation(bias); restores x afterwards. */
static int32_t read_zero(trainer *t, const bs_source *x, int64_t step, bs_error *err) {
  bs_train_result *out = t->run->out;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_partition *cols =
      t->run->c->spec.x_placement == BS_SPLIT ? out->run.ranks[t->index].owns.columns : NULL;
  const size_t of_x = (size_t)(t->x.dims[0] * t->x.dims[1]) * BS_DTYPE_BYTES(t->x.dtype);
  void *values = calloc(1, of_x + y_bytes(t) + 1);
  int32_t rc = values ? BS_OK : bs_no_memory(err, "training");
  if (rc == BS_OK) rc = bs_loss_upload(t->rank, &t->x, values, err); /* zeros */
  if (rc == BS_OK) rc = bs_layer_forward(t->layer, &t->x, &t->y, NULL, err);
  if (rc == BS_OK) rc = read_y(t, values, err);
  if (rc == BS_OK) keep_features(t, values, 1, out->zero + step * out->features);
  if (rc == BS_OK) bs_train_keep_largest(t->run->c, out, t->index, values, step);
  if (rc == BS_OK) rc = bs_remask_bias(&t->run->remask, t->run->c, &out->run.ranks[t->index], values, err);
  if (rc == BS_OK && of_x > 0) rc = api->tensor_read(t->rank, x, 0, cols, &t->x, err);
  free(values);
  return rc;
}

/* ---- one step ------------------------------------------------------------------------------------ */

/* y becomes dy, on every rank alike. */
static int32_t loss_and_gradient(trainer *t, int64_t step, bs_error *err) {
  train_run *run = t->run;
  const bs_case_rank *mine = &run->out->run.ranks[t->index];
  bs_train_rank *own = &run->out->ranks[t->index];
  const int64_t B = run->c->spec.B, kept = step * B * run->out->features;
  char *y = malloc(2 * y_bytes(t) + 1), *dy = y + y_bytes(t);
  if (y == NULL) return bs_no_memory(err, "training");
  int32_t rc = read_y(t, y, err);
  own->hash[step] = bs_hash64(y, y_bytes(t));
  memcpy(dy, y, y_bytes(t));
  const int there = t->loss.plan != NULL && run->outside == BS_ACT_NONE;
  if (rc == BS_OK)
    rc = there ? bs_device_loss_run(&t->loss, t->rank, &t->y, &t->dy, dy, &own->loss[step], err)
               : bs_loss_gradients(run->o->loss, &run->c->spec, mine, run->o->target, dy, &own->loss[step],
                                   err);
  if (rc == BS_OK) keep_features(t, y, B, run->out->y + kept);
  if (rc == BS_OK) keep_features(t, dy, B, run->out->dy + kept);
  if (rc == BS_OK && run->o->fault == BS_TRAIN_SLOPE_AT_Y)
    bs_train_slope_at_y(run->outside, y, dy, y_count(t), run->c->spec.y_dtype);
  if (rc == BS_OK && !there) rc = bs_loss_upload(t->rank, &t->dy, dy, err);
  free(y);
  return rc;
}

static int32_t optimise(trainer *t, int64_t i, bs_error *err) {
  const bs_train_options *o = t->run->o;
  const uint32_t fault = i == 1 ? o->fault : (uint32_t)BS_TRAIN_RIGHT;
  const int last = t->index + 1 == t->run->c->world_size, has_bias = t->run->c->spec.has_bias != 0;
  bs_step step = {.struct_size = sizeof step,
                  .optimizer = o->optimizer,
                  .t = ++t->t,
                  .lr = o->lr,
                  .momentum = o->momentum,
                  .beta1 = o->beta1,
                  .beta2 = o->beta2,
                  .eps = o->eps,
                  .weight_decay = o->weight_decay,
                  .dw = bs_train_fused(o) ? NULL : &t->dw,
                  .db = has_bias ? &t->db : NULL,
                  .x = &t->x,
                  .dy = &t->dy};
  if (fault == BS_TRAIN_STEP_SKIPPED && last) return BS_OK;
  if (fault == BS_TRAIN_LR_DOUBLED && last) step.lr *= 2;
  if (fault == BS_TRAIN_SIGN_TURNED) step.lr = -step.lr;
  const int32_t rc =
      fault == BS_TRAIN_BIAS_DECAYED && has_bias ? bs_train_decay_bias(t->rank, &t->db, err) : BS_OK;
  return rc == BS_OK ? bs_layer_step(t->layer, &step, NULL, err) : rc;
}

static int32_t once(trainer *t, int64_t i, bs_error *err) {
  train_run *run = t->run;
  bs_case_rank *mine = &run->out->run.ranks[t->index];
  bs_train_rank *own = &run->out->ranks[t->index];
  int32_t rc = bs_stop_check(err);
  bs_rank_counters_reset(t->rank);
  bs_rank_get_api()->region_begin(t->rank, BS_REGION_TOTAL_STEP);
  if (rc == BS_OK) rc = bs_layer_forward(t->layer, &t->x, &t->y, NULL, err);
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) mine->counters[k] = bs_rank_counter(t->rank, k);
  bs_rank_get_api()->region_begin(t->rank, t->loss_region);
  if (rc == BS_OK) rc = loss_and_gradient(t, i, err);
  bs_rank_get_api()->region_end(t->rank, t->loss_region);
  uint64_t of_loss[BS_COUNT_COUNT_]; /* a sum of partial outputs is the lab's, not the layer's */
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) of_loss[k] = bs_rank_counter(t->rank, k) - mine->counters[k];
  if (rc == BS_OK)
    rc = bs_layer_backward(t->layer, &t->x, &t->dy, &t->dx, bs_train_fused(run->o) ? NULL : &t->dw,
                           t->db.data ? &t->db : NULL, NULL, err);
  if (rc == BS_OK) rc = optimise(t, i, err);
  bs_rank_get_api()->region_end(t->rank, BS_REGION_TOTAL_STEP);
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) own->counters[k] = bs_rank_counter(t->rank, k) - of_loss[k];
  return rc;
}

/* ---- the layer ----------------------------------------------------------------------------------- */

static void free_layer(trainer *t) {
  bs_tensor *const all[] = {&t->x, &t->y, &t->dy, &t->dx, &t->dw, &t->db, &t->row};
  bs_device_loss_close(&t->loss, t->rank);
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
    if (all[i]->data) bs_rank_get_api()->tensor_free(t->rank, all[i]);
  bs_layer_free(t->layer);
  t->layer = NULL;
}

static int32_t make_layer(trainer *t, const bs_source *x, const bs_source *w, const bs_source *bias,
                          bs_error *err) {
  const bs_case *c = t->run->c;
  const bs_layer_spec *s = &c->spec;
  bs_case_rank *mine = &t->run->out->run.ranks[t->index];
  const uint32_t wide = bs_case_wide(s);
  free(mine->columns);
  mine->columns = NULL;
  bs_owners_free(mine);
  t->t = 0;
  if (t->packs) bs_rank_get_api()->region_begin(t->rank, BS_REGION_COMPRESS);
  int32_t rc = bs_layer_build(t->rank, c->method, s, w, bias, &t->layer, err);
  if (t->packs) bs_rank_get_api()->region_end(t->rank, BS_REGION_COMPRESS);
  if (rc == BS_OK) rc = bs_case_ownership(t->layer, mine, err);
  if (rc == BS_OK) rc = bs_case_features(c, t->layer, t->index, &mine->y_begin, &mine->y_cols, err);
  if (rc != BS_OK) return rc;
  const int64_t rows = mine->owns.row_count, cols = bs_owners_width(&mine->owns, s->K);
  rc = bs_case_input(c, t->rank, t->layer, x, &t->x, err);
  if (rc == BS_OK) rc = bs_case_tensor(t->rank, s->y_dtype, 2, s->B, mine->y_cols, &t->y, err);
  if (rc == BS_OK) rc = bs_case_tensor(t->rank, s->y_dtype, 2, s->B, mine->y_cols, &t->dy, err);
  if (rc == BS_OK)
    rc = bs_device_loss_open(&t->loss, t->run->o->loss, s, mine, t->run->o->target, t->rank, &t->y, &t->dy,
                             err);
  if (rc == BS_OK) rc = bs_case_tensor(t->rank, s->x_dtype, 2, s->B, t->x.dims[1], &t->dx, err);
  if (rc == BS_OK && !bs_train_fused(t->run->o))
    rc = bs_case_tensor(t->rank, wide, 2, rows, cols, &t->dw, err);
  if (rc == BS_OK && s->has_bias) rc = bs_case_tensor(t->rank, wide, 1, rows, 0, &t->db, err);
  if (rc == BS_OK) rc = bs_case_tensor(t->rank, BS_F64, 2, 1, cols, &t->row, err);
  return rc;
}

/* Counts positions that the old layer did not have: another rank had their values. */
static void count_moved(trainer *t, const uint8_t *old) {
  const bs_case_rank *mine = &t->run->out->run.ranks[t->index];
  const uint64_t bytes = mine->kept ? bs_owners_kept_bytes(&mine->kept_storage) : 0;
  for (uint64_t i = 0; old && i < bytes; ++i)
    t->run->out->ranks[t->index].moved += (uint64_t)__builtin_popcount(mine->kept[i] & ~old[i] & 0xFu);
}

/* Builds a new layer whose source is the weights of all ranks, which also give its mask. Timed as
 * `decompress`, `mask` and `compress`. The layer times the last two itself if it has positions to choose;
 * else packing is `compress`. */
static int32_t remask(trainer *t, const bs_source *x, int64_t step, bs_error *err) {
  train_run *run = t->run;
  const bs_ownership *own = &run->out->run.ranks[t->index].owns;
  const bs_rank_api *api = bs_rank_get_api();
  t->packs = own->kept == NULL;
  int32_t rc = run->c->spec.has_bias ? read_zero(t, x, step, err) : BS_OK;
  api->region_begin(t->rank, t->remask_region);
  if (rc == BS_OK) rc = bs_remask_gather(&run->remask, t->rank, t->layer, own, err);
  uint8_t *old = run->out->run.ranks[t->index].kept;
  if (rc == BS_OK) {
    free_layer(t);
    run->out->run.ranks[t->index].kept = NULL; /* it is `old` now */
    rc = make_layer(t, x, &run->remask.w, run->c->spec.has_bias ? &run->remask.bias : NULL, err);
    if (rc == BS_OK) count_moved(t, old);
    free(old);
  }
  t->packs = 0;
  if (rc == BS_OK) rc = bs_rank_barrier(t->rank, "remask.built", err);
  api->region_end(t->rank, t->remask_region);
  return rc;
}

static int32_t finish(trainer *t, const bs_source *x, bs_error *err) {
  bs_train_result *out = t->run->out;
  bs_case_rank *mine = &out->run.ranks[t->index];
  int32_t rc =
      t->run->o->fault == BS_TRAIN_OLD_WEIGHTS ? BS_OK : bs_layer_forward(t->layer, &t->x, &t->y, NULL, err);
  mine->y_bytes = y_bytes(t);
  mine->y = malloc(y_bytes(t) + 1);
  if (rc == BS_OK && mine->y == NULL) rc = bs_no_memory(err, "training");
  if (rc == BS_OK) rc = read_y(t, mine->y, err);
  if (rc != BS_OK) return rc;
  mine->hash = out->ranks[t->index].hash[out->steps] = bs_hash64(mine->y, y_bytes(t));
  mine->same_each_time = 1;
  return read_zero(t, x, out->steps, err);
}

static int32_t train(trainer *t, const bs_source *x, bs_error *err) {
  train_run *run = t->run;
  const int64_t steps = run->out->steps;
  int32_t rc = read_rows(t, 0, err);
  for (int64_t i = 0; rc == BS_OK && i < steps; ++i) {
    if (i == run->o->warmup) bs_rank_regions_reset(t->rank);
    rc = once(t, i, err);
    if (t->index == 0) bs_case_tell(run->c, "step", (uint64_t)i + 1, (uint64_t)steps);
    if (rc == BS_OK) rc = read_rows(t, i + 1, err);
    if (rc == BS_OK && i == 0 && run->o->fault == BS_TRAIN_MOMENTS_LOST)
      rc = remask(t, x, i + 1, err);
    else if (rc == BS_OK && bs_train_remasks(run->o, i + 1, steps))
      rc = remask(t, x, i + 1, err);
  }
  if (rc == BS_OK) rc = bs_case_time(t->rank, &run->out->run.ranks[t->index], err); /* only of the steps */
  return rc == BS_OK ? finish(t, x, err) : rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  train_run *run = arg;
  trainer t = {.run = run, .rank = rank, .index = bs_rank_get_api()->rank(rank)};
  bs_case_source s;
  t.loss_region = bs_rank_get_api()->region_named(rank, "loss");
  t.remask_region = bs_rank_get_api()->region_named(rank, "remask");
  int32_t rc = bs_case_sources(run->c, t.index, &run->watch, &s, err);
  if (rc == BS_OK) rc = make_layer(&t, &s.x, &s.w, s.bias, err);
  if (rc == BS_OK) rc = bs_whole_open(&t.whole, run->c, rank, err);
  if (rc == BS_OK) rc = train(&t, &s.x, err);
  bs_whole_close(&t.whole, rank);
  free_layer(&t);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

int32_t bs_train_run(const bs_case *like, const bs_train_options *options, bs_train_result *out,
                     bs_error *err) {
  memset(out, 0, sizeof *out);
  train_run *run = calloc(1, sizeof *run);
  if (!run) return bs_no_memory(err, "training");
  run->copy = *like;
  run->copy.spec.flags |= bs_train_flags(options);
  if (bs_train_of_slope(options->fault)) {
    run->outside = run->copy.spec.activation;
    run->copy.spec.activation = BS_ACT_NONE;
  }
  run->options = *options;
  run->c = &run->copy;
  run->o = &run->options;
  run->out = &run->result;
  run->result.run.whole = 1; /* the loss is computed from the sum of partial outputs */
  run->watch.tell = like->progress ? &run->copy : NULL;
  bs_world *world = NULL;
  const int again = options->remask > 0 || options->fault == BS_TRAIN_MOMENTS_LOST;
  int32_t rc = bs_train_result_make(run->c, run->o, run->out, err);
  if (rc == BS_OK && again) rc = bs_remask_open(&run->remask, run->c, err);
  if (rc == BS_OK) rc = bs_case_world(run->c, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, run, err);
  if (bs_context_stuck(like->context) > 0) { /* a rank that has not returned may still use all of it */
    bs_case_keep(&run->kept);
    return rc;
  }
  if (rc == BS_OK) rc = bs_case_collect(run->c, world, &run->result.run, err);
  if (rc == BS_OK) rc = bs_owners_check(run->c, &run->result.run, err);
  if (rc == BS_OK) rc = bs_train_collect(world, &run->result, err);
  if (rc == BS_OK) bs_train_sum_losses(run->c, run->o, &run->result);
  bs_world_destroy(world);
  bs_remask_close(&run->remask);
  *out = run->result;
  free(run);
  if (rc != BS_OK) bs_train_result_free(out);
  return rc;
}
