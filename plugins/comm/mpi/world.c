/* SPDX-License-Identifier: MIT
 *
 * world.c - opening and closing of worlds, ranks and groups: who is a member, on which machine, and with what
 * tag the group's messages go.
 */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_comm.h"

#define OPEN_NS INT64_C(60000000000) /* of opening, where the request says nothing */
#define TAGS 5400u                   /* number of tags for groups; MPI guarantees tags up to 32767 */

static void comm_free(mpic_comm *comm) {
  if (comm == NULL) return;
  mpic_segment_close(comm);
  if (comm->dirty) {
    mpic_keep(comm->world->state, comm->out_buf);
    mpic_keep(comm->world->state, comm->in_buf);
  } else {
    free(comm->out_buf);
    free(comm->in_buf);
  }
  comm_transfers_close(&comm->transfers);
  free(comm->exchange_buf);
  free(comm->ranks);
  free(comm->machine);
  free(comm->local);
  free(comm->members);
  free(comm->starts);
  free(comm->runs);
  free(comm);
}

static int32_t no_memory(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a group");
}

/* Machines of the group, dense in the order of their lowest members; members by machine; runs. */
static int32_t place(mpic_comm *comm, bs_error *err) {
  const mpic_process *all = comm->world->state->processes;
  uint32_t n = comm->n;
  comm->machine = calloc(n, sizeof *comm->machine);
  comm->local = calloc(n, sizeof *comm->local);
  comm->members = calloc(n, sizeof *comm->members);
  comm->starts = calloc((size_t)n + 1u, sizeof *comm->starts);
  comm->runs = calloc(n, sizeof *comm->runs);
  if (comm->machine == NULL || comm->local == NULL || comm->members == NULL || comm->starts == NULL ||
      comm->runs == NULL)
    return no_memory(err);
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t same = 0;
    while (same < i && all[comm->ranks[same]].machine != all[comm->ranks[i]].machine) ++same;
    comm->machine[i] = same < i ? comm->machine[same] : comm->machines++;
    for (uint32_t j = 0; j < i; ++j) comm->local[i] += comm->machine[j] == comm->machine[i];
    comm->starts[comm->machine[i] + 1u]++;
    if (i == 0 || comm->machine[i] != comm->machine[i - 1u]) {
      mpic_run run = {comm->machine[i], i, 0};
      comm->runs[comm->nruns++] = run;
    }
    comm->runs[comm->nruns - 1u].n++;
  }
  comm->leaders = n;
  for (uint32_t m = 0; m < comm->machines; ++m) {
    comm->leaders = (uint32_t)comm_min(comm->leaders, comm->starts[m + 1u]);
    comm->starts[m + 1u] += comm->starts[m];
  }
  for (uint32_t i = 0; i < n; ++i) comm->members[comm->starts[comm->machine[i]] + comm->local[i]] = i;
  comm->here = comm->machine[comm->me];
  comm->nlocal = comm->starts[comm->here + 1u] - comm->starts[comm->here];
  return BS_OK;
}

/* Makes the buffers for messages to and from other machines: a line for each member, and a half for each
 * machine. */
static int32_t make_buffers(mpic_comm *comm, bs_error *err) {
  comm->buf_bytes =
      (uint64_t)comm->n * MPIC_LINE + ((uint64_t)comm->machines + 1u) * (MPIC_LINE + comm->half);
  comm->out_buf = malloc(comm->buf_bytes);
  comm->in_buf = malloc(comm->buf_bytes);
  return comm->out_buf != NULL && comm->in_buf != NULL ? BS_OK : no_memory(err);
}

/* The tag, equal on every member: from the world ranks and the number of such groups opened before from the
 * parent. */
static int tag_of(const uint32_t *ranks, uint32_t n, uint32_t nth) {
  uint64_t h = UINT64_C(0xcbf29ce484222325) ^ nth;
  for (uint32_t i = 0; i < n; ++i) h = (h ^ ranks[i]) * UINT64_C(0x100000001b3);
  h ^= h >> 29;
  return MPIC_TAG_FIRST + (int)(h % TAGS) * MPIC_STREAMS;
}

static int32_t comm_make(mpic_world *world, const mpic_comm *parent, const uint32_t *ranks, uint32_t n,
                         uint32_t me, uint32_t nth, int64_t timeout_ns, mpic_comm **out, bs_error *err) {
  mpic_comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) return no_memory(err);
  comm->world = world;
  comm->n = n;
  comm->me = me;
  comm_caller_open(&comm->caller);
  comm->half = (uint64_t)comm_param(world->state->host, world->state->self, "stage_kib", 512) * 1024u;
  comm->ranks = calloc(n, sizeof *comm->ranks);
  if (comm->ranks == NULL) {
    comm_free(comm);
    return no_memory(err);
  }
  for (uint32_t i = 0; i < n; ++i)
    comm->ranks[i] = parent != NULL ? parent->ranks[ranks[i]] : n == 1 ? world->me : i;
  int32_t rc = place(comm, err);
  if (rc == BS_OK) rc = make_buffers(comm, err);
  if (rc == BS_OK) {
    comm->tag = tag_of(comm->ranks, n, nth);
    rc = mpic_segment_open(comm, timeout_ns, err);
  }
  if (rc != BS_OK) {
    world->state->broken = 1;
    comm_free(comm);
    return rc;
  }
  *out = comm;
  return BS_OK;
}

static int32_t say_hello(mpic_state *state, const bs_world_request *request, int64_t timeout_ns,
                         bs_error *err) {
  mpic_hello mine, *table = NULL;
  mpic_hello_fill(state, &mine);
  mine.config = request->config_hash;
  mine.world_size = request->world_size;
  int32_t rc = mpic_hello_all(state, &mine, timeout_ns, &table, err);
  free(table);
  return rc;
}

static int32_t check_request(const mpic_state *state, const bs_world_request *request, bs_error *err) {
  if (!state->attached)
    return bs_fail(err, BS_UNAVAILABLE, "BS-MPI-LAUNCHER", "this process has not joined an MPI job");
  if (state->broken) {
    bs_fail(err, BS_UNAVAILABLE, "BS-COLL-WORLD", "a world of this MPI job has failed before");
    return bs_fail_hint(err, "start the job again");
  }
  if (request->world_size > MPIC_MAX_WORLD || request->world_size == 0)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "mpi serves 1 to %u ranks, not %u", MPIC_MAX_WORLD,
                   request->world_size);
  if (request->world_size == state->size || request->world_size == 1) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-COLL-WORLD", "the MPI job has %u ranks, the world is to have %u", state->size,
          request->world_size);
  return bs_fail_hint(err, "mpirun -n and -P must be the same number");
}

int32_t mpic_world_open(void *state_ptr, const bs_world_request *asked, void **out_world, bs_error *err) {
  mpic_state *state = state_ptr;
  bs_world_request request;
  memset(&request, 0, sizeof request);
  memcpy(&request, asked, asked->struct_size < sizeof request ? asked->struct_size : sizeof request);
  int32_t rc = check_request(state, &request, err);
  if (rc != BS_OK) return rc;
  int64_t timeout_ns = request.timeout_ns > 0 ? request.timeout_ns : OPEN_NS;
  if (request.world_size > 1) { /* a world of one rank has no peer */
    rc = say_hello(state, &request, timeout_ns, err);
    if (rc != BS_OK) return rc;
    state->worlds++;
  }
  mpic_world *world = calloc(1, sizeof *world);
  if (world == NULL) return no_memory(err);
  world->state = state;
  world->math.host = state->host;
  thr_kernels_choose(&world->math.kernels);
  world->size = request.world_size;
  world->me = request.world_size == 1 ? 0 : state->rank;
  world->timeout_ns = timeout_ns;
  world->inline_max = (uint32_t)comm_param(state->host, state->self, "inline_bytes", 4096);
  pthread_mutex_init(&world->lock, NULL);
  rc = comm_make(world, NULL, NULL, world->size, world->me, 0, timeout_ns, &world->all, err);
  if (rc != BS_OK) {
    pthread_mutex_destroy(&world->lock);
    free(world);
    return rc;
  }
  world->spin_ns =
      state->cores < world->all->nlocal ? 0 : comm_param(state->host, state->self, "spin_us", 100) * 1000;
  world->number = state->worlds;
  world->next = state->open;
  state->open = world;
  *out_world = world;
  return BS_OK;
}

void mpic_world_close(void *world_ptr) {
  mpic_world *world = world_ptr;
  if (world == NULL) return;
  mpic_world **at = &world->state->open;
  while (*at != NULL && *at != world) at = &(*at)->next;
  if (*at == world) *at = world->next;
  comm_free(world->all);
  pthread_mutex_destroy(&world->lock);
  free(world);
}

int32_t mpic_rank_open(void *world_ptr, uint32_t rank, void **out_comm, bs_error *err) {
  mpic_world *world = world_ptr;
  if (rank != world->me)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-RANK", "this process is rank %u, not %u", world->me,
                   rank);
  if (world->taken) return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-RANK", "rank %u is open already", rank);
  world->taken = 1;
  *out_comm = world->all;
  return BS_OK;
}

void mpic_rank_close(void *comm_ptr) {
  mpic_comm *comm = comm_ptr;
  if (comm == NULL || comm == comm->world->all) return; /* the world's own goes with it */
  comm_free(comm);
}

int32_t mpic_group_open(void *comm_ptr, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                        bs_error *err) {
  mpic_comm *parent = comm_ptr, *comm = NULL;
  uint32_t me = 0;
  int32_t rc = comm_check_group(parent->me, parent->n, ranks, nranks, &me, err);
  if (rc != BS_OK) return rc;
  rc = comm_make(parent->world, parent, ranks, nranks, me, 1, parent->world->timeout_ns, &comm, err);
  if (rc == BS_OK) *out_comm = comm;
  return rc;
}
