/* SPDX-License-Identifier: MIT
 * comm.h - internals of the communicators devlocal and nccl. Each wraps another communicator
 * ("devlocal:threads"), which provides the ranks, their meetings (deadlines, fingerprints, abort) and
 * collectives of host memory. The wrappers add collectives of device memory. wrap.c is their common part,
 * work.c has the kernels; devlocal.c and nccl.c give access to the ranks' memory. This plugin's kernel
 * computes sums in rank order: every rank gets the same bits as with the threads communicator. */
#ifndef BS_PLUGIN_CUDA_COMM_H
#define BS_PLUGIN_CUDA_COMM_H
#include "../cuda.h"
#include "../ops/ranks_reduce_body.h"
#include "blockshock/comm.h"

typedef struct cuda_end cuda_end;

/* The differences between the two. */
typedef struct cuda_comm_kind {
  const char *name;
  /* Called by all ranks of `end` together: sets end->link, or returns BS_UNSUPPORTED on each of them. */
  int32_t (*bind)(cuda_end *end, bs_error *err);
  /* Releases the link for this rank; other ranks may still use theirs. */
  void (*unbind)(cuda_end *end);
  int32_t (*run)(cuda_end *end, const bs_coll_call *call, bs_error *err);
} cuda_comm_kind;

/* The state that wrap returns. */
typedef struct cuda_wrap {
  cuda_state *cuda;
  const cuda_comm_kind *kind;
  const bs_comm *inner;
  void *inner_state;
} cuda_wrap;

/* Memory that is kept until the world is closed, for any behaviour of ranks: a list of host allocations. */
typedef struct cuda_kept {
  struct cuda_kept *next;
} cuda_kept;

typedef struct cuda_world {
  const cuda_wrap *w;
  void *inner;
  uint32_t size;
  uint32_t aborted; /* atomic */
  pthread_mutex_t lock;
  cuda_kept *kept;
} cuda_world;

#define CUDA_END_SITES 32u

/* One rank of the world or of a group. */
struct cuda_end {
  cuda_world *world;
  void *inner;
  cuda_end *root; /* the rank's own end of the world; itself there */
  uint32_t me, n;
  cuda_device *device; /* NULL: not bound */
  int64_t timeout_ns;  /* of binding */
  char name[64];       /* of what serves, for records */
  void *link;
  struct {
    uint64_t key;
    char text[152];
  } sites[CUDA_END_SITES]; /* "all_reduce bf16 4x1024 of y", for messages of meetings */
};

/* Memory of the world: zero-filled, freed when it is closed. */
void *cuda_world_keep(cuda_world *world, uint64_t bytes);

/* The description of a call: "all_reduce bf16 4x1024 of y", and its number. */
const char *cuda_site(cuda_end *end, const bs_coll_call *call, uint64_t *out_key);
/* All ranks of the end meet by the inner communicator's barrier. Its errors name the rank that is missing at
 * the deadline, or that made another call, with the call. `turn` distinguishes the meetings of one call. */
int32_t cuda_meet(cuda_end *end, const bs_coll_call *call, uint32_t turn, bs_error *err);
/* `words` of every rank on every rank, over the inner communicator's host memory: in[words], out[n][words].
 */
int32_t cuda_tell_all(const cuda_end *end, const char *site, const uint64_t *in, uint32_t words,
                      uint64_t *out, bs_error *err);
/* The call as one of host memory, of the inner communicator. */
bs_coll_call cuda_host_call(const bs_coll_call *call, uint32_t kind, const void *in, void *out,
                            uint64_t bytes);

/* ---- work.c --------------------------------------------------------------------------------------- */

/* A part of a call's matrices: rows [row, row + rows) of columns [col, col + cols). */
typedef struct cuda_part {
  uint64_t row, rows, col, cols;
} cuda_part;

uint64_t cuda_sum(const uint64_t *counts, uint32_t n);
/* BS_UNSUPPORTED: the kernel has no such sum. */
int32_t cuda_reduce_check(const bs_coll_call *call, uint32_t n, bs_error *err);
/* out[..] = the n matrices in[] reduced in this order as the call specifies; rows x cols. */
int32_t cuda_reduce(const cuda_device *device, const bs_coll_call *call, uint64_t rows, uint64_t cols,
                    const cuda_rank_rows *in, uint32_t n_in, const cuda_rank_rows *out, uint32_t n_out,
                    CUstream stream, bs_error *err);
/* Rows x cols from dtype_in at `in` to dtype_out at `out`. */
int32_t cuda_move(const cuda_device *device, const bs_coll_call *call, uint64_t rows, uint64_t cols,
                  cuda_rank_rows in, cuda_rank_rows out, CUstream stream, bs_error *err);
/* The element (row, col) of a matrix of dtype. */
cuda_rank_rows cuda_rows_at(const void *base, int64_t stride, uint32_t dtype, uint64_t row, uint64_t col);
/* The part of an all_reduce that rank r of n reduces: rows, or columns in whole pieces. */
cuda_part cuda_share(const bs_coll_call *call, uint32_t r, uint32_t n);

extern const bs_comm cuda_comm_devlocal, cuda_comm_nccl;

/* nccl_library.c: the state's part of nccl; `wanted`: the parameter, "auto", or a path. */
int32_t cuda_nccl_new(cuda_state *state, const char *wanted, bs_error *err);
void cuda_nccl_delete(cuda_state *state);

/* The functions that both tables share; `wrap` differs. */
int32_t cuda_comm_wrap(cuda_state *cuda, const cuda_comm_kind *kind, const bs_comm *inner, void *inner_state,
                       void **out_state, bs_error *err);
void cuda_comm_unwrap(void *wrapped);
int32_t cuda_comm_world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err);
void cuda_comm_world_close(void *world);
int32_t cuda_comm_world_drive(void *world, void (*rank_main)(void *arg, uint32_t rank), void *arg,
                              bs_error *err);
int32_t cuda_comm_rank_open(void *world, uint32_t rank, void **out_comm, bs_error *err);
void cuda_comm_rank_close(void *comm);
int32_t cuda_comm_group_open(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                             bs_error *err);
void cuda_comm_abort(void *world, uint32_t rank, int32_t code, const char *why);
int32_t cuda_comm_bind(void *comm, const bs_comm_device *device, const char **out_name, bs_error *err);
int32_t cuda_comm_all_reduce(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_all_gather(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_reduce_scatter(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_broadcast(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_all_to_all(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_send(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_recv(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_barrier(void *comm, const bs_coll_call *call, bs_error *err);
int32_t cuda_comm_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);
uint64_t cuda_comm_clock_ns(void *comm);
void cuda_comm_report(void *world,
                      void (*each)(void *user, const char *name, double value, const char *unit,
                                   const char *text),
                      void *user);

#define CUDA_COMM_SLOTS                                                                                   \
  .struct_size = (uint32_t)sizeof(bs_comm), .launch = BS_LAUNCH_THREADS /* the inner one's in the end */, \
  .world_open = cuda_comm_world_open, .world_close = cuda_comm_world_close,                               \
  .world_drive = cuda_comm_world_drive, .rank_open = cuda_comm_rank_open,                                 \
  .rank_close = cuda_comm_rank_close, .group_open = cuda_comm_group_open,                                 \
  .all_reduce = cuda_comm_all_reduce, .all_gather = cuda_comm_all_gather,                                 \
  .reduce_scatter = cuda_comm_reduce_scatter, .broadcast = cuda_comm_broadcast,                           \
  .all_to_all = cuda_comm_all_to_all, .send = cuda_comm_send, .recv = cuda_comm_recv,                     \
  .barrier = cuda_comm_barrier, .abort = cuda_comm_abort, .unwrap = cuda_comm_unwrap,                     \
  .device_bind = cuda_comm_bind, .clock_ns = cuda_comm_clock_ns, .exchange = cuda_comm_exchange,          \
  .report = cuda_comm_report
#endif
