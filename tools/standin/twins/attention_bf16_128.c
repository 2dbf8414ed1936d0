/* SPDX-License-Identifier: MIT */
#define ATTENTION_WIDTH 128
#define ATTENTION_BF16 1
#include "tools/standin/twins/attention_twin.h"

const cuda_twin cuda_twin_attention_bf16_128 = {"attention_bf16_128", attention_twin};
