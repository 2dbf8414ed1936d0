/* SPDX-License-Identifier: MIT
 * exchange.h - collects data on ranks of other processes: every rank's results on rank 0, and a few numbers
 * on all. Without processes it does nothing: the results are in this one. */
#ifndef BS_LAB_EXCHANGE_H
#define BS_LAB_EXCHANGE_H
#include "blockshock/blockshock.h"

/* A growing run of bytes, written at one end and read at the other. Zero-initialise. */
typedef struct bs_parcel {
  char *data;
  uint64_t size, capacity, at;
  uint32_t failed; /* no memory while writing, or more was read than is there */
  uint32_t reserved;
} bs_parcel;
void bs_parcel_put(bs_parcel *parcel, const void *data, uint64_t size);
/* Adds a block with its size before it; a NULL block stays NULL. */
void bs_parcel_put_block(bs_parcel *parcel, const void *data, uint64_t size);
void bs_parcel_get(bs_parcel *parcel, void *out, uint64_t size);
/* A copy, the caller's to free, one byte longer than the block, which is zero. */
void *bs_parcel_get_block(bs_parcel *parcel, uint64_t *out_size);
void bs_parcel_free(bs_parcel *parcel);

/* 1: the ranks of this world are processes. */
int bs_exchange_joint(const bs_world *world);
/* Sends every rank's parcel to rank 0. There of_rank[r] of each other rank is filled, and the caller frees
 * it. All ranks of a world of processes call it after a run. `mine` that failed is an error on all. */
int32_t bs_exchange_parcels(bs_world *world, const bs_parcel *mine, bs_parcel *of_rank, bs_error *err);
/* A collective of one row whose sums have the dtype of the data. */
bs_collective bs_exchange_of(uint32_t kind, uint32_t dtype, uint64_t count, uint32_t root, const char *site);
/* n numbers of each rank to all, [world_size][n]; within a run, by every rank. */
int32_t bs_exchange_numbers(bs_rank *rank, const char *site, const double *mine, uint32_t n, double *out_all,
                            bs_error *err);
/* Combines memory in which each rank has set its own bits, all others zero: every rank gets the bits that all
 * have set. Every rank calls it within a run. `bytes` has room for whole units. */
#define BS_EXCHANGE_UNIT 8
int32_t bs_exchange_union(bs_rank *rank, const char *site, void *bytes, uint64_t size, bs_error *err);
#endif
