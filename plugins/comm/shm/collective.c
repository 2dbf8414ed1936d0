/* SPDX-License-Identifier: MIT
 *
 * collective.c - the collectives: those of ../common/stage.h, over the buffers of the mapping.
 */
#include "../common/stage.h"
#include "shm.h"

static unsigned char *room(void *comm_ptr) {
  const shm_comm *comm = comm_ptr;
  return shm_buffer(comm, comm->me, comm->pos + 1u);
}

static int32_t meet(void *comm_ptr, const bs_coll_call *call, comm_shown *out, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const int32_t rc = shm_meet(comm, call, err);
  *out = (comm_shown){shm_buffer(comm, 0, comm->pos), 4u * SHM_PIECE};
  return rc;
}

static int32_t mismatch(void *comm_ptr, uint32_t member_a, const char *a, uint32_t member_b, const char *b,
                        bs_error *err) {
  shm_comm *comm = comm_ptr;
  return shm_fail_mismatch(comm, comm->area->ranks[member_a], a, comm->area->ranks[member_b], b, err);
}

int32_t shm_collective(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const comm_stage stage = {.comm = comm,
                            .math = shm_math(comm),
                            .n = comm->area->n,
                            .me = comm->me,
                            .half = SHM_PIECE,
                            .part = SHM_PIECE,
                            .inline_max = comm->world->inline_max,
                            .room = room,
                            .meet = meet,
                            .mismatch = mismatch};
  int32_t rc = comm_stage_check(&stage, call, err);
  if (rc == BS_OK) rc = shm_begin(comm, call, err);
  if (rc == BS_OK) rc = comm_stage_run(&stage, call, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}
