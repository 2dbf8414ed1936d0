/* SPDX-License-Identifier: MIT
 *
 * map_wide.c - programs of f64 and i64, one element after the other. Speed is not their point: f32 programs
 * have isa/map.h. */
#include "../../common/expr_values.h"
#include "map.h"

/* b and c may be any values that are there: a step looks at those that it has. */
void cpu_map_wide(uint32_t compute, uint32_t op, void *out, const void *a, const void *b, const void *c,
                  int64_t n) {
  if (compute == BS_F64) {
    const double *x = a, *y = b, *z = c;
    double *v = out;
    for (int64_t i = 0; i < n; i++) v[i] = expr_step_f64(op, x[i], y[i], z[i]);
  } else {
    const int64_t *x = a, *y = b, *z = c;
    int64_t *v = out;
    for (int64_t i = 0; i < n; i++) v[i] = expr_step_i64(op, x[i], y[i], z[i]);
  }
}
