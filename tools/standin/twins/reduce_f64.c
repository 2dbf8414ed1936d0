/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/reduce_f64.h"
/**/
#include "plugins/cuda/ops/reduce_body.h"
/**/
#include "tools/standin/twins/reduce_twin.h"

const cuda_twin cuda_twin_reduce_f64 = {"reduce_f64", reduce_twin};
