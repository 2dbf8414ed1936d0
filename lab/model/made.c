/* SPDX-License-Identifier: MIT
 * made.c - see made.h. */
#include "lab/model/made.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"

enum { MOST_CONSTANTS = 64, SMALL_CONSTANT = 4 };

typedef struct made {
  uint64_t seed, count, row; /* row: of the last dimension */
  const double *constants;   /* sizes of the model's own, above 0 */
  uint32_t n_constants;
} made;

static double uniform(const made *m, uint32_t stream, uint64_t i) {
  float u;
  bs_rng_uniform(m->seed, stream, i, 1, &u);
  return (double)u;
}

static double normal(const made *m, uint64_t i) {
  float z;
  bs_rng_normal(m->seed, 0, i, 1, &z);
  return (double)z;
}

static double sign_of(const made *m, uint64_t i) {
  return uniform(m, 1, i) < 0.5 ? -1 : 1;
}

/* ---- kinds: element i ------------------------------------------------------------------------- */

static double ordinary(const made *m, uint64_t i) {
  return normal(m, i);
}

/* Sizes from 1e-3 to 1e3, and zeros of both signs. */
static double all_sizes(const made *m, uint64_t i) {
  if (i % 17 == 3) return 0;
  if (i % 19 == 5) return -0.0;
  return sign_of(m, i) * pow(10, 6 * uniform(m, 2, i) - 3);
}

static double large(const made *m, uint64_t i) {
  return 2e4 * uniform(m, 2, i) - 1e4;
}

static double small(const made *m, uint64_t i) {
  return 1e-8 * normal(m, i);
}

/* Each row gets a different size. */
static double sized_row(const made *m, uint64_t i, uint64_t first) {
  static const double sizes[] = {1e-8, 30, 1e-4, 1e30, 1, 1e4, 0, 1e-2};
  return sizes[(i / m->row + first) % (sizeof sizes / sizeof sizes[0])] * normal(m, i);
}

static double rows(const made *m, uint64_t i) {
  return sized_row(m, i, 0);
}

static double other_rows(const made *m, uint64_t i) {
  return sized_row(m, i, 3);
}

static double near_constants(const made *m, uint64_t i) {
  const double c = m->constants[(uint32_t)(uniform(m, 3, i / m->row) * (m->n_constants - 0.001))];
  return sign_of(m, i) * c * 3 * uniform(m, 2, i);
}

/* One in each other row. */
static double with_nan(const made *m, uint64_t i) {
  return i / m->row % 2 == 0 && i % m->row == i / m->row % m->row ? NAN : normal(m, i);
}

/* One of either sign in a row, a row of them, rows without. */
static double with_infinities(const made *m, uint64_t i) {
  const uint64_t row = i / m->row;
  if (row % 4 == 3) return -INFINITY;
  return row % 4 < 2 && i % m->row == row % m->row ? (row % 4 == 0 ? INFINITY : -INFINITY) : normal(m, i);
}

/* of_one: one input has such numbers, the others ordinary ones: infinities in all would make all outputs
 * NaN. */
static const struct {
  const char *name;
  double (*element)(const made *m, uint64_t i);
  int of_constants, of_one;
} kinds[] = {{"ordinary numbers", ordinary, 0, 0},
             {"1e-3 to 1e3 and zeros", all_sizes, 0, 0},
             {"up to 1e4", large, 0, 0},
             {"up to 1e-8", small, 0, 0},
             {"rows of 0, 1e-8 to 1e30", rows, 0, 0},
             {"other rows of 0, 1e-8 to 1e30", other_rows, 0, 0},
             {"near the model's constants", near_constants, 1, 0},
             {"NaN in rows", with_nan, 0, 1},
             {"infinities in rows", with_infinities, 0, 1}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- the model's constants ---------------------------------------------------------------------- */

static void add_constant(double value, double *list, uint32_t *n) {
  const double size = fabs(value);
  if (!(size > 1e-12 && size < 1e12) || size == 1 || *n == MOST_CONSTANTS) return;
  for (uint32_t i = 0; i < *n; i++)
    if (list[i] == size) return;
  list[(*n)++] = size;
}

static void add_tensor(uint32_t dtype, uint64_t bytes, const void *data, double *list, uint32_t *n) {
  if (!bs_dtype_is_float(dtype) || data == NULL) return;
  const uint64_t count = bytes / BS_DTYPE_BYTES(dtype);
  for (uint64_t i = 0; i < count && count <= SMALL_CONSTANT; i++) {
    unsigned char one[8];
    memcpy(one, (const unsigned char *)data + i * BS_DTYPE_BYTES(dtype), BS_DTYPE_BYTES(dtype));
    add_constant(bs_load_f64(dtype, one, 0), list, n);
  }
}

static uint32_t find_constants(const bs_graph *g, double list[MOST_CONSTANTS]) {
  const gmodel *m = g->model;
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n_values; i++)
    if (m->values[i].kind == GMODEL_CONSTANT && m->values[i].quant == NULL)
      add_tensor(m->values[i].dtype, m->values[i].bytes, m->values[i].data, list, &n);
  for (uint32_t i = 0; i < m->n_nodes; i++)
    for (uint32_t k = 0; k < m->nodes[i].n_attr; k++) {
      const bs_attr *a = &m->nodes[i].attrs[k];
      uint64_t bytes = 0;
      if (a->type == BS_ATTR_FLOAT) add_constant(a->f, list, &n);
      if (a->type == BS_ATTR_TENSOR &&
          gmodel_shape_bytes(a->tensor->dtype, a->tensor->rank, a->tensor->dims, &bytes))
        add_tensor(a->tensor->dtype, bytes, a->data, list, &n);
    }
  return n;
}

/* Inputs of floats in their order; at most MOST_ONES. */
enum { MOST_ONES = 4 };
static uint32_t float_ports(const bs_graph *g, uint32_t ports[MOST_ONES]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->model->n_inputs && n < MOST_ONES; i++)
    if (bs_dtype_is_float(g->model->values[g->model->inputs[i].value].dtype)) ports[n++] = i;
  return n;
}

uint32_t bs_made_list(const bs_graph *g, bs_made *out, uint32_t size) {
  double list[MOST_CONSTANTS];
  uint32_t ports[MOST_ONES], n = 0;
  const uint32_t n_ports = float_ports(g, ports), n_constants = find_constants(g, list);
  for (uint32_t k = 0; k < N_KINDS; k++) {
    if (kinds[k].of_constants && n_constants == 0) continue;
    for (uint32_t p = 0; p < (kinds[k].of_one ? n_ports : 1u) && n < size; p++) {
      bs_made *m = &out[n++];
      *m = (bs_made){.kind = k, .port = kinds[k].of_one ? ports[p] : UINT32_MAX};
      const char *of = kinds[k].of_one ? g->model->inputs[ports[p]].name : "";
      snprintf(m->name, sizeof m->name, "made: %s%s%.40s", kinds[k].name, of[0] != '\0' ? " of " : "", of);
    }
  }
  return n;
}

/* ---- ports -------------------------------------------------------------------------------------- */

static double within(uint32_t dtype, double v) {
  const double most = dtype == BS_F16 ? 60000 : 3e38;
  return isfinite(v) && dtype != BS_F64 ? fmin(fmax(v, -most), most) : v;
}

static void fill_whole(const made *m, const bs_tensor_desc *d, const void *given, void *out) {
  if (given != NULL) {
    memcpy(out, given, m->count * BS_DTYPE_BYTES(d->dtype));
    return;
  }
  for (uint64_t i = 0; i < m->count; i++)
    bs_store_f64(d->dtype, out, (int64_t)i, uniform(m, 4, i) < 0.5 ? 0 : 1);
}

void bs_made_fill(const bs_made *of, const bs_graph *g, uint32_t seed, uint32_t port, const bs_tensor_desc *d,
                  const void *given, void *out) {
  double constants[MOST_CONSTANTS];
  const uint32_t kind = of->port == UINT32_MAX || of->port == port ? of->kind : 0;
  made m = {.seed = ((uint64_t)seed << 32) + 1000u * kind + port + 1u,
            .count = 1,
            .row = 1,
            .constants = constants};
  for (uint32_t i = 0; i < d->rank; i++) m.count *= (uint64_t)d->dims[i];
  if (d->rank > 0 && d->dims[d->rank - 1] > 0) m.row = (uint64_t)d->dims[d->rank - 1];
  if (kinds[kind].of_constants) m.n_constants = find_constants(g, constants);
  if (!bs_dtype_is_float(d->dtype)) {
    fill_whole(&m, d, given, out);
    return;
  }
  for (uint64_t i = 0; i < m.count; i++)
    bs_store_f64(d->dtype, out, (int64_t)i, within(d->dtype, kinds[kind].element(&m, i)));
}
