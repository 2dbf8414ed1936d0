/* SPDX-License-Identifier: MIT
 * data_product.c - the reference of products, forward and backward, in f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/gate/judge.h"
#include "lab/kernel/data_parts.h"

enum { JUDGED = 128 }; /* columns of each row, and rows of dW */

/* Column `at` of an input, or row `at`, in f64. The caller frees; NULL: no memory. */
static double *line_of(const bs_kernel_data *d, uint32_t index, int column, int64_t at, bs_error *err) {
  const bs_kernel_input *in = &d->in[index];
  const size_t size = BS_DTYPE_BYTES(d->p.dtype);
  if (!column) return bs_kernel_data_widen(d, index, at, 1, err);
  double *out = calloc((size_t)in->rows, sizeof *out);
  if (out == NULL) bs_no_memory(err, "a column in f64");
  for (int64_t row = 0; out != NULL && row < in->rows; row++)
    bs_convert(BS_F64, &out[row], d->p.dtype, (const char *)in->data + (size_t)(row * in->cols + at) * size,
               1);
  return out;
}

/* Sets the dropped values of a row of W, or of its column, to zero. */
static int32_t drop_others(const bs_kernel_data *d, int column, int64_t at, double *line, bs_error *err) {
  const int64_t groups = column ? 1 : (d->p.K + 3) / 4, rows = column ? d->p.N : 1;
  uint8_t *bits = malloc((size_t)(rows * groups));
  if (bits == NULL) return bs_no_memory(err, "kept weights");
  const int32_t rc =
      d->kept->read(d->kept->ctx, column ? 0 : at, rows, column ? at / 4 : 0, groups, bits, groups, err);
  for (int64_t i = 0; rc == BS_OK && i < (column ? rows : d->p.K); i++)
    if ((bits[column ? i : i / 4] >> ((column ? at : i) % 4) & 1) == 0) line[i] = 0.0;
  free(bits);
  return rc;
}

/* The column of W for value j of a packed row; -1: the row keeps fewer. */
static int64_t kept_column(const bs_kernel_data *d, int64_t row, int64_t j) {
  uint8_t bits = 0;
  int64_t left = j % 2;
  if (d->kept->read(d->kept->ctx, row, 1, j / 2, 1, &bits, 1, NULL) != BS_OK) return -1;
  for (int64_t c = 0; c < 4; c++)
    if ((bits >> c & 1) != 0 && left-- == 0) return j / 2 * 4 + c < d->p.K ? j / 2 * 4 + c : -1;
  return -1;
}

/* The columns that the product takes, in place. */
static double *pick(const bs_kernel_data *d, double *line) {
  const bs_partition *c = d->columns;
  for (int64_t i = 0; line != NULL && c != NULL && i < c->count; i++)
    line[i] = line[c->kind == BS_PARTITION_GATHER ? c->columns[i] : c->begin + i];
  return line;
}

/* Output (r, c) of a product is the sum over two lines: of rows of X or dY and rows of W forward, columns of
 * W in dX, and columns of dY and of X in dW. */
static double *first_line(const bs_kernel_data *d, int64_t r, bs_error *err) {
  const int dw = !bs_kernel_has_weight(&d->p);
  return pick(d, line_of(d, (uint32_t)dw, dw, r, err));
}

static double *second_line(const bs_kernel_data *d, int64_t r, int64_t c, bs_error *err) {
  const int dw = !bs_kernel_has_weight(&d->p), dx = bs_kernel_is_dx(&d->p);
  const int64_t at = dw && d->kept != NULL ? kept_column(d, r, c) : c;
  if (at < 0) {
    double *none = calloc((size_t)d->p.B, sizeof *none);
    if (none == NULL) bs_no_memory(err, "a line");
    return none;
  }
  double *line = pick(d, line_of(d, (uint32_t)!dw, dw || dx, at, err));
  if (line == NULL || dw || d->kept == NULL || drop_others(d, dx, at, line, err) == BS_OK) return line;
  free(line);
  return NULL;
}

/* The i-th of n places that are spread over all of `of`. */
static int64_t spread(int64_t i, int64_t n, int64_t of) {
  return n > 1 ? i * (of - 1) / (n - 1) : 0;
}

/* One output, and the variance that round-off gives it: half a unit of its last place, and sqrt(n / 6) u of
 * the energy of its n products. */
static void refer_output(bs_kernel_data *d, const double *a, const double *b, int64_t n, double *energy,
                         double *variance) {
  const uint32_t dtype = bs_kernel_y_dtype(&d->p);
  const double unit = bs_ulp(dtype == BS_F64 ? BS_F64 : BS_F32, 1.0) / 2.0, y = bs_kernel_data_dot(a, b, n),
               terms = (double)(d->kept != NULL && bs_kernel_has_weight(&d->p) ? n / 2 : n),
               last = bs_ulp(dtype, y);
  double products = 0.0;
  for (int64_t k = 0; k < n; k++) products += a[k] * a[k] * b[k] * b[k];
  d->value[d->n] = y;
  *energy += y * y;
  const double place = last * last / 12.0, step = terms / 6.0 * unit * unit;
  /* The partial sums of a large output are large: the average over outputs is the same. */
  const double own = place + step * (products + 2.0 * y * y) / 3.0;
  *variance += place + step * products;
  bs_tail_add(&d->tail, 1.0, own, 3.0 * own * own);
}

/* The lines of the judged rows side by side. The caller frees; NULL: no memory. */
static double *first_lines(const bs_kernel_data *d, int64_t rows, int64_t all_rows, int64_t terms,
                           bs_error *err) {
  double *out = calloc((size_t)(rows * terms), sizeof *out);
  if (out == NULL) bs_no_memory(err, "a reference");
  for (int64_t i = 0; out != NULL && i < rows; i++) {
    double *line = first_line(d, spread(i, rows, all_rows), err);
    if (line != NULL) {
      memcpy(out + i * terms, line, (size_t)terms * sizeof *line);
    } else {
      free(out);
      out = NULL;
    }
    free(line);
  }
  return out;
}

/* Computes some columns of the judged rows. Only for dW of 2:4 weights the line of a column differs by
 * row. */
int32_t bs_kernel_data_refer_product(bs_kernel_data *d, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int dw = !bs_kernel_has_weight(p);
  int64_t all_rows, all_cols;
  bs_kernel_y_size(p, &all_rows, &all_cols);
  const int64_t rows = dw && all_rows > JUDGED ? JUDGED : all_rows,
                cols = all_cols < JUDGED ? all_cols : JUDGED,
                terms = dw                   ? p->B
                        : bs_kernel_is_dx(p) ? p->N
                                             : bs_kernel_w_cols(p);
  double energy = 0.0, variance = 0.0, *second = NULL, *first = first_lines(d, rows, all_rows, terms, err);
  int32_t rc = first != NULL ? bs_kernel_data_room(d, rows * cols, 1, err) : BS_NO_MEMORY;
  d->slices = rows;
  for (int64_t at = 0; rc == BS_OK && at < rows * cols; at++, d->n++) {
    const int64_t i = at % rows, r = spread(i, rows, all_rows), c = spread(at / rows, cols, all_cols);
    if (i == 0 || (dw && d->kept != NULL)) {
      free(second);
      second = second_line(d, r, c, err);
      if (second == NULL) rc = BS_NO_MEMORY;
    }
    d->at[at] = r * all_cols + c;
    d->count[at] = 1;
    d->slice[at] = i;
    if (rc == BS_OK) refer_output(d, first + i * terms, second, terms, &energy, &variance);
  }
  d->predicted = energy > 0.0 ? sqrt(variance / energy) : 0.0;
  if (energy > 0.0) bs_tail_divide(&d->tail, sqrt(energy / (double)d->n));
  free(second);
  free(first);
  return rc;
}
