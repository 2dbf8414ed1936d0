/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/map_f64.h"
/**/
#include "plugins/cuda/ops/map_body.h"
/**/
#include "tools/standin/twins/map_twin.h"

const cuda_twin cuda_twin_map_f64 = {"map_f64", map_twin};
