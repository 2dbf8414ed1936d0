/* SPDX-License-Identifier: MIT
 *
 * native.c - all_reduce by MPI's own, if the call leaves the order of the sums free (BS_COLL_ANY_ORDER): for
 * the whole world, and one dtype, for input and output, that MPI reduces. As in every other collective the
 * ranks first meet and compare their calls: MPI itself would add data of different calls. MPI reduces this
 * plugin's memory, and the wait has this plugin's deadline. reduce.c computes minima and maxima of floats:
 * they are the same in any order, and MPI does not define the result for a NaN. */
#include <stdlib.h>

#include "mpi_comm.h"

static MPI_Op op_of(uint32_t reduce_op) {
  return reduce_op == BS_REDUCE_MAX ? MPI_MAX : reduce_op == BS_REDUCE_MIN ? MPI_MIN : MPI_SUM;
}

static int type_of(uint32_t dtype, MPI_Datatype *out) {
  const struct {
    uint32_t dtype;
    MPI_Datatype type;
  } types[] = {{BS_F32, MPI_FLOAT},   {BS_F64, MPI_DOUBLE}, {BS_I64, MPI_INT64_T},
               {BS_I32, MPI_INT32_T}, {BS_I8, MPI_INT8_T},  {BS_U8, MPI_UINT8_T}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i) {
    if (types[i].dtype != dtype) continue;
    *out = types[i].type;
    return 1;
  }
  return 0;
}

int mpic_native_serves(const mpic_comm *comm, const bs_coll_call *call) {
  MPI_Datatype type;
  const uint64_t n = call->rows * call->count;
  const int is_float = call->dtype_in == BS_F32 || call->dtype_in == BS_F64;
  if (is_float && call->reduce_op != BS_REDUCE_SUM) return 0;
  return (call->flags & BS_COLL_ANY_ORDER) != 0 && comm == comm->world->all &&
         comm->n == comm->world->state->size && call->dtype_in == call->dtype_out &&
         call->dtype_in == call->reduce_dtype && n > 0 && n <= INT32_MAX / 8 &&
         type_of(call->dtype_in, &type);
}

static int32_t reduce(mpic_comm *comm, const bs_coll_call *call, void *data, uint64_t n, MPI_Datatype type,
                      MPI_Op op, mpic_timer *timer, bs_error *err) {
  mpic_state *state = comm->world->state;
  const uint32_t peer = (comm->me + 1u) % comm->n;
  MPI_Request request;
  pthread_mutex_lock(&state->lock);
  const int made = MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, type, op, state->comm, &request);
  pthread_mutex_unlock(&state->lock);
  const int32_t rc = mpic_check(made, "MPI_Iallreduce", err);
  return rc != BS_OK ? rc : mpic_wire_wait(comm, &request, &peer, 1, mpic_text(comm, call), timer, err);
}

int32_t mpic_native_all_reduce(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  const uint64_t n = call->rows * call->count;
  mpic_timer timer = mpic_timer_of(comm, call);
  MPI_Datatype type = MPI_BYTE;
  (void)type_of(call->dtype_in, &type);
  int32_t rc = mpic_keep_room(comm, n * BS_DTYPE_BYTES(call->dtype_in), err);
  if (rc == BS_OK)
    rc = comm->machines > 1 ? mpic_share(comm, call, 0, MPIC_NONE, &timer, err)
                            : mpic_meet(comm, call, &timer, err);
  if (rc != BS_OK) return rc;
  comm_pack(&comm->world->math, &in, 0, n, comm->exchange_buf);
  rc = reduce(comm, call, comm->exchange_buf, n, type, op_of(call->reduce_op), &timer, err);
  if (rc == BS_OK) return comm_unpack(&comm->world->math, &out, 0, n, call->dtype_in, comm->exchange_buf);
  mpic_leave_room(comm); /* MPI may still touch it */
  return rc;
}
