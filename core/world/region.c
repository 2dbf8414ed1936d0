/* SPDX-License-Identifier: MIT
 *
 * region.c - named timer regions of a rank. Methods and the lab begin and end them; statistics are read
 * after a run. On a backend with streams an event pair of the device times a region, in two modes: sync (the
 * stream is drained before and behind) and events (it is not); without, the clock does. Mode none: the clock
 * alone, whatever it misses. By events the host's own time until all is queued is kept beside.
 * Count, sum, smallest and largest are exact however long a run is. Percentiles come from a reservoir of
 * 4096 samples that is taken when the region is made: all of them up to there, then each with the same
 * chance, by a hash of its number, so that equal times give equal figures. Nothing is allocated while timing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/world/world.h"

#define RESERVOIR 4096u
#define MAX_PENDING 4096u /* event pairs before they are turned into samples */

static const char *const builtin_names[BS_REGION_BUILTIN_COUNT_] = {
    "build", "pack", "compress", "forward", "backward", "opt_step", "allreduce", "layout_fix", "total_step"};

static bs_region_data *region_add(bs_rank *rank, const char *name) {
  if (rank->nregions == BS_REGIONS_MAX) return NULL;
  bs_region_data *r = calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  r->name = bs_strdup(name);
  r->samples = malloc(RESERVOIR * sizeof *r->samples); /* pages come when they are used */
  if (r->name == NULL || r->samples == NULL) {
    free(r->samples);
    free(r->name);
    free(r);
    return NULL;
  }
  rank->regions[rank->nregions++] = r;
  return r;
}

int32_t bs_regions_init(bs_rank *rank) {
  for (uint32_t i = 0; i < BS_REGION_BUILTIN_COUNT_; ++i)
    if (region_add(rank, builtin_names[i]) == NULL) return BS_NO_MEMORY;
  return BS_OK;
}

void bs_regions_free(bs_rank *rank) {
  for (uint32_t i = 0; i < rank->nregions; ++i) {
    bs_region_data *r = rank->regions[i];
    for (uint32_t e = 0; e < r->events_made; ++e)
      rank->world->backend->event_destroy(rank->device, r->events[e]);
    free(r->events);
    free(r->enqueue);
    free(r->samples);
    free(r->name);
    free(r);
  }
  rank->nregions = 0;
}

uint32_t bs_region_named(bs_rank *rank, const char *name) {
  for (uint32_t i = 0; i < rank->nregions; ++i)
    if (strcmp(rank->regions[i]->name, name) == 0) return i;
  if (region_add(rank, name) != NULL) return rank->nregions - 1;
  bs_rank_misuse(rank, BS_NO_MEMORY, "BS-REGION-FULL", "no room for the region %s; %u exist", name,
                 rank->nregions);
  return UINT32_MAX;
}

int32_t bs_region_running(const bs_rank *rank, uint32_t region) {
  return region < rank->nregions && rank->regions[region]->running;
}

static uint64_t mixed(uint64_t i) { /* splitmix64's finish */
  i += UINT64_C(0x9e3779b97f4a7c15);
  i = (i ^ (i >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  i = (i ^ (i >> 27)) * UINT64_C(0x94d049bb133111eb);
  return i ^ (i >> 31);
}

/* Algorithm R: sample i takes one of i + 1 places by chance, and is kept when that is in the reservoir. */
static void choose(double *samples, uint64_t i, double ms) {
  const uint64_t place = i < RESERVOIR ? i : mixed(i) % (i + 1);
  if (place < RESERVOIR) samples[place] = ms;
}

static void keep(bs_region_data *r, double ms) {
  choose(r->samples, r->count, ms);
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
  if (r->pending == MAX_PENDING) {
    int32_t rc = settle(rank, r, err);
    if (rc != BS_OK) return rc;
  }
  if (r->events == NULL) {
    r->events = calloc((size_t)2 * MAX_PENDING, sizeof *r->events);
    if (r->events == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory for events");
  }
  if (r->enqueue == NULL) {
    r->enqueue = malloc(RESERVOIR * sizeof *r->enqueue);
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

/* What the device said ends the rank, once: what follows has the same cause. */
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
  bs_region_data *r = rank->regions[region];
  if (r->running) {
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-NEST", "region %s is begun while it runs", r->name);
    return;
  }
  bs_error err = BS_ERROR_INIT;
  int32_t rc = rank->use_events ? events_ready(rank, r, &err) : BS_OK;
  if (rc == BS_OK && rank->world->sync_mode == BS_SYNC_SYNC) rc = bs_rank_sync(rank, &err);
  if (rc == BS_OK && rank->use_events)
    rc = rank->world->backend->event_record(rank->device, r->events[2 * r->pending], NULL, &err);
  if (rc != BS_OK) {
    broken(rank, r, "begin", rc, &err);
    return;
  }
  r->running = 1;
  r->waited_ns = rank->waited_ns;
  r->started_ns = bs_rank_clock_ns(rank);
}

/* What lies between the events is queued: the host's part is over, but for waiting. */
static int32_t end_by_events(bs_rank *rank, bs_region_data *r, bs_error *err) {
  int32_t rc = rank->world->backend->event_record(rank->device, r->events[2 * r->pending + 1], NULL, err);
  if (rc != BS_OK) return rc;
  const uint64_t took = bs_rank_clock_ns(rank) - r->started_ns, waited = rank->waited_ns - r->waited_ns;
  r->pending++;
  choose(r->enqueue, r->enqueued++, (double)(took - waited) * 1e-6);
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
  bs_region_data *r = rank->regions[region];
  if (!r->running) {
    if (rank->sticky.code != BS_OK) return; /* it could not begin */
    bs_rank_misuse(rank, BS_INTERNAL, "BS-REGION-NEST", "region %s is ended but does not run", r->name);
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

/* What the host's clock says beside the device's. */
static int32_t beside(const bs_region_data *r, bs_region_stats *out, bs_error *err) {
  const uint64_t kept = r->enqueued < RESERVOIR ? r->enqueued : RESERVOIR;
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
  bs_region_data *r = rank->regions[region];
  int32_t rc = settle(rank, r, err);
  if (rc != BS_OK) return rc;
  const uint64_t kept = r->count < RESERVOIR ? r->count : RESERVOIR;
  double *copy = NULL;
  if (kept > 0) {
    copy = malloc(kept * sizeof *copy);
    if (copy == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-REGION-MEMORY", "no memory to sort %llu samples",
                          (unsigned long long)kept);
    memcpy(copy, r->samples, kept * sizeof *copy);
  }
  memset(out_stats, 0, sizeof *out_stats);
  out_stats->struct_size = (uint32_t)sizeof *out_stats;
  out_stats->name = r->name;
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

void bs_rank_regions_reset(bs_rank *rank) {
  for (uint32_t i = 0; i < rank->nregions; ++i) {
    /* A layer is built once, before any warm-up that a reset could be meant to forget. */
    if (i == BS_REGION_BUILD || i == BS_REGION_PACK || i == BS_REGION_COMPRESS) continue;
    rank->regions[i]->count = 0;
    rank->regions[i]->sum = 0.0;
    rank->regions[i]->enqueued = rank->regions[i]->host_count = 0;
    rank->regions[i]->host_sum = 0.0;
    if (!rank->regions[i]->running) rank->regions[i]->pending = 0;
  }
}
