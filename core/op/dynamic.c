/* SPDX-License-Identifier: MIT
 * dynamic.c - see dynamic.h; and what the schemas of dynamic ops share (schema.h). */
#include "core/op/dynamic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/size.h"

/* ---- for the schemas ------------------------------------------------------------------------ */

int bs_op_is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || bs_op_is_index(dtype);
}

int bs_op_is_index(uint32_t dtype) {
  return dtype == BS_I32 || dtype == BS_I64;
}

int32_t bs_op_check_rank(const bs_op_query *q, uint32_t i, uint32_t rank, bs_error *err) {
  if (q->args[i] == NULL || q->args[i]->rank == rank) return BS_OK;
  return bs_op_refuse(err, "BS-OP-RANK", q->op, "arg %u: %u dimensions, need %u", i, q->args[i]->rank, rank);
}

int32_t bs_op_check_dim(const bs_op_query *q, uint32_t i, uint32_t d, uint32_t of, uint32_t of_d,
                        bs_error *err) {
  if (q->args[i] == NULL || q->args[i]->dims[d] == q->args[of]->dims[of_d]) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "arg %u has %lld in dimension %u, arg %u has %lld in %u", i,
                      (long long)q->args[i]->dims[d], d, of, (long long)q->args[of]->dims[of_d], of_d);
}

int32_t bs_op_check_dims(const bs_op_query *q, uint32_t i, uint32_t of, int broadcast, bs_error *err) {
  if (q->args[i] == NULL) return BS_OK;
  int32_t rc = bs_op_check_rank(q, i, q->args[of]->rank, err);
  for (uint32_t d = 0; rc == BS_OK && d < q->args[i]->rank; d++)
    if (!broadcast || q->args[i]->dims[d] != 1) rc = bs_op_check_dim(q, i, d, of, d, err);
  return rc;
}

int32_t bs_op_check_number(const bs_op_query *q, uint32_t i, const char *name, bs_error *err) {
  if (isfinite(q->numbers[i]) && q->numbers[i] != 0.0) return BS_OK;
  return bs_op_refuse(err, "BS-OP-ATTR", q->op, "%s, numbers[%u], is %g: a finite number other than 0", name,
                      i, q->numbers[i]);
}

int32_t bs_op_check_attr(const bs_op_query *q, uint32_t i, int64_t low, int64_t high, const char *name,
                         bs_error *err) {
  if (q->attrs[i] >= low && q->attrs[i] <= high) return BS_OK;
  return bs_op_refuse(err, "BS-OP-ATTR", q->op, "%s, attrs[%u], is %lld: %lld to %lld", name, i,
                      (long long)q->attrs[i], (long long)low, (long long)high);
}

void bs_op_link(const bs_op_query *q, bs_op_links *links, uint32_t i, uint32_t d, uint32_t of,
                uint32_t of_d) {
  if (q->args[i] == NULL || q->args[i]->dims[d] != q->args[of]->dims[of_d]) return;
  uint8_t *number = &links->links[of][of_d];
  if (*number == 0) *number = ++links->used;
  links->links[i][d] = *number;
}

void bs_op_link_all(const bs_op_query *q, bs_op_links *links, uint32_t i, uint32_t of) {
  for (uint32_t d = 0; q->args[i] != NULL && d < q->args[i]->rank; d++) bs_op_link(q, links, i, d, of, d);
}

/* ---- cost ----------------------------------------------------------------------------------- */

/* An arg of a query or of a call. */
typedef struct view {
  uint32_t dtype, rank;
  const int64_t *dims, *strides;
} view;

static uint64_t elements(const view *v) {
  uint64_t n = 1;
  for (uint32_t d = 0; d < v->rank; d++) n = bs_mul_sat(n, (uint64_t)v->dims[d]);
  return n;
}

/* The number of elements in memory of a view with other dims: a dimension of stride 0 counts as one. Strides
 * that are all 0 mean a dense tensor. */
static uint64_t elements_held(const view *v, const int64_t *dims) {
  uint64_t n = 1;
  int dense = 1;
  for (uint32_t d = 0; d < v->rank; d++) dense &= v->strides[d] == 0;
  for (uint32_t d = 0; d < v->rank; d++)
    if (dense || v->strides[d] != 0 || dims[d] == 0) n = bs_mul_sat(n, (uint64_t)dims[d]);
  return n;
}

__extension__ typedef __int128 wide;

/* The sum of the keys below s + first, of `keys` keys, over the queries s. */
static wide keys_below(wide first, int64_t queries, int64_t keys) {
  const wide n = queries, all = keys;
  const wide from = first < 0 ? -first < n ? -first : n : 0; /* the queries before see none */
  wide to = all - first > from ? all - first : from;         /* the queries from here on see all */
  if (to > n) to = n;
  return (to - from) * (from + to - 1 + 2 * first) / 2 + (n - to) * all;
}

/* The pairs that are seen, and the keys that some query sees. One query more sees one key more at most, so
 * both follow from the keys below the ends of two runs. */
static uint64_t pairs_seen(const bs_op_sight *sight, int64_t queries, int64_t keys, int64_t *out_keys) {
  const wide at = sight->causal == BS_CAUSAL_LOWER_RIGHT ? (wide)keys - queries : 0;
  const int ends = sight->causal != BS_CAUSAL_NONE || sight->right > 0;
  const wide end = at + (sight->causal != BS_CAUSAL_NONE ? 1 : sight->right);
  const wide begin = at - sight->left + 1;
  wide pairs = ends ? keys_below(end, queries, keys) : (wide)queries * keys;
  *out_keys = queries == 0 ? 0 : keys;
  if (ends && queries > 0) *out_keys = (int64_t)keys_below(end + queries - 1, 1, keys);
  if (sight->left > 0) pairs -= keys_below(begin, queries, keys);
  if (sight->left > 0 && queries > 0) *out_keys -= (int64_t)keys_below(begin, 1, keys);
  return pairs > (wide)UINT64_MAX ? UINT64_MAX : (uint64_t)pairs;
}

/* The elements of an arg, without one of its dims. */
static uint64_t elements_but(const view *v, uint32_t dim) {
  uint64_t n = 1;
  for (uint32_t d = 0; d < v->rank; d++)
    if (d != dim) n = bs_mul_sat(n, (uint64_t)v->dims[d]);
  return n;
}

static uint64_t term_flops(const bs_op_links *links, const bs_op_term *term, const view *views) {
  const view *of = &views[term->arg], *by = &views[term->by_arg];
  int64_t keys = 0;
  if (of->dims == NULL) return 0;
  if (links->sight.of_attention && by->dims != NULL)
    return bs_mul_sat(bs_mul_sat(term->factor, elements_but(of, 2)),
                      pairs_seen(&links->sight, of->dims[2], by->dims[term->by_dim], &keys));
  const uint64_t flops = bs_mul_sat(term->factor, elements(of));
  return term->by_arg != term->arg && by->dims != NULL ? bs_mul_sat(flops, (uint64_t)by->dims[term->by_dim])
                                                       : flops;
}

/* K and V of attention: what is seen of them. */
static uint64_t elements_read(const bs_op_links *links, const view *views, uint32_t i) {
  const view *v = &views[i];
  int64_t dims[BS_MAX_DIMS] = {0};
  if (!links->sight.of_attention || (i != 1 && i != 2) || views[0].dims == NULL || views[1].dims == NULL)
    return elements_held(v, v->dims);
  memcpy(dims, v->dims, v->rank * sizeof *dims);
  pairs_seen(&links->sight, views[0].dims[2], views[1].dims[2], &dims[2]);
  return elements_held(v, dims);
}

static void cost(const bs_op_links *links, const view *views, uint32_t nargs, uint64_t *out_flops,
                 uint64_t *out_bytes) {
  *out_flops = *out_bytes = 0;
  for (uint32_t t = 0; t < links->nterms; t++)
    *out_flops = bs_add_sat(*out_flops, term_flops(links, &links->terms[t], views));
  for (uint32_t i = 0; i < nargs; i++)
    if (views[i].dims != NULL && links->touched[i] != 0)
      *out_bytes = bs_add_sat(*out_bytes, bs_mul_sat(links->touched[i] * BS_DTYPE_BYTES(views[i].dtype),
                                                     elements_read(links, views, i)));
}

void bs_op_cost_dynamic(const bs_op_schema *schema, const bs_op_query *q, uint64_t *out_flops,
                        uint64_t *out_bytes) {
  bs_op_links links = {0};
  view views[BS_MAX_OP_ARGS] = {0};
  schema->link(q, &links);
  for (uint32_t i = 0; i < q->nargs; i++)
    if (q->args[i] != NULL)
      views[i] = (view){q->args[i]->dtype, q->args[i]->rank, q->args[i]->dims, q->args[i]->strides};
  cost(&links, views, q->nargs, out_flops, out_bytes);
}

void bs_op_cost_call(const bs_plan *plan, bs_tensor *const *args, uint64_t *out_flops, uint64_t *out_bytes) {
  view views[BS_MAX_OP_ARGS] = {0};
  for (uint32_t i = 0; i < plan->nargs; i++)
    if (args[i] != NULL) views[i] = (view){args[i]->dtype, args[i]->rank, args[i]->dims, args[i]->strides};
  cost(&plan->links, views, plan->nargs, out_flops, out_bytes);
}

/* ---- the args of a run ---------------------------------------------------------------------- */

enum { FITS, PRESENCE, TYPE, LARGER, UNEQUAL, STRIDE, EXTENT, ALIGNED, OVERLAP };

static int32_t complain(const bs_plan *plan, uint32_t index, uint32_t d, int what, const bs_tensor *t,
                        bs_error *err) {
  const bs_plan_arg *a = &plan->args[index];
  char text[224] = "";
  const long long dim = t != NULL && d < BS_MAX_DIMS ? (long long)t->dims[d] : 0;
  const long long stride = t != NULL && d < BS_MAX_DIMS ? (long long)t->strides[d] : 0;
  const char *id = what == ALIGNED ? "BS-OP-ALIGN" : "BS-OP-RUN";
  switch (what) {
    case PRESENCE:
      snprintf(text, sizeof text, "is %s, prepared %s", t != NULL ? "there" : "absent",
               a->present ? "with it" : "without it");
      break;
    case TYPE:
      snprintf(text, sizeof text, "is %s of rank %u, prepared for %s of rank %u", bs_dtype_name(t->dtype),
               t->rank, bs_dtype_name(a->dtype), a->rank);
      break;
    case LARGER:
      snprintf(text, sizeof text, "has %lld in dimension %u, prepared for %s%lld", dim, d,
               plan->links.links[index][d] != 0 ? "at most " : "", (long long)a->dims[d]);
      break;
    case UNEQUAL:
      snprintf(text, sizeof text, "has %lld in dimension %u, an arg before it has another size there", dim,
               d);
      break;
    case STRIDE:
      snprintf(text, sizeof text, "has the stride %lld in its last dimension, prepared for %lld", stride,
               (long long)a->strides[d]);
      break;
    case EXTENT:
      snprintf(text, sizeof text, "does not lie within the %llu bytes that it says are reachable%s",
               (unsigned long long)t->bytes, t->data == NULL ? ", and has no data" : "");
      break;
    case ALIGNED:
      snprintf(text, sizeof text, "is %s at %p: no multiple of its %u bytes", bs_dtype_name(t->dtype),
               t->data, BS_DTYPE_BYTES(t->dtype));
      break;
    default:
      snprintf(text, sizeof text, "is written but overlaps itself: its strides do not nest");
  }
  bs_error_set(err, BS_INVALID_ARGUMENT, id, "%.32s: arg %u %s", plan->impl->op, index, text);
  bs_error_where(err, "run of %s@%s/%s", plan->impl->op, plan->impl->backend, plan->impl->name);
  bs_error_hint(err, "dims may be smaller than prepared, tied ones alike; the last stride stays");
  return BS_INVALID_ARGUMENT;
}

/* Elements from the first to the last, both included; 0: the tensor is empty, -1: the number overflows. */
static int64_t span(const bs_tensor *t) {
  int64_t reach = 1, part = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->dims[d] == 0) return 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->strides[d] < 0 || !bs_mul_i64(t->dims[d] - 1, t->strides[d], &part) ||
        !bs_add_i64(reach, part, &reach))
      return -1;
  return reach;
}

static int check_memory(const bs_tensor *t, int written) {
  const int64_t reach = span(t);
  uint64_t bytes = 0;
  if (reach == 0) return FITS;
  if (reach < 0 || !bs_mul_u64((uint64_t)reach, BS_DTYPE_BYTES(t->dtype), &bytes) || t->data == NULL ||
      bytes > t->bytes)
    return EXTENT;
  if (((uintptr_t)t->data & (BS_DTYPE_BYTES(t->dtype) - 1u)) != 0) return ALIGNED;
  return written && bs_op_overlaps(t->rank, t->dims, t->strides) ? OVERLAP : FITS;
}

/* sizes[n]: of the dims that are tied by the number n, -1 until one was seen. */
static int check_arg(const bs_plan *plan, uint32_t index, const bs_tensor *t, int64_t *sizes,
                     uint32_t *out_d) {
  const bs_plan_arg *a = &plan->args[index];
  if ((t != NULL) != (a->present != 0)) return PRESENCE;
  if (t == NULL) return FITS;
  if (t->dtype != a->dtype || t->rank != a->rank) return TYPE;
  for (uint32_t d = 0; d < a->rank; d++) {
    const uint8_t number = plan->links.links[index][d];
    const int64_t dim = t->dims[d];
    *out_d = d;
    if (dim < 0 || dim > a->dims[d] || (number == 0 && dim != a->dims[d])) return LARGER;
    if (number != 0 && sizes[number] < 0) sizes[number] = dim;
    if (number != 0 && sizes[number] != dim) return UNEQUAL;
    if (d + 1 == a->rank && dim > 1 && t->strides[d] != a->strides[d]) return STRIDE;
  }
  return check_memory(t, plan->outputs >> index & 1u);
}

int32_t bs_op_check_call(const bs_plan *plan, bs_tensor *const *args, bs_error *err) {
  int64_t sizes[BS_MAX_OP_ARGS * BS_MAX_DIMS + 1];
  memset(sizes, 0xff, (plan->links.used + 1u) * sizeof *sizes);
  for (uint32_t i = 0; i < plan->nargs; i++) {
    uint32_t d = 0;
    const int what = check_arg(plan, i, args[i], sizes, &d);
    if (what != FITS) return complain(plan, i, d, what, args[i], err);
  }
  return BS_OK;
}
