/* SPDX-License-Identifier: MIT
 * product.c - compressing and a product by plain loops: each output is one sum, ascending, in f32 or whole.
 */
#include <string.h>

#include "plugins/cuda/ops/numbers.h"
#include "splt.h"

static uint32_t dtype_of(int32_t type) {
  switch (type) {
    case SPLT_R_32F:
      return BS_F32;
    case SPLT_R_32I:
      return BS_I32;
    case SPLT_R_16F:
      return BS_F16;
    case SPLT_R_16BF:
      return BS_BF16;
    case SPLT_R_8I:
      return BS_I8;
    case SPLT_R_8F_E4M3:
      return BS_F8E4M3;
    default:
      return BS_F8E5M2;
  }
}

static uint64_t bits_at(const void *base, int32_t type, int64_t at) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)base + (uint64_t)at * splt_bytes(type), splt_bytes(type));
  return bits;
}

static float real(const void *base, int32_t type, int64_t at) {
  return cuda_f32_of_bits(dtype_of(type), bits_at(base, type, at));
}

static int64_t whole(const void *base, int32_t type, int64_t at) {
  return cuda_i64_of_bits(dtype_of(type), bits_at(base, type, at));
}

/* ---- compressing -------------------------------------------------------------------------------- */

static int is_zero(const splt_matrix *m, const void *dense, int64_t at) {
  return m->type == SPLT_R_8I ? whole(dense, m->type, at) == 0 : real(dense, m->type, at) == 0.0f;
}

/* Two places of four: those of what is not zero, and where that are fewer, the lowest others. */
static uint64_t places(const splt_matrix *m, const void *dense, int64_t at, int out[2]) {
  int count = 0, kept[4] = {0, 0, 0, 0};
  uint64_t chosen = 0;
  for (int i = 0; i < 4; i++) count += kept[i] = !is_zero(m, dense, at + i);
  if (count > 2) splt_die("cusparseLtSpMMACompress2: a group of four with %d values: not pruned", count);
  for (int i = 0; i < 4 && count < 2; i++) {
    if (kept[i]) continue;
    kept[i] = 1;
    count++;
    chosen++;
  }
  for (int i = 0, j = 0; i < 4; i++)
    if (kept[i]) out[j++] = i;
  return chosen;
}

uint64_t splt_compress(const splt_matrix *m, const void *dense, void *out) {
  const splt_mark mark = {.magic = SPLT_MARK, .rows = m->rows, .cols = m->cols, .type = m->type};
  const uint32_t size = splt_bytes(m->type);
  const int64_t groups = m->cols / 4;
  char *values = (char *)out + sizeof mark;
  unsigned char *codes = (unsigned char *)values + (uint64_t)(2 * m->rows * groups) * size;
  uint64_t chosen = 0;
  memcpy(out, &mark, sizeof mark);
  for (int64_t r = 0; r < m->rows; r++)
    for (int64_t g = 0; g < groups; g++) {
      const int64_t at = r * m->ld + 4 * g, to = r * groups + g;
      int p[2] = {0, 0};
      chosen += places(m, dense, at, p);
      codes[to] = (unsigned char)(p[0] + 4 * p[1]);
      for (int j = 0; j < 2; j++)
        memcpy(values + (uint64_t)(2 * to + j) * size, (const char *)dense + (uint64_t)(at + p[j]) * size,
               size);
    }
  return chosen;
}

/* ---- the product -------------------------------------------------------------------------------- */

static double sum(const splt_job *job, const char *values, const unsigned char *codes, int64_t i, int64_t j) {
  const int64_t groups = job->a.cols / 4;
  float narrow = 0.0f;
  int64_t all = 0;
  for (int64_t t = 0; t < 2 * groups; t++) {
    const int64_t code = codes[i * groups + t / 2], k = t / 2 * 4 + (code >> (t % 2 * 2) & 3);
    const int64_t at = 2 * i * groups + t, x = j * job->b.ld + k;
    if (job->compute == SPLT_COMPUTE_32I)
      all += whole(values, job->a.type, at) * whole(job->pb, job->b.type, x);
    else
      narrow += real(values, job->a.type, at) * real(job->pb, job->b.type, x);
  }
  return job->compute == SPLT_COMPUTE_32I ? (double)(int32_t)(uint32_t)all : (double)narrow;
}

static void store(const splt_job *job, int64_t at, double v) {
  const uint32_t dtype = dtype_of(job->c.type);
  const uint64_t bits = dtype == BS_I32 ? (uint64_t)(uint32_t)(int32_t)v : cuda_bits_of_f32(dtype, (float)v);
  memcpy((char *)job->pd + (uint64_t)at * splt_bytes(job->c.type), &bits, splt_bytes(job->c.type));
}

void splt_compute(const splt_job *job) {
  splt_mark mark;
  memcpy(&mark, job->pa, sizeof mark);
  if (mark.magic != SPLT_MARK || mark.rows != job->a.rows || mark.cols != job->a.cols ||
      mark.type != job->a.type)
    splt_die("cusparseLtMatmul: A is not such a matrix, compressed");
  const char *values = (const char *)job->pa + sizeof mark;
  const unsigned char *codes =
      (const unsigned char *)values + (uint64_t)(job->a.rows * job->a.cols / 2) * splt_bytes(job->a.type);
  for (int64_t j = 0; j < job->c.cols; j++)
    for (int64_t i = 0; i < job->c.rows; i++) {
      const int64_t at = i + j * job->c.ld;
      double v = (double)job->alpha * sum(job, values, codes, i, j);
      if (job->beta != 0.0f) v = (double)((float)v + job->beta * real(job->pc, job->c.type, at));
      if (job->relu) v = v > 0.0 || v != v ? v : 0.0;
      store(job, at, v);
    }
}
