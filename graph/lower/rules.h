/* SPDX-License-Identifier: MIT
 * rules.h - rules that lie in a file of their own and have their row in a family's table. */
#ifndef BS_GRAPH_LOWER_RULES_H
#define BS_GRAPH_LOWER_RULES_H
#include "graph/lower/build.h"

int32_t lower_einsum(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_linear_attention(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_matmul_nbits(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_gather_blocks(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_rotary(lower_ctx *c, const gmodel_node *node, bs_error *err);
#endif
