/* SPDX-License-Identifier: MIT
 *
 * coll_stage.c - collectives of tensors that do not lie in host memory. A communicator that has bound the
 * device gets them as they are. For others, and where a hook looks at the data, the rank's part is copied to
 * the host before the call and the result is copied back after it, in the order of the call's stream. Room
 * for both is made when the collective is prepared. The rank's own thread makes all copies; the thread of a
 * started collective sees host memory only.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/world/coll_plan.h"

#define ALIGN 64u

static char *room(uint64_t rows, uint64_t cols, uint32_t dtype) {
  const uint64_t bytes = rows * cols * BS_DTYPE_BYTES(dtype); /* prepare has checked that it fits */
  void *ptr = NULL;
  return posix_memalign(&ptr, ALIGN, (size_t)(bytes > 0 ? bytes : 1)) == 0 ? ptr : NULL;
}

static int32_t note(const bs_coll_plan *p, const char *by) {
  char text[128];
  snprintf(text, sizeof text, "collectives@%s/%s", by != NULL ? p->rank->world->backend->name : "host",
           by != NULL ? by : "staged");
  p->rank->ops.note_algorithm(p->rank->ops.user, text);
  return BS_OK;
}

int32_t bs_coll_stage_prepare(bs_coll_plan *p, bs_error *err) {
  if ((p->rank->world->backend->flags & BS_BACKEND_HOST_MEMORY) != 0) return BS_OK;
  /* The host reduces on its own memory, where there are values. */
  const int far = !p->by_rounds || (p->rank->world->backend->flags & BS_BACKEND_PHANTOM) != 0;
  if (p->rank->bound != NULL && p->n > 1 && !p->hooked && far) {
    p->call.flags |= BS_COLL_DEVICE;
    return note(p, p->rank->bound);
  }
  if (p->has_in) p->stage_in = room(p->rows, p->in_cols, p->call.dtype_in);
  if (p->has_out) p->stage_out = room(p->rows, p->out_cols, p->call.dtype_out);
  if ((p->has_in && p->stage_in == NULL) || (p->has_out && p->stage_out == NULL))
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no host memory for a collective's data");
  p->staged = 1;
  return note(p, NULL);
}

void bs_coll_stage_free(bs_coll_plan *p) {
  free(p->stage_in);
  free(p->stage_out);
}

/* Rows of `cols` elements, `stride` elements from row to row on the device and dense on the host. */
static int32_t copy_rows(bs_coll_plan *p, char *device, char *host, uint64_t cols, int64_t stride,
                         uint32_t dtype, uint32_t kind, bs_error *err) {
  const bs_rank *rank = p->rank;
  const bs_backend *backend = rank->world->backend;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  uint64_t rows = p->call.rows, row = cols * size;
  int32_t rc = BS_OK;
  if (row == 0) return BS_OK;
  if (stride == (int64_t)cols) {
    row *= rows;
    rows = rows > 0;
  }
  for (uint64_t r = 0; rc == BS_OK && r < rows; ++r) {
    char *far = device + (int64_t)r * stride * (int64_t)size, *near = host + r * row;
    const int down = kind == BS_COPY_DEVICE_TO_HOST;
    rc =
        backend->mem_copy(rank->device, down ? near : far, down ? far : near, row, kind, p->call.stream, err);
  }
  if (rc == BS_OK && backend->stream_sync != NULL)
    rc = backend->stream_sync(rank->device, p->call.stream, err);
  if (rank->ops.watch != NULL) {
    rank->ops.watch->waits += backend->stream_sync != NULL;
    rank->ops.watch->copied_bytes += p->call.rows * cols * size;
  }
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", p->site);
  return rc;
}

int32_t bs_coll_stage_down(bs_coll_plan *p, bs_error *err) {
  bs_coll_call *c = &p->call;
  if (!p->staged) return BS_OK;
  int32_t rc = BS_OK;
  if (p->has_in)
    rc = copy_rows(p, (char *)(uintptr_t)c->in, p->stage_in, p->in_cols, c->in_stride, c->dtype_in,
                   BS_COPY_DEVICE_TO_HOST, err);
  p->device_out = c->out;
  p->device_stride = c->out_stride;
  c->in = p->has_in ? p->stage_in : NULL;
  c->out = p->has_out ? p->stage_out : NULL;
  c->in_stride = (int64_t)p->in_cols;
  c->out_stride = (int64_t)p->out_cols;
  return rc;
}

int32_t bs_coll_stage_up(bs_coll_plan *p, bs_error *err) {
  const bs_coll_call *c = &p->call;
  if (!p->staged || !p->has_out) return BS_OK;
  return copy_rows(p, p->device_out, p->stage_out, p->out_cols, p->device_stride, c->dtype_out,
                   BS_COPY_HOST_TO_DEVICE, err);
}

/* ---- data in host memory ---------------------------------------------------------------------- */

static bs_tensor vector(uint32_t dtype, const void *data, uint64_t n) {
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = dtype, .rank = 1};
  t.dims[0] = (int64_t)n;
  t.strides[0] = 1;
  t.data = (void *)(uintptr_t)data;
  return t;
}

int32_t bs_rank_collective_host(bs_rank *rank, const bs_collective *what, const void *in, uint64_t n_in,
                                void *out, uint64_t n_out, bs_error *err) {
  const bs_tensor from = vector(what->dtype_in, in, n_in);
  bs_tensor to = vector(what->dtype_out != 0 ? what->dtype_out : what->dtype_in, out, n_out);
  bs_coll_plan *plan = NULL;
  int32_t rc = bs_coll_prepare_plain(rank, what, &plan, err);
  if (rc != BS_OK) return rc;
  plan->staged = 0;
  plan->call.flags &= ~(uint32_t)BS_COLL_DEVICE;
  rc = bs_coll_run(plan, in != NULL ? &from : NULL, out != NULL ? &to : NULL, NULL, err);
  bs_coll_release(plan);
  return rc;
}
