/* SPDX-License-Identifier: MIT
 * gather_columns_body.h - kept[b,i] = full[b, columns[i]]. */
#ifndef BS_PLUGIN_CUDA_GATHER_COLUMNS_BODY_H
#define BS_PLUGIN_CUDA_GATHER_COLUMNS_BODY_H
#include "columns_body.h"

typedef columns_args gather_columns_args;

CUDA_FN void gather_columns_thread(const gather_columns_args *a, int64_t t) {
  columns_thread(a, t, 0);
}
#endif
