/* SPDX-License-Identifier: MIT
 * bucket.h - one plan for a range of sizes. The model is lowered and optimised at the corners of the range:
 * the largest sizes, and those one smaller. The graphs may differ only in numbers (dims, strides, offsets,
 * attributes). Each number is then a multilinear function of the sizes. A further lowering at the smallest
 * sizes must agree with it. The plan is made at the largest sizes; another size of the range only sets
 * numbers.
 * alike.c compares graphs, bucket.c makes the table, rebind.c sets the numbers. */
#ifndef BS_GRAPH_RUN_BUCKET_H
#define BS_GRAPH_RUN_BUCKET_H
#include <string.h>

#include "graph/run/run.h"

enum { GBUCKET_SYMBOLS = 2, GBUCKET_CORNERS = 1 << GBUCKET_SYMBOLS };

/* The sizes of a bucket. The last range ends at 512, then at multiples of it; 1 and 2 are ranges of one size.
 */
int64_t gbucket_end(int64_t size);
int64_t gbucket_least(int64_t end);

/* A range of sizes: symbols that vary, and sizes of all symbols (of those that vary: the largest). */
typedef struct gbucket_range {
  uint32_t n, symbol[GBUCKET_SYMBOLS];
  int64_t least[GBUCKET_SYMBOLS];
  int64_t *sizes;
  uint32_t n_sizes;
} gbucket_range;
int gbucket_has(const gbucket_range *range, const int64_t *sizes);

/* The number of the graph at `at`. u and v are how far the two sizes are below the largest ones, and
 * n = c[0] + c[1] u + c[2] v + c[3] u v. The number is n as int64_t, n as double, or 1 / n. */
enum gnumber_kind { GNUMBER_INT = 0, GNUMBER_DOUBLE = 1, GNUMBER_INVERSE = 2 };
typedef struct gbucket_number {
  void *at;
  int64_t c[GBUCKET_CORNERS];
  uint32_t kind;
} gbucket_number;

/* A stride that is `times` one of the root, which may be a product of sizes. */
typedef struct gbucket_stride {
  int64_t *at;
  const int64_t *of;
  int64_t times;
} gbucket_stride;

/* A constant whose dims or contents vary. Its elements are those of the largest sizes at the same places; or,
 * of integers, c[i] are the coefficients of each element as those of a number. */
typedef struct gbucket_constant {
  uint32_t value;
  void *data;                   /* of the largest sizes */
  void *packed;                 /* room for those of a size; NULL: they lie in a row in `data` */
  int64_t *c[GBUCKET_CORNERS];  /* c[0] NULL: no integers that vary */
  int64_t strides[BS_MAX_DIMS]; /* of data and c */
} gbucket_constant;

/* Owned by its binding, whose graph it writes into. */
typedef struct gbucket {
  gbucket_range range;
  gbucket_number *numbers;
  gbucket_stride *strides; /* set after those of `dense` */
  gbucket_constant *constants;
  uint32_t *dense; /* values whose strides are those of their dims */
  uint32_t *roots; /* whose tensors, and those of their views, change */
  uint32_t *over;  /* roots that lie in another's memory, where the other's place varies, in order */
  uint32_t *again; /* steps whose op is prepared for each size */
  uint8_t
      *looked; /* of each size, where the graph of it must be looked at: 1: it is the range's, 2: another */
  uint32_t n_numbers, n_strides, n_constants, n_dense, n_roots, n_over, n_again;
} gbucket;

/* NaN is NaN, and -0 is not 0. */
static inline int gbucket_same_bits(double a, double b) {
  uint64_t x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  return x == y;
}

/* ---- alike.c --------------------------------------------------------------------------------- */

/* Values and nodes of two graphs that stand at the same place. */
typedef struct gpairs {
  const graph *a, *b;
  uint32_t *value; /* of each value of a: that of b; GNONE: no node and no port of a needs it */
  uint32_t *back;  /* of each value of b */
  uint32_t *node;  /* of each node of a */
  uint32_t *expr;  /* of each program of a: that of b; GNONE: no node has it */
} gpairs;
/* BS_UNSUPPORTED says where the graphs differ in more than numbers. gpairs_free in every case. */
int32_t gpairs_make(const graph *a, const graph *b, gpairs *out_pairs, bs_error *err);
/* Are the elements of the constant `part` those of `whole` at the same places? Their data is there. */
int gpairs_is_leading(const gvalue *whole, const gvalue *part);
void gpairs_free(gpairs *pairs);

/* ---- bucket.c -------------------------------------------------------------------------------- */

/* Lowers and optimises the model at sizes. */
typedef struct gbucket_lower {
  int32_t (*make)(void *user, const int64_t *sizes, graph **out_graph, gpass_trace *out_traces,
                  bs_error *err);
  void *user;
} gbucket_lower;
/* A binding for the whole range, at its largest sizes. BS_UNSUPPORTED: the sizes must be planned alone, the
 * message says why. Takes over range->sizes when it succeeds. */
int32_t gbucket_make(gcore *core, grank *rank, const gbucket_range *range, const gbucket_lower *lower,
                     gbinding **out_binding, bs_error *err);
void gbucket_free(gbucket *bucket);

/* ---- rebind.c -------------------------------------------------------------------------------- */

/* The place of sizes in `looked`; NULL: they need no look. */
uint8_t *gbucket_looked(const gbucket *bucket, const int64_t *sizes);
/* Writes the numbers of a size into the graph. */
void gbucket_write(const gbucket *bucket, graph *g, const int64_t *sizes);
/* The binding is for these sizes of its range from here on; all TEMPs lie in its arena. When it fails, the
 * binding is for the sizes that it was for. */
int32_t gbucket_bind(gbinding *binding, const int64_t *sizes, bs_error *err);
/* The graph is the one that `own`, planned for the same sizes alone, has. BS_INTERNAL: it is not. */
int32_t gbucket_verify(const gbinding *binding, const graph *own, bs_error *err);
#endif
