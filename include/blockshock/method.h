/* SPDX-License-Identifier: MIT
 *
 * method.h - tensor-parallel methods: how one linear layer Y = X W^T + b is split over ranks.
 * Methods speak only to ops and the communicator through bs_rank_api, so the same .so runs on any
 * backend. Methods hold no mutable globals, no thread-local storage and little stack (<= 32 KiB).
 *
 * Units: B, N, K, rows and columns are counted in elements, memory and messages in bytes, work in floating
 * point operations.
 * Ownership: the caller frees a layer by layer_free on the rank that built it. The spec, its strings and its
 * arrays outlive the layer; `weights` and `bias` may go after build.
 * Threads: propose may be called from any thread. All other functions of a layer are called from the thread
 * of its rank. Ranks may be coroutines of one thread.
 * Errors: functions return an enum bs_status and fill err. BS_UNSUPPORTED and BS_CONFIG carry a hint. When
 * build fails, it has freed what it made.
 */
#ifndef BLOCKSHOCK_METHOD_H
#define BLOCKSHOCK_METHOD_H

#include "rank.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The placement of a tensor [B,F] over the ranks. REPLICATED: whole on every rank. SPLIT: over its last
 * dimension (features), by the method's own partition. PARTIAL: a sum that still has to be reduced.
 * SPLIT_TOKENS: even runs of the B rows; the first B mod P ranks have one more, and all B are run. */
enum bs_placement { BS_REPLICATED = 0, BS_SPLIT = 1, BS_PARTIAL = 2, BS_SPLIT_TOKENS = 3 };

/* Which dimension of W is split over the ranks. */
enum bs_split { BS_SPLIT_NONE = 0, BS_SPLIT_K = 1, BS_SPLIT_N = 2 };

/* The abilities that a layer is built for. */
enum bs_layer_flags {
  BS_LAYER_BACKWARD = 1u << 0, /* the layer will be differentiated: what backward needs is made by build */
  BS_LAYER_SGD = 1u << 1,      /* step by SGD; with BACKWARD */
  BS_LAYER_MOMENTUM = 1u << 2, /* with SGD: a velocity is kept, zero at first */
  BS_LAYER_ADAMW = 1u << 3,    /* step by AdamW: two moments are kept, zero at first; with BACKWARD */
  /* Passes of the same tensors become one call of the device (bs_layer_capture). Of the host: methods do not
   * see it. */
  BS_LAYER_CAPTURE = 1u << 4
};

/* How far the bits of y are promised. Each class holds all before it; share/doc/blockshock/methods.md says
 * how it is kept. */
enum bs_repro {
  BS_REPRO_R0 = 0, /* from run to run, same build and shape */
  BS_REPRO_R1 = 1, /* and on every rank */
  BS_REPRO_R2 = 2, /* and a token's do not depend on the other tokens */
  BS_REPRO_R3 = 3, /* and for 1, 2, 4 and 8 ranks */
  BS_REPRO_R4 = 4  /* and for every method over the same order of columns */
};

/* One step of an optimiser (share/doc/blockshock/methods.md has the formulas). */
enum bs_optimizer { BS_OPT_SGD = 1, BS_OPT_ADAMW = 2 };
typedef struct bs_step {
  uint32_t struct_size;
  uint32_t optimizer; /* enum bs_optimizer; the layer was built with its flag */
  uint64_t t;         /* ADAMW: 1 for the first step */
  double lr;
  double momentum; /* SGD with BS_LAYER_MOMENTUM */
  double beta1, beta2, eps;
  double weight_decay; /* of W, not of the bias */
  const bs_tensor
      *dw; /* of backward; NULL, for SGD without momentum and decay: made of x and dy on the way */
  const bs_tensor *db; /* NULL: the bias stays */
  const bs_tensor *x;  /* where dw is NULL: as backward had them */
  const bs_tensor *dy;
} bs_step;

/* One linear layer. Owned by the caller; strings and arrays outlive the layer. */
typedef struct bs_layer_spec {
  uint32_t struct_size;
  uint32_t has_bias;
  int64_t B; /* most tokens per forward; x of a forward may have fewer (not where tokens are split) */
  int64_t N;
  int64_t K;
  uint32_t x_dtype;
  uint32_t w_dtype;
  uint32_t y_dtype;
  /* Dtype of partial sums on the wire and in the reduction; 0: f32. BS_I8: in two steps by groups with a
   * scale each, of float layers (share/doc/blockshock/methods.md). */
  uint32_t reduce_dtype;
  uint32_t accumulate; /* enum bs_accumulate */
  uint32_t activation; /* enum bs_activation; applied after the reduction */
  uint32_t x_placement;
  uint32_t y_placement;
  const bs_mask *mask; /* NULL: the method's default */
  uint32_t n_options;  /* method.<key> settings the method understands */
  uint32_t flags;      /* enum bs_layer_flags */
  const char *const *option_keys;
  const char *const *option_values;
} bs_layer_spec;

/* The most collectives that a proposal lists. */
#define BS_MAX_PROPOSED 8

/* The work that one forward (and one backward) on one rank will do. The host compares it with what it
 * counted. */
typedef struct bs_proposal {
  uint32_t struct_size;
  uint32_t x_placement;
  uint32_t y_placement;
  uint32_t split; /* enum bs_split */
  uint64_t flops; /* 2 B N_r K_r, as the matmul schema counts: bias and activation are free */
  uint64_t weight_bytes;
  uint64_t workspace_bytes; /* scratch and activations inside the layer */
  uint32_t n_collectives;
  uint32_t chunk_tokens; /* 1: `chunks` are runs of tokens, each of which reads all weights; 0: of features */
  uint32_t coll_kind[BS_MAX_PROPOSED];
  uint64_t
      coll_payload[BS_MAX_PROPOSED]; /* whole message bytes M of each (share/doc/blockshock/methods.md) */
  char text[160];                    /* one line: how it is split */
  /* One backward with dx, dw and db of a layer with BS_LAYER_BACKWARD; zero without. */
  uint64_t backward_flops;
  uint32_t n_backward;
  uint32_t reserved_backward;
  uint32_t backward_kind[BS_MAX_PROPOSED];
  uint64_t backward_payload[BS_MAX_PROPOSED];
  /* Since 0.5. Ranks of each collective's group (0: the world), which its ring factor is counted with. */
  uint32_t coll_ranks[BS_MAX_PROPOSED];
  uint32_t backward_ranks[BS_MAX_PROPOSED];
  uint32_t repro;  /* enum bs_repro: the highest class that y is promised */
  uint32_t chunks; /* parts of y that are summed while the next is computed; 0, 1: no overlap */
  double
      wire_error; /* relative Frobenius error that the wire adds to y beyond f32 sums: low-bit reductions */
  double
      prune_error; /* and that of dropping a half: for weights of equal variance; 0: the product is exact */
} bs_proposal;

/* Which part of W a built layer holds. `columns` and `kept` are valid while the layer lives; NULL: all. */
typedef struct bs_ownership {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t row_begin;
  int64_t row_count;
  const bs_partition *columns;
  /* The weights of `columns` that each row keeps (rows and groups count from 0 in this rank's part); NULL:
   * all. K_r is then the length of a packed row, 2 ceil(columns / 4); places beyond the last column hold
   * zeros. */
  const bs_kept *kept;
} bs_ownership;

/* Required: name, propose, build, forward, owns, read_weights, layer_free. A NULL optional slot is
 * UNSUPPORTED. `aliases` is a comma-separated list or NULL. x, y and gradients belong to the caller. */
typedef struct bs_method {
  uint32_t struct_size;
  uint32_t max_world; /* 0: any */
  uint32_t min_world; /* 0: any */
  uint32_t default_world;
  const char *name;
  const char *aliases;
  const char *summary;
  const char *option_docs; /* "key=default: text\n"... of the method.<key> settings; NULL: none */
  /* Says what the layer would do, and builds nothing. Pure. BS_UNSUPPORTED or BS_CONFIG, with a hint, for
   * what the method cannot do. */
  int32_t (*propose)(void *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world_size,
                     bs_proposal *out_proposal, bs_error *err);
  /* Makes this rank's part of a layer. It reads only this rank's part of `weights` [N,K]; `bias` [1,N] is
   * NULL for a layer without one. */
  int32_t (*build)(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                   const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err);
  /* x [B,K] (or this rank's columns when split), y [B,N] (or this rank's features when split). This, backward
   * and step give ops and collectives the same plans and the same memory whenever they are called with the
   * same tensors (and a step of SGD with the same numbers), steps between or not: the host may keep what they
   * give the device as a graph, and run that in their place. Of a
   * forward a layer remembers only tensors and the shapes of x and y. */
  int32_t (*forward)(void *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err);
  /* For a layer built with BS_LAYER_BACKWARD. Computes, from x as forward had it and dy, the gradient of y in
   * y's placement (whole where y is replicated or partial): dx as x, the sum over ranks where x is
   * replicated; dw [row_count,K_r], the part of W that `owns` returns, and db [row_count], the whole bias of
   * those rows on every rank that has rows: f32, or f64 where x, W or y is. dx, dw and db may be NULL, dx on
   * all ranks or on none. With an activation x must be that of the layer's last forward. Allocates nothing.
   * Optional. */
  int32_t (*backward)(void *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                      bs_tensor *db, bs_stream *stream, bs_error *err);
  /* The weights and the bias of this rank change by one step, where they lie. Allocates nothing. Optional. */
  int32_t (*step)(void *layer, const bs_step *step, bs_stream *stream, bs_error *err);
  /* Returns the rows and columns of W that this rank holds. All ranks together hold each weight once. */
  int32_t (*owns)(void *layer, bs_ownership *out_ownership, bs_error *err);
  /* Reads rows row, row + 1, ... of this rank's part [row_count,K_r] into out, as many as out has. */
  int32_t (*read_weights)(void *layer, int64_t row, bs_tensor *out, bs_error *err);
  /* Frees a layer with its plans, packed weights and tensors. */
  void (*layer_free)(void *layer);
  /* Bit set of (1 << enum bs_mask_kind): the masks that mean something to the method, those that it
   * refuses with a reason among them. 0: it splits without a mask, and is given none. */
  uint64_t mask_kinds;
  /* Since 0.9. Options (method.<name>) whose values are a set, described so that they can be listed and tried
   * one after the other. Options with other values are in option_docs alone, these in both. The host refuses
   * other values before it asks the method. */
  uint32_t n_knobs;
  uint32_t reserved_knobs;
  const bs_knob *const *knobs;
} bs_method;

#define BS_MASK_KINDS_ALL 0xffu /* every kind of enum bs_mask_kind */

#ifdef __cplusplus
}
#endif
#endif
