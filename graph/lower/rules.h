/* SPDX-License-Identifier: MIT
 * rules.h - rules that lie in a file of their own and have their row in a family's table. */
#ifndef BS_GRAPH_LOWER_RULES_H
#define BS_GRAPH_LOWER_RULES_H
#include "graph/lower/window.h"

int32_t lower_non_zero(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_split_to_sequence(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_sequence_at(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_einsum(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_linear_attention(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_matmul_nbits(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_gather_blocks(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_contrib_attention(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_multi_head_attention(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_embed_norm(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_rotary(lower_ctx *c, const gmodel_node *node, bs_error *err);

/* ---- bytes: quant.c, quant_product.c ---------------------------------------------------------- */

/* The range of an integer dtype of eight bits; 0: another dtype. */
int lower_byte_range(uint32_t dtype, double *out_low, double *out_high);
/* x / scale + zero, rounded to the nearest integer before the zero is added, and held in the dtype's range.
 * `at` is the dtype in which the quotient is rounded; 0: as computed. */
uint32_t lower_quantize(build *b, uint32_t x, uint32_t scale, uint32_t zero, uint32_t at, uint32_t dtype);
/* The product of two matrices of bytes less their zero points, plus a bias, as i32. A zero point of one dim
 * belongs to the rows of x or to the columns of y. GNONE: without it. */
uint32_t lower_product_of_bytes(build *b, uint32_t x, uint32_t x_zero, uint32_t y, uint32_t y_zero,
                                uint32_t bias);
/* sx sy / so in f32; so GNONE: 1. */
uint32_t lower_product_scale(build *b, uint32_t sx, uint32_t sy, uint32_t so);
/* sums scale, rounded to the nearest integer, plus zero, held in the range of the dtype. */
uint32_t lower_rounded(build *b, uint32_t sums, uint32_t scale, uint32_t zero, uint32_t dtype);
int32_t lower_matmul_integer(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_qlinear_matmul(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_conv_integer(lower_ctx *c, const gmodel_node *node, bs_error *err);
int32_t lower_qlinear_conv(lower_ctx *c, const gmodel_node *node, bs_error *err);

/* ---- convolutions: conv.c --------------------------------------------------------------------- */

/* Checks x, kernel and bias, fills `w`, and returns the groups. */
int64_t lower_conv_read(build *b, uint32_t x, uint32_t kernel, uint32_t bias, window *w);
/* The windows of a padded input as rows [N, out.., C kernel]. */
uint32_t lower_conv_rows(build *b, uint32_t x, const window *w);
/* The convolution of a padded input by a contraction: [N, M, out..]. */
uint32_t lower_conv_contract(build *b, uint32_t x, uint32_t kernel, int64_t groups, const window *w);
#endif
