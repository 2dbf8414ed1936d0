/* SPDX-License-Identifier: MIT
 *
 * world.c - opening and closing of worlds, ranks and groups, the record of the first failure, and the
 * interned texts of call sites. Nothing here is on the hot path.
 */
#include <stdlib.h>

#include "threads.h"

#define MAX_SITES 65536u

static void group_free(thr_group *group) {
  if (group == NULL) return;
  for (uint32_t r = 0; group->rows != NULL && r < group->n; ++r) free(atomic_load(&group->rows[r]));
  free(group->rows);
  free(group->inboxes);
  free(group->inline_data);
  free(group->slots);
  free(group->joined);
  free(group->ranks);
  free(group);
}

/* Cache-line aligned and zeroed. count is at most THR_MAX_RANKS, so sizes cannot overflow. */
static void *alloc_lines(uint64_t count, size_t size) {
  void *p = NULL;
  if (posix_memalign(&p, 64, count * size) != 0) return NULL;
  memset(p, 0, count * size);
  return p;
}

/* The slots' message buffers: not zeroed, so pages that no message uses are never made. */
static unsigned char *alloc_inline(uint64_t members) {
  void *p = NULL;
  return posix_memalign(&p, 64, 2u * members * THR_INLINE_MAX) == 0 ? p : NULL;
}

static thr_group *group_make(thr_world *world, thr_group *parent, const uint32_t *ranks, uint32_t n) {
  thr_group *group = alloc_lines(1, sizeof *group);
  if (group == NULL) return NULL;
  group->world = world;
  group->parent = parent;
  group->n = n;
  group->ranks = calloc(n, sizeof *group->ranks);
  group->joined = calloc(n, 1);
  group->rows = calloc(n, sizeof *group->rows);
  group->inboxes = alloc_lines(n, sizeof *group->inboxes);
  group->slots = alloc_lines(n, sizeof *group->slots);
  group->inline_data = alloc_inline(n);
  if (group->ranks == NULL || group->joined == NULL || group->rows == NULL || group->slots == NULL ||
      group->inline_data == NULL || group->inboxes == NULL) {
    group_free(group);
    return NULL;
  }
  for (uint32_t i = 0; i < n; ++i) group->ranks[i] = parent != NULL ? parent->ranks[ranks[i]] : i;
  return group;
}

int32_t thr_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  const thr_state *plugin = state;
  if (request->world_size == 0 || request->world_size > THR_MAX_RANKS)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "threads serves 1 to %u ranks, not %u",
                   THR_MAX_RANKS, request->world_size);
  thr_world *world = alloc_lines(1, sizeof *world);
  if (world == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a world");
  world->host = plugin->host;
  world->size = request->world_size;
  thr_kernels_choose(&world->kernels);
  world->spin_ns = comm_param(plugin->host, plugin->self, "spin_us", 100) * 1000;
  if (world->size > comm_cores_allowed()) world->spin_ns = 0;
  int64_t inline_max = comm_param(plugin->host, plugin->self, "inline_bytes", 512);
  world->inline_max = inline_max > (int64_t)THR_INLINE_MAX ? THR_INLINE_MAX : (uint32_t)inline_max;
  world->trace = alloc_lines(world->size, sizeof *world->trace);
  world->all = group_make(world, NULL, NULL, world->size);
  if (world->trace == NULL || world->all == NULL || pthread_mutex_init(&world->lock, NULL) != 0) {
    group_free(world->all);
    free(world->trace);
    free(world);
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a world of %u ranks",
                   request->world_size);
  }
  *out_world = world;
  return BS_OK;
}

void thr_world_close(void *world_ptr) {
  thr_world *world = world_ptr;
  if (world == NULL) return;
  while (world->groups != NULL) {
    thr_group *next = world->groups->next;
    group_free(world->groups);
    world->groups = next;
  }
  for (size_t b = 0; b < sizeof world->sites / sizeof world->sites[0]; ++b) {
    while (world->sites[b] != NULL) {
      thr_site *next = world->sites[b]->next;
      free(world->sites[b]);
      world->sites[b] = next;
    }
  }
  pthread_mutex_destroy(&world->lock);
  group_free(world->all);
  free(world->trace);
  free(world);
}

static int32_t comm_make(thr_world *world, thr_group *group, uint32_t me, void **out_comm, bs_error *err) {
  thr_comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a communicator");
  comm->world = world;
  comm->group = group;
  comm->me = me;
  comm_caller_open(&comm->caller);
  *out_comm = comm;
  return BS_OK;
}

int32_t thr_rank_open(void *world_ptr, uint32_t rank, void **out_comm, bs_error *err) {
  thr_world *world = world_ptr;
  if (rank >= world->size)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-RANK", "rank %u of %u", rank, world->size);
  pthread_mutex_lock(&world->lock);
  int taken = world->all->joined[rank];
  world->all->joined[rank] = 1;
  pthread_mutex_unlock(&world->lock);
  if (taken) return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-RANK", "rank %u is open already", rank);
  return comm_make(world, world->all, rank, out_comm, err);
}

static void group_unlink(thr_world *world, thr_group *group) {
  for (thr_group **at = &world->groups; *at != NULL; at = &(*at)->next) {
    if (*at == group) {
      *at = group->next;
      return;
    }
  }
}

void thr_rank_close(void *comm_ptr) {
  thr_comm *comm = comm_ptr;
  if (comm == NULL) return;
  thr_world *world = comm->world;
  thr_group *group = comm->group;
  if (group != world->all) {
    pthread_mutex_lock(&world->lock);
    uint32_t joined = 0;
    for (uint32_t i = 0; i < group->n; ++i) joined += group->joined[i];
    int last = --group->refs == 0 && joined == group->n;
    if (last) group_unlink(world, group);
    pthread_mutex_unlock(&world->lock);
    if (last) group_free(group); /* else by world_close */
  }
  comm_transfers_close(&comm->transfers);
  free(comm);
}

/* The oldest group of these ranks that `me` has not joined yet: members open groups in the same order. */
static thr_group *group_find(thr_world *world, const thr_group *parent, const uint32_t *ranks, uint32_t n,
                             uint32_t me) {
  thr_group *found = NULL;
  for (thr_group *g = world->groups; g != NULL; g = g->next) { /* newest first */
    if (g->parent != parent || g->n != n || g->joined[me]) continue;
    uint32_t same = 0;
    while (same < n && g->ranks[same] == parent->ranks[ranks[same]]) ++same;
    if (same == n) found = g;
  }
  return found;
}

int32_t thr_group_open(void *comm_ptr, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                       bs_error *err) {
  thr_comm *comm = comm_ptr;
  thr_world *world = comm->world;
  uint32_t me = 0;
  int32_t rc = comm_check_group(comm->me, comm->group->n, ranks, nranks, &me, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&world->lock);
  thr_group *group = group_find(world, comm->group, ranks, nranks, me);
  if (group == NULL) {
    group = group_make(world, comm->group, ranks, nranks);
    if (group != NULL) {
      group->next = world->groups;
      world->groups = group;
    }
  }
  if (group != NULL) {
    group->joined[me] = 1;
    group->refs++;
  }
  pthread_mutex_unlock(&world->lock);
  if (group == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a group");
  rc = comm_make(world, group, me, out_comm, err);
  if (rc != BS_OK) { /* the seat stays taken; world_close frees the group */
    pthread_mutex_lock(&world->lock);
    group->refs--;
    pthread_mutex_unlock(&world->lock);
  }
  return rc;
}

/* ---- failure -------------------------------------------------------------------------------- */

static void ring_group(thr_group *group) {
  for (uint32_t r = 0; r < group->n; ++r) {
    comm_ring(&group->slots[r].header[0].flag, COMM_THREADS);
    comm_ring(&group->slots[r].header[1].flag, COMM_THREADS);
    comm_ring_waiters(&group->inboxes[r].flag, COMM_THREADS);
  }
}

void thr_fail_world(thr_world *world, int32_t code, uint32_t rank, const thr_group *group, uint32_t pos,
                    const char *text) {
  pthread_mutex_lock(&world->lock);
  if (atomic_load(&world->failed) == 0) {
    world->fail_code = code;
    world->fail_rank = rank;
    world->fail_group = group;
    world->fail_pos = pos;
    snprintf(world->fail_text, sizeof world->fail_text, "%s", text != NULL ? text : "");
    atomic_store(&world->failed, 1u);
    ring_group(world->all);
    for (thr_group *g = world->groups; g != NULL; g = g->next) ring_group(g);
  }
  pthread_mutex_unlock(&world->lock);
}

void thr_abort(void *world, uint32_t rank, int32_t code, const char *why) {
  thr_fail_world(world, code, rank, NULL, 0, why);
}

/* ---- call sites ----------------------------------------------------------------------------- */

const char *thr_site_text(thr_comm *comm, uint64_t key, const bs_coll_call *call) {
  thr_world *world = comm->world;
  size_t bucket = key % (sizeof world->sites / sizeof world->sites[0]);
  const char *text = "(call site not recorded)";
  char description[sizeof((thr_site *)0)->text];
  bs_coll_describe(call, description, sizeof description);
  pthread_mutex_lock(&world->lock);
  thr_site *site = world->sites[bucket];
  while (site != NULL && (site->key != key || strcmp(site->text, description) != 0)) site = site->next;
  if (site == NULL && world->nsites < MAX_SITES && (site = calloc(1, sizeof *site)) != NULL) {
    site->key = key;
    memcpy(site->text, description, sizeof description);
    site->next = world->sites[bucket];
    world->sites[bucket] = site;
    world->nsites++;
  }
  if (site != NULL) text = site->text;
  pthread_mutex_unlock(&world->lock);
  comm->cache[(key >> 7) % THR_CACHE].key = key;
  comm->cache[(key >> 7) % THR_CACHE].text = text;
  return text;
}
