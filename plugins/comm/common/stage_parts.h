/* SPDX-License-Identifier: MIT
 * stage_parts.h - shared parts of stage.c and stage_reduce.c. */
#ifndef BS_COMM_STAGE_PARTS_H
#define BS_COMM_STAGE_PARTS_H
#include "stage.h"

static inline const unsigned char *stage_of(const comm_shown *shown, uint32_t r) {
  return shown->base + r * shown->stride;
}

/* Bytes of a half for one block, if each member has a block in it. */
static inline uint64_t stage_area(const comm_stage *s) {
  return s->half / s->n / 64u * 64u;
}

int32_t stage_share(const comm_stage *s, const bs_coll_call *call, uint64_t bytes, uint32_t root,
                    comm_shown *out, bs_error *err);
/* Elements of the longest block of call->counts. */
uint64_t stage_longest(const comm_stage *s, const bs_coll_call *call);
/* Elements [begin, end) of each block of the input into its area. */
void stage_show_areas(const comm_stage *s, const bs_coll_call *call, uint64_t begin, uint64_t end,
                      uint64_t area);
int32_t stage_all_reduce(const comm_stage *s, const bs_coll_call *call, bs_error *err);
int32_t stage_reduce_scatter(const comm_stage *s, const bs_coll_call *call, bs_error *err);
#endif
