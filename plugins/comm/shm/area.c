/* SPDX-License-Identifier: MIT
 *
 * area.c - worlds and groups: each is an area of the mapping, found by its members in the order in which they
 * open them, and given back when all have closed it. Nothing here is on the hot path.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

#define PAGE 65536u

static void lock(shm_head *head) {
  if (pthread_mutex_lock(&head->lock) == EOWNERDEAD) pthread_mutex_consistent(&head->lock);
}
static void unlock(shm_head *head) {
  pthread_mutex_unlock(&head->lock);
}

static int has(const unsigned char *set, uint32_t r) {
  return set[r / 8] >> (r % 8) & 1;
}
static void add(unsigned char *set, uint32_t r) {
  set[r / 8] = (unsigned char)(set[r / 8] | 1u << (r % 8));
}

static uint64_t round_up(uint64_t v, uint64_t to) {
  return (v + to - 1u) / to * to;
}
static uint64_t area_bytes(uint64_t n) {
  return round_up(sizeof(shm_area) + n * sizeof(shm_slot) + n * n * sizeof(shm_mail), PAGE) +
         round_up(n * 4u * SHM_PIECE, PAGE);
}

/* The lowest free place for so many bytes; 0: none. */
static uint64_t find_room(const shm_head *head, uint64_t bytes) {
  uint64_t at = round_up(sizeof *head, PAGE);
  for (int moved = 1; moved;) {
    moved = 0;
    for (uint32_t i = 0; i < SHM_MAX_AREAS; ++i) {
      const shm_entry *e = &head->entries[i];
      if (!e->used || e->at >= at + bytes || e->at + e->bytes <= at) continue;
      at = e->at + e->bytes;
      moved = 1;
    }
  }
  return at + bytes <= head->bytes ? at : 0;
}

/* Pages of an area that was closed are zero again: the file gave them back. */
static void fill_area(const shm_job *job, const shm_entry *e, uint64_t world, const uint32_t *ranks) {
  shm_area *area = shm_at(job, e->at);
  area->n = e->n;
  area->world = world != 0 ? world : e->at;
  area->slots = e->at + sizeof *area;
  area->mail = area->slots + e->n * sizeof(shm_slot);
  area->buffers = e->at + e->bytes - round_up((uint64_t)e->n * 4u * SHM_PIECE, PAGE);
  memcpy(area->ranks, ranks, e->n * sizeof *ranks);
}

static int same_members(const shm_job *job, const shm_entry *e, const uint32_t *ranks, uint32_t n) {
  const shm_area *area = shm_at(job, e->at);
  return e->n == n && memcmp(area->ranks, ranks, n * sizeof *ranks) == 0;
}

/* The oldest of these members that I have not opened yet, or a new one. Entries are in no order: `serial` is.
 */
static shm_entry *find_or_make(shm_job *job, uint64_t parent, uint64_t world, const uint32_t *ranks,
                               uint32_t n) {
  shm_head *head = job->head;
  shm_entry *found = NULL, *empty = NULL;
  uint32_t newest = 0;
  for (uint32_t i = 0; i < SHM_MAX_AREAS; ++i) {
    shm_entry *e = &head->entries[i];
    if (!e->used && empty == NULL) empty = e;
    if (!e->used) continue;
    const uint32_t serial = ((shm_area *)shm_at(job, e->at))->serial;
    if (serial > newest) newest = serial;
    if (e->parent != parent || has(e->here, job->rank) || !same_members(job, e, ranks, n)) continue;
    if (found == NULL || serial < ((shm_area *)shm_at(job, found->at))->serial) found = e;
  }
  if (found != NULL || empty == NULL) return found;
  const uint64_t bytes = area_bytes(n), at = find_room(head, bytes);
  if (at == 0) return NULL;
  *empty = (shm_entry){.parent = parent, .at = at, .bytes = bytes, .used = 1, .n = n};
  fill_area(job, empty, world, ranks);
  ((shm_area *)shm_at(job, at))->serial = newest + 1u;
  return empty;
}

static int32_t open_area(shm_job *job, uint64_t parent, uint64_t world, const uint32_t *ranks, uint32_t n,
                         shm_area **out, bs_error *err) {
  lock(job->head);
  shm_entry *e = find_or_make(job, parent, world, ranks, n);
  if (e != NULL) {
    add(e->here, job->rank);
    e->joined++;
    *out = shm_at(job, e->at);
  }
  unlock(job->head);
  return e != NULL ? BS_OK
                   : bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY",
                             "no room for another group of %u ranks in the shared mapping", n);
}

/* The last of all members gives it back; one that died keeps it. */
static void close_area(shm_job *job, shm_area *area) {
  shm_head *head = job->head;
  const uint64_t at = shm_offset(job, area);
  lock(head);
  for (uint32_t i = 0; i < SHM_MAX_AREAS; ++i) {
    shm_entry *e = &head->entries[i];
    if (!e->used || e->at != at || ++e->left < e->n) continue;
    for (uint32_t r = 0; r < job->size; ++r) { /* texts in it are no rank's last call any more */
      const uint64_t last = atomic_load(&head->process[r].last);
      if (last >= at && last < at + e->bytes) atomic_store(&head->process[r].last, 0);
    }
    madvise(area, e->bytes, MADV_REMOVE);
    memset(e, 0, sizeof *e);
    break;
  }
  unlock(head);
}

/* ---- worlds --------------------------------------------------------------------------------- */

static shm_slot *slot_at(const shm_world *world, uint32_t r) {
  return (shm_slot *)shm_at(world->job, world->area->slots) + r;
}

/* All are here, configured alike. */
static int32_t greet(shm_world *world, const bs_world_request *q, bs_error *err) {
  shm_job *job = world->job;
  const int64_t deadline = comm_now_ns() + q->timeout_ns;
  slot_at(world, job->rank)->config_hash = q->config_hash;
  atomic_store(&slot_at(world, job->rank)->joined, 1u);
  for (uint32_t r = 0; r < job->size; ++r) {
    for (uint32_t spins = 0; atomic_load(&slot_at(world, r)->joined) == 0; ++spins) {
      const struct timespec t = {0, 100000};
      if (spins < 64) {
        sched_yield();
        continue;
      }
      nanosleep(&t, NULL);
      char last[SHM_TEXT];
      shm_last_call(job, r, last, sizeof last);
      if (shm_job_dead(job, r) && atomic_load(&slot_at(world, r)->joined) == 0)
        return bs_fail(err, BS_RANK_FAILED, "BS-RANK-DEAD", "rank %u has ended; its last call: %s", r, last);
      if (comm_now_ns() >= deadline)
        return bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE",
                       "%.3g s passed in opening a world; missing: rank %u (last call: %s)",
                       (double)q->timeout_ns * 1e-9, r, last);
    }
    if (slot_at(world, r)->config_hash != q->config_hash) {
      bs_fail(err, BS_MISMATCH, "BS-RANK-CONFIG", "rank %u is configured otherwise than rank %u", r,
              job->rank);
      return bs_fail_hint(err, "start every rank with the same options and files");
    }
  }
  return BS_OK;
}

int32_t shm_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  shm_job *job = state;
  bs_world_request q;
  uint32_t all[SHM_MAX_RANKS];
  memset(&q, 0, sizeof q);
  memcpy(&q, request, request->struct_size < sizeof q ? request->struct_size : sizeof q);
  if (q.timeout_ns <= 0) q.timeout_ns = INT64_C(60000000000);
  if (job->size == 0)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SHM-NOJOB", "a world is opened before attaching");
  if (q.world_size != job->size)
    return bs_fail(err, BS_CONFIG, "BS-COLL-WORLD", "a world of %u ranks in a job of %u", q.world_size,
                   job->size);
  int32_t rc = shm_job_open(job, q.timeout_ns, err);
  if (rc != BS_OK) return rc;
  shm_world *world = calloc(1, sizeof *world);
  if (world == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a world");
  for (uint32_t r = 0; r < job->size; ++r) all[r] = r;
  world->job = job;
  world->spin_ns = comm_param(job->host, job->self, "spin_us", 100) * 1000;
  if (job->size > comm_cores_allowed()) world->spin_ns = 0;
  world->inline_max = (uint32_t)comm_param(job->host, job->self, "inline_bytes", 4096);
  rc = open_area(job, 0, 0, all, job->size, &world->area, err);
  if (rc == BS_OK && world->area != NULL) rc = greet(world, &q, err);
  if (rc != BS_OK) {
    shm_world_close(world);
    return rc;
  }
  *out_world = world;
  return BS_OK;
}

void shm_world_close(void *world_ptr) {
  shm_world *world = world_ptr;
  if (world == NULL) return;
  if (world->area != NULL) close_area(world->job, world->area);
  free(world);
}

static int32_t comm_make(shm_world *world, shm_area *area, uint32_t me, void **out_comm, bs_error *err) {
  shm_comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a communicator");
  comm->world = world;
  comm->area = area;
  comm->me = me;
  comm_caller_open(&comm->caller);
  *out_comm = comm;
  return BS_OK;
}

int32_t shm_rank_open(void *world_ptr, uint32_t rank, void **out_comm, bs_error *err) {
  shm_world *world = world_ptr;
  if (rank != world->job->rank)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-RANK", "rank %u is not this process's, which is %u",
                   rank, world->job->rank);
  return comm_make(world, world->area, rank, out_comm, err);
}

void shm_rank_close(void *comm_ptr) {
  shm_comm *comm = comm_ptr;
  if (comm == NULL) return;
  if (comm->area != comm->world->area) close_area(comm->world->job, comm->area);
  comm_transfers_close(&comm->transfers);
  free(comm);
}

int32_t shm_group_open(void *comm_ptr, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                       bs_error *err) {
  shm_comm *comm = comm_ptr;
  shm_job *job = comm->world->job;
  uint32_t me = 0, members[SHM_MAX_RANKS];
  shm_area *area = NULL;
  int32_t rc = comm_check_group(comm->me, comm->area->n, ranks, nranks, &me, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < nranks; ++i) members[i] = comm->area->ranks[ranks[i]];
  rc = open_area(job, shm_offset(job, comm->area), comm->area->world, members, nranks, &area, err);
  if (rc == BS_OK) rc = comm_make(comm->world, area, me, out_comm, err);
  if (rc != BS_OK && area != NULL) close_area(job, area);
  return rc;
}
