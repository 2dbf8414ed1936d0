/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/product_f32.h"
/**/
#include "plugins/cuda/ops/product_body.h"
/**/
#include "tools/standin/twins/product_twin.h"

const cuda_twin cuda_twin_product_f32 = {"product_f32", product_twin};
