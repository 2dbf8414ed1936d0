/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/rows_f32.h"
/**/
#define ROWS_MOST 4
#include "plugins/cuda/ops/rows_body.h"
/**/
#include "tools/standin/twins/rows_twin.h"

const cuda_twin cuda_twin_rows_f32_4 = {"rows_f32_4", rows_twin};
