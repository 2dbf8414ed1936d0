/* SPDX-License-Identifier: MIT
 *
 * matmul_plan.h - shared parts of the matmuls on packed panels, "packed" (matmul.c) and "amx" (matmul_amx.c):
 * the sizes of their chunks, their plans, and the way of a member through its chunks.
 *
 * Each member of the team owns a range of panels. For a chunk of tokens and a chunk of panels it visits the K
 * blocks: the kind packs the block of X, and adds the block's products to C; then one epilogue a row. Sums
 * have the same order for every token, chunk and team: a token's bits depend only on its own row. */
#ifndef BS_PLUGINS_CPU_OPS_MATMUL_PLAN_H
#define BS_PLUGINS_CPU_OPS_MATMUL_PLAN_H

#include "../columns.h"
#include "packed.h"

typedef struct cpu_dense_plan cpu_dense_plan;

/* The scratch memory of one member. */
typedef struct cpu_dense_scratch {
  float *x;     /* [block][rows][x_row] */
  float *c;     /* [rows][c_ld] */
  float *panel; /* one widened panel of a block */
  float *row;   /* bias of the chunk, then one row of residual */
  float *own;   /* the kind's */
} cpu_dense_scratch;

/* The partition of the work, and the floats of a member's scratch: parts of `each`, each on a separate cache
 * line. */
typedef struct cpu_dense_sizes {
  int64_t told_tokens, told_panels; /* the most of a chunk, however few there are */
  int64_t tokens, panels;           /* of a chunk, at most */
  int64_t rows;                     /* of X and C: tokens, or more */
  int64_t c_ld;                     /* floats between rows of C; not a power of two */
  uint64_t x, c, panel, each;       /* floats */
  int keep; /* X of a chunk of tokens is packed once: x has room for all its columns */
} cpu_dense_sizes;

typedef struct cpu_dense_call {
  const cpu_dense_plan *plan;
  const bs_tensor *x, *bias, *residual, *y;
  int64_t tokens; /* B of this call */
} cpu_dense_call;

/* A chunk of the work of one member. */
typedef struct cpu_dense_chunk {
  int64_t token, tokens;
  int64_t panel, panels;
  const cpu_dense_scratch *s;
  int packed; /* X lies in scratch, whole, from the chunk of panels before */
} cpu_dense_chunk;

/* One of the matmuls. */
typedef struct cpu_dense_kind {
  const char *name;    /* as the parameter `matmul` has it */
  size_t size;         /* of a plan, which begins with a cpu_dense_plan */
  int64_t x_row;       /* floats of a row of a block of X */
  int64_t c_floats;    /* of a chunk's C, which sets the panels; 32 panels at least, however many tokens */
  int64_t most_panels; /* of a chunk, however few tokens; 0: no limit */
  int64_t own;         /* floats of scratch that the kind has for itself */
  int widens;          /* 16-bit panels: the scratch has room for one of f32 */
  int64_t (*tokens)(const cpu_matmul *shape); /* the most of a chunk */
  int64_t (*rows)(int64_t tokens);            /* of a chunk of so many tokens; NULL: as many */
  /* Answers NO with the reason, and 0, to what it cannot do. */
  int (*fits)(const cpu_state *state, const bs_op_query *query, const cpu_matmul *shape,
              bs_op_answer *answer);
  /* Columns first .. first+count of the chunk's tokens, to x. */
  void (*pack)(const cpu_dense_call *call, const cpu_dense_chunk *chunk, int64_t first, int64_t count,
               float *x);
  /* C of the chunk (+)= their products. */
  void (*multiply)(const cpu_dense_plan *plan, const cpu_dense_chunk *chunk, int64_t first, int64_t count,
                   const float *x);
  /* A member has finished its share; NULL: nothing to do. */
  void (*done)(const cpu_dense_plan *plan, const cpu_dense_scratch *scratch);
} cpu_dense_kind;

struct cpu_dense_plan {
  const cpu_dense_kind *kind;
  const bs_exec *exec;
  const cpu_kernels *kernels;
  const cpu_packed *w;
  cpu_matmul shape;
  cpu_columns columns;
  bs_partition *partition; /* own copy; NULL unless X_FULL */
  cpu_dense_sizes s;
  float *memory; /* of all members, while it runs */
  uint32_t width;
};

/* Reads the query, and sets the sizes. NO with the reason, and 0, if it cannot be served. */
int cpu_dense_judge(const cpu_dense_kind *kind, const cpu_state *state, const bs_op_query *query,
                    cpu_matmul *out_shape, cpu_dense_sizes *out_sizes, bs_op_answer *answer);
/* prepare, run and plan_free of bs_op_impl. The parts of a plan that are its kind's own are zero. */
int32_t cpu_dense_prepare(const cpu_dense_kind *kind, const cpu_state *state, const bs_exec *exec,
                          const bs_op_query *query, void *packed, cpu_dense_plan **out_plan, bs_error *err);
int32_t cpu_dense_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);
void cpu_dense_free(void *plan);
/* The weights after panel p of the chunk's block: the next panels, the next block, the next chunk. */
const void *cpu_dense_next(const cpu_packed *w, const cpu_dense_chunk *chunk, int64_t p, int64_t first);
/* Columns first .. first+count of the chunk's token t in X's dtype: where they lie, or picked into `room`. */
const void *cpu_dense_row(const cpu_dense_call *call, const cpu_dense_chunk *chunk, int64_t t, int64_t first,
                          int64_t count, void *room);

static inline const void *cpu_dense_at(const void *base, int64_t index, uint32_t dtype) {
  return (const uint8_t *)base + (size_t)index * BS_DTYPE_BYTES(dtype);
}

#endif
