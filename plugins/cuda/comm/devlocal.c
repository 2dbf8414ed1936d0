/* SPDX-License-Identifier: MIT
 * devlocal.c - ranks that are threads of one process on one device read and write each other's memory, so no
 * avoidable copy is made. A collective has two meetings of the host's threads. After the first one every rank
 * knows the addresses of the others' data, and its stream waits until they are ready. After the second one
 * its stream waits until the others' kernels have finished with its data. The device never waits for work
 * that is not queued yet, so a missing rank cannot hang it: only the meeting waits, with a deadline. */
#include "comm.h"

/* A rank's data for a call; written before the first meeting, read by the others until the second. */
typedef struct dl_slot {
  CUevent ready, done;
  const char *in;
  char *out;
  int64_t in_stride, out_stride;
  const uint64_t *counts, *recv_counts;
} dl_slot;

/* The events of a rank's end. They exist until the rank's own end closes: others may still use them. */
typedef struct dl_link {
  struct dl_link *older; /* of the same rank */
  CUevent ready, done;
  dl_slot *slots; /* [n], one for all ranks; the world keeps them */
} dl_link;

static const bs_host *host_of(const cuda_end *end) {
  return end->device->state->host;
}

/* ---- binding ---------------------------------------------------------------------------------- */

static void link_free(const cuda_end *end, dl_link *link) {
  const cuda_functions *call = &end->device->driver->call;
  if (cuda_enter(end->device, NULL) == BS_OK) {
    if (link->ready != NULL) (void)call->event_destroy(link->ready);
    if (link->done != NULL) (void)call->event_destroy(link->done);
  }
  host_of(end)->free(host_of(end)->ctx, link);
}

static int32_t link_make(const cuda_end *end, dl_link **out, bs_error *err) {
  const cuda_functions *call = &end->device->driver->call;
  dl_link *link = host_of(end)->alloc(host_of(end)->ctx, sizeof *link, 64);
  if (link == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  int32_t rc = cuda_enter(end->device, err);
  if (rc == BS_OK)
    rc = cuda_check(end->device, call->event_create(&link->ready, CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                    err);
  if (rc == BS_OK)
    rc = cuda_check(end->device, call->event_create(&link->done, CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                    err);
  if (rc != BS_OK) {
    link_free(end, link);
    return rc;
  }
  *out = link;
  return BS_OK;
}

/* The values that ranks exchange: all except the slots must be the same on every rank. */
enum { TOLD_STATUS = 0, TOLD_CONTEXT, TOLD_INDEX, TOLD_SLOTS, TOLD_WORDS };

static int32_t verdict(const cuda_end *end, const uint64_t *told, bs_error *err) {
  for (uint32_t r = 0; r < end->n; r++) {
    const uint64_t *his = told + (uint64_t)r * TOLD_WORDS;
    if (his[TOLD_STATUS] != BS_OK)
      return bs_fail(err, BS_ABORTED, "BS-CUDA-COMM", "devlocal: rank %u cannot open its part", r);
    if (his[TOLD_CONTEXT] != told[TOLD_CONTEXT])
      return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM",
                     "devlocal serves ranks that share one device; rank 0 is on device %llu, rank %u on %llu",
                     (unsigned long long)told[TOLD_INDEX], r, (unsigned long long)his[TOLD_INDEX]);
  }
  return BS_OK;
}

static int32_t agree(cuda_end *end, int32_t status, dl_slot **slots, bs_error *err) {
  const bs_host *host = host_of(end);
  uint64_t *told = host->alloc(host->ctx, (uint64_t)end->n * TOLD_WORDS * sizeof *told, 64);
  if (told == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  const uint64_t mine[TOLD_WORDS] = {(uint64_t)(uint32_t)status, (uint64_t)(uintptr_t)end->device->context,
                                     end->device->index, (uint64_t)(uintptr_t)*slots};
  bs_error other = {.struct_size = (uint32_t)sizeof other};
  int32_t rc = cuda_tell_all(end, "devlocal.bind", mine, TOLD_WORDS, told, &other);
  if (rc == BS_OK) rc = verdict(end, told, &other);
  if (status == BS_OK && rc != BS_OK && err != NULL) *err = other;
  if (rc == BS_OK) *slots = (dl_slot *)(uintptr_t)told[TOLD_SLOTS];
  host->free(host->ctx, told);
  return status != BS_OK ? status : rc;
}

static int32_t bind(cuda_end *end, bs_error *err) {
  const bs_comm *inner = end->world->w->inner;
  dl_link *link = NULL;
  dl_slot *slots = NULL;
  if (inner->launch != BS_LAUNCH_THREADS)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM",
                   "devlocal serves ranks that are threads of one process, %s does not start such",
                   inner->name);
  int32_t rc = link_make(end, &link, err);
  if (rc == BS_OK && end->me == 0) {
    slots = cuda_world_keep(end->world, end->n * sizeof *slots);
    if (slots == NULL) rc = bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  }
  rc = agree(end, rc, &slots, err);
  if (rc != BS_OK || link == NULL || slots == NULL) {
    if (link != NULL) link_free(end, link);
    return rc;
  }
  link->slots = slots;
  link->slots[end->me].ready = link->ready;
  link->slots[end->me].done = link->done;
  end->link = link;
  if (end != end->root) { /* a group's events end with the rank's */
    dl_link *root = end->root->link;
    link->older = root->older;
    root->older = link;
  }
  snprintf(end->name, sizeof end->name, "devlocal");
  return BS_OK;
}

static void unbind(cuda_end *end) {
  dl_link *link = end->link;
  if (end != end->root) return;
  while (link != NULL) {
    dl_link *older = link->older;
    link_free(end, link);
    link = older;
  }
}

/* ---- the two meetings ------------------------------------------------------------------------- */

static int32_t record(const cuda_end *end, CUevent event, CUstream stream, bs_error *err) {
  return cuda_check(end->device, end->device->driver->call.event_record(event, stream), "cuEventRecord", err);
}

static int32_t follow(const cuda_end *end, CUevent event, CUstream stream, bs_error *err) {
  return cuda_check(end->device, end->device->driver->call.stream_wait_event(stream, event, 0),
                    "cuStreamWaitEvent", err);
}

static int32_t meet(cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  dl_link *link = end->link;
  dl_slot *mine = &link->slots[end->me];
  mine->in = call->in;
  mine->out = call->out;
  mine->in_stride = call->in_stride;
  mine->out_stride = call->out_stride;
  mine->counts = call->counts;
  mine->recv_counts = call->recv_counts;
  const int32_t rc = record(end, link->ready, stream, err);
  return rc == BS_OK ? cuda_meet(end, call, 0, err) : rc;
}

/* Lets the stream wait for the others' data. */
static int32_t await(const cuda_end *end, CUstream stream, bs_error *err) {
  const dl_link *link = end->link;
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < end->n; r++)
    if (r != end->me) rc = follow(end, link->slots[r].ready, stream, err);
  return rc;
}

/* Lets other ranks finish, also after an error, which is `rc`: they read and write this rank's memory until
 * this call. */
static int32_t part(cuda_end *end, const bs_coll_call *call, CUstream stream, int32_t rc, bs_error *err) {
  const dl_link *link = end->link;
  bs_error late = {.struct_size = (uint32_t)sizeof late};
  int32_t mine = record(end, link->done, stream, &late);
  const int32_t met = cuda_meet(end, call, 1, mine == BS_OK ? &late : NULL);
  if (mine == BS_OK) mine = met;
  for (uint32_t r = 0; met == BS_OK && r < end->n; r++)
    if (r != end->me && mine == BS_OK) mine = follow(end, link->slots[r].done, stream, &late);
  if (rc != BS_OK || mine == BS_OK) return rc;
  if (err != NULL) *err = late;
  return mine;
}

/* ---- collectives ------------------------------------------------------------------------------ */

/* Each rank reduces a share of the elements, and writes it to everybody's output. */
static int32_t all_reduce(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  const dl_slot *slots = ((const dl_link *)end->link)->slots;
  const cuda_part mine = cuda_share(call, end->me, end->n);
  cuda_rank_rows in[CUDA_RANKS_MAX], out[CUDA_RANKS_MAX];
  for (uint32_t r = 0; r < end->n; r++) {
    in[r] = cuda_rows_at(slots[r].in, slots[r].in_stride, call->dtype_in, mine.row, mine.col);
    out[r] = cuda_rows_at(slots[r].out, slots[r].out_stride, call->dtype_out, mine.row, mine.col);
  }
  return cuda_reduce(end->device, call, mine.rows, mine.cols, in, end->n, out, end->n, stream, err);
}

static int32_t reduce_scatter(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  const dl_slot *slots = ((const dl_link *)end->link)->slots;
  const uint64_t first = cuda_sum(call->counts, end->me);
  cuda_rank_rows in[CUDA_RANKS_MAX];
  const cuda_rank_rows out = cuda_rows_at(call->out, call->out_stride, call->dtype_out, 0, 0);
  for (uint32_t r = 0; r < end->n; r++)
    in[r] = cuda_rows_at(slots[r].in, slots[r].in_stride, call->dtype_in, 0, first);
  return cuda_reduce(end->device, call, call->rows, call->counts[end->me], in, end->n, &out, 1, stream, err);
}

/* Columns [from, from + cols) of rank r's input to `to` of mine. */
static int32_t fetch(const cuda_end *end, const bs_coll_call *call, uint32_t r, uint64_t from, uint64_t cols,
                     uint64_t to, CUstream stream, bs_error *err) {
  const dl_slot *his = &((const dl_link *)end->link)->slots[r];
  return cuda_move(end->device, call, call->rows, cols,
                   cuda_rows_at(his->in, his->in_stride, call->dtype_in, 0, from),
                   cuda_rows_at(call->out, call->out_stride, call->dtype_out, 0, to), stream, err);
}

static int32_t all_gather(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  uint64_t to = 0;
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < end->n; r++) {
    rc = fetch(end, call, r, 0, call->counts[r], to, stream, err);
    to += call->counts[r];
  }
  return rc;
}

static int32_t differ(const bs_coll_call *call, uint32_t from, uint64_t sent, uint32_t to, uint64_t expected,
                      bs_error *err) {
  bs_fail(err, BS_MISMATCH, "BS-COLL-MISMATCH",
          "ranks disagree: rank %u sends %llu columns to rank %u, which takes %llu", from,
          (unsigned long long)sent, to, (unsigned long long)expected);
  if (err != NULL && call->site != NULL) snprintf(err->where, sizeof err->where, "%s", call->site);
  return BS_MISMATCH;
}

static int32_t all_to_all(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  const dl_slot *slots = ((const dl_link *)end->link)->slots;
  const uint32_t me = end->me;
  uint64_t to = 0;
  int32_t rc = BS_OK;
  for (uint32_t r = 0; r < end->n; r++) {
    if (slots[r].counts[me] != call->recv_counts[r])
      return differ(call, r, slots[r].counts[me], me, call->recv_counts[r], err);
    if (call->counts[r] != slots[r].recv_counts[me])
      return differ(call, me, call->counts[r], r, slots[r].recv_counts[me], err);
  }
  for (uint32_t r = 0; rc == BS_OK && r < end->n; r++) {
    rc = fetch(end, call, r, cuda_sum(slots[r].counts, me), call->recv_counts[r], to, stream, err);
    to += call->recv_counts[r];
  }
  return rc;
}

static int32_t work(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  switch (call->kind) {
    case BS_COLL_ALL_REDUCE:
      return all_reduce(end, call, stream, err);
    case BS_COLL_REDUCE_SCATTER:
      return reduce_scatter(end, call, stream, err);
    case BS_COLL_ALL_GATHER:
      return all_gather(end, call, stream, err);
    case BS_COLL_BROADCAST:
      return fetch(end, call, call->root, 0, call->count, 0, stream, err);
    default:
      return all_to_all(end, call, stream, err);
  }
}

/* ---- pairs ------------------------------------------------------------------------------------ */

typedef struct dl_note {
  uint64_t event, data;
  int64_t stride;
} dl_note;

/* The sender publishes the address of its data; the receiver copies them and signals the end. */
static int32_t send_to(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  const bs_comm *inner = end->world->w->inner;
  const dl_link *link = end->link;
  dl_note note = {(uint64_t)(uintptr_t)link->ready, (uint64_t)(uintptr_t)call->in, call->in_stride}, back;
  const bs_coll_call out = cuda_host_call(call, BS_COLL_SEND, &note, NULL, sizeof note);
  const bs_coll_call in = cuda_host_call(call, BS_COLL_RECV, NULL, &back, sizeof back);
  int32_t rc = record(end, link->ready, stream, err);
  if (rc == BS_OK) rc = inner->send(end->inner, &out, err);
  if (rc == BS_OK) rc = inner->recv(end->inner, &in, err);
  return rc == BS_OK ? follow(end, (CUevent)(uintptr_t)back.event, stream, err) : rc;
}

static int32_t recv_from(const cuda_end *end, const bs_coll_call *call, CUstream stream, bs_error *err) {
  const bs_comm *inner = end->world->w->inner;
  const dl_link *link = end->link;
  const dl_note mine = {(uint64_t)(uintptr_t)link->done, 0, 0};
  dl_note note;
  const bs_coll_call in = cuda_host_call(call, BS_COLL_RECV, NULL, &note, sizeof note);
  const bs_coll_call out = cuda_host_call(call, BS_COLL_SEND, &mine, NULL, sizeof mine);
  int32_t rc = inner->recv(end->inner, &in, err);
  if (rc == BS_OK) rc = follow(end, (CUevent)(uintptr_t)note.event, stream, err);
  if (rc == BS_OK)
    rc = cuda_move(end->device, call, call->rows, call->count,
                   cuda_rows_at((const void *)(uintptr_t)note.data, note.stride, call->dtype_in, 0, 0),
                   cuda_rows_at(call->out, call->out_stride, call->dtype_out, 0, 0), stream, err);
  if (rc == BS_OK) rc = record(end, link->done, stream, err);
  return rc == BS_OK ? inner->send(end->inner, &out, err) : rc;
}

static int32_t run(cuda_end *end, const bs_coll_call *call, bs_error *err) {
  const CUstream stream = cuda_stream(end->device, call->stream);
  int32_t rc = BS_OK;
  if (call->kind == BS_COLL_SEND) return send_to(end, call, stream, err);
  if (call->kind == BS_COLL_RECV) return recv_from(end, call, stream, err);
  if (call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER)
    rc = cuda_reduce_check(call, end->n, err);
  if (rc == BS_OK) rc = meet(end, call, stream, err);
  if (rc != BS_OK) return rc;
  rc = await(end, stream, err);
  if (rc == BS_OK) rc = work(end, call, stream, err);
  return part(end, call, stream, rc, err);
}

static const cuda_comm_kind kind_devlocal = {"devlocal", bind, unbind, run};

static int32_t wrap(void *state, const bs_comm *inner, void *inner_state, void **out_state, bs_error *err) {
  return cuda_comm_wrap(state, &kind_devlocal, inner, inner_state, out_state, err);
}

const bs_comm cuda_comm_devlocal = {
    CUDA_COMM_SLOTS,
    .name = "devlocal",
    .summary = "ranks that share one GPU read each other's memory; wraps: devlocal:threads",
    .wrap = wrap,
};
