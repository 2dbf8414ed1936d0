/* SPDX-License-Identifier: MIT
 *
 * packed_q.c - see packed_q.h. The members of the team read 16 rows at a time, each the rows of its panels:
 * there is never a dense copy. */
#include "packed_q.h"

#include <stdlib.h>

#include "../half.h"
#include "pull.h"

static int64_t up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

static int64_t parts(int64_t cols, int64_t size) {
  return size > 0 ? cols / size + (cols % size != 0) : 0;
}

/* ---- the form ----------------------------------------------------------------------------------- */

/* Room for `count` arrays of 16 values of `size` bytes. */
static int64_t place(int64_t *at, int64_t count, int64_t size) {
  const int64_t here = *at;
  *at += count * CPU_PANEL * size;
  return here;
}

void cpu_quant_form_of(const bs_quant *q, int half, cpu_quant_form *out) {
  cpu_quant_form f = {.bits = (int32_t)q->bits,
                      .zero = q->zero,
                      .half = half,
                      .zeros = (q->flags & BS_QUANT_ZEROS) != 0,
                      .lows = (q->flags & BS_QUANT_LOWS) != 0,
                      .steps = (q->flags & BS_QUANT_STEPS) != 0,
                      .rows = q->rows,
                      .cols = q->cols,
                      .group = q->group,
                      .span = q->span};
  f.row = !f.steps && f.group >= f.cols;
  f.columns = f.row || f.cols < CPU_QUANT_BLOCK ? f.cols : CPU_QUANT_BLOCK;
  const int64_t groups = f.row ? 1 : parts(f.columns, f.group), spans = f.row ? 1 : parts(f.columns, f.span);
  const int64_t size = half ? 2 : 4;
  int64_t at = 0;
  (void)place(&at, spans, size);
  f.at_lows = place(&at, f.lows ? spans : 0, size);
  f.at_sums = place(&at, f.row ? 1 : 0, 4);
  f.at_zeros = place(&at, f.zeros ? groups : 0, 1);
  f.at_steps = place(&at, f.steps ? groups : 0, 1);
  f.at_low_steps = place(&at, f.steps && f.lows ? groups : 0, 1);
  f.at_codes = up(at, 64);
  f.block = f.at_codes + up(f.columns, CPU_QUANT_UNIT) * 2 * f.bits;
  const int64_t blocks = parts(f.cols, f.columns), last = f.cols - (blocks - 1) * f.columns;
  f.panel = blocks > 0 ? (blocks - 1) * f.block + f.at_codes + up(last, CPU_QUANT_UNIT) * 2 * f.bits : 0;
  *out = f;
}

static uint8_t *panel_of(const cpu_packed_q *w, int64_t panel) {
  return w->data + panel * w->form.panel;
}

/* Adds a code to column k of a block, for output j. */
static void put_code(const cpu_quant_form *f, uint8_t *codes, int64_t j, int64_t k, uint32_t code) {
  uint8_t *unit = codes + k / CPU_QUANT_UNIT * 32 * f->bits;
  const int64_t quad = k % CPU_QUANT_UNIT / 4, lane = j * 4 + k % 4;
  if (f->bits == 8) {
    unit[64 * quad + lane] = (uint8_t)code;
    return;
  }
  unit[64 * (quad / 2) + lane] |= (uint8_t)((code & 15u) << (quad % 2 * 4));
  if (f->bits == 6) unit[128 + lane] |= (uint8_t)(code >> 4 << (quad * 2));
}

static uint32_t code_at(const cpu_quant_form *f, const uint8_t *codes, int64_t j, int64_t k) {
  const uint8_t *unit = codes + k / CPU_QUANT_UNIT * 32 * f->bits;
  const int64_t quad = k % CPU_QUANT_UNIT / 4, lane = j * 4 + k % 4;
  if (f->bits == 8) return unit[64 * quad + lane];
  const uint32_t low = unit[64 * (quad / 2) + lane] >> (quad % 2 * 4) & 15u;
  return f->bits == 4 ? low : low | (unit[128 + lane] >> (quad * 2) & 3u) << 4;
}

static float scale_at(const cpu_quant_form *f, const uint8_t *scales, int64_t index) {
  float v;
  uint16_t h;
  if (f->half) {
    memcpy(&h, scales + index * 2, sizeof h);
    return cpu_f16_load(h);
  }
  memcpy(&v, scales + index * 4, sizeof v);
  return v;
}

/* 0: the value is not exact in f16. */
static int put_scale(const cpu_quant_form *f, uint8_t *scales, int64_t index, float v) {
  if (!f->half) {
    memcpy(scales + index * 4, &v, sizeof v);
    return 1;
  }
  const uint16_t h = cpu_f16_store(v);
  memcpy(scales + index * 2, &h, sizeof h);
  return cpu_bits(cpu_f16_load(h)) == cpu_bits(v);
}

/* ---- pack --------------------------------------------------------------------------------------- */

typedef struct pack_job {
  cpu_packed_q *w;
  const bs_quant *from;
  uint8_t *rows;      /* 16 rows a member */
  uint64_t row_bytes; /* of one member */
  bs_error *errors;   /* one a member */
  int inexact;        /* a scale is not exact in f16; relaxed */
} pack_job;

/* 16 rows in a member's room. */
static bs_quant_rows rows_in(const cpu_packed_q *w, uint8_t *at, uint64_t *out_bytes) {
  const bs_quant *q = &w->given;
  const int64_t groups = parts(q->cols, q->group), spans = parts(q->cols, q->span);
  const int lows = (q->flags & BS_QUANT_LOWS) != 0, steps = (q->flags & BS_QUANT_STEPS) != 0;
  const int64_t counts[6] = {q->cols,
                             spans * 4,
                             lows ? spans * 4 : 0,
                             (q->flags & BS_QUANT_ZEROS) != 0 ? groups : 0,
                             steps ? groups : 0,
                             steps && lows ? groups : 0};
  uint8_t *arrays[6];
  uint64_t used = 0;
  for (int i = 0; i < 6; i++) {
    arrays[i] = at != NULL && counts[i] > 0 ? at + used : NULL;
    used += (uint64_t)up(counts[i] * CPU_PANEL, 64);
  }
  *out_bytes = used;
  return (bs_quant_rows){.struct_size = (uint32_t)sizeof(bs_quant_rows),
                         .codes = arrays[0],
                         .codes_stride = q->cols,
                         .scales = (float *)(void *)arrays[1],
                         .lows = (float *)(void *)arrays[2],
                         .zeros = arrays[3],
                         .steps = (int8_t *)(void *)arrays[4],
                         .low_steps = arrays[5]};
}

/* Rows of a panel into its block of columns first .. first + n. 0: a scale is not exact in f16. */
static int put_block(const cpu_quant_form *f, const bs_quant_rows *r, int64_t rows, int64_t first, int64_t n,
                     uint8_t *block) {
  const int64_t groups = parts(f->cols, f->group), spans = parts(f->cols, f->span);
  int exact = 1;
  for (int64_t j = 0; j < rows; j++) {
    for (int64_t s = first / f->span; s < parts(first + n, f->span); s++) {
      const int64_t at = (s - first / f->span) * CPU_PANEL + j;
      exact &= put_scale(f, block, at, r->scales[j * spans + s]);
      if (f->lows) exact &= put_scale(f, block + f->at_lows, at, r->lows[j * spans + s]);
    }
    for (int64_t g = first / f->group; g < parts(first + n, f->group); g++) {
      const int64_t at = (g - first / f->group) * CPU_PANEL + j;
      if (f->zeros) block[f->at_zeros + at] = r->zeros[j * groups + g];
      if (f->steps) memcpy(block + f->at_steps + at, r->steps + j * groups + g, 1);
      if (f->steps && f->lows) block[f->at_low_steps + at] = r->low_steps[j * groups + g];
    }
    uint32_t sum = 0;
    for (int64_t k = 0; k < n; k++) {
      const uint32_t code = r->codes[j * r->codes_stride + first + k];
      put_code(f, block + f->at_codes, j, k, code);
      sum += code;
    }
    if (!f->row) continue;
    sum -= (uint32_t)n * (uint32_t)(f->zeros ? r->zeros[j] : f->zero);
    memcpy(block + f->at_sums + 4 * j, &sum, sizeof sum);
  }
  return exact;
}

static void pack_share(void *arg, uint32_t member, uint32_t width) {
  pack_job *job = arg;
  const cpu_packed_q *w = job->w;
  const cpu_quant_form *f = &w->form;
  uint64_t bytes;
  const bs_quant_rows rows = rows_in(w, job->rows + member * job->row_bytes, &bytes);
  int64_t begin, end;
  cpu_share(w->panels, member, width, &begin, &end);
  for (int64_t p = begin; p < end && !__atomic_load_n(&job->inexact, __ATOMIC_RELAXED); p++) {
    const int64_t n0 = p * CPU_PANEL, count = f->rows - n0 < CPU_PANEL ? f->rows - n0 : CPU_PANEL;
    const int32_t rc = job->from->read(job->from->ctx, n0, count, &rows, &job->errors[member]);
    if (rc != BS_OK) {
      job->errors[member].code = rc;
      return;
    }
    memset(panel_of(w, p), 0, (size_t)f->panel);
    int exact = 1;
    for (int64_t first = 0, b = 0; first < f->cols; first += f->columns, b++)
      exact &= put_block(f, &rows, count, first, f->cols - first < f->columns ? f->cols - first : f->columns,
                         panel_of(w, p) + b * f->block);
    if (!exact) __atomic_store_n(&job->inexact, 1, __ATOMIC_RELAXED);
  }
}

/* Fills the weight; *out_inexact: scales do not fit f16, and it is not filled. */
static int32_t fill(cpu_packed_q *w, const bs_quant *from, uint64_t *out_bytes, int *out_inexact,
                    bs_error *err) {
  const bs_exec *exec = w->exec;
  const uint32_t width = exec->width > 0 ? exec->width : 1;
  pack_job job = {.w = w, .from = from};
  if (__builtin_mul_overflow((uint64_t)w->panels, (uint64_t)w->form.panel, out_bytes) ||
      *out_bytes > INT64_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                   (long long)from->rows, (long long)from->cols);
  if (*out_bytes == 0) return BS_OK;
  (void)rows_in(w, NULL, &job.row_bytes);
  w->data = exec->alloc(exec->ctx, *out_bytes);
  job.rows = exec->alloc(exec->ctx, job.row_bytes * width);
  job.errors = cpu_errors_make(exec);
  int32_t rc = BS_NO_MEMORY;
  if (w->data == NULL || job.rows == NULL || job.errors == NULL)
    bs_fail(err, rc, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
            (unsigned long long)*out_bytes);
  else
    rc = cpu_team_errors(exec, pack_share, &job, job.errors, err);
  if (job.rows != NULL) exec->free(exec->ctx, job.rows);
  free(job.errors);
  *out_inexact = job.inexact;
  return rc;
}

int32_t cpu_packed_q_make(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  int inexact = 0;
  (void)weights;
  if (query->quant == NULL || query->quant->read == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACK", "%s needs a quantised weight", query->op);
  cpu_packed_q *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->exec = exec;
  w->state = state;
  w->given = *query->quant;
  w->given.read = NULL;
  w->given.ctx = NULL;
  w->panels = parts(w->given.rows, CPU_PANEL);
  cpu_quant_form_of(&w->given, 1, &w->form);
  int32_t rc = fill(w, query->quant, out_bytes, &inexact, err);
  if (rc == BS_OK && inexact) {
    exec->free(exec->ctx, w->data);
    w->data = NULL;
    cpu_quant_form_of(&w->given, 0, &w->form);
    rc = fill(w, query->quant, out_bytes, &inexact, err);
  }
  if (rc != BS_OK) {
    cpu_packed_q_free(w);
    return rc;
  }
  *out_packed = w;
  return BS_OK;
}

void cpu_packed_q_free(void *packed) {
  cpu_packed_q *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  free(w);
}

/* ---- used --------------------------------------------------------------------------------------- */

int32_t cpu_packed_q_check(const cpu_packed_q *w, const bs_op_query *query, bs_error *err) {
  const bs_quant *a = query->quant, *b = w != NULL ? &w->given : NULL;
  if (b != NULL && a->bits == b->bits && a->flags == b->flags && a->zero == b->zero && a->rows == b->rows &&
      a->cols == b->cols && a->group == b->group && a->span == b->span)
    return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "%s needs a weight that was packed in its form",
                 query->op);
}

/* n columns of a group, k.. of a block. */
static void group_row(const cpu_quant_form *f, const uint8_t *block, int64_t j, int64_t k, int64_t n,
                      float *out) {
  const int64_t s = k / f->span * CPU_PANEL + j, g = k / f->group * CPU_PANEL + j;
  float scale = scale_at(f, block, s), low = f->lows ? scale_at(f, block + f->at_lows, s) : 0.0f;
  const int32_t zero = f->zeros ? block[f->at_zeros + g] : f->zero;
  if (f->steps) {
    int8_t step;
    memcpy(&step, block + f->at_steps + g, sizeof step);
    scale *= (float)step;
    if (f->lows) low *= (float)block[f->at_low_steps + g];
  }
  for (int64_t i = 0; i < n; i++) {
    const float product = scale * (float)((int32_t)code_at(f, block + f->at_codes, j, k + i) - zero);
    out[i] = f->lows ? product - low : product;
  }
}

void cpu_packed_q_row(const cpu_packed_q *w, int64_t row, int64_t first, int64_t n, float *out) {
  const cpu_quant_form *f = &w->form;
  const uint8_t *panel = panel_of(w, row / CPU_PANEL);
  for (int64_t k = first; k < first + n;) {
    const int64_t in = k % f->columns, group = f->group - in % f->group, left = first + n - k;
    const int64_t block = f->columns - in, most = group < block ? group : block;
    const int64_t count = most < left ? most : left;
    group_row(f, panel + k / f->columns * f->block, row % CPU_PANEL, in, count, out + (k - first));
    k += count;
  }
}

int32_t cpu_packed_q_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  enum { PIECE = 256 };
  const cpu_packed_q *w = packed;
  float piece[PIECE];
  if (out->rank != 2 || out->dims[1] != w->form.cols || row < 0 || out->dims[0] < 0 ||
      row > w->form.rows - out->dims[0] || (out->dims[1] > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->form.rows, (long long)w->form.cols);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    for (int64_t k = 0; k < w->form.cols; k += PIECE) {
      const int64_t n = w->form.cols - k < PIECE ? w->form.cols - k : PIECE;
      uint8_t *to = (uint8_t *)out->data + (size_t)(i * out->strides[0] + k) * size;
      cpu_packed_q_row(w, row + i, k, n, piece);
      if (w->state->host->convert(out->dtype, to, BS_F32, piece, (uint64_t)n) != BS_OK)
        return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
    }
  return BS_OK;
}
