/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/quantize_groups_body.h"
#include "tools/standin/twins/twins.h"

static void run_block(const quantize_groups_args *a, quantize_groups_shared *shared, cuda_at at) {
  for (at.thread = 0; at.thread < at.threads; at.thread++) quantize_groups_begin(a, shared, &at);
  for (at.thread = 0; at.thread < at.threads; at.thread++) quantize_groups_measure(a, shared, &at);
  for (at.thread = 0; at.thread < at.threads; at.thread++) quantize_groups_finish(a, shared, &at);
}

static void run(const void *args, const cuda_twin_grid *grid) {
  quantize_groups_args a = *(const quantize_groups_args *)args;
  cuda_twin_view(&a.in);
  cuda_twin_view(&a.q);
  cuda_twin_view(&a.scales);
  for (uint32_t x = 0; x < grid->x; x++) {
    quantize_groups_shared shared;
    for (int i = 0; i < CUDA_QUANTIZE_SPAN; i++) shared.most[i] = 0xa5a5a5a5u; /* of an earlier block */
    run_block(&a, &shared, (cuda_at){.threads = grid->threads, .block_x = x});
  }
}

const cuda_twin cuda_twin_quantize_groups = {"quantize_groups", run};
