/* SPDX-License-Identifier: MIT
 *
 * method_checks.c - what a run of method_fixture.h must have given, for any method: exact products of
 * integers, weights that are owned and read by their owners alone, counters as proposed. For the tests of
 * this folder and the conformance kit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"

/* The activation of the sum v. *out_slack is its own ulps and the rounding to y; relu of an integer is exact.
 */
static double activated(const bs_layer_spec *s, double v, double *out_slack) {
  const double u = bs_dtype_unit_roundoff(s->y_dtype);
  double y = v > 0 ? v : 0;
  *out_slack = 0;
  if (s->activation == BS_ACT_NONE) return v;
  if (s->activation == BS_ACT_RELU) return y;
  y = s->activation == BS_ACT_GELU ? 0.5 * v * (1 + erf(v / sqrt(2.0))) : v / (1 + exp(-v));
  *out_slack = u * fabs(y) + 8 * 0x1p-24 * fabs(v);
  return y;
}

/* Checks what rank r has of a y that is not partial. */
static void check_rank(const mf_case *c, const mf_rank *k, uint32_t r, int64_t begin, const double *sum) {
  const bs_layer_spec *s = &c->spec;
  for (int64_t i = 0; i < (c->rows > 0 ? c->rows : s->B) * k->y_cols; i++) {
    const int64_t t = i / k->y_cols, n = begin + i % k->y_cols;
    double slack;
    const double want = activated(s, sum[t * s->N + n], &slack);
    if (!(fabs(k->y[i] - want) <= slack))
      ck_abort_msg("%s P=%u %lldx%lldx%lld %s activation %u rank %u: y[%lld,%lld] is %g, not %g", c->method,
                   c->world, (long long)s->B, (long long)s->N, (long long)s->K, bs_dtype_name(s->y_dtype),
                   s->activation, r, (long long)t, (long long)n, k->y[i], want);
  }
}

void mf_check_outputs(const mf_case *c, const mf_result *result) {
  const bs_layer_spec *s = &c->spec;
  const int64_t rows = c->rows > 0 ? c->rows : s->B;
  double *want = mf_reference(c);
  double *sum = calloc((size_t)(rows * s->N) + 1, sizeof *sum);
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    int64_t begin = 0, count = s->N;
    if (s->y_placement == BS_SPLIT) bs_share(s->N, r, c->world, &begin, &count);
    ck_assert_int_eq(k->y_cols, count);
    for (int64_t i = 0; s->y_placement == BS_PARTIAL && i < rows * s->N; i++) sum[i] += k->y[i];
    if (s->y_placement != BS_PARTIAL) check_rank(c, k, r, begin, want);
    if (s->y_placement == BS_REPLICATED) /* R1: the same bits on every rank */
      ck_assert_mem_eq(k->y_bits, result->rank[0].y_bits, k->y_bytes);
  }
  for (int64_t i = 0; s->y_placement == BS_PARTIAL && i < rows * s->N; i++) {
    double slack;
    const double right = activated(s, want[i], &slack); /* of one rank */
    if (!(fabs(sum[i] - right) <= slack))
      ck_abort_msg("the partials of y[%lld] add up to %g, not %g", (long long)i, sum[i], right);
  }
  free(sum);
  free(want);
}

/* May the rank read weight [n,k], other than its owner? It may if it holds one half of its group of four; for
 * a transposable mask, of a group in its block of four rows. */
static int may_read(const mf_case *c, const mf_rank *r, int64_t n, int64_t k) {
  const int64_t tall = c->spec.mask != NULL && c->spec.mask->kind == BS_MASK_TRANSPOSABLE ? 4 : 1;
  const int64_t top = n / tall * tall, group = k / 4 - r->first_group;
  return r->places != NULL && top + tall > r->row_begin && top < r->row_begin + r->row_count && group >= 0 &&
         group < r->k_own / 2;
}

static void check_readers(const mf_case *c, const mf_result *result, const uint8_t *owner) {
  for (int64_t i = 0; i < c->spec.N * c->spec.K; i++) {
    uint8_t may = owner[i];
    for (uint32_t r = 0; r < c->world; r++)
      if (may_read(c, &result->rank[r], i / c->spec.K, i % c->spec.K)) may |= (uint8_t)(1u << r);
    const uint8_t read = result->read_by[i];
    if ((owner[i] & ~read) != 0 || (read & ~may) != 0)
      ck_abort_msg("%s P=%u: weight %lld is owned by 0x%x and was read by 0x%x", c->method, c->world,
                   (long long)i, owner[i], read);
  }
}

void mf_check_ownership(const mf_case *c, const mf_result *result, int replicated) {
  const bs_layer_spec *s = &c->spec;
  uint8_t *owner = calloc(1, (size_t)(s->N * s->K) + 1);
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    for (int64_t i = 0; i < k->row_count; i++)
      for (int64_t j = 0; j < k->k_own; j++) {
        const int64_t column = mf_column(k, i, j), at = (k->row_begin + i) * s->K + column;
        if (column >= 0) owner[at] |= (uint8_t)(1u << r);
        if (k->weights[i * k->k_own + j] != (column >= 0 ? c->w[at] : 0.0f))
          ck_abort_msg("%s rank %u: weight [%lld,%lld] read back is wrong", c->method, r, (long long)i,
                       (long long)j);
      }
  }
  for (int64_t i = 0; i < s->N * s->K; i++)
    if (owner[i] == 0 || (!replicated && (owner[i] & (owner[i] - 1)) != 0))
      ck_abort_msg("%s P=%u: weight %lld has owners 0x%x", c->method, c->world, (long long)i, owner[i]);
  check_readers(c, result, owner);
  free(owner);
}

static void compare(const mf_case *c, uint32_t rank, const char *what, uint64_t counted, uint64_t proposed) {
  if (counted != proposed)
    ck_abort_msg("%s P=%u rank %u: the host counted %llu %s, it proposed %llu", c->method, c->world, rank,
                 (unsigned long long)counted, what, (unsigned long long)proposed);
}

/* The proposal is for spec.B rows and one forward. */
void mf_check_counters(const mf_case *c, const mf_result *result) {
  const uint64_t rows = (uint64_t)(c->rows > 0 ? c->rows : c->spec.B), B = (uint64_t)c->spec.B, P = c->world;
  const uint64_t times = c->forwards > 0 ? c->forwards : 1;
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    const bs_proposal *p = &k->proposal;
    uint64_t payload = 0, wire = 0, whole = 0;
    for (uint32_t i = 0; i < p->n_collectives; i++) {
      const uint64_t m = rows == B ? p->coll_payload[i] : p->coll_payload[i] / B * rows;
      whole += p->coll_payload[i];
      payload += m;
      const uint64_t ranks = p->coll_ranks[i] > 0 ? p->coll_ranks[i] : P;
      wire += m * (p->coll_kind[i] == BS_COLL_ALL_REDUCE ? 2 * (ranks - 1) : ranks - 1) / ranks;
    }
    for (uint32_t i = 0; i < p->n_collectives && i < k->collectives; i++)
      if (k->kinds[i] != p->coll_kind[i])
        ck_abort_msg("%s P=%u rank %u: collective %u of a forward is of kind %u, it proposed kind %u",
                     c->method, c->world, r, i, k->kinds[i], p->coll_kind[i]);
    compare(c, r, "FLOPs", k->counters[BS_COUNT_FLOPS], times * (p->flops / B * rows));
    compare(c, r, "collectives", k->counters[BS_COUNT_COLLECTIVES], times * p->n_collectives);
    compare(c, r, "collectives seen by the hook", k->collectives, times * p->n_collectives);
    if (p->chunks > 1 && rows != B) { /* the tokens are divided again; each chunk's bytes are rounded down */
      const uint64_t counted = k->counters[BS_COUNT_WIRE_BYTES] / times;
      payload = whole / B * rows;
      wire = payload * (p->coll_kind[0] == BS_COLL_ALL_REDUCE ? 2 * (P - 1) : P - 1) / P;
      if (counted <= wire && counted + p->n_collectives >= wire) wire = counted;
    }
    compare(c, r, "payload bytes", k->counters[BS_COUNT_PAYLOAD_BYTES], times * payload);
    compare(c, r, "wire bytes", k->counters[BS_COUNT_WIRE_BYTES], times * wire);
  }
}

void mf_check_signs(const mf_rank *k, const float *w, int64_t K) {
  for (int64_t i = 0; i < k->row_count * k->k_own; i++) {
    const int64_t col = mf_column(k, i / k->k_own, i % k->k_own);
    const float was = col >= 0 ? w[(k->row_begin + i / k->k_own) * K + col] : 0.0f;
    ck_assert_int_eq(signbit(k->weights[i]) != 0, signbit(was) != 0);
  }
}
