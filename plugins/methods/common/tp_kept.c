/* SPDX-License-Identifier: MIT
 *
 * tp_kept.c - the positions of a rank's weights under a mask that differs by row: from a mask and a source of
 * weights, at build and whenever the mask is chosen again. Positions that depend on the weights (magnitude,
 * transposable) are stored as half a byte a group of four, because the source is gone after build. Others are
 * requested from the host again when needed. */
#include "tp_kept.h"

#define CHUNK 1024 /* groups read together, on the stack */

int tp_mask_by_row(uint32_t kind) {
  return kind == BS_MASK_RANDOM_2OF4 || tp_mask_looks(kind);
}

int tp_mask_looks(uint32_t kind) {
  return kind == BS_MASK_MAGNITUDE || kind == BS_MASK_TRANSPOSABLE;
}

static int32_t read_kept(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  const tp_kept *k = ctx;
  if (nrows == 0 || ngroups == 0) return BS_OK; /* an empty part has no positions */
  if (k->bits == NULL)
    return k->whole->read(k->whole->ctx, k->row + row, nrows, k->group + group, ngroups, out, out_stride,
                          err);
  for (int64_t i = 0; i < nrows; i++) {
    const uint8_t *bits = k->bits + (row + i) * k->stride;
    for (int64_t g = 0; g < ngroups; g++) {
      const int64_t at = group + g;
      out[i * out_stride + g] = bits[at / 2] >> (at % 2 * 4) & 0xFu;
    }
  }
  return BS_OK;
}

enum { MOST_MEMBERS = 256 }; /* of a team; more have nothing to do */

typedef struct store_job {
  const tp_kept *k;
  int64_t rows, groups;
  bs_error *errors; /* one a member */
  int32_t *codes;
} store_job;

/* Stores up to four rows: a transposable mask needs four together. */
static int32_t store_block(const store_job *job, int64_t row, int64_t nrows, bs_error *err) {
  const tp_kept *k = job->k;
  uint8_t read[4 * CHUNK];
  for (int64_t g = 0; g < job->groups; g += CHUNK) { /* CHUNK is even: chunks begin on a byte */
    const int64_t n = job->groups - g < CHUNK ? job->groups - g : CHUNK;
    const int32_t rc = k->whole->read(k->whole->ctx, k->row + row, nrows, k->group + g, n, read, CHUNK, err);
    if (rc != BS_OK) return rc;
    for (int64_t r = 0; r < nrows; r++) {
      uint8_t *bits = k->bits + (row + r) * k->stride;
      for (int64_t i = 0; i < n; i++)
        bits[(g + i) / 2] |= (uint8_t)((read[r * CHUNK + i] & 0xFu) << ((g + i) % 2 * 4));
    }
  }
  return BS_OK;
}

/* Rows are shared out in blocks of four, as blocks of a transposable mask lie. */
static void store_rows(void *arg, uint32_t member, uint32_t width) {
  const store_job *job = arg;
  int64_t begin, count;
  if (member >= MOST_MEMBERS) return;
  tp_share((job->rows + 3) / 4, member, width < MOST_MEMBERS ? width : MOST_MEMBERS, &begin, &count);
  const int64_t end = 4 * (begin + count) < job->rows ? 4 * (begin + count) : job->rows;
  for (int64_t row = 4 * begin; job->codes[member] == BS_OK && row < end; row += 4)
    job->codes[member] = store_block(job, row, end - row < 4 ? end - row : 4, &job->errors[member]);
}

/* Runs the members; the result is that of the first that failed. */
static int32_t run_store(const bs_rank_api *api, bs_rank *rank, const store_job *job, bs_error *err) {
  if (api->parallel_for(rank, store_rows, (void *)(uintptr_t)job) != BS_OK)
    return bs_fail(err, BS_INTERNAL, "BS-METHOD-TEAM", "positions of weights: the rank's team does not run");
  for (uint32_t i = 0; i < MOST_MEMBERS; i++) {
    if (job->codes[i] == BS_OK) continue;
    if (err != NULL) bs_out_copy(err, &job->errors[i], sizeof job->errors[i]);
    return job->codes[i];
  }
  return BS_OK;
}

static int32_t store(tp_kept *k, const bs_rank_api *api, bs_rank *rank, bs_error *err) {
  const int64_t rows = k->kept.rows, groups = (k->kept.cols + 3) / 4;
  store_job job = {.k = k, .rows = rows, .groups = groups};
  int32_t rc = BS_NO_MEMORY;
  k->stride = (groups + 1) / 2;
  k->bits = api->alloc(rank, (uint64_t)(rows * k->stride) + 1);
  job.errors = api->alloc(rank, MOST_MEMBERS * sizeof *job.errors);
  job.codes = api->alloc(rank, MOST_MEMBERS * sizeof *job.codes);
  if (k->bits != NULL && job.errors != NULL && job.codes != NULL)
    rc = run_store(api, rank, &job, err);
  else
    bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the positions of %lld x %lld weights",
            (long long)rows, (long long)k->kept.cols);
  if (job.errors != NULL) api->free(rank, job.errors);
  if (job.codes != NULL) api->free(rank, job.codes);
  return rc;
}

void tp_kept_free(tp_kept *k, const bs_rank_api *api, bs_rank *rank) {
  if (k->whole != NULL) api->kept_free(k->whole);
  if (k->bits != NULL) api->free(rank, k->bits);
  k->whole = NULL;
  k->bits = NULL;
}

void tp_kept_init(tp_kept *k, int64_t row, int64_t rows, const bs_partition *run) {
  k->row = row;
  k->group = run->begin / 4;
  k->kept.struct_size = (uint32_t)sizeof k->kept;
  k->kept.rows = rows;
  k->kept.cols = run->count;
  k->kept.ctx = k;
  k->kept.read = read_kept;
}

static int32_t make(tp_kept *k, const bs_rank_api *api, bs_rank *rank, const bs_mask *mask, uint32_t half,
                    const bs_source *weights, bs_error *err) {
  const int looks = tp_mask_looks(mask->kind);
  tp_kept_free(k, api, rank);
  int32_t rc =
      api->kept_make(rank, mask, weights->rows, weights->cols, looks ? weights : NULL, half, &k->whole, err);
  if (rc != BS_OK) return rc;
  /* Blocks of four rows stay blocks only where the part begins with one. */
  k->kept.transposable = k->whole->transposable && k->row % 4 == 0 &&
                         (k->kept.rows % 4 == 0 || k->row + k->kept.rows == weights->rows);
  if (!looks) return BS_OK;
  rc = store(k, api, rank, err);
  api->kept_free(k->whole);
  k->whole = NULL;
  return rc;
}

int32_t tp_kept_make(tp_kept *k, const bs_rank_api *api, bs_rank *rank, const bs_mask *mask, uint32_t half,
                     const bs_source *weights, bs_error *err) {
  const uint32_t region = api->region_named(rank, "mask");
  api->region_begin(rank, region);
  const int32_t rc = make(k, api, rank, mask, half, weights, err);
  api->region_end(rank, region);
  return rc;
}

uint64_t tp_kept_bytes(uint32_t kind, int64_t rows, int64_t cols) {
  return tp_mask_looks(kind) ? (uint64_t)rows * (uint64_t)(((cols + 3) / 4 + 1) / 2) : 0;
}
