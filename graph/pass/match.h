/* SPDX-License-Identifier: MIT
 * match.h - what passes ask of a graph before they rewrite it: which node writes a value, which reads it, and
 * whether two values show the same elements. */
#ifndef BS_GRAPH_PASS_MATCH_H
#define BS_GRAPH_PASS_MATCH_H
#include "graph/ir/graph.h"

/* The only node that writes the value's root, where the value is the whole root in order (a reshape); else
 * GNONE. */
uint32_t match_producer(const graph *g, uint32_t value);
/* Returns that node if it has that op, and its result has no port and no reader but `user` (GNONE: any). */
uint32_t match_only(const graph *g, uint32_t value, uint32_t op, uint32_t user);
/* Both show the same elements of the same root with the same dims: an axis of one is that axis of the other.
 */
int match_same(const graph *g, uint32_t a, uint32_t b);
/* Both have the same rank and dims. */
int match_dims(const graph *g, uint32_t a, uint32_t b);
/* The dims of `rows`, the last of them 1: one number for each row. */
int match_row_number(const graph *g, uint32_t value, uint32_t rows);
/* A value between, whose rounding goes away, is rounded no coarser than the result `out` is. */
int match_keeps(const graph *g, uint32_t between, uint32_t out);
/* A single number of a constant. */
int match_number(const graph *g, uint32_t value, double *out_number);
/* The value is one row along the last dimension of `n` elements without gaps, broadcast over all others. */
int match_row(const graph *g, uint32_t value, int64_t n);
/* A view of `value` with these dims (a reshape of it); *out_value GNONE where it would need a copy. */
int32_t match_reshape(graph *g, uint32_t value, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                      bs_error *err);
/* alpha.c: a view of a constant whose elements are multiplied by a number while they are packed, as the
 * weight of a matmul; *out_weight GNONE: an element would leave the normal range, or take more than one
 * rounding. */
int32_t match_scaled_weight(graph *g, uint32_t weight, double factor, uint32_t *out_weight, bs_error *err);
/* The slot of map `n` that reads `value`'s root; n_in where none does, or several. */
uint32_t match_slot(const graph *g, const gnode *n, uint32_t root);
/* The op of the node takes these arguments (bs_op_check). */
int match_accepts(const graph *g, const gnode *node);
/* Puts `node` in the place of old[0], the last of the nodes old[0..n) whose work it does (GNONE: none). The
 * others are removed where their outputs are now its own, or nothing reads them. Does nothing where the op
 * does not take these arguments (bs_op_check), or where a state that one of them reads is written before
 * old[0]. *io_changes counts what was done; *out_node (NULL: not wanted) is the new node. */
int32_t match_replace(graph *g, const gnode *node, const uint32_t *old, uint32_t n, uint32_t *out_node,
                      uint32_t *io_changes, bs_error *err);
/* A node without inputs or outputs. */
gnode match_node(uint32_t op, uint32_t n_in, uint32_t n_out);
#endif
