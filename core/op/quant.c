/* SPDX-License-Identifier: MIT
 * quant.c - see quant.h. */
#include "core/op/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "core/op/schema.h"

enum { GROUP_MIN = 16, GROUP_MAX = 256 };

int bs_op_takes_quant(const char *op) {
  return strcmp(op, "matmul_q") == 0 || strcmp(op, "take_q") == 0;
}

static int64_t parts(int64_t cols, int64_t size) {
  return size > 0 ? cols / size + (cols % size != 0) : 0;
}

int64_t bs_quant_groups(const bs_quant *q) {
  return parts(q->cols, q->group);
}

int64_t bs_quant_spans(const bs_quant *q) {
  return parts(q->cols, q->span);
}

uint64_t bs_quant_bytes(const bs_quant *q) {
  const uint64_t groups = (uint64_t)bs_quant_groups(q), spans = (uint64_t)bs_quant_spans(q);
  const int lows = (q->flags & BS_QUANT_LOWS) != 0, steps = (q->flags & BS_QUANT_STEPS) != 0;
  const uint64_t bits = bs_mul_sat((uint64_t)q->cols, q->bits);
  uint64_t row = bits / 8 + (bits % 8 != 0);
  row = bs_add_sat(row, bs_mul_sat(spans, 4u * (1u + (uint32_t)lows)));
  if ((q->flags & BS_QUANT_ZEROS) != 0) row = bs_add_sat(row, groups);
  if (steps) row = bs_add_sat(row, bs_mul_sat(groups, 1u + (uint32_t)lows));
  return bs_mul_sat(row, (uint64_t)q->rows);
}

int bs_quant_same_form(const bs_quant *a, const bs_quant *b) {
  return a->bits == b->bits && a->flags == b->flags && a->zero == b->zero && a->rows == b->rows &&
         a->cols == b->cols && a->group == b->group && a->span == b->span;
}

static int is_group(int64_t group) {
  return group >= GROUP_MIN && group <= GROUP_MAX && (group & (group - 1)) == 0;
}

int32_t bs_quant_check(const bs_quant *q, const char *op, bs_error *err) {
  const uint32_t known = BS_QUANT_ZEROS | BS_QUANT_LOWS | BS_QUANT_STEPS;
  if (q->struct_size < sizeof *q)
    return bs_op_refuse(err, "BS-OP-QUANT", op, "quant: struct_size %u, need %zu", q->struct_size, sizeof *q);
  if ((q->bits != 4 && q->bits != 6 && q->bits != 8) || (q->flags & ~known) != 0)
    return bs_op_refuse(err, "BS-OP-QUANT", op, "codes of %u bits, flags 0x%x: 4, 6 or 8 bits", q->bits,
                        q->flags);
  if (q->zero < 0 || q->zero >= 1 << q->bits)
    return bs_op_refuse(err, "BS-OP-QUANT", op, "zero %d of codes of %u bits", q->zero, q->bits);
  if (q->rows < 0 || q->cols < 0 || q->cols > (int64_t)UINT32_MAX)
    return bs_op_refuse(err, "BS-OP-QUANT", op, "a quantised matrix of [%lld,%lld]", (long long)q->rows,
                        (long long)q->cols);
  if (q->group != q->cols && !is_group(q->group))
    return bs_op_refuse(err, "BS-OP-QUANT", op,
                        "groups of %lld columns: a power of two from 16 to 256, or all %lld columns",
                        (long long)q->group, (long long)q->cols);
  const int steps = (q->flags & BS_QUANT_STEPS) != 0;
  if (steps ? !is_group(q->group) || !is_group(q->span) || q->span < q->group : q->span != q->group)
    return bs_op_refuse(
        err, "BS-OP-QUANT", op, "spans of %lld columns over groups of %lld%s", (long long)q->span,
        (long long)q->group,
        steps ? ": a power of two, at least the group, at most 256" : ": equal without steps");
  return BS_OK;
}

/* ---- names -------------------------------------------------------------------------------------- */

/* {name, bits, flags, zero, group, span}; group 0: one scale a row, -1: the name ends in the number. */
static const struct scheme {
  const char *name;
  uint32_t bits, flags;
  int32_t zero;
  int64_t group, span;
} schemes[] = {{"w8", 8, 0, 128, 0, 0},
               {"w8g", 8, 0, 128, -1, 0},
               {"w4g", 4, 0, 8, -1, 0},
               {"w4z", 4, BS_QUANT_ZEROS, 8, -1, 0},
               {"w4k", 4, BS_QUANT_LOWS | BS_QUANT_STEPS, 0, 32, 256},
               {"w6k", 6, BS_QUANT_STEPS, 32, 16, 256}};

/* The row of a name and its group; NULL: none. */
static const struct scheme *find(const char *name, int64_t *out_group) {
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
    const struct scheme *s = &schemes[i];
    const size_t size = strlen(s->name);
    *out_group = s->group;
    if (s->group >= 0 && strcmp(s->name, name) == 0) return s;
    if (s->group >= 0 || strncmp(s->name, name, size) != 0) continue;
    char *end = NULL;
    const long group = strtol(name + size, &end, 10);
    if (name[size] >= '1' && name[size] <= '9' && *end == '\0' && is_group(group)) {
      *out_group = group;
      return s;
    }
  }
  return NULL;
}

int32_t bs_quant_scheme(const char *name, int64_t rows, int64_t cols, bs_quant *out, bs_error *err) {
  int64_t group = 0;
  const struct scheme *s = find(name, &group);
  if (s == NULL) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-QUANT-SCHEME", "%.40s is no scheme of weights", name);
    bs_error_hint(err, "w8, w8g32, w4g32, w4g128, w4z32, w4k, w6k (groups of 16, 32, 64, 128 or 256)");
    return BS_INVALID_ARGUMENT;
  }
  *out = (bs_quant){.struct_size = (uint32_t)sizeof *out,
                    .bits = s->bits,
                    .flags = s->flags,
                    .zero = s->zero,
                    .rows = rows,
                    .cols = cols,
                    .group = group > 0 ? group : cols};
  out->span = s->span > 0 ? s->span : out->group;
  return BS_OK;
}

void bs_quant_text(const bs_quant *q, char out[BS_QUANT_TEXT]) {
  char group[24] = "row", span[24] = "";
  if (q->group != q->cols || (q->flags & BS_QUANT_STEPS) != 0)
    snprintf(group, sizeof group, "g%d", (int)q->group);
  if ((q->flags & BS_QUANT_STEPS) != 0) snprintf(span, sizeof span, "s%d", (int)q->span);
  snprintf(out, BS_QUANT_TEXT, "q%u.%s%s%s%s", q->bits, group, span, q->flags & BS_QUANT_ZEROS ? "z" : "",
           q->flags & BS_QUANT_LOWS ? "l" : "");
}
