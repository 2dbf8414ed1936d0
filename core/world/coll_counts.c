/* SPDX-License-Identifier: MIT
 *
 * coll_counts.c - the sizes of the blocks of gathers and scatters, one a rank: plans with the same ones share
 * a list of their world. A plan of each of thousands of ranks would else hold a list of thousands. Where all
 * blocks are alike nothing is done once a rank.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"
#include "core/world/world.h"

static int alike(const uint64_t *counts, uint32_t n) {
  for (uint32_t r = 1; r < n; ++r)
    if (counts[r] != counts[0]) return 0;
  return 1;
}

/* `counts` NULL: n times `value`. */
static int same(const bs_coll_counts *c, const uint64_t *counts, uint64_t value, uint32_t n, uint64_t hash) {
  if (c->hash != hash || c->n != n || c->even != (counts == NULL)) return 0;
  return counts == NULL ? c->counts[0] == value : memcmp(c->counts, counts, n * sizeof *counts) == 0;
}

static int32_t make(const uint64_t *counts, uint64_t value, uint32_t n, uint64_t hash, bs_coll_counts **out,
                    bs_error *err) {
  bs_coll_counts *c = malloc(sizeof *c + n * sizeof c->counts[0]);
  if (c == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for counts");
  *c = (bs_coll_counts){.hash = hash, .n = n, .even = counts == NULL};
  for (uint32_t r = 0; r < n; ++r) {
    c->counts[r] = counts != NULL ? counts[r] : value;
    if (bs_add_u64(c->sum, c->counts[r], &c->sum)) continue;
    free(c);
    return bs_error_set(err, BS_OVERFLOW, "BS-COLL-SIZE", "the sum of counts overflows");
  }
  *out = c;
  return BS_OK;
}

int32_t bs_coll_counts_share(bs_world *world, const uint64_t *counts, uint64_t value, uint32_t n,
                             bs_coll_counts **out, bs_error *err) {
  if (counts != NULL && alike(counts, n)) {
    value = counts[0];
    counts = NULL;
  }
  uint64_t hash = bs_world_mix(bs_world_mix(counts == NULL, n), counts == NULL ? value : 0);
  for (uint32_t r = 0; counts != NULL && r < n; ++r) hash = bs_world_mix(hash, counts[r]);
  int32_t rc = BS_OK;
  pthread_mutex_lock(&world->lock);
  bs_coll_counts **bucket = &world->counts[hash % BS_COUNTS_BUCKETS], *c = *bucket;
  while (c != NULL && !same(c, counts, value, n, hash)) c = c->next;
  if (c == NULL && (rc = make(counts, value, n, hash, &c, err)) == BS_OK) {
    c->next = *bucket;
    *bucket = c;
  }
  if (rc == BS_OK) c->refs++;
  pthread_mutex_unlock(&world->lock);
  *out = c;
  return rc;
}

void bs_coll_counts_drop(bs_world *world, bs_coll_counts *counts) {
  if (counts == NULL) return;
  pthread_mutex_lock(&world->lock);
  const int last = --counts->refs == 0;
  bs_coll_counts **at = &world->counts[counts->hash % BS_COUNTS_BUCKETS];
  while (last && *at != counts) at = &(*at)->next;
  if (last) *at = counts->next;
  pthread_mutex_unlock(&world->lock);
  if (last) free(counts);
}
