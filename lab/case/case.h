/* SPDX-License-Identifier: MIT
 * case.h - one layer run on one world, as phase 0 judges it. A fault can be injected into every input. */
#ifndef BS_LAB_CASE_CASE_H
#define BS_LAB_CASE_CASE_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/hash.h"
#include "lab/progress.h"

/* Sums in int8 steps: features that share a scale; groups begin with each rank's share of the features. */
#define BS_WIRE_GROUP 128

typedef struct bs_case bs_case;

/* A wrong source, output or exchange, to prove that a gate can fail (lab/gate/faults.c). Any may be NULL. */
typedef struct bs_case_fault {
  void *user;
  /* Give rank's own view of a part: out_source stays valid while the case runs. */
  int32_t (*wrap)(void *user, uint32_t rank, uint32_t part, const bs_source *in, bs_source *out_source,
                  bs_error *err);
  /* Tamper with a rank's finished output (host memory, dense [B,N] of y_dtype). */
  void (*output)(void *user, uint32_t rank, void *y, int64_t rows, int64_t cols, uint32_t dtype);
  /* Tamper with a rank's finished gradient of the bias. */
  void (*bias_gradient)(void *user, void *db, int64_t count, uint32_t dtype);
  /* Backward pass, dense values of y_dtype. loss_of: the outputs from which the loss is computed. gradient:
   * the gradient of the loss that backward gets for them. */
  void (*loss_of)(void *user, void *y, int64_t count, uint32_t dtype);
  void (*gradient)(void *user, const void *y, void *dy, int64_t count, uint32_t dtype);
  /* Change the layer that a rank builds. */
  void (*layer)(void *user, uint32_t rank, bs_layer_spec *spec);
  const bs_collective_hook *hook;
} bs_case_fault;

struct bs_case {
  bs_context *context;
  const char *method, *backend, *comm;
  const char *algorithm, *topology; /* as in bs_world_options; NULL: none */
  uint32_t world_size, threads_per_rank, bind, sync_mode;
  double timeout_s;
  const char *const *choices; /* of implementations, as in bs_world_options; NULL: none */
  uint32_t n_choices;
  bs_layer_spec spec;
  const bs_source *x, *w, *bias;  /* bias NULL: none */
  int64_t warmup, iterations;     /* at least one iteration runs */
  const bs_collective_hook *hook; /* for dumps; not together with a fault's hook */
  const bs_case_fault *fault;     /* NULL: none */
  bs_progress_fn progress;
  void *progress_user;
  uint32_t keep_stopped; /* 1: after a request to stop (lab/stop.h) the forwards until then are the result, if
                          * there is one; only where this process has all ranks */
  struct bs_peers *peers; /* processes that run it together (lab/peers/peers.h); NULL: only this one */
  const char *gate;       /* the gate for which the case runs: progress names it before each step; NULL:
                           * none */
};

typedef struct bs_case_rank {
  void *y;         /* dense [B, N] (or the rank's own features when split), y_dtype; of split tokens and
                    * partial sums the whole that they make (place.h) */
  int64_t y_begin; /* first output feature in y */
  int64_t y_cols;
  uint64_t y_bytes;        /* of the memory of y */
  int64_t y_rows;          /* while it runs: tokens in y */
  uint64_t hash;           /* of y after the last iteration */
  uint32_t same_each_time; /* every timed iteration gave the same bits */
  bs_ownership owns;       /* columns copied: see `columns` */
  bs_partition columns_storage;
  uint32_t *columns;    /* list of owned columns when owns.columns is GATHER */
  bs_kept kept_storage; /* of owns.kept, and the positions copied (owners.h) */
  uint8_t *kept;
  uint64_t counters[BS_COUNT_COUNT_]; /* of one forward */
  bs_proposal proposal;
  json_t *timings; /* region name -> statistics */
  double forward_sum_ms;
  /* For a rank that device events time (else 0): one forward call, and the host's share of it
   * (blockshock.h). */
  uint32_t by_events;
  double forward_p50_ms, enqueue_p50_ms, host_avg_ms;
  uint32_t has_device_state;
  uint64_t device_peak; /* bytes; 0: unknown */
} bs_case_rank;

typedef struct bs_case_result {
  uint32_t world_size, threads_per_rank, shared_device;
  uint32_t turned;        /* 1: judged is a product with W itself (dX): features are columns of W */
  const int64_t *rows;    /* the rows of W that the features are of; NULL: row i of feature i */
  uint32_t zero_products; /* 1: a rank multiplies more than the weights it owns: zeros in others' places */
  uint32_t whole;         /* 1: only y is judged, in the layer's own placement: nothing is assembled */
  int64_t iterations;
  uint64_t memory_peak;  /* all ranks, tracked bytes, building included */
  uint64_t weight_bytes; /* packed, all ranks */
  char *algorithms;
  json_t *plans; /* [{key, implementation, ...}]: the reports of the world's plans */
  bs_case_rank *ranks;
} bs_case_result;

/* Column j of a partition; NULL: all columns. */
static inline int64_t bs_view_column(const bs_partition *p, int64_t j) {
  return p == NULL ? j : p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[j] : p->begin + j;
}
/* Reads rows of a source as bs_source.read does. Each row is read whole and in fp64; change(row, values)
 * edits it, and then the wanted columns are converted. `room`: extra values after the row that change may
 * use. */
int32_t bs_case_read_changed(const bs_source *inner, int64_t room,
                             void (*change)(void *user, int64_t row, double *values), void *user, int64_t row,
                             int64_t nrows, const bs_partition *cols, uint32_t dtype, void *out,
                             int64_t out_stride, bs_error *err);
/* Reports progress of the case with its gate's name, if a receiver is set. */
void bs_case_tell(const bs_case *c, const char *what, uint64_t done, uint64_t total);
/* Like bs_case_tell, with the type bs_progress_fn; user: the bs_case. */
void bs_case_tell_user(void *user, const char *what, uint64_t done, uint64_t total);
/* The value of a method's option; "" without it. */
const char *bs_case_option(const bs_layer_spec *spec, const char *key);
/* Parts of bs_case_run, for cases that do more than forward: a rank's layer, the world of a case, and the
 * ownership of a built layer (columns and positions copied). */
bs_layer_spec bs_case_spec(const bs_case *c, uint32_t rank);
/* The proposal of the case's method for a rank. */
int32_t bs_case_propose(const bs_case *c, uint32_t rank, bs_proposal *out, bs_error *err);
/* The dtype for sums, as wide as the layer needs: BS_F64 if a dtype of the layer is f64, else BS_F32. */
uint32_t bs_case_wide(const bs_layer_spec *spec);
int32_t bs_case_tensor(bs_rank *rank, uint32_t dtype, uint32_t dims, int64_t rows, int64_t cols,
                       bs_tensor *out, bs_error *err);
/* The first member of the data that the ranks of a world use. It is never freed if a rank has not
 * returned. */
typedef struct bs_case_kept {
  struct bs_case_kept *next;
} bs_case_kept;
void bs_case_keep(bs_case_kept *run);
int32_t bs_case_world(const bs_case *c, bs_world **out_world, bs_error *err);
int32_t bs_case_ownership(bs_layer *layer, bs_case_rank *out_rank, bs_error *err);
/* Builds a world, runs the case, copies everything out. The caller frees the result. */
int32_t bs_case_run(const bs_case *c, bs_case_result *out_result, bs_error *err);
/* Copies from a finished world what it has on the case (timings, memory, proposals). Allocates
 * out_result->ranks if it is NULL. Outputs are not changed. */
int32_t bs_case_collect(const bs_case *c, bs_world *world, bs_case_result *out_result, bs_error *err);
/* The current times and memory of a rank's regions; a rank that has them already keeps the old ones. */
int32_t bs_case_time(bs_rank *rank, bs_case_rank *out_rank, bs_error *err);
/* The output features that y holds on a rank: all of them, or with a split y the rows that the layer owns
 * (SPLIT_N) or the rank's even share (SPLIT_K, docs/methods.md). */
int32_t bs_case_features(const bs_case *c, bs_layer *layer, uint32_t rank, int64_t *out_begin,
                         int64_t *out_count, bs_error *err);
/* x of a rank: all columns of the source, or with a split x those that the layer owns; its own tokens, or its
 * part of a partial x. tensor_free it. */
int32_t bs_case_input(const bs_case *c, bs_rank *rank, bs_layer *layer, const bs_source *source,
                      bs_tensor *out_x, bs_error *err);
/* 0: another process judges and records; this one runs the same cases for its rank's sake. */
int bs_case_judged(const bs_case *c);
void bs_case_result_free(bs_case_result *result);
/* column_rank[k] of a K-split result; NULL in *out when no rank holds partial sums. Caller frees. */
int32_t bs_case_column_ranks(const bs_case *c, const bs_case_result *result, uint32_t **out_column_rank,
                             bs_error *err);
#endif
