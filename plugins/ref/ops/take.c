/* SPDX-License-Identifier: MIT
 * take.c - out = the places of data that an index names: whole rows of an axis, single elements along it, or
 * what tuples of coordinates name. Bits are copied, of any dtype. An index outside of its dimension is an
 * error. Positions are divided over the team. */
#include "places.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || q->args[0] == NULL || q->args[1] == NULL || q->args[2] == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs data, index and an output");
  if (!ref_args_known(q) || !ref_is_integer(q->args[1]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "the index must be of integers");
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "kind %lld of index", (long long)q->attrs[0]);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_take, state, exec, q, sizeof(ref_plan), out_plan, err);
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  const ref_places *places = items->user;
  const int64_t lines = ref_places_lines(places);
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++) {
    int64_t from[BS_MAX_DIMS], to[BS_MAX_DIMS];
    rc = ref_places_find(places, i, from, to, err);
    for (int64_t l = 0; rc == BS_OK && l < lines; l++) {
      const ref_view data = ref_places_line(places, &places->large, from, l);
      const ref_view out = ref_places_line(places, &places->small, to, l);
      rc = ref_copy_line(places->host, &data, &out);
    }
  }
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  ref_places places;
  ref_places_make(plan, "take", 0, args[0], args[1], args[2], &places);
  ref_items items = {.plan = plan, .part = part, .user = &places, .count = places.count};
  return ref_items_run(&items, err);
}

const bs_src_loc ref_take_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_take = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take",
    .backend = "ref",
    .name = "portable",
    .summary = "the places that an index names",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
