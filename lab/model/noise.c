/* SPDX-License-Identifier: MIT
 * noise.c - see noise.h. */
#include "lab/model/noise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/op/quant.h"
#include "formats/onnx_write.h"
#include "lab/model/noise_x.h"

enum { PIECE = 1024 }; /* random numbers at a time */

/* The group of an element, as the number of its scale. */
static int64_t group_of(const bs_grid *g, int64_t row, int64_t col) {
  if (g->form.struct_size != 0) {
    const int64_t n = g->turned ? col : row, k = g->turned ? row : col;
    return n * bs_quant_groups(&g->form) + k / g->form.group;
  }
  if (g->nbits) return col * ((g->weight->dims[0] + g->block - 1) / g->block) + row / g->block;
  if (g->axis < 0) return 0;
  if (g->block == 0) return g->axis == 0 ? row : col;
  return g->axis == 0 ? row / g->block * g->scales->dims[1] + col : row * g->scales->dims[1] + col / g->block;
}

static double zero_of(const bs_grid *g, int64_t group) {
  if (g->zeros == NULL) return g->zero;
  const bs_onnx_type *type = bs_onnx_type_of(g->zeros->type);
  if (!g->nbits || g->bits == 8 || type->dtype != BS_U8) return bs_grid_number(g->zeros, group);
  const int64_t groups = (g->weight->dims[0] + g->block - 1) / g->block, line = (groups + 1) / 2;
  const uint32_t byte = ((const uint8_t *)g->zeros->data)[group / groups * line + group % groups / 2];
  return (double)(group % groups % 2 != 0 ? byte >> 4 : byte & 15u);
}

/* The smallest and the largest number of a group. */
typedef struct range {
  double least, most;
} range;

/* The change of w by rounding to a grid over the range of its group. With lows or zeros the grid goes from
 * the smallest to the largest number, else from minus the largest magnitude to the largest magnitude. */
static double rounding_by_scheme(const bs_quant *form, const range *r, double w) {
  const double top = (double)((1 << form->bits) - 1), peak = fmax(-r->least, r->most);
  const int ranged = (form->flags & (BS_QUANT_LOWS | BS_QUANT_ZEROS)) != 0;
  const double scale = ranged ? (r->most - r->least) / top : peak / (form->bits == 8 ? 127.0 : (top + 1) / 2);
  if (scale == 0.0) return -w;
  if (ranged) return scale * nearbyint((w - r->least) / scale) + r->least - w;
  const double most = -r->least > r->most ? (top - 1) / 2 : (top + 1) / 2; /* the peak has the longer side */
  const double least = form->bits == 8 ? -127.0 : most - top;
  return scale * fmax(fmin(nearbyint(w / scale), form->bits == 8 ? 127.0 : most), least) - w;
}

static double rounding(const bs_grid *g, int64_t group, double w) {
  const double scale = bs_grid_number(g->scales, group), zero = zero_of(g, group);
  double q = scale == 0.0 ? zero : nearbyint(w / scale + zero);
  if (q < g->low) q = g->low;
  if (q > g->high) q = g->high;
  return scale * (q - zero) - w;
}

typedef struct noisy {
  const bs_grid *grid;
  uint64_t seed;
  uint32_t stream;
  char *name;
  double *half; /* of each group: half the width of the noise */
} noisy;

/* The ranges of the groups of a scheme, malloc'd; NULL: no memory, or the file has the grid. */
static range *ranges_of(const bs_grid *g, size_t groups) {
  range *ranges = g->form.struct_size != 0 ? calloc(groups + 1, sizeof *ranges) : NULL;
  for (int64_t e = 0; ranges != NULL && e < (int64_t)g->weight->count; e++) {
    range *r = &ranges[group_of(g, e / g->weight->dims[1], e % g->weight->dims[1])];
    const double v = bs_grid_number(g->weight, e);
    if (v < r->least) r->least = v;
    if (v > r->most) r->most = v;
  }
  return ranges;
}

static int32_t measure(noisy *n, bs_error *err) {
  const bs_onnx_tensor *w = n->grid->weight;
  const bs_quant *form = &n->grid->form;
  const int by_scheme = form->struct_size != 0;
  const size_t groups =
      by_scheme ? (size_t)(form->rows * bs_quant_groups(form)) : (size_t)n->grid->scales->count;
  range *ranges = ranges_of(n->grid, groups);
  uint64_t *counts = calloc(groups + 1, sizeof *counts);
  n->half = calloc(groups + 1, sizeof *n->half);
  if (counts == NULL || n->half == NULL || (by_scheme && ranges == NULL)) {
    free(counts);
    free(ranges);
    return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for %zu groups", groups);
  }
  int32_t rc = BS_OK;
  for (int64_t e = 0; rc == BS_OK && e < (int64_t)w->count; e++) {
    const int64_t group = group_of(n->grid, e / w->dims[1], e % w->dims[1]);
    if (group < 0 || group >= (int64_t)groups) {
      rc = bs_error_set(err, BS_INPUT, "BS-QUANT-SCALES", "%.*s has too few scales", BS_SPAN_PRINT(w->name));
      break;
    }
    const double r = by_scheme ? rounding_by_scheme(form, &ranges[group], bs_grid_number(w, e))
                               : rounding(n->grid, group, bs_grid_number(w, e));
    n->half[group] += r * r;
    counts[group]++;
  }
  for (size_t i = 0; i < groups; i++)
    if (counts[i] > 0) n->half[i] = sqrt(3.0 * n->half[i] / (double)counts[i]);
  free(counts);
  free(ranges);
  return rc;
}

static int32_t fill(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  noisy *n = ctx;
  const bs_onnx_tensor *w = n->grid->weight;
  const uint32_t dtype = bs_onnx_type_of(w->type)->dtype;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  if (offset == 0) {
    const int32_t rc = measure(n, err);
    if (rc != BS_OK) return rc;
  }
  float uniform[PIECE];
  for (uint64_t i = 0; i < bytes / size; i++) {
    const int64_t e = (int64_t)(offset / size + i);
    if (i % PIECE == 0) bs_rng_uniform(n->seed, n->stream, (uint64_t)e, PIECE, uniform);
    const double half = n->half[group_of(n->grid, e / w->dims[1], e % w->dims[1])];
    const float v = (float)(bs_grid_number(w, e) + half * (2.0 * (double)uniform[i % PIECE] - 1.0));
    bs_convert(dtype, (char *)out + i * size, BS_F32, &v, 1);
  }
  return BS_OK;
}

/* The weights with noise, in `tensors` and `of`. */
static int32_t add_weights(const bs_grids *grids, uint64_t seed, noisy *of, bs_onnx_new_tensor *tensors,
                           bs_span *dropped) {
  for (size_t i = 0; i < grids->n; i++) {
    const bs_onnx_tensor *w = grids->rows[i].weight;
    of[i] = (noisy){.grid = &grids->rows[i], .seed = seed, .stream = (uint32_t)i};
    of[i].name = strndup(w->name.data, w->name.size);
    if (of[i].name == NULL) return BS_NO_MEMORY;
    dropped[i] = w->name;
    tensors[i] = (bs_onnx_new_tensor){.name = of[i].name,
                                      .type = w->type,
                                      .rank = 2,
                                      .dims = {w->dims[0], w->dims[1]},
                                      .bytes = w->bytes,
                                      .ctx = &of[i],
                                      .fill = fill};
  }
  return BS_OK;
}

int32_t bs_grids_noisy_copy(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, const char *to,
                            bs_error *err) {
  bs_noise_x xs;
  int32_t rc = bs_noise_x_make(floats, grids, seed, &xs, err);
  const size_t n = rc == BS_OK ? grids->n : 0;
  noisy *of = calloc(n + 1, sizeof *of);
  bs_onnx_new_tensor *tensors = calloc(n + xs.n_tensors + 1, sizeof *tensors);
  bs_span *dropped = calloc(n + 1, sizeof *dropped);
  if (rc == BS_OK && (of == NULL || tensors == NULL || dropped == NULL ||
                      add_weights(grids, seed, of, tensors, dropped) != BS_OK))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for a noisy copy");
  for (size_t i = 0; rc == BS_OK && i < xs.n_tensors; i++) tensors[n + i] = xs.tensors[i];
  const bs_onnx_edits edits = {.dropped = dropped,
                               .n_dropped = n,
                               .tensors = tensors,
                               .n_tensors = n + xs.n_tensors,
                               .nodes = xs.nodes,
                               .n_nodes = xs.n_nodes,
                               .inputs = xs.inputs,
                               .n_inputs = xs.n_inputs};
  if (rc == BS_OK) rc = bs_onnx_write(floats, &edits, to, err);
  for (size_t i = 0; of != NULL && i < n; i++) {
    free(of[i].name);
    free(of[i].half);
  }
  free(of);
  free(tensors);
  free(dropped);
  bs_noise_x_free(&xs);
  return rc;
}
