/* SPDX-License-Identifier: MIT
 * replay.c - see replay.h. */
#include "lab/sim/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

#define MEMORY_MOST (UINT64_C(1) << 30)

typedef struct running {
  const sim_oplog *log;
  const bs_oplog_plan *plan;
  char *space[SIM_SPACE_SCRATCH]; /* A, B, Y as the program has them in memory */
  uint64_t bytes[SIM_SPACE_SCRATCH];
  char *scratch; /* of all lanes */
  uint64_t of_lane;
  char **result;  /* of each job, from its begin to its end */
  uint64_t *read; /* a hash of what it read */
  uint64_t products;
  bs_error *err;
} running;

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
  const sim_product_shape *s = &p->shape;
  const matrix all[SIM_SPACE_SCRATCH] = {
      {s->m, s->k, p->knobs.tm, p->program.depth, s->in_bytes, p->knobs.rows != 0},
      {s->n, s->k, p->knobs.tn, p->program.depth, s->in_bytes, p->knobs.rows != 0},
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

static int32_t bad_job(const running *r, uint64_t at, const char *why) {
  const sim_logged *j = &r->log->jobs[at];
  bs_error_set(r->err, BS_INPUT, "BS-REPLAY-JOB", "lane %s, job %u (%s) cannot be run: %s",
               r->log->lanes[j->lane], j->job, sim_what_name(j->what), why);
  bs_error_hint(r->err, "the log is of another op or of other knobs than its first line says");
  return BS_INPUT;
}

static char *bytes_at(const running *r, const sim_logged *j, const sim_range *range) {
  if (range->space == SIM_SPACE_SCRATCH) return r->scratch + j->lane * r->of_lane + range->start;
  return r->space[range->space] + range->start;
}

static int is_there(const running *r, const sim_range *range) {
  if (range->space == SIM_SPACE_SCRATCH) return 1;
  return range->start + (range->rows - 1) * range->pitch + range->bytes <= r->bytes[range->space];
}

static uint64_t size_of(const sim_range *range) {
  return range->rows * range->bytes;
}

static int32_t copied(running *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const sim_range *from = &j->reads[0];
  for (uint32_t i = 0; i < from->rows; i++)
    memcpy(out + i * from->bytes, bytes_at(r, j, from) + i * from->pitch, from->bytes);
  return size_of(from) == size_of(&j->writes) ? BS_OK
                                              : bad_job(r, at, "it reads and writes other numbers of bytes");
}

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
static int sizes(const running *r, const sim_logged *j, uint64_t *rows, uint64_t *columns, uint64_t *depth) {
  const uint64_t in = r->plan->shape.in_bytes;
  if (j->n_reads < 2) return 0;
  const uint64_t a = size_of(&j->reads[0]) / in, b = size_of(&j->reads[1]) / in, c = size_of(&j->writes) / 4;
  if (a == 0 || b == 0 || c == 0) return 0;
  *depth = (uint64_t)llround(sqrt((double)a * (double)b / (double)c));
  if (*depth == 0) return 0;
  *rows = a / *depth;
  *columns = b / *depth;
  return *rows * *depth == a && *columns * *depth == b && *rows * *columns == c &&
         (j->n_reads == 2 || size_of(&j->reads[2]) == c * 4);
}

static int32_t product(running *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const uint32_t dtype = r->plan->problem.dtype;
  uint64_t rows = 0, columns = 0, depth = 0;
  if (!sizes(r, j, &rows, &columns, &depth)) return bad_job(r, at, "its sizes are those of no product");
  r->products += rows * columns * depth;
  if (r->products > 2 * BS_OPLOG_PRODUCTS) return bad_job(r, at, "the log has more products than its op");
  float *a = malloc((rows + 2 * columns) * depth * sizeof *a);
  if (a == NULL) return bs_no_memory(r->err, "a product");
  float *b = a + rows * depth, *rest = b + columns * depth;
  int32_t rc = bs_convert(BS_F32, a, dtype, bytes_at(r, j, &j->reads[0]), rows * depth);
  if (rc == BS_OK) rc = turned(dtype, bytes_at(r, j, &j->reads[1]), columns, depth, rest, b);
  if (j->n_reads > 2)
    memcpy(out, bytes_at(r, j, &j->reads[2]), rows * columns * 4);
  else
    memset(out, 0, rows * columns * 4);
  if (rc == BS_OK) multiply((float *)(void *)out, a, b, rows, columns, depth);
  free(a);
  return rc == BS_OK ? BS_OK : bad_job(r, at, "its dtype is no float");
}

static int32_t epilogue(running *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const uint64_t n = size_of(&j->reads[0]) / 4;
  if (size_of(&j->writes) != n * r->plan->shape.out_bytes)
    return bad_job(r, at, "it is no conversion from f32");
  return bs_convert(bs_kernel_y_dtype(&r->plan->problem), out, BS_F32, bytes_at(r, j, &j->reads[0]), n);
}

/* A hash of the bytes that a job reads in its lane's scratch. */
static uint64_t hash_of_reads(const running *r, const sim_logged *j) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (uint32_t i = 0; i < j->n_reads; i++) {
    if (j->reads[i].space != SIM_SPACE_SCRATCH) continue;
    const char *at = bytes_at(r, j, &j->reads[i]);
    for (uint64_t b = 0; b < j->reads[i].bytes; b += 8) {
      uint64_t word = 0;
      memcpy(&word, at + b, least(8, j->reads[i].bytes - b));
      h = (h ^ word) * UINT64_C(1099511628211);
      h ^= h >> 29;
    }
  }
  return h;
}

static int32_t compute(running *r, uint64_t at) {
  switch (r->log->jobs[at].what) {
    case SIM_LOAD_A:
    case SIM_LOAD_B:
    case SIM_STORE:
      return copied(r, at, r->result[at]);
    case SIM_PRODUCT:
      return product(r, at, r->result[at]);
    case SIM_EPILOGUE:
      return epilogue(r, at, r->result[at]);
    default:
      return bad_job(r, at, "no product has such a job");
  }
}

static int32_t begins(running *r, uint64_t at) {
  const sim_logged *j = &r->log->jobs[at];
  if (j->n_reads == 0 || j->n_writes == 0) return bad_job(r, at, "it reads or writes nothing");
  for (uint32_t i = 0; i < j->n_reads; i++)
    if (!is_there(r, &j->reads[i])) return bad_job(r, at, "it reads outside of its operand");
  if (!is_there(r, &j->writes)) return bad_job(r, at, "it writes outside of Y");
  char *out = aligned_alloc(64, (size_of(&j->writes) + 63) / 64 * 64);
  if (out == NULL) return bs_no_memory(r->err, "what a job writes");
  r->result[at] = out;
  r->read[at] = hash_of_reads(r, j);
  return compute(r, at);
}

/* The job has read the later bytes, where some have changed since its begin. */
static int32_t ends(running *r, uint64_t at) {
  const sim_logged *j = &r->log->jobs[at];
  const int32_t rc = hash_of_reads(r, j) == r->read[at] ? BS_OK : compute(r, at);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < j->writes.rows; i++)
    memcpy(bytes_at(r, j, &j->writes) + i * j->writes.pitch, r->result[at] + i * j->writes.bytes,
           j->writes.bytes);
  free(r->result[at]);
  r->result[at] = NULL;
  return BS_OK;
}

/* ---- a run ------------------------------------------------------------------------------------- */

static uint64_t scratch_of(const sim_oplog *log) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < log->n; i++) {
    const sim_logged *j = &log->jobs[i];
    for (uint32_t k = 0; k <= j->n_reads; k++) {
      const sim_range *range = k < j->n_reads ? &j->reads[k] : &j->writes;
      if (range->space == SIM_SPACE_SCRATCH) most = sim_max(most, range->start + range->bytes);
    }
  }
  return (most + 63) / 64 * 64;
}

static int32_t check_size(const bs_oplog_plan *p, uint64_t memory, bs_error *err) {
  const double products = (double)p->shape.m * (double)p->shape.n * (double)p->shape.k;
  if (products <= (double)BS_OPLOG_PRODUCTS && memory <= MEMORY_MOST) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-REPLAY-SIZE",
               "a replay of %.3g products and %.3g bytes is too large: at most %.3g and %.3g", products,
               (double)memory, (double)BS_OPLOG_PRODUCTS, (double)MEMORY_MOST);
  bs_error_hint(err, "a log of a smaller shape on the same tiles");
  return BS_CONFIG;
}

static int32_t open_run(running *r) {
  uint64_t memory = 0;
  r->of_lane = scratch_of(r->log);
  const double scratch = (double)r->of_lane * (double)r->log->n_lanes;
  for (uint32_t s = 0; s < SIM_SPACE_SCRATCH; s++) {
    const matrix m = matrix_of(r->plan, s);
    memory += r->bytes[s] = bytes_of(&m);
  }
  int32_t rc = check_size(r->plan, scratch > (double)MEMORY_MOST ? UINT64_MAX : memory, r->err);
  if (rc != BS_OK) return rc;
  for (uint32_t s = 0; s < SIM_SPACE_SCRATCH; s++) {
    r->space[s] = malloc(r->bytes[s] + 64);
    if (r->space[s] == NULL) return bs_no_memory(r->err, "the operands of a replay");
    memset(r->space[s], 0xff, r->bytes[s] + 64);
  }
  r->scratch = aligned_alloc(64, r->of_lane * r->log->n_lanes + 64);
  r->result = calloc(r->log->n > 0 ? r->log->n : 1, sizeof *r->result);
  r->read = calloc(r->log->n > 0 ? r->log->n : 1, sizeof *r->read);
  if (r->scratch == NULL || r->result == NULL || r->read == NULL)
    return bs_no_memory(r->err, "the scratch of a replay");
  memset(r->scratch, 0xff, r->of_lane * r->log->n_lanes + 64);
  return BS_OK;
}

static void close_run(running *r) {
  for (uint32_t s = 0; s < SIM_SPACE_SCRATCH; s++) free(r->space[s]);
  for (uint64_t i = 0; r->result != NULL && i < r->log->n; i++) free(r->result[i]);
  free(r->result);
  free(r->read);
  free(r->scratch);
}

int32_t bs_oplog_data(const sim_oplog *log, const bs_oplog_plan *plan, const void *a, const void *b, void *y,
                      bs_error *err) {
  running r = {.log = log, .plan = plan, .err = err};
  sim_moment *moments = NULL;
  char *given[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b, y};
  int32_t rc = open_run(&r);
  if (rc == BS_OK && (moments = sim_oplog_moments(log)) == NULL) rc = bs_no_memory(err, "a replay");
  for (uint32_t s = 0; rc == BS_OK && s < SIM_SPACE_Y; s++) {
    const matrix m = matrix_of(plan, s);
    move_matrix(&m, given[s], r.space[s], 0);
  }
  for (uint64_t i = 0; rc == BS_OK && i < 2 * log->n; i++) {
    rc = moments[i].ends ? ends(&r, moments[i].job) : begins(&r, moments[i].job);
  }
  const matrix m = matrix_of(plan, SIM_SPACE_Y);
  if (rc == BS_OK) move_matrix(&m, y, r.space[SIM_SPACE_Y], 1);
  free(moments);
  close_run(&r);
  return rc;
}

int32_t bs_oplog_untiled(const bs_oplog_plan *p, const void *a, const void *b, void *y, bs_error *err) {
  const sim_product_shape *s = &p->shape;
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
