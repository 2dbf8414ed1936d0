/* SPDX-License-Identifier: MIT
 *
 * amx_model.c - The model of AMX's tile instructions (amx.h), for tests on any machine: isa=amx_model. */
#define CPU_AMX_MODEL
#include "amx_whole.h"

const cpu_amx cpu_amx_model = {
    .begin = amx_begin,
    .product = amx_product,
    .end = amx_end,
    .whole = amx_whole,
};
