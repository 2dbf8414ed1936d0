/* SPDX-License-Identifier: MIT
 * choose.h - which algorithm of cuSPARSELt makes a product: its own choice, or, with tuning, the fastest of
 * those it has, timed once and kept. */
#ifndef BS_PLUGIN_CUDA_CUSPARSELT_CHOOSE_H
#define BS_PLUGIN_CUDA_CUSPARSELT_CHOOSE_H
#include "product.h"

/* A choice, known by the shape and the kind of device. */
struct cuda_splt_choice {
  cuda_splt_shape shape;
  int32_t capability, multiprocessors;
  uint64_t workspace; /* bytes that it needs */
  int32_t id;
  uint32_t reserved;
};

/* Chooses an algorithm, and leaves the product with a plan. Any rank may call it; others wait while one is
 * timing, so that ranks of one process on equal devices get the same. `weight` is compressed, and is only
 * read. */
int32_t cuda_splt_choose(const bs_exec *exec, cuda_splt_product *product, const cuda_splt_shape *shape,
                         const void *weight, uint64_t *out_workspace, bs_error *err);
#endif
