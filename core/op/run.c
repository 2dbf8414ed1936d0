/* SPDX-License-Identifier: MIT
 * run.c - the hot call: a handful of integer compares, the counters, then the implementation. Allocates
 * nothing, locks nothing, formats text only when it fails. Called by core/world from the rank's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/dynamic.h"
#include "core/op/plan.h"

static void plan_arg(const bs_op_schema *schema, uint32_t index, const bs_tensor_desc *d, bs_plan_arg *out) {
  if (d == NULL) return;
  out->present = 1;
  out->shrinks = schema == NULL || (schema->activations >> index & 1u);
  out->dtype = d->dtype;
  out->rank = d->rank;
  bs_op_strides(d, out->strides);
  const uint64_t size = BS_DTYPE_BYTES(d->dtype);
  uint64_t tail = size;
  for (uint32_t i = 0; i < d->rank; i++) {
    out->dims[i] = d->dims[i];
    if (i == 0) continue;
    tail = d->dims[i] == 0 || tail == 0
               ? 0
               : tail + (uint64_t)(d->dims[i] - 1) * (uint64_t)out->strides[i] * size;
  }
  out->tail_bytes = tail;
  out->row_bytes = d->rank > 0 ? (uint64_t)out->strides[0] * size : 0;
}

bs_plan *bs_plan_new(const bs_op_host *host, const bs_thing *thing, const bs_op_query *query) {
  bs_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return NULL;
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  plan->thing = thing;
  plan->impl = thing->vtable;
  plan->run = plan->impl->run;
  plan->counters = host->counters;
  plan->nargs = query->nargs;
  bs_op_rate_of(query, &plan->rate);
  if (schema != NULL && schema->link != NULL) {
    plan->dynamic = 1;
    plan->outputs = bs_op_outputs(schema, query);
    schema->link(query, &plan->links);
  }
  for (uint32_t i = 0; i < query->nargs; i++) {
    plan_arg(schema, i, query->args[i], &plan->args[i]);
    if (schema != NULL && plan->args[i].present) plan->batch_args |= schema->activations & 1u << i;
  }
  return plan;
}

static int aligned(const bs_tensor *t) {
  return ((uintptr_t)t->data & (BS_DTYPE_BYTES(t->dtype) - 1u)) == 0;
}

static int reaches(const bs_tensor *t, uint64_t bytes) {
  return t->data != NULL && aligned(t) && t->bytes >= bytes;
}

static int arg_fits(const bs_plan_arg *a, const bs_tensor *t) {
  if (t == NULL) return !a->present;
  if (!a->present || t->dtype != a->dtype || t->rank != a->rank) return 0;
  if (a->rank == 0) return reaches(t, a->tail_bytes);
  const int64_t rows = t->dims[0];
  if (rows < 0 || rows > a->dims[0] || (rows != a->dims[0] && !a->shrinks)) return 0;
  if (rows > 1 && t->strides[0] != a->strides[0]) return 0;
  for (uint32_t i = 1; i < a->rank; i++)
    if (t->dims[i] != a->dims[i] || (a->dims[i] > 1 && t->strides[i] != a->strides[i])) return 0;
  if (rows == 0 || a->tail_bytes == 0) return 1;
  return reaches(t, (uint64_t)(rows - 1) * a->row_bytes + a->tail_bytes);
}

static void shape_text(char *out, size_t size, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       const int64_t *strides) {
  int n = snprintf(out, size, "%s[", bs_dtype_name(dtype));
  for (uint32_t i = 0; i < rank && i < 2 * BS_MAX_DIMS && n > 0 && (size_t)n < size; i++)
    n += snprintf(out + n, size - (size_t)n, "%s%lld:%lld", i > 0 ? "," : "", (long long)dims[i],
                  (long long)strides[i]);
  if (n > 0 && (size_t)n < size) snprintf(out + n, size - (size_t)n, "]");
}

/* `who` is the arg or tensor, as the message begins. */
static int32_t align_error(const bs_tensor *t, const char *who, bs_error *err) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-ALIGN", "%s is %s at %p: no multiple of its %u bytes", who,
               bs_dtype_name(t->dtype), t->data, BS_DTYPE_BYTES(t->dtype));
  bs_error_hint(err, "data is aligned to its element's size at least; copy it to memory that is");
  return BS_INVALID_ARGUMENT;
}

static int32_t arg_error(const bs_plan *plan, uint32_t index, const bs_tensor *t, bs_error *err) {
  const bs_plan_arg *a = &plan->args[index];
  if (t != NULL && a->present && t->dtype == a->dtype && !aligned(t)) {
    char who[96];
    snprintf(who, sizeof who, "%.64s: arg %u", plan->impl->op, index);
    align_error(t, who, err);
    bs_error_where(err, "run of %s@%s/%s", plan->impl->op, plan->impl->backend, plan->impl->name);
    return BS_INVALID_ARGUMENT;
  }
  char want[128] = "absent", got[128] = "absent";
  if (a->present) shape_text(want, sizeof want, a->dtype, a->rank, a->dims, a->strides);
  if (t != NULL)
    shape_text(got, sizeof got, t->dtype, t->rank > BS_MAX_DIMS ? 0 : t->rank, t->dims, t->strides);
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-RUN", "%s: arg %u is %s%s, prepared for %s (size:stride)",
               plan->impl->op, index, got, t != NULL && t->data == NULL ? " without data" : "", want);
  bs_error_where(err, "run of %s@%s/%s", plan->impl->op, plan->impl->backend, plan->impl->name);
  bs_error_hint(err, "only the batch may differ from prepare, and only downwards; %llu bytes were reachable",
                t != NULL ? (unsigned long long)t->bytes : 0ull);
  return BS_INVALID_ARGUMENT;
}

static int32_t batch_error(const bs_plan *plan, uint32_t index, int64_t rows, int64_t want, bs_error *err) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-RUN", "%s: arg %u has %lld rows, the first activation %lld",
               plan->impl->op, index, (long long)rows, (long long)want);
  bs_error_where(err, "run of %s@%s/%s", plan->impl->op, plan->impl->backend, plan->impl->name);
  return BS_INVALID_ARGUMENT;
}

/* A view says all of itself: what a query would say of it is checked as a query is, the rest as run does. */
int32_t bs_op_check_view(const bs_op_impl *impl, const char *id, const char *what, const bs_tensor *t,
                         int written, bs_error *err) {
  char who[96], shape[160];
  bs_plan_arg a = {0};
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
  snprintf(who, sizeof who, "%.32s: %.48s", impl->op, what);
  if (t == NULL || !bs_dtype_known(t->dtype) || t->rank > BS_MAX_DIMS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, id, "%s is no tensor (dtype 0x%04x, rank %u)", who,
                        t != NULL ? t->dtype : 0, t != NULL ? t->rank : 0);
  d.dtype = t->dtype;
  d.rank = t->rank;
  memcpy(d.dims, t->dims, sizeof d.dims);
  memcpy(d.strides, t->strides, sizeof d.strides);
  const int32_t rc = bs_op_check_extent(impl->op, 0, &d, written, err);
  if (rc != BS_OK) {
    bs_error_where(err, "%s, %s@%s/%s", what, impl->op, impl->backend, impl->name);
    return rc;
  }
  plan_arg(NULL, 0, &d, &a);
  if (arg_fits(&a, t)) return BS_OK;
  if (!aligned(t)) return align_error(t, who, err);
  shape_text(shape, sizeof shape, t->dtype, t->rank, t->dims, t->strides);
  bs_error_set(err, BS_INVALID_ARGUMENT, id, "%s is %s (size:stride)%s", who, shape,
               t->data == NULL ? " without data" : "");
  bs_error_hint(err, "strides are filled in and all elements lie in its bytes; %llu were reachable",
                (unsigned long long)t->bytes);
  return BS_INVALID_ARGUMENT;
}

static int32_t run_failed(const bs_plan *plan, int32_t rc, bs_error *err) {
  if (err == NULL) return rc;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "run failed without a message (%s)", bs_status_name(rc));
  err->code = rc;
  if (err->plugin[0] == '\0') snprintf(err->plugin, sizeof err->plugin, "%s", plan->thing->plugin);
  if (err->where[0] == '\0')
    bs_error_where(err, "run of %s@%s/%s", plan->impl->op, plan->impl->backend, plan->impl->name);
  return rc;
}

int32_t bs_dispatch_check_args(const bs_plan *plan, bs_tensor *const *args, uint32_t nargs,
                               uint64_t *out_flops, uint64_t *out_bytes, bs_error *err) {
  *out_flops = *out_bytes = 0;
  if (nargs != plan->nargs)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-RUN", "%s: %u args, prepared for %u", plan->impl->op,
                        nargs, plan->nargs);
  if (plan->dynamic) {
    const int32_t rc = bs_op_check_call(plan, args, err);
    if (rc == BS_OK) bs_op_cost_call(plan, args, out_flops, out_bytes);
    return rc;
  }
  int64_t rows = -1;
  for (uint32_t i = 0; i < nargs; i++) {
    if (!arg_fits(&plan->args[i], args[i])) return arg_error(plan, i, args[i], err);
    if (!(plan->batch_args >> i & 1u)) continue;
    if (rows < 0) rows = args[i]->dims[0];
    if (args[i]->dims[0] != rows) return batch_error(plan, i, args[i]->dims[0], rows, err);
  }
  if (plan->batch_args == 0 && nargs > 0) rows = plan->args[0].dims[0]; /* no batch: all that was prepared */
  if (rows <= 0) return BS_OK;
  *out_flops = (uint64_t)rows * plan->rate.flops_row;
  *out_bytes = (uint64_t)rows * plan->rate.bytes_row + plan->rate.bytes_fixed;
  return BS_OK;
}

int32_t bs_dispatch_run_unchecked(bs_plan *plan, bs_tensor *const *args, bs_stream *stream, bs_error *err) {
  if (err != NULL) err->code = BS_OK; /* so that a failure without a message is seen as such */
  const int32_t rc = plan->run(plan->object, args, plan->nargs, stream, err);
  return rc == BS_OK ? BS_OK : run_failed(plan, rc, err);
}

int32_t bs_dispatch_run(bs_plan *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                        bs_error *err) {
  uint64_t flops, bytes;
  int32_t rc = bs_dispatch_check_args(plan, args, nargs, &flops, &bytes, err);
  if (rc == BS_OK) rc = bs_dispatch_run_unchecked(plan, args, stream, err);
  if (rc != BS_OK || plan->counters == NULL) return rc;
  plan->counters[BS_COUNT_FLOPS] += flops;
  plan->counters[BS_COUNT_OP_BYTES] += bytes;
  return BS_OK;
}
