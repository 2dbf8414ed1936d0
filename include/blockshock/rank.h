/* SPDX-License-Identifier: MIT
 *
 * rank.h - what a method or workload is given of the rank it runs on: the bs_rank_api table.
 * Every function is called from the rank's own thread.
 *
 * Units: shapes and counts are counted in elements, memory and messages in bytes, timeout_ns in nanoseconds.
 * Ownership: the caller releases what it makes by the function of the same name: plans by op_release, packed
 * weights by packed_release, tensors by tensor_free, groups by group_close.
 * Threads: a rank and all that was made with it belong to the rank's thread. Members of its team run only
 * inside parallel_for.
 * Errors: what can fail returns an enum bs_status and fills err, which may be NULL. A failed collective
 * fails the world: each later collective of every rank returns BS_ABORTED.
 */
#ifndef BLOCKSHOCK_RANK_H
#define BLOCKSHOCK_RANK_H

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_rank bs_rank;           /* world, rank, device, streams, timers, counters */
typedef struct bs_packed bs_packed;       /* a packed weight */
typedef struct bs_plan bs_plan;           /* a prepared op */
typedef struct bs_coll_plan bs_coll_plan; /* a prepared collective */
typedef struct bs_group bs_group;         /* a sub-world */

/* The account that a tensor's bytes are counted on. BS_LIFE_CALL, since 0.15, is memory of one call of a
 * layer that is not trained. It is not zero, and what a call leaves there is lost: the layers of a rank may
 * have it in common. A method asks for it in `build`, where all tensors of the layer get separate places. At
 * other times, and in a layer with BS_LAYER_BACKWARD, it is memory like BS_LIFE_SCRATCH. */
enum bs_lifetime { BS_LIFE_WEIGHTS = 1, BS_LIFE_ACTIVATION = 2, BS_LIFE_SCRATCH = 3, BS_LIFE_CALL = 4 };

/* The built-in timer regions; other names are made with region_named. */
enum bs_region {
  BS_REGION_BUILD = 0,
  BS_REGION_PACK = 1,
  BS_REGION_COMPRESS = 2,
  BS_REGION_FORWARD = 3,
  BS_REGION_BACKWARD = 4,
  BS_REGION_OPT_STEP = 5,
  BS_REGION_ALLREDUCE = 6,  /* any collective of a layer */
  BS_REGION_LAYOUT_FIX = 7, /* copies that only change layout, the column gather among them */
  BS_REGION_TOTAL_STEP = 8,
  BS_REGION_BUILTIN_COUNT_ = 9
};

/* Host counters. Collective counters are filled by the host's wrappers, not by methods. */
enum bs_counter {
  BS_COUNT_FLOPS = 0,
  BS_COUNT_OP_BYTES = 1,      /* bytes read and written by ops, by the schema's cost rule */
  BS_COUNT_COLLECTIVES = 2,   /* calls */
  BS_COUNT_PAYLOAD_BYTES = 3, /* message bytes of collectives, before the ring factor */
  BS_COUNT_WIRE_BYTES =
      4, /* payload x canonical ring factor (share/doc/blockshock/methods.md), rounded down */
  BS_COUNT_COUNT_ = 5
};

/* A collective to prepare; fields as in bs_coll_call. `site` names the call site: unique in the layer. */
typedef struct bs_collective {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t dtype_in;
  uint32_t dtype_out;
  uint32_t reduce_dtype; /* 0: f32 for floats of 32 bits and less, else dtype_in */
  uint32_t reduce_op;
  uint32_t root;
  uint32_t ncounts; /* entries of counts and recv_counts: 0 or the group's size */
  uint64_t rows;
  uint64_t count;
  const uint64_t *counts;
  const uint64_t *recv_counts;
  const char *site;
  int64_t timeout_ns; /* 0: the world's default */
  bs_group *group;    /* NULL: the whole world */
  uint32_t flags;     /* BS_COLL_NATIVE, BS_COLL_CONTROL (comm.h), since 0.11; others are an error */
  uint32_t reserved;
} bs_collective;

/* The host's services for one rank. What can fail returns an enum bs_status; what no implementation serves
 * is BS_UNSUPPORTED with all reasons. The table outlives the rank. */
typedef struct bs_rank_api {
  uint32_t struct_size;
  uint32_t reserved;
  uint32_t (*rank)(const bs_rank *rank);
  uint32_t (*world_size)(const bs_rank *rank);
  /* Ops of the rank's backend. supports fills the answer of the implementation that would be chosen
   * (NO with reasons when none serves). Plans and packed objects are released by the caller. */
  int32_t (*op_supports)(bs_rank *rank, const bs_op_query *query, bs_op_answer *out_answer, bs_error *err);
  int32_t (*pack)(bs_rank *rank, const bs_op_query *query, const bs_source *weights, bs_packed **out_packed,
                  bs_error *err);
  int32_t (*packed_update)(bs_packed *packed, const bs_tensor *delta, bs_error *err);
  int32_t (*packed_read)(bs_packed *packed, int64_t row, bs_tensor *out, bs_error *err);
  uint64_t (*packed_bytes)(const bs_packed *packed);
  void (*packed_release)(bs_packed *packed);
  /* Makes a plan for a query; `weights` is NULL for ops without one. Slow. At op_run the leading dimension of
   * activations may be smaller. */
  int32_t (*op_prepare)(bs_rank *rank, const bs_op_query *query, bs_packed *weights, bs_plan **out_plan,
                        bs_error *err);
  int32_t (*op_run)(bs_plan *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                    bs_error *err); /* the hot call */
  void (*op_release)(bs_plan *plan);
  /* Device memory, 64-byte aligned, zero-filled but for BS_LIFE_CALL, counted by lifetime. desc may be freed
   * after the call (bs_desc_2d of plugin.h makes one). tensor_free of NULL, or of a tensor without memory,
   * does nothing. */
  int32_t (*tensor_alloc)(bs_rank *rank, const bs_tensor_desc *desc, uint32_t lifetime, bs_tensor *out_tensor,
                          bs_error *err);
  void (*tensor_free)(bs_rank *rank, bs_tensor *tensor);
  /* Fills a [rows,cols] tensor from a source: the host converts, and copies to the device. */
  int32_t (*tensor_read)(bs_rank *rank, const bs_source *source, int64_t row, const bs_partition *cols,
                         bs_tensor *out, bs_error *err);
  /* Makes the K-partition of rank `rank_index` of `world_size` for a mask. BS_UNSUPPORTED with a hint where
   * the table of share/doc/blockshock/methods.md has none, BS_CONFIG for a mask that is itself wrong. */
  int32_t (*partition_make)(bs_rank *rank, const bs_mask *mask, int64_t total, uint32_t rank_index,
                            uint32_t world_size, const bs_partition **out_partition, bs_error *err);
  void (*partition_free)(const bs_partition *partition);
  /* Calls body(arg, member, width) once on each member of the rank's team, and returns when all are done. */
  int32_t (*parallel_for)(bs_rank *rank, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg);
  /* Makes a sub-world of the given ranks, which ascend and contain this one. Every member calls it in the
   * same order. */
  int32_t (*group_open)(bs_rank *rank, const uint32_t *ranks, uint32_t nranks, bs_group **out_group,
                        bs_error *err);
  void (*group_close)(bs_group *group);
  /* Checks names, sizes and dtypes; collective_run is the hot call. desc may be freed after the call; the
   * site string must live as long as the plan. */
  int32_t (*collective_prepare)(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan,
                                bs_error *err);
  int32_t (*collective_run)(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                            bs_error *err);
  void (*collective_release)(bs_coll_plan *plan);
  /* The number of a timer region of one's own; the same name gives the same number. */
  uint32_t (*region_named)(bs_rank *rank, const char *name);
  /* Different regions may nest or overlap; one that runs is not begun again. Wrong use fails the job. */
  void (*region_begin)(bs_rank *rank, uint32_t region);
  void (*region_end)(bs_rank *rank, uint32_t region);
  /* Adds n to a counter of enum bs_counter. */
  void (*count)(bs_rank *rank, uint32_t counter, uint64_t n);
  void *(*alloc)(bs_rank *rank, uint64_t bytes); /* host memory, zero-filled */
  void (*free)(bs_rank *rank, void *ptr);
  /* Since 0.5. The positions of one half (0: the mask's, 1: its complement's) of a mask that differs by row;
   * one that does not has them too. `weights` is the whole matrix that MAGNITUDE and TRANSPOSABLE look at,
   * and lives as long as they; NULL for the others. */
  int32_t (*kept_make)(bs_rank *rank, const bs_mask *mask, int64_t rows, int64_t cols,
                       const bs_source *weights, uint32_t half, const bs_kept **out_kept, bs_error *err);
  void (*kept_free)(const bs_kept *kept);
  /* Starts a collective on the rank's thread for collectives, so that ops run at the same time. Collectives
   * run one after another, in the order of the calls. Do not touch `in` and `out` before wait has returned.
   * Each start needs a wait. For device memory that the communicator serves, the stream that it was started
   * from waits for the device, and wait does not. Where a rank has no such thread (a world of coroutines)
   * start does all the work. */
  int32_t (*collective_start)(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                              bs_error *err);
  int32_t (*collective_wait)(bs_coll_plan *plan, bs_error *err);
} bs_rank_api;

#ifdef __cplusplus
}
#endif
#endif
