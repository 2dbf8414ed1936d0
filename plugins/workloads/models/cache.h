/* SPDX-License-Identifier: MIT
 * cache.h - generated units of X (a row, an image, one head of a batch element), rounded to the model's
 * dtype, within a limit of bytes. Ranks and their threads read at the same time: one of them makes a unit
 * while the others that want it wait, and a unit is not removed while it is read. Thread-safe after make. */
#ifndef BS_WORKLOADS_MODELS_CACHE_H
#define BS_WORKLOADS_MODELS_CACHE_H
#include "blockshock/plugin.h"

/* Makes unit number `unit` into out (unit_bytes). Pure: the same unit gives the same bytes. */
typedef int32_t (*models_build_fn)(void *ctx, int64_t unit, void *out, bs_error *err);
typedef struct models_cache models_cache;

typedef struct models_cache_spec {
  const bs_host *host;
  int64_t n_units;
  uint64_t unit_bytes; /* > 0 */
  uint64_t max_bytes;  /* of units kept */
  int64_t min_kept;    /* units kept even where they exceed max_bytes; at least 1 */
  models_build_fn build;
  void *ctx;
} models_cache_spec;

int32_t models_cache_make(const models_cache_spec *spec, models_cache **out_cache, bs_error *err);
/* The unit's bytes, valid until models_cache_release of the returned slot. */
int32_t models_cache_get(models_cache *cache, int64_t unit, const void **out_data, int64_t *out_slot,
                         bs_error *err);
void models_cache_release(models_cache *cache, int64_t slot);
/* Makes those units first .. first+count-1 that no reader has begun, so that readers of one range share the
 * work instead of waiting for each other. Does nothing if not all units can be kept. */
int32_t models_cache_share(models_cache *cache, int64_t first, int64_t count, bs_error *err);
/* Bytes of units held now. */
uint64_t models_cache_bytes(models_cache *cache);
void models_cache_free(models_cache *cache);
#endif
