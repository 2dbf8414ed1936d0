/* SPDX-License-Identifier: MIT
 * build.h - the helpers of lower.h as expressions: a rule of several steps reads as a list of them. After the
 * first failure (b.rc) every call does nothing and returns GNONE; the rule returns b.rc at its end.
 *
 *   build b = build_begin(c, node, err);
 *   build_out(&b, 0, build_reduce(&b, BS_FOLD_SUM, build_in(&b, 0), axes, 1, keep));
 *   return b.rc; */
#ifndef BS_GRAPH_LOWER_BUILD_H
#define BS_GRAPH_LOWER_BUILD_H
#include "graph/lower/lower.h"

typedef struct build {
  lower_ctx *c;
  const gmodel_node *node;
  bs_error *err;
  int32_t rc;
} build;

/* A shape by value. */
typedef struct build_shape {
  uint32_t rank;
  int64_t dims[BS_MAX_DIMS];
} build_shape;

static inline build build_begin(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  return (build){c, node, err, BS_OK};
}

/* ---- inputs, outputs, questions ---------------------------------------------------------------- */
uint32_t build_in(build *b, uint32_t i);       /* a required input: the node is bad without it */
uint32_t build_optional(build *b, uint32_t i); /* GNONE: absent */
void build_out(build *b, uint32_t i, uint32_t value);
build_shape build_shape_of(const build *b, uint32_t value);
uint32_t build_dtype(const build *b, uint32_t value);
uint32_t build_rank(const build *b, uint32_t value);
int64_t build_dim(const build *b, uint32_t value, uint32_t axis);
int build_is_float(uint32_t dtype);
/* The dtype of ONNX's TensorProto number; 0: one that the library does not compute with. */
uint32_t build_onnx_dtype(int64_t type);
int64_t build_elements(const build_shape *shape);
int build_same(const build_shape *a, const build_shape *b);
/* The elements of the dims of `value` whose bit is set in `axes`; refuses what does not fit. */
int64_t build_count(build *b, uint32_t value, uint32_t axes);
uint32_t build_axis(build *b, int64_t axis, uint32_t rank);
/* The shape that values broadcast to; GNONE entries do not count. */
build_shape build_broadcast(build *b, const uint32_t *values, uint32_t n);
/* The only element of a constant. */
int64_t build_read_int(build *b, uint32_t value, const char *what);
double build_read_real(build *b, uint32_t value, const char *what);
/* The elements of a constant, as lower_read_ints; at most `max`. */
uint32_t build_read_ints(build *b, uint32_t value, const char *what, int64_t *out, uint32_t max);
/* A list that is the input i, or where that is absent the attribute: returns its length, *out_there 0:
 * neither. */
uint32_t build_list(build *b, uint32_t i, const char *attr, int64_t *out, uint32_t max, int *out_there);
/* Fails unless `is`: the node breaks the specification. (Inline, so that the static analyser sees what
 * follows.) */
static inline void build_check(build *b, int is, const char *what) {
  if (b->rc != BS_OK || is) return;
  lower_bad(b->c, b->node, b->err, "%s", what);
  b->rc = BS_INPUT;
}
/* Fails with BS_NO_MEMORY. */
void build_tell_no_memory(const build *b);
static inline void build_no_memory(build *b) {
  if (b->rc != BS_OK) return;
  build_tell_no_memory(b);
  b->rc = BS_NO_MEMORY;
}
/* The node is fine, but not served. */
static inline void build_refuse(build *b, uint32_t dtype, const char *why) {
  if (b->rc != BS_OK) return;
  lower_unsupported(b->c, b->node, dtype, b->err, "%s", why);
  b->rc = BS_UNSUPPORTED;
}

/* ---- constants --------------------------------------------------------------------------------- */
uint32_t build_const(build *b, uint32_t dtype, const build_shape *shape, const void *data); /* copies */
uint32_t build_real(build *b, uint32_t dtype, double value);                                /* rank 0 */
/* Numbers rounded to a float dtype. In f32 and f64 the result is a constant without a node, so that a product
 * packs it. */
uint32_t build_reals(build *b, uint32_t dtype, const build_shape *shape, const double *numbers);
uint32_t build_ints(build *b, const int64_t *values, int64_t n); /* i64 [n] */

/* ---- views ------------------------------------------------------------------------------------- */
/* strides and offset in elements, counted from `value`'s first element. */
uint32_t build_view(build *b, uint32_t value, const build_shape *shape, const int64_t *strides,
                    int64_t offset);
uint32_t build_reshape(build *b, uint32_t value, const build_shape *shape);
uint32_t build_permute(build *b, uint32_t value, const uint32_t *order);
uint32_t build_swap(build *b, uint32_t value, uint32_t x, uint32_t y); /* two axes */
/* `axis` becomes the last one (to_end), or the last one becomes `axis`; the order of the others stays. */
uint32_t build_move(build *b, uint32_t value, uint32_t axis, int to_end);
uint32_t build_expand(build *b, uint32_t value, const build_shape *shape);
uint32_t build_slice(build *b, uint32_t value, uint32_t axis, int64_t begin, int64_t count, int64_t step);
uint32_t build_unsqueeze(build *b, uint32_t value, uint32_t axis);
uint32_t build_squeeze(build *b, uint32_t value, uint32_t axis);
/* The dim at `axis` as two: outer x inner. */
uint32_t build_split_dim(build *b, uint32_t value, uint32_t axis, int64_t outer, int64_t inner);
/* n dims from `first` on as one. */
uint32_t build_join_dims(build *b, uint32_t value, uint32_t first, uint32_t n);

/* ---- sequences, and tensors of more than six dims (compound.c) ----------------------------------- */
typedef struct lower_dims {
  uint32_t rank;
  int64_t dims[LOWER_DEEP_DIMS];
} lower_dims;
uint32_t build_sequence(build *b, const uint32_t *items, uint32_t n); /* copies the items */
/* The items of a sequence, and their number; they stay as they are. */
uint32_t build_items(build *b, uint32_t value, const uint32_t **out_items);
/* These are build_shape_of, build_reshape and build_permute, where a value or its result may have up to
 * LOWER_DEEP_DIMS dims. */
lower_dims build_dims_of(const build *b, uint32_t value);
uint32_t build_reshape_dims(build *b, uint32_t value, const lower_dims *dims);
uint32_t build_permute_dims(build *b, uint32_t value, const uint32_t *order);

/* ---- kernel ops -------------------------------------------------------------------------------- */
/* A value that is written in parts; one without elements is a constant. */
uint32_t build_temp(build *b, uint32_t dtype, const build_shape *shape);
/* One output of a program, of the inputs' common shape; or into a part of a temp. */
uint32_t build_map(build *b, lower_map *m, uint8_t out, uint32_t dtype);
void build_map_into(build *b, lower_map *m, uint8_t out, uint32_t into);
/* Programs of one step, computed in the dtype that the first value's dtype implies. */
uint32_t build_unary(build *b, uint8_t step, uint32_t value, uint32_t dtype);
uint32_t build_binary(build *b, uint8_t step, uint32_t x, uint32_t y, uint32_t dtype);
/* y where `condition` is true, else z; the dtype of y. */
uint32_t build_select(build *b, uint32_t condition, uint32_t y, uint32_t z);
uint32_t build_scale(build *b, uint32_t value, double factor); /* value x factor, of floats */
uint32_t build_cast(build *b, uint32_t value, uint32_t dtype); /* the value itself when it has the dtype */
uint32_t build_copy(build *b, uint32_t value);
void build_copy_into(build *b, uint32_t value, uint32_t into);
uint32_t build_reduce(build *b, uint32_t kind, uint32_t value, uint32_t axes, double factor);
uint32_t build_normalize(build *b, uint32_t kind, double eps, uint32_t x, uint32_t gamma, uint32_t beta);
uint32_t build_contract(build *b, uint32_t x, uint32_t y, uint32_t bias, double alpha);
uint32_t build_take(build *b, uint32_t data, uint32_t index, uint32_t axis); /* rows, as Gather */
uint32_t build_reverse(build *b, uint32_t value, uint32_t axis);
/* Joins the parts one after another along an axis. */
uint32_t build_concat(build *b, const uint32_t *parts, uint32_t n, uint32_t axis);
#endif
