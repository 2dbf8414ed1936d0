/* SPDX-License-Identifier: MIT
 *
 * by_row_exchange.c - the collectives of a layer of 2:4 values: terms are summed by the two halves of a slice
 * (or by all), blocks are gathered by those who hold the same half of the other slices (or by all).
 */
#include "by_row.h"

int32_t by_row_groups(tp_layer *l, int backward, bs_error *err) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  const uint32_t P = s->base.world;
  if (s->halves == 1 || s->slices == 1 || !(s->slice_rows || backward)) return BS_OK;
  uint32_t *ranks = l->api->alloc(l->rank, P * sizeof *ranks);
  if (ranks == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a group of %u ranks", P);
  for (uint32_t h = 0; h < 2; h++) ranks[h] = 2 * s->slice + h;
  int32_t rc = l->api->group_open(l->rank, ranks, 2, &b->pair, err);
  for (uint32_t i = 0; i < s->slices; i++) ranks[i] = 2 * i + s->half;
  if (rc == BS_OK) rc = l->api->group_open(l->rank, ranks, s->slices, &b->peers, err);
  l->api->free(l->rank, ranks);
  return rc;
}

static int32_t prepare(tp_layer *l, bs_collective *c, bs_coll_plan **out_plan, bs_error *err) {
  c->struct_size = (uint32_t)sizeof *c;
  c->rows = (uint64_t)l->shape.B;
  return l->api->collective_prepare(l->rank, c, out_plan, err);
}

/* The even shares of N of the ranks that sum. */
static uint64_t *shares(tp_layer *l, uint32_t nranks) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  const uint32_t first = nranks < s->base.world ? s->slice * s->halves : 0;
  for (uint32_t i = 0; i < nranks; i++) {
    int64_t begin, count;
    tp_share(s->base.N, first + i, s->base.world, &begin, &count);
    b->counts[i] = (uint64_t)count;
  }
  return b->counts;
}

/* The blocks of the slices. */
static uint64_t *blocks(tp_layer *l) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  for (uint32_t i = 0; i < s->slices; i++) {
    int64_t begin, count;
    if (s->slice_rows)
      by_row_rows(s, i, &begin, &count);
    else
      by_row_columns(s, i, &begin, &count);
    b->counts[i] = (uint64_t)count;
  }
  return b->counts;
}

int32_t by_row_exchange_make(tp_layer *l, const by_row_way *way, uint32_t in, uint32_t summed, uint32_t out,
                             const char *site, bs_coll_plan **out_sum, bs_coll_plan **out_gather,
                             bs_error *err) {
  by_row *b = by_row_of(l);
  const tp_shape *s = &b->shape.base;
  int32_t rc = BS_OK;
  if (way->sum != BS_COLL_COUNT_) {
    bs_collective c;
    memset(&c, 0, sizeof c);
    c.kind = way->sum;
    c.dtype_in = in;
    c.dtype_out = summed;
    c.reduce_dtype = s->reduce_dtype;
    c.reduce_op = BS_REDUCE_SUM;
    c.site = site;
    c.group = way->sum_ranks < s->world ? b->pair : NULL;
    if (way->sum == BS_COLL_ALL_REDUCE) {
      c.count = (uint64_t)way->sum_cols;
    } else {
      c.counts = shares(l, way->sum_ranks);
      c.ncounts = way->sum_ranks;
    }
    rc = prepare(l, &c, out_sum, err);
  }
  if (rc != BS_OK || way->gather_ranks == 0) return rc;
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.kind = BS_COLL_ALL_GATHER;
  c.dtype_in = c.dtype_out = out;
  c.site = site;
  c.group = way->gather_ranks < s->world ? b->peers : NULL;
  c.counts = blocks(l);
  c.ncounts = way->gather_ranks;
  return prepare(l, &c, out_gather, err);
}

int32_t by_row_gather_dy(tp_layer *l, uint32_t nranks, bs_error *err) {
  by_row *b = by_row_of(l);
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.kind = BS_COLL_ALL_GATHER;
  c.dtype_in = c.dtype_out = l->shape.y_dtype;
  c.site = l->state->traits->dy_site;
  c.group = nranks < l->shape.world ? b->pair : NULL;
  c.counts = shares(l, nranks);
  c.ncounts = nranks;
  return prepare(l, &c, &l->gradient->whole_dy, err);
}

int32_t by_row_exchange_run(tp_layer *l, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                            bs_stream *stream, bs_error *err) {
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(plan, in, out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}
