/* SPDX-License-Identifier: MIT
 * whole.c - see whole.h. Called by gradient.c and train.c. */
#include "lab/phase/whole.h"

#include <string.h>

int32_t bs_whole_open(bs_whole *whole, const bs_case *c, bs_rank *rank, bs_error *err) {
  const bs_layer_spec *s = &c->spec;
  memset(whole, 0, sizeof *whole);
  if (s->y_placement != BS_PARTIAL || c->world_size < 2) return BS_OK;
  const bs_collective sum = {.struct_size = sizeof sum,
                             .kind = BS_COLL_ALL_REDUCE,
                             .dtype_in = s->y_dtype,
                             .dtype_out = s->y_dtype,
                             .rows = (uint64_t)s->B,
                             .count = (uint64_t)s->N,
                             .site = BS_LAB_SITES "y"};
  const int32_t rc = bs_case_tensor(rank, s->y_dtype, 2, s->B, s->N, &whole->y, err);
  return rc == BS_OK ? bs_rank_get_api()->collective_prepare(rank, &sum, &whole->plan, err) : rc;
}

int32_t bs_whole_read(bs_whole *whole, bs_rank *rank, const bs_tensor *y, void *values, bs_error *err) {
  if (whole->plan == NULL) return bs_rank_copy_out(rank, y, values, err);
  const int32_t rc = bs_rank_get_api()->collective_run(whole->plan, y, &whole->y, NULL, err);
  return rc == BS_OK ? bs_rank_copy_out(rank, &whole->y, values, err) : rc;
}

void bs_whole_close(bs_whole *whole, bs_rank *rank) {
  if (whole->plan) bs_rank_get_api()->collective_release(whole->plan);
  if (whole->y.data) bs_rank_get_api()->tensor_free(rank, &whole->y);
  memset(whole, 0, sizeof *whole);
}
