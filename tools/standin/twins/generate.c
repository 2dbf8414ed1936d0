/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/generate_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  generate_args a = *(const generate_args *)args;
  cuda_twin_view(&a.out);
  a.columns.list = cuda_twin_memory(a.columns.list, (uint64_t)a.columns.count * sizeof *a.columns.list);
  a.codes = cuda_twin_memory(a.codes, (uint64_t)(a.out.rows * a.groups));
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) generate_thread(&a, t);
}

const cuda_twin cuda_twin_generate = {"generate", run};
