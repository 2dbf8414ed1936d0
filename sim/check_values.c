/* SPDX-License-Identifier: MIT
 * check_values.c - levels V0 (exact sums in real buffers), V1 and V3 (sampled columns), V2 (sets) and V6
 * (rounding). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "sim/check.h"
#include "sim/column.h"
#include "sim/values.h"

/* ---- V0 --------------------------------------------------------------------------------------- */

static const struct {
  uint32_t dtype;
  const char *name;
  int wide; /* sums of many hundreds are exact */
} dtypes[] = {{BS_F32, "f32", 1}, {BS_F64, "f64", 1},       {BS_I64, "i64", 1},
              {BS_I32, "i32", 1}, {BS_BF16, "bf16", 0},     {BS_F16, "f16", 0},
              {BS_I8, "i8", 0},   {BS_F8E4M3, "f8e4m3", 0}, {BS_F8E5M2, "f8e5m2", 0}};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], FEW = 6 };

/* Whole numbers whose sums are exact in any order: of a narrow dtype at most FEW ranks give 1 or -1. */
static double exact_value(const bs_coll_shape *shape, int wide, uint32_t rank, uint64_t index) {
  const uint32_t p = shape->world_size;
  const uint64_t mixed = sim_mix(index * p + rank);
  if (wide) return (double)(mixed % 2001) - 1000;
  const uint32_t turn = (uint32_t)((rank + p - index * 5 % p) % p);
  return turn >= FEW ? 0 : mixed % 2 == 0 ? 1 : -1;
}

static double exact_sum(const bs_coll_shape *shape, int wide, uint32_t rank, uint64_t index) {
  uint32_t from = 0;
  uint64_t in = 0;
  double sum = 0;
  if (!sim_source_of(shape, rank, index, &from, &in)) return exact_value(shape, wide, from, in);
  for (uint32_t r = 0; r < shape->world_size; ++r) sum += exact_value(shape, wide, r, in);
  return sum;
}

static int32_t judge_typed(const sim_case *c, sim_values *v, int d, int in_place, const double *sums,
                           bs_error *err) {
  for (uint32_t rank = 0; rank < c->shape->world_size; ++rank) {
    const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_OUT);
    const int32_t rc = sim_case_stop(c, err);
    if (rc != BS_OK) return rc;
    for (uint64_t i = 0; i < n; ++i) {
      const double got = bs_load_f64(dtypes[d].dtype, sim_values_at(v, rank, BS_BUFFER_OUT, i), 0);
      const double want = sums != NULL ? sums[i] : exact_sum(c->shape, dtypes[d].wide, rank, i);
      if (got == want) continue;
      bs_error_set(err, BS_NUMERIC, "BS-CCL-VALUE", "%s%s: rank %u element %llu of OUT is %g, not %g",
                   dtypes[d].name, in_place ? " in place" : "", rank, (unsigned long long)i, got, want);
      sim_case_blame(c, rank, i, err);
      return BS_NUMERIC;
    }
  }
  return BS_OK;
}

static int32_t run_typed(const sim_case *c, int d, int in_place, const double *sums, bs_error *err) {
  sim_values *v = NULL;
  int32_t rc = sim_values_new(c->request->algorithm, c->request->state, c->shape, sim_typed(dtypes[d].dtype),
                              in_place, &v, err);
  if (rc != BS_OK) return rc;
  for (uint32_t rank = 0; rc == BS_OK && rank < c->shape->world_size; ++rank) {
    const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_IN);
    rc = sim_case_stop(c, err);
    for (uint64_t i = 0; rc == BS_OK && i < n; ++i)
      bs_store_f64(dtypes[d].dtype, sim_values_at(v, rank, BS_BUFFER_IN, i), 0,
                   exact_value(c->shape, dtypes[d].wide, rank, i));
  }
  if (rc == BS_OK) rc = sim_case_run(c, sim_values_data(v), err);
  if (rc == BS_OK) rc = sim_values_canaries(v, err);
  if (rc == BS_OK) rc = judge_typed(c, v, d, in_place, sums, err);
  sim_values_free(v);
  return rc;
}

static int may_be_in_place(uint32_t kind) {
  return kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_BROADCAST || kind == BS_COLL_ALL_GATHER;
}

/* 1: dtype d is the first one with elements of its size. */
static int first_of_size(int d) {
  for (int k = 0; k < d; ++k)
    if (BS_DTYPE_BYTES(dtypes[k].dtype) == BS_DTYPE_BYTES(dtypes[d].dtype)) return 0;
  return 1;
}

/* Checks f32 always, out of place and in place, and each size of elements that has a different schedule. The
 * other dtypes are checked at one size a world, or at all of them. */
int32_t sim_check_values(const sim_case *c, bs_error *err) {
  bs_coll_shape shape = *c->shape;
  const sim_case typed = {c->request, &shape, c->row};
  const int every = shape.count == shape.world_size + 1u || (c->request->full && shape.count < 4096);
  const uint64_t print = sim_case_print(c, (uint32_t)shape.element_bytes);
  double *sums[2] = {NULL, NULL};
  int32_t rc = BS_OK;
  for (int wide = 0; wide < 2 && shape.kind == BS_COLL_ALL_REDUCE; ++wide) {
    sums[wide] = malloc((size_t)(shape.count + 1) * sizeof *sums[wide]);
    if (sums[wide] == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for sums");
    for (uint64_t i = 0; rc == BS_OK && i < shape.count; ++i) sums[wide][i] = exact_sum(&shape, wide, 0, i);
  }
  for (int d = 0; rc == BS_OK && d < N_DTYPES; ++d) {
    shape.element_bytes = BS_DTYPE_BYTES(dtypes[d].dtype);
    const int own = d == 0 || (first_of_size(d) && sim_case_print(c, (uint32_t)shape.element_bytes) != print);
    if (!own && !every) continue;
    rc = run_typed(&typed, d, 0, sums[dtypes[d].wide], err);
    if (rc == BS_OK && may_be_in_place(shape.kind) && (own || c->request->full))
      rc = run_typed(&typed, d, 1, sums[dtypes[d].wide], err);
  }
  free(sums[0]);
  free(sums[1]);
  return rc;
}

/* ---- V1, V3 ----------------------------------------------------------------------------------- */

int32_t sim_check_columns(const sim_case *c, bs_error *err) {
  sim_columns *columns = NULL;
  const uint64_t seed = sim_mix(c->shape->world_size ^ sim_mix(c->shape->count));
  int32_t rc = sim_columns_new(c->shape, c->shape->count > 4096 ? 8 : 3, seed, &columns, err);
  if (rc == BS_OK) rc = sim_case_run(c, sim_columns_data(columns), err);
  if (rc == BS_OK) rc = sim_columns_check(columns, err);
  if (rc == BS_OK && c->shape->kind == BS_COLL_ALL_REDUCE &&
      (c->request->algorithm->flags & BS_ALGORITHM_SAME_ORDER) != 0)
    rc = sim_columns_same_order(columns, err);
  sim_columns_free(columns);
  return rc;
}

/* ---- V2 --------------------------------------------------------------------------------------- */

/* An element is the number of its place in IN and a set of ranks. */
static int32_t add_sets(const sim_element *self, void *dst, const void *src, uint64_t count, bs_error *err) {
  uint64_t *to = dst;
  const uint64_t *from = src;
  for (uint64_t i = 0; i < count; ++i, to += self->words, from += self->words) {
    if (to[0] != from[0])
      return bs_error_set(err, BS_NUMERIC, "BS-CCL-SET", "element %llu is added to element %llu",
                          (unsigned long long)from[0], (unsigned long long)to[0]);
    for (uint32_t w = 1; w < self->words; ++w) {
      if ((to[w] & from[w]) != 0)
        return bs_error_set(err, BS_NUMERIC, "BS-CCL-SET", "element %llu: a contribution is added twice",
                            (unsigned long long)to[0]);
      to[w] |= from[w];
    }
  }
  return BS_OK;
}

/* Ranks 64 w to 64 w + 63 that are to be in an element. */
static uint64_t wanted(const bs_coll_shape *shape, uint32_t w, int all, uint32_t from) {
  const uint32_t left = shape->world_size - w * 64;
  if (!all) return from / 64 == w ? UINT64_C(1) << from % 64 : 0;
  return left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
}

static int32_t judge_set(const sim_case *c, sim_values *v, uint32_t words, uint32_t rank, uint64_t i,
                         bs_error *err) {
  const uint64_t *element = sim_values_at(v, rank, BS_BUFFER_OUT, i);
  uint32_t from = 0;
  uint64_t in = 0;
  const int all = sim_source_of(c->shape, rank, i, &from, &in);
  int right = element[0] == in;
  for (uint32_t w = 1; right && w < words; ++w) right = element[w] == wanted(c->shape, w - 1, all, from);
  if (right) return BS_OK;
  bs_error_set(err, BS_NUMERIC, "BS-CCL-SET",
               "rank %u element %llu of OUT does not hold the contribution of %s exactly once", rank,
               (unsigned long long)i, all ? "each rank" : "its source");
  sim_case_blame(c, rank, i, err);
  return BS_NUMERIC;
}

int32_t sim_check_sets(const sim_case *c, bs_error *err) {
  const uint32_t p = c->shape->world_size, words = 1 + (p + 63) / 64;
  const sim_element element = {.bytes = words * 8, .add = add_sets, .words = words};
  sim_values *v = NULL;
  int32_t rc = sim_values_new(c->request->algorithm, c->request->state, c->shape, element, 0, &v, err);
  for (uint32_t rank = 0; rc == BS_OK && rank < p; ++rank) {
    const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_IN);
    for (uint64_t i = 0; i < n; ++i) {
      uint64_t *set = sim_values_at(v, rank, BS_BUFFER_IN, i);
      memset(set, 0, words * sizeof *set);
      set[0] = i;
      set[1 + rank / 64] = UINT64_C(1) << rank % 64;
    }
  }
  if (rc == BS_OK) rc = sim_case_run(c, sim_values_data(v), err);
  for (uint32_t rank = 0; rc == BS_OK && rank < p; ++rank) {
    const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_OUT);
    rc = sim_case_stop(c, err);
    for (uint64_t i = 0; rc == BS_OK && i < n; ++i) rc = judge_set(c, v, words, rank, i, err);
  }
  sim_values_free(v);
  return rc;
}

/* ---- V6 --------------------------------------------------------------------------------------- */

/* Between -1 and 1, rounded to the dtype. */
static double rough_value(uint32_t dtype, uint32_t rank, uint64_t index) {
  double rounded = 0;
  bs_store_f64(dtype, &rounded, 0, (double)(sim_mix(sim_mix(rank) ^ index) >> 11) * 0x1p-52 - 1);
  return bs_load_f64(dtype, &rounded, 0);
}

/* p - 1 additions, each rounded by at most u of a partial sum, which is at most (1 + u)^k of the absolute
 * values; and by half of the smallest number. */
static double allowed(uint32_t dtype, uint32_t p, double absolute) {
  const double u = bs_dtype_unit_roundoff(dtype), smallest = dtype == BS_F8E4M3 ? 0x1p-9 : 0x1p-16;
  return absolute * (pow(1 + u, p - 1.0) - 1) + (p - 1.0) * smallest / 2;
}

static int32_t judge_rounding(const sim_case *c, sim_values *v, uint32_t dtype, const char *name,
                              double *out_max, double *out_rms, bs_error *err) {
  const uint32_t p = c->shape->world_size;
  double squares = 0, most = 0;
  uint64_t seen = 0;
  for (uint32_t rank = 0; rank<p; rank += p> 64 ? p - 1 : 1) { /* in big worlds the first and the last */
    const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_OUT);
    const int32_t rc = sim_case_stop(c, err);
    if (rc != BS_OK) return rc;
    for (uint64_t i = 0; i < n; ++i, ++seen) {
      uint32_t from = 0;
      uint64_t in = 0;
      double sum = 0, absolute = 0;
      sim_source_of(c->shape, rank, i, &from, &in);
      for (uint32_t r = 0; r < p; ++r) {
        const double x = rough_value(dtype, r, in);
        sum += x;
        absolute += fabs(x);
      }
      const double error = fabs(bs_load_f64(dtype, sim_values_at(v, rank, BS_BUFFER_OUT, i), 0) - sum);
      if (!(error <= allowed(dtype, p, absolute))) {
        bs_error_set(err, BS_NUMERIC, "BS-CCL-ROUND",
                     "%s: rank %u element %llu is off by %g, more than %u additions can cause (%g)", name,
                     rank, (unsigned long long)i, error, p - 1, allowed(dtype, p, absolute));
        sim_case_blame(c, rank, i, err);
        return BS_NUMERIC;
      }
      most = fmax(most, absolute > 0 ? error / absolute : 0);
      squares += absolute > 0 ? error / absolute * (error / absolute) : 0;
    }
  }
  *out_max = most;
  *out_rms = seen > 0 ? sqrt(squares / (double)seen) : 0;
  return BS_OK;
}

int32_t sim_check_rounding(const sim_case *c, bs_error *err) {
  static const struct {
    uint32_t dtype;
    const char *name;
  } rough[] = {{BS_BF16, "bf16"}, {BS_F16, "f16"}, {BS_F8E4M3, "f8e4m3"}, {BS_F8E5M2, "f8e5m2"}};
  bs_coll_shape shape = *c->shape;
  const sim_case typed = {c->request, &shape, c->row};
  int32_t rc = BS_OK;
  for (size_t d = 0; rc == BS_OK && d < sizeof rough / sizeof rough[0]; ++d) {
    sim_values *v = NULL;
    double most = 0, rms = 0;
    shape.element_bytes = BS_DTYPE_BYTES(rough[d].dtype);
    rc = sim_values_new(c->request->algorithm, c->request->state, &shape, sim_typed(rough[d].dtype), 0, &v,
                        err);
    for (uint32_t rank = 0; rc == BS_OK && rank < c->shape->world_size; ++rank) {
      const uint64_t n = sim_buffer_elements(c->shape, 0, rank, BS_BUFFER_IN);
      for (uint64_t i = 0; i < n; ++i)
        bs_store_f64(rough[d].dtype, sim_values_at(v, rank, BS_BUFFER_IN, i), 0,
                     rough_value(rough[d].dtype, rank, i));
    }
    if (rc == BS_OK) rc = sim_case_run(&typed, sim_values_data(v), err);
    if (rc == BS_OK) rc = judge_rounding(&typed, v, rough[d].dtype, rough[d].name, &most, &rms, err);
    if (rc == BS_OK && d == 0 && most > c->row->error_max) {
      c->row->error_max = most;
      c->row->error_rms = rms;
    }
    sim_values_free(v);
  }
  return rc;
}
