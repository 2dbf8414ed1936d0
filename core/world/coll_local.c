/* SPDX-License-Identifier: MIT
 *
 * coll_local.c - collectives of a world or group of one rank: copies with the same roundings that many
 * ranks would see (a reduction rounds to the reduce dtype first). Called through a plan's function slot.
 */
#include <string.h>

#include "core/world/world.h"

#define CHUNK 512u

static int32_t convert_row(const bs_coll_call *call, char *out, const char *in, uint64_t n, int rounds) {
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  if (!rounds || call->reduce_dtype == call->dtype_in) {
    if (call->dtype_in != call->dtype_out) return bs_convert(call->dtype_out, out, call->dtype_in, in, n);
    if (out != in) memmove(out, in, n * in_size);
    return BS_OK;
  }
  double room[CHUNK]; /* any dtype */
  for (uint64_t at = 0; at < n; at += CHUNK) {
    uint64_t part = n - at < CHUNK ? n - at : CHUNK;
    int32_t rc = bs_convert(call->reduce_dtype, room, call->dtype_in, in + at * in_size, part);
    if (rc == BS_OK) rc = bs_convert(call->dtype_out, out + at * out_size, call->reduce_dtype, room, part);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t bs_coll_local(void *unused, const bs_coll_call *call, bs_error *err) {
  (void)unused;
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
    int32_t rc = convert_row(call, (char *)call->out + (int64_t)row * out_step,
                             (const char *)call->in + (int64_t)row * in_step, n, rounds);
    if (rc != BS_OK)
      return bs_error_set(err, rc, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x", call->dtype_in,
                          call->dtype_out);
  }
  return BS_OK;
}
