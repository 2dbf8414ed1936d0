/* SPDX-License-Identifier: MIT
 * sibling.h - implementations that share packed weights: those of one plugin with the same backend and the
 * same name. Used by dispatch.c (a plan over weights that another op packed) and select.c (BS_QUERY_TRAIN).
 */
#ifndef BS_CORE_OP_SIBLING_H
#define BS_CORE_OP_SIBLING_H
#include "core/op/select.h"

/* The sibling of `thing` for `op`, NULL in *out_thing when its plugin has none. BS_NO_MEMORY or BS_OK. */
int32_t bs_sibling_find(const bs_op_host *host, const bs_thing *thing, const char *op,
                        const bs_thing **out_thing, bs_error *err);
/* A query of matmul or matmul24 with BS_QUERY_TRAIN: an answer of an implementation whose weights no backward
 * pass could use becomes NO, with the reason. Other queries: nothing. */
int32_t bs_sibling_require(const bs_op_host *host, const bs_op_query *query, bs_candidate *candidate,
                           bs_error *err);
#endif
