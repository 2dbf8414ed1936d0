/* SPDX-License-Identifier: MIT
 * expr.h - checks and names of the programs of `map` (blockshock/expr.h). Used by core/op, graph
 * and tests. Pure and thread-safe. */
#ifndef BS_CORE_OP_EXPR_H
#define BS_CORE_OP_EXPR_H
#include "blockshock/op.h"
#include "core/base/text.h"

/* Is the program of `op` well formed; rank: of its outputs, what BS_EXPR_INDEX may name.
 * BS_INVALID_ARGUMENT, BS-OP-EXPR, names the step. */
BS_API int32_t bs_expr_check(const char *op, const bs_expr *expr, uint32_t rank, bs_error *err);
/* The form (enum bs_map_form) that a well-formed program is, whatever expr->form says; BS_MAP_NONE. */
BS_API uint32_t bs_expr_form_of(const bs_expr *expr);
/* "gelu_tanh"; "?" for an unknown number. "rope"; "none". Static. */
BS_API const char *bs_expr_op_name(uint32_t op);
BS_API const char *bs_expr_form_name(uint32_t form);
/* For keys of choices: "f32:silu_mul", or the sizes and a hash of all that the program says. */
BS_API void bs_expr_text(const bs_expr *expr, bs_text *out);
#endif
