/* SPDX-License-Identifier: MIT
 * generated.c - reading panels of generated matrices (generated.h): only the runs of columns that are asked
 * for are generated, in blocks on the stack. */
#include "generated.h"

/* Elements first .. first+n-1 as f32, n <= BS_WL_BLOCK. Product and sum are rounded separately (the tree is
 * built with -ffp-contract=off), so that every machine makes the same bits. */
static void generate(const bs_generated *g, uint64_t first, int64_t n, float *out) {
  const bs_generator *by = &g->by;
  uint32_t bits[BS_WL_BLOCK];
  if (by->law == BS_LAW_NORMAL || by->law == BS_LAW_UNIFORM) {
    if (by->law == BS_LAW_NORMAL)
      g->host->rng_normal(by->seed, by->stream, first, (uint64_t)n, out);
    else
      g->host->rng_uniform(by->seed, by->stream, first, (uint64_t)n, out);
    for (int64_t i = 0; i < n; i++) {
      float scaled = out[i] * by->b;
      out[i] = scaled + by->a;
    }
    return;
  }
  if (by->law == BS_LAW_CLIPPED) {
    g->host->rng_normal(by->seed, by->stream, first, (uint64_t)n, out);
    for (int64_t i = 0; i < n; i++) {
      float scaled = out[i] * by->b;
      out[i] = scaled > by->a ? by->a : scaled < -by->a ? -by->a : scaled;
    }
    return;
  }
  if (by->law == BS_LAW_ZERO) {
    memset(out, 0, (size_t)n * sizeof *out);
    return;
  }
  g->host->rng_bits(by->seed, by->stream, first, (uint64_t)n, bits);
  for (int64_t i = 0; i < n; i++) {
    if (by->law == BS_LAW_TERNARY)
      out[i] = (bits[i] >> 1) >= by->threshold ? 0.0f : (bits[i] & 1u) ? 1.0f : -1.0f;
    else
      out[i] = (float)((int64_t)(((uint64_t)bits[i] * (2u * by->bound + 1u)) >> 32) - (int64_t)by->bound);
  }
}

/* The wanted columns [i, i+n) of one row, gathered into out. */
static void generate_columns(const bs_generated *g, int64_t row, const bs_wl_columns *c, int64_t i, int64_t n,
                             float *out) {
  /* Philox makes four elements at a time, so a gap of a few costs less than a new call. */
  const uint32_t max_gap = 8;
  uint64_t base = (uint64_t)row * (uint64_t)g->cols;
  float run[BS_WL_BLOCK];
  if (c->columns == NULL) {
    generate(g, base + (uint64_t)(c->begin + i), n, out);
    return;
  }
  for (int64_t done = 0; done < n;) {
    const uint32_t *at = c->columns + i + done;
    int64_t m = bs_wl_run(c, i + done, max_gap);
    if (m > n - done) m = n - done;
    generate(g, base + at[0], (int64_t)(at[m - 1] - at[0]) + 1, run);
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): columns ascend, so the run holds each */
    for (int64_t j = 0; j < m; j++) out[done + j] = run[at[j] - at[0]];
    done += m;
  }
}

/* Outliers among the wanted columns [i, i+n): both lists ascend. */
static void enlarge(const bs_generated *g, const bs_wl_columns *c, int64_t i, int64_t n, float *block) {
  uint32_t low = 0, high = g->n_outliers;
  for (int64_t j = 0; j < n && g->n_outliers > 0; j++) {
    const uint32_t k = c->columns != NULL ? c->columns[i + j] : (uint32_t)(c->begin + i + j);
    while (j == 0 && low < high) { /* the first one that is not below */
      const uint32_t middle = (low + high) / 2;
      if (g->outliers[middle] < k)
        low = middle + 1;
      else
        high = middle;
    }
    while (low < g->n_outliers && g->outliers[low] < k) low++;
    if (low < g->n_outliers && g->outliers[low] == k) block[j] *= g->outlier_scale;
  }
}

static int32_t read_panel(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const bs_generated *g = ctx;
  bs_wl_columns c;
  float block[BS_WL_BLOCK];
  int32_t rc = bs_wl_check_read(g->rows, g->cols, row, nrows, cols, out_stride, &c, err);
  if (rc != BS_OK) return rc;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < c.count; i += BS_WL_BLOCK) {
      int64_t n = c.count - i < BS_WL_BLOCK ? c.count - i : BS_WL_BLOCK;
      char *to = (char *)out + ((size_t)r * (size_t)out_stride + (size_t)i) * BS_DTYPE_BYTES(dtype);
      generate_columns(g, row + r, &c, i, n, block);
      enlarge(g, &c, i, n, block);
      rc = bs_wl_round(g->host, g->dtype, dtype, to, BS_F32, block, n, err);
      if (rc != BS_OK) return rc;
    }
  return BS_OK;
}

void bs_generated_make(bs_generated *part, const bs_host *host, int64_t rows, int64_t cols, uint64_t seed,
                       uint32_t stream, uint32_t dtype) {
  part->host = host;
  part->rows = rows;
  part->cols = cols;
  part->dtype = dtype;
  part->by = (bs_generator){.struct_size = (uint32_t)sizeof part->by,
                            .law = BS_LAW_ZERO,
                            .ctx = part,
                            .seed = seed,
                            .line = (uint64_t)cols,
                            .stream = stream};
}

void bs_generated_source(bs_generated *part, bs_source *out_source) {
  const bs_source s = {.struct_size = (uint32_t)sizeof s,
                       .dtype = part->dtype,
                       .rows = part->rows,
                       .cols = part->cols,
                       .ctx = part,
                       .read = read_panel,
                       .generator = part->n_outliers == 0 ? &part->by : NULL};
  bs_out_copy(out_source, &s, sizeof s);
}
