/* SPDX-License-Identifier: MIT
 * step.c - single steps of a schedule: their text, and what algorithm.h says of each. */
#include <stdio.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "sim/schedule.h"

uint64_t sim_buffer_elements(const bs_coll_shape *shape, uint64_t scratch, uint32_t rank, uint32_t buffer) {
  const uint64_t own = bs_coll_first(shape, rank + 1) - bs_coll_first(shape, rank), all = shape->count;
  if (buffer == BS_BUFFER_SCRATCH) return scratch;
  const int in = buffer == BS_BUFFER_IN;
  switch (shape->kind) {
    case BS_COLL_ALL_GATHER:
      return in ? own : all;
    case BS_COLL_REDUCE_SCATTER:
      return in ? all : own;
    case BS_COLL_BROADCAST:
      return in && rank != shape->root ? 0 : all;
    case BS_COLL_ALL_TO_ALL:
      return in ? all : own * shape->world_size;
    default:
      return all;
  }
}

int32_t sim_scratch_of(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape, uint32_t rank,
                       uint64_t *out_elements, bs_error *err) {
  *out_elements = 0;
  return algorithm->scratch == NULL ? BS_OK : algorithm->scratch(state, shape, rank, out_elements, err);
}

void sim_step_text(uint32_t rank, const bs_coll_step *step, char *out_text, size_t size) {
  static const char *const actions[] = {"?", "SEND to", "RECV from", "REDUCE from", "COPY"};
  static const char *const buffers[] = {"IN", "OUT", "SCRATCH", "?"};
  const uint32_t action = step->action <= BS_STEP_COPY ? step->action : 0;
  char peer[24] = "";
  if (action != BS_STEP_COPY) snprintf(peer, sizeof peer, " %u", step->peer);
  snprintf(out_text, size, "rank %u round %u: %s%s, %s[%llu..%llu)", rank, step->round, actions[action], peer,
           buffers[step->buffer < 3 ? step->buffer : 3], (unsigned long long)step->first,
           (unsigned long long)(step->first + step->count));
}

static int32_t bad(uint32_t rank, const bs_coll_step *step, const char *what, bs_error *err) {
  char text[160];
  sim_step_text(rank, step, text, sizeof text);
  return bs_error_set(err, BS_PLUGIN, "BS-ALG-STEP", "%s: %s", text, what);
}

static int outside(const bs_coll_shape *shape, uint64_t scratch, uint32_t rank, uint32_t buffer,
                   uint64_t first, uint64_t count) {
  const uint64_t room = sim_buffer_elements(shape, scratch, rank, buffer);
  return first > room || count > room - first;
}

int32_t sim_step_check(const bs_coll_shape *shape, uint64_t scratch, uint32_t rank, const bs_coll_step *step,
                       bs_error *err) {
  const int own = step->action == BS_STEP_REDUCE && step->peer == rank, copy = step->action == BS_STEP_COPY;
  if (step->action < BS_STEP_SEND || step->action > BS_STEP_COPY)
    return bad(rank, step, "there is no such action", err);
  if (step->buffer > BS_BUFFER_SCRATCH || ((own || copy) && step->from_buffer > BS_BUFFER_SCRATCH))
    return bad(rank, step, "there is no such buffer", err);
  if (!copy && step->peer >= shape->world_size) return bad(rank, step, "there is no such rank", err);
  if (!copy && !own && step->peer == rank)
    return bad(rank, step, "a rank sends to itself or receives from itself", err);
  if (step->action != BS_STEP_SEND && step->buffer == BS_BUFFER_IN)
    return bad(rank, step, "IN is read only", err);
  if (outside(shape, scratch, rank, step->buffer, step->first, step->count))
    return bad(rank, step, "the elements lie outside of the buffer", err);
  if ((own || copy) && outside(shape, scratch, rank, step->from_buffer, step->from_first, step->count))
    return bad(rank, step, "the elements that are read lie outside of their buffer", err);
  return BS_OK;
}
