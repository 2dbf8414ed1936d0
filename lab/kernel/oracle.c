/* SPDX-License-Identifier: MIT
 * oracle.c - see oracle.h. Three runs of the same online softmax over tiles of keys: f64 of the drawn inputs,
 * f64 of the rounded ones, and the format's own arithmetic. */
#include "lab/kernel/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "lab/error.h"

enum { TILE = 128, MOST = 1024, LANES = 16 };
enum {
  ROWS = 64,
  HEADS = 4,
  FEW_ROWS = 32,
  MANY_KEYS = 2048
}; /* samples: beyond many keys, few rows of one head */
#define MOST_KEYS (INT64_C(1) << 24)
/* ---- inputs ----------------------------------------------------------------------------------- */

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

/* The factor that a tensor of fp8 is stored by: its largest value becomes the format's. */
static double descale_of(uint32_t dtype, double largest) {
  if (!is_f8(dtype) || largest == 0.0) return 1.0;
  return largest / (dtype == BS_F8E4M3 ? 448.0 : 57344.0);
}

static double round_to(uint32_t dtype, double value) {
  unsigned char bits[8] = {0};
  bs_store_f64(dtype, bits, 0, value);
  return bs_load_f64(dtype, bits, 0);
}

/* Rounds towards zero: if the nearest value is larger, takes the one below it. */
static double cut_to(uint32_t dtype, double value) {
  unsigned char bits[8] = {0};
  uint64_t word = 0;
  bs_store_f64(dtype, bits, 0, value);
  if (fabs(bs_load_f64(dtype, bits, 0)) <= fabs(value)) return bs_load_f64(dtype, bits, 0);
  memcpy(&word, bits,
         sizeof word); /* little endian: the sign is the highest bit, so this is a step inwards */
  word--;
  memcpy(bits, &word, sizeof word);
  return bs_load_f64(dtype, bits, 0);
}

double bs_sdpa_rounded(uint32_t dtype, uint32_t fault, double largest, double value) {
  const double by = descale_of(dtype, largest);
  if (fault == BS_SDPA_LINEAR8) return (nearbyint((value / largest + 1.0) * 127.5) - 128.0) / 127.0 * largest;
  return by * (fault == BS_SDPA_TRUNCATED ? cut_to(dtype, value / by) : round_to(dtype, value / by));
}

/* Values in [rows][width]: as drawn, and as the format has them. */
typedef struct matrix {
  int64_t rows, width;
  float *drawn;
  double *rounded; /* of given inputs: the caller's, and nothing is drawn */
} matrix;

static int32_t draw(const bs_sdpa_format *f, uint32_t stream, matrix *m, bs_error *err) {
  const int64_t n = m->rows * m->width;
  float largest = 0.0f;
  m->drawn = malloc((size_t)n * sizeof *m->drawn);
  m->rounded = malloc((size_t)n * sizeof *m->rounded);
  if (m->drawn == NULL || m->rounded == NULL) return bs_no_memory(err, "the oracle's inputs");
  bs_rng_normal(f->seed, stream, 0, (uint64_t)n, m->drawn);
  for (int64_t i = 0; f->outliers != 0 && i < n; i++) {
    float more[2];
    bs_rng_uniform(f->seed, stream + 8, (uint64_t)i, 1, more);
    if (more[0] >= 1e-3f) continue;
    bs_rng_normal(f->seed, stream + 16, (uint64_t)i, 1, more);
    m->drawn[i] += 10.0f * more[0];
  }
  for (int64_t i = 0; i < n; i++) largest = fabsf(m->drawn[i]) > largest ? fabsf(m->drawn[i]) : largest;
  for (int64_t i = 0; i < n; i++)
    m->rounded[i] = bs_sdpa_rounded(f->dtype, f->fault, (double)largest, (double)m->drawn[i]);
  return BS_OK;
}

/* ---- one row, tile by tile -------------------------------------------------------------------- */

typedef struct row {
  int64_t first, end; /* the keys of the row */
  double most[2], total[2];
  float low_most, low_total;
  double *exact[2]; /* [E]: of the drawn inputs, of the rounded ones */
  float *low;       /* [E] */
} row;

typedef struct emulation {
  const bs_sdpa_format *f;
  matrix q, k, v;
  double *space;
  float *low_space;
  int64_t count; /* rows */
  row rows[ROWS];
  double right[2]; /* sums of squares of all heads so far: for the drawn and for the rounded inputs */
  bs_tail tail[2];
} emulation;

/* Transposes the keys `first`.. of K: out[d][key], with 0 beyond the last one. */
static void turn(const emulation *e, int64_t first, int64_t keys, int drawn, double *out) {
  const int64_t D = e->f->D;
  for (int64_t d = 0; d < D; d++)
    for (int64_t j = 0; j < TILE; j++) {
      const int64_t at = (first + j) * D + d;
      out[d * TILE + j] = j >= keys ? 0.0 : drawn ? (double)e->k.drawn[at] : e->k.rounded[at];
    }
}

static void exact_tile(const emulation *e, row *r, int64_t i, int64_t first, int64_t keys, int rounded,
                       const double *turned) {
  const int64_t D = e->f->D, E = e->f->E;
  const double scale = 1.0 / sqrt((double)D);
  double s[TILE] = {0}, most = r->most[rounded], *sum = r->exact[rounded];
  for (int64_t d = 0; d < D; d++) {
    const double q = rounded ? e->q.rounded[i * D + d] : (double)e->q.drawn[i * D + d];
    for (int64_t j = 0; j < TILE; j++) s[j] += q * turned[d * TILE + j];
  }
  for (int64_t j = 0; j < keys; j++) {
    const int64_t key = first + j;
    s[j] = key < r->first || key >= r->end ? -INFINITY : s[j] * scale;
    if (s[j] > most) most = s[j];
  }
  if (most == -INFINITY) return;
  const double by = exp(r->most[rounded] - most);
  r->most[rounded] = most;
  r->total[rounded] *= by;
  for (int64_t x = 0; x < E; x++) sum[x] *= by;
  for (int64_t j = 0; j < keys; j++) {
    const double p = exp(s[j] - most);
    r->total[rounded] += p;
    for (int64_t x = 0; x < E && p > 0.0; x++)
      sum[x] += p * (rounded ? e->v.rounded[(first + j) * E + x] : (double)e->v.drawn[(first + j) * E + x]);
  }
}

/* A fused multiply-add: the product is exact in f64. */
static float fused(double a, double b, float c) {
  return (float)(a * b + (double)c);
}

/* The power as an operand of the second product. */
static float operand(const bs_sdpa_format *f, float p) {
  const double by = !is_f8(f->dtype) ? 1.0 : f->p_scale > 0.0 ? f->p_scale : 256.0;
  return f->tolerance == BS_TOL_ACC_LOW ? (float)(round_to(f->dtype, (double)p * by) / by) : p;
}

static void low_tile(const emulation *e, row *r, int64_t i, int64_t first, int64_t keys,
                     const double *turned) {
  const int64_t D = e->f->D, E = e->f->E;
  const int normalized = e->f->fault == BS_SDPA_NORMALIZED;
  const float scale = (float)(1.0 / sqrt((double)D));
  float s[TILE] = {0}, here[MOST] = {0}, lanes[LANES] = {0}, most = r->low_most, total = 0.0f;
  for (int64_t d = 0; d < D; d++) {
    const double q = (double)((float)e->q.rounded[i * D + d] * scale);
    for (int64_t j = 0; j < TILE; j++) s[j] = fused(q, turned[d * TILE + j], s[j]);
  }
  for (int64_t j = 0; j < keys; j++) {
    const int64_t key = first + j;
    if (key < r->first || key >= r->end) s[j] = -INFINITY;
    if (s[j] > most) most = s[j];
  }
  if (most == -INFINITY) return;
  if (normalized) r->low_most = most = (float)(r->most[1] + log(r->total[1]));
  const float by = expf(r->low_most - most);
  r->low_most = most;
  for (int64_t j = 0; j < keys; j++) {
    s[j] = expf(s[j] - most);
    lanes[j % LANES] += s[j];
  }
  for (int64_t j = 0; j < LANES; j++) total += lanes[j];
  r->low_total = normalized ? 1.0f : r->low_total * by + total;
  for (int64_t j = 0; j < keys; j++) {
    const double p = (double)operand(e->f, s[j]);
    const double *v = e->v.rounded + (first + j) * E;
    for (int64_t x = 0; x < E; x++) here[x] = fused(p, v[x], here[x]);
  }
  for (int64_t x = 0; x < E; x++) r->low[x] = r->low[x] * by + here[x];
}

enum { DRAWN, ROUNDED, LOW };

/* All keys once: f64 of the drawn inputs, of the rounded ones, or as the format does it. */
static void run_pass(emulation *e, int pass, double *turned) {
  for (int64_t first = 0; first < e->f->T; first += TILE) {
    const int64_t keys = e->f->T - first < TILE ? e->f->T - first : TILE;
    turn(e, first, keys, pass == DRAWN, turned);
    for (int64_t i = 0; i < e->count; i++) {
      row *r = &e->rows[i];
      if (first >= r->end || first + keys <= r->first) continue;
      if (pass == LOW)
        low_tile(e, r, i, first, keys, turned);
      else
        exact_tile(e, r, i, first, keys, pass, turned);
    }
  }
}

/* LOW may need the sums before it. */
static void run_rows(emulation *e, double *turned) {
  const int passes = e->f->tolerance == BS_TOL_ACC_F64 ? LOW : LOW + 1;
  for (int pass = DRAWN; pass < passes; pass++) run_pass(e, pass, turned);
}

/* ---- errors ----------------------------------------------------------------------------------- */

static uint32_t stored_as(const bs_sdpa_format *f) {
  return f->out_dtype != 0 ? f->out_dtype : is_f8(f->dtype) ? BS_BF16 : f->dtype;
}

static double output_of(const emulation *e, const row *r, int64_t x) {
  const bs_sdpa_format *f = e->f;
  const uint32_t to = stored_as(f);
  if (f->fault == BS_SDPA_ZERO || r->total[1] == 0.0) return 0.0;
  return round_to(
      to, f->tolerance == BS_TOL_ACC_F64 ? r->exact[1][x] / r->total[1] : (double)(r->low[x] / r->low_total));
}

/* Compares the outputs of one row. Returns the sum of the squares of the right values. */
static double compare(const bs_sdpa_format *f, const double *got, const double *want, bs_tail *tail) {
  const double scaling = f->tolerance == BS_TOL_ACC_F64 ? 0.0 : BS_SDPA_SCALING;
  double right = 0.0, squares = 0.0, fourths = 0.0;
  for (int64_t x = 0; x < f->E; x++) {
    const double off = got[x] - want[x], square = off * off + scaling * want[x] * want[x];
    right += want[x] * want[x];
    squares += square;
    fourths += square * square;
  }
  bs_tail_add(tail, (double)f->E, squares, fourths);
  return right;
}

static void add_row(emulation *e, const row *r, int which) {
  double got[MOST], want[MOST];
  for (int64_t x = 0; x < e->f->E; x++) {
    got[x] = output_of(e, r, x);
    want[x] = r->total[which] > 0.0 ? r->exact[which][x] / r->total[which] : 0.0;
  }
  e->right[which] += compare(e->f, got, want, &e->tail[which]);
}

static void add_errors(emulation *e) {
  for (int64_t i = 0; i < e->count; i++)
    for (int which = 0; which < 2; which++) add_row(e, &e->rows[i], which);
}

static void judge(const emulation *e, bs_sdpa_error *out) {
  for (int which = 0; which < 2; which++) {
    bs_tail tail = e->tail[which];
    const double rms = sqrt(e->right[which] / tail.values);
    if (rms > 0.0) bs_tail_divide(&tail, rms);
    *(which == 0 ? &out->whole_rmse : &out->rmse) = rms > 0.0 ? bs_tail_rmse(&tail) : 0.0;
    if (which == 1 && rms > 0.0) out->tail = tail;
  }
}

/* ---- a request -------------------------------------------------------------------------------- */

static int32_t check(const bs_sdpa_format *f, bs_error *err) {
  const int dtypes = f->dtype == BS_F32 || f->dtype == BS_BF16 || f->dtype == BS_F16 || is_f8(f->dtype);
  if (!dtypes || (f->out_dtype != 0 && !bs_dtype_is_float(f->out_dtype)))
    return bs_error_set(
        err, BS_INVALID_ARGUMENT, "BS-KERNEL-DTYPE",
        "attention of %s to %s has no predicted error: f32, bf16, f16, f8e4m3 and f8e5m2 have",
        bs_dtype_name(f->dtype), bs_dtype_name(f->out_dtype));
  if (f->S < 1 || f->T < 1 || f->T > MOST_KEYS || f->D < 1 || f->D > MOST || f->E < 1 || f->E > MOST)
    return bs_error_set(
        err, BS_INVALID_ARGUMENT, "BS-KERNEL-SHAPE",
        "attention of %lld queries over %lld keys of %lld and %lld elements has no predicted error",
        (long long)f->S, (long long)f->T, (long long)f->D, (long long)f->E);
  if (f->tolerance == BS_TOL_ACC_F32 || f->tolerance == BS_TOL_ACC_F64 || f->tolerance == BS_TOL_ACC_LOW)
    return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-KERNEL-CLASS",
                      "tolerance class %u has no predicted error: acc_f32, acc_f64 and acc_low have",
                      f->tolerance);
}

/* Starts the present rows with empty sums. */
static void begin_rows(emulation *e) {
  memset(e->space, 0, (size_t)(e->count * 2 * e->f->E) * sizeof *e->space);
  memset(e->low_space, 0, (size_t)(e->count * e->f->E) * sizeof *e->low_space);
  memset(e->rows, 0, sizeof e->rows);
  for (int64_t i = 0; i < e->count; i++) {
    row *r = &e->rows[i];
    for (int which = 0; which < 2; which++) {
      r->most[which] = -INFINITY;
      r->exact[which] = e->space + (2 * i + which) * e->f->E;
    }
    r->low_most = -INFINITY;
    r->low = e->low_space + i * e->f->E;
  }
}

/* Chooses rows that are spread evenly over the S, and the keys that each sees (op.h, attention). */
static void place_rows(emulation *e) {
  const bs_sdpa_format *f = e->f;
  for (int64_t i = 0; i < e->count; i++) {
    row *r = &e->rows[i];
    const int64_t s = (2 * i + 1) * f->S / (2 * e->count);
    const int64_t at = s + (f->causal == BS_CAUSAL_LOWER_RIGHT ? f->T - f->S : 0);
    r->first = f->left > 0 && f->left <= at ? at - f->left + 1 : 0;
    r->end = f->causal != BS_CAUSAL_NONE && at + 1 < f->T ? at + 1 : f->T;
    if (f->right > 0 && f->right < r->end - at) r->end = at + f->right;
  }
}

static int32_t one_head(emulation *e, uint32_t head, double *turned, bs_error *err) {
  matrix *all[] = {&e->q, &e->k, &e->v};
  int32_t rc = BS_OK;
  begin_rows(e);
  for (uint32_t i = 0; i < 3 && rc == BS_OK; i++) rc = draw(e->f, 32 * head + 1 + i, all[i], err);
  if (rc == BS_OK) {
    place_rows(e);
    run_rows(e, turned);
    add_errors(e);
  }
  for (uint32_t i = 0; i < 3; i++) {
    free(all[i]->drawn);
    free(all[i]->rounded);
    all[i]->drawn = NULL;
    all[i]->rounded = NULL;
  }
  return rc;
}

static void close_emulation(emulation *e, double *turned) {
  free(turned);
  if (e == NULL) return;
  free(e->space);
  free(e->low_space);
  free(e);
}

/* Takes memory for `count` rows at a time. */
static int32_t open_emulation(const bs_sdpa_format *f, int64_t count, emulation **out, double **out_turned,
                              bs_error *err) {
  emulation *e = calloc(1, sizeof *e);
  double *turned = malloc((size_t)(TILE * f->D) * sizeof *turned);
  if (e != NULL) {
    e->f = f;
    e->count = count;
    e->q = (matrix){.rows = count, .width = f->D};
    e->k = (matrix){.rows = f->T, .width = f->D};
    e->v = (matrix){.rows = f->T, .width = f->E};
    e->space = malloc((size_t)(count * 2 * f->E) * sizeof *e->space);
    e->low_space = malloc((size_t)(count * f->E) * sizeof *e->low_space);
  }
  if (e == NULL || turned == NULL || e->space == NULL || e->low_space == NULL) {
    close_emulation(e, turned);
    return bs_no_memory(err, "the oracle");
  }
  *out = e;
  *out_turned = turned;
  return BS_OK;
}

int32_t bs_sdpa_emulate(const bs_sdpa_format *format, bs_sdpa_error *out_error, bs_error *err) {
  emulation *e = NULL;
  double *turned = NULL;
  const int64_t most = format->T > MANY_KEYS ? FEW_ROWS : ROWS;
  const uint32_t heads = format->T > MANY_KEYS ? 1 : HEADS;
  int32_t rc = check(format, err);
  if (rc == BS_OK) rc = open_emulation(format, format->S < most ? format->S : most, &e, &turned, err);
  if (rc != BS_OK) return rc;
  for (uint32_t head = 0; head < heads && rc == BS_OK; head++) rc = one_head(e, head, turned, err);
  if (rc == BS_OK) judge(e, out_error);
  close_emulation(e, turned);
  return rc;
}

/* Rows of inputs that were given, from..: their outputs as the format makes them. */
static void run_given(emulation *e, const bs_sdpa_rows *given, int64_t from, double *turned) {
  e->count = given->n - from < ROWS ? given->n - from : ROWS;
  e->q.rounded = given->q + from * e->f->D;
  begin_rows(e);
  for (int64_t i = 0; i < e->count; i++) {
    e->rows[i].first = given->first[from + i];
    e->rows[i].end = given->end[from + i];
  }
  if (e->f->tolerance != BS_TOL_ACC_F64) run_pass(e, LOW, turned);
}

int32_t bs_sdpa_add_rows(const bs_sdpa_format *f, const bs_sdpa_rows *given, double *inout_right,
                         bs_tail *inout_tail, bs_error *err) {
  emulation *e = NULL;
  double *turned = NULL, got[MOST];
  int32_t rc = check(f, err);
  if (rc == BS_OK) rc = open_emulation(f, ROWS, &e, &turned, err);
  if (rc != BS_OK) return rc;
  e->k.rounded = given->k;
  e->v.rounded = given->v;
  for (int64_t from = 0; from < given->n; from += ROWS) {
    run_given(e, given, from, turned);
    for (int64_t i = 0; i < e->count; i++) {
      const row *r = &e->rows[i];
      const double *right = given->right + (from + i) * f->E;
      for (int64_t x = 0; x < f->E; x++) {
        const double low = r->low_total > 0.0f ? (double)(r->low[x] / r->low_total) : 0.0;
        got[x] = round_to(stored_as(f), f->tolerance == BS_TOL_ACC_F64 ? right[x] : low);
      }
      *inout_right += compare(f, got, right, inout_tail);
    }
  }
  close_emulation(e, turned);
  return BS_OK;
}
