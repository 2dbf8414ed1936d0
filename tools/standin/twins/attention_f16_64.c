/* SPDX-License-Identifier: MIT */
#define ATTENTION_WIDTH 64
#define ATTENTION_BF16 0
#include "tools/standin/twins/attention_twin.h"

const cuda_twin cuda_twin_attention_f16_64 = {"attention_f16_64", attention_twin};
