/* SPDX-License-Identifier: MIT
 * data.c - the numbers of inputs and constants: usual ones, rows that are small, large or constant, and
 * extremes: zeros of both signs, NaN, infinities, 1e-40 to 1e38, what lies at the constants of the graph. */
#include "tests/graph/fuzz_passes/data.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"

/* Elements of one value: independent of choices behind its seed. */
typedef struct source {
  const spec *s;
  uint64_t seed, at;
} source;

static uint32_t bits(source *r) {
  uint32_t out;
  bs_rng_bits(r->seed, 0, r->at++, 1, &out);
  return out;
}

static double normal(source *r) {
  float out;
  bs_rng_normal(r->seed, 1, r->at++, 1, &out);
  return out;
}

static double extreme(source *r) {
  static const double list[] = {0.0,  -0.0, NAN,   INFINITY, -INFINITY, 1e-40, 1e-30, 1e-20, 1e-10, 1e-8,
                                1e-4, 30,   -30.0, 88,       100,       1e4,   7e4,   1e10,  1e20,  1e38};
  const uint32_t kind = bits(r) % 3, pick = bits(r);
  const double sign = bits(r) % 2 != 0 ? -1 : 1;
  if (kind == 0 || r->s->n_numbers == 0) return sign * list[pick % (sizeof list / sizeof *list)];
  if (kind == 1) return sign * pow(10, (double)(pick % 79) - 40) * (1 + bits(r) / 4294967296.0);
  const double c = r->s->numbers[pick % r->s->n_numbers];
  static const double around[] = {1, 1, 1.001, 0.999, 1.5, 2, 10};
  return sign * c * around[bits(r) % 7];
}

static double element_of_x(source *r, uint32_t kind, int64_t row) {
  source of_row = {r->s, r->seed ^ 0x55, (uint64_t)row * 64};
  switch (kind) {
    case 0:
      return normal(r);
    case 1:
      return (double)(bits(r) % 7) - 3;
    case 2:
      return 4 * normal(r);
    case 3:
      return 40 * normal(r);
    case 4: /* few extremes */
      return bits(r) % 12 == 0 ? extreme(r) : 3 * normal(r);
    case 5:
      return extreme(r);
    case 6:
      return 1e-8 * normal(r);
    case 7: /* constant rows, nearly */
      return normal(&of_row) * (bits(r) % 8 == 0 ? 1.0001 : 1);
    case 9: { /* rows of the size of a constant, or of its root */
      const double c = r->s->n_numbers > 0 ? fabs(r->s->numbers[bits(&of_row) % r->s->n_numbers]) : 1;
      return (bits(&of_row) % 2 == 0 ? c : sqrt(c)) * normal(r);
    }
    case 8: /* rows of sizes from 1e-12 to 1e12 */
      return pow(10, (double)(bits(&of_row) % 25) - 12) * normal(r);
    default:
      return 1e4 * normal(r);
  }
}

static double element_of_mask(source *r, uint32_t kind, int64_t row) {
  source of_row = {r->s, r->seed ^ 0x77, (uint64_t)row * 64};
  if (kind == 0) return 1;
  if (kind == 1) return bits(r) % 3 != 0;
  return bits(&of_row) % 3 == 0 ? 0 : bits(r) % 3 != 0; /* whole rows of nothing */
}

static double element(source *r, const value *v, uint32_t kind, int64_t row) {
  static const double lost[] = {-1e9, -INFINITY, -1, -3.4028234663852886e38, -1e4, -65504, 5};
  switch (v->role) {
    case ROLE_MASK:
      return element_of_mask(r, kind % 3, row);
    case ROLE_ADDED: {
      const double yes = element_of_mask(r, kind % 3, row);
      return yes != 0 ? 0 : lost[kind / 3 % 7];
    }
    case ROLE_CODE: /* ends often */
      return kind == 0 ? (double)(bits(r) % 2 * 255) - (v->dtype == BS_I8 ? 128 : 0)
                       : (double)(bits(r) % 256) - (v->dtype == BS_I8 ? 128 : 0);
    case ROLE_SCALE:
      return kind < 9 ? ldexp(1 + bits(r) / 4294967296.0, -8) : kind == 9 ? normal(r) : 0;
    case ROLE_ANGLE:
      return cos(3 * normal(r));
    case ROLE_ROW:
      return kind < 6 ? normal(r) : kind < 8 ? 1e6 * normal(r) : kind < 10 ? extreme(r) : 1;
    case ROLE_WEIGHT:
      return kind < 9 ? 0.5 * normal(r) : kind == 9 ? 20 * normal(r) : (double)(bits(r) % 3) - 1;
    case ROLE_VALUE: {
      const double x = element_of_x(r, kind, row);
      return isfinite(x) && fabs(x) > 1e30 ? copysign(1e30, x) : x;
    }
    default:
      return element_of_x(r, kind, row);
  }
}

static uint32_t kinds_of(uint32_t role) {
  return role == ROLE_ADDED ? 21 : role == ROLE_MASK ? 3 : role == ROLE_ANGLE ? 1 : 11;
}

static void fill(spec *s, value *v) {
  const int64_t n = spec_count(v), columns = v->rank > 0 ? v->dims[v->rank - 1] : 1;
  const uint32_t kind = draw(s, kinds_of(v->role));
  source r = {s, draw(s, 4096), 0};
  v->data = malloc(((size_t)n + 1u) * sizeof *v->data);
  if (v->data == NULL) {
    s->bad = 1;
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    unsigned char one[8];
    bs_store_f64(v->dtype, one, 0, element(&r, v, kind, i / columns));
    v->data[i] = bs_load_f64(v->dtype, one, 0);
  }
}

void fill_data(spec *s) {
  for (uint32_t i = 0; i < s->n_values && !s->bad; i++)
    if (s->values[i].kind != VALUE_NODE && s->values[i].data == NULL) fill(s, &s->values[i]);
}
