/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/rows_i32.h"
/**/
#define ROWS_BYTES 1
#define ROWS_MOST 4
#include "plugins/cuda/ops/rows_body.h"
/**/
#include "tools/standin/twins/rows_twin.h"

const cuda_twin cuda_twin_rows_i32_4 = {"rows_i32_4", rows_twin};
