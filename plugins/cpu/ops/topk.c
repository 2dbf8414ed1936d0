/* SPDX-License-Identifier: MIT
 *
 * topk.c - the k largest (falling) or smallest (rising) values of lines along an axis, and their places. A
 * value becomes a key of 64 bits in whose order the values are; NaN has the largest. Up to 1,024 of a longer
 * line are kept in a heap, which most values never enter. Otherwise all are sorted by radix, eight bits a
 * pass, without the passes in which all keys are alike. Lines are divided over the team. */
#include <stdlib.h>

#include "integers.h"
#include "places.h"

enum { IN, VALUES, INDICES };
enum { PIECE = 256, HEAP = 1024, DIGITS = 256, PASSES = 8 };
#define ALONE 8192 /* elements up to which the team is not woken */

typedef struct entry {
  uint64_t key;
  int64_t index;
} entry;

typedef struct topk_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  uint32_t axis;
  int rising;
  int64_t longest, k; /* that were prepared */
  int64_t each;       /* entries of a member */
} topk_plan;

typedef struct topk_call {
  const topk_plan *plan;
  const bs_tensor *in, *values, *indices;
  int64_t lines, length, k;
  entry *scratch;
} topk_call;

static int known(uint32_t dtype) {
  return dtype == BS_F64 || cpu_wide_index(dtype) >= 0 || cpu_is_integer(dtype) || dtype == BS_BOOL;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (!known(q->args[IN]->dtype))
    cpu_answer_no(answer, BS_REASON_DTYPE, "values of dtype 0x%04x", q->args[IN]->dtype);
  else if (q->args[IN]->dims[q->attrs[0]] >> 32 != 0)
    cpu_answer_no(answer, BS_REASON_SHAPE, "lines of 2^32 elements and more");
  else
    cpu_answer_yes(answer, 800, BS_TOL_EXACT, "keys", "a heap up to k = 1024, else a sort by radix");
  return BS_OK;
}

/* Entries that a member needs: a heap of k, or the line twice. */
static int64_t entries_of(int64_t length, int64_t k) {
  return k <= HEAP ? k : 2 * length;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  topk_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (topk_plan){.exec = exec, .kernels = &state->kernels, .axis = (uint32_t)q->attrs[0]};
  plan->rising = q->attrs[1] != 0;
  plan->longest = q->args[IN]->dims[plan->axis];
  plan->k = q->args[VALUES]->dims[plan->axis];
  plan->each = entries_of(plan->longest, plan->k);
  rc = cpu_reserve(exec, (uint64_t)plan->each * sizeof(entry) * (exec->width > 0 ? exec->width : 1), err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* ---- keys ------------------------------------------------------------------------------------- */

/* Larger values have larger keys, zeros of both signs the same one. */
static void keys_of_floats(const float *v, int64_t n, uint64_t *out) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t u;
    memcpy(&u, v + i, sizeof u);
    const uint32_t size = u & 0x7fffffffu;
    const uint32_t key = u >> 31 != 0 && size != 0 ? ~u : size | 0x80000000u;
    out[i] = size > 0x7f800000u ? UINT64_MAX : key;
  }
}

static void keys_of_doubles(const double *v, int64_t n, uint64_t *out) {
  const uint64_t sign = UINT64_C(1) << 63;
  for (int64_t i = 0; i < n; i++) {
    uint64_t u;
    memcpy(&u, v + i, sizeof u);
    const uint64_t size = u & ~sign, key = u >> 63 != 0 && size != 0 ? ~u : size | sign;
    out[i] = size > UINT64_C(0x7ff) << 52 ? UINT64_MAX : key;
  }
}

/* The keys of up to PIECE values; rising: complements, so that the order is always a falling one. */
static void keys_of(const topk_plan *plan, uint32_t dtype, const uint8_t *from, int64_t stride, int64_t n,
                    uint64_t *out) {
  const uint32_t size = BS_DTYPE_BYTES(dtype);
  if (cpu_is_integer(dtype) || dtype == BS_BOOL) {
    int64_t whole[PIECE];
    cpu_integers_load(dtype, from, stride, n, whole);
    for (int64_t i = 0; i < n; i++) out[i] = (uint64_t)whole[i] ^ UINT64_C(1) << 63;
  } else {
    union {
      double f64[PIECE];
      float f32[PIECE];
    } v;
    double narrow[PIECE];
    const uint8_t *line = from;
    if (stride != 1) {
      cpu_copy_strided(narrow, 1, from, stride, n, size);
      line = (const uint8_t *)narrow;
    }
    if (dtype == BS_F64) {
      memcpy(v.f64, line, (size_t)n * size);
      keys_of_doubles(v.f64, n, out);
    } else {
      plan->kernels->load[cpu_wide_index(dtype)](v.f32, line, n);
      keys_of_floats(v.f32, n, out);
    }
  }
  for (int64_t i = 0; plan->rising && i < n; i++) out[i] = ~out[i];
}

/* ---- a heap ----------------------------------------------------------------------------------- */

/* The lower index of equal keys comes first. */
static int before(const entry *x, const entry *y) {
  return x->key > y->key || (x->key == y->key && x->index < y->index);
}

/* Moves entry `at` down until none of its children comes after it: the last one of the order is on top. */
static void sink(entry *heap, int64_t n, int64_t at) {
  const entry held = heap[at];
  for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
    if (child + 1 < n && before(&heap[child], &heap[child + 1])) child++;
    if (!before(&held, &heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = held;
}

/* The first k of the line's order, in this order. An entry that comes later in the line enters only with a
 * larger key than the last one of the heap. */
static void by_heap(const topk_call *c, const uint8_t *line, int64_t stride, entry *heap) {
  const uint32_t dtype = c->in->dtype;
  int64_t held = 0;
  for (int64_t at = 0; at < c->length; at += PIECE) {
    uint64_t keys[PIECE];
    const int64_t n = c->length - at < PIECE ? c->length - at : PIECE;
    keys_of(c->plan, dtype, line + at * stride * (int64_t)BS_DTYPE_BYTES(dtype), stride, n, keys);
    for (int64_t i = 0; i < n; i++) {
      if (held == c->k) {
        if (keys[i] <= heap[0].key) continue;
        heap[0] = (entry){keys[i], at + i};
        sink(heap, held, 0);
        continue;
      }
      heap[held++] = (entry){keys[i], at + i};
      for (int64_t j = held / 2; held == c->k && j-- > 0;) sink(heap, held, j);
    }
  }
  for (int64_t left = held - 1; left > 0; left--) {
    const entry last = heap[0];
    heap[0] = heap[left];
    heap[left] = last;
    sink(heap, left, 0);
  }
}

/* ---- a sort ----------------------------------------------------------------------------------- */

/* All entries in falling order of their keys; equal ones keep theirs. Returns where they are. */
static const entry *by_radix(const topk_call *c, const uint8_t *line, int64_t stride, entry *from) {
  const uint32_t dtype = c->in->dtype;
  entry *to = from + c->length;
  uint32_t counts[PASSES][DIGITS];
  memset(counts, 0, sizeof counts);
  for (int64_t at = 0; at < c->length; at += PIECE) {
    uint64_t keys[PIECE];
    const int64_t n = c->length - at < PIECE ? c->length - at : PIECE;
    keys_of(c->plan, dtype, line + at * stride * (int64_t)BS_DTYPE_BYTES(dtype), stride, n, keys);
    for (int64_t i = 0; i < n; i++) {
      from[at + i] = (entry){keys[i], at + i};
      for (uint32_t p = 0; p < PASSES; p++) counts[p][keys[i] >> 8 * p & (DIGITS - 1)]++;
    }
  }
  for (uint32_t p = 0; p < PASSES; p++) {
    uint32_t *count = counts[p], sum = 0;
    if (count[from[0].key >> 8 * p & (DIGITS - 1)] == (uint32_t)c->length) continue; /* all alike */
    for (uint32_t d = DIGITS; d-- > 0;) {
      const uint32_t here = count[d];
      count[d] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < c->length; i++) to[count[from[i].key >> 8 * p & (DIGITS - 1)]++] = from[i];
    entry *other = from;
    from = to;
    to = other;
  }
  return from;
}

/* ---- lines ------------------------------------------------------------------------------------ */

static int64_t line_offset(const bs_tensor *t, const bs_tensor *in, uint32_t axis, int64_t line) {
  int64_t offset = 0;
  for (uint32_t d = in->rank; d-- > 0;) {
    if (d == axis) continue;
    offset += line % in->dims[d] * t->strides[d];
    line /= in->dims[d];
  }
  return offset;
}

static uint8_t *line_at(const topk_call *c, const bs_tensor *t, int64_t line) {
  return (uint8_t *)t->data + line_offset(t, c->in, c->plan->axis, line) * (int64_t)BS_DTYPE_BYTES(t->dtype);
}

static void one_line(const topk_call *c, int64_t line, entry *room) {
  const uint32_t axis = c->plan->axis, size = BS_DTYPE_BYTES(c->in->dtype);
  const int64_t step = c->in->strides[axis] * (int64_t)size,
                v_step = c->values->strides[axis] * (int64_t)size;
  const int64_t i_step = c->indices->strides[axis] * (int64_t)BS_DTYPE_BYTES(c->indices->dtype);
  const uint8_t *in = line_at(c, c->in, line);
  uint8_t *values = line_at(c, c->values, line), *indices = line_at(c, c->indices, line);
  const entry *found = room;
  if (c->plan->k <= HEAP)
    by_heap(c, in, c->in->strides[axis], room);
  else
    found = by_radix(c, in, c->in->strides[axis], room);
  for (int64_t i = 0; i < c->k; i++) {
    memcpy(values + i * v_step, in + found[i].index * step, size);
    cpu_integers_store(c->indices->dtype, indices + i * i_step, 1, 1, &found[i].index);
  }
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const topk_call *c = arg;
  int64_t begin, end;
  cpu_share(c->lines, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) one_line(c, i, c->scratch + c->plan->each * (int64_t)member);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const topk_plan *plan = opaque;
  topk_call c = {.plan = plan, .in = args[IN], .values = args[VALUES], .indices = args[INDICES], .lines = 1};
  (void)nargs;
  (void)stream;
  c.length = c.in->dims[plan->axis];
  c.k = c.values->dims[plan->axis];
  for (uint32_t d = 0; d < c.in->rank; d++)
    if (d != plan->axis) c.lines *= c.in->dims[d];
  if (c.lines == 0 || c.k == 0) return BS_OK;
  c.scratch = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, c.lines == 1 || c.lines * c.length < ALONE, share, &c, err);
}

const bs_src_loc cpu_topk_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_topk_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "topk",
    .backend = "cpu",
    .name = "keys",
    .summary = "the largest or smallest values of lines, by keys of 64 bits",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
