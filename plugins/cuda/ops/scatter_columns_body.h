/* SPDX-License-Identifier: MIT
 * scatter_columns_body.h - full[b, columns[i]] = kept[b,i]; other columns stay. */
#ifndef BS_PLUGIN_CUDA_SCATTER_COLUMNS_BODY_H
#define BS_PLUGIN_CUDA_SCATTER_COLUMNS_BODY_H
#include "columns_body.h"

typedef columns_args scatter_columns_args;

CUDA_FN void scatter_columns_thread(const scatter_columns_args *a, int64_t t) {
  columns_thread(a, t, 1);
}
#endif
