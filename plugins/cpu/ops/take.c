/* SPDX-License-Identifier: MIT
 *
 * take.c - what an index names: rows of an axis (embeddings), elements along it, or what tuples of
 * coordinates name. Runs of memory are copied, of any dtype and any strides. Every index is compared with its
 * dimension before anything is written. */
#include <stdlib.h>

#include "places.h"

enum { DATA, INDEX, OUT };
#define ALONE 65536 /* bytes up to which the team is not woken */

typedef struct take_plan {
  const bs_exec *exec;
  int64_t attrs[3];
} take_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES)
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "kind %lld of index", (long long)q->attrs[0]);
  else
    cpu_answer_yes(answer, 800, BS_TOL_EXACT, q->attrs[0] == BS_INDEX_ELEMENTS ? "elements" : "rows",
                   "copies runs of memory");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, state, q, err);
  if (rc != BS_OK) return rc;
  take_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  memcpy(plan->attrs, q->attrs, sizeof plan->attrs);
  *out_plan = plan;
  return BS_OK;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const cpu_places *p = arg;
  const cpu_place_dim *line = &p->rest[p->n_rest - 1];
  int64_t begin, end, from, to;
  cpu_share(p->inner, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    cpu_places_find(p, i, &from, &to);
    for (int64_t e = 0; e < p->elements;) {
      cpu_piece piece;
      cpu_piece_at(p->rest, p->n_rest, e, p->elements, &piece);
      cpu_copy_strided((uint8_t *)p->small->data + (to + piece.small) * (int64_t)p->size, line->small,
                       (const uint8_t *)p->large->data + (from + piece.large) * (int64_t)p->size, line->large,
                       piece.n, p->size);
      e += piece.n;
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const take_plan *plan = opaque;
  cpu_places places;
  (void)nargs;
  (void)stream;
  cpu_places_make(plan->attrs, 0, args[DATA], args[INDEX], args[OUT], &places);
  const int32_t rc = cpu_places_check(&places, "take", err);
  const int64_t bytes = places.inner * places.elements * (int64_t)places.size;
  if (rc != BS_OK || bytes == 0) return rc;
  return cpu_team(plan->exec, bytes < ALONE, share, &places, err);
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_take_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_take_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take",
    .backend = "cpu",
    .name = "places",
    .summary = "rows, elements or tuples of coordinates by an index",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
