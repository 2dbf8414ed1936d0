/* SPDX-License-Identifier: MIT
 * nccl.c - ranks on separate devices, by NVIDIA's NCCL. NCCL moves bytes (sends, receives, broadcasts), and
 * this plugin's kernel adds in rank order. So the bits are those of every other communicator here and do not
 * depend on the algorithm that NCCL takes for a size or a topology. In a small all_reduce every rank sends
 * all data to all others; in a large one each rank gets its share, and the sums go back.
 *
 * The ranks meet on the host by the inner communicator before work is queued, so a late rank or a different
 * call is reported as usual. A later hang on the devices is ended by the thread that waits for the stream
 * (look): it asks NCCL for errors and checks the call's deadline. Then the device is lost and nothing is
 * cleaned up: NCCL's own abort hangs too, and only the end of the processes is certain. */
#include <time.h>

#include "../inner.h"
#include "comm.h"
#include "nccl.h"

#define ONE_SHOT_BYTES ((uint64_t)64 << 10) /* an all_reduce of at most this is sent whole */
#define GRACE_NS INT64_C(300000000)         /* for the device's work once the world has failed */
enum { CHUNKS = 2 * CUDA_RANKS_MAX + 8 };

/* Device memory for pieces on their way: the i-th of a call has the i-th chunk; they grow. */
typedef struct nc_chunk {
  void *data;
  uint64_t bytes;
} nc_chunk;

typedef struct nc_link {
  cuda_end *end;
  struct nc_link *next; /* of the same rank */
  nccl_comm comm;
  CUevent last;       /* recorded after the work that was queued last */
  CUstream stream;    /* of that */
  int64_t until_ns;   /* atomic: its deadline; 0: nothing was queued yet */
  int64_t timeout_ns; /* atomic */
  const char *what;   /* atomic */
  int64_t failed_ns;  /* when this rank saw that the world has failed */
  uint32_t used;
  nc_chunk chunks[CHUNKS];
} nc_link;

static cuda_nccl *nccl_of(const cuda_end *end) {
  return end->device->state->nccl;
}
static const bs_host *host_of(const cuda_end *end) {
  return end->device->state->host;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- waits ------------------------------------------------------------------------------------ */

/* The failure of the world, in the inner communicator's words. */
static int32_t world_failed(const cuda_end *end, bs_error *err) {
  const bs_coll_call call = {.struct_size = (uint32_t)sizeof call,
                             .kind = BS_COLL_BARRIER,
                             .site = "nccl.failed",
                             .timeout_ns = GRACE_NS};
  const int32_t rc = end->world->w->inner->barrier(end->inner, &call, err);
  return rc != BS_OK ? rc : bs_fail(err, BS_ABORTED, "BS-COLL-ABORTED", "the world has failed");
}

static int has_failed(const cuda_end *end) {
  return __atomic_load_n(&end->world->aborted, __ATOMIC_ACQUIRE) != 0;
}

static int32_t late(const cuda_end *end, const char *what, int64_t timeout_ns, bs_error *err) {
  bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%.3g s passed on the device of rank %u in %s",
          (double)timeout_ns * 1e-9, end->root->me, what);
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", what);
  bs_fail_hint(err,
               "all ranks had come: the work before it, a device or a link is slow or hangs; "
               "NCCL_DEBUG=WARN makes NCCL say more");
  return BS_DEADLINE;
}

static int32_t look_at(nc_link *link, bs_error *err) {
  const cuda_end *end = link->end;
  const cuda_nccl *nccl = nccl_of(end);
  const int64_t until = __atomic_load_n(&link->until_ns, __ATOMIC_ACQUIRE);
  const char *what = __atomic_load_n(&link->what, __ATOMIC_RELAXED);
  char text[200];
  int result = NCCL_SUCCESS;
  const int asked = nccl->call.async_error(link->comm, &result);
  if (until == 0) return BS_OK;
  snprintf(text, sizeof text, "%s", what);
  int32_t rc = cuda_nccl_check(nccl, link->comm, asked != NCCL_SUCCESS ? asked : result, text, err);
  if (rc != BS_OK || now_ns() < until) return rc;
  if (end->device->driver->call.event_query(link->last) != CUDA_ERROR_NOT_READY) return BS_OK;
  return late(end, text, __atomic_load_n(&link->timeout_ns, __ATOMIC_RELAXED), err);
}

/* Called by the thread that waits for the device. */
static int32_t look(void *arg, bs_error *err) {
  cuda_end *root = arg;
  nc_link *first = root->link;
  for (nc_link *link = first; link != NULL; link = link->next) {
    const int32_t rc = look_at(link, err);
    if (rc != BS_OK) return rc;
  }
  if (first == NULL || !has_failed(root)) return BS_OK;
  if (first->failed_ns == 0) first->failed_ns = now_ns();
  return now_ns() - first->failed_ns > GRACE_NS ? world_failed(root, err) : BS_OK;
}

/* A call that goes on in the background: until it is done on the host's side. */
static int32_t settle(const nc_link *link, int result, const char *what, int64_t timeout_ns, bs_error *err) {
  const cuda_end *end = link->end;
  const cuda_nccl *nccl = nccl_of(end);
  const int64_t until = now_ns() + timeout_ns;
  const struct timespec nap = {0, 20000};
  while (result == NCCL_IN_PROGRESS) {
    const int asked = nccl->call.async_error(link->comm, &result);
    if (asked != NCCL_SUCCESS) result = asked;
    if (result != NCCL_IN_PROGRESS) break;
    if (has_failed(end)) return world_failed(end, err);
    if (now_ns() > until) return late(end, what, timeout_ns, err);
    nanosleep(&nap, NULL);
  }
  return cuda_nccl_check(nccl, link->comm, result, what, err);
}

/* ---- binding ---------------------------------------------------------------------------------- */

enum { TOLD_STATUS = 0, TOLD_CONTEXT, TOLD_INDEX, TOLD_ID, TOLD_WORDS = TOLD_ID + 16 };

/* Ranks of one process can be compared here; of others NCCL itself refuses those that share a device. */
static int32_t verdict(const cuda_end *end, const uint64_t *told, bs_error *err) {
  const cuda_nccl *nccl = nccl_of(end);
  const int one_process = end->world->w->inner->launch != BS_LAUNCH_ATTACHED;
  for (uint32_t r = 0; r < end->n; r++)
    if (told[(uint64_t)r * TOLD_WORDS + TOLD_STATUS] != BS_OK)
      return bs_fail(err, BS_ABORTED, "BS-CUDA-COMM", "nccl: rank %u cannot open its part", r);
  for (uint32_t r = 0; r < end->n && one_process && nccl->version < NCCL_SHARES_DEVICES; r++)
    for (uint32_t q = 0; q < r; q++)
      if (told[(uint64_t)r * TOLD_WORDS + TOLD_CONTEXT] == told[(uint64_t)q * TOLD_WORDS + TOLD_CONTEXT])
        return bs_fail(
            err, BS_UNSUPPORTED, "BS-CUDA-COMM",
            "NCCL %d.%d.%d serves one rank a device; ranks %u and %u share device %llu: devlocal serves "
            "ranks that do",
            nccl->version / 10000, nccl->version / 100 % 100, nccl->version % 100, q, r,
            (unsigned long long)told[(uint64_t)r * TOLD_WORDS + TOLD_INDEX]);
  return BS_OK;
}

/* Every rank's word; the id is rank 0's. */
static int32_t agree(const cuda_end *end, int32_t status, nccl_id *id, bs_error *err) {
  const bs_host *host = host_of(end);
  uint64_t mine[TOLD_WORDS] = {(uint64_t)(uint32_t)status, (uint64_t)(uintptr_t)end->device->context,
                               end->device->index};
  uint64_t *told = host->alloc(host->ctx, (uint64_t)end->n * sizeof mine, 64);
  if (told == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  memcpy(mine + TOLD_ID, id, sizeof *id);
  int32_t rc = cuda_tell_all(end, "nccl.bind", mine, TOLD_WORDS, told, err);
  if (rc == BS_OK) rc = verdict(end, told, err);
  if (rc == BS_OK) memcpy(id, told + TOLD_ID, sizeof *id);
  host->free(host->ctx, told);
  return rc;
}

/* NCCL's part is ended only where nothing has gone wrong: elsewhere its own calls may hang. */
static void link_free(nc_link *link) {
  const cuda_end *end = link->end;
  const cuda_device *device = end->device;
  for (uint32_t i = 0; i < CHUNKS; i++) cuda_mem_free(end->device, link->chunks[i].data);
  if (!cuda_is_lost(device) && !has_failed(end) && link->comm != NULL)
    (void)nccl_of(end)->call.destroy(link->comm);
  if (!cuda_is_lost(device) && link->last != NULL && cuda_enter(device, NULL) == BS_OK)
    (void)device->driver->call.event_destroy(link->last);
  host_of(end)->free(host_of(end)->ctx, link);
}

static int32_t link_make(cuda_end *end, nc_link **out, bs_error *err) {
  nc_link *link = host_of(end)->alloc(host_of(end)->ctx, sizeof *link, 64);
  if (link == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  link->end = end;
  int32_t rc = cuda_enter(end->device, err);
  if (rc == BS_OK)
    rc = cuda_check(end->device, end->device->driver->call.event_create(&link->last, CU_EVENT_DISABLE_TIMING),
                    "cuEventCreate", err);
  if (rc != BS_OK) {
    link_free(link);
    return rc;
  }
  *out = link;
  return BS_OK;
}

static int32_t join(nc_link *link, const nccl_id *id, bs_error *err) {
  cuda_end *end = link->end;
  const cuda_nccl *nccl = nccl_of(end);
  nccl_config config = {.size = sizeof config,
                        .magic = NCCL_CONFIG_MAGIC,
                        .version = NCCL_CONFIG_VERSION,
                        .blocking = 0,
                        .cga_cluster_size = NCCL_UNSET,
                        .min_ctas = NCCL_UNSET,
                        .max_ctas = NCCL_UNSET,
                        .split_share = NCCL_UNSET};
  const int result = nccl->call.init(&link->comm, (int)end->n, *id, (int)end->me, &config);
  return settle(link, result, "ncclCommInitRankConfig", end->timeout_ns, err);
}

static int32_t bind(cuda_end *end, bs_error *err) {
  nc_link *link = NULL;
  nccl_id id;
  bs_error other = {.struct_size = (uint32_t)sizeof other};
  memset(&id, 0, sizeof id);
  int32_t rc = cuda_nccl_open(end->device->state, err);
  if (rc == BS_OK) rc = link_make(end, &link, err);
  if (rc == BS_OK && end->me == 0)
    rc = cuda_nccl_check(nccl_of(end), NULL, nccl_of(end)->call.unique_id(&id), "ncclGetUniqueId", err);
  const int32_t all = agree(end, rc, &id, &other);
  if (rc == BS_OK && all != BS_OK) {
    if (err != NULL) *err = other;
    rc = all;
  }
  if (rc == BS_OK && link != NULL) rc = join(link, &id, err);
  if (rc != BS_OK || link == NULL) {
    if (link != NULL) {
      link->comm = NULL; /* half made: it is left */
      link_free(link);
    }
    return rc;
  }
  const int v = nccl_of(end)->version;
  snprintf(end->name, sizeof end->name, "nccl %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  end->link = link;
  if (end != end->root) {
    nc_link *root = end->root->link;
    link->next = root->next;
    root->next = link;
  } else {
    end->device->inner->look_arg = end;
    end->device->inner->look = look;
  }
  return BS_OK;
}

static void unbind(cuda_end *end) {
  nc_link *link = end->link;
  if (!cuda_is_lost(end->device) && cuda_enter(end->device, NULL) == BS_OK)
    (void)cuda_await(end->device, NULL, link->last, NULL);
  if (end == end->root) {
    end->device->inner->look = NULL;
  } else {
    nc_link *at = end->root->link;
    while (at->next != link) at = at->next;
    at->next = link->next;
  }
  link_free(link);
}

/* ---- moving bytes ----------------------------------------------------------------------------- */

/* A call under way. */
typedef struct nc_work {
  cuda_end *end;
  nc_link *link;
  const bs_coll_call *call;
  bs_coll_call in, out; /* the same with both dtypes that of in, of out */
  CUstream stream;
  const char *what;
} nc_work;

/* The data that this rank sends to another and receives from it. */
typedef struct nc_leg {
  const void *from;
  void *to;
  uint64_t send, recv; /* bytes */
} nc_leg;

static int32_t chunk(const nc_work *w, uint64_t bytes, void **out, bs_error *err) {
  nc_link *link = w->link;
  if (link->used == CHUNKS)
    return bs_fail(err, BS_INTERNAL, "BS-CUDA-COMM", "%s needs too many pieces", w->what);
  nc_chunk *c = &link->chunks[link->used++];
  int32_t rc = BS_OK;
  if (c->bytes < bytes) {
    cuda_mem_free(w->end->device, c->data);
    *c = (nc_chunk){NULL, 0};
    rc = cuda_mem_alloc(w->end->device, bytes, 64, &c->data, err);
    if (rc == BS_OK) c->bytes = bytes;
  }
  *out = c->data;
  return rc;
}

static int dense(uint64_t rows, uint64_t cols, int64_t stride) {
  return rows <= 1 || cols == 0 || stride == (int64_t)cols;
}

/* A part of the input as contiguous bytes: in place, or copied. */
static int32_t pack(const nc_work *w, cuda_rank_rows from, uint64_t rows, uint64_t cols, const void **out,
                    bs_error *err) {
  cuda_rank_rows to = {NULL, (int64_t)cols};
  *out = from.data;
  if (dense(rows, cols, from.row) || rows == 0) return BS_OK;
  const int32_t rc = chunk(w, rows * cols * BS_DTYPE_BYTES(w->call->dtype_in), &to.data, err);
  *out = to.data;
  return rc == BS_OK ? cuda_move(w->end->device, &w->in, rows, cols, from, to, w->stream, err) : rc;
}

/* NCCL's work for this call is on the device: after an error its end is unknown. */
static int32_t queued(const nc_work *w, int result, bs_error *err) {
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  const int32_t rc = settle(w->link, result, w->what, w->call->timeout_ns, &why);
  if (rc == BS_OK) return rc;
  cuda_lose(w->end->device, &why);
  if (err != NULL) *err = why;
  return rc;
}

static int fine(int result) {
  return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static int32_t exchange(const nc_work *w, const nc_leg *legs, bs_error *err) {
  const nccl_functions *call = &nccl_of(w->end)->call;
  const cuda_end *end = w->end;
  int result = call->group_start();
  if (result != NCCL_SUCCESS) return queued(w, result, err);
  for (uint32_t r = 0; r < end->n; r++) {
    if (r == end->me) continue;
    if (legs[r].send > 0 && fine(result))
      result = call->send(legs[r].from, legs[r].send, NCCL_INT8, (int)r, w->link->comm, w->stream);
    if (legs[r].recv > 0 && fine(result))
      result = call->recv(legs[r].to, legs[r].recv, NCCL_INT8, (int)r, w->link->comm, w->stream);
  }
  const int ended = call->group_end();
  if (fine(result)) result = ended;
  return queued(w, result, err);
}

static cuda_rank_rows in_at(const nc_work *w, uint64_t row, uint64_t col) {
  return cuda_rows_at(w->call->in, w->call->in_stride, w->call->dtype_in, row, col);
}
static cuda_rank_rows out_at(const nc_work *w, uint64_t row, uint64_t col) {
  return cuda_rows_at(w->call->out, w->call->out_stride, w->call->dtype_out, row, col);
}

/* The place to receive rows x cols of dtype `of` for `at` of the output: there, or in a chunk. */
static int32_t landing(const nc_work *w, cuda_rank_rows at, uint64_t rows, uint64_t cols, uint32_t of,
                       void **out, bs_error *err) {
  *out = at.data;
  if (rows == 0 || cols == 0 || (dense(rows, cols, at.row) && of == w->call->dtype_out)) return BS_OK;
  return chunk(w, rows * cols * BS_DTYPE_BYTES(of), out, err);
}

/* Moves received data from the landing to their place. */
static int32_t unpack(const nc_work *w, const bs_coll_call *as, void *from, cuda_rank_rows to, uint64_t rows,
                      uint64_t cols, bs_error *err) {
  const cuda_rank_rows at = {from, (int64_t)cols};
  if (from == to.data) return BS_OK;
  return cuda_move(w->end->device, as, rows, cols, at, to, w->stream, err);
}

/* ---- collectives ------------------------------------------------------------------------------ */

/* Columns [from, ...) of mine go to each rank, theirs come to [to, ...) of my output. */
static int32_t swap_blocks(const nc_work *w, const uint64_t *sends, const uint64_t *recvs, int same,
                           bs_error *err) {
  const bs_coll_call *c = w->call;
  const uint32_t n = w->end->n, me = w->end->me, size = BS_DTYPE_BYTES(c->dtype_in);
  nc_leg legs[CUDA_RANKS_MAX] = {{0}};
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < n; r++) {
    if (r == me) continue;
    legs[r].send = c->rows * sends[same ? me : r] * size;
    legs[r].recv = c->rows * recvs[r] * size;
    if (same && r != (me == 0 ? 1u : 0u))
      legs[r].from = legs[me == 0 ? 1 : 0].from;
    else
      rc = pack(w, in_at(w, 0, same ? 0 : cuda_sum(sends, r)), c->rows, sends[same ? me : r], &legs[r].from,
                err);
    if (rc == BS_OK)
      rc = landing(w, out_at(w, 0, cuda_sum(recvs, r)), c->rows, recvs[r], c->dtype_in, &legs[r].to, err);
  }
  if (rc == BS_OK) rc = exchange(w, legs, err);
  for (uint32_t r = 0; rc == BS_OK && r < n; r++)
    if (r != me) rc = unpack(w, c, legs[r].to, out_at(w, 0, cuda_sum(recvs, r)), c->rows, recvs[r], err);
  if (rc != BS_OK) return rc;
  return cuda_move(w->end->device, c, c->rows, recvs[me], in_at(w, 0, same ? 0 : cuda_sum(sends, me)),
                   out_at(w, 0, cuda_sum(recvs, me)), w->stream, err);
}

/* Counts differ by rank, and no fingerprint has them: every rank tells what it sends and takes. */
static int32_t compare_counts(const nc_work *w, const uint64_t *told, bs_error *err) {
  const uint32_t n = w->end->n, me = w->end->me;
  for (uint32_t r = 0; r < n; r++) {
    const uint64_t *his = told + (uint64_t)r * 2 * n, *mine = told + (uint64_t)me * 2 * n;
    const int comes = his[me] != mine[n + r];
    if (!comes && mine[r] == his[n + me]) continue;
    return bs_fail(err, BS_MISMATCH, "BS-COLL-MISMATCH",
                   "ranks disagree: rank %u sends %llu columns to rank %u, which takes %llu", comes ? r : me,
                   (unsigned long long)(comes ? his[me] : mine[r]), comes ? me : r,
                   (unsigned long long)(comes ? mine[n + r] : his[n + me]));
  }
  return BS_OK;
}

static int32_t all_to_all(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const bs_host *host = host_of(w->end);
  const uint64_t n = w->end->n;
  uint64_t *told = host->alloc(host->ctx, 2 * n * (n + 1) * sizeof *told, 64), *mine = told + 2 * n * n;
  if (told == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for %s", w->what);
  memcpy(mine, c->counts, n * sizeof *mine);
  memcpy(mine + n, c->recv_counts, n * sizeof *mine);
  int32_t rc = cuda_tell_all(w->end, w->what, mine, (uint32_t)(2 * n), told, err);
  if (rc == BS_OK) rc = compare_counts(w, told, err);
  host->free(host->ctx, told);
  return rc == BS_OK ? swap_blocks(w, c->counts, c->recv_counts, 0, err) : rc;
}

static int32_t broadcast(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const int root = c->root == w->end->me;
  const void *from = NULL;
  void *to = NULL;
  const uint64_t bytes = c->rows * c->count * BS_DTYPE_BYTES(c->dtype_in);
  int32_t rc = root ? pack(w, in_at(w, 0, 0), c->rows, c->count, &from, err)
                    : landing(w, out_at(w, 0, 0), c->rows, c->count, c->dtype_in, &to, err);
  if (rc != BS_OK || bytes == 0) return rc;
  if (root) to = (void *)(uintptr_t)from;
  const int result =
      nccl_of(w->end)->call.broadcast(to, to, bytes, NCCL_INT8, (int)c->root, w->link->comm, w->stream);
  rc = queued(w, result, err);
  if (rc != BS_OK) return rc;
  if (root)
    return cuda_move(w->end->device, c, c->rows, c->count, in_at(w, 0, 0), out_at(w, 0, 0), w->stream, err);
  return unpack(w, c, to, out_at(w, 0, 0), c->rows, c->count, err);
}

/* Gives every rank its part of the sum: each sends the parts of the others, and gets theirs of `mine`. */
static int32_t collect(const nc_work *w, const cuda_part *parts, const cuda_part *mine, cuda_rank_rows *in,
                       bs_error *err) {
  const uint32_t n = w->end->n, me = w->end->me, size = BS_DTYPE_BYTES(w->call->dtype_in);
  nc_leg legs[CUDA_RANKS_MAX] = {{0}};
  int32_t rc = BS_OK;
  in[me] = in_at(w, mine->row, mine->col);
  for (uint32_t r = 0; rc == BS_OK && r < n; r++) {
    const cuda_part *p = &parts[r];
    if (r == me) continue;
    legs[r].send = p->rows * p->cols * size;
    legs[r].recv = mine->rows * mine->cols * size;
    rc = pack(w, in_at(w, p->row, p->col), p->rows, p->cols, &legs[r].from, err);
    if (rc == BS_OK && legs[r].recv > 0) rc = chunk(w, legs[r].recv, &legs[r].to, err);
    in[r] = (cuda_rank_rows){legs[r].to, (int64_t)mine->cols};
  }
  return rc == BS_OK ? exchange(w, legs, err) : rc;
}

static int32_t reduce_scatter(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const uint32_t n = w->end->n, me = w->end->me;
  cuda_part parts[CUDA_RANKS_MAX] = {{0}};
  cuda_rank_rows in[CUDA_RANKS_MAX];
  const cuda_rank_rows out = out_at(w, 0, 0);
  for (uint32_t r = 0; r < n; r++) parts[r] = (cuda_part){0, c->rows, cuda_sum(c->counts, r), c->counts[r]};
  const int32_t rc = collect(w, parts, &parts[me], in, err);
  if (rc != BS_OK) return rc;
  return cuda_reduce(w->end->device, c, c->rows, c->counts[me], in, n, &out, 1, w->stream, err);
}

static int32_t reduce_whole(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  cuda_part parts[CUDA_RANKS_MAX] = {{0}};
  cuda_rank_rows in[CUDA_RANKS_MAX];
  const cuda_rank_rows out = out_at(w, 0, 0);
  for (uint32_t r = 0; r < w->end->n; r++) parts[r] = (cuda_part){0, c->rows, 0, c->count};
  const int32_t rc = collect(w, parts, &parts[0], in, err);
  return rc == BS_OK
             ? cuda_reduce(w->end->device, c, c->rows, c->count, in, w->end->n, &out, 1, w->stream, err)
             : rc;
}

/* The sum of my share goes to everybody, theirs come. */
static int32_t spread(const nc_work *w, const cuda_part *parts, const void *sum, bs_error *err) {
  const uint32_t n = w->end->n, me = w->end->me, size = BS_DTYPE_BYTES(w->call->dtype_out);
  nc_leg legs[CUDA_RANKS_MAX] = {{0}};
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < n; r++) {
    const cuda_part *p = &parts[r];
    if (r == me) continue;
    legs[r].from = sum;
    legs[r].send = parts[me].rows * parts[me].cols * size;
    legs[r].recv = p->rows * p->cols * size;
    rc = landing(w, out_at(w, p->row, p->col), p->rows, p->cols, w->call->dtype_out, &legs[r].to, err);
  }
  if (rc == BS_OK) rc = exchange(w, legs, err);
  for (uint32_t r = 0; rc == BS_OK && r < n; r++)
    if (r != me)
      rc = unpack(w, &w->out, legs[r].to, out_at(w, parts[r].row, parts[r].col), parts[r].rows, parts[r].cols,
                  err);
  return rc;
}

static int32_t reduce_shares(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const uint32_t n = w->end->n, me = w->end->me;
  cuda_part parts[CUDA_RANKS_MAX] = {{0}};
  cuda_rank_rows in[CUDA_RANKS_MAX], out[2];
  for (uint32_t r = 0; r < n; r++) parts[r] = cuda_share(c, r, n);
  const cuda_part *mine = &parts[me];
  int32_t rc = collect(w, parts, mine, in, err);
  if (rc != BS_OK) return rc;
  out[0] = out_at(w, mine->row, mine->col);
  out[1] = out[0];
  const int packed = dense(mine->rows, mine->cols, out[0].row);
  if (!packed) {
    out[1].row = (int64_t)mine->cols;
    rc = chunk(w, mine->rows * mine->cols * BS_DTYPE_BYTES(c->dtype_out), &out[1].data, err);
  }
  if (rc == BS_OK)
    rc = cuda_reduce(w->end->device, c, mine->rows, mine->cols, in, n, out, packed ? 1 : 2, w->stream, err);
  return rc == BS_OK ? spread(w, parts, out[1].data, err) : rc;
}

static int32_t all_reduce(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const uint64_t bytes = c->rows * c->count * BS_DTYPE_BYTES(c->dtype_in);
  return bytes <= ONE_SHOT_BYTES ? reduce_whole(w, err) : reduce_shares(w, err);
}

/* The sender and the receiver compare what they call by the inner communicator. */
static int32_t pair(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  const cuda_end *end = w->end;
  const bs_comm *inner = end->world->w->inner;
  const int sends = c->kind == BS_COLL_SEND;
  uint64_t note = c->rows * c->count;
  nc_leg legs[CUDA_RANKS_MAX] = {{0}};
  const bs_coll_call hello = cuda_host_call(c, c->kind, &note, &note, sizeof note);
  int32_t rc = sends ? inner->send(end->inner, &hello, err) : inner->recv(end->inner, &hello, err);
  const uint64_t bytes = c->rows * c->count * BS_DTYPE_BYTES(c->dtype_in);
  legs[c->root].send = sends ? bytes : 0;
  legs[c->root].recv = sends ? 0 : bytes;
  if (rc == BS_OK && sends) rc = pack(w, in_at(w, 0, 0), c->rows, c->count, &legs[c->root].from, err);
  if (rc == BS_OK && !sends)
    rc = landing(w, out_at(w, 0, 0), c->rows, c->count, c->dtype_in, &legs[c->root].to, err);
  if (rc == BS_OK) rc = exchange(w, legs, err);
  if (rc != BS_OK || sends) return rc;
  return unpack(w, c, legs[c->root].to, out_at(w, 0, 0), c->rows, c->count, err);
}

static int32_t work(const nc_work *w, bs_error *err) {
  const bs_coll_call *c = w->call;
  switch (c->kind) {
    case BS_COLL_ALL_REDUCE:
      return all_reduce(w, err);
    case BS_COLL_REDUCE_SCATTER:
      return reduce_scatter(w, err);
    case BS_COLL_ALL_GATHER:
      return swap_blocks(w, c->counts, c->counts, 1, err);
    case BS_COLL_BROADCAST:
      return broadcast(w, err);
    case BS_COLL_ALL_TO_ALL:
      return all_to_all(w, err);
    default:
      return pair(w, err);
  }
}

/* The chunks, and NCCL's own order of a communicator, are one for all streams. */
static int32_t take_turn(const nc_work *w, bs_error *err) {
  const nc_link *link = w->link;
  if (link->stream == NULL || link->stream == w->stream) return BS_OK;
  return cuda_check(w->end->device, w->end->device->driver->call.stream_wait_event(w->stream, link->last, 0),
                    "cuStreamWaitEvent", err);
}

static int32_t run(cuda_end *end, const bs_coll_call *call, bs_error *err) {
  uint64_t key = 0;
  nc_work w = {.end = end,
               .link = end->link,
               .call = call,
               .in = *call,
               .out = *call,
               .stream = cuda_stream(end->device, call->stream),
               .what = cuda_site(end, call, &key)};
  const int paired = call->kind == BS_COLL_SEND || call->kind == BS_COLL_RECV;
  int32_t rc = BS_OK;
  w.in.dtype_out = call->dtype_in;
  w.out.dtype_in = call->dtype_out;
  w.link->used = 0;
  if (call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER)
    rc = cuda_reduce_check(call, end->n, err);
  if (rc == BS_OK && !paired) rc = cuda_meet(end, call, 0, err);
  if (rc == BS_OK) rc = take_turn(&w, err);
  if (rc == BS_OK) rc = work(&w, err);
  if (rc != BS_OK) return rc;
  w.link->stream = w.stream;
  rc = cuda_check(end->device, end->device->driver->call.event_record(w.link->last, w.stream),
                  "cuEventRecord", err);
  __atomic_store_n(&w.link->what, w.what, __ATOMIC_RELAXED);
  __atomic_store_n(&w.link->timeout_ns, call->timeout_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&w.link->until_ns, now_ns() + call->timeout_ns, __ATOMIC_RELEASE);
  return rc;
}

static const cuda_comm_kind kind_nccl = {"nccl", bind, unbind, run};

static int32_t wrap(void *state, const bs_comm *inner, void *inner_state, void **out_state, bs_error *err) {
  return cuda_comm_wrap(state, &kind_nccl, inner, inner_state, out_state, err);
}

const bs_comm cuda_comm_nccl = {
    CUDA_COMM_SLOTS,
    .name = "nccl",
    .summary = "ranks on GPUs of their own, by NVIDIA's NCCL; wraps: nccl:threads, nccl:shm, nccl:mpi",
    .wrap = wrap,
};
