/* SPDX-License-Identifier: MIT
 * replay.c - see replay.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/sim/replay_parts.h"

/* ---- where elements lie ------------------------------------------------------------------------ */

static uint64_t divided(uint64_t n, uint64_t by) {
  return n / by + (n % by != 0);
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* A matrix in tiles of rows x columns, each dense; or row by row. */
typedef struct matrix {
  uint64_t rows, columns, tile_rows, tile_columns, size; /* size: of an element */
  int by_rows;
} matrix;

static matrix matrix_of(const bs_oplog_plan *p, uint32_t space) {
  const sim_product_shape *s = &p->what.product;
  const matrix all[] = {{s->m, s->k, p->knobs.tm, p->program.product.depth, s->in_bytes, p->knobs.rows != 0},
                        {s->n, s->k, p->knobs.tn, p->program.product.depth, s->in_bytes, p->knobs.rows != 0},
                        {s->m, s->n, p->knobs.tm, p->knobs.tn, s->out_bytes, p->knobs.rows != 0}};
  return all[space];
}

static uint64_t bytes_of(const matrix *m) {
  if (m->by_rows) return m->rows * m->columns * m->size;
  return divided(m->rows, m->tile_rows) * divided(m->columns, m->tile_columns) * m->tile_rows *
         m->tile_columns * m->size;
}

/* Bytes before element (row, column), where a run of `*out_run` elements of the row begins. */
static uint64_t place_of(const matrix *m, uint64_t row, uint64_t column, uint64_t *out_run) {
  if (m->by_rows) {
    *out_run = m->columns - column;
    return (row * m->columns + column) * m->size;
  }
  const uint64_t across = column / m->tile_columns, down = row / m->tile_rows;
  const uint64_t width = least(m->tile_columns, m->columns - across * m->tile_columns);
  const uint64_t tile = down * divided(m->columns, m->tile_columns) + across;
  *out_run = width - column % m->tile_columns;
  return (tile * m->tile_rows * m->tile_columns + row % m->tile_rows * width + column % m->tile_columns) *
         m->size;
}

/* Between a dense matrix and its place in memory. */
static void move_matrix(const matrix *m, char *dense, char *placed, int out) {
  for (uint64_t r = 0; r < m->rows; r++)
    for (uint64_t c = 0, run = 0; c < m->columns; c += run) {
      char *at = placed + place_of(m, r, c, &run), *of = dense + (r * m->columns + c) * m->size;
      if (out)
        memcpy(of, at, run * m->size);
      else
        memcpy(at, of, run * m->size);
    }
}

/* ---- jobs -------------------------------------------------------------------------------------- */

/* c [rows][columns] += a [rows][depth] times b [depth][columns]; the depth ascends. */
static void multiply(float *c, const float *a, const float *b, uint64_t rows, uint64_t columns,
                     uint64_t depth) {
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t q = 0; q < depth; q++) {
      const float x = a[i * depth + q];
      const float *y = b + q * columns;
      float *sums = c + i * columns;
      for (uint64_t n = 0; n < columns; n++) sums[n] += x * y[n];
    }
}

/* [columns][depth] of a dtype to [depth][columns] of f32; `rest` is as large. */
static int32_t turned(uint32_t dtype, const void *from, uint64_t columns, uint64_t depth, float *rest,
                      float *out) {
  const int32_t rc = bs_convert(BS_F32, rest, dtype, from, columns * depth);
  for (uint64_t n = 0; rc == BS_OK && n < columns; n++)
    for (uint64_t q = 0; q < depth; q++) out[q * columns + n] = rest[n * depth + q];
  return rc;
}

/* Rows, columns and depth of a product from the sizes of what it reads and writes. */
static int sizes(const bs_replaying *r, const sim_logged *j, uint64_t *rows, uint64_t *columns,
                 uint64_t *depth) {
  const uint64_t in = r->plan->what.product.in_bytes;
  if (j->n_reads < 2) return 0;
  const uint64_t a = bs_range_bytes(&j->reads[0]) / in, b = bs_range_bytes(&j->reads[1]) / in,
                 c = bs_range_bytes(&j->writes) / 4;
  if (a == 0 || b == 0 || c == 0) return 0;
  *depth = (uint64_t)llround(sqrt((double)a * (double)b / (double)c));
  if (*depth == 0) return 0;
  *rows = a / *depth;
  *columns = b / *depth;
  return *rows * *depth == a && *columns * *depth == b && *rows * *columns == c &&
         (j->n_reads == 2 || bs_range_bytes(&j->reads[2]) == c * 4);
}

static int32_t product(bs_replaying *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const uint32_t dtype = r->plan->problem.dtype;
  uint64_t rows = 0, columns = 0, depth = 0;
  if (!sizes(r, j, &rows, &columns, &depth))
    return bs_replay_bad_job(r, at, "its sizes are those of no product");
  r->products += rows * columns * depth;
  if (r->products > 2 * BS_OPLOG_PRODUCTS)
    return bs_replay_bad_job(r, at, "the log has more products than its op");
  float *a = malloc((rows + 2 * columns) * depth * sizeof *a);
  if (a == NULL) return bs_no_memory(r->err, "a product");
  float *b = a + rows * depth, *rest = b + columns * depth;
  int32_t rc = bs_convert(BS_F32, a, dtype, bs_replay_bytes(r, j, &j->reads[0]), rows * depth);
  if (rc == BS_OK) rc = turned(dtype, bs_replay_bytes(r, j, &j->reads[1]), columns, depth, rest, b);
  if (j->n_reads > 2)
    memcpy(out, bs_replay_bytes(r, j, &j->reads[2]), rows * columns * 4);
  else
    memset(out, 0, rows * columns * 4);
  if (rc == BS_OK) multiply((float *)(void *)out, a, b, rows, columns, depth);
  free(a);
  return rc == BS_OK ? BS_OK : bs_replay_bad_job(r, at, "its dtype is no float");
}

static int32_t epilogue(bs_replaying *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const uint64_t n = bs_range_bytes(&j->reads[0]) / 4;
  if (bs_range_bytes(&j->writes) != n * r->plan->what.product.out_bytes)
    return bs_replay_bad_job(r, at, "it is no conversion from f32");
  return bs_convert(bs_kernel_y_dtype(&r->plan->problem), out, BS_F32, bs_replay_bytes(r, j, &j->reads[0]),
                    n);
}

static int32_t compute(bs_replaying *r, uint64_t at, char *out) {
  switch (r->log->jobs[at].what) {
    case SIM_LOAD_A:
    case SIM_LOAD_B:
    case SIM_STORE:
      return bs_replay_copied(r, at, out);
    case SIM_PRODUCT:
      return product(r, at, out);
    case SIM_EPILOGUE:
      return epilogue(r, at, out);
    default:
      return bs_replay_bad_job(r, at, "no product has such a job");
  }
}

/* ---- a run ------------------------------------------------------------------------------------- */

static int32_t check_size(const bs_oplog_plan *p, uint64_t memory, bs_error *err) {
  const sim_product_shape *s = &p->what.product;
  return bs_replay_check_size((double)s->m * (double)s->n * (double)s->k, memory, err);
}

/* The operands; all bits of Y are set. */
static int32_t open_spaces(bs_replaying *r, const char *a, const char *b) {
  char *given[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
  uint64_t memory = 0;
  for (uint32_t s = 0; s <= SIM_SPACE_Y; s++) {
    const matrix m = matrix_of(r->plan, s);
    memory += r->bytes[s] = bytes_of(&m);
  }
  const int32_t rc = check_size(r->plan, memory, r->err);
  if (rc != BS_OK) return rc;
  for (uint32_t s = 0; s <= SIM_SPACE_Y; s++) {
    const matrix m = matrix_of(r->plan, s);
    r->space[s] = malloc(r->bytes[s] + 64);
    if (r->space[s] == NULL) return bs_no_memory(r->err, "the operands of a replay");
    memset(r->space[s], 0xff, r->bytes[s] + 64);
    if (s < SIM_SPACE_Y) move_matrix(&m, given[s], r->space[s], 0);
  }
  return BS_OK;
}

int32_t bs_oplog_data(const sim_oplog *log, const bs_oplog_plan *plan, const void *a, const void *b, void *y,
                      bs_error *err) {
  bs_replaying r = {.log = log, .plan = plan, .compute = compute, .err = err};
  int32_t rc = open_spaces(&r, a, b);
  if (rc == BS_OK) rc = bs_replay_log(&r);
  const matrix m = matrix_of(plan, SIM_SPACE_Y);
  if (rc == BS_OK) move_matrix(&m, y, r.space[SIM_SPACE_Y], 1);
  for (uint32_t s = 0; s <= SIM_SPACE_Y; s++) free(r.space[s]);
  return rc;
}

int32_t bs_oplog_untiled(const bs_oplog_plan *p, const void *a, const void *b, void *y, bs_error *err) {
  const sim_product_shape *s = &p->what.product;
  int32_t rc = check_size(p, 0, err);
  if (rc != BS_OK) return rc;
  float *wide = calloc((s->m + 2 * s->n) * s->k + s->m * s->n, sizeof *wide);
  if (wide == NULL) return bs_no_memory(err, "an untiled product");
  float *turn = wide + s->m * s->k, *rest = turn + s->n * s->k, *sums = rest + s->n * s->k;
  rc = bs_convert(BS_F32, wide, p->problem.dtype, a, s->m * s->k);
  if (rc == BS_OK) rc = turned(p->problem.dtype, b, s->n, s->k, rest, turn);
  if (rc == BS_OK) multiply(sums, wide, turn, s->m, s->n, s->k);
  if (rc == BS_OK) rc = bs_convert(bs_kernel_y_dtype(&p->problem), y, BS_F32, sums, s->m * s->n);
  free(wide);
  return rc;
}
