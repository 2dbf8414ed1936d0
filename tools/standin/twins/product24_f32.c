/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/product_f32.h"
/**/
#include "plugins/cuda/ops/product_body.h"
/**/
#include "plugins/cuda/ops/product24_body.h"
/**/
#include "tools/standin/twins/product24_twin.h"

const cuda_twin cuda_twin_product24_f32 = {"product24_f32", product24_twin};
