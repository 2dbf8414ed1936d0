/* SPDX-License-Identifier: MIT
 * quant_read.c - how kernels read quantised constants: codes and scales of the model as they lie there, or
 * float weights that are rounded row by row while they are packed. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/quant.h"
#include "graph/lower/frame.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
}

/* ---- constants as they lie --------------------------------------------------------------------- */

/* A matrix of a constant: element (r,c) is number offset + r row + c col of data. */
typedef struct matrix {
  const unsigned char *data;
  uint32_t dtype;
  int64_t offset, row, col;
} matrix;

static matrix matrix_of(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value], *root = &g->values[v->base];
  matrix m = {.data = root->data, .dtype = v->dtype, .offset = v->offset};
  if (v->rank == 2) {
    m.row = v->dims[0] > 1 ? v->strides[0] : 0;
    m.col = v->dims[1] > 1 ? v->strides[1] : 0;
  } else if (v->rank == 1) {
    m.row = v->dims[0] > 1 ? v->strides[0] : 0;
  }
  return m;
}

static matrix swapped(matrix m) {
  const int64_t row = m.row;
  m.row = m.col;
  m.col = row;
  return m;
}

/* A key of a constant: its place in the model, or a hash of what was computed. */
static uint64_t place_of(const graph *g, uint32_t value, uint64_t bytes) {
  const gvalue *root = &g->values[g->values[value].base];
  if (root->source != GNONE) return (uint64_t)(uintptr_t)root->data;
  const unsigned char *data = root->data;
  uint64_t hash = UINT64_C(14695981039346656037);
  for (uint64_t i = 0; i < bytes; i++) hash = (hash ^ data[i]) * UINT64_C(1099511628211);
  return hash | 1u; /* a place is even */
}

/* The bits of an element of bytes or halves of bytes. */
static uint32_t code_at(const matrix *m, int64_t at) {
  if ((m->dtype & 0xffu) == 4) return m->data[at / 2] >> 4 * (at % 2) & 15u;
  return m->data[at];
}

static uint32_t bits_of(uint32_t dtype) {
  return dtype & 0xffu;
}

/* Signed codes become those from 0 on. */
static uint32_t flip_of(uint32_t dtype) {
  return dtype >> 8 == 0 ? 1u << (bits_of(dtype) - 1u) : 0;
}

static float float_at(const matrix *m, int64_t at) {
  const uint32_t size = BS_DTYPE_BYTES(m->dtype);
  double aligned = 0;
  float out = 0;
  memcpy(&aligned, m->data + (uint64_t)at * size, size);
  bs_convert(BS_F32, &out, m->dtype, &aligned, 1);
  return out;
}

/* ---- codes ------------------------------------------------------------------------------------- */

typedef struct codes_source {
  matrix codes, scales, zeros;
  uint32_t flip;
  int has_zeros;
  int64_t cols, groups;
} codes_source;

/* Rows whose columns lie apart are read column by column: the lines of the file are used whole. */
static void read_codes_only(const codes_source *s, int64_t row, int64_t nrows, const bs_quant_rows *out) {
  const matrix *m = &s->codes;
  const int64_t first = m->offset + row * m->row;
  if (bits_of(m->dtype) == 8 && m->col <= 1) {
    for (int64_t r = 0; r < nrows; r++) {
      const unsigned char *from = m->data + first + r * m->row;
      uint8_t *to = out->codes + r * out->codes_stride;
      for (int64_t k = 0; k < s->cols; k++) to[k] = (uint8_t)(from[k * m->col] ^ s->flip);
    }
    return;
  }
  for (int64_t k = 0; k < s->cols; k++)
    for (int64_t r = 0; r < nrows; r++)
      out->codes[r * out->codes_stride + k] =
          (uint8_t)(code_at(m, first + r * m->row + k * m->col) ^ s->flip);
}

static int32_t read_codes(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const codes_source *s = ctx;
  (void)err;
  read_codes_only(s, row, nrows, out);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t g = 0; g < s->groups; g++) {
      out->scales[r * s->groups + g] =
          float_at(&s->scales, s->scales.offset + (row + r) * s->scales.row + g * s->scales.col);
      if (out->zeros != NULL)
        out->zeros[r * s->groups + g] =
            (uint8_t)(code_at(&s->zeros, s->zeros.offset + (row + r) * s->zeros.row + g * s->zeros.col) ^
                      s->flip);
    }
  return BS_OK;
}

/* Zero points of floats: w = scale q - scale zero. */
static int32_t read_lows(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const codes_source *s = ctx;
  const int32_t rc = read_codes(ctx, row, nrows, out, err);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t g = 0; g < s->groups; g++)
      out->lows[r * s->groups + g] =
          out->scales[r * s->groups + g] *
          float_at(&s->zeros, s->zeros.offset + (row + r) * s->zeros.row + g * s->zeros.col);
  return rc;
}

static int is_code(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || bits_of(dtype) == 4;
}

/* Scales or zero points [rows, groups] of the codes [rows, cols]. 0: another shape. */
static int fit(const lower_ctx *c, const lower_codes *codes, uint32_t value, int turned, int64_t rows,
               int64_t groups, matrix *out) {
  const gvalue *v = &c->g->values[value];
  *out = matrix_of(c->g, value);
  if (codes->axis < 0) { /* one for all */
    out->row = out->col = 0;
    return graph_count(v) == 1;
  }
  if (v->rank == 1) { /* one a row */
    out->col = 0;
    return groups == 1 && v->dims[0] == rows;
  }
  if (turned) *out = swapped(*out);
  return v->rank == 2 && v->dims[turned ? 1 : 0] == rows && v->dims[turned ? 0 : 1] == groups;
}

/* The zero points are one number: the form has it. */
static int is_one_zero(const codes_source *s, int64_t rows, int32_t *out_zero) {
  *out_zero = (int32_t)(code_at(&s->zeros, s->zeros.offset) ^ s->flip);
  for (int64_t r = 0; r < (s->zeros.row != 0 ? rows : 1); r++)
    for (int64_t g = 0; g < (s->zeros.col != 0 ? s->groups : 1); g++)
      if ((int32_t)(code_at(&s->zeros, s->zeros.offset + r * s->zeros.row + g * s->zeros.col) ^ s->flip) !=
          *out_zero)
        return 0;
  return 1;
}

static void set_keys(const lower_ctx *c, const lower_codes *codes, int turned, gquant *out) {
  const graph *g = c->g;
  const gvalue *x = &g->values[codes->x];
  const uint64_t count = (uint64_t)graph_count(&g->values[x->base]);
  uint64_t *at = out->keys[0].at;
  out->n_keys = 1;
  at[0] = place_of(g, codes->x, bits_of(x->dtype) == 4 ? (count + 1) / 2 : count);
  at[1] = place_of(g, codes->scale, graph_bytes(&g->values[g->values[codes->scale].base]));
  at[2] = codes->zero != GNONE
              ? place_of(g, codes->zero, graph_bytes(&g->values[g->values[codes->zero].base]))
              : 0;
  at[3] = (uint64_t)x->offset << 8 | (uint64_t)(turned != 0) << 1 | (x->strides[0] == 1);
  out->places[0] = (gquant_place){
      .data = g->values[x->base].data, .bytes = count * bits_of(x->dtype) / 8u, .rows = out->quant.rows};
}

/* Sets `line` if the rows of codes begin at the constant's first byte and follow each other. */
static void set_line(const codes_source *s, gquant *out) {
  const int64_t bits = s->codes.row * (int64_t)bits_of(s->codes.dtype);
  if (s->codes.offset == 0 && s->codes.col <= 1 && bits % 8 == 0) out->places[0].line = bits / 8;
}

int32_t lower_read_codes(lower_ctx *c, const lower_codes *codes, int turned, gquant *out, int *out_ok,
                         bs_error *err) {
  const gvalue *x = &c->g->values[codes->x];
  *out_ok = 0;
  if (x->rank != 2 || !is_code(x->dtype) || graph_count(x) == 0) return BS_OK;
  const int64_t rows = x->dims[turned ? 1 : 0], cols = x->dims[turned ? 0 : 1];
  const int64_t group = codes->block > 0 && codes->block < cols ? codes->block : cols;
  codes_source s = {.codes = matrix_of(c->g, codes->x), .flip = flip_of(x->dtype), .cols = cols};
  s.groups = cols / group + (cols % group != 0);
  s.has_zeros = codes->zero != GNONE;
  if (turned) s.codes = swapped(s.codes);
  if (!fit(c, codes, codes->scale, turned, rows, s.groups, &s.scales)) return BS_OK;
  if (s.has_zeros && (lower_dtype(c, codes->zero) != x->dtype ||
                      !fit(c, codes, codes->zero, turned, rows, s.groups, &s.zeros)))
    return BS_OK;
  bs_quant form = {.struct_size = (uint32_t)sizeof form,
                   .bits = bits_of(x->dtype),
                   .zero = (int32_t)s.flip,
                   .rows = rows,
                   .cols = cols,
                   .group = group,
                   .span = group,
                   .read = read_codes};
  if (s.has_zeros && !is_one_zero(&s, rows, &form.zero)) {
    form.flags = BS_QUANT_ZEROS;
    form.zero = 0;
  }
  if (bs_quant_check(&form, "weight", NULL) != BS_OK) return BS_OK;
  codes_source *own = graph_data(c->g, sizeof *own);
  if (own == NULL) return no_memory(err);
  *own = s;
  form.ctx = own;
  out->quant = form;
  set_keys(c, codes, turned, out);
  set_line(own, out);
  *out_ok = 1;
  return BS_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static matrix rows_of(const graph *g, uint32_t value, uint32_t dtype, int64_t row) {
  return (matrix){.data = g->values[value].data, .dtype = dtype, .row = row, .col = 1};
}

int32_t lower_read_blocks(lower_ctx *c, const lower_blocks *b, gquant *out, bs_error *err) {
  const graph *g = c->g;
  const int64_t group = b->block < b->cols ? b->block : b->cols;
  const int64_t groups = b->cols / group + (b->cols % group != 0);
  const uint32_t dtype = b->bits == 4 ? 0x0104u : BS_U8;
  const int lows = b->zero != GNONE && bs_dtype_is_float(g->values[b->zero].dtype);
  codes_source *s = graph_data(c->g, sizeof *s);
  if (s == NULL) return no_memory(err);
  *s = (codes_source){.codes = rows_of(g, b->codes, dtype, b->stride),
                      .scales = rows_of(g, b->scale, g->values[b->scale].dtype, groups),
                      .has_zeros = b->zero != GNONE && !lows,
                      .cols = b->cols,
                      .groups = groups};
  bs_quant form = {.struct_size = (uint32_t)sizeof form,
                   .bits = b->bits,
                   .zero = lows ? 0 : 1 << (b->bits - 1u),
                   .rows = b->rows,
                   .cols = b->cols,
                   .group = group,
                   .span = group,
                   .ctx = s,
                   .read = lows ? read_lows : read_codes};
  if (lows) {
    form.flags = BS_QUANT_LOWS;
    s->zeros = rows_of(g, b->zero, g->values[b->zero].dtype, groups);
  } else if (b->zero != GNONE) {
    s->zeros = rows_of(g, b->zero, dtype, b->bits == 4 ? (groups + 1) / 2 * 2 : groups);
    if (!is_one_zero(s, b->rows, &form.zero)) {
      form.flags = BS_QUANT_ZEROS;
      form.zero = 0;
    }
  }
  const int32_t rc = bs_quant_check(&form, "weight", err);
  if (rc != BS_OK) return rc;
  const lower_codes key = {.x = b->codes, .scale = b->scale, .zero = b->zero};
  out->quant = form;
  set_keys(c, &key, 0, out);
  set_line(s, out);
  return BS_OK;
}

/* ---- floats that are rounded -------------------------------------------------------------------- */

typedef struct floats_source {
  matrix w;
  bs_quant form;
} floats_source;

static int32_t read_rounded(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const floats_source *s = ctx;
  const int64_t cols = s->form.cols;
  float *rows = malloc((size_t)(nrows * cols) * sizeof *rows + 1u);
  if (rows == NULL) return no_memory(err);
  const uint32_t size = BS_DTYPE_BYTES(s->w.dtype);
  for (int64_t r = 0; r < nrows && s->w.col == 1; r++) {
    const unsigned char *from = s->w.data + (uint64_t)(s->w.offset + (row + r) * s->w.row) * size;
    if (((uintptr_t)from & (size - 1u)) == 0)
      bs_convert(BS_F32, rows + r * cols, s->w.dtype, from, (uint64_t)cols);
    else
      for (int64_t k = 0; k < cols; k++)
        rows[r * cols + k] = float_at(&s->w, s->w.offset + (row + r) * s->w.row + k);
  }
  for (int64_t k = 0; k < cols && s->w.col != 1; k++)
    for (int64_t r = 0; r < nrows; r++)
      rows[r * cols + k] = float_at(&s->w, s->w.offset + (row + r) * s->w.row + k * s->w.col);
  bs_quant_round(&s->form, rows, cols, nrows, out);
  free(rows);
  return BS_OK;
}

int32_t lower_read_rounded(lower_ctx *c, uint32_t weight, const bs_quant *form, gquant *out, bs_error *err) {
  const gvalue *v = &c->g->values[weight];
  floats_source *own = graph_data(c->g, sizeof *own);
  if (own == NULL) return no_memory(err);
  own->w = matrix_of(c->g, weight);
  own->form = *form;
  out->quant = *form;
  out->quant.ctx = own;
  out->quant.read = read_rounded;
  out->n_keys = 1;
  uint64_t *at = out->keys[0].at;
  at[0] = (uint64_t)(uintptr_t)own->w.data;
  at[1] = (uint64_t)own->w.offset;
  at[2] = (uint64_t)own->w.row;
  at[3] = (uint64_t)own->w.col << 2 | 2u;
  const int in_order = own->w.col == 1 && own->w.offset == 0;
  out->places[0] = (gquant_place){.data = own->w.data,
                                  .bytes = graph_bytes(&c->g->values[v->base]),
                                  .rows = form->rows,
                                  .line = in_order ? own->w.row * (int64_t)BS_DTYPE_BYTES(own->w.dtype) : 0};
  return BS_OK;
}
