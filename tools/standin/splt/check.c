/* SPDX-License-Identifier: MIT
 * check.c - what cuSPARSELt's documentation allows, of what the plugin uses. */
#include "splt.h"

uint32_t splt_bytes(int32_t type) {
  switch (type) {
    case SPLT_R_32F:
    case SPLT_R_32I:
      return 4;
    case SPLT_R_16F:
    case SPLT_R_16BF:
      return 2;
    case SPLT_R_8I:
    case SPLT_R_8F_E4M3:
    case SPLT_R_8F_E5M2:
      return 1;
    default:
      splt_die("type %d is none that products have", type);
  }
}

static int64_t lines(const splt_matrix *m) {
  return m->order == SPLT_ORDER_ROW ? m->rows : m->cols;
}
static int64_t along(const splt_matrix *m) {
  return m->order == SPLT_ORDER_ROW ? m->cols : m->rows;
}

uint64_t splt_span(const splt_matrix *m) {
  return (uint64_t)((lines(m) - 1) * m->ld + along(m)) * splt_bytes(m->type);
}

uint64_t splt_compressed(const splt_matrix *m) {
  const uint64_t groups = (uint64_t)m->rows * (uint64_t)m->cols / 4;
  return sizeof(splt_mark) + 2 * groups * splt_bytes(m->type) + (groups + 15) / 16 * 16;
}

/* Dense: 16 bytes' worth of elements; structured: twice that. */
int splt_matrix_legal(const splt_matrix *m) {
  const int64_t unit = 16 / splt_bytes(m->type), sizes = m->structured ? 2 * unit : unit;
  if (m->order != SPLT_ORDER_ROW && m->order != SPLT_ORDER_COL) return SPLT_INVALID_VALUE;
  if (m->alignment == 0 || m->alignment % 16 != 0) return SPLT_NOT_SUPPORTED;
  if (m->rows <= 0 || m->cols <= 0 || m->ld < along(m)) return SPLT_INVALID_VALUE;
  if (m->rows % sizes != 0 || m->cols % sizes != 0 || m->ld % unit != 0) return SPLT_NOT_SUPPORTED;
  return SPLT_SUCCESS;
}

/* A and B, C and D, compute: the table of cusparseLtMatmul, of what is not f32. */
static const int32_t table[][3] = {
    {SPLT_R_16F, SPLT_R_16F, SPLT_COMPUTE_32F},      {SPLT_R_16BF, SPLT_R_16BF, SPLT_COMPUTE_32F},
    {SPLT_R_8I, SPLT_R_8I, SPLT_COMPUTE_32I},        {SPLT_R_8I, SPLT_R_32I, SPLT_COMPUTE_32I},
    {SPLT_R_8I, SPLT_R_16F, SPLT_COMPUTE_32I},       {SPLT_R_8I, SPLT_R_16BF, SPLT_COMPUTE_32I},
    {SPLT_R_8F_E4M3, SPLT_R_32F, SPLT_COMPUTE_32F},  {SPLT_R_8F_E4M3, SPLT_R_16F, SPLT_COMPUTE_32F},
    {SPLT_R_8F_E4M3, SPLT_R_16BF, SPLT_COMPUTE_32F}, {SPLT_R_8F_E5M2, SPLT_R_32F, SPLT_COMPUTE_32F},
    {SPLT_R_8F_E5M2, SPLT_R_16F, SPLT_COMPUTE_32F},  {SPLT_R_8F_E5M2, SPLT_R_16BF, SPLT_COMPUTE_32F},
};

int splt_matmul_legal(const splt_matmul *mm, const splt_matrix *a, const splt_matrix *b, const splt_matrix *c,
                      const splt_matrix *d) {
  int typed = 0;
  const int64_t m = mm->op_a == SPLT_OP_N ? a->rows : a->cols, k = mm->op_a == SPLT_OP_N ? a->cols : a->rows;
  const int64_t n = mm->op_b == SPLT_OP_N ? b->cols : b->rows, kb = mm->op_b == SPLT_OP_N ? b->rows : b->cols;
  if (!a->structured || b->structured || c->structured || d->structured) return SPLT_INVALID_VALUE;
  if (k != kb || c->rows != m || c->cols != n) return SPLT_INVALID_VALUE;
  if (c->rows != d->rows || c->cols != d->cols || c->ld != d->ld || c->order != d->order ||
      c->type != d->type)
    return SPLT_INVALID_VALUE;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    typed |= table[i][0] == a->type && table[i][0] == b->type && table[i][1] == c->type &&
             table[i][2] == mm->compute;
  if (!typed) return SPLT_NOT_SUPPORTED;
  /* Bytes are read along k in both. */
  const int a_along = (a->order == SPLT_ORDER_ROW) == (mm->op_a == SPLT_OP_N);
  const int b_along = (b->order == SPLT_ORDER_ROW) == (mm->op_b == SPLT_OP_T);
  if (splt_bytes(a->type) == 1 && (!a_along || !b_along)) return SPLT_NOT_SUPPORTED;
  /* The loops here support this layout only; the library supports others, too. */
  return a_along && b_along && d->order == SPLT_ORDER_COL ? SPLT_SUCCESS : SPLT_NOT_SUPPORTED;
}
