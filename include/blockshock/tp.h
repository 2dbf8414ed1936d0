/* SPDX-License-Identifier: MIT
 *
 * tp.h - tensor parallelism in the shape of Megatron-LM, in C: libblockshock-tp. A world of ranks is divided
 * into tensor groups; linear layers are split over the ranks of a group by any method plugin; mappings move
 * activations into and out of the region that is split. One source runs on threads, on processes (MPI, shm)
 * and on simulated ranks: examples/tp-mlp is a complete program, share/doc/blockshock/tp.md the short guide.
 *
 *   bs_tp_spawn(context, &options, rank_function, user, &err)     runs the function once on each rank
 *     bs_tp_initialize(rank, 2, err)                              tensor groups of two ranks
 *     bs_tp_column_linear(rank, &spec, &w, &b, &column, err)      W split over its outputs
 *     bs_tp_row_linear(rank, &spec, &w, &b, &row, err)            W split over its inputs
 *     bs_tp_linear_forward(column, &x, &h, err) ...
 *     bs_tp_copy_out(rank, &y, host, err)                         waits for what writes y, then reads it
 *     bs_tp_destroy(rank)
 *
 * Words. A world has world_size ranks. A tensor group is a run of tensor_size consecutive ranks of it, which
 * hold one model together. A data group has the ranks that have the same place in their tensor groups: each
 * of them holds the same part of the model. World 4, tensor_size 2: tensor groups {0,1} {2,3}, data groups
 * {0,2} {1,3}. The source rank of a tensor group is its first rank.
 *
 * Collective functions. A function that says "collective" is called by all ranks of the tensor group (of the
 * world, where it says so) in the same order and with the same arguments but for tensors and data. A rank
 * that calls another one at that place gives BS_MISMATCH on all ranks; one that does not come gives
 * BS_DEADLINE after the world's timeout. In a world with an algorithm (bs_world_options.algorithm) a rank
 * compares its calls with those alone that it exchanges messages with: others may get BS_ABORTED or
 * BS_DEADLINE. There is no other synchronisation between ranks.
 *
 * Threads. A function that takes a bs_rank, or an object that was made with one, is called from the rank's
 * own thread (in the rank function). No function here keeps global or thread-local state: ranks may be
 * coroutines of one thread. bs_tp_spawn, bs_tp_spawn_start and bs_tp_join may be called from any thread; one
 * job is joined by one thread at a time.
 *
 * Errors. Functions return an enum bs_status and fill a caller-owned bs_error (NULL is allowed). A failed
 * collective leaves its world failed: every later collective of every rank fails too (BS_ABORTED on the ranks
 * that did not cause it). Out parameters are written only on BS_OK.
 *
 * NULL. Where a comment says so NULL is allowed, as are err, a bias of a layer without one, and the pointer
 * of every free. Elsewhere it is BS_INVALID_ARGUMENT (BS-TP-NULL), and a function that returns a number or a
 * pointer returns 0. A struct whose struct_size is 0 is refused (BS-TP-STRUCT).
 *
 * Units. Shapes are counted in elements, sizes of texts in bytes, timeout_s in seconds.
 *
 * Ownership. Objects that a function makes belong to the caller, who frees them on the rank that made them,
 * before the rank function ends. NULL is allowed in every free. Option structs, names and arrays may be freed
 * after the call that took them, but for masks and option strings (as in bs_layer_build: they outlive the
 * layer). Tensors belong to the caller, and must live until what was started with them has been waited for.
 */
#ifndef BLOCKSHOCK_TP_H
#define BLOCKSHOCK_TP_H

#include "blockshock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- spawn ---------------------------------------------------------------------------------- */

/* The function that runs on each rank. `user` is the pointer that bs_tp_spawn got: one for all ranks of a
 * process.
 * Returns an enum bs_status, and fills err where it fails. */
typedef int32_t (*bs_tp_rank_fn)(bs_rank *rank, void *user, bs_error *err);

/* How ranks are spawned. Zero in every field but struct_size and world is the default. */
typedef struct bs_tp_spawn_options {
  uint32_t struct_size;
  /* Not 0: each rank calls bs_tp_initialize(rank, tensor_size) before its function. */
  uint32_t tensor_size;
  /* World size, backend, communicator, threads and deadline of the world: share/doc/blockshock/launch.md.
   *   comm "threads" (default)   ranks are threads of this process
   *   comm "mpi", "shm"          the processes exist: mpirun or another launcher has started them, and each
   *                              runs the function for its own rank
   *   comm "sim" and others that drive their ranks: coroutines of one thread
   * world_size 0: as many ranks as the launcher started processes (only where ranks are processes). */
  const bs_world_options *world;
  /* Called once for each rank that is a root cause of the failure, in ascending order, from the thread that
   * spawns or joins, when all ranks have ended. err is valid during the call. NULL: not wanted. */
  void (*failed)(void *failed_user, uint32_t rank, const bs_error *err);
  void *failed_user;
} bs_tp_spawn_options;

/* Makes a world, runs fn once on each rank, waits for all ranks, and destroys the world: the semantics of
 * torch.multiprocessing.spawn with join. Where ranks are processes, each process calls it and runs fn for its
 * own rank.
 *
 * A rank that succeeds: its pending collectives are drained (see "pending work"), and its parallel state is
 * destroyed where fn left it. So a collective that fn started and forgot is completed, not lost.
 *
 * A rank that fails aborts its siblings: their next collective returns BS_ABORTED, also one that they already
 * wait in. (A sibling that never calls a collective runs to its end.) The error tells root causes only, all
 * of them, with their ranks: ranks whose error is BS_ABORTED echo another rank's and are left out. err->code,
 * id, where and hint are those of the lowest rank that is a root cause, err->rank is its number, and the
 * message has one entry for each different cause: "2 of 4 ranks failed: rank 1: [ID] text; rank 3: ...".
 * A process of a world of processes reports its own rank if that is a root cause, else the rank that ended
 * the world.
 *
 * Returns BS_OK when all ranks returned BS_OK. Errors: the error of the root cause; those of
 * bs_world_create; BS-TP-SPAWN (BS_INVALID_ARGUMENT) for options that are wrong. Blocks. The call
 * stops waiting for a rank that does not come back from a plugin's call after a failure, as bs_world_run
 * says. */
BS_API int32_t bs_tp_spawn(bs_context *context, const bs_tp_spawn_options *options, bs_tp_rank_fn fn,
                           void *user, bs_error *err);

/* A spawn that runs while the caller goes on. */
typedef struct bs_tp_job bs_tp_job;

/* Does the same as bs_tp_spawn, without the wait: the ranks run on threads that the job owns. `user`, and the
 * context, must live until the job is freed. The caller joins and frees the job. */
BS_API int32_t bs_tp_spawn_start(bs_context *context, const bs_tp_spawn_options *options, bs_tp_rank_fn fn,
                                 void *user, bs_tp_job **out_job, bs_error *err);
/* Waits until the job's ranks have ended, but at most timeout_s seconds (0: only looks; negative: no limit).
 * *out_done is 1 when they have, and 0 when the time is over: the result is then BS_OK, and the caller joins
 * again. Of a job that is done it returns what bs_tp_spawn would return, each time; `failed` of the options
 * is called by the first such join. */
BS_API int32_t bs_tp_join(bs_tp_job *job, double timeout_s, uint32_t *out_done, bs_error *err);
/* Waits for the job's ranks, and frees the job. */
BS_API void bs_tp_job_free(bs_tp_job *job);

/* ---- parallel state ------------------------------------------------------------------------- */

/* The place of a rank in the world and in its groups. Ranks named `first` and those of groups are ranks of
 * the world. */
typedef struct bs_tp_place {
  uint32_t struct_size;
  uint32_t world_rank;
  uint32_t world_size;
  uint32_t tensor_rank; /* place in the tensor group, 0 to tensor_size - 1 */
  uint32_t tensor_size;
  uint32_t tensor_first; /* the source rank: the first rank of the tensor group */
  uint32_t data_rank;    /* place in the data group */
  uint32_t data_size;
  uint32_t data_first; /* the first rank of the data group */
  uint32_t reserved;
  /* For bs_collective.group and bs_layer_build_in; they live until bs_tp_destroy. NULL: the whole world. */
  bs_group *tensor_group;
  bs_group *data_group;
} bs_tp_place;

/* Which group is meant. */
enum bs_tp_group { BS_TP_TENSOR = 0, BS_TP_DATA = 1 };

/* Divides the world into tensor groups of tensor_size ranks (0: one group, the whole world), and makes this
 * state the active one of the rank. Collective over the world. The rank does not own the state: it lasts
 * until bs_tp_destroy, or until the rank's function ends under bs_tp_spawn.
 * Errors: BS-TP-STATE (BS_INVALID_ARGUMENT): the rank has an active state already. BS-TP-SIZE (BS_CONFIG):
 * tensor_size does not divide the world size. Those of the communicator, where it has no groups. */
BS_API int32_t bs_tp_initialize(bs_rank *rank, uint32_t tensor_size, bs_error *err);
/* Waits for pending work (its errors were for bs_tp_drain to tell), and ends the active state: the getters
 * and everything below fail until it is initialized again. Layers, mappings and MLPs of the state still work
 * and are still freed by the caller; the groups live as long as they. Does nothing where there is no state.
 */
BS_API void bs_tp_destroy(bs_rank *rank);
/* 1 where the rank has an active state. */
BS_API uint32_t bs_tp_initialized(const bs_rank *rank);
/* Returns the place of the rank. The caller sets struct_size of out_place. BS-TP-STATE (BS_INVALID_ARGUMENT)
 * before bs_tp_initialize and after bs_tp_destroy, as of all functions below that take a rank. */
BS_API int32_t bs_tp_get_place(const bs_rank *rank, bs_tp_place *out_place, bs_error *err);
/* The world ranks of one of the rank's groups (enum bs_tp_group), ascending: as many as `max` says into
 * out_ranks, and how many there are into out_count. */
BS_API int32_t bs_tp_get_ranks(const bs_rank *rank, uint32_t group, uint32_t *out_ranks, uint32_t max,
                               uint32_t *out_count, bs_error *err);

/* ---- pending work --------------------------------------------------------------------------- */

/* A collective that was started runs while the rank goes on, and is pending until the rank waits for it.
 * Pending work of a rank is a queue: it ends in the order of the starts. It is waited for by
 *   - bs_tp_drain, which waits for all of it,
 *   - reading a tensor on the host (bs_tp_copy_out, bs_tp_get, bs_tp_format, the source of bs_tp_copy), which
 *     waits for what writes that tensor: for the last pending work that writes into its memory, and all
 *     before that,
 *   - passes of layers and mappings, for the tensors that they are given,
 *   - the end of a rank under bs_tp_spawn, and bs_tp_destroy.
 * Writing into a tensor on the host (bs_tp_copy_in, the target of bs_tp_copy) waits for nothing: a rank that
 * waited there for its own collectives could wait for a rank that waits for it. Where pending work still
 * uses the tensor's memory, the data are kept and written after it: the order is that of the program.
 * Functions of blockshock.h, and pointers into a tensor, know nothing of pending work: drain before them. */

/* Starts a collective of the rank's communicator: a plan of bs_rank_get_api()->collective_prepare on this
 * rank, with bs_tp_place's groups in bs_collective.group. `in` and `out` (as for collective_run; the structs
 * are copied, their memory is not) are left alone until it is waited for. It first
 * waits for pending work that writes `in`, uses `out`, or belongs to the same plan. Collective over
 * the plan's group. The caller releases the plan, with bs_tp_plan_release. */
BS_API int32_t bs_tp_start(bs_rank *rank, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                           bs_error *err);
/* Releases a plan without waiting. A plan that is pending is released when its work has ended. So a rank that
 * fails can free what it has and return, which ends the waits of the other ranks. */
BS_API void bs_tp_plan_release(bs_rank *rank, bs_coll_plan *plan);
/* Returns how much is pending: collectives, and host writes that follow them. 0 without an active state. */
BS_API uint32_t bs_tp_pending(const bs_rank *rank);
/* Waits for all pending work of this rank, and returns its first error. Nothing is pending then, also after
 * an error; a second call returns BS_OK immediately. Not collective by itself: it waits only for what this
 * rank started (the other ranks must start theirs). */
BS_API int32_t bs_tp_drain(bs_rank *rank, bs_error *err);

/* ---- tensors on the host -------------------------------------------------------------------- */

/* Host data are dense row-major arrays of the tensor's dtype, as many elements as the tensor has. Tensors
 * with any strides are served but where it says otherwise. */

/* A [rows, cols] tensor of the rank's device, dense, zero. Freed with bs_tp_tensor_free. */
BS_API int32_t bs_tp_tensor_make(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols,
                                 bs_tensor *out_tensor, bs_error *err);
/* Frees the tensor's memory without waiting; memory that pending work uses is freed when that work has ended.
 * A tensor without memory is allowed. */
BS_API void bs_tp_tensor_free(bs_rank *rank, bs_tensor *tensor);
/* Reads the tensor into out_host: waits for what writes it, and for the device. */
BS_API int32_t bs_tp_copy_out(bs_rank *rank, const bs_tensor *tensor, void *out_host, bs_error *err);
/* Reads one element of a [rows, cols] tensor as a double (integers beyond 2^53 are rounded); waits like
 * bs_tp_copy_out. */
BS_API int32_t bs_tp_get(bs_rank *rank, const bs_tensor *tensor, int64_t row, int64_t col, double *out_value,
                         bs_error *err);
/* Writes a [rows, cols] tensor as text, "f32 [2, 3]\n[[1, 2, 3],\n [4, 5, 6]]\n", with "..." where there are
 * more than 8 rows or columns, into out_text of `size` bytes: NUL-terminated, cut where it is too long. Waits
 * like bs_tp_copy_out. */
BS_API int32_t bs_tp_format(bs_rank *rank, const bs_tensor *tensor, char *out_text, size_t size,
                            bs_error *err);
/* Writes host data into a [rows, cols] tensor whose columns are adjacent. Waits for no collective. `host` may
 * be freed after the call. */
BS_API int32_t bs_tp_copy_in(bs_rank *rank, const void *host, bs_tensor *tensor, bs_error *err);
/* Copies through host memory between tensors of one shape and dtype: waits for what writes the source, not
 * for what uses the target. */
BS_API int32_t bs_tp_copy(bs_rank *rank, const bs_tensor *source, bs_tensor *target, bs_error *err);

/* ---- linear layers -------------------------------------------------------------------------- */

/* A linear layer Y = X W^T + b over the tensor group: X [B, K], W [N, K], b [N], Y [B, N]. Zero in a field is
 * its default. */
typedef struct bs_tp_linear_spec {
  uint32_t struct_size;
  uint32_t bias;         /* 1: the layer has a bias */
  int64_t tokens;        /* B: the most rows of x that a pass will have; not 0 */
  int64_t out_features;  /* N of the whole layer, over all ranks; not 0 */
  int64_t in_features;   /* K of the whole layer; not 0 */
  uint32_t x_dtype;      /* enum bs_dtype; 0: f32 */
  uint32_t w_dtype;      /* 0: x_dtype */
  uint32_t y_dtype;      /* 0: x_dtype */
  uint32_t reduce_dtype; /* of sums over ranks; 0: f32 (f64 where y is) */
  /* Column: 1: y is [B, N] on every rank (an all-gather); 0: y is the rank's own features. */
  uint32_t gather_output;
  /* Row: 1: x is the rank's own columns, as a column layer without gather leaves them; 0: x is whole on
   * every rank, and each rank reads its own columns. */
  uint32_t input_is_parallel;
  /* 1: the bias is not added, and is the caller's to add: bs_tp_linear_bias. */
  uint32_t skip_bias_add;
  uint32_t activation; /* enum bs_activation, applied to y; not with skip_bias_add */
  uint32_t flags;      /* enum bs_layer_flags: BACKWARD, and SGD, MOMENTUM or ADAMW to train */
  uint32_t n_options;  /* of the method's own options (bs_layer_spec.option_keys) */
  const char *method;  /* NULL: "column_parallel" for column, "row_parallel" for row; any method's name */
  const bs_mask *mask; /* NULL: the method's default */
  const char *const *option_keys;
  const char *const *option_values;
} bs_tp_linear_spec;

typedef struct bs_tp_linear bs_tp_linear;

/* The shapes of a layer on this rank. */
typedef struct bs_tp_linear_shape {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t x_features; /* columns of x, and of dx */
  int64_t y_features; /* columns of y, and of dy */
  int64_t rows, cols; /* of the rank's part of W, and so of dw; db has `rows` elements */
} bs_tp_linear_shape;

/* ColumnParallelLinear: W is split over its outputs. x is [B, K], whole on every rank; y is the rank's own
 * features, or all of them (gather_output). Backward sums dx over the ranks.
 * RowParallelLinear: W is split over its inputs. x is the rank's own columns (input_is_parallel) or whole; y
 * is [B, N], summed over the ranks, on every rank. The bias is added once.
 * weights is the whole W [N, K], bias the whole b [1, N] (NULL without one): each rank reads its own part
 * only, and both may be released after the call. Collective. The caller frees the layer.
 * Errors: those of bs_layer_build, among them BS-METHOD-PLACEMENT where a method cannot split in this way;
 * BS-TP-LINEAR (BS_CONFIG) for a spec that contradicts itself. */
BS_API int32_t bs_tp_column_linear(bs_rank *rank, const bs_tp_linear_spec *spec, const bs_source *weights,
                                   const bs_source *bias, bs_tp_linear **out_linear, bs_error *err);
BS_API int32_t bs_tp_row_linear(bs_rank *rank, const bs_tp_linear_spec *spec, const bs_source *weights,
                                const bs_source *bias, bs_tp_linear **out_linear, bs_error *err);
BS_API void bs_tp_linear_free(bs_tp_linear *linear);
BS_API int32_t bs_tp_linear_get_shape(const bs_tp_linear *linear, bs_tp_linear_shape *out_shape,
                                      bs_error *err);
/* y = act(x W^T + b). x and y belong to the caller, have up to `tokens` rows, and x_features and y_features
 * columns (x dense). Collective. */
BS_API int32_t bs_tp_linear_forward(bs_tp_linear *linear, const bs_tensor *x, bs_tensor *y, bs_error *err);
/* The gradients, of a layer with BS_LAYER_BACKWARD: x as forward had it, dy the gradient by y in y's shape.
 * dx (NULL: not wanted; on all ranks or on none) is written whole; dw and db are kept by the layer and
 * replaced by each call: bs_tp_linear_gradients. With an activation x must be that of the last forward.
 * Collective. */
BS_API int32_t bs_tp_linear_backward(bs_tp_linear *linear, const bs_tensor *x, const bs_tensor *dy,
                                     bs_tensor *dx, bs_error *err);
/* The gradients of the last backward: dw [rows, cols] and db [rows] of the rank's own part, f32, or f64 where
 * x, W or y is. They belong to the layer and live as long as it; the caller may change their values (to sum
 * them over the data group, for example). *out_db is NULL for a layer that adds no
 * bias. */
BS_API int32_t bs_tp_linear_gradients(bs_tp_linear *linear, bs_tensor **out_dw, bs_tensor **out_db,
                                      bs_error *err);
/* One step of the optimiser on the rank's own weights and bias, with the layer's gradients in the place of
 * step->dw and step->db; x and dy of step are not used. Called by every rank of the group. */
BS_API int32_t bs_tp_linear_step(bs_tp_linear *linear, const bs_step *step, bs_error *err);
/* The bias of a layer with skip_bias_add: [1, y_features] in y's dtype, for the columns of this rank's y. It
 * belongs to the layer; steps leave it alone, and its gradient is the column sums of dy. NULL: the layer has
 * no bias, or adds it itself. */
BS_API bs_tensor *bs_tp_linear_bias(bs_tp_linear *linear);
/* Which rows and columns of W this rank holds (bs_layer_owns); arrays live as long as the layer. */
BS_API int32_t bs_tp_linear_owns(bs_tp_linear *linear, bs_ownership *out_ownership, bs_error *err);
/* Rows row, row + 1, ... of this rank's part of W into out [n, cols], as many as out has. */
BS_API int32_t bs_tp_linear_read_weights(bs_tp_linear *linear, int64_t row, bs_tensor *out, bs_error *err);
/* The whole W [N, K] as f64 in out_host (out_features x in_features values), on every rank: what checkpoints
 * and tests compare. Collective, slow. */
BS_API int32_t bs_tp_linear_gather_weights(bs_tp_linear *linear, double *out_host, bs_error *err);

/* ---- mappings ------------------------------------------------------------------------------- */

/* The transfer at the border of the tensor-parallel region, forward and backward. Features are the last
 * dimension. Parts are even shares: the first (features mod tensor_size) ranks have one more. */
enum bs_tp_mapping_kind {
  BS_TP_COPY_TO = 0,     /* forward: copies;                  backward: sums over the ranks */
  BS_TP_REDUCE_FROM = 1, /* forward: sums over the ranks;     backward: copies */
  BS_TP_SCATTER_TO = 2,  /* forward: keeps the rank's part;   backward: gathers the parts */
  BS_TP_GATHER_FROM = 3  /* forward: gathers the parts;       backward: keeps the rank's part */
};

/* A mapping, prepared once for tensors of up to max_rows rows. */
typedef struct bs_tp_mapping bs_tp_mapping;

/* features: the whole last dimension, over all ranks. The tensors of the region's inside are [rows, part] for
 * scatter_to and gather_from, all others [rows, features]; dense, of `dtype`. Sums are made in rank order, in
 * f32 (f64 for f64), and rounded once: all ranks have the same bits. With an algorithm of the world's they
 * are made in its order, and the bits are the same where it says so (BS_ALGORITHM_SAME_ORDER). Called by
 * every rank of the group. */
BS_API int32_t bs_tp_mapping_make(bs_rank *rank, uint32_t kind, uint32_t dtype, int64_t max_rows,
                                  int64_t features, bs_tp_mapping **out_mapping, bs_error *err);
/* Frees it without waiting. A mapping whose work is pending is freed when that work has ended. */
BS_API void bs_tp_mapping_free(bs_tp_mapping *mapping);
/* The columns of this rank's part: where it begins in the whole, and how many they are. */
BS_API void bs_tp_mapping_part(const bs_tp_mapping *mapping, int64_t *out_begin, int64_t *out_count);
/* y = f(x), and dx = its gradient from dy. x and y may be the same tensor where the shapes are alike. The
 * sums and gathers are collective. */
BS_API int32_t bs_tp_mapping_forward(bs_tp_mapping *mapping, const bs_tensor *x, bs_tensor *y, bs_error *err);
BS_API int32_t bs_tp_mapping_backward(bs_tp_mapping *mapping, const bs_tensor *dy, bs_tensor *dx,
                                      bs_error *err);
/* Starts the forward of a mapping: sums and gathers are left pending, copies are complete when it returns. */
BS_API int32_t bs_tp_mapping_forward_start(bs_tp_mapping *mapping, const bs_tensor *x, bs_tensor *y,
                                           bs_error *err);
BS_API int32_t bs_tp_mapping_backward_start(bs_tp_mapping *mapping, const bs_tensor *dy, bs_tensor *dx,
                                            bs_error *err);

/* ---- MLP ------------------------------------------------------------------------------------ */

/* Two layers, y = act(x W1^T + b1) W2^T + b2: a column layer, the activation as part of it, and a row layer
 * whose input is parallel. One all-reduce forward and one backward. W1 [hidden, in], W2 [out, hidden]. */
typedef struct bs_tp_mlp_spec {
  uint32_t struct_size;
  uint32_t bias; /* of both layers */
  int64_t tokens;
  int64_t in_features, hidden_features, out_features;
  uint32_t dtype;        /* of x, W, hidden and y; 0: f32 */
  uint32_t reduce_dtype; /* 0: f32 (f64 where dtype is) */
  uint32_t activation;   /* enum bs_activation */
  uint32_t flags;        /* enum bs_layer_flags of both */
  /* The second layer's method; NULL: "row_parallel". Where it takes other columns than a run ("blockshock"),
   * the first layer makes just those hidden features on each rank: W1's rows are given out in that order. */
  const char *row_method;
  const bs_mask *row_mask; /* NULL: the method's default */
} bs_tp_mlp_spec;

typedef struct bs_tp_mlp bs_tp_mlp;

/* Weights and biases as for the layers. Collective. BS-TP-PAIR (BS_UNSUPPORTED): the row method gives a rank
 * another number of columns than its even share of the hidden features. */
BS_API int32_t bs_tp_mlp_make(bs_rank *rank, const bs_tp_mlp_spec *spec, const bs_source *w1,
                              const bs_source *b1, const bs_source *w2, const bs_source *b2,
                              bs_tp_mlp **out_mlp, bs_error *err);
BS_API void bs_tp_mlp_free(bs_tp_mlp *mlp);
/* x [B, in], y [B, out], dx as x, dy as y: whole on every rank of the group. Collective. */
BS_API int32_t bs_tp_mlp_forward(bs_tp_mlp *mlp, const bs_tensor *x, bs_tensor *y, bs_error *err);
BS_API int32_t bs_tp_mlp_backward(bs_tp_mlp *mlp, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                                  bs_error *err);
/* One step of both layers. */
BS_API int32_t bs_tp_mlp_step(bs_tp_mlp *mlp, const bs_step *step, bs_error *err);
/* The layers; they belong to the MLP. */
BS_API bs_tp_linear *bs_tp_mlp_column(bs_tp_mlp *mlp);
BS_API bs_tp_linear *bs_tp_mlp_row(bs_tp_mlp *mlp);

#ifdef __cplusplus
}
#endif
#endif
