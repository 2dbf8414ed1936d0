/* SPDX-License-Identifier: MIT
 * run.h - inside of sessions: what runs a graph. core.c has what sessions of one model can share (packed
 * weights, constants, states), rank.c a session's own rank, fold.c computes nodes over constants, prepare.c
 * makes a binding (memory and op plans for one set of shapes), flat.c runs it, check.c runs it node by node,
 * session.c is the API. */
#ifndef BS_GRAPH_RUN_RUN_H
#define BS_GRAPH_RUN_RUN_H
#include <pthread.h>
#include <stdatomic.h>

#include "core/op/plan.h"
#include "graph/ir/graph.h"
#include "graph/ir/query.h"
#include "graph/lower/lower.h"
#include "graph/model.h"
#include "graph/pass/pass.h"
#include "graph/plan/plan.h"

static inline uint64_t tensor_elements(const bs_tensor *t) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < t->rank; d++) count *= (uint64_t)t->dims[d];
  return count;
}

/* ---- a rank on the caller's thread ----------------------------------------------------------- */
typedef struct grank {
  bs_context *context;
  bs_world *world;
  bs_rank *rank;    /* between grank_enter and grank_leave; inside: always */
  uint32_t inside;  /* 1: the rank is that of a function which its world runs (bs_session_options.rank) */
  uint32_t apart;   /* 1: its backend's memory is not the host's: a device (no BS_BACKEND_HOST_MEMORY) */
  uint32_t phantom; /* 1: and holds no values (BS_BACKEND_PHANTOM) */
  const bs_rank_api *api;
  uint32_t depth;
  bs_rank *known; /* the rank, since it was entered first: what it holds is freed when its world has failed */
  uint32_t freeing;
  uint32_t fallback;      /* 1: others may serve what its backend lacks */
  uint32_t threads;       /* as the options; of a rank of a world, that world's */
  struct grank *host;     /* of a device: runs nodes that it lacks (hosted.c); NULL: none so far */
  uint64_t copied, waits; /* by runs: bytes between host and device, waits for the device */
  uint32_t refs; /* of a core's rank: its session, each weight that it packed, each block of memory that it
                    took; under the core's lock */
} grank;
/* A world of one rank, or the rank of the options. fallback 1: `ref` may serve what the backend lacks.
 * BS_UNSUPPORTED: the backend's memory holds no values, and the rank is not that of a world which runs. */
int32_t grank_open(bs_context *context, const bs_session_options *options, int fallback, grank *out_rank,
                   bs_error *err);
/* Around all that uses the rank, on the thread of the call; nests. leave returns rc, or what it finds itself.
 */
int32_t grank_enter(grank *rank, bs_error *err);
int32_t grank_leave(grank *rank, int32_t rc, bs_error *err);
/* Around what frees things of the rank: a world that has failed, which cannot be entered, has them still. 0:
 * it never was entered, and has nothing. */
int grank_enter_to_free(grank *rank);
void grank_leave_freed(grank *rank);
uint64_t grank_scratch(const grank *rank); /* bytes: the most that one of its plans works in */
void grank_close(grank *rank);
/* One reference less. Without any the rank of a core is closed and freed. */
void grank_drop(grank *rank);

/* ---- computing constants --------------------------------------------------------------------- */
/* An evaluator on `ref`, for lower_options.folder and for the pass fold. The world is made at the first node.
 * Any thread may ask: one node is computed at a time. */
typedef struct gfolded gfolded;
typedef struct gfold {
  bs_context *context;
  pthread_mutex_t lock;
  grank rank;
  int opened;        /* -1: `ref` cannot be opened */
  gfolded **entries; /* of folded.c */
  uint32_t n_entries, cap_entries, binders;
} gfold;
void gfold_init(gfold *fold, bs_context *context);
int32_t gfold_run(void *fold, const graph *g, const gnode *node, void *const *out_data, bs_error *err);
int32_t gfold_run_locked(gfold *fold, const graph *g, const gnode *node, void *const *out_data,
                         bs_error *err);
void gfold_close(gfold *fold);
/* folded.c: the constants that a node gives, for the pass fold: *out_data[i] of output i. They have bytes
 * when they are asked for (graph_ask), and keep them as long as a session is between enter and leave. */
int32_t gfold_constant(void *fold, const graph *g, const gnode *node, void **out_data, bs_error *err);
int32_t gfold_ask(void *fold, const void *data, bs_error *err);
/* 1: a constant lies there that was computed. */
int gfold_has(void *fold, const void *data);
void gfold_enter(gfold *fold);
void gfold_leave(gfold *fold);
/* A binding with that graph is made (by 1), or freed (-1): what its nodes read stays. */
void gfold_hold(gfold *fold, const graph *g, int by);
void gfolded_free(gfold *fold);
/* A tensor of a value whose root lies at `root`. */
void gtensor_fill(const gvalue *value, const gvalue *root, void *root_data, bs_tensor *out_tensor);

/* ---- what sessions share --------------------------------------------------------------------- */
/* A packed weight: which elements it is, the query's part that decided how it was packed, and the rank that
 * packed it, which lives as long. */
typedef struct gpart {
  const unsigned char *data;
  int64_t rows, row_stride, col_stride;
  double scale;  /* of each element; 0: none */
  uint64_t hash; /* of elements that are the graph's own, which end with it; 0: `data` says which they are */
} gpart;
typedef struct gweight {
  gpart parts[GJOIN_MAX]; /* rows below each other; unused ones are zero */
  int64_t rows, cols;
  uint32_t n_parts, dtype, x_dtype, y_dtype;
  bs_quant form; /* of a quantised weight: parts and dtypes are zero; struct_size 0: it is none */
  gquant_key keys[GJOIN_MAX];
  bs_packed *packed;
  grank *rank;
} gweight;
/* A constant that is not where the model has it: data that was not aligned. */
typedef struct gcopy {
  const void *from;
  void *data;
} gcopy;
typedef struct gstate {
  char *name;          /* a copy: the graph that it came from may go first */
  void *data, *memory; /* aligned; to be freed */
  uint64_t bytes;
} gstate;

/* A block of a device's memory. */
typedef struct gdevice {
  const void *of;    /* the constant of the model whose elements it has; NULL: another thing */
  const void *owner; /* whose block it is; NULL: the core's, until it is closed */
  grank *rank;       /* that took it, and lives as long */
  bs_tensor tensor;
} gdevice;

/* Sessions that share it run at the same time, each with its own rank: a run reads packed weights and
 * copies, and takes no lock, but for the first run of a binding on a device, which takes its arena. What is
 * made, found, counted or freed here is so under `lock`: the arrays, the reference counts of packed weights
 * (core/op/plan.h), and the sums. */
struct gmethod; /* graph/split/method.h */
struct glayer;
typedef struct gcore {
  pthread_mutex_t lock;
  uint32_t refs;                /* sessions */
  _Atomic uint32_t states_busy; /* a session runs on the states */
  char backend[64];
  uint32_t threads, bind; /* of the session that opened it */
  gweight *weights;
  gcopy *copies;
  gstate *states;
  uint32_t n_weights, n_copies, n_states, cap_weights, cap_copies, cap_states;
  int64_t length; /* tokens in the cache */
  int64_t slots;  /* of the model */
  uint64_t packed_bytes, state_bytes, layers_again;
  double pack_s;
  struct gmethod *method; /* NULL: no method splits products */
  struct glayer **layers;
  void **calls; /* memory of one call of a layer: the newest block, and those of layers that were built over
                   it */
  uint64_t calls_bytes; /* of the newest */
  uint32_t n_layers, cap_layers, n_calls, cap_calls;
  void *device_calls; /* of a device: memory of one call; calls is empty */
  gdevice *blocks;    /* of a device: all memory of the sessions (device.c) */
  uint32_t n_blocks, cap_blocks;
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t total); /* NULL: none */
  void *progress_user;
} gcore;
void gcore_tell(const gcore *core, const char *what, uint64_t done, uint64_t total);
/* Opens the core and the rank of a session. The core is new, or that of options->share. */
int32_t gcore_open(bs_context *context, gcore *shared, const bs_session_options *options, gcore **out_core,
                   grank **out_rank, bs_error *err);
void gcore_close(gcore *core, grank *rank);
/* The plan of a product, or of a take_q, over a weight that is packed already and serves its query; else it
 * is packed for it. The rank is entered, the core locked. */
int32_t gcore_product(gcore *core, grank *rank, const graph *g, const gnode *node, const gquery *query,
                      bs_plan **out_plan, bs_error *err);
/* Packs the quantised weight of a matmul_q or a take_q. The rank is entered. */
int32_t gpack_quant(grank *rank, const gquery *query, bs_packed **out_packed, bs_error *err);
/* Sessions that share states run one at a time. BS_INVALID_ARGUMENT: another one is in a run. Models without
 * states pass. */
int32_t gcore_take_states(gcore *core, const gmodel *model, bs_error *err);
void gcore_give_states(gcore *core, const gmodel *model);
/* drop.c: gives back the pages of a constant that lies in a mapped file. */
void gdrop_mapped(const void *data, uint64_t bytes);
/* The same for all constants of a model: what a run needs of them is read again. */
void gdrop_constants(const gmodel *model);
/* A constant's elements, aligned to their size. */
int32_t gcore_constant(gcore *core, const gvalue *root, void **out_data, bs_error *err);
int32_t gcore_state(gcore *core, grank *rank, const char *name, uint64_t bytes, void **out_data,
                    bs_error *err);
/* Bytes of a state with all its slots. */
uint64_t gcore_state_bytes(const gcore *core, const gvalue *value);
/* ---- memory of a device: device.c. The rank is entered, the core locked. ------------------------ */
/* So many bytes of the rank's device, zeros, until the owner's are dropped; owner NULL: until the core is
 * closed. BS_NO_MEMORY names `what` they are for, and what the session holds. */
/* Bytes of all blocks: of states, constants, ports and arenas; packed weights are not among them. */
uint64_t gdevice_held(const gcore *core);
int32_t gdevice_take(gcore *core, grank *rank, const char *what, uint64_t bytes, const void *owner,
                     void **out_data, bs_error *err);
/* Puts that error around the device's own; bytes 0: not known. Returns BS_NO_MEMORY. */
int32_t gdevice_no_room(const gcore *core, const grank *rank, const char *what, uint64_t bytes,
                        bs_error *err);
/* The device's copy of a constant: one that is the graph's own is the owner's; one that was computed
 * (folded.c) is found again by its place while an owner has it, any other until the core is closed. */
int32_t gdevice_constant(gcore *core, grank *rank, const graph *g, const gvalue *root, const void *owner,
                         void **out_data, bs_error *err);
/* Frees the blocks of an owner, but memory that another one has too; NULL: all. */
void gdevice_drop(gcore *core, const void *owner);
/* The owner's constants are not found any more: other numbers may come to lie at their places. Locks the
 * core, and needs no rank. */
void gdevice_forget(gcore *core, const void *owner);
/* BS_UNSUPPORTED: the session's rank has no values, and `what` asks for them. */
int32_t gdevice_has_values(const grank *rank, const char *what, bs_error *err);
/* bs_memory_fits of host memory: a device takes none. */
int32_t gdevice_fits(const grank *rank, uint64_t bytes, const char *what, bs_error *err);
/* states.c: all states in a row, gstates_bytes of them. gstates_keep: a copy, to be freed. */
uint64_t gstates_bytes(const gcore *core);
int32_t gstates_get(const gcore *core, grank *rank, unsigned char *to, bs_error *err);
int32_t gstates_put(const gcore *core, grank *rank, const unsigned char *from, bs_error *err);
int32_t gstates_keep(const gcore *core, grank *rank, unsigned char **out_bytes, bs_error *err);

/* ---- a binding ------------------------------------------------------------------------------- */
typedef struct gstep {
  bs_plan *plan;           /* NULL of a layer */
  struct glayer *layer;    /* NULL: the step is no layer */
  struct gbinding *hosted; /* its device lacks the op, and the rank's host runs it; NULL: the rank does */
  const char *method;      /* of a layer */
  bs_tensor **args;
  uint32_t nargs;
  uint32_t node; /* of the graph */
  int32_t file;  /* descriptor of a mapped file of which the step takes rows; -1: none */
  uint64_t file_at;
  double prepare_s;
  uint64_t runs, ns; /* with `profile`, of all runs, as the following */
  /* The caller's thread: time on a processor; time asleep; how often it slept. */
  uint64_t cpu_ns, asleep_ns, waits;
} gstep;

/* A value as bytes (bytes.c). */
typedef struct gbytes {
  uint32_t value;
  bs_tensor tensor;
} gbytes;

/* A graph that can run: plans, tensors, memory. */
typedef struct gbinding {
  int64_t *sizes; /* of the model's symbols: the key */
  uint64_t used;  /* when, for the choice of what to drop */
  graph *g;
  gcore *core; /* the session's, as the rank is */
  grank *rank;
  gstep *steps;
  uint32_t n_steps;
  bs_tensor *tensors; /* of each value; data NULL: not set yet */
  gbytes *bytes_of;   /* of values that a step reads or writes as bytes */
  uint32_t n_bytes;
  void **args_memory;
  uint64_t *place; /* of each TEMP root: its byte in the arena */
  gplan_value *lives;
  gplan_life life;
  gplan_report report;
  uint64_t arena_bytes, constant_bytes;
  void *arena, *own_arena;    /* own_arena: to be freed, unless it is a device's */
  int64_t length;             /* memory of the input GV_LENGTH */
  struct gports *ports;       /* of a device; NULL (ports.c) */
  struct gcaptures *captures; /* likewise (capture.c) */
  struct gcut *cuts;          /* of a simulated machine (cut.c) */
  uint32_t n_cuts;
  int64_t slot;          /* that row 0 of the states lies in */
  uint32_t checked;      /* the arguments of all steps have passed since memory was placed */
  uint64_t flops, bytes; /* of a run */
  double prepare_s, plan_s;
  gpass_trace traces[GPASS_MAX];
  struct gbucket *bucket; /* bucket.h: other sizes that the plan serves too; NULL: none */
  char *alone;            /* why it serves its sizes alone; NULL: no one asked for more */
} gbinding;
/* Takes over `g`, also when it fails. */
int32_t gbinding_make(gcore *core, grank *rank, graph *g, gbinding **out_binding, bs_error *err);
void gbinding_free(gbinding *binding);
/* Sets the place of the arena and of all tensors in it. */
void gbinding_place(gbinding *binding, void *arena);
/* Memory of a root, for ports. */
void gbinding_set_root(gbinding *binding, uint32_t root, void *data);
/* Prepares the ops of these steps for what the graph is now; all of them or, when it fails, none. */
int32_t gbinding_prepare_again(gbinding *binding, const uint32_t *steps, uint32_t n, bs_error *err);
/* table.c: finds the file of a table that the step takes rows of. */
void gtable_find(const gbinding *binding, gstep *step);
/* Reads the rows. 0: the op has to take them, or to say what is wrong. */
int gtable_run(const gstep *step);
/* bytes.c: 1: the node takes rows of a constant that is not aligned, and can do so by bytes. */
int gbytes_takes(const graph *g, const gnode *node);
/* Its query, by bytes. */
void gbytes_ask(gquery *query);
/* Room for all values of such nodes. */
int32_t gbytes_make(gbinding *binding, bs_error *err);
/* The value as bytes: a tensor of the binding, which gbytes_fill sets when its root gets memory. */
bs_tensor *gbytes_tensor(gbinding *binding, uint32_t value);
void gbytes_fill(gbinding *binding, uint32_t root);
/* memory.c: lifetimes, offsets, the report. */
int32_t gbinding_plan(gbinding *binding, bs_error *err);
/* The plan holds for the numbers that the graph has now; BS_UNSUPPORTED: it does not. */
int32_t gbinding_same_life(const gbinding *binding, bs_error *err);

/* 1: `ref` serves a step for another backend. */
int gstep_falls_back(const gstep *step);
/* "cpu:packed" of a step. */
void gstep_serves(const gstep *step, char *out, size_t size);

/* Row 0 of all states lies in `slot`. */
void gbinding_set_slot(gbinding *binding, int64_t slot);
/* states.c: copies the first tokens of the states of one slot to another. */
int32_t gstates_copy_slot(const gbinding *binding, int64_t from, int64_t to, int64_t tokens, bs_error *err);

/* ---- ports and values of a device: ports.c --------------------------------------------------- */
/* Room for inputs and the length on the device; nothing where its memory is the host's. */
int32_t gports_make(gbinding *binding, bs_error *err);
void gports_free(gbinding *binding);
/* The caller's memory of port i of the graph, inputs first; NULL: none. */
void gports_set(gbinding *binding, uint32_t port, void *data);
/* The host finds port i there: in the caller's memory or, of an output, in what the last run left. NULL:
 * nowhere yet. */
void *gports_host(const gbinding *binding, uint32_t port);
/* Before and after the steps of a run: inputs go to the device, outputs come from it. The rank is entered. */
int32_t gports_up(gbinding *binding, bs_error *err);
int32_t gports_down(gbinding *binding, bs_error *err);
/* indices.c: the numbers of inputs that index tables lie within these, where a device would not say so.
 * BS_INPUT (BS-OP-INDEX). */
int32_t gindices_check(const gbinding *binding, bs_error *err);
/* Copies the bytes of a dense value to the host. */
int32_t gports_read(const gbinding *binding, uint32_t value, void *out_bytes, bs_error *err);
/* The arguments of a step as the host can read them. Those of one root are a group, whose copy the first of
 * them has. */
typedef struct gshadow {
  bs_tensor tensors[BS_MAX_OP_ARGS];
  bs_tensor *args[BS_MAX_OP_ARGS], **device; /* device: the step's own, while it has these */
  uint32_t group[BS_MAX_OP_ARGS];            /* of each argument */
  unsigned char *base[BS_MAX_OP_ARGS];       /* of a group, as the following: the copy; NULL: none */
  const unsigned char *from[BS_MAX_OP_ARGS]; /* the device's bytes that it copies */
  uint64_t bytes[BS_MAX_OP_ARGS];
} gshadow;
/* Gives the step copies of its arguments. for_run 1: of what it only writes, room. Nothing where the memory
 * is the host's. The rank is entered. */
int32_t gshadow_take(const gbinding *binding, gstep *io_step, int for_run, gshadow *out_shadow,
                     bs_error *err);
/* Copies the outputs from there to the device. */
int32_t gshadow_up(const gbinding *binding, const gstep *step, const gshadow *shadow, bs_error *err);
/* Runs the step on the device, and copies its outputs again. */
int32_t gshadow_run(const gbinding *binding, gstep *io_step, gshadow *io_shadow, bs_error *err);
/* Gives the step its own arguments back. */
void gshadow_give(gstep *io_step, gshadow *io_shadow);

/* ---- keys of a run on a simulated machine: cut.c ----------------------------------------------- */
/* After all steps are prepared. */
int32_t gcut_make(gbinding *binding, bs_error *err);
/* Gives the steps these arguments again, after some were prepared again. */
void gcut_args(gbinding *binding);
/* Attention takes `length` tokens of the cache, and those of the run. */
void gcut_set(const gbinding *binding, int64_t length);
/* The arguments of a step as planned, in out_args[BS_MAX_OP_ARGS] where they differ from its own. */
bs_tensor *const *gcut_whole(const gbinding *binding, const gstep *step, bs_tensor **out_args);

/* ---- runs as graphs of a device: capture.c ----------------------------------------------------- */
/* After all steps are prepared; nothing where the memory is the host's. */
int32_t gcapture_make(gbinding *binding, bs_error *err);
void gcapture_free(gbinding *binding);
/* Memory of the binding has moved: what is captured is dropped. A binding that refused stays without. */
void gcapture_drop(gbinding *binding);
/* The slot of the next runs; each slot has its own captures. */
void gcapture_slot(gbinding *binding, int64_t slot);
/* Runs all steps. The rank is entered. */
int32_t gcapture_run(gbinding *binding, bs_error *err);
/* "40 nodes in 2 captures", or why there are none; "" of the host. */
void gcapture_tell(const gbinding *binding, char *out, size_t size);

/* ---- nodes that a device lacks: hosted.c ------------------------------------------------------- */
/* The rank's host: a rank of cpu, or of ref where there is no cpu. ref serves every op. */
int32_t ghosted_rank(grank *rank, grank **out_host, bs_error *err);
/* Runs such a step: its inputs come down, its outputs go up. The rank is entered. */
int32_t ghosted_run(gbinding *binding, const gstep *step, bs_error *err);
/* Fails for the nodes of a graph that the backend lacks: BS-GRAPH-DEVICE names them all. */
int32_t ghosted_refuse(const gbinding *binding, const uint32_t *nodes, uint32_t n, bs_error *err);
/* The arguments of every step, once after memory was placed or a port was set. */
int32_t gbinding_check(gbinding *binding, bs_error *err);

/* flat.c */
/* Completes the error of a node: a message, and which of the model's nodes it is. An index out of range
 * comes from the model's inputs or constants and is no argument of the caller's: BS_INPUT. Returns the code.
 */
int32_t gnode_failed(const graph *g, const gnode *node, int32_t rc, bs_error *err);
int32_t gflat_run(gbinding *binding, int profile, bs_error *err);
/* Runs, and calls `each` after each step, when its outputs are complete. */
int32_t gflat_watch(gbinding *binding, void (*each)(void *user, const gbinding *binding, const gstep *step),
                    void *user, bs_error *err);
/* Runs the op or the layer of a step, on the rank. */
int32_t gstep_run(const gstep *step, bs_error *err);
/* check.c: the terms of the longest sum of a step. */
double gstep_terms(const gbinding *binding, const gstep *step);
#endif
