/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/reduce_f64.h"
/**/
#include "plugins/cuda/ops/scan_body.h"
/**/
#include "tools/standin/twins/scan_twin.h"

const cuda_twin cuda_twin_scan_f64 = {"scan_f64", scan_twin};
