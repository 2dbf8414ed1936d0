/* SPDX-License-Identifier: MIT
 *
 * native.c - all_reduce by MPI's own, where the call leaves the order of the sums free (BS_COLL_ANY_ORDER):
 * of the whole world, of a dtype that MPI reduces, in and out alike. What the call is, is compared first, by
 * the smallest and the largest key of all ranks: MPI itself would add what does not belong together. Both run
 * on memory of ours and are waited for with our deadline.
 */
#include <stdlib.h>

#include "mpi_comm.h"

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

/* Who differs is not known here. */
static int32_t differ(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  const uint32_t me = comm->ranks[comm->me], other = (me + 1u) % comm->n;
  return mpic_fail_mismatch(comm, me, mpic_text(comm, call), other, "another, or some other rank did", err);
}

static int32_t keep_room(mpic_comm *comm, uint64_t bytes, bs_error *err) {
  if (bytes <= comm->exchange_bytes) return BS_OK;
  free(comm->exchange_buf);
  comm->exchange_buf = malloc(bytes);
  comm->exchange_bytes = comm->exchange_buf != NULL ? bytes : 0;
  return comm->exchange_buf != NULL
             ? BS_OK
             : bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a reduction of %llu bytes",
                       (unsigned long long)bytes);
}

int32_t mpic_native_all_reduce(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  static const uint32_t known[] = {BS_REDUCE_SUM, BS_REDUCE_MAX, BS_REDUCE_MIN};
  const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN};
  const mpic_matrix in = mpic_in(call, 0, call->count), out = mpic_out(call, 0, call->count);
  const uint64_t n = call->rows * call->count, head = 64;
  const uint64_t key = mpic_key(call), keys[2] = {key, ~key};
  mpic_timer timer = mpic_timer_of(comm, call);
  MPI_Datatype type = MPI_BYTE;
  uint32_t op = 0;
  while (op < 2 && known[op] != call->reduce_op) op++;
  (void)type_of(call->dtype_in, &type);
  int32_t rc = keep_room(comm, head + n * BS_DTYPE_BYTES(call->dtype_in), err);
  if (rc != BS_OK) return rc;
  memcpy(comm->exchange_buf, keys, sizeof keys);
  rc = reduce(comm, call, comm->exchange_buf, 2, MPI_UINT64_T, MPI_MAX, &timer, err);
  if (rc == BS_OK && memcmp(comm->exchange_buf, keys, sizeof keys) != 0) rc = differ(comm, call, err);
  if (rc == BS_OK) {
    mpic_pack(comm->world, &in, 0, n, comm->exchange_buf + head);
    rc = reduce(comm, call, comm->exchange_buf + head, n, type, ops[op], &timer, err);
  }
  if (rc == BS_OK) return mpic_unpack(comm->world, &out, 0, n, call->dtype_in, comm->exchange_buf + head);
  mpic_keep(comm->world->state, comm->exchange_buf); /* MPI may still touch it */
  comm->exchange_buf = NULL;
  comm->exchange_bytes = 0;
  return rc;
}
