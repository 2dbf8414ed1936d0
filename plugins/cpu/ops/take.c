/* SPDX-License-Identifier: MIT
 *
 * take.c - rows of an axis by an index (embeddings): whole runs of memory are copied, of any dtype. Every
 * index is compared with its dimension before anything is written. Other kinds of index are ref's. */
#include <stdlib.h>

#include "../cpu.h"

enum { DATA, INDEX, OUT, ARGS };
#define ALONE 65536 /* bytes up to which the team is not woken */

typedef struct take_plan {
  const bs_exec *exec;
  uint32_t axis, reserved;
} take_plan;

typedef struct take_call {
  const bs_tensor *data, *index, *out;
  uint32_t axis, size;
  uint32_t trailing; /* dims behind the axis that are copied line by line */
  int64_t positions, lines, line_bytes;
} take_call;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  const bs_tensor_desc *data = q->args[DATA], *out = q->args[OUT];
  if (q->attrs[0] != BS_INDEX_ROWS) {
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "rows of an axis only");
    return BS_OK;
  }
  const int behind = q->attrs[1] + 1 < (int64_t)data->rank;
  for (uint32_t i = 0; behind && i < ARGS; i += 2) {
    const bs_tensor_desc *d = i == DATA ? data : out;
    int given = 0;
    for (uint32_t k = 0; k < d->rank; k++) given |= d->strides[k] != 0;
    if (given && d->dims[d->rank - 1] > 1 && d->strides[d->rank - 1] != 1) {
      cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                    (long long)d->strides[d->rank - 1]);
      return BS_OK;
    }
  }
  cpu_answer_yes(answer, 800, BS_TOL_EXACT, "rows", "copies runs of memory");
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
  plan->axis = (uint32_t)q->attrs[1];
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

static int64_t index_at(const take_call *c, int64_t i) {
  const int64_t at = offset_of(c->index, 0, c->index->rank, i), size = c->data->dims[c->axis];
  const int64_t v = c->index->dtype == BS_I64 ? ((const int64_t *)c->index->data)[at]
                                              : (int64_t)((const int32_t *)c->index->data)[at];
  return v < 0 ? v + size : v;
}

static int32_t check_index(const take_call *c, bs_error *err) {
  const int64_t n = count_of(c->index, 0, c->index->rank), size = c->data->dims[c->axis];
  for (int64_t i = 0; i < n; i++) {
    const int64_t v = index_at(c, i);
    if (v >= 0 && v < size) continue;
    bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX",
            "take: index %lld is outside of dimension %u of size %lld", (long long)(v < 0 ? v - size : v),
            c->axis, (long long)size);
    return bs_fail_hint(err, "an index lies in [%lld, %lld)", (long long)-size, (long long)size);
  }
  return BS_OK;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const take_call *c = arg;
  const int64_t indices = count_of(c->index, 0, c->index->rank);
  const uint32_t behind = c->data->rank - c->axis - 1, lead = c->axis + c->index->rank;
  int64_t begin, end;
  cpu_share(c->positions, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t from =
        offset_of(c->data, 0, c->axis, i / indices) + index_at(c, i % indices) * c->data->strides[c->axis];
    const int64_t to = offset_of(c->out, 0, lead, i);
    for (int64_t l = 0; l < c->lines; l++) {
      const int64_t in = from + offset_of(c->data, c->axis + 1, behind > 0 ? behind - 1 : 0, l);
      const int64_t out = to + offset_of(c->out, lead, behind > 0 ? behind - 1 : 0, l);
      memcpy((uint8_t *)c->out->data + out * (int64_t)c->size,
             (const uint8_t *)c->data->data + in * (int64_t)c->size, (size_t)c->line_bytes);
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const take_plan *plan = opaque;
  take_call c = {.data = args[DATA], .index = args[INDEX], .out = args[OUT], .axis = plan->axis};
  (void)nargs;
  (void)stream;
  const uint32_t behind = c.data->rank - c.axis - 1;
  c.size = BS_DTYPE_BYTES(c.data->dtype);
  c.positions = count_of(c.out, 0, c.axis + c.index->rank);
  c.lines = behind > 0 ? count_of(c.data, c.axis + 1, behind - 1) : 1;
  c.line_bytes = (behind > 0 ? c.data->dims[c.data->rank - 1] : 1) * (int64_t)c.size;
  int32_t rc = check_index(&c, err);
  if (rc != BS_OK || c.positions * c.lines * c.line_bytes == 0) return rc;
  if (c.positions * c.lines * c.line_bytes < ALONE) {
    share(&c, 0, 1);
    return BS_OK;
  }
  rc = cpu_parallel(plan->exec, share, &c);
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_take_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_take_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take",
    .backend = "cpu",
    .name = "rows",
    .summary = "rows of an axis by an index",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
