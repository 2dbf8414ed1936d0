/* SPDX-License-Identifier: MIT
 *
 * numbers.c - see numbers.h. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "support.h"

enum { CHUNK = 1024, SPOTS = 61 };

/* `count` values: `narrow` in dtype, `wide` (or NULL) the rounded ones in fp32. Four generators side by side,
 * so that half a GiB takes half a second. */
static void fill(uint32_t seed, uint32_t dtype, char *narrow, float *wide, uint64_t count) {
  float values[CHUNK];
  uint32_t state[4] = {seed, seed ^ 0x5bd1e995u, seed ^ 0x27d4eb2fu, seed ^ 0x165667b1u};
  for (uint64_t at = 0; at < count; at += CHUNK) {
    const uint64_t n = count - at < CHUNK ? count - at : CHUNK;
    char *to = narrow + at * BS_DTYPE_BYTES(dtype);
    for (int i = 0; i < CHUNK; ++i) {
      uint32_t *s = &state[i % 4];
      *s = *s * 1664525u + 1013904223u;
      values[i] = (float)((int32_t)*s >> 8) * 0x1p-23f;
    }
    if (dtype == BS_F32)
      memcpy(to, values, n * sizeof(float));
    else
      (void)bs_convert(dtype, to, BS_F32, values, n);
    if (wide != NULL) (void)bs_convert(BS_F32, wide + at, dtype, to, n);
  }
}

static int32_t make_one(void **narrow, void **wide, uint32_t seed, const bench_source_numbers *s,
                        uint64_t count, bs_error *err) {
  const int both = s->with_f32 && s->dtype != BS_F32;
  free(*narrow);
  free(*wide);
  *narrow = bench_huge_alloc(count * BS_DTYPE_BYTES(s->dtype));
  *wide = both ? bench_huge_alloc(count * sizeof(float)) : NULL;
  if (*narrow == NULL || (both && *wide == NULL))
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for %llu numbers",
                        (unsigned long long)count);
  fill(seed, s->dtype, *narrow, *wide, count);
  return BS_OK;
}

uint8_t bench_kept(int64_t row, int64_t group) {
  static const uint8_t two[6] = {3, 5, 6, 9, 10, 12};
  uint64_t z = ((uint64_t)row << 32 | (uint64_t)group) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return two[(z ^ z >> 32) % 6];
}

static void drop_others(void *w, uint32_t dtype, int64_t n, int64_t k) {
  const int64_t size = BS_DTYPE_BYTES(dtype);
  for (int64_t row = 0; w != NULL && row < n; ++row)
    for (int64_t i = 0; i < k; ++i)
      if ((bench_kept(row, i / 4) >> i % 4 & 1) == 0)
        memset((char *)w + (row * k + i) * size, 0, (size_t)size);
}

int32_t bench_numbers_make(bench_source_numbers *s, int64_t n, int64_t k, int64_t b, bs_error *err) {
  const int same = s->narrow.n == n && s->narrow.k == k && s->narrow.w != NULL;
  int32_t rc = BS_OK;
  s->narrow.n = 0;
  if (!same) rc = make_one(&s->narrow.w, &s->wide.w, 1, s, (uint64_t)(n * k), err);
  if (rc == BS_OK && !same && s->kept) {
    drop_others(s->narrow.w, s->dtype, n, k);
    drop_others(s->wide.w, BS_F32, n, k);
  }
  if (rc == BS_OK) rc = make_one(&s->narrow.x, &s->wide.x, 2, s, (uint64_t)(b * k), err);
  if (rc == BS_OK && s->product != BENCH_FORWARD)
    rc = make_one(&s->narrow.dy, &s->wide.dy, 3, s, (uint64_t)(b * n), err);
  if (rc != BS_OK) return rc;
  s->narrow.product = s->wide.product = s->product;
  s->narrow.dtype = s->dtype;
  s->wide.dtype = BS_F32;
  s->narrow.n = s->wide.n = n;
  s->narrow.k = s->wide.k = k;
  s->narrow.b = s->wide.b = b;
  return BS_OK;
}

const bench_numbers *bench_numbers_of(const bench_source_numbers *s, uint32_t dtype) {
  return dtype == s->dtype ? &s->narrow : &s->wide;
}

void bench_numbers_free(bench_source_numbers *s) {
  free(s->narrow.w);
  free(s->narrow.x);
  free(s->narrow.dy);
  free(s->wide.w);
  free(s->wide.x);
  free(s->wide.dy);
  memset(s, 0, sizeof *s);
}

static float element(const void *data, uint32_t dtype, uint64_t at) {
  float value = 0.0f;
  (void)bs_convert(BS_F32, &value, dtype, (const char *)data + at * BS_DTYPE_BYTES(dtype), 1);
  return value;
}

/* Rows and columns of what the product makes. */
static void bench_output_size(const bench_numbers *m, int64_t *out_rows, int64_t *out_cols) {
  *out_rows = m->product == BENCH_DW ? m->n : m->b;
  *out_cols = m->product == BENCH_FORWARD ? m->n : m->product == BENCH_DW && m->kept ? m->k / 2 : m->k;
}

/* The column of value j of a row of W that is 2:4. */
static int64_t kept_column(int64_t row, int64_t j) {
  const uint8_t bits = bench_kept(row, j / 2);
  int64_t left = j % 2, c = 0;
  while ((bits >> c & 1) == 0 || left-- > 0) ++c;
  return j / 2 * 4 + c;
}

/* One element in fp64. */
static double spot(const bench_numbers *m, int64_t row, int64_t column) {
  const int64_t k = m->k, n = m->n,
                length = m->product == BENCH_FORWARD ? k
                         : m->product == BENCH_DX    ? n
                                                     : m->b;
  double sum = 0.0;
  if (m->product == BENCH_DW && m->kept) column = kept_column(row, column);
  for (int64_t i = 0; i < length; ++i) {
    const int64_t x = m->product == BENCH_FORWARD ? row * k + i : i * k + column;
    const int64_t dy = m->product == BENCH_DX ? row * n + i : i * n + row;
    const int64_t w = m->product == BENCH_FORWARD ? column * k + i : i * k + column;
    const double a = (double)(m->product == BENCH_DX ? element(m->dy, m->dtype, (uint64_t)dy)
                                                     : element(m->x, m->dtype, (uint64_t)x));
    const double b = (double)(m->product == BENCH_DW ? element(m->dy, m->dtype, (uint64_t)dy)
                                                     : element(m->w, m->dtype, (uint64_t)w));
    sum += a * b;
  }
  return sum;
}

double bench_difference(const bench_numbers *m, const void *y, uint32_t of, const void *other, uint32_t to) {
  float a[CHUNK], b[CHUNK];
  double largest = 0.0, worst = 0.0;
  int64_t rows, cols;
  bench_output_size(m, &rows, &cols);
  const uint64_t count = (uint64_t)(rows * cols);
  for (uint64_t at = 0; at < count; at += CHUNK) {
    const uint64_t n = count - at < CHUNK ? count - at : CHUNK;
    (void)bs_convert(BS_F32, a, of, (const char *)y + at * BS_DTYPE_BYTES(of), n);
    (void)bs_convert(BS_F32, b, to, (const char *)other + at * BS_DTYPE_BYTES(to), n);
    for (uint64_t i = 0; i < n; ++i) {
      const double apart = fabs((double)a[i] - (double)b[i]), size = fabs((double)b[i]);
      if (!(apart <= worst)) worst = isnan(apart) ? INFINITY : apart;
      if (size > largest) largest = size;
    }
  }
  return worst > 0.0 ? worst / largest : 0.0;
}

double bench_spot_difference(const bench_numbers *m, const void *y) {
  int64_t rows, cols;
  bench_output_size(m, &rows, &cols);
  const uint64_t count = (uint64_t)(rows * cols), step = count / SPOTS + 1;
  double largest = 0.0, worst = 0.0;
  for (uint64_t at = 0; at < count; at += step) {
    const double sum = spot(m, (int64_t)at / cols, (int64_t)at % cols);
    const uint32_t type = m->product == BENCH_DW ? BS_F32 : m->dtype;
    const double apart = fabs(sum - (double)element(y, type, at));
    if (!(apart <= worst)) worst = isnan(apart) ? INFINITY : apart;
    largest = fmax(largest, fabs(sum));
  }
  return worst > 0.0 ? worst / largest : 0.0;
}

static double tolerance_of(uint32_t dtype) {
  return dtype == BS_BF16 ? 8e-3 : dtype == BS_F16 ? 1e-3 : 1e-4;
}

double bench_tolerance(uint32_t of, uint32_t to) {
  return fmax(tolerance_of(of), tolerance_of(to));
}
