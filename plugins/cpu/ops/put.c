/* SPDX-License-Identifier: MIT
 *
 * put.c - writes updates to the places that an index names: sets them, or combines them with what is there,
 * each combination rounded. Where out is not base's memory, base is copied first. Updates go in the order of
 * the index, so that of equal places the last one counts. The team divides what cannot have equal places:
 * the coordinates that a place has from its position alone, else the elements that a position moves. */
#include <math.h>
#include <stdlib.h>

#include "integers.h"
#include "places.h"

enum { BASE, INDEX, UPDATES, OUT };
enum { PIECE = 256 };
#define ALONE 65536 /* bytes up to which the team is not woken */

typedef struct put_plan {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t attrs[4];
} put_plan;

typedef struct put_call {
  const put_plan *plan;
  cpu_places places;
  const bs_tensor *base, *out;
  cpu_place_dim copied[BS_MAX_DIMS]; /* large: out, small: base */
  uint32_t n_copied;
  int64_t copy; /* elements of base to copy; 0: out is its memory */
} put_call;

static int32_t supports(void *opaque, const bs_op_query *q, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const uint32_t dtype = q->args[OUT]->dtype;
  uint64_t in = 0, out = 0;
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES || q->attrs[3] < BS_PUT_SET ||
      q->attrs[3] > BS_PUT_MIN)
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "kind %lld of index, %lld of put", (long long)q->attrs[0],
                  (long long)q->attrs[3]);
  else if (q->attrs[3] != BS_PUT_SET &&
           (!BS_HOST_HAS(state->host, convert) ||
            state->host->convert(cpu_is_integer(dtype) ? BS_I64 : BS_F64, &out, dtype, &in, 1) != BS_OK))
    cpu_answer_no(answer, BS_REASON_DTYPE, "no conversion of dtype 0x%04x", dtype);
  else
    cpu_answer_yes(answer, 800, BS_TOL_EXACT, q->attrs[3] == BS_PUT_SET ? "set" : "combine",
                   "copies runs of memory, or combines them in f64 and i64");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  put_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = opaque;
  memcpy(plan->attrs, q->attrs, sizeof plan->attrs);
  *out_plan = plan;
  return BS_OK;
}

/* ---- combining -------------------------------------------------------------------------------- */

/* NaN is passed on. */
static void combine_floats(int64_t how, double *there, const double *with, int64_t n) {
  switch (how) {
    case BS_PUT_MUL:
      for (int64_t i = 0; i < n; i++) there[i] *= with[i];
      return;
    case BS_PUT_MAX:
      for (int64_t i = 0; i < n; i++) there[i] = there[i] > with[i] || isnan(there[i]) ? there[i] : with[i];
      return;
    case BS_PUT_MIN:
      for (int64_t i = 0; i < n; i++) there[i] = there[i] < with[i] || isnan(there[i]) ? there[i] : with[i];
      return;
    default:
      for (int64_t i = 0; i < n; i++) there[i] += with[i];
      return;
  }
}

/* Modulo 2^64. */
static void combine_integers(int64_t how, int64_t *there, const int64_t *with, int64_t n) {
  switch (how) {
    case BS_PUT_MUL:
      for (int64_t i = 0; i < n; i++) there[i] = (int64_t)((uint64_t)there[i] * (uint64_t)with[i]);
      return;
    case BS_PUT_MAX:
      for (int64_t i = 0; i < n; i++) there[i] = there[i] > with[i] ? there[i] : with[i];
      return;
    case BS_PUT_MIN:
      for (int64_t i = 0; i < n; i++) there[i] = there[i] < with[i] ? there[i] : with[i];
      return;
    default:
      for (int64_t i = 0; i < n; i++) there[i] = (int64_t)((uint64_t)there[i] + (uint64_t)with[i]);
      return;
  }
}

/* Combines up to PIECE elements, strides in elements. */
static void combine_piece(const put_plan *plan, uint32_t dtype, uint8_t *out, int64_t out_stride,
                          const uint8_t *updates, int64_t stride, int64_t n) {
  const bs_host *host = plan->state->host;
  const uint32_t size = BS_DTYPE_BYTES(dtype);
  const int integers = cpu_is_integer(dtype);
  const uint32_t wide = integers ? BS_I64 : BS_F64;
  _Alignas(8) uint8_t narrow[PIECE * 8];
  union {
    double f[PIECE];
    int64_t i[PIECE];
  } there, with;
  cpu_copy_strided(narrow, 1, out, out_stride, n, size);
  (void)host->convert(wide, &there, dtype, narrow, (uint64_t)n);
  cpu_copy_strided(narrow, 1, updates, stride, n, size);
  (void)host->convert(wide, &with, dtype, narrow, (uint64_t)n);
  if (integers) {
    combine_integers(plan->attrs[3], there.i, with.i, n);
    cpu_integers_store(dtype, narrow, 1, n, there.i);
  } else {
    combine_floats(plan->attrs[3], there.f, with.f, n);
    (void)host->convert(dtype, narrow, wide, &there, (uint64_t)n);
  }
  cpu_copy_strided(out, out_stride, narrow, 1, n, size);
}

/* ---- shares ----------------------------------------------------------------------------------- */

static void copy_share(void *arg, uint32_t member, uint32_t width) {
  const put_call *c = arg;
  const cpu_place_dim *line = &c->copied[c->n_copied - 1];
  const int64_t size = c->places.size;
  int64_t begin, end;
  cpu_share(c->copy, member, width, &begin, &end);
  while (begin < end) {
    cpu_piece piece;
    cpu_piece_at(c->copied, c->n_copied, begin, end, &piece);
    cpu_copy_strided((uint8_t *)c->out->data + piece.large * size, line->large,
                     (const uint8_t *)c->base->data + piece.small * size, line->small, piece.n,
                     c->places.size);
    begin += piece.n;
  }
}

/* Elements from .. to of what the position at these offsets moves. */
static void put_position(const put_call *c, int64_t large, int64_t small, int64_t from, int64_t to) {
  const cpu_places *p = &c->places;
  const cpu_place_dim *line = &p->rest[p->n_rest - 1];
  const int set = c->plan->attrs[3] == BS_PUT_SET;
  while (from < to) {
    cpu_piece piece;
    cpu_piece_at(p->rest, p->n_rest, from, to, &piece);
    if (!set && piece.n > PIECE) piece.n = PIECE;
    uint8_t *out = (uint8_t *)c->out->data + (large + piece.large) * (int64_t)p->size;
    const uint8_t *updates = (const uint8_t *)p->small->data + (small + piece.small) * (int64_t)p->size;
    if (set)
      cpu_copy_strided(out, line->large, updates, line->small, piece.n, p->size);
    else
      combine_piece(c->plan, c->out->dtype, out, line->large, updates, line->small, piece.n);
    from += piece.n;
  }
}

static void put_share(void *arg, uint32_t member, uint32_t width) {
  const put_call *c = arg;
  const cpu_places *p = &c->places;
  int64_t begin = 0, end = p->groups, from = 0, to = p->elements;
  if (p->groups >= (int64_t)width)
    cpu_share(p->groups, member, width, &begin, &end);
  else
    cpu_share(p->elements, member, width, &from, &to);
  if (from == to) return;
  for (int64_t i = begin * p->inner; i < end * p->inner; i++) {
    int64_t large, small;
    cpu_places_find(p, i, &large, &small);
    put_position(c, large, small, from, to);
  }
}

static int32_t copy_base(put_call *c, bs_error *err) {
  c->copy = 1;
  for (uint32_t d = 0; d < c->out->rank; d++) {
    c->copy *= c->out->dims[d];
    cpu_place_dims_add(c->copied, &c->n_copied,
                       (cpu_place_dim){c->out->dims[d], c->out->strides[d], c->base->strides[d], 0});
  }
  if (c->copy == 0) return BS_OK;
  if (c->n_copied == 0) c->copied[c->n_copied++] = (cpu_place_dim){1, 1, 1, 0};
  return cpu_team(c->plan->exec, c->copy * (int64_t)c->places.size < ALONE, copy_share, c, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  put_call c = {.plan = opaque, .base = args[BASE], .out = args[OUT]};
  (void)nargs;
  (void)stream;
  cpu_places_make(c.plan->attrs, 1, args[OUT], args[INDEX], args[UPDATES], &c.places);
  const int64_t positions = c.places.groups * c.places.inner;
  int32_t rc = positions > 0 ? cpu_places_check(&c.places, "put", err) : BS_OK;
  if (rc == BS_OK && c.base->data != c.out->data) rc = copy_base(&c, err);
  const int64_t bytes = positions * c.places.elements * (int64_t)c.places.size;
  if (rc != BS_OK || bytes == 0) return rc;
  return cpu_team(c.plan->exec, bytes < ALONE, put_share, &c, err);
}

const bs_src_loc cpu_put_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_put_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "put",
    .backend = "cpu",
    .name = "places",
    .summary = "sets or combines the places that an index names",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
