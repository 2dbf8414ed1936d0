/* SPDX-License-Identifier: MIT
 * op_judge.c - outputs against fp64: the reference of the gates (lab/gate/reference.h) for every product, the
 * correctly rounded value elsewhere. The bound comes from the accumulation class of the answer, the number of
 * terms and their sizes (docs/gates.md, T3); the output may lie wherever a value within the bound rounds to.
 */
#include <math.h>

#include "kit/graph.h"
#include "lab/activation.h"
#include "lab/gate/reference.h"

static int is(const kit_data *d, const char *op) {
  return kit_op_is(d->op, op);
}

int kit_wide(const kit_data *d) {
  const kit_shape *s = &d->shape;
  if (s->accumulate != BS_ACC_DEFAULT) return s->accumulate == BS_ACC_F64;
  if (kit_graph_find(d->op) != NULL) { /* of a shape's dtypes the query may have left some out */
    int wide = 0;
    for (uint32_t i = 0; i < d->query.nargs; i++)
      wide |= d->query.args[i] != NULL && d->query.args[i]->dtype == BS_F64;
    return wide;
  }
  return s->x == BS_F64 || s->w == BS_F64 || s->y == BS_F64 || s->bias == BS_F64 || s->residual == BS_F64;
}

static double roundoff(const kit_data *d, uint32_t tolerance) {
  if (!bs_dtype_is_float(d->shape.x)) return 0.0;
  switch (tolerance) {
    case BS_TOL_ACC_F64:
      return 0x1p-53;
    case BS_TOL_ACC_LOW:
      return 0x1p-11;
    case BS_TOL_EXACT:
      return kit_wide(d) ? 0x1p-53 : 0x1p-24;
    case BS_TOL_ACC_F32:
      return 0x1p-24;
    default:
      kit_fail("%s: the answer's tolerance class %u is not one of enum bs_tolerance", kit_data_text(d),
               tolerance);
      return 0.0;
  }
}

int kit_tolerance_fits(const kit_data *d, uint32_t tolerance) {
  if (kit_graph_find(d->op) != NULL)
    return !kit_wide(d) || tolerance == BS_TOL_ACC_F64 || tolerance == BS_TOL_EXACT;
  if (kit_is_scaled(d->op)) return d->shape.accumulate != BS_ACC_F32 || tolerance != BS_TOL_ACC_LOW;
  if (strncmp(d->op, "matmul", 6) != 0 || !bs_dtype_is_float(d->shape.x)) return 1;
  if (kit_wide(d)) return tolerance == BS_TOL_ACC_F64 || tolerance == BS_TOL_EXACT;
  return d->shape.accumulate != BS_ACC_F32 || tolerance != BS_TOL_ACC_LOW;
}

double kit_slack(const kit_data *d, uint32_t tolerance, int64_t terms, double magnitude) {
  const double u = roundoff(d, tolerance), n = (double)terms;
  double c = 4 * sqrt(n) + 2 < n + 2 ? 4 * sqrt(n) + 2 : n + 2;
  if (u < 0x1p-50) c *= 2;                                        /* the oracle rounds as much itself */
  const double smallest = u < 0x1p-50 ? 2 * 0x1p-1074 : 0x1p-149; /* what a product may lose below normals */
  return u > 0 ? c * u * magnitude + n * smallest : 0.0;
}

int kit_within(uint32_t dtype, double got, double exact, double slack) {
  unsigned char low[8] = {0}, high[8] = {0};
  if (isnan(exact)) return isnan(got);
  if (got >= exact - slack && got <= exact + slack) return 1; /* rounding keeps the order of numbers */
  bs_store_f64(dtype, low, 0, exact - slack);
  bs_store_f64(dtype, high, 0, exact + slack);
  return got >= bs_load_f64(dtype, low, 0) && got <= bs_load_f64(dtype, high, 0);
}

int kit_same_class(uint32_t dtype, double got, double exact) {
  if (isnan(exact)) return isnan(got);
  if (isinf(exact)) return dtype == BS_F8E4M3 || (isinf(got) && signbit(got) == signbit(exact));
  return isfinite(got);
}

/* ---- products ------------------------------------------------------------------------------- */

/* out[rows, features] = left [rows, terms] x right [features, terms], as doubles. */
typedef struct product {
  int64_t rows, features, terms;
  double *left, *right, *bias;
  bs_reference reference;
} product;

static void product_begin(product *p, int64_t rows, int64_t features, int64_t terms) {
  const size_t columns = (size_t)(terms > 0 ? terms : 1);
  memset(p, 0, sizeof *p);
  p->rows = rows;
  p->features = features;
  p->terms = terms;
  p->left = calloc((size_t)rows * columns + 1, sizeof(double));
  p->right = calloc((size_t)features * columns + 1, sizeof(double));
  kit_assert(p->left != NULL && p->right != NULL, "no memory for the oracle");
}

static void product_end(product *p, uint32_t activation) {
  const int64_t columns = p->terms > 0 ? p->terms : 1; /* of zeros, where there are none */
  bs_source x, w, b;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_source_from_memory(p->left, BS_F64, p->rows, columns, columns, &x, &err);
  if (rc == BS_OK) rc = bs_source_from_memory(p->right, BS_F64, p->features, columns, columns, &w, &err);
  if (rc == BS_OK && p->bias != NULL)
    rc = bs_source_from_memory(p->bias, BS_F64, 1, p->features, p->features, &b, &err);
  const bs_reference_request request = {.x = &x,
                                        .w = &w,
                                        .bias = p->bias != NULL ? &b : NULL,
                                        .world_size = 1,
                                        .threads = 1,
                                        .activation = activation};
  if (rc == BS_OK) rc = bs_reference_compute(&request, &p->reference, &err);
  kit_assert(rc == BS_OK, "the oracle fails: %s: %s", err.id, err.message);
  bs_source_release(&x);
  bs_source_release(&w);
  if (p->bias != NULL) bs_source_release(&b);
}

static void product_free(product *p) {
  bs_reference_free(&p->reference);
  free(p->left);
  free(p->right);
  free(p->bias);
}

double kit_wrapped(uint32_t dtype, double sum) {
  return dtype == BS_I32 ? (double)(int32_t)(uint32_t)(int64_t)sum : sum;
}

int kit_curved(uint32_t activation) {
  return activation > BS_ACT_RELU;
}

static double rounded_to(int wide, double value) {
  return wide ? value : (double)(float)value;
}

double kit_step(int wide, double sum, double a, double b) {
  return wide ? sum + a * b : (double)((float)sum + (float)a * (float)b);
}

/* docs/ops.md: products and sums one after the other, each rounded to the dtype that they are made in. */
static double in_order(const kit_data *d, const product *p, int64_t row, int64_t feature) {
  const double *x = p->left + row * p->terms, *w = p->right + feature * p->terms;
  const int wide = kit_wide(d);
  double sum = 0.0;
  for (int64_t i = 0; i < p->terms; i++) sum = kit_step(wide, sum, x[i], w[i]);
  return sum;
}

/* The activation as the C library of the kit has it in f64, which may be off by its last place. */
static double library_slack(uint32_t activation, double want) {
  return kit_curved(activation) ? 0x1p-50 * fabs(want) : 0.0;
}

/* Not of integers, which are exact anyway. */
int kit_in_steps(const kit_data *d, uint32_t tolerance, int special) {
  return tolerance == BS_TOL_EXACT && !special && bs_dtype_is_float(d->shape.x);
}

double kit_finish_steps(const kit_data *d, int64_t b, int64_t n, double sum, double *out_slack) {
  const int wide = kit_wide(d);
  if (d->shape.bias != 0) sum = rounded_to(wide, sum + kit_get(&d->a[1], 0, n));
  sum = rounded_to(wide, bs_activation_value(d->shape.activation, sum));
  *out_slack = library_slack(d->shape.activation, sum);
  return d->shape.residual != 0 ? rounded_to(wide, sum + kit_get(&d->a[2], b, n)) : sum;
}

double kit_updated(const kit_data *d, double weight, double sum) {
  return weight + rounded_to(kit_wide(d), kit_get(&d->a[2], 0, 0) * sum);
}

static int64_t x_column(const kit_data *d, int64_t i) {
  return d->shape.x_full ? kit_column(d, i) : i;
}

static void wrong_value(const kit_data *d, int64_t row, int64_t col, double got, double want, double slack) {
  kit_fail("%s: output [%lld,%lld] is %.9g, the fp64 oracle says %.9g, bound %.3g", kit_data_text(d),
           (long long)row, (long long)col, got, want, slack);
}

void kit_check_value(const kit_data *d, uint32_t dtype, int special, int64_t row, int64_t col, double got,
                     double want, double slack) {
  if (special ? !kit_same_class(dtype, got, want) : !kit_within(dtype, got, want, slack))
    wrong_value(d, row, col, got, want, slack);
}

static void judge_matmul(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  product p;
  product_begin(&p, s->B, s->N, d->kept);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t i = 0; i < d->kept; i++) p.left[b * d->kept + i] = kit_get(&d->a[0], b, x_column(d, i));
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t i = 0; i < d->kept; i++) p.right[n * d->kept + i] = kit_get(&d->w, n, kit_column(d, i));
  if (s->bias != 0) {
    p.bias = calloc((size_t)s->N + 1, sizeof(double));
    kit_assert(p.bias != NULL, "no memory for the oracle");
    for (int64_t n = 0; n < s->N; n++) p.bias[n] = kit_get(&d->a[1], 0, n);
  }
  product_end(&p, s->activation);
  const double u = roundoff(d, tolerance);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      const int64_t at = b * s->N + n;
      const double pre = p.reference.pre != NULL ? p.reference.pre[at] : p.reference.y[at];
      double want = p.reference.y[at];
      double slack = kit_slack(d, tolerance, d->kept, p.reference.magnitude[at]) + 2 * u * fabs(pre);
      if (!special && s->activation != BS_ACT_NONE)
        slack = slack * bs_activation_slope(s->activation, pre - slack, pre + slack) +
                bs_activation_error(s->activation, pre, u) + 2 * u * fabs(want);
      if (s->residual != 0) want += kit_get(&d->a[2], b, n);
      slack += 2 * u * (fabs(want) + slack);
      if (kit_in_steps(d, tolerance, special))
        want = kit_finish_steps(d, b, n, in_order(d, &p, b, n), &slack);
      want = kit_wrapped(s->y, want);
      kit_check_value(d, s->y, special, b, n, kit_get(&d->a[3], b, n), want, slack);
    }
  product_free(&p);
}

/* dX[b,k] = sum over n of dY[b,n] W[n,k] */
static void judge_dx(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  product p;
  product_begin(&p, s->B, d->kept, s->N);
  for (int64_t n = 0; n < s->N; n++) {
    for (int64_t b = 0; b < s->B; b++) p.left[b * s->N + n] = kit_get(&d->a[0], b, n);
    for (int64_t i = 0; i < d->kept; i++) p.right[i * s->N + n] = kit_get(&d->w, n, kit_column(d, i));
  }
  product_end(&p, BS_ACT_NONE);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t i = 0; i < d->kept; i++) {
      const int64_t at = b * d->kept + i;
      const int exact = kit_in_steps(d, tolerance, special);
      kit_check_value(d, s->x, special, b, x_column(d, i), kit_get(&d->a[1], b, x_column(d, i)),
                      exact ? in_order(d, &p, b, i) : kit_wrapped(s->x, p.reference.y[at]),
                      exact ? 0.0 : kit_slack(d, tolerance, s->N, p.reference.magnitude[at]));
    }
  product_free(&p);
}

/* dW[n,k] = sum over b of dY[b,n] X[b,k]; an update adds alpha times that to the weight. */
static void judge_dw(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  const double u = roundoff(d, tolerance);
  product p;
  product_begin(&p, s->N, d->kept, s->B);
  for (int64_t b = 0; b < s->B; b++) {
    for (int64_t n = 0; n < s->N; n++) p.left[n * s->B + b] = kit_get(&d->a[1], b, n);
    for (int64_t i = 0; i < d->kept; i++) p.right[i * s->B + b] = kit_get(&d->a[0], b, x_column(d, i));
  }
  product_end(&p, BS_ACT_NONE);
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t i = 0; i < d->kept; i++) {
      const int64_t at = n * d->kept + i;
      double want = p.reference.y[at],
             slack = kit_slack(d, tolerance, s->B, p.reference.magnitude[at]) + 2 * u * fabs(want);
      if (d->out >= 0) {
        const int exact = kit_in_steps(d, tolerance, special);
        want = exact ? in_order(d, &p, n, i) : kit_wrapped(s->w, want);
        kit_check_value(d, s->w, special, n, i, kit_get(&d->a[2], n, i), want, exact ? 0.0 : slack);
        continue;
      }
      const double alpha = kit_get(&d->a[2], 0, 0), weight = kit_get(&d->w, n, kit_column(d, i));
      slack = fabs(alpha) * slack + 2 * u * fabs(alpha * want);
      want = weight + alpha * want;
      slack += 2 * u * (fabs(want) + slack);
      if (kit_in_steps(d, tolerance, special))
        want = kit_updated(d, weight, in_order(d, &p, n, i)), slack = 0;
      kit_check_value(d, s->w, special, n, i, d->after[at], want, slack);
    }
  product_free(&p);
}

/* ---- ops of one element --------------------------------------------------------------------- */

static void judge_columns(const kit_data *d) {
  const int gather = is(d, "gather_columns");
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t i = 0; i < d->kept; i++) {
      const int64_t k = kit_column(d, i);
      const double want = kit_get(&d->a[0], b, gather ? k : i), got = kit_get(&d->a[1], b, gather ? i : k);
      if (!(got == want || (isnan(got) && isnan(want)))) wrong_value(d, b, gather ? i : k, got, want, 0);
    }
}

/* The sum of tree_sum's blocks at one element, each addition rounded as docs/ops.md says; integers modulo
 * 2^32 and 2^64 are small here. */
static double tree_value(const kit_data *d, int64_t b, int64_t n) {
  const int wide = d->shape.x == BS_F64 || d->shape.y == BS_F64 || !bs_dtype_is_float(d->shape.x);
  double v[8] = {0};
  for (int64_t i = 0; i < kit_blocks(d); i++) v[i] = kit_get(&d->a[0], b, kit_block(d, i) * d->shape.N + n);
  for (int64_t apart = 1; apart < kit_blocks(d); apart *= 2)
    for (int64_t i = 0; i < kit_blocks(d); i += 2 * apart) {
      v[i] += v[i + apart];
      if (!wide) v[i] = (double)(float)v[i];
    }
  return v[0];
}

static void judge_elements(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  const int curved = kit_curved(s->activation);
  const int wide = s->x == BS_F64 || s->y == BS_F64, exact = kit_in_steps(d, tolerance, special);
  const double u = wide ? 0x1p-53 : 0x1p-24;
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      const double in = is(d, "tree_sum") ? tree_value(d, b, n) : kit_get(&d->a[0], b, n);
      double want = is(d, "convert") ? in : bs_activation_value(s->activation, in);
      if (exact && curved) want = rounded_to(wide, want);
      if (is(d, "tree_sum")) want = kit_wrapped(s->y, want);
      const double slack = exact ? library_slack(s->activation, want)
                           : curved && !special
                               ? bs_activation_error(s->activation, in, u) + 2 * u * fabs(want)
                               : 0.0;
      kit_check_value(d, s->y, special, b, n, kit_get(&d->a[1], b, n), want, slack);
    }
}

/* Checks elements of the output that the op must not write: columns outside the partition. */
static void judge_untouched(const kit_data *d) {
  const kit_shape *s = &d->shape;
  const int beside = is(d, "scatter_columns") || (is(d, "matmul_dx") && s->x_full && d->part != NULL);
  if (!beside) return;
  const kit_tensor *out = &d->a[1];
  const uint64_t size = BS_DTYPE_BYTES(out->t.dtype);
  int64_t next = 0;
  for (int64_t k = 0; k < s->K; k++) {
    if (next < d->kept && kit_column(d, next) == k) {
      next++;
      continue;
    }
    for (int64_t b = 0; b < s->B; b++) {
      const uint64_t at = out->lead + (uint64_t)(b * out->t.strides[0] + k * out->t.strides[1]) * size;
      kit_assert(memcmp(out->block + at, out->before + at, size) == 0,
                 "%s: output column %lld is written, it is not of the partition", kit_data_text(d),
                 (long long)k);
    }
  }
}

/* Is argument i read alone? */
static int is_input(const kit_data *d, uint32_t i) {
  if (kit_graph_find(d->op) != NULL) return (d->outs >> i & 1u) == 0;
  return (int32_t)i != d->out && (int32_t)i != d->second &&
         !(kit_is_step(d->op) && i >= 1 && i + 1 < d->nargs);
}

void kit_data_judge_beside(const kit_data *d) {
  const char *text = kit_data_text(d);
  for (uint32_t i = 0; i < d->nargs; i++) kit_check_around(&d->a[i], text, is_input(d, i));
  if (kit_graph_find(d->op) == NULL) judge_untouched(d);
}

void kit_data_judge(const kit_data *d, uint32_t tolerance, int special) {
  kit_data_judge_beside(d);
  if (kit_graph_find(d->op) != NULL)
    kit_graph_find(d->op)->judge(d, tolerance, special);
  else if (kit_is_step(d->op))
    kit_step_judge(d, tolerance, special);
  else if (d->q != NULL)
    kit_q_judge(d, tolerance, special);
  else if (d->groups != NULL)
    kit_judge24(d, tolerance, special);
  else if (kit_is_quant(d->op))
    kit_quant_judge(d, tolerance, special);
  else if (kit_is_loss(d->op))
    kit_loss_judge(d, special);
  else if (is(d, "activate_dx"))
    kit_slope_judge(d, special);
  else if (is(d, "matmul"))
    judge_matmul(d, tolerance, special);
  else if (is(d, "matmul_dx"))
    judge_dx(d, tolerance, special);
  else if (is(d, "matmul_dw") || is(d, "matmul_update"))
    judge_dw(d, tolerance, special);
  else if (is(d, "gather_columns") || is(d, "scatter_columns"))
    judge_columns(d);
  else
    judge_elements(d, tolerance, special);
}
