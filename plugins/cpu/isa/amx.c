/* SPDX-License-Identifier: MIT
 *
 * amx.c - AMX: bf16 products by tiles. Compiled with these flags, reached through kernels.h only. */
#include "amx_product.h"

const cpu_amx cpu_amx_tiles = {
    .begin = amx_begin,
    .product = amx_product,
    .end = amx_end,
};
