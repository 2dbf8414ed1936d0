/* SPDX-License-Identifier: MIT
 * exchange.c - see exchange.h. Called by lab/phase and lab/measure after and within the runs of worlds. */
#include "lab/peers/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

void bs_parcel_put(bs_parcel *p, const void *data, uint64_t size) {
  if (p->failed || size == 0) return;
  if (p->size + size > p->capacity) {
    const uint64_t room = 2 * (p->size + size);
    char *grown = realloc(p->data, (size_t)room);
    if (grown == NULL) {
      p->failed = 1;
      return;
    }
    p->data = grown;
    p->capacity = room;
  }
  memcpy(p->data + p->size, data, (size_t)size);
  p->size += size;
}

void bs_parcel_put_block(bs_parcel *p, const void *data, uint64_t size) {
  const uint64_t told = data != NULL ? size : UINT64_MAX;
  bs_parcel_put(p, &told, sizeof told);
  if (data != NULL) bs_parcel_put(p, data, size);
}

void bs_parcel_get(bs_parcel *p, void *out, uint64_t size) {
  if (p->failed || size > p->size - p->at) {
    p->failed = 1;
    memset(out, 0, (size_t)size);
    return;
  }
  memcpy(out, p->data + p->at, (size_t)size);
  p->at += size;
}

void *bs_parcel_get_block(bs_parcel *p, uint64_t *out_size) {
  uint64_t size = 0;
  if (out_size != NULL) *out_size = 0;
  bs_parcel_get(p, &size, sizeof size);
  if (p->failed || size == UINT64_MAX) return NULL;
  char *out = size <= p->size - p->at ? calloc(1, (size_t)size + 1) : NULL;
  if (out == NULL) {
    p->failed = 1;
    return NULL;
  }
  if (size > 0) bs_parcel_get(p, out, size);
  if (out_size != NULL) *out_size = size;
  return out;
}

void bs_parcel_free(bs_parcel *p) {
  free(p->data);
  memset(p, 0, sizeof *p);
}

int bs_exchange_joint(const bs_world *world) {
  return bs_world_own_rank(world) != BS_WORLD_ALL_RANKS;
}

bs_collective bs_exchange_of(uint32_t kind, uint32_t dtype, uint64_t count, uint32_t root, const char *site) {
  return (bs_collective){.struct_size = sizeof(bs_collective),
                         .kind = kind,
                         .dtype_in = dtype,
                         .dtype_out = dtype,
                         .rows = 1,
                         .count = count,
                         .root = root,
                         .site = site};
}

static bs_collective control(uint32_t kind, uint32_t dtype, uint64_t count, uint32_t root, const char *site) {
  bs_collective what = bs_exchange_of(kind, dtype, count, root, site);
  what.flags = BS_COLL_CONTROL;
  return what;
}

int32_t bs_exchange_numbers(bs_rank *rank, const char *site, const double *mine, uint32_t n, double *out_all,
                            bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  double kept[8];
  if (n > 8) return bs_error_set(err, BS_INTERNAL, "BS-EXCHANGE", "%u numbers of a rank", n);
  memcpy(kept, mine, n * sizeof *mine); /* `mine` may point into `out_all` */
  const bs_collective what = control(BS_COLL_ALL_GATHER, BS_F64, n, 0, site);
  return bs_rank_collective_host(rank, &what, kept, n, out_all, (uint64_t)n * api->world_size(rank), err);
}

/* Whole numbers without a bit in common add up to their union. */
int32_t bs_exchange_union(bs_rank *rank, const char *site, void *bytes, uint64_t size, bs_error *err) {
  const uint64_t n = (size + sizeof(int32_t) - 1) / sizeof(int32_t);
  bs_collective what = bs_exchange_of(BS_COLL_ALL_REDUCE, BS_I32, n, 0, site);
  what.flags = BS_COLL_NATIVE;
  return bs_rank_collective_host(rank, &what, bytes, n, bytes, n, err);
}

typedef struct exchange {
  const bs_parcel *mine;
  bs_parcel *of_rank;
} exchange;

static int32_t receive(bs_rank *rank, uint32_t from, uint64_t size, bs_parcel *out, bs_error *err) {
  const bs_collective what = control(BS_COLL_RECV, BS_U8, size, from, "lab.peers.results");
  out->data = malloc(size > 0 ? (size_t)size : 1);
  if (out->data == NULL) return bs_no_memory(err, "%llu bytes of rank %u", (unsigned long long)size, from);
  out->size = out->capacity = size;
  return bs_rank_collective_host(rank, &what, NULL, 0, out->data, size, err);
}

static int32_t exchange_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  exchange *x = arg;
  const uint32_t me = api->rank(rank), P = api->world_size(rank);
  double *sizes = calloc(P, sizeof *sizes);
  if (sizes == NULL || x->mine->failed) {
    free(sizes);
    return bs_no_memory(err, "the results of rank %u", me);
  }
  const double own = (double)x->mine->size; /* exact below 2^53 */
  int32_t rc = bs_exchange_numbers(rank, "lab.peers.sizes", &own, 1, sizes, err);
  if (rc == BS_OK && me != 0) {
    const bs_collective what = control(BS_COLL_SEND, BS_U8, x->mine->size, 0, "lab.peers.results");
    rc = bs_rank_collective_host(rank, &what, x->mine->data, x->mine->size, NULL, 0, err);
  }
  for (uint32_t r = 1; rc == BS_OK && me == 0 && r < P; ++r)
    rc = receive(rank, r, (uint64_t)sizes[r], &x->of_rank[r], err);
  free(sizes);
  return rc;
}

int32_t bs_exchange_parcels(bs_world *world, const bs_parcel *mine, bs_parcel *of_rank, bs_error *err) {
  exchange x = {mine, of_rank};
  return bs_exchange_joint(world) ? bs_world_run(world, exchange_main, &x, err) : BS_OK;
}
