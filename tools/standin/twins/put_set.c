/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/put_set_body.h"
/**/
#include "tools/standin/twins/indexed_twin.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  put_args a = *(const put_args *)args;
  indexed_args_here(&a.in);
  /* The last thread first: an update that a later one must suppress would else be written over. */
  for (int64_t t = (int64_t)grid->x * grid->threads; t-- > 0;) put_set_thread(&a, t);
}

const cuda_twin cuda_twin_put_set = {"put_set", run};
