/* SPDX-License-Identifier: MIT
 *
 * region.c - named timer regions of a rank. Methods and the lab begin and end them; statistics are read
 * after a run. On a backend with streams an event pair of the device times a region, in two modes: sync (the
 * stream is drained before and after) and events (it is not). Without streams the host's clock times it. Mode
 * none: the host's clock only, even where it misses device work. With events the host's time until all work
 * is queued is kept, too.
 * Count, sum, smallest and largest are exact however long a run is. Percentiles come from a reservoir of
 * samples that is taken when the region is made: all of them up to there, then each with the same chance, by
 * a hash of its number, so that equal times give equal figures. The reservoir has 4096 samples, in a driven
 * world 16. The regions of a rank are made with the rank, or, in a driven world of thousands of ranks, when
 * they are first begun. Nothing else is allocated while timing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/world/world.h"

#define RESERVOIR 4096u
#define RESERVOIR_DRIVEN 16u
#define FIRST_ROOM 16u /* of the table */

static const char *const builtin_names[BS_REGION_BUILTIN_COUNT_] = {
    "build", "pack", "compress", "forward", "backward", "opt_step", "allreduce", "layout_fix", "total_step"};

static int driven(const bs_rank *rank) {
  return rank->world->comm->launch == BS_LAUNCH_DRIVEN;
}

static void region_free(const bs_rank *rank, bs_region_data *r) {
  if (r == NULL) return;
  for (uint32_t e = 0; e < r->events_made; ++e)
    rank->world->backend->event_destroy(rank->device, r->events[e]);
  free(r->events);
  free(r->enqueue);
  free(r->samples);
  free(r->name);
  free(r);
}

static bs_region_data *region_new(const bs_rank *rank, const char *name) {
  bs_region_data *r = calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  r->room = driven(rank) ? RESERVOIR_DRIVEN : RESERVOIR;
  r->name = bs_strdup(name);
  r->samples = malloc(r->room * sizeof *r->samples); /* pages come when they are used */
  if (r->name != NULL && r->samples != NULL) return r;
  region_free(rank, r);
  return NULL;
}

/* Room for `count` regions in the table. */
static int table_grow(bs_rank *rank, uint32_t count) {
  if (count <= rank->regions_room) return 1;
  const uint32_t room = rank->regions_room == 0 ? FIRST_ROOM : 2 * rank->regions_room;
  bs_region_data **grown = room <= BS_REGIONS_MAX ? realloc(rank->regions, room * sizeof *grown) : NULL;
  if (grown == NULL) return 0;
  memset(grown + rank->regions_room, 0, (room - rank->regions_room) * sizeof *grown);
  rank->regions = grown;
  rank->regions_room = room;
  return 1;
}

/* The region, made when it is used first; NULL: no memory. */
static bs_region_data *region_at(bs_rank *rank, uint32_t region) {
  if (!table_grow(rank, rank->nregions)) return NULL;
  if (rank->regions[region] == NULL) rank->regions[region] = region_new(rank, builtin_names[region]);
  return rank->regions[region];
}

/* NULL: not used yet. */
static bs_region_data *region_used(const bs_rank *rank, uint32_t region) {
  return rank->regions != NULL ? rank->regions[region] : NULL;
}

static const char *region_name(const bs_rank *rank, uint32_t region) {
  return region < BS_REGION_BUILTIN_COUNT_ ? builtin_names[region] : rank->regions[region]->name;
}

int32_t bs_regions_init(bs_rank *rank) {
  rank->nregions = BS_REGION_BUILTIN_COUNT_;
  for (uint32_t i = 0; !driven(rank) && i < rank->nregions; ++i)
    if (region_at(rank, i) == NULL) return BS_NO_MEMORY;
  return BS_OK;
}

void bs_regions_free(bs_rank *rank) {
  for (uint32_t i = 0; i < rank->nregions; ++i) region_free(rank, region_used(rank, i));
  free(rank->regions);
  rank->regions = NULL;
  rank->nregions = rank->regions_room = 0;
}

uint32_t bs_region_named(bs_rank *rank, const char *name) {
  for (uint32_t i = 0; i < rank->nregions; ++i)
    if (strcmp(region_name(rank, i), name) == 0) return i;
  bs_region_data *made = table_grow(rank, rank->nregions + 1) ? region_new(rank, name) : NULL;
  if (made != NULL) {
    rank->regions[rank->nregions] = made;
    return rank->nregions++;
  }
  bs_rank_misuse(rank, BS_NO_MEMORY, "BS-REGION-FULL", "no room for the region %s; %u exist", name,
                 rank->nregions);
  return UINT32_MAX;
}

int32_t bs_region_running(const bs_rank *rank, uint32_t region) {
  const bs_region_data *r = region < rank->nregions ? region_used(rank, region) : NULL;
  return r != NULL && r->running;
}

static uint64_t mixed(uint64_t i) { /* splitmix64's finish */
  i += UINT64_C(0x9e3779b97f4a7c15);
  i = (i ^ (i >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  i = (i ^ (i >> 27)) * UINT64_C(0x94d049bb133111eb);
  return i ^ (i >> 31);
}

/* Algorithm R: sample i takes one of i + 1 places by chance, and is kept when that is in the reservoir. */
static void choose(double *samples, uint64_t room, uint64_t i, double ms) {
  const uint64_t place = i < room ? i : mixed(i) % (i + 1);
  if (place < room) samples[place] = ms;
}

static void keep(bs_region_data *r, double ms) {
  choose(r->samples, r->room, r->count, ms);
  r->min = r->count == 0 || ms < r->min ? ms : r->min;
  r->max = r->count == 0 || ms > r->max ? ms : r->max;
  r->sum += ms;
  r->count++;
}

/* Turn pending event pairs into samples. */
static int32_t settle(bs_rank *rank, bs_region_data *r, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  if (r->pending == 0) return BS_OK;
  int32_t rc = bs_rank_sync(rank, err);
  for (uint32_t i = 0; rc == BS_OK && i < r->pending; ++i) {
    double seconds = 0.0;
    rc = backend->event_elapsed(rank->device, r->events[2 * i], r->events[2 * i + 1], &seconds, err);
    if (rc == BS_OK) keep(r, seconds * 1e3);
  }
  r->pending = 0;
  return rc;
}

static int32_t events_ready(bs_rank *rank, bs_region_data *r, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  if (r->pending == r->room) {
    int32_t rc = settle(rank, r, err);
    if (rc != BS_OK) return rc;
  }
  if (r->events == NULL) {
    r->events = calloc((size_t)2 * r->room, sizeof *r->events);
    if (r->events == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory for events");
  }
  if (r->enqueue == NULL) {
    r->enqueue = malloc(r->room * sizeof *r->enqueue);
    if (r->enqueue == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory for samples");
  }
  while (r->events_made < 2 * (r->pending + 1)) {
    int32_t rc = backend->event_create(rank->device, &r->events[r->events_made], err);
    if (rc != BS_OK) return rc;
    r->events_made++;
  }
  return BS_OK;
}

/* Keeps the first error of the device, which ends the rank: later errors have the same cause. */
static void broken(bs_rank *rank, const bs_region_data *r, const char *what, int32_t code, bs_error *err) {
  if (rank->sticky.code != BS_OK) return;
  if (err->code != code) bs_error_set(err, code, "BS-REGION", "%s", bs_status_name(code));
  rank->sticky = *err;
  bs_log_write(rank->world->logger, BS_LOG_ERROR, "", (int32_t)rank->index, "%s: region %s could not %s: %s",
               err->id, r->name, what, err->message);
}

void bs_region_begin(bs_rank *rank, uint32_t region) {
  if (rank->capturing) return; /* nothing runs */
  if (region >= rank->nregions) {
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-ID", "region %u of %u is begun", region, rank->nregions);
    return;
  }
  bs_region_data *r = region_at(rank, region);
  if (r == NULL) {
    bs_rank_misuse(rank, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory for a region");
    return;
  }
  if (r->running) {
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-NEST", "region %s is begun while it runs", r->name);
    return;
  }
  bs_error err = BS_ERROR_INIT;
  int32_t rc = rank->use_events ? events_ready(rank, r, &err) : BS_OK;
  if (rc == BS_OK && rank->world->sync_mode == BS_SYNC_SYNC) rc = bs_rank_sync(rank, &err);
  if (rc == BS_OK && rank->use_events && r->events != NULL)
    rc = rank->world->backend->event_record(rank->device, r->events[2 * r->pending], NULL, &err);
  if (rc != BS_OK) {
    broken(rank, r, "begin", rc, &err);
    return;
  }
  r->running = 1;
  r->waited_ns = rank->waited_ns;
  r->started_ns = bs_rank_clock_ns(rank);
}

/* Ends a region by an event. All work between the events is queued: the host only has to wait. */
static int32_t end_by_events(bs_rank *rank, bs_region_data *r, bs_error *err) {
  int32_t rc = rank->world->backend->event_record(rank->device, r->events[2 * r->pending + 1], NULL, err);
  if (rc != BS_OK) return rc;
  const uint64_t took = bs_rank_clock_ns(rank) - r->started_ns, waited = rank->waited_ns - r->waited_ns;
  r->pending++;
  choose(r->enqueue, r->room, r->enqueued++, (double)(took - waited) * 1e-6);
  if (rank->world->sync_mode != BS_SYNC_SYNC) return BS_OK;
  rc = bs_rank_sync(rank, err);
  r->host_sum += (double)(bs_rank_clock_ns(rank) - r->started_ns) * 1e-6;
  r->host_count++;
  return rc;
}

void bs_region_end(bs_rank *rank, uint32_t region) {
  if (rank->capturing) return;
  if (region >= rank->nregions) {
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-ID", "region %u of %u is ended", region, rank->nregions);
    return;
  }
  bs_region_data *r = region_used(rank, region);
  if (r == NULL || !r->running) {
    if (rank->sticky.code != BS_OK) return; /* it could not begin */
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-NEST", "region %s is ended but does not run",
                   region_name(rank, region));
    return;
  }
  bs_error err = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  r->running = 0;
  if (rank->use_events) {
    rc = end_by_events(rank, r, &err);
  } else {
    if (rank->world->sync_mode == BS_SYNC_SYNC) rc = bs_rank_sync(rank, &err);
    uint64_t now = bs_rank_clock_ns(rank);
    if (rc == BS_OK) keep(r, (double)(now - r->started_ns) * 1e-6);
  }
  if (rc != BS_OK) broken(rank, r, "end", rc, &err);
}

/* ---- statistics ----------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double percentile(const double *sorted, uint64_t count, double q) {
  double k = (double)(count - 1) * q;
  uint64_t low = (uint64_t)floor(k), high = (uint64_t)ceil(k);
  return sorted[low] + (sorted[high] - sorted[low]) * (k - (double)low);
}

void bs_region_summarise(double *samples, uint64_t count, bs_region_stats *out_stats) {
  out_stats->count = count;
  out_stats->sum_ms = out_stats->avg_ms = out_stats->p50_ms = out_stats->p95_ms = 0.0;
  out_stats->min_ms = out_stats->max_ms = 0.0;
  if (count == 0) return;
  qsort(samples, (size_t)count, sizeof *samples, by_value);
  for (uint64_t i = 0; i < count; ++i) out_stats->sum_ms += samples[i];
  out_stats->avg_ms = out_stats->sum_ms / (double)count;
  out_stats->min_ms = samples[0];
  out_stats->max_ms = samples[count - 1];
  out_stats->p50_ms = percentile(samples, count, 0.50);
  out_stats->p95_ms = percentile(samples, count, 0.95);
}

uint32_t bs_rank_region_count(const bs_rank *rank) {
  return rank->nregions;
}

/* Adds the host's times to the device's statistics. */
static int32_t beside(const bs_region_data *r, bs_region_stats *out, bs_error *err) {
  const uint64_t kept = r->enqueued < r->room ? r->enqueued : r->room;
  out->device_clock = 1;
  if (r->host_count > 0) out->host_avg_ms = r->host_sum / (double)r->host_count;
  if (kept == 0) return BS_OK;
  double *copy = malloc(kept * sizeof *copy);
  if (copy == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory to sort %llu samples",
                        (unsigned long long)kept);
  memcpy(copy, r->enqueue, kept * sizeof *copy);
  qsort(copy, (size_t)kept, sizeof *copy, by_value);
  out->enqueue_p50_ms = percentile(copy, kept, 0.50);
  free(copy);
  return BS_OK;
}

int32_t bs_rank_region_stats(bs_rank *rank, uint32_t region, bs_region_stats *out_stats, bs_error *err) {
  if (region >= rank->nregions)
    return bs_error_set(err, BS_NOT_FOUND, "BS-REGION-ID", "region %u of %u", region, rank->nregions);
  bs_region_data *r = region_used(rank, region);
  memset(out_stats, 0, sizeof *out_stats);
  out_stats->struct_size = (uint32_t)sizeof *out_stats;
  out_stats->name = region_name(rank, region);
  if (r == NULL) return BS_OK;
  int32_t rc = settle(rank, r, err);
  if (rc != BS_OK) return rc;
  const uint64_t kept = r->count < r->room ? r->count : r->room;
  double *copy = NULL;
  if (kept > 0) {
    copy = malloc(kept * sizeof *copy);
    if (copy == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory to sort %llu samples",
                          (unsigned long long)kept);
    memcpy(copy, r->samples, kept * sizeof *copy);
  }
  bs_region_summarise(copy, kept, out_stats);
  if (r->count > kept) { /* the percentiles are those of the reservoir, the rest is exact */
    out_stats->count = r->count;
    out_stats->sum_ms = r->sum;
    out_stats->avg_ms = r->sum / (double)r->count;
    out_stats->min_ms = r->min;
    out_stats->max_ms = r->max;
  }
  free(copy);
  return rank->use_events ? beside(r, out_stats, err) : BS_OK;
}

uint64_t bs_rank_region_samples(bs_rank *rank, uint32_t region, double *out_ms, uint64_t most) {
  bs_region_data *r = region < rank->nregions ? region_used(rank, region) : NULL;
  if (r == NULL || settle(rank, r, NULL) != BS_OK) return 0;
  uint64_t n = r->count < r->room ? r->count : r->room;
  if (n > most) n = most;
  if (n > 0) memcpy(out_ms, r->samples, n * sizeof *out_ms);
  return n;
}

void bs_rank_regions_reset(bs_rank *rank) {
  for (uint32_t i = 0; i < rank->nregions; ++i) {
    /* A layer is built once, before any warm-up that a reset could be meant to forget. */
    if (i == BS_REGION_BUILD || i == BS_REGION_PACK || i == BS_REGION_COMPRESS) continue;
    bs_region_data *r = region_used(rank, i);
    if (r == NULL) continue;
    r->count = 0;
    r->sum = 0.0;
    r->enqueued = r->host_count = 0;
    r->host_sum = 0.0;
    if (!r->running) r->pending = 0;
  }
}
