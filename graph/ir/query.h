/* SPDX-License-Identifier: MIT
 * query.h - a node as the ABI asks about it: the query of its kernel op, with all that it points to. */
#ifndef BS_GRAPH_IR_QUERY_H
#define BS_GRAPH_IR_QUERY_H
#include "graph/ir/graph.h"

typedef struct gquery {
  bs_op_query query;
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  bs_tensor_desc descs[BS_MAX_OP_ARGS];
  bs_expr expr;
  bs_expr_step steps[GX_MAX_STEPS];
  uint64_t consts[GX_MAX_CONST];
  uint8_t outs[GX_MAX_OUT];
} gquery;

/* Attention of up to so many queries is asked with BS_QUERY_TOKENWISE where the graph is. */
enum { GRAPH_TOKENWISE_QUERIES = 8 };
/* Points into itself and lives as long as *out_query stays where it is. */
void graph_query(const graph *g, const gnode *node, gquery *out_query);
/* The values of the arguments, in the order of the query: out_values[0..return). GNONE: absent. */
uint32_t graph_arguments(const gnode *node, uint32_t out_values[BS_MAX_OP_ARGS]);
/* How many values a step reads: 0 to 3, the first of a, b, c. */
uint32_t gexpr_arity(uint8_t op);
/* The bs_expr of a program, in the memory of *out_query. */
void gexpr_pack(const gexpr *expr, gquery *out_query);
#endif
