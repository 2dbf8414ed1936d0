/* SPDX-License-Identifier: MIT
 *
 * chain.c - a reduction over machines with the bits of one in rank order: each machine adds its ranks to what
 * came from the ranks before them and passes it on, as values of the reduce dtype, which loses nothing. For
 * ranks numbered machine by machine every link carries a slice once each way, which is the least there is.
 */
#include "mpi_comm.h"

/* out_buf carries the partial sum: the line, then values of the reduce dtype. */
static int32_t add_run(mpic_comm *comm, const bs_coll_call *call, const mpic_run *run, int begins, int ends,
                       uint64_t offset, uint64_t n, void *result) {
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, &comm->world->math, call, NULL);
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), sum_size = BS_DTYPE_BYTES(call->reduce_dtype);
  uint64_t out_size = BS_DTYPE_BYTES(call->dtype_out);
  for (uint64_t at = 0; rc == BS_OK && at < n; at += THR_CHUNK) {
    uint64_t part = comm_min(n - at, THR_CHUNK);
    unsigned char *sum = comm->out_buf + MPIC_LINE + at * sum_size;
    uint32_t i = 0;
    if (begins) {
      rc = thr_reduction_first(&red, mpic_half(comm, comm->local[run->first]) + offset + at * in_size, part);
      i = 1;
    } else {
      red.in = red.reduce; /* the received data have the reduce dtype */
      rc = thr_reduction_first(&red, sum, part);
      red.in = call->dtype_in;
    }
    for (; rc == BS_OK && i < run->n; ++i)
      rc =
          thr_reduction_add(&red, mpic_half(comm, comm->local[run->first + i]) + offset + at * in_size, part);
    red.out = ends ? call->dtype_out : call->reduce_dtype;
    void *to = ends ? (void *)((char *)result + at * out_size) : (void *)sum;
    if (rc == BS_OK) rc = thr_reduction_store(&red, to, part);
  }
  return rc;
}

/* Sends the result from the machine that ended the chain to all, by a binomial tree over the machines. */
static int32_t give_all(mpic_comm *comm, const bs_coll_call *call, uint32_t from, uint32_t lane,
                        uint64_t bytes, void *result, mpic_timer *timer, bs_error *err) {
  uint32_t machines = comm->machines, place = (comm->here + machines - from) % machines;
  uint32_t step = 1;
  while (step < machines) step <<= 1;
  int has = place == 0;
  if (has) memcpy(comm->out_buf + MPIC_LINE, result, bytes);
  for (step >>= 1; step > 0; step >>= 1) {
    int32_t rc = BS_OK;
    if (has && place + step < machines) {
      uint32_t to = mpic_member(comm, (place + step + from) % machines, lane);
      rc = mpic_send_to(comm, call, to, comm->out_buf, bytes, timer, err);
    } else if (!has && place % step == 0 && place % (2u * step) != 0) {
      uint32_t giver = mpic_member(comm, (place - step + from) % machines, lane);
      rc = mpic_recv_from(comm, call, giver, comm->in_buf, bytes, timer, err);
      if (rc == BS_OK) {
        memcpy(result, comm->in_buf + MPIC_LINE, bytes);
        memcpy(comm->out_buf + MPIC_LINE, result, bytes);
        has = 1;
      }
    }
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t give_one(mpic_comm *comm, const bs_coll_call *call, uint32_t from, uint32_t to, uint32_t lane,
                        uint64_t bytes, void *result, mpic_timer *timer, bs_error *err) {
  if (from == to) return BS_OK;
  if (comm->here == from) {
    memcpy(comm->out_buf + MPIC_LINE, result, bytes);
    return mpic_send_to(comm, call, mpic_member(comm, to, lane), comm->out_buf, bytes, timer, err);
  }
  if (comm->here != to) return BS_OK;
  int32_t rc = mpic_recv_from(comm, call, mpic_member(comm, from, lane), comm->in_buf, bytes, timer, err);
  if (rc == BS_OK) memcpy(result, comm->in_buf + MPIC_LINE, bytes);
  return rc;
}

int32_t mpic_chain(mpic_comm *comm, const bs_coll_call *call, uint64_t offset, uint64_t n, void *result,
                   uint32_t dest, mpic_timer *timer, bs_error *err) {
  uint32_t lane = comm->local[comm->me], last = comm->nruns - 1u;
  uint64_t sum_bytes = n * BS_DTYPE_BYTES(call->reduce_dtype),
           out_bytes = n * BS_DTYPE_BYTES(call->dtype_out);
  int32_t rc = BS_OK, work = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i <= last; ++i) {
    const mpic_run *run = &comm->runs[i];
    if (run->machine != comm->here) continue;
    if (i > 0) {
      uint32_t before = mpic_member(comm, comm->runs[i - 1u].machine, lane);
      rc = mpic_recv_from(comm, call, before, comm->in_buf, sum_bytes, timer, err);
      if (rc == BS_OK) memcpy(comm->out_buf + MPIC_LINE, comm->in_buf + MPIC_LINE, sum_bytes);
    }
    if (rc != BS_OK) break;
    int32_t added = add_run(comm, call, run, i == 0, i == last, offset, n, result);
    if (work == BS_OK) work = added;
    if (i == last) break;
    uint32_t next = mpic_member(comm, comm->runs[i + 1u].machine, lane);
    rc = mpic_send_to(comm, call, next, comm->out_buf, sum_bytes, timer, err);
  }
  uint32_t from = comm->runs[last].machine;
  if (rc == BS_OK && dest == MPIC_NONE)
    rc = give_all(comm, call, from, lane, out_bytes, result, timer, err);
  else if (rc == BS_OK)
    rc = give_one(comm, call, from, dest, lane, out_bytes, result, timer, err);
  return rc != BS_OK ? rc : work;
}
