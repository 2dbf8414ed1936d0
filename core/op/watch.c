/* SPDX-License-Identifier: MIT
 * watch.c - see watch.h. Slow path only: dispatch.c calls it after a prepare. */
#include "core/op/watch.h"

#include <stdio.h>
#include <string.h>

#include "core/op/schema.h"

static uint64_t hash_bytes(uint64_t h, const void *data, size_t size) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < size; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
  return h;
}

static void take(const bs_op_query *q, bs_seen_query *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->op, sizeof out->op, "%s", q->op);
  out->nargs = q->nargs < BS_MAX_OP_ARGS ? q->nargs : BS_MAX_OP_ARGS;
  out->activation = q->activation;
  out->rest = hash_bytes(UINT64_C(0xcbf29ce484222325), q->attrs, sizeof q->attrs);
  out->rest = hash_bytes(out->rest, q->numbers, sizeof q->numbers) ^ q->flags;
  for (uint32_t i = 0; i < out->nargs; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    out->args[i].dtype = d->dtype;
    out->args[i].rank = d->rank;
    memcpy(out->args[i].dims, d->dims, d->rank * sizeof *d->dims);
    bs_op_strides(d, out->args[i].strides);
  }
}

static void put_arg(char *out, size_t size, const bs_tensor_desc *d) {
  int n = d->dtype == 0 ? snprintf(out, size, "absent") : snprintf(out, size, "%s[", bs_dtype_name(d->dtype));
  if (d->dtype == 0) return;
  for (uint32_t i = 0; i < d->rank && n > 0 && (size_t)n < size; i++)
    n += snprintf(out + n, size - (size_t)n, "%s%lld:%lld", i > 0 ? "," : "", (long long)d->dims[i],
                  (long long)d->strides[i]);
  if (n > 0 && (size_t)n < size) snprintf(out + n, size - (size_t)n, "]");
}

/* The first thing that differs: dtypes before dims before strides. */
static uint32_t differs(const bs_seen_query *was, const bs_seen_query *is, char *out, size_t size) {
  static const struct {
    uint32_t reason;
    size_t at, bytes;
  } parts[] = {{BS_REPLAN_DTYPE, offsetof(bs_tensor_desc, dtype), sizeof(uint32_t)},
               {BS_REPLAN_DIM, offsetof(bs_tensor_desc, rank), sizeof(uint32_t)},
               {BS_REPLAN_DIM, offsetof(bs_tensor_desc, dims), sizeof was->args[0].dims},
               {BS_REPLAN_STRIDE, offsetof(bs_tensor_desc, strides), sizeof was->args[0].strides}};
  for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
    for (uint32_t i = 0; i < is->nargs; i++) {
      char now[56], then[56];
      const char *a = (const char *)&was->args[i], *b = (const char *)&is->args[i];
      if (memcmp(a + parts[p].at, b + parts[p].at, parts[p].bytes) == 0) continue;
      put_arg(then, sizeof then, &was->args[i]);
      put_arg(now, sizeof now, &is->args[i]);
      snprintf(out, size, "%.31s: arg %u is %.50s, was %.50s", is->op, i, now, then);
      return parts[p].reason;
    }
  snprintf(out, size, "%s: other attributes", is->op);
  return BS_REPLAN_OTHER;
}

static uint32_t reason_of(const bs_watch *w, const bs_seen_query *now, char *out, size_t size) {
  const uint32_t kept = w->n_seen < BS_WATCH_QUERIES ? w->n_seen : BS_WATCH_QUERIES;
  for (uint32_t back = 1; back <= kept; back++) {
    const bs_seen_query *seen = &w->seen[(w->n_seen - back) % BS_WATCH_QUERIES];
    if (strcmp(seen->op, now->op) != 0 || seen->nargs != now->nargs) continue;
    if (memcmp(seen, now, sizeof *now) != 0) return differs(seen, now, out, size);
    snprintf(out, size, "%.31s: the query of the plan before", now->op);
    return BS_REPLAN_AGAIN;
  }
  return BS_REPLAN_FIRST;
}

void bs_watch_plan(bs_watch *w, const bs_op_query *query, double seconds) {
  bs_seen_query now;
  char text[sizeof w->last] = "";
  take(query, &now);
  const uint32_t reason = reason_of(w, &now, text, sizeof text);
  w->plans[reason]++;
  w->plan_seconds += seconds;
  if (reason != BS_REPLAN_FIRST) memcpy(w->last, text, sizeof text);
  w->seen[w->n_seen++ % BS_WATCH_QUERIES] = now;
}
