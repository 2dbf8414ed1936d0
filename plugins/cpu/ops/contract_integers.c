/* SPDX-License-Identifier: MIT
 *
 * contract_integers.c - the contract "pairs": integers of any width and any strides to i32 or i64, modulo
 * 2^32 or 2^64. Blocks of 96 rows and 128 columns are divided over the team: rows of A as int16, B in panels
 * of pairs, both 256 deep, and the products of int16 that i8 weights have. A block with a value that int16
 * does not hold, or whose sums 32 bits may not hold where all 64 count, is computed in 64 bits. */
#include <stdlib.h>

#include "integers.h"
#include "panels.h"
#include "places.h"

enum { A, B, BIAS, Y, ARGS };
enum { COLUMNS = 128 };
#define ALONE 65536.0 /* products up to which the team is not woken */

typedef struct contract_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  uint32_t activation;
  int low; /* only the low 32 bits count: of an i32 Y without an activation */
  int64_t rows;
  uint64_t member_bytes;
} contract_plan;

typedef struct matrix {
  uint8_t *data; /* NULL: absent */
  uint32_t dtype;
  int64_t size, row, column; /* of an element in bytes; strides in elements */
} matrix;

/* Matrices of one call, and their strides over the outer dims. */
typedef struct contract_call {
  const contract_plan *plan;
  uint32_t outer;
  int64_t dims[BS_MAX_DIMS];
  int64_t M, N, K, row_blocks, column_blocks, items;
  matrix matrices[ARGS];
  int64_t strides[ARGS][BS_MAX_DIMS];
  uint8_t *scratch;
} contract_call;

/* Memory of a member. */
typedef struct contract_room {
  int16_t *x;     /* [rows][CPU_X_LD] */
  int16_t *w;     /* panels of 16 columns */
  int32_t *sums;  /* [rows][COLUMNS] */
  int64_t *wide;  /* [rows][COLUMNS] */
  int64_t *lines; /* two rows of CPU_K_BLOCK */
} contract_room;

/* The block of Y that an item is. */
typedef struct contract_block {
  matrix m[ARGS];
  int64_t row, rows, first, columns;
} contract_block;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  for (uint32_t i = 0; i < ARGS; i++)
    if (q->args[i] != NULL && !cpu_is_integer(q->args[i]->dtype)) {
      cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: integers only", i, q->args[i]->dtype);
      return BS_OK;
    }
  if (q->activation > BS_ACT_RELU)
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
  else
    cpu_answer_yes(answer, 800, BS_TOL_EXACT, "pairs", "products of int16 where all values fit");
  return BS_OK;
}

/* Bytes of a member's parts, each of which begins with a cache line; out_room is filled where it is not
 * NULL. */
static uint64_t lay_out(const contract_plan *plan, uint8_t *memory, contract_room *out_room) {
  const uint64_t x = (uint64_t)(plan->rows * CPU_X_LD) * sizeof(int16_t);
  const uint64_t w = (uint64_t)CPU_K_BLOCK * COLUMNS * sizeof(int16_t);
  const uint64_t sums = (uint64_t)(plan->rows * COLUMNS) * sizeof(int32_t);
  const uint64_t wide = (uint64_t)(plan->rows * COLUMNS) * sizeof(int64_t);
  if (out_room != NULL) {
    out_room->x = (int16_t *)(void *)memory;
    out_room->w = (int16_t *)(void *)(memory + x);
    out_room->sums = (int32_t *)(void *)(memory + x + w);
    out_room->wide = (int64_t *)(void *)(memory + x + w + sums);
    out_room->lines = (int64_t *)(void *)(memory + x + w + sums + wide);
  }
  return (x + w + sums + wide + 2 * CPU_K_BLOCK * sizeof(int64_t) + 63) / 64 * 64;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  const bs_tensor_desc *y = q->args[Y];
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  contract_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (contract_plan){.exec = exec, .kernels = &state->kernels, .activation = q->activation};
  plan->low = y->dtype == BS_I32 && q->activation == BS_ACT_NONE;
  plan->rows = y->dims[y->rank - 2] < CPU_PANEL_ROWS ? y->dims[y->rank - 2] : CPU_PANEL_ROWS;
  plan->member_bytes = lay_out(plan, NULL, NULL);
  rc = cpu_reserve(exec, plan->member_bytes * (exec->width > 0 ? exec->width : 1), err);
  if (rc != BS_OK)
    free(plan);
  else
    *out_plan = plan;
  return rc;
}

static void read_call(const contract_plan *plan, bs_tensor *const *args, contract_call *call) {
  const bs_tensor *y = args[Y];
  const uint32_t rank = y->rank;
  *call = (contract_call){.plan = plan, .outer = rank - 2, .M = y->dims[rank - 2], .N = y->dims[rank - 1]};
  call->K = args[A]->dims[rank - 1];
  call->row_blocks = plan->rows > 0 ? (call->M + plan->rows - 1) / plan->rows : 0;
  call->column_blocks = (call->N + COLUMNS - 1) / COLUMNS;
  call->items = call->row_blocks * call->column_blocks;
  memcpy(call->dims, y->dims, sizeof call->dims);
  for (uint32_t d = 0; d < call->outer; d++) call->items *= call->dims[d];
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor *t = args[i];
    if (t == NULL) continue;
    matrix *m = &call->matrices[i];
    *m = (matrix){t->data, t->dtype, BS_DTYPE_BYTES(t->dtype), t->strides[rank - 2], t->strides[rank - 1]};
    if (i == BIAS && t->dims[rank - 2] == 1) m->row = 0;
    if (i == BIAS && t->dims[rank - 1] == 1) m->column = 0;
    for (uint32_t d = 0; d < call->outer; d++) call->strides[i][d] = t->dims[d] == 1 ? 0 : t->strides[d];
  }
}

static contract_block block_of(const contract_call *call, int64_t item) {
  const int64_t blocks = call->row_blocks * call->column_blocks, in = item % blocks, most = call->plan->rows;
  contract_block b = {.row = in / call->column_blocks * most, .first = in % call->column_blocks * COLUMNS};
  int64_t z = item / blocks;
  b.rows = call->M - b.row < most ? call->M - b.row : most;
  b.columns = call->N - b.first < COLUMNS ? call->N - b.first : COLUMNS;
  memcpy(b.m, call->matrices, sizeof b.m);
  for (uint32_t d = call->outer; d-- > 0; z /= call->dims[d])
    for (uint32_t i = 0; i < ARGS; i++)
      if (b.m[i].data != NULL) b.m[i].data += z % call->dims[d] * call->strides[i][d] * b.m[i].size;
  return b;
}

static uint8_t *at(const matrix *m, int64_t row, int64_t column) {
  return m->data + (row * m->row + column * m->column) * m->size;
}

/* Returns n elements of a row side by side: in the matrix, or copied to `room`. */
static const void *row_of(const matrix *m, int64_t row, int64_t column, int64_t n, int64_t *room) {
  const uint8_t *from = at(m, row, column);
  if (m->column == 1) return from;
  cpu_copy_strided(room, 1, from, m->column, n, (uint32_t)m->size);
  return room;
}

/* The number of bits of a value without its sign. */
static int bits_of(uint32_t any) {
  int n = 0;
  for (; any != 0; any >>= 1) n++;
  return n;
}

/* Lays out columns k .. k + depth of both; 0: they are nothing for `pairs`. */
static int lay_pairs(const contract_plan *plan, const contract_block *b, int64_t k, int64_t depth,
                     const contract_room *room) {
  uint32_t x = 0, w = 0;
  for (int64_t r = 0; r < b->rows; r++) {
    int16_t *to = room->x + r * CPU_X_LD;
    x |= plan->kernels->narrow_row(to, row_of(&b->m[A], b->row + r, k, depth, room->lines), b->m[A].dtype,
                                   depth);
    to[depth] = 0; /* of the last pair of an odd number */
  }
  const int64_t pairs = (depth + 1) / 2, step = pairs * 2 * CPU_PANEL * (int64_t)sizeof(int16_t);
  for (int64_t d = 0; d < depth; d += 2) {
    const void *first = row_of(&b->m[B], k + d, b->first, b->columns, room->lines), *second = NULL;
    if (d + 1 < depth) second = row_of(&b->m[B], k + d + 1, b->first, b->columns, room->lines + CPU_K_BLOCK);
    w |= plan->kernels->pair_rows(room->w + d * CPU_PANEL, step, first, second, b->m[B].dtype, b->columns);
  }
  if (((x | w) >> 15) != 0) return 0;
  return plan->low || bits_of(x) + bits_of(w) + bits_of((uint32_t)depth) < 31;
}

static void multiply_pairs(const contract_plan *plan, const contract_block *b, int64_t depth, int add,
                           const contract_room *room) {
  const cpu_kernels *kernels = plan->kernels;
  const int64_t pairs = (depth + 1) / 2, groups = (b->rows + kernels->pair_tokens - 1) / kernels->pair_tokens;
  for (int64_t n = 0; n < b->columns; n += CPU_PANEL) {
    cpu_pairs t = {.x = room->x,
                   .x_ld = CPU_X_LD,
                   .w = room->w + n * 2 * pairs,
                   .c = room->sums + n,
                   .ldc = COLUMNS,
                   .pairs = pairs,
                   .add = add};
    for (int64_t g = 0; g < groups; g++) { /* they differ by at most one, which leaves no small tile */
      t.tokens = (int32_t)(b->rows / groups + (g < b->rows % groups));
      kernels->pairs(&t);
      t.x += t.tokens * CPU_X_LD;
      t.c += t.tokens * COLUMNS;
    }
  }
}

/* The sums in room->sums where only their low bits count, else in room->wide; 0: not by pairs. */
static int by_pairs(const contract_call *call, const contract_block *b, const contract_room *room) {
  const contract_plan *plan = call->plan;
  for (int64_t k = 0; k < call->K; k += CPU_K_BLOCK) {
    const int64_t depth = call->K - k < CPU_K_BLOCK ? call->K - k : CPU_K_BLOCK;
    if (!lay_pairs(plan, b, k, depth, room)) return 0;
    multiply_pairs(plan, b, depth, plan->low && k > 0, room);
    for (int64_t i = 0; !plan->low && i < b->rows * COLUMNS; i++)
      room->wide[i] = (k > 0 ? room->wide[i] : 0) + room->sums[i];
  }
  return call->K > 0;
}

/* The sums in room->wide, in 64 bits. */
static void by_words(const contract_call *call, const contract_block *b, const contract_room *room) {
  int64_t *line = room->lines;
  memset(room->wide, 0, (size_t)(b->rows * COLUMNS) * sizeof *room->wide);
  for (int64_t k = 0; k < call->K; k++) {
    cpu_integers_load(b->m[B].dtype, at(&b->m[B], k, b->first), b->m[B].column, b->columns, line);
    for (int64_t r = 0; r < b->rows; r++) {
      uint64_t *sums = (uint64_t *)room->wide + r * COLUMNS;
      int64_t x;
      cpu_integers_load(b->m[A].dtype, at(&b->m[A], b->row + r, k), 1, 1, &x);
      for (int64_t n = 0; n < b->columns; n++) sums[n] += (uint64_t)x * (uint64_t)line[n];
    }
  }
}

static void finish_row(const contract_plan *plan, const contract_block *b, int64_t r, int64_t *sums,
                       int64_t *line) {
  const matrix *bias = &b->m[BIAS], *y = &b->m[Y];
  if (bias->data != NULL) {
    cpu_integers_load(bias->dtype, at(bias, b->row + r, b->first), bias->column, b->columns, line);
    for (int64_t n = 0; n < b->columns; n++) sums[n] = (int64_t)((uint64_t)sums[n] + (uint64_t)line[n]);
  }
  for (int64_t n = 0; plan->activation == BS_ACT_RELU && n < b->columns; n++)
    if (sums[n] < 0) sums[n] = 0;
  cpu_integers_store(y->dtype, at(y, b->row + r, b->first), y->column, b->columns, sums);
}

static void one_block(const contract_call *call, int64_t item, const contract_room *room) {
  const contract_plan *plan = call->plan;
  const contract_block b = block_of(call, item);
  const matrix *y = &b.m[Y];
  const int low = by_pairs(call, &b, room) ? plan->low : -1;
  if (low < 0) by_words(call, &b, room);
  for (int64_t r = 0; r < b.rows; r++) {
    const int32_t *sums = room->sums + r * COLUMNS;
    if (low > 0 && b.m[BIAS].data == NULL && y->column == 1) {
      memcpy(at(y, b.row + r, b.first), sums, (size_t)b.columns * sizeof *sums);
      continue;
    }
    int64_t *wide = room->wide + r * COLUMNS;
    for (int64_t n = 0; low > 0 && n < b.columns; n++) wide[n] = sums[n];
    finish_row(plan, &b, r, wide, room->lines);
  }
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const contract_call *call = arg;
  contract_room room;
  int64_t begin, end;
  lay_out(call->plan, call->scratch + call->plan->member_bytes * member, &room);
  cpu_share(call->items, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) one_block(call, i, &room);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const contract_plan *plan = opaque;
  contract_call call;
  (void)nargs;
  (void)stream;
  read_call(plan, args, &call);
  if (call.items == 0) return BS_OK;
  call.scratch = plan->exec->scratch(plan->exec->ctx);
  const double products = (double)call.items * (double)(plan->rows * COLUMNS) * (double)(call.K + 1);
  return cpu_team(plan->exec, call.items == 1 || products < ALONE, share, &call, err);
}

const bs_src_loc cpu_contract_integers_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_contract_integers = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "contract",
    .backend = "cpu",
    .name = "pairs",
    .summary = "products of integers by pairs of int16, exact",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
