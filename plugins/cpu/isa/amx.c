/* SPDX-License-Identifier: MIT
 *
 * amx.c - AMX: products of bf16 and of bytes by tiles. Compiled with these flags, reached through kernels.h
 * only. */
#include "amx_whole.h"

const cpu_amx cpu_amx_tiles = {
    .begin = amx_begin,
    .product = amx_product,
    .end = amx_end,
    .whole = amx_whole,
};
