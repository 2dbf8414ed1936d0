/* SPDX-License-Identifier: MIT
 *
 * compile.c - the mask compiler of compile.h. A kept set with the same columns in every row is a
 * gather and needs no positions. Others need the 2:4 op; without that op they become a dense product with
 * zeros.
 */
#include "core/partition/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/kept.h"
#include "core/partition/partition.h"

#define LOOK_ROWS 4 /* at a time: a row of blocks of a transposable mask */

const char *bs_form_name(uint32_t form) {
  static const char *const names[] = {"dense", "run", "gather", "2:4"};
  return form < BS_FORM_COUNT_ ? names[form] : "?";
}

const char *bs_sparse_format_name(uint32_t format) {
  static const char *const names[] = {"16/8-bit 2:4", "fp32 1:2", "fp4 paired 4:8"};
  return format < BS_SPARSE_COUNT_ ? names[format] : "?";
}

/* Formats in which a group's pattern is legal. 1100 and 0011 keep both of two neighbours, the others one of
 * each. */
static uint32_t legal_as(uint8_t pattern) {
  const int pairs = pattern == 0x3 || pattern == 0xC;
  return 1u << BS_SPARSE_2OF4 | 1u << (pairs ? BS_SPARSE_PAIRS : BS_SPARSE_1OF2);
}

static void look_at(const uint8_t *bytes, const uint8_t *first, int64_t groups, bs_kept_facts *facts) {
  if (memcmp(bytes, first, (size_t)groups) != 0) facts->same_rows = 0;
  for (int64_t g = 0; g < groups; g++) facts->legal &= legal_as(bytes[g]);
}

int32_t bs_kept_look(const bs_kept *kept, bs_kept_facts *out, bs_error *err) {
  const int64_t groups = kept->cols / 4 + (kept->cols % 4 != 0);
  const uint32_t all = (1u << BS_SPARSE_COUNT_) - 1;
  *out = (bs_kept_facts){.same_rows = 1, .legal = all};
  if (groups == 0 || kept->rows == 0) return BS_OK;
  uint8_t *bytes = malloc((size_t)((LOOK_ROWS + 1) * groups)), *first = bytes;
  if (bytes == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY", "no memory to look at a mask");
  uint8_t *rows = bytes + groups;
  int32_t rc = kept->read(kept->ctx, 0, 1, 0, groups, first, groups, err);
  /* Two formats exclude each other in a group: once neither is legal and rows differ, all is known. */
  for (int64_t r = 0; rc == BS_OK && r < kept->rows; r += LOOK_ROWS) {
    if (!out->same_rows && out->legal == 1u << BS_SPARSE_2OF4) break;
    const int64_t n = kept->rows - r < LOOK_ROWS ? kept->rows - r : LOOK_ROWS;
    rc = kept->read(kept->ctx, r, n, 0, groups, rows, groups, err);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) look_at(rows + i * groups, first, groups, out);
    out->rows_read = r + n;
  }
  free(bytes);
  return rc;
}

static void decide(bs_compiled *c, uint32_t form, const char *why) {
  c->form = form;
  snprintf(c->why, sizeof c->why, "%s", why);
}

/* Masks of two halves. */
static int32_t compile_halves(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *weights,
                              uint32_t world, const char *no_op24, bs_compiled *c, bs_error *err) {
  const bs_kept *kept = NULL;
  /* A fixed pattern is that of its first row. */
  const int64_t look = mask->kind == BS_MASK_COMPLEMENT && rows > 1 ? 1 : rows;
  int32_t rc = bs_kept_make(mask, look, cols, weights, 0, &kept, err);
  if (rc == BS_OK) rc = bs_kept_look(kept, &c->facts, err);
  bs_kept_free(kept);
  if (rc != BS_OK) return rc;
  if (world == 1) {
    decide(c, BS_FORM_DENSE, "one rank has both halves, which are the whole matrix: one dense product");
  } else if (c->facts.same_rows) {
    decide(c, BS_FORM_GATHER, "every row keeps the same columns: a dense product over them, no positions");
  } else if (no_op24 == NULL) {
    decide(c, BS_FORM_SPARSE24, "rows keep different columns: only 2:4 values with positions skip the rest");
  } else {
    snprintf(c->why, sizeof c->why, "rows keep different columns and zeros must be multiplied: %.120s",
             no_op24);
    c->form = BS_FORM_DENSE;
  }
  return BS_OK;
}

int32_t bs_mask_compile(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *weights,
                        uint32_t world, const char *no_op24, bs_compiled *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  const int32_t rc = bs_mask_check(mask, err);
  if (rc != BS_OK) return rc;
  if (mask->kind == BS_MASK_COMPLEMENT || bs_mask_by_row(mask))
    return compile_halves(mask, rows, cols, weights, world, no_op24, out, err);
  if (world == 1)
    decide(out, BS_FORM_DENSE, "one rank has all columns: one dense product");
  else if (mask->kind == BS_MASK_CONTIGUOUS || mask->kind == BS_MASK_UNEVEN)
    decide(out, BS_FORM_RUN, "a run of columns, the same in every row: a dense product over X in place");
  else
    decide(out, BS_FORM_GATHER, "every row keeps the same columns: a dense product over them, no positions");
  return BS_OK;
}

int64_t bs_form_columns(uint32_t form, int64_t cols, int64_t kept) {
  if (form == BS_FORM_DENSE) return cols;
  return form == BS_FORM_SPARSE24 ? 2 * (cols / 4 + (cols % 4 != 0)) : kept;
}

uint64_t bs_form_bytes(uint32_t form, uint32_t dtype, int64_t rows, int64_t cols, int64_t kept) {
  const uint64_t values =
      (uint64_t)rows * (uint64_t)bs_form_columns(form, cols, kept) * BS_DTYPE_BYTES(dtype);
  const uint64_t groups = (uint64_t)rows * (uint64_t)(cols / 4 + (cols % 4 != 0));
  return values + (form == BS_FORM_SPARSE24 ? (groups + 1) / 2 : 0);
}
