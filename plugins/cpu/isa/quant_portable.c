/* SPDX-License-Identifier: MIT
 *
 * quant_portable.c - the products with quantised weights for any processor. */
#include "vec_portable.h"

#include "quant_wide.h"

const cpu_quant_fns cpu_quant_portable = Q_TABLE("portable", q_whole);
