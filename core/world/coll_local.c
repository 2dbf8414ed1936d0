/* SPDX-License-Identifier: MIT
 *
 * coll_local.c - collectives of a world or group of one rank: copies with the same roundings that many
 * ranks would see (a reduction rounds to the reduce dtype first). Called through a plan's function slot.
 */
#include <string.h>

#include "core/world/world.h"

#define CHUNK 512u

static int32_t cannot(const bs_coll_call *call, int32_t rc, bs_error *err) {
  return bs_error_set(err, rc, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x", call->dtype_in,
                      call->dtype_out);
}

static int32_t convert_row(const bs_coll_call *call, char *out, const char *in, uint64_t n, int rounds,
                           bs_error *err) {
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  int32_t rc = BS_OK;
  if (!rounds || call->reduce_dtype == call->dtype_in) {
    if (call->dtype_in != call->dtype_out) {
      rc = bs_convert(call->dtype_out, out, call->dtype_in, in, n);
      return rc == BS_OK ? rc : cannot(call, rc, err);
    }
    if (out != in) memmove(out, in, n * in_size);
    return BS_OK;
  }
  double room[CHUNK]; /* any dtype */
  for (uint64_t at = 0; rc == BS_OK && at < n; at += CHUNK) {
    uint64_t part = n - at < CHUNK ? n - at : CHUNK;
    rc = bs_convert(call->reduce_dtype, room, call->dtype_in, in + at * in_size, part);
    if (rc == BS_OK) rc = bs_convert(call->dtype_out, out + at * out_size, call->reduce_dtype, room, part);
  }
  return rc == BS_OK ? rc : cannot(call, rc, err);
}

/* One row in the memory of a backend of its own: as it is on the device, else through the host. */
static int32_t device_row(bs_rank *rank, const bs_coll_call *call, char *out, const char *in, uint64_t n,
                          int rounds, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  const uint64_t in_bytes = n * BS_DTYPE_BYTES(call->dtype_in),
                 out_bytes = n * BS_DTYPE_BYTES(call->dtype_out);
  if (call->dtype_in == call->dtype_out && (!rounds || call->reduce_dtype == call->dtype_in)) {
    if (out == in) return BS_OK;
    return backend->mem_copy(rank->device, out, in, in_bytes, BS_COPY_DEVICE_TO_DEVICE, call->stream, err);
  }
  char *room = bs_memory_host_alloc(rank, in_bytes + out_bytes);
  if (room == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM-HOST", "no memory for a row");
  int32_t rc = backend->mem_copy(rank->device, room, in, in_bytes, BS_COPY_DEVICE_TO_HOST, call->stream, err);
  if (rc == BS_OK) rc = backend->stream_sync(rank->device, call->stream, err);
  if (rc == BS_OK) rc = convert_row(call, room + in_bytes, room, n, rounds, err);
  if (rc == BS_OK)
    rc = backend->mem_copy(rank->device, out, room + in_bytes, out_bytes, BS_COPY_HOST_TO_DEVICE,
                           call->stream, err);
  if (rc == BS_OK) rc = backend->stream_sync(rank->device, call->stream, err);
  bs_memory_host_free(rank, room);
  return rc;
}

int32_t bs_coll_local(void *opaque, const bs_coll_call *call, bs_error *err) {
  bs_rank *rank = opaque;
  const int host = (rank->world->backend->flags & BS_BACKEND_HOST_MEMORY) != 0;
  if (call->kind == BS_COLL_BARRIER) return BS_OK;
  int rounds = call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER;
  uint64_t n = call->counts != NULL ? call->counts[0] : call->count;
  if (call->recv_counts != NULL && call->recv_counts[0] != n)
    return bs_error_set(err, BS_MISMATCH, "BS-COLL-MISMATCH", "all_to_all sends itself %llu and expects %llu",
                        (unsigned long long)n, (unsigned long long)call->recv_counts[0]);
  if (n == 0) return BS_OK;
  int64_t in_step = call->in_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_in);
  int64_t out_step = call->out_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_out);
  for (uint64_t row = 0; row < call->rows; ++row) {
    char *out = (char *)call->out + (int64_t)row * out_step;
    const char *in = (const char *)call->in + (int64_t)row * in_step;
    const int32_t rc =
        host ? convert_row(call, out, in, n, rounds, err) : device_row(rank, call, out, in, n, rounds, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
