/* SPDX-License-Identifier: MIT
 * graph.h - queries and oracles of the ops of graphs (map, normalize, attention, attention_dx, contract,
 * reduce, take, put, topk): tensors of any rank, any strides, broadcasts. graph.c has the common part.
 * graph_OP.c draws the queries of one op and computes its right outputs. */
#ifndef BS_KIT_GRAPH_H
#define BS_KIT_GRAPH_H
#include "kit/op.h"

enum { KIT_GRAPH_OPS = 9 };
enum { KIT_DENSE = 16 }; /* of spread: as every implementation takes it */
/* The values of inputs: numbers in [-1, 1) and zeros of both signs; some NaN and infinities; subnormals. */
enum kit_values { KIT_PLAIN = 0, KIT_SPECIAL = 1, KIT_SMALL = 2 };

typedef struct kit_graph_op {
  const char *op;
  uint32_t floats, integers; /* families of dtypes that it has queries of */
  uint32_t in_places;        /* ways in which an output may be in an input */
  uint32_t rounds;           /* it rounds: subnormals are a useful test */
  /* Makes arguments, attributes and values of a query, only from d->shape. */
  void (*make)(kit_data *d, uint64_t *seed);
  void (*judge)(const kit_data *d, uint32_t tolerance, int special);
  /* Selects way `way` of in_places: which output shares memory with which input. */
  void (*in_place)(const kit_data *d, uint32_t way, uint32_t *out_output, uint32_t *out_input);
} kit_graph_op;
extern const kit_graph_op kit_graph_map, kit_graph_normalize, kit_graph_attention, kit_graph_attention_dx,
    kit_graph_contract, kit_graph_reduce, kit_graph_take, kit_graph_put, kit_graph_topk;
/* NULL: not an op of graphs. */
const kit_graph_op *kit_graph_find(const char *op);

/* A size of a query: smaller if its dims have shrunk. */
int64_t kit_graph_size(const kit_data *d, int64_t size);
/* Dims [.., rows, cols] of a drawn rank of at least `least`; returns the rank. Outer ones are 1, 2 or 3. */
uint32_t kit_graph_dims(const kit_data *d, uint64_t *seed, uint32_t least, uint32_t most, int64_t rows,
                        int64_t cols, int64_t *out_dims);
/* Makes an op of one dtype: x; sometimes bool, if `bools`. */
void kit_graph_one_dtype(kit_data *d, int bools);
/* Makes argument i with a drawn memory layout. repeats: dims that have stride 0. */
void kit_graph_arg(kit_data *d, uint32_t i, uint32_t dtype, uint32_t rank, const int64_t *dims,
                   uint32_t repeats);
/* Dims of an input that is broadcast to `dims`: each of them, or 1; bits of *out_repeats: has stride 0. */
void kit_graph_broadcast(const kit_data *d, uint64_t *seed, uint32_t rank, const int64_t *dims,
                         int64_t *out_dims, uint32_t *out_repeats);
/* Fills in values, only from d->shape. */
void kit_graph_fill(kit_data *d, uint32_t i);
/* Fills them in likewise; integers of two queries of three are larger: up to 2^8 or 2^15, or of their whole
 * range (of i64 what f64 holds, 2^52). */
uint32_t kit_graph_wide(const kit_data *d); /* 0: not */
void kit_graph_fill_wide(kit_data *d, uint32_t i);
/* The seed for values that an op fills in itself: the draws of its query do not depend on their number. */
uint64_t kit_graph_seed(const kit_data *d, uint32_t i);

/* Element `i` of a space of dims; of a tensor over it, which may have 1 in some of them or fewer dims. */
void kit_graph_at(int64_t i, uint32_t rank, const int64_t *dims, int64_t *out_at);
double kit_graph_value(const kit_tensor *m, uint32_t rank, const int64_t *at);
/* The number of that element in the tensor. */
int64_t kit_graph_number(const kit_tensor *m, uint32_t rank, const int64_t *at);
int64_t kit_graph_count(uint32_t rank, const int64_t *dims);

/* Compares element i of output `arg` with the oracle; special: only its class if the bound is not a
 * number. */
void kit_graph_check(const kit_data *d, uint32_t arg, int64_t i, double want, double slack, int special);
/* The unit round-off of the answer's class. */
double kit_graph_unit(const kit_data *d, uint32_t tolerance);

/* kit_data_make and kit_data_text of these ops. */
void kit_graph_make(kit_data *d, uint64_t *seed);
const char *kit_graph_text(const kit_data *d);
/* graph_plans.c: numerics.rows, numerics.in_place and truth.huge of these ops. */
void kit_graph_rows(kit_actor *a);
void kit_graph_in_place(kit_actor *a);
void kit_graph_huge(kit_data *d, uint32_t which);
/* Kinds of queries that a plugin may serve one of: how many numbers of the grid show each. */
uint32_t kit_graph_kinds(const char *op);
/* 0: the grid has no such query. */
int kit_graph_fit(const char *op, int integers);
#endif
