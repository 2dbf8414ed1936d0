/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/normalize_f32.h"
/**/
#include "plugins/cuda/ops/normalize_block_body.h"
/**/
#include "tools/standin/twins/normalize_twin.h"

const cuda_twin cuda_twin_normalize_f32 = {"normalize_f32", normalize_twin};
