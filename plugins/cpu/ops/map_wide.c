/* SPDX-License-Identifier: MIT
 *
 * map_wide.c - the steps of f64 and i64 programs (blockshock/expr_value.h), one element after the other.
 * Speed is not their point: f32 programs have isa/map.h. Frequent steps are in isa/whole.h. */
#include "blockshock/expr_value.h"
#include "map.h"

static inline __attribute__((always_inline)) void floats(const uint32_t op, double *v, const double *x,
                                                         const double *y, const double *z, int64_t n) {
  for (int64_t i = 0; i < n; i++) v[i] = bs_expr_value(op, x[i], y[i], z[i]);
}

static inline __attribute__((always_inline)) void integers(const uint32_t op, int64_t *v, const int64_t *x,
                                                           const int64_t *y, const int64_t *z, int64_t n) {
  for (int64_t i = 0; i < n; i++) v[i] = bs_expr_value_i64(op, x[i], y[i], z[i]);
}

/* b and c may be any values that are there: a step looks at those that it has. Frequent steps have loops of
 * their own. */
void cpu_map_wide(const cpu_kernels *kernels, uint32_t compute, uint32_t op, void *out, const void *a,
                  const void *b, const void *c, int64_t n) {
  if (compute == BS_F64) {
    if (op == BS_EXPR_ADD)
      kernels->f64_add(out, a, b, n);
    else if (op == BS_EXPR_SUB)
      kernels->f64_sub(out, a, b, n);
    else if (op == BS_EXPR_MUL)
      kernels->f64_mul(out, a, b, n);
    else
      floats(op, out, a, b, c, n);
  } else if (op == BS_EXPR_ADD) {
    kernels->i64_add(out, a, b, n);
  } else if (op == BS_EXPR_SUB) {
    kernels->i64_sub(out, a, b, n);
  } else if (op == BS_EXPR_MUL) {
    kernels->i64_mul(out, a, b, n);
  } else {
    integers(op, out, a, b, c, n);
  }
}
