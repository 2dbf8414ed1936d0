/* SPDX-License-Identifier: MIT
 * wrap.c - what devlocal and nccl have in common: the inner communicator's worlds, ranks and groups, calls of
 * host memory handed on to it, and meetings by it. */
#include <stdatomic.h>

#include "../inner.h"
#include "comm.h"

typedef int32_t (*coll_fn)(void *comm, const bs_coll_call *call, bs_error *err);

static int32_t no_memory(bs_error *err) {
  bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a communicator");
  return BS_NO_MEMORY;
}

static const bs_host *host_of(const cuda_world *world) {
  return world->w->cuda->host;
}

/* ---- wrapping --------------------------------------------------------------------------------- */

int32_t cuda_comm_wrap(cuda_state *cuda, const cuda_comm_kind *kind, const bs_comm *inner, void *inner_state,
                       void **out_state, bs_error *err) {
  cuda_wrap *w = cuda->host->alloc(cuda->host->ctx, sizeof *w, 64);
  if (w == NULL) return no_memory(err);
  *w = (cuda_wrap){cuda, kind, inner, inner_state};
  *out_state = w;
  return BS_OK;
}

void cuda_comm_unwrap(void *wrapped) {
  cuda_wrap *w = wrapped;
  w->cuda->host->free(w->cuda->host->ctx, w);
}

/* ---- worlds ----------------------------------------------------------------------------------- */

int32_t cuda_comm_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  const cuda_wrap *w = state;
  const bs_host *host = w->cuda->host;
  cuda_world *world = host->alloc(host->ctx, sizeof *world, 64);
  if (world == NULL || pthread_mutex_init(&world->lock, NULL) != 0) {
    host->free(host->ctx, world);
    return no_memory(err);
  }
  world->w = w;
  world->size = request->world_size;
  const int32_t rc = w->inner->world_open(w->inner_state, request, &world->inner, err);
  if (rc != BS_OK) {
    pthread_mutex_destroy(&world->lock);
    host->free(host->ctx, world);
    return rc;
  }
  *out_world = world;
  return BS_OK;
}

void cuda_comm_world_close(void *opaque) {
  cuda_world *world = opaque;
  if (world == NULL) return;
  const bs_host *host = host_of(world);
  world->w->inner->world_close(world->inner);
  while (world->kept != NULL) {
    cuda_kept *next = world->kept->next;
    host->free(host->ctx, world->kept);
    world->kept = next;
  }
  pthread_mutex_destroy(&world->lock);
  host->free(host->ctx, world);
}

void *cuda_world_keep(cuda_world *world, uint64_t bytes) {
  const uint64_t head = 64; /* what follows is as aligned as the allocation */
  cuda_kept *kept = host_of(world)->alloc(host_of(world)->ctx, head + bytes, 64);
  if (kept == NULL) return NULL;
  pthread_mutex_lock(&world->lock);
  kept->next = world->kept;
  world->kept = kept;
  pthread_mutex_unlock(&world->lock);
  return (char *)kept + head;
}

int32_t cuda_comm_world_drive(void *opaque, void (*rank_main)(void *arg, uint32_t rank), void *arg,
                              bs_error *err) {
  const cuda_world *world = opaque;
  return world->w->inner->world_drive(world->inner, rank_main, arg, err);
}

void cuda_comm_abort(void *opaque, uint32_t rank, int32_t code, const char *why) {
  cuda_world *world = opaque;
  __atomic_store_n(&world->aborted, 1u, __ATOMIC_RELEASE);
  world->w->inner->abort(world->inner, rank, code, why);
}

/* ---- ranks and groups ------------------------------------------------------------------------- */

static int32_t end_make(cuda_world *world, void *inner, uint32_t me, uint32_t n, cuda_end **out,
                        bs_error *err) {
  cuda_end *end = host_of(world)->alloc(host_of(world)->ctx, sizeof *end, 64);
  if (end == NULL) {
    world->w->inner->rank_close(inner);
    return no_memory(err);
  }
  end->world = world;
  end->inner = inner;
  end->root = end;
  end->me = me;
  end->n = n;
  *out = end;
  return BS_OK;
}

int32_t cuda_comm_rank_open(void *opaque, uint32_t rank, void **out_comm, bs_error *err) {
  cuda_world *world = opaque;
  void *inner = NULL;
  cuda_end *end = NULL;
  int32_t rc = world->w->inner->rank_open(world->inner, rank, &inner, err);
  if (rc == BS_OK) rc = end_make(world, inner, rank, world->size, &end, err);
  if (rc == BS_OK) *out_comm = end;
  return rc;
}

void cuda_comm_rank_close(void *opaque) {
  cuda_end *end = opaque;
  if (end == NULL) return;
  const bs_host *host = host_of(end->world);
  if (end->device != NULL) end->world->w->kind->unbind(end);
  end->world->w->inner->rank_close(end->inner);
  host->free(host->ctx, end);
}

static int32_t bind_to(cuda_end *end, cuda_device *device, int64_t timeout_ns, bs_error *err) {
  end->device = device;
  end->timeout_ns = timeout_ns;
  const int32_t rc = end->world->w->kind->bind(end, err);
  if (rc != BS_OK) end->device = NULL;
  return rc;
}

int32_t cuda_comm_group_open(void *opaque, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                             bs_error *err) {
  cuda_end *parent = opaque, *end = NULL;
  cuda_world *world = parent->world;
  void *inner = NULL;
  uint32_t me = 0;
  int32_t rc = world->w->inner->group_open(parent->inner, ranks, nranks, &inner, err);
  if (rc != BS_OK) return rc;
  while (me < nranks && ranks[me] != parent->me) me++;
  rc = end_make(world, inner, me, nranks, &end, err);
  if (rc != BS_OK) return rc;
  end->root = parent->root;
  if (parent->device != NULL) rc = bind_to(end, parent->device, parent->timeout_ns, err);
  if (rc != BS_OK) {
    cuda_comm_rank_close(end);
    return rc;
  }
  *out_comm = end;
  return BS_OK;
}

int32_t cuda_comm_bind(void *opaque, const bs_comm_device *device, const char **out_name, bs_error *err) {
  cuda_end *end = opaque;
  const char *kind = end->world->w->kind->name;
  if (device->backend->mem_copy != cuda_mem_copy)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM", "%s serves memory of backend cuda alone, not of %s",
                   kind, device->backend->name);
  if (end->n > CUDA_RANKS_MAX)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM", "%s serves up to %d ranks, not %u", kind,
                   CUDA_RANKS_MAX, end->n);
  const int32_t rc = bind_to(end, device->device, device->timeout_ns, err);
  if (rc == BS_OK) *out_name = end->name;
  return rc;
}

/* ---- meetings --------------------------------------------------------------------------------- */

/* The description of the call, for errors. It is kept: a call site is used repeatedly. */
const char *cuda_site(cuda_end *end, const bs_coll_call *call, uint64_t *out_key) {
  uint64_t key = call->fingerprint + (call->kind + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  key ^= call->rows * UINT64_C(0xc2b2ae3d27d4eb4f);
  *out_key = key;
  const uint64_t place = (key >> 7) % CUDA_END_SITES;
  char *text = end->sites[place].text;
  if (text[0] != '\0' && end->sites[place].key == key) return text;
  snprintf(text, sizeof end->sites[place].text, "%s %s %llux%llu of %.90s",
           bs_name_of(BS_NAMES_COLL, call->kind), bs_name_of(BS_NAMES_DTYPE, call->dtype_in),
           (unsigned long long)call->rows, (unsigned long long)call->count,
           call->site != NULL ? call->site : "an unnamed call");
  end->sites[place].key = key;
  return text;
}

int32_t cuda_meet(cuda_end *end, const bs_coll_call *call, uint32_t turn, bs_error *err) {
  uint64_t key = 0;
  const char *site = cuda_site(end, call, &key);
  bs_coll_call meeting = {.struct_size = (uint32_t)sizeof meeting,
                          .kind = BS_COLL_BARRIER,
                          .site = site,
                          .fingerprint = key + turn,
                          .timeout_ns = call->timeout_ns};
  return end->world->w->inner->barrier(end->inner, &meeting, err);
}

int32_t cuda_tell_all(const cuda_end *end, const char *site, const uint64_t *in, uint32_t words,
                      uint64_t *out, bs_error *err) {
  const bs_host *host = host_of(end->world);
  uint64_t *counts = host->alloc(host->ctx, end->n * sizeof *counts, 64);
  if (counts == NULL) return no_memory(err);
  for (uint32_t r = 0; r < end->n; r++) counts[r] = words;
  const bs_coll_call call = {.struct_size = (uint32_t)sizeof call,
                             .kind = BS_COLL_ALL_GATHER,
                             .dtype_in = BS_I64,
                             .dtype_out = BS_I64,
                             .rows = 1,
                             .counts = counts,
                             .in = in,
                             .out = out,
                             .in_stride = words,
                             .out_stride = (int64_t)words * end->n,
                             .fingerprint = UINT64_C(0x62696e64) + words,
                             .site = site,
                             .timeout_ns = end->timeout_ns};
  const int32_t rc = end->world->w->inner->all_gather(end->inner, &call, err);
  host->free(host->ctx, counts);
  return rc;
}

bs_coll_call cuda_host_call(const bs_coll_call *call, uint32_t kind, const void *in, void *out,
                            uint64_t bytes) {
  bs_coll_call c = *call;
  c.kind = kind;
  c.dtype_in = c.dtype_out = BS_U8;
  c.flags &= ~(uint32_t)BS_COLL_DEVICE;
  c.rows = 1;
  c.count = bytes;
  c.in = in;
  c.out = out;
  c.in_stride = c.out_stride = (int64_t)bytes;
  c.stream = NULL;
  return c;
}

/* ---- collectives ------------------------------------------------------------------------------ */

/* Device memory: this plugin's collective; host memory, or no data: the inner one's. */
static int32_t pass(void *comm, const bs_coll_call *call, coll_fn inner, bs_error *err) {
  cuda_end *end = comm;
  if ((call->flags & BS_COLL_DEVICE) == 0) return inner(end->inner, call, err);
  if (call->kind == BS_COLL_BARRIER) {
    bs_coll_call plain = *call;
    plain.flags &= ~(uint32_t)BS_COLL_DEVICE;
    return inner(end->inner, &plain, err);
  }
  const int32_t rc = cuda_enter(end->device, err);
  return rc == BS_OK ? end->world->w->kind->run(end, call, err) : rc;
}

static const bs_comm *inner_of(const void *comm) {
  return ((const cuda_end *)comm)->world->w->inner;
}
int32_t cuda_comm_all_reduce(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_reduce, err);
}
int32_t cuda_comm_all_gather(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_gather, err);
}
int32_t cuda_comm_reduce_scatter(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->reduce_scatter, err);
}
int32_t cuda_comm_broadcast(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->broadcast, err);
}
int32_t cuda_comm_all_to_all(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_to_all, err);
}
int32_t cuda_comm_send(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->send, err);
}
int32_t cuda_comm_recv(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->recv, err);
}
int32_t cuda_comm_barrier(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->barrier, err);
}

/* Only for host memory, by the inner one. */
int32_t cuda_comm_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  cuda_end *end = comm;
  for (uint32_t i = 0; i < ncalls; i++)
    if ((calls[i]->flags & BS_COLL_DEVICE) != 0)
      return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM", "%s exchanges host memory alone",
                     end->world->w->kind->name);
  return end->world->w->inner->exchange(end->inner, calls, ncalls, err);
}

uint64_t cuda_comm_clock_ns(void *comm) {
  const cuda_end *end = comm;
  return end->world->w->inner->clock_ns(end->inner);
}

void cuda_comm_report(void *opaque,
                      void (*each)(void *user, const char *name, double value, const char *unit,
                                   const char *text),
                      void *user) {
  const cuda_world *world = opaque;
  world->w->inner->report(world->inner, each, user);
}
