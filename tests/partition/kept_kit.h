/* SPDX-License-Identifier: MIT
 * kept_kit.h - what the tests of kept sets have in common. */
#ifndef BS_TESTS_PARTITION_KEPT_KIT_H
#define BS_TESTS_PARTITION_KEPT_KIT_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/partition/kept.h"
#include "core/partition/partition.h"
#include "tests/marks.h"

static inline bs_mask mask_named(const char *name) {
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_mask_parse(name, NULL, NULL, &mask, &err) == BS_OK, "%s: %s", name, err.message);
  return mask;
}

static inline const bs_kept *make(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *w,
                                  uint32_t half) {
  const bs_kept *kept = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_kept_make(mask, rows, cols, w, half, &kept, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_uint_eq(kept->struct_size, sizeof *kept);
  ck_assert_int_eq(kept->rows, rows);
  ck_assert_int_eq(kept->cols, cols);
  return kept;
}

static inline void read_all(const bs_kept *k, uint8_t *out) {
  const int64_t groups = (k->cols + 3) / 4;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(k->read(k->ctx, 0, k->rows, 0, groups, out, groups, &err) == BS_OK, "%s", err.message);
}

static inline void checked(const bs_kept *a, const bs_kept *b) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_kept_check(a, b, &err) == BS_OK, "%s: %s", err.id, err.message);
}

static inline bs_source source_of(const void *data, uint32_t dtype, int64_t rows, int64_t cols) {
  bs_source source;
  ck_assert_int_eq(bs_source_from_memory(data, dtype, rows, cols, cols, &source, NULL), BS_OK);
  return source;
}

/* The six patterns; bit j: column j. */
static const uint8_t six[6] = {0x3, 0x5, 0x9, 0x6, 0xA, 0xC};

/* The known matrix W. */
static const double K_W[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                 {-1, 0, 2, 1, 3, -2, 0, 4},
                                 {2, -3, 1, 0, 0, 1, -1, 2},
                                 {0, 5, -4, 2, 1, 1, 1, -6}};

#endif
