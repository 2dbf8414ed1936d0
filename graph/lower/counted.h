/* SPDX-License-Identifier: MIT
 * counted.h - dims whose size depends on values. NonZero finds between none and all of the elements of its
 * input. Its output is lowered with room for all: first come the places that it finds, in order, then the
 * other places. A mark on a value of the model says along which axis only the first rows count. Operators
 * that compute each row by itself keep the mark; a scatter leaves out the rows that do not count; all others
 * are refused. Nothing that follows from a row that does not count reaches an output. */
#ifndef BS_GRAPH_LOWER_COUNTED_H
#define BS_GRAPH_LOWER_COUNTED_H
#include "graph/lower/build.h"
#include "graph/lower/frame.h"

/* How many rows count: mul / div of what a NonZero finds, at most `bound`. */
struct lower_count {
  uint32_t given;      /* the model value that NonZero reads */
  uint32_t mask, list; /* of NonZero: its input, and its places [bound], i64: those found come first */
  uint32_t root;       /* the count of NonZero that this one is made of */
  int64_t mul, div, bound;
  uint32_t rows;    /* i64, rank 0 */
  uint32_t valid;   /* bool [bound]: the row counts */
  const char *name; /* of NonZero */
};

/* ROWS: only the first rows along `axis` count. NUMBERS: integers, some of which are the number of rows. The
 * value has them as they are in the run. `bound` is a constant with the largest numbers in their place, and
 * `shadow` one with MARK_SHADOW: for operators that read shapes. BOOLS: the bools `bound` as integers.
 * SEQUENCE: the parts of length 1 along axis `shadow` (bound 0: without that dim), which may have rows (count
 * GNONE: none). */
enum mark_kind { MARK_NONE = 0, MARK_ROWS = 1, MARK_NUMBERS = 2, MARK_BOOLS = 3, MARK_SEQUENCE = 4 };
struct lower_mark {
  uint32_t kind, count, axis, bound, shadow;
};
enum { MARK_SHADOW = -77777 };

/* nonzero.c */
/* The count of the rows that NonZero finds in `mask`, times mul, through div; made when there is none yet. */
uint32_t count_of_mask(build *b, uint32_t mask, uint32_t given, const char *name, int64_t *out_mul);
/* The count of the rows of `mask`; GNONE: no NonZero had it yet. */
uint32_t count_found(const build *b, uint32_t mask);
/* 1: both are the same elements in memory. */
int count_same_view(const build *b, uint32_t x, uint32_t y);
uint32_t count_made(build *b, uint32_t root, int64_t mul, int64_t div);
/* The first k rows of x along an axis, of which all must count and no others may: else the run fails. */
uint32_t count_exactly(build *b, uint32_t x, uint32_t axis, uint32_t count, int64_t k);
/* Rows in `groups` groups of equal length, [.., groups x bound of each, ..]; the run fails where the number
 * of rows cannot be divided. *out_count is the count of each group. */
uint32_t count_in_groups(build *b, uint32_t x, uint32_t axis, uint32_t count, int64_t groups,
                         uint32_t *out_count);
/* Indices that count from the first, or if negative from the last row that counts; the run fails at others.
 */
uint32_t count_index(build *b, uint32_t index, uint32_t count);
/* Indices of rows that do not count become 0. */
uint32_t count_safe_index(build *b, uint32_t index, uint32_t axis, uint32_t count);
/* For a put: a base with one more slot along `dim`, and indices that put rows that do not count there. width:
 * coordinates in the last dim of index; 0: single ones. */
uint32_t count_with_slot(build *b, uint32_t base, uint32_t dim);
uint32_t count_put_index(build *b, uint32_t index, uint32_t axis, uint32_t count, int64_t size,
                         int64_t width);

/* fixed.c */
/* The shapes of the model allow n rows alone of the NonZero that made a count, of its mul 1. */
void lower_fix(build *b, uint32_t given, int64_t n);
/* NULL: no such number is known for the mask. */
lower_fixed *lower_fixed_of(const build *b, uint32_t mask);
/* The run fails where the i64 `holds` is 0, also if no output needs the rows: of a value whose Shape alone is
 * used, say. In a branch: only where the branch is taken. */
void lower_check(build *b, uint32_t holds);
/* Each output depends on that the numbers hold which the lowering used, and on all checks. */
int32_t lower_fixed_outputs(lower_ctx *c, bs_error *err);
/* As much of x as it has, where the i64 `holds` is not 0; else the run fails. */
uint32_t count_where(build *b, uint32_t x, uint32_t axis, int64_t k, uint32_t holds);

/* counted.c: lower_node, with the marks of the inputs; sets those of the outputs. */
int32_t lower_counted(lower_ctx *c, const gmodel_node *node, int guess, bs_error *err);
/* The rule of `node` says: only the first rows of output i count. */
void lower_mark_rows(build *b, uint32_t i, uint32_t axis, uint32_t count);
/* BS_UNSUPPORTED when the value is marked: nothing that `node` stands for takes one. */
int32_t lower_unmarked(lower_ctx *c, const gmodel_node *node, uint32_t model_value, bs_error *err);

/* counted_rules.c: what an operator does with marks. */
typedef struct count_walk {
  build b;
  const gmodel_node *node;
  const lower_mark
      *first;      /* the mark of the first input with rows, or if none has of the first with numbers */
  uint32_t at;     /* which input that is */
  uint32_t n_rows; /* inputs with rows */
  uint32_t in[8];  /* a value that takes the place of input i; GNONE: as it is */
  int keeps;       /* the outputs have rows too: */
  uint32_t axis, count;
  uint32_t cut_axis; /* output 0 is cut to `cut` along it, if cut > 0 */
  int64_t cut;
} count_walk;
/* The rule for an operator; NULL: it takes no marked input. */
typedef void (*count_rule)(count_walk *w);
count_rule count_rule_of(const gmodel_node *node);
const lower_mark *count_mark(const count_walk *w, uint32_t i, uint32_t kind); /* of input i; NULL: none */
void count_refuse(count_walk *w, const char *why);
/* The constant of integers that input i is, and its shadow (the same where it has no mark). Returns how many;
 * -1: absent. The node gets the constant. */
int count_read(count_walk *w, uint32_t i, int64_t *out, int64_t *out_shadow);
/* counted_shape.c: rules of Reshape and others that read shapes. */
void count_reshape(count_walk *w);
void count_flatten(count_walk *w);
void count_expand(count_walk *w);
void count_constant_of_shape(count_walk *w);
void count_range(count_walk *w);
void count_slice(count_walk *w);
#endif
