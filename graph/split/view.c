/* SPDX-License-Identifier: MIT
 * view.c - how a view of a split root is cut, and how a root is split whose view is cut. A stride of a row or
 * more goes from row to row; a smaller one stays in the row. Of the dims in the row, the one of the largest
 * stride counts units: it is the one that is cut. */
#include "graph/split/pair.h"

/* A dim along which a view moves within a row. */
static int is_within(const gvalue *v, uint32_t d, int64_t period) {
  return v->dims[d] > 1 && v->strides[d] > 0 && v->strides[d] < period;
}

/* The dim that counts units; BS_MAX_DIMS: there is none. *out_reach: from its first element to the last one
 * of a unit; *out_span: to the last one in the row. */
static uint32_t unit_dim(const gvalue *v, int64_t period, int64_t *out_reach, int64_t *out_span) {
  uint32_t unit = BS_MAX_DIMS;
  *out_reach = *out_span = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    if (!is_within(v, d, period)) continue;
    if (unit == BS_MAX_DIMS || v->strides[d] > v->strides[unit]) unit = d;
    *out_span += (v->dims[d] - 1) * v->strides[d];
  }
  if (unit != BS_MAX_DIMS) *out_reach = *out_span - (v->dims[unit] - 1) * v->strides[unit];
  return unit;
}

/* NULL: dims that leave the row go to whole rows. */
static const char *check_rows(const gvalue *v, int64_t period) {
  if (graph_count(v) == 0) return "has no elements";
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->dims[d] > 1 && v->strides[d] >= period && v->strides[d] % period != 0)
      return "goes from row to row by other steps than rows";
  return NULL;
}

const char *gsplit_view_of(const gsplit_root *root, const gvalue *v, gsplit_view *out) {
  int64_t reach, span;
  const char *why = check_rows(v, root->period);
  if (why != NULL) return why;
  const uint32_t unit = unit_dim(v, root->period, &reach, &span);
  const int64_t at = v->offset % root->period;
  uint32_t part = 0;
  if (unit == BS_MAX_DIMS) return "has one unit, which is not cut";
  while (part + 1 < root->n_parts && root->parts[part + 1].begin <= at) part++;
  const gsplit_part *p = &root->parts[part];
  if (v->dims[unit] * v->strides[unit] != p->units * p->width) return "is longer or shorter than its part";
  if (at - p->begin + reach >= v->strides[unit]) return "goes beyond the end of a unit";
  *out = (gsplit_view){unit, part};
  return NULL;
}

int32_t gsplit_view_local(const gsplit_root *root, uint32_t ranks, gvalue *v, const char **out_why) {
  gsplit_view how;
  const int64_t period = root->period, n = ranks;
  *out_why = gsplit_view_of(root, v, &how);
  if (*out_why != NULL) return BS_UNSUPPORTED;
  const gsplit_part *p = &root->parts[how.part];
  *out_why = "has units that the ranks do not divide";
  if (v->dims[how.dim] % n != 0 || p->units % n != 0 || p->begin % n != 0 || period % n != 0)
    return BS_UNSUPPORTED;
  *out_why = NULL;
  v->offset = v->offset / period * (period / n) + p->begin / n + (v->offset % period - p->begin);
  for (uint32_t d = 0; d < v->rank; d++) {
    if (v->strides[d] >= period)
      v->strides[d] = v->strides[d] / period * (period / n);
    else if (v->dims[d] <= 1 && v->strides[d] > v->strides[how.dim])
      v->strides[d] /= n; /* of one entry: what a dense view has */
  }
  v->dims[how.dim] /= n;
  return BS_OK;
}

/* ---- backwards ------------------------------------------------------------------------------- */

/* A part that is being found: what its views cover, which have all one length. */
typedef struct span {
  int64_t begin, end, length, width;
} span;

static int overlap(const span *a, const span *b) {
  return a->begin < b->end && b->begin < a->end;
}

/* 0: another length. */
static int join(span *a, const span *b) {
  if (a->length != b->length) return 0;
  if (b->begin < a->begin) a->begin = b->begin;
  if (b->end > a->end) a->end = b->end;
  if (b->width > a->width) a->width = b->width;
  return 1;
}

static const char *add_span(span *spans, uint32_t *io_n, span one) {
  for (uint32_t i = 0; i < *io_n; i++) {
    if (!overlap(&spans[i], &one)) continue;
    if (!join(&one, &spans[i])) return "is read in units that disagree";
    (*io_n)--;
    for (uint32_t k = i; k < *io_n; k++) spans[k] = spans[k + 1];
    i = UINT32_MAX; /* the longer one may overlap what was passed */
  }
  if (*io_n == GSPLIT_PARTS) return "has too many parts";
  uint32_t at = (*io_n)++;
  for (; at > 0 && spans[at - 1].begin > one.begin; at--) spans[at] = spans[at - 1];
  spans[at] = one;
  return NULL;
}

/* What a product writes has no units: its rows can be put in any order. */
static int counts(const graph *g, const gvalue *v) {
  const int written = v->producer != GNONE && !graph_is_product(g->nodes[v->producer].op);
  return v->first_use != GNONE || written;
}

static const char *spans_of(const graph *g, uint32_t root, int64_t period, span *spans, uint32_t *out_n) {
  const char *why = NULL;
  *out_n = 0;
  for (uint32_t i = root; i != GNONE && why == NULL; i = g->values[i].next_view) {
    const gvalue *v = &g->values[i];
    int64_t reach, length;
    if (!counts(g, v)) continue;
    why = check_rows(v, period);
    if (why != NULL) break;
    const uint32_t unit = unit_dim(v, period, &reach, &length);
    const int64_t at = v->offset % period;
    if (unit == BS_MAX_DIMS) return "is read one unit at a time";
    why = add_span(spans, out_n,
                   (span){at, at + length + 1, v->dims[unit] * v->strides[unit], v->strides[unit]});
  }
  return why;
}

/* The next larger stride goes from row to row; without one the root is one row. */
static int64_t period_of(const gvalue *v, uint32_t dim, int64_t count) {
  int64_t period = count;
  for (uint32_t d = 0; d < v->rank; d++)
    if (v->dims[d] > 1 && v->strides[d] > v->strides[dim] && v->strides[d] < period) period = v->strides[d];
  return period;
}

const char *gsplit_root_of(const graph *g, uint32_t value, uint32_t dim, gsplit_root *out) {
  const gvalue *v = &g->values[value];
  const int64_t count = graph_count(&g->values[v->base]);
  span spans[GSPLIT_PARTS];
  uint32_t n = 0;
  *out = (gsplit_root){.root = v->base, .region = GNONE, .period = period_of(v, dim, count)};
  if (count == 0 || out->period == 0 || count % out->period != 0) return "has no rows of one length";
  if (v->dims[dim] * v->strides[dim] > out->period) return "has units that lie over rows";
  const char *why = spans_of(g, v->base, out->period, spans, &n);
  if (why != NULL) return why;
  int64_t end = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (spans[i].begin != end) return "has elements that no node reads";
    out->parts[i] = (gsplit_part){spans[i].begin, spans[i].length / spans[i].width, spans[i].width};
    end += spans[i].length;
  }
  out->n_parts = n;
  return n == 0 ? "is not read" : end != out->period ? "has elements that no node reads" : NULL;
}
