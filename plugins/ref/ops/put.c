/* SPDX-License-Identifier: MIT
 * put.c - out = base with updates at the places that an index names: set, or combined with what is there,
 * each combination rounded to out's dtype (floats in f64, integers modulo 2^64). Updates go in the order of
 * the index, so that of equal places the last one counts, or all are combined in this order; therefore the
 * team divides only the copy of base. Where out is base's memory nothing is copied. */
#include <math.h>

#include "places.h"

enum { BASE, INDEX, UPDATES, OUT, ARGS };
enum { PIECE = 128 };

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[BASE] == NULL || q->args[INDEX] == NULL || q->args[UPDATES] == NULL ||
      q->args[OUT] == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs base, index, updates and an output");
  if (!ref_args_known(q) || !ref_is_integer(q->args[INDEX]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "the index must be of integers");
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES || q->attrs[3] < BS_PUT_SET ||
      q->attrs[3] > BS_PUT_MIN)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "kind %lld of index, %lld of put",
                         (long long)q->attrs[0], (long long)q->attrs[3]);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_put, state, exec, q, sizeof(ref_plan), out_plan, err);
}

static double combine_float(int64_t how, double there, double with) {
  switch (how) {
    case BS_PUT_MUL:
      return there * with;
    case BS_PUT_MAX:
      return there > with || isnan(there) ? there : with;
    case BS_PUT_MIN:
      return there < with || isnan(there) ? there : with;
    default:
      return there + with;
  }
}

static int64_t combine_integer(int64_t how, int64_t there, int64_t with) {
  if (how == BS_PUT_MAX) return there > with ? there : with;
  if (how == BS_PUT_MIN) return there < with ? there : with;
  const uint64_t v = how == BS_PUT_MUL ? (uint64_t)there * (uint64_t)with : (uint64_t)there + (uint64_t)with;
  memcpy(&with, &v, sizeof with);
  return with;
}

static int32_t combine_line(const bs_host *host, int64_t how, const ref_view *out, const ref_view *updates) {
  const int floats = ref_is_float(out->dtype);
  const uint32_t compute = floats ? BS_F64 : BS_I64;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < out->cols; c += PIECE) {
    union {
      double f[PIECE];
      int64_t i[PIECE];
    } there, with;
    const int64_t n = out->cols - c < PIECE ? out->cols - c : PIECE;
    rc = ref_load(host, out, 0, NULL, c, n, compute, &there);
    if (rc == BS_OK) rc = ref_load(host, updates, 0, NULL, c, n, compute, &with);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      if (floats)
        there.f[i] = combine_float(how, there.f[i], with.f[i]);
      else
        there.i[i] = combine_integer(how, there.i[i], with.i[i]);
    }
    if (rc == BS_OK) rc = ref_store_value(host, out, c, n, compute, &there);
  }
  return rc;
}

static int32_t check_all(const ref_places *places, bs_error *err) {
  int64_t to[BS_MAX_DIMS], from[BS_MAX_DIMS];
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < places->count; i++) rc = ref_places_find(places, i, to, from, err);
  return rc;
}

static int32_t put_all(const ref_plan *plan, const ref_places *places, bs_error *err) {
  const int64_t lines = ref_places_lines(places);
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < places->count; i++) {
    int64_t to[BS_MAX_DIMS], from[BS_MAX_DIMS];
    rc = ref_places_find(places, i, to, from, err);
    for (int64_t l = 0; rc == BS_OK && l < lines; l++) {
      const ref_view out = ref_places_line(places, &places->large, to, l);
      const ref_view updates = ref_places_line(places, &places->small, from, l);
      rc = plan->attrs[3] == BS_PUT_SET ? ref_copy_line(plan->host, &updates, &out)
                                        : combine_line(plan->host, plan->attrs[3], &out, &updates);
    }
  }
  return rc;
}

/* ---- the copy of base ------------------------------------------------------------------------- */

typedef struct copy_job {
  ref_spread base, out;
} copy_job;

static int32_t copy_part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  (void)err;
  const copy_job *job = items->user;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++) {
    const ref_view from = ref_line(&job->base, i), to = ref_line(&job->out, i);
    rc = ref_copy_line(items->plan->host, &from, &to);
  }
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  const bs_tensor *base = args[BASE], *out = args[OUT];
  ref_places places;
  ref_places_make(plan, "put", 1, out, args[INDEX], args[UPDATES], &places);
  int32_t rc = check_all(&places, err);
  if (rc == BS_OK && base->data != out->data) {
    copy_job job = {ref_spread_of(base, out->rank, out->dims), ref_spread_of(out, out->rank, out->dims)};
    ref_items items = {.plan = plan, .part = copy_part, .user = &job};
    items.count = ref_lines(out->rank, out->dims);
    rc = ref_items_run(&items, err);
  }
  if (rc == BS_OK) rc = put_all(plan, &places, err);
  return rc;
}

const bs_src_loc ref_put_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_put = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "put",
    .backend = "ref",
    .name = "portable",
    .summary = "writes updates to the places that an index names",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
