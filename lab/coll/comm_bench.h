/* SPDX-License-Identifier: MIT
 * comm_bench.h - the time of a communicator's collectives over sizes, each checked for right values. */
#ifndef BS_LAB_COLL_COMM_BENCH_H
#define BS_LAB_COLL_COMM_BENCH_H
#include "blockshock/blockshock.h"

/* An additional kind next to bs_coll_kind: rank 0 sends to rank 1, which sends back. Its time is half of
 * that. */
#define BS_BENCH_SEND_RECV ((uint32_t)BS_COLL_SEND)

/* One size of one collective. */
typedef struct bs_comm_cell {
  uint32_t kind;
  uint32_t samples;
  uint64_t
      bytes; /* of the vector: all_gather: received by a rank; reduce_scatter and all_to_all: sent by it */
  uint64_t count;                /* its elements */
  uint64_t calls;                /* one after the other in a sample */
  uint64_t wrong;                /* wrong elements over all ranks */
  double median_s, p10_s, p90_s; /* a call, of the slowest rank of each sample */
} bs_comm_cell;

typedef struct bs_comm_bench {
  const char *comm;
  const char *algorithm;    /* as bs_world_options.algorithm; NULL: the communicator's own */
  const char *const *kinds; /* "all_reduce", ..., "send_recv" */
  uint32_t n_kinds;
  uint32_t ranks;
  uint32_t dtype;     /* f64 f32 f16 bf16 i32 */
  uint32_t bind;      /* ranks are pinned */
  uint64_t min_bytes; /* the first size; each next one is `factor` times as large */
  uint64_t max_bytes;
  double factor;    /* > 1 */
  uint32_t samples; /* of each cell */
  uint32_t
      warmup; /* calls of each cell before them, at least 1: their time says how many calls a sample has */
  double timeout_s;
  /* On rank 0's process, after each cell. */
  void (*each)(void *user, const bs_comm_cell *cell);
  void *user;
} bs_comm_bench;

/* Opens a world of `ranks` ranks on the backend ref and measures each kind at each size, one after the other.
 * All processes of an attached world call it. BS_UNSUPPORTED: the communicator lacks a kind; nothing is
 * measured. */
int32_t bs_comm_bench_run(bs_context *context, const bs_comm_bench *bench, bs_error *err);
/* The enum bs_coll_kind of a name; -1: this kind is not measured. */
int bs_comm_bench_kind(const char *name);
const char *bs_comm_bench_name(uint32_t kind);
/* The bytes that the wire carries for a byte of the vector, as nccl-tests counts them: busbw = this times
 * bytes / seconds. */
double bs_bus_factor(uint32_t kind, uint32_t ranks);
#endif
