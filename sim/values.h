/* SPDX-License-Identifier: MIT
 * values.h - real memory of all ranks of one collective, for schedules that are checked element by element.
 * Elements are of any fixed size with an addition of their own. Each buffer stands between canaries. */
#ifndef BS_SIM_VALUES_H
#define BS_SIM_VALUES_H
#include "sim/schedule.h"

typedef struct sim_element {
  uint32_t bytes;
  /* dst[i] += src[i]; BS_NUMERIC with a text when these two must not be added. */
  int32_t (*add)(const struct sim_element *self, void *dst, const void *src, uint64_t count, bs_error *err);
  uint32_t dtype; /* of typed elements */
  uint32_t words; /* of sets */
} sim_element;

/* An element of a dtype, added as the host does: by bs_load_f64 and bs_store_f64, integers exactly. */
sim_element sim_typed(uint32_t dtype);

typedef struct sim_values sim_values;

/* Allocates IN, OUT and SCRATCH of each rank. OUT and SCRATCH are filled with bytes that are no likely value.
 * in_place: IN lies where OUT does (all_reduce, broadcast) or at the rank's block of it (all_gather). */
int32_t sim_values_new(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                       sim_element element, int in_place, sim_values **out_values, bs_error *err);
void sim_values_free(sim_values *v);
/* For the runner; lives as long as the values. */
const sim_data *sim_values_data(sim_values *v);
void *sim_values_at(sim_values *v, uint32_t rank, uint32_t buffer, uint64_t index);
/* BS_NUMERIC when a rank wrote outside of a buffer; which one. */
int32_t sim_values_canaries(const sim_values *v, bs_error *err);
/* Bytes that sim_values_new would take; UINT64_MAX on overflow. */
uint64_t sim_values_bytes(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                          uint32_t element_bytes);

/* The source of an element of OUT: every rank (returns 1), or *out_rank. *out_index is its place in that
 * rank's IN. */
int sim_source_of(const bs_coll_shape *shape, uint32_t rank, uint64_t index, uint32_t *out_rank,
                  uint64_t *out_index);
#endif
