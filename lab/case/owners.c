/* SPDX-License-Identifier: MIT
 * owners.c - see owners.h. */
#include "lab/case/owners.h"

#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

#define ROWS_CHECKED 64 /* of parts that keep positions row by row */

/* ---- copies ---------------------------------------------------------------------------------- */

static int64_t groups_of(const bs_kept *k) {
  return k->cols / 4 + (k->cols % 4 != 0);
}

static int32_t read_copy(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  const bs_case_rank *rank = ctx;
  const int64_t groups = groups_of(&rank->kept_storage);
  (void)err;
  for (int64_t i = 0; i < nrows && ngroups > 0; ++i)
    memcpy(out + i * out_stride, rank->kept + (row + i) * groups + group, (size_t)ngroups);
  return BS_OK;
}

int32_t bs_owners_copy(bs_case_rank *rank, bs_error *err) {
  const bs_kept *k = rank->owns.kept;
  if (k == NULL) return BS_OK;
  const int64_t groups = groups_of(k);
  rank->kept = malloc((size_t)(k->rows * groups) + 1);
  if (rank->kept == NULL) return bs_no_memory(err, "the positions of %lld rows", (long long)k->rows);
  const int32_t rc = k->read(k->ctx, 0, k->rows, 0, groups, rank->kept, groups, err);
  bs_owners_take(rank, k);
  return rc;
}

void bs_owners_take(bs_case_rank *rank, const bs_kept *sizes) {
  rank->kept_storage = *sizes;
  rank->kept_storage.ctx = rank;
  rank->kept_storage.read = read_copy;
  rank->owns.kept = &rank->kept_storage;
}

uint64_t bs_owners_kept_bytes(const bs_kept *kept) {
  return (uint64_t)kept->rows * (uint64_t)groups_of(kept);
}

void bs_owners_free(bs_case_rank *rank) {
  free(rank->kept);
  rank->kept = NULL;
}

/* ---- maps ------------------------------------------------------------------------------------ */

int bs_owners_by_row(const bs_case_result *result) {
  for (uint32_t r = 0; r < result->world_size; ++r)
    if (result->ranks[r].owns.kept != NULL) return 1;
  return 0;
}

int bs_owners_pruned(const bs_case_result *result) {
  return result->world_size > 0 && result->ranks[0].proposal.prune_error > 0.0;
}

static int64_t width_of(const bs_ownership *o, int64_t K) {
  return o->columns != NULL ? o->columns->count : K;
}

int64_t bs_owners_width(const bs_ownership *o, int64_t K) {
  return o->kept != NULL ? 2 * groups_of(o->kept) : width_of(o, K);
}

int32_t bs_owners_row_columns(const bs_ownership *o, int64_t K, int64_t row, int64_t *out, bs_error *err) {
  const int64_t cols = width_of(o, K);
  if (o->kept == NULL) {
    for (int64_t j = 0; j < cols; ++j) out[j] = bs_view_column(o->columns, j);
    return BS_OK;
  }
  int64_t n = 0;
  for (int64_t g = 0; g < groups_of(o->kept); ++g) {
    uint8_t bits = 0;
    const int32_t rc = o->kept->read(o->kept->ctx, row, 1, g, 1, &bits, 1, err);
    if (rc != BS_OK) return rc;
    if (bits > 0xFu || __builtin_popcount(bits) != 2)
      return bs_error_set(err, BS_PLUGIN, "BS-CASE-OWNERS",
                          "row %lld, group %lld of a 2:4 part keeps the pattern 0x%x", (long long)row,
                          (long long)g, bits);
    for (int j = 0; j < 4; ++j)
      if (bits >> j & 1) out[n++] = 4 * g + j < cols ? bs_view_column(o->columns, 4 * g + j) : -1;
  }
  return BS_OK;
}

static int keeps(const bs_ownership *o, int64_t row, int64_t j) {
  uint8_t bits = 0xFu;
  if (o->kept != NULL) (void)o->kept->read(o->kept->ctx, row, 1, j / 4, 1, &bits, 1, NULL); /* a copy */
  return bits >> (j % 4) & 1;
}

static int has_row(const bs_ownership *o, int64_t row) {
  return row >= o->row_begin && row < o->row_begin + o->row_count;
}

static void fill(uint32_t *out, int64_t count, uint32_t value) {
  for (int64_t i = 0; i < count; ++i) out[i] = value;
}

/* The position of column `col` of W in the part; -1: the column belongs to another part. */
static int64_t place_of(const bs_partition *p, int64_t col) {
  if (p == NULL) return col;
  if (p->kind != BS_PARTITION_GATHER)
    return col >= p->begin && col < p->begin + p->count ? col - p->begin : -1;
  for (int64_t j = 0; j < p->count; ++j)
    if ((int64_t)p->columns[j] == col) return j;
  return -1;
}

static void read_column(const bs_owners *m, int64_t col, uint32_t *out) {
  for (uint32_t r = 0; r < m->result->world_size; ++r) {
    const bs_ownership *o = &m->result->ranks[r].owns;
    const int64_t j = place_of(o->columns, col);
    for (int64_t i = 0; j >= 0 && i < o->row_count; ++i)
      if (keeps(o, i, j)) out[o->row_begin + i] = r;
  }
}

static void read_row(const bs_owners *m, int64_t row, uint32_t *out) {
  for (uint32_t r = 0; r < m->result->world_size; ++r) {
    const bs_ownership *o = &m->result->ranks[r].owns;
    const int64_t cols = width_of(o, m->K);
    if (!has_row(o, row)) continue;
    for (int64_t j = 0; j < cols; ++j)
      if (keeps(o, row - o->row_begin, j)) out[bs_view_column(o->columns, j)] = r;
  }
}

/* Rows first .. first+n-1 of W, which are the same for every rank: the owners of each column are counted. */
static int32_t check_rows(const bs_case_result *result, int64_t first, int64_t n, int64_t K, uint32_t *owner,
                          bs_error *err) {
  const int pruned = bs_owners_pruned(result);
  fill(owner, K, BS_OWNER_NONE);
  for (uint32_t r = 0; r < result->world_size; ++r) {
    const bs_ownership *o = &result->ranks[r].owns;
    const int64_t cols = has_row(o, first) ? width_of(o, K) : 0;
    for (int64_t j = 0; j < cols; ++j) {
      if (!keeps(o, first - o->row_begin, j)) continue;
      const int64_t k = bs_view_column(o->columns, j);
      if (owner[k] != BS_OWNER_NONE)
        return bs_error_set(err, BS_PLUGIN, "BS-LAYER-OWNS",
                            "column %lld of W is owned by rank %u and by rank %u, in rows %lld..%lld",
                            (long long)k, owner[k], r, (long long)first, (long long)(first + n - 1));
      owner[k] = r;
    }
  }
  for (int64_t k = 0; !pruned && k < K; ++k)
    if (owner[k] == BS_OWNER_NONE)
      return bs_error_set(err, BS_PLUGIN, "BS-LAYER-OWNS",
                          "column %lld of W is owned by no rank, in rows %lld..%lld", (long long)k,
                          (long long)first, (long long)(first + n - 1));
  return BS_OK;
}

/* The first row after `row` where another rank's part begins or ends; if the owners change by row, the next
 * row. */
static int64_t next_edge(const bs_case_result *result, int64_t row, int64_t N) {
  int64_t next = N;
  for (uint32_t r = 0; r < result->world_size; ++r) {
    const bs_ownership *o = &result->ranks[r].owns;
    const int64_t edges[2] = {o->row_begin, o->row_begin + o->row_count};
    for (int i = 0; i < 2; ++i)
      if (edges[i] > row && edges[i] < next) next = edges[i];
  }
  return next;
}

/* The proposal counts the products that a rank makes, its ownership the weights that these can be of (a rank
 * without any multiplies one column of zeros, of X too). */
static uint32_t multiplies_zeros(const bs_case *c, const bs_case_rank *rank) {
  const int64_t width = bs_owners_width(&rank->owns, c->spec.K), own = width > 0 ? width : 1;
  return (double)rank->proposal.flops > 2.0 * (double)c->spec.B * (double)rank->owns.row_count * (double)own;
}

int32_t bs_owners_check(const bs_case *c, bs_case_result *result, bs_error *err) {
  const int64_t N = c->spec.N, K = c->spec.K;
  const int64_t rows = bs_owners_by_row(result) ? N / ROWS_CHECKED + 1 : N; /* at most so many further on */
  if (!bs_case_judged(c)) return BS_OK;
  for (uint32_t r = 0; r < result->world_size; ++r)
    result->zero_products |= multiplies_zeros(c, &result->ranks[r]);
  if (c->fault || result->world_size < 2 || result->ranks[0].proposal.split == BS_SPLIT_NONE) return BS_OK;
  uint32_t *owner = malloc((size_t)(K > 0 ? K : 1) * sizeof *owner);
  if (owner == NULL) return bs_no_memory(err, "a column map");
  int32_t rc = BS_OK;
  for (int64_t row = 0, next; rc == BS_OK && row < N; row = next) {
    next = next_edge(result, row, N);
    if (next > row + rows) next = row + rows;
    rc = check_rows(result, row, next - row, K, owner, err);
  }
  free(owner);
  return rc;
}

/* The result of a transposed product has the sizes of that product: its outputs are columns of W. */
bs_owners bs_owners_of(const bs_case *c, const bs_case_result *result) {
  const int64_t N = result->turned ? c->spec.K : c->spec.N, K = result->turned ? c->spec.N : c->spec.K;
  return (bs_owners){.result = result, .rows = result->rows, .N = N, .K = K, .turned = result->turned};
}

uint32_t bs_owners_terms(const bs_case_result *result) {
  return result->world_size > 1 && result->ranks[0].proposal.split == BS_SPLIT_K;
}

int32_t bs_owners_read(void *owners, int64_t index, uint32_t *out, uint32_t *out_first, bs_error *err) {
  const bs_owners *m = owners;
  const int64_t row = m->rows != NULL ? m->rows[index] : index;
  uint32_t first = 0;
  (void)err;
  while (!m->turned && first + 1 < m->result->world_size && !has_row(&m->result->ranks[first].owns, row))
    ++first;
  fill(out, m->turned ? m->N : m->K, bs_owners_pruned(m->result) ? BS_OWNER_NONE : first);
  if (m->turned)
    read_column(m, index, out);
  else
    read_row(m, row, out);
  *out_first = first;
  return BS_OK;
}
