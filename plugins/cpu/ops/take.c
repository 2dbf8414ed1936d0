/* SPDX-License-Identifier: MIT
 *
 * take.c - what an index names: rows of an axis (embeddings), elements along it, or what tuples of
 * coordinates name. Whole runs of memory are copied, of any dtype. Every index is compared with its dimension
 * before anything is written. */
#include <stdlib.h>

#include "../cpu.h"

enum { DATA, INDEX, OUT, ARGS };
#define ALONE 65536 /* bytes up to which the team is not woken */

typedef struct take_plan {
  const bs_exec *exec;
  int64_t kind; /* enum bs_index */
  uint32_t axis, batch;
} take_plan;

/* The leading dims of out are positions, each with one place of data; the others are the last dims of data
 * too. A position's coordinates in dims 0 .. same - 1, except dim `skip`, are those of its place. Its
 * coordinates in dims from `begin` on select `tuple` numbers in the index: the coordinates in dims first ..
 * of data. */
typedef struct take_call {
  const bs_tensor *data, *index, *out;
  uint32_t lead, same, skip, begin, first, tuple;
  uint32_t behind; /* dims of out after the positions */
  uint32_t size;
  int64_t step; /* elements between the numbers of a tuple */
  int64_t positions, lines, line_bytes;
} take_call;

/* Number of dims of data and out after the positions; tuple: coordinates from dim `first` on. */
static uint32_t behind_of(int64_t kind, uint32_t first, uint32_t tuple, uint32_t data_rank) {
  return kind == BS_INDEX_ELEMENTS ? 0 : data_rank - first - tuple;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  const bs_tensor_desc *data = q->args[DATA], *index = q->args[INDEX], *out = q->args[OUT];
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES) {
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "kind %lld of index", (long long)q->attrs[0]);
    return BS_OK;
  }
  const int tuples = q->attrs[0] == BS_INDEX_TUPLES;
  const uint32_t behind = behind_of(q->attrs[0], (uint32_t)q->attrs[tuples ? 2 : 1],
                                    tuples ? (uint32_t)index->dims[index->rank - 1] : 1, data->rank);
  for (uint32_t i = 0; behind > 0 && i < ARGS; i += 2) {
    const bs_tensor_desc *d = i == DATA ? data : out;
    int given = 0;
    for (uint32_t k = 0; k < d->rank; k++) given |= d->strides[k] != 0;
    if (given && d->dims[d->rank - 1] > 1 && d->strides[d->rank - 1] != 1) {
      cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                    (long long)d->strides[d->rank - 1]);
      return BS_OK;
    }
  }
  cpu_answer_yes(answer, 800, BS_TOL_EXACT, behind > 0 ? "rows" : "elements", "copies runs of memory");
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
  plan->kind = q->attrs[0];
  plan->axis = (uint32_t)q->attrs[1];
  plan->batch = (uint32_t)q->attrs[2];
  *out_plan = plan;
  return BS_OK;
}

/* Offset of element `i`, row-major, over dims first .. first+n of a tensor. */
static int64_t offset_of(const bs_tensor *t, uint32_t first, uint32_t n, int64_t i) {
  int64_t offset = 0;
  for (uint32_t d = first + n; d-- > first; i /= t->dims[d]) offset += i % t->dims[d] * t->strides[d];
  return offset;
}

static int64_t count_of(const bs_tensor *t, uint32_t first, uint32_t n) {
  int64_t count = 1;
  for (uint32_t d = first; d < first + n; d++) count *= t->dims[d];
  return count;
}

/* The number of the index at an offset, counted from the begin of dimension `axis`. */
static int64_t number_at(const take_call *c, int64_t at, uint32_t axis) {
  const int64_t v = c->index->dtype == BS_I64 ? ((const int64_t *)c->index->data)[at]
                                              : (int64_t)((const int32_t *)c->index->data)[at];
  return v < 0 ? v + c->data->dims[axis] : v;
}

static int32_t check_index(const take_call *c, bs_error *err) {
  const int64_t n = count_of(c->index, 0, c->index->rank);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t axis = c->first + (uint32_t)(i % c->tuple); /* without tuples there is one number */
    const int64_t at = offset_of(c->index, 0, c->index->rank, i);
    const int64_t size = c->data->dims[axis], v = number_at(c, at, axis);
    if (v >= 0 && v < size) continue;
    bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX",
            "take: index %lld is outside of dimension %u of size %lld", (long long)(v < 0 ? v - size : v),
            axis, (long long)size);
    return bs_fail_hint(err, "an index must be in [%lld, %lld)", (long long)-size, (long long)size);
  }
  return BS_OK;
}

/* Offset of the place of data that position `i` names. */
static int64_t place_of(const take_call *c, int64_t i) {
  const bs_tensor *data = c->data;
  int64_t offset = 0, at = 0;
  for (uint32_t d = c->lead; d-- > 0; i /= c->out->dims[d]) {
    const int64_t k = i % c->out->dims[d];
    if (d < c->same && d != c->skip) offset += k * data->strides[d];
    if (d >= c->begin) at += k * c->index->strides[d - c->begin];
  }
  for (uint32_t t = 0; t < c->tuple; t++)
    offset += number_at(c, at + t * c->step, c->first + t) * data->strides[c->first + t];
  return offset;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const take_call *c = arg;
  const uint32_t first = c->data->rank - c->behind, outer = c->behind > 0 ? c->behind - 1 : 0;
  int64_t begin, end;
  cpu_share(c->positions, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t from = place_of(c, i), to = offset_of(c->out, 0, c->lead, i);
    for (int64_t l = 0; l < c->lines; l++) {
      const int64_t in = from + offset_of(c->data, first, outer, l);
      const int64_t out = to + offset_of(c->out, c->lead, outer, l);
      memcpy((uint8_t *)c->out->data + out * (int64_t)c->size,
             (const uint8_t *)c->data->data + in * (int64_t)c->size, (size_t)c->line_bytes);
    }
  }
}

static take_call call_of(const take_plan *plan, bs_tensor *const *args) {
  const bs_tensor *index = args[INDEX], *out = args[OUT];
  take_call c = {.data = args[DATA], .index = index, .out = out, .tuple = 1, .first = plan->axis};
  const int tuples = plan->kind == BS_INDEX_TUPLES, rows = plan->kind == BS_INDEX_ROWS;
  if (tuples) {
    c.first = plan->batch;
    c.tuple = (uint32_t)index->dims[index->rank - 1];
    c.step = index->strides[index->rank - 1];
  }
  c.behind = behind_of(plan->kind, c.first, c.tuple, c.data->rank);
  c.lead = out->rank - c.behind;
  c.same = tuples ? plan->batch : rows ? plan->axis : c.lead;
  c.skip = c.first;
  c.begin = rows ? plan->axis : 0;
  c.size = BS_DTYPE_BYTES(c.data->dtype);
  c.positions = count_of(out, 0, c.lead);
  c.lines = c.behind > 0 ? count_of(out, c.lead, c.behind - 1) : 1;
  c.line_bytes = (c.behind > 0 ? out->dims[out->rank - 1] : 1) * (int64_t)c.size;
  return c;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const take_plan *plan = opaque;
  take_call c = call_of(plan, args);
  (void)nargs;
  (void)stream;
  int32_t rc = check_index(&c, err);
  if (rc != BS_OK || c.positions * c.lines * c.line_bytes == 0) return rc;
  return cpu_team(plan->exec, c.positions * c.lines * c.line_bytes < ALONE, share, &c, err);
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
