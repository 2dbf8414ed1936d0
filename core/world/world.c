/* SPDX-License-Identifier: MIT
 *
 * world.c - making and ending worlds, and what can be asked of one. Called by embedding programs and
 * the lab.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/text.h"
#include "core/op/choice.h"
#include "core/plugin/registry.h"
#include "core/world/world.h"

#define DEFAULT_TIMEOUT_S 60.0
#define MAX_TIMEOUT_S 1e6
#define TEAM_SPIN_NS 50000

static int32_t check_options(const bs_world_options *o, bs_error *err) {
  if (o->threads_per_rank > BS_TEAM_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-WORLD-THREADS", "%u threads a rank; at most %u are possible",
                        o->threads_per_rank, BS_TEAM_MAX);
  if (o->sync_mode > BS_SYNC_NONE)
    return bs_error_set(err, BS_CONFIG, "BS-WORLD-SYNC", "unknown sync mode %u", o->sync_mode);
  if (!isfinite(o->timeout_s) || o->timeout_s < 0.0 || o->timeout_s > MAX_TIMEOUT_S)
    return bs_error_set(err, BS_CONFIG, "BS-WORLD-TIMEOUT",
                        "a timeout of %g s; 0 (default) to %g are possible", o->timeout_s, MAX_TIMEOUT_S);
  return BS_OK;
}

/* How many ranks there can be depends on how they come to be. */
static int32_t check_size(const bs_world *world, bs_error *err) {
  const uint32_t served = world->comm->max_ranks;
  uint32_t most = world->comm->launch == BS_LAUNCH_DRIVEN ? BS_WORLD_DRIVEN_MAX : BS_WORLD_MAX;
  if (served != 0 && served < most) most = served;
  if (world->size >= 1 && world->size <= most) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-WORLD-SIZE", "a world of %u ranks; 1 to %u are possible over %s",
               world->size, most, world->comm->name);
  if (world->size > most && most == BS_WORLD_MAX)
    bs_error_hint(err, "a simulated world may have up to %u: --plugin sim", BS_WORLD_DRIVEN_MAX);
  return BS_CONFIG;
}

/* Backend, communicator, devices. */
static int32_t resolve(bs_world *world, const bs_world_options *o, bs_error *err) {
  int32_t rc = bs_find_backend(world->context, o->backend != NULL ? o->backend : "cpu", &world->backend,
                               &world->backend_state, err);
  if (rc != BS_OK) return rc;
  rc = bs_find_comm(world->context, o->comm != NULL ? o->comm : "threads", &world->comm, &world->comm_state,
                    err);
  if (rc != BS_OK) return rc;
  if (world->comm->launch < BS_LAUNCH_THREADS || world->comm->launch > BS_LAUNCH_DRIVEN)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-WORLD-LAUNCH",
                        "communicator %s starts its ranks in a way (%u) that this host does not know",
                        world->comm->name, world->comm->launch);
  if (world->comm->launch == BS_LAUNCH_DRIVEN && world->comm->world_drive == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-WORLD-LAUNCH", "communicator %s lacks world_drive",
                        world->comm->name);
  rc = check_size(world, err);
  if (rc != BS_OK) return rc;
  rc = world->backend->device_count(world->backend_state, &world->devices, err);
  if (rc != BS_OK) return rc;
  if (world->devices == 0)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-WORLD-DEVICE", "backend %s has no device here",
                        world->backend->name);
  return BS_OK;
}

static int32_t open_comm(bs_world *world, bs_error *err) {
  if (world->comm->launch != BS_LAUNCH_DRIVEN && world->size == 1)
    return BS_OK; /* no other rank to talk to */
  bs_world_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = (uint32_t)sizeof request;
  request.world_size = world->size;
  request.rank = world->own;
  request.config_hash = world->config_hash;
  request.timeout_ns = world->timeout_ns;
  request.topology = world->topology.table;
  request.topology_opened = world->topology.opened;
  return world->comm->world_open(world->comm_state, &request, &world->comm_world, err);
}

static int32_t make_ranks(bs_world *world, bs_error *err) {
  world->ranks = calloc(world->size, sizeof *world->ranks);
  int whole = world->ranks != NULL;
  for (uint32_t r = 0; whole && r < world->size; ++r) {
    if (world->own != BS_WORLD_ALL_RANKS && world->own != r) continue;
    world->ranks[r] = bs_rank_new(world, r);
    whole = world->ranks[r] != NULL;
  }
  if (whole) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for %u ranks", world->size);
}

int32_t bs_world_create(bs_context *context, const bs_world_options *options, bs_world **out_world,
                        bs_error *err) {
  bs_world_options o;
  memset(&o, 0, sizeof o);
  memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  int32_t rc = check_options(&o, err);
  if (rc != BS_OK) return rc;
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(bs_world)) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for a world");
  bs_world *world = memset(memory, 0, sizeof(bs_world));
  if (pthread_mutex_init(&world->lock, NULL) != 0) {
    free(world);
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no mutex for a world");
  }
  world->context = context;
  world->logger = bs_context_logger(context);
  world->size = o.world_size;
  world->sync_mode = o.sync_mode;
  world->timeout_ns = (int64_t)((o.timeout_s > 0.0 ? o.timeout_s : DEFAULT_TIMEOUT_S) * 1e9);
  if (world->timeout_ns < 1) world->timeout_ns = 1;
  if (o.hook != NULL) {
    world->hook = *o.hook;
    world->has_hook = 1;
  }
  world->rehearse = o.rehearse;
  world->fallback = o.fallback;
  world->config_hash = o.config_hash;
  world->own = BS_WORLD_ALL_RANKS;
  world->sharers = o.world_size;
  rc = bs_choice_book_new(o.choices, o.n_choices, &world->choices, err);
  if (rc == BS_OK) rc = bs_world_find_cores(world, err);
  if (rc == BS_OK) rc = resolve(world, &o, err);
  if (rc == BS_OK)
    rc = bs_algorithm_choose(world->context, world->comm, world->size, o.algorithm, &world->algorithm, err);
  if (rc == BS_OK) rc = bs_world_attach(world, &world->sharers, err);
  if (rc == BS_OK) rc = bs_world_open_topology(world, o.topology, err);
  if (rc == BS_OK) {
    int driven = world->comm->launch == BS_LAUNCH_DRIVEN;
    uint32_t share = world->ncores / world->sharers;
    world->width = o.threads_per_rank != 0 ? o.threads_per_rank : driven || share == 0 ? 1u : share;
    int fits = (uint64_t)world->width * world->sharers <= world->ncores;
    world->pinned = o.bind != 0 && world->cores_known && fits && !driven;
    world->spin_ns = fits ? TEAM_SPIN_NS : 0;
    rc = open_comm(world, err);
  }
  if (rc == BS_OK) rc = make_ranks(world, err);
  if (rc != BS_OK) {
    bs_world_destroy(world);
    return rc;
  }
  *out_world = world;
  return BS_OK;
}

void bs_world_destroy(bs_world *world) {
  if (world == NULL || world->stuck) return;
  bs_park_end(world);
  if (world->ranks != NULL)
    for (uint32_t r = 0; r < world->size; ++r) bs_rank_close(world->ranks[r]);
  free(world->ranks);
  if (world->comm_world != NULL) world->comm->world_close(world->comm_world);
  bs_world_close_choices(world);
  pthread_mutex_destroy(&world->lock);
  bs_choice_book_free(world->choices);
  free(world->algorithms);
  free(world->cores);
  free(world);
}

int32_t bs_world_run(bs_world *world, int32_t (*rank_main)(bs_rank *rank, void *arg, bs_error *err),
                     void *arg, bs_error *err) {
  if (world->failed) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-WORLD-FAILED", "this world failed before: %s",
                 world->first.message);
    bs_error_hint(err, "destroy it and create another");
    return BS_INVALID_ARGUMENT;
  }
  if (world->entered)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-WORLD-ENTER",
                        "this world is entered: bs_world_leave comes before bs_world_run");
  world->rank_main = rank_main;
  world->arg = arg;
  return bs_launch_run(world, err);
}

uint32_t bs_world_left_behind(const bs_world *world) {
  return world->stuck;
}
uint32_t bs_world_size(const bs_world *world) {
  return world->size;
}
uint32_t bs_world_own_rank(const bs_world *world) {
  return world->own;
}
uint32_t bs_world_threads_per_rank(const bs_world *world) {
  return world->width;
}
uint32_t bs_world_shared_device(const bs_world *world) {
  return world->size > world->devices;
}
void bs_world_figures(const bs_world *world,
                      void (*each)(void *user, const char *name, double value, const char *unit,
                                   const char *text),
                      void *user) {
  if (world->comm->report != NULL && world->comm_world != NULL)
    world->comm->report(world->comm_world, each, user);
}
bs_rank *bs_world_rank(bs_world *world, uint32_t rank) {
  return rank < world->size ? world->ranks[rank] : NULL;
}

const char *bs_world_algorithms(const bs_world *world) {
  return world->algorithms != NULL ? world->algorithms : "";
}

uint32_t bs_world_choice_count(const bs_world *world) {
  return bs_choice_count(world->choices);
}

int32_t bs_world_choice_get(const bs_world *world, uint32_t index, bs_choice_info *out_info, bs_error *err) {
  return bs_choice_get(world->choices, index, out_info, err);
}
