/* SPDX-License-Identifier: MIT
 * gradient.c - see gradient.h. The gradient of Y is computed between two timed regions, by the device if
 * possible, else on the host. */
#include "lab/case/gradient.h"

#include <stdlib.h>
#include <string.h>

#include "core/plugin/registry.h"
#include "lab/case/joint.h"
#include "lab/case/loss.h"
#include "lab/case/owners.h"
#include "lab/case/watch.h"
#include "lab/error.h"
#include "lab/stop.h"

typedef struct gradient_run {
  bs_case_kept kept;
  const bs_case *c;
  bs_gradient_result *out;
  uint32_t loss;
  const bs_source *target;
  bs_watch watch;
  bs_case copy;
  bs_gradient_result result;
} gradient_run;

/* One rank's tensors. */
typedef struct tensors {
  bs_tensor x, y, dy, dx, dw, db;
  bs_whole whole;
  bs_device_loss loss;
} tensors;

/* ---- the gradient of Y --------------------------------------------------------------------------- */

/* A rank's features of a matrix [B,N] that is the same on all of them. */
static void keep(const gradient_run *run, uint32_t index, const bs_case_rank *mine, const void *values,
                 void *to) {
  const bs_layer_spec *s = &run->c->spec;
  if (s->y_placement != BS_SPLIT && index != 0) return;
  const size_t size = BS_DTYPE_BYTES(s->y_dtype), bytes = (size_t)mine->y_cols * size;
  for (int64_t b = 0; b < s->B && bytes > 0; ++b)
    memcpy((char *)to + (size_t)(b * s->N + mine->y_begin) * size, (const char *)values + (size_t)b * bytes,
           bytes);
}

static int32_t make_dy(const gradient_run *run, bs_rank *rank, uint32_t index, tensors *t, bs_error *err) {
  const bs_layer_spec *s = &run->c->spec;
  const bs_case_rank *mine = &run->out->run.ranks[index];
  const bs_case_fault *fault = run->c->fault;
  const int64_t count = s->B * mine->y_cols;
  const size_t bytes = (size_t)count * BS_DTYPE_BYTES(s->y_dtype);
  char *y = malloc(2 * bytes + 1), *dy = y + bytes;
  if (y == NULL) return bs_no_memory(err, "gradients");
  run->out->ranks[index].dy_begin = mine->y_begin;
  run->out->ranks[index].dy_cols = mine->y_cols;
  int32_t rc = bs_whole_read(&t->whole, rank, &t->y, y, err);
  const int there = t->loss.plan != NULL && fault == NULL; /* faults change data on the host */
  if (rc == BS_OK && fault && fault->loss_of) fault->loss_of(fault->user, y, count, s->y_dtype);
  memcpy(dy, y, bytes);
  if (rc == BS_OK)
    rc = there ? bs_device_loss_run(&t->loss, rank, &t->y, &t->dy, dy, NULL, err)
               : bs_loss_gradients(run->loss, s, mine, run->target, dy, NULL, err);
  if (rc == BS_OK) keep(run, index, mine, y, run->out->y);
  if (rc == BS_OK) keep(run, index, mine, dy, run->out->dy);
  if (rc == BS_OK && fault && fault->gradient) fault->gradient(fault->user, y, dy, count, s->y_dtype);
  if (rc == BS_OK && !there) rc = bs_loss_upload(rank, &t->dy, dy, err);
  free(y);
  return rc;
}

/* ---- one rank ------------------------------------------------------------------------------------ */

static int32_t once(gradient_run *run, bs_rank *rank, uint32_t index, bs_layer *layer, int64_t i, tensors *t,
                    bs_error *err) {
  bs_case_rank *mine = &run->out->run.ranks[index];
  bs_gradient_rank *own = &run->out->ranks[index];
  if (i == 0) bs_rank_regions_reset(rank);
  bs_rank_counters_reset(rank);
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_layer_forward(layer, &t->x, &t->y, NULL, err);
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) mine->counters[k] = bs_rank_counter(rank, k);
  if (rc == BS_OK) rc = make_dy(run, rank, index, t, err);
  bs_rank_counters_reset(rank);
  if (rc == BS_OK)
    rc = bs_layer_backward(layer, &t->x, &t->dy, &t->dx, &t->dw, t->db.data ? &t->db : NULL, NULL, err);
  for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) own->counters[k] = bs_rank_counter(rank, k);
  return rc;
}

static int32_t repeat(gradient_run *run, bs_rank *rank, uint32_t index, bs_layer *layer, tensors *t,
                      bs_error *err) {
  const bs_case *c = run->c;
  bs_case_rank *mine = &run->out->run.ranks[index];
  bs_gradient_rank *own = &run->out->ranks[index];
  const int64_t iterations = run->out->run.iterations;
  const size_t bytes = (size_t)(c->spec.B * t->dx.dims[1]) * BS_DTYPE_BYTES(c->spec.x_dtype);
  uint64_t first_hash = 0;
  mine->same_each_time = 1;
  for (int64_t i = -c->warmup; i < iterations; ++i) {
    int32_t rc = once(run, rank, index, layer, i, t, err);
    if (rc != BS_OK) return rc;
    if (index == 0)
      bs_case_tell(c, i < 0 ? "warm-up" : "backward", (uint64_t)(i + c->warmup) + 1,
                   (uint64_t)(c->warmup + iterations));
    if (i < 0) continue;
    rc = bs_rank_copy_out(rank, &t->dx, mine->y, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(rank, &t->dw, own->dw, err);
    if (rc == BS_OK && own->db) rc = bs_rank_copy_out(rank, &t->db, own->db, err);
    if (rc != BS_OK) return rc;
    mine->hash = bs_hash64(mine->y, bytes);
    if (i == 0) first_hash = mine->hash;
    if (mine->hash != first_hash) mine->same_each_time = 0;
  }
  return BS_OK;
}

static int32_t take_tensors(gradient_run *run, bs_rank *rank, uint32_t index, bs_layer *layer,
                            const bs_source *x, tensors *t, bs_error *err) {
  const bs_case *c = run->c;
  const bs_layer_spec *s = &c->spec;
  const bs_case_rank *mine = &run->out->run.ranks[index];
  const int64_t rows = mine->owns.row_count, cols = bs_owners_width(&mine->owns, s->K);
  const uint32_t wide = run->out->wide;
  int32_t rc = bs_case_input(c, rank, layer, x, &t->x, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, s->y_dtype, 2, s->B, mine->y_cols, &t->y, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, s->y_dtype, 2, s->B, mine->y_cols, &t->dy, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, s->x_dtype, 2, s->B, t->x.dims[1], &t->dx, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, wide, 2, rows, cols, &t->dw, err);
  if (rc == BS_OK && s->has_bias) rc = bs_case_tensor(rank, wide, 1, rows, 0, &t->db, err);
  return rc;
}

static int32_t take_results(gradient_run *run, uint32_t index, const tensors *t, bs_error *err) {
  bs_case_rank *mine = &run->out->run.ranks[index];
  bs_gradient_rank *own = &run->out->ranks[index];
  const size_t dx = (size_t)(t->dx.dims[0] * t->dx.dims[1]) * BS_DTYPE_BYTES(t->dx.dtype);
  const size_t wide = BS_DTYPE_BYTES(run->out->wide);
  const size_t dw = (size_t)(t->dw.dims[0] * t->dw.dims[1]) * wide, db = (size_t)t->dw.dims[0] * wide;
  mine->y = calloc(1, dx + 1);
  mine->y_bytes = dx;
  own->dw = calloc(1, dw + 1);
  own->db = run->c->spec.has_bias ? calloc(1, db + 1) : NULL;
  return mine->y && own->dw && (own->db || !run->c->spec.has_bias) ? BS_OK : bs_no_memory(err, "gradients");
}

static int32_t build_and_run(gradient_run *run, bs_rank *rank, uint32_t index, const bs_case_source *s,
                             bs_error *err) {
  const bs_case *c = run->c;
  bs_case_rank *mine = &run->out->run.ranks[index];
  bs_layer *layer = NULL;
  tensors t;
  memset(&t, 0, sizeof t);
  const bs_layer_spec spec = bs_case_spec(c, index);
  int32_t rc = bs_layer_build(rank, c->method, &spec, &s->w, s->bias, &layer, err);
  if (rc == BS_OK) rc = bs_case_ownership(layer, mine, err);
  if (rc == BS_OK) rc = bs_case_features(c, layer, index, &mine->y_begin, &mine->y_cols, err);
  if (rc == BS_OK) rc = take_tensors(run, rank, index, layer, &s->x, &t, err);
  if (rc == BS_OK) rc = bs_whole_open(&t.whole, c, rank, err);
  if (rc == BS_OK)
    rc = bs_device_loss_open(&t.loss, run->loss, &c->spec, mine, run->target, rank, &t.y, &t.dy, err);
  if (rc == BS_OK) rc = take_results(run, index, &t, err);
  if (rc == BS_OK) rc = repeat(run, rank, index, layer, &t, err);
  if (rc == BS_OK) { /* from here on y is dX */
    mine->y_begin = 0;
    mine->y_cols = t.dx.dims[1];
  }
  bs_whole_close(&t.whole, rank);
  bs_device_loss_close(&t.loss, rank);
  bs_tensor *const all[] = {&t.x, &t.y, &t.dy, &t.dx, &t.dw, &t.db};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
    if (all[i]->data) bs_rank_get_api()->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  gradient_run *run = arg;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  bs_case_source s;
  const int32_t rc = bs_case_sources(run->c, index, &run->watch, &s, err);
  return rc == BS_OK ? build_and_run(run, rank, index, &s, err) : rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t take_result(const bs_case *c, bs_gradient_result *out, bs_error *err) {
  const bs_layer_spec *s = &c->spec;
  out->wide = bs_case_wide(s);
  out->run.world_size = c->world_size;
  out->run.whole = 1; /* dX has the placement of X */
  out->run.iterations = c->iterations > 0 ? c->iterations : 1;
  out->run.ranks = calloc(c->world_size, sizeof *out->run.ranks);
  out->ranks = calloc(c->world_size, sizeof *out->ranks);
  out->dy = calloc((size_t)(s->B * s->N) + 1, BS_DTYPE_BYTES(s->y_dtype));
  out->y = calloc((size_t)(s->B * s->N) + 1, BS_DTYPE_BYTES(s->y_dtype));
  return out->run.ranks && out->ranks && out->dy && out->y ? BS_OK : bs_no_memory(err, "gradients");
}

/* ---- ranks that are processes -------------------------------------------------------------------- */

/* Features [begin, begin + cols) of dy or y, a row at a time. */
static void put_features(bs_parcel *p, const bs_layer_spec *s, const void *matrix,
                         const bs_gradient_rank *own) {
  const size_t size = BS_DTYPE_BYTES(s->y_dtype);
  for (int64_t b = 0; s->y_placement == BS_SPLIT && b < s->B; ++b)
    bs_parcel_put(p, (const char *)matrix + (size_t)(b * s->N + own->dy_begin) * size,
                  (uint64_t)own->dy_cols * size);
}
static void get_features(bs_parcel *p, const bs_layer_spec *s, void *matrix, const bs_gradient_rank *own) {
  const size_t size = BS_DTYPE_BYTES(s->y_dtype);
  for (int64_t b = 0; s->y_placement == BS_SPLIT && b < s->B; ++b)
    bs_parcel_get(p, (char *)matrix + (size_t)(b * s->N + own->dy_begin) * size,
                  (uint64_t)own->dy_cols * size);
}

static void put_rank(bs_parcel *p, const bs_case *c, const bs_gradient_result *out, uint32_t r) {
  const bs_gradient_rank *own = &out->ranks[r];
  const bs_case_rank *mine = &out->run.ranks[r];
  const uint64_t cols = (uint64_t)bs_owners_width(&mine->owns, c->spec.K);
  const uint64_t rows = (uint64_t)mine->owns.row_count, wide = BS_DTYPE_BYTES(out->wide);
  bs_parcel_put(p, own, sizeof *own);
  bs_parcel_put_block(p, own->dw, rows * cols * wide);
  bs_parcel_put_block(p, own->db, rows * wide);
  put_features(p, &c->spec, out->dy, own);
  put_features(p, &c->spec, out->y, own);
}

typedef struct joined {
  const bs_case *c;
  bs_gradient_result *out;
} joined;

static int32_t get_rank(void *user, uint32_t r, bs_parcel *p, bs_error *err) {
  const joined *j = user;
  bs_gradient_rank *own = &j->out->ranks[r];
  bs_parcel_get(p, own, sizeof *own);
  own->dw = bs_parcel_get_block(p, NULL);
  own->db = bs_parcel_get_block(p, NULL);
  get_features(p, &j->c->spec, j->out->dy, own);
  get_features(p, &j->c->spec, j->out->y, own);
  return p->failed ? bs_no_memory(err, "gradients") : BS_OK;
}

/* After bs_case_collect: the gradients of the others, on rank 0. */
static int32_t collect_joint(const bs_case *c, bs_world *world, bs_gradient_result *out, bs_error *err) {
  bs_parcel mine = {0};
  joined j = {c, out};
  if (!bs_exchange_joint(world)) return BS_OK;
  put_rank(&mine, c, out, bs_world_own_rank(world));
  return bs_joint_gather(world, c->world_size, &mine, get_rank, &j, err);
}

/* Lets a fault change finished gradients of the bias. */
static void tamper(const bs_case *c, bs_gradient_result *out) {
  for (uint32_t r = 0; c->fault && c->fault->bias_gradient && r < c->world_size; ++r)
    if (out->ranks[r].db)
      c->fault->bias_gradient(c->fault->user, out->ranks[r].db, out->run.ranks[r].owns.row_count, out->wide);
}

int32_t bs_gradient_run(const bs_case *like, uint32_t loss, const bs_source *target, bs_gradient_result *out,
                        bs_error *err) {
  memset(out, 0, sizeof *out);
  gradient_run *run = calloc(1, sizeof *run);
  if (!run) return bs_no_memory(err, "gradients");
  run->copy = *like;
  run->copy.spec.flags |= BS_LAYER_BACKWARD;
  run->c = &run->copy;
  run->out = &run->result;
  run->loss = loss;
  run->target = target;
  run->watch.tell = like->progress ? &run->copy : NULL;
  bs_world *world = NULL;
  int32_t rc = take_result(run->c, run->out, err);
  if (rc == BS_OK) rc = bs_case_world(run->c, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, run, err);
  if (bs_context_stuck(like->context) > 0) { /* a rank that has not returned may still use all of it */
    bs_case_keep(&run->kept);
    return rc;
  }
  if (rc == BS_OK) rc = bs_case_collect(run->c, world, &run->result.run, err);
  if (rc == BS_OK) rc = bs_owners_check(run->c, &run->result.run, err);
  if (rc == BS_OK) rc = collect_joint(run->c, world, &run->result, err);
  if (rc == BS_OK) tamper(run->c, run->out);
  bs_world_destroy(world);
  *out = run->result;
  free(run);
  if (rc != BS_OK) bs_gradient_result_free(out);
  return rc;
}

void bs_gradient_result_free(bs_gradient_result *result) {
  for (uint32_t r = 0; result->ranks && r < result->run.world_size; ++r) {
    free(result->ranks[r].dw);
    free(result->ranks[r].db);
  }
  free(result->ranks);
  free(result->dy);
  free(result->y);
  bs_case_result_free(&result->run);
  memset(result, 0, sizeof *result);
}

/* Copies a rank's rows of dW to their places. */
static int32_t place_dw(const bs_case *c, const bs_gradient_result *result, uint32_t r, char *dw,
                        bs_error *err) {
  const bs_ownership *o = &result->run.ranks[r].owns;
  const int64_t K = c->spec.K, width = bs_owners_width(o, K);
  const size_t size = BS_DTYPE_BYTES(result->wide);
  int64_t *columns = malloc((size_t)(width > 0 ? width : 1) * sizeof *columns);
  int32_t rc = columns ? BS_OK : bs_no_memory(err, "gradients");
  for (int64_t i = 0; rc == BS_OK && i < o->row_count; ++i) {
    rc = bs_owners_row_columns(o, K, i, columns, err);
    for (int64_t j = 0; rc == BS_OK && j < width; ++j) {
      if (columns[j] < 0) continue;
      memcpy(dw + (size_t)((o->row_begin + i) * K + columns[j]) * size,
             (const char *)result->ranks[r].dw + (size_t)(i * width + j) * size, size);
    }
  }
  free(columns);
  return rc;
}

int32_t bs_gradient_assemble(const bs_case *c, const bs_gradient_result *result, void **out_dw, void **out_db,
                             bs_error *err) {
  const int64_t N = c->spec.N, K = c->spec.K;
  const size_t size = BS_DTYPE_BYTES(result->wide);
  char *dw = calloc((size_t)(N * K) + 1, size), *db = calloc((size_t)N + 1, size);
  int32_t rc = dw && db ? BS_OK : bs_no_memory(err, "gradients");
  *out_dw = dw;
  *out_db = db;
  for (uint32_t r = 0; rc == BS_OK && r < result->run.world_size; ++r) {
    const bs_ownership *o = &result->run.ranks[r].owns;
    rc = place_dw(c, result, r, dw, err);
    if (result->ranks[r].db)
      memcpy(db + (size_t)o->row_begin * size, result->ranks[r].db, (size_t)o->row_count * size);
  }
  if (rc == BS_OK && c->spec.has_bias) return BS_OK;
  free(db);
  *out_db = NULL;
  if (rc == BS_OK) return BS_OK;
  free(dw);
  *out_dw = NULL;
  return rc;
}
