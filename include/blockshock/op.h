/* SPDX-License-Identifier: MIT
 *
 * op.h - ops: a schema in the core (arity, dtypes, shape rule, cost) plus implementations by backends.
 *
 *   pack    once per weight: pulls panels from a source into the layout the kernels want
 *   prepare once per shape class: chooses, sizes workspace; everything slow
 *   run     the hot call: allocates nothing, locks nothing, looks nothing up
 *
 * names.h lists the core ops. share/doc/blockshock/ops.md says of each of them:
 * arguments in order (outputs last, an absent optional one is NULL), meaning, attributes, dtypes, cost.
 *
 * Weights are packed for matmul or matmul24. Implementations that one plugin registers with the same backend
 * and the same name share packed weights: matmul_dx over a weight that matmul@cpu/packed has packed is served
 * by that plugin's matmul_dx@cpu/packed. Packing with BS_QUERY_TRAIN refuses implementations of matmul that
 * have no such matmul_dx and matmul_update. At run, the leading dimension of activations may be smaller than
 * at prepare, never larger.
 *
 * Units: shapes are counted in elements, memory and workspaces in bytes, work in floating point operations.
 * Ownership: the packed objects and plans of an implementation are freed by its packed_free and plan_free.
 * Queries and tensors belong to the caller. A plan copies what it needs of a query.
 * Threads: supports may be called from any thread. All other functions are called from the thread of a rank,
 * which shares work with its team by parallel_for.
 * Errors: functions return an enum bs_status. supports refuses by BS_LEVEL_NO with a reason, and prepare by
 * BS_UNSUPPORTED. After an error of run the contents of the outputs are undefined.
 */
#ifndef BLOCKSHOCK_OP_H
#define BLOCKSHOCK_OP_H

#include "expr.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most arguments of an op, absent ones counted. */
#define BS_MAX_OP_ARGS 16
/* The most knobs of an implementation or a method. */
#define BS_MAX_KNOBS 16

/* The type in which sums are made. DEFAULT is f64 where an operand or the output is f64, else f32. */
enum bs_accumulate { BS_ACC_DEFAULT = 0, BS_ACC_F32 = 1, BS_ACC_F64 = 2 };
/* The function applied to each element of a product. */
enum bs_activation {
  BS_ACT_NONE = 0,
  BS_ACT_RELU = 1,
  BS_ACT_GELU = 2, /* exact, erf */
  BS_ACT_SILU = 3,
  BS_ACT_GELU_TANH = 4 /* gelu by tanh; forward only */
};
/* attrs[0] of normalize. */
enum bs_normalize {
  BS_NORMALIZE_LAYER = 1,
  BS_NORMALIZE_RMS = 2,
  BS_NORMALIZE_SOFTMAX = 3,
  BS_NORMALIZE_LOG_SOFTMAX = 4
};
/* attrs[0] of attention: which keys a query sees by its position. */
enum bs_causal { BS_CAUSAL_NONE = 0, BS_CAUSAL_UPPER_LEFT = 1, BS_CAUSAL_LOWER_RIGHT = 2 };
/* attrs[0] of reduce. The sum of no elements is 0, the product 1; max and min of none are the lowest and the
 * highest value of the dtype (infinities of floats); NaN is passed on. */
enum bs_fold {
  BS_FOLD_SUM = 1,
  BS_FOLD_MAX = 2,
  BS_FOLD_MIN = 3,
  BS_FOLD_PROD = 4,
  BS_FOLD_SUMSQ = 5,
  BS_FOLD_ARGMAX = 6,
  BS_FOLD_ARGMIN = 7,
  BS_FOLD_CUMSUM = 8
};
/* attrs[0] of take and put: what an index names. */
enum bs_index { BS_INDEX_ROWS = 0, BS_INDEX_ELEMENTS = 1, BS_INDEX_TUPLES = 2 };
/* attrs[3] of put: what happens at a place. */
enum bs_put { BS_PUT_SET = 0, BS_PUT_ADD = 1, BS_PUT_MUL = 2, BS_PUT_MAX = 3, BS_PUT_MIN = 4 };
/* Further demands of a query. */
enum bs_query_flags {
  BS_QUERY_X_FULL = 1u << 0,        /* matmul and its derivatives: X (dX) holds all K columns */
  BS_QUERY_DETERMINISTIC = 1u << 1, /* same bits on every call */
  BS_QUERY_TRAIN = 1u << 2,         /* pack of matmul: matmul_dx and matmul_update will use the weight too */
  BS_QUERY_TOKENWISE = 1u << 3,     /* a row's bits depend on that row alone, not on other rows or B, and an
                                     * output's on no other output; who cannot promise it answers NO */
  BS_QUERY_BITS = 1u << 4           /* since 0.14: the bits of definition 1 (share/doc/blockshock/numbers.md),
                                     * which depend neither on threads nor on the processor. Answers without
                                     * `bits` 1 are passed over, unless they are exact (BS_TOL_EXACT) */
};

/* Values of bs_knob.flags. BUILD: each value is a separate binary, so that plans that differ in it report
 * different bs_op_echo.build. */
enum bs_knob_flags { BS_KNOB_BUILD = 1u << 0 };

/* A number or a word that an implementation takes (bs_op_impl.knobs), or a method as the option of that name
 * (bs_method.knobs). `values` is the legal set, parts with commas between them: "exact,fast",
 * "48,96,192", "16:256*2" (16, 32, 64, 128, 256), "8:64+8" (8, 16, ... 64). "auto" is legal too: the plan
 * decides. Strings are static. */
typedef struct bs_knob {
  uint32_t struct_size;
  uint32_t flags;       /* enum bs_knob_flags */
  const char *name;     /* [a-z][a-z0-9_]*, at most 31 letters */
  const char *values;   /* at most 4096 of them */
  const char *standard; /* the default: one of the values, or "auto" */
  const char *summary;  /* one line */
} bs_knob;

/* The report of a plan about itself. bs_echo_begin of plugin.h makes one in which nothing is known. */
typedef struct bs_op_echo {
  uint32_t struct_size;
  int32_t registers;    /* of a thread; -1: not known */
  int64_t shared_bytes; /* of a block, static and dynamic; -1: not known */
  int64_t spill_bytes;  /* local memory of a thread; -1: not known */
  char knobs[256];      /* "keys=128;exp=fast": every declared knob with the value in use */
  char build[72];       /* which code runs: a hash of the binary; "": not known */
} bs_op_echo;

/* A question to an implementation: the op, the shapes and dtypes of its arguments, and how to compute. The
 * caller owns it; it is valid during the call. */
typedef struct bs_op_query {
  uint32_t struct_size;
  uint32_t nargs;
  const char *op;
  const bs_tensor_desc *const *args;
  const bs_partition *partition; /* NULL: all columns */
  uint32_t accumulate;           /* enum bs_accumulate */
  uint32_t activation;           /* enum bs_activation */
  uint32_t flags;                /* enum bs_query_flags */
  uint32_t weight_dtype;         /* storage dtype of the packed weight */
  uint64_t workspace_limit;      /* 0: no limit */
  int64_t attrs[8];              /* as the op's row above says; else for plugin ops */
  const bs_kept *kept;           /* matmul24 and its derivatives: the positions; NULL for all others */
  /* Since 0.7. */
  double numbers[4];   /* as attrs, real ones */
  const bs_expr *expr; /* map: the program; NULL for all others but plugin ops */
  /* Since 0.9. "keys=128;exp=fast", of the implementation's own knobs and their legal values: the host has
   * compared them. NULL: no knob is set. A caller that asks through the host leaves it NULL: the knobs come
   * with a choice (share/doc/blockshock/tuning.md). */
  const char *knobs;
  /* Since 0.13. matmul_q and take_q: the weight's form, and at pack its contents (the pack's source is NULL).
   * A plan keeps nothing of it but its numbers. NULL for all other ops. */
  const bs_quant *quant;
} bs_op_query;

/* The cost of one run of a query, by the op's schema (bs_host.op_cost): rows * flops_row + flops_fixed FLOPs,
 * and bytes of memory touched likewise; nothing where rows is 0. Weights and bias are bytes_fixed: they are
 * read once. All saturate at UINT64_MAX. */
typedef struct bs_op_rate {
  uint32_t struct_size;
  uint32_t batch_arg; /* arg whose dims[0] is the rows at run; UINT32_MAX: none, ask again for other dims */
  uint64_t rows;      /* of the query */
  uint64_t flops_row;
  uint64_t bytes_row;
  uint64_t flops_fixed; /* ops of graphs, whose dims are those of the run: all of it */
  uint64_t bytes_fixed;
} bs_op_rate;

/* How an implementation would serve a query. NO: not at all. EMULATED: at a cost. NATIVE: well. UNKNOWN: only
 * preparing a plan can tell. */
enum bs_level { BS_LEVEL_NO = 0, BS_LEVEL_EMULATED = 1, BS_LEVEL_NATIVE = 2, BS_LEVEL_UNKNOWN = 3 };
/* The reason of an answer NO. */
enum bs_reason {
  BS_REASON_NONE = 0,
  BS_REASON_DTYPE = 1,
  BS_REASON_RANK = 2,
  BS_REASON_SHAPE = 3,
  BS_REASON_ALIGNMENT = 4,
  BS_REASON_LAYOUT = 5,
  BS_REASON_SPARSITY = 6,
  BS_REASON_ARCH = 7,
  BS_REASON_LIB_VERSION = 8,
  BS_REASON_WORKSPACE = 9,
  BS_REASON_WORLD_SIZE = 10,
  BS_REASON_MEMORY = 11,
  BS_REASON_DISABLED = 12,
  BS_REASON_NOT_BUILT = 13,
  BS_REASON_DEVICE_NOT_OPEN = 14
};
/* How exact the answer is: the class that bounds of round-off are derived from
 * (share/doc/blockshock/numbers.md). */
enum bs_tolerance { BS_TOL_EXACT = 1, BS_TOL_ACC_F32 = 2, BS_TOL_ACC_F64 = 3, BS_TOL_ACC_LOW = 4 };

/* The answer of supports. NO must come with a reason and a text. What answers NATIVE or EMULATED must run. */
typedef struct bs_op_answer {
  uint32_t struct_size;
  uint32_t level; /* enum bs_level */
  uint32_t score; /* 0..1000 for this query */
  uint32_t reason;
  uint32_t tolerance;
  uint32_t bits; /* since 0.14: the definition of bits that is kept for this query; 0: none */
  uint64_t workspace;
  char algo[48];
  char text[160];
} bs_op_answer;

/* The part of a rank that an implementation may use. It lives as long as the plan or packed
 * object. parallel_for calls body(arg, member, width) once on each member of the rank's team and returns
 * when all are done. alloc'ed memory is counted as the rank's; device memory, 64-byte aligned. */
typedef struct bs_exec {
  uint32_t struct_size;
  uint32_t width; /* team width */
  void *device;   /* the backend's device object */
  void *ctx;
  int32_t (*parallel_for)(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg);
  void *(*alloc)(void *ctx, uint64_t bytes);
  void (*free)(void *ctx, void *p);
  /* Since 0.6, may be NULL: one more thing that served, "generate@cuda/philox", for the record. Not in run.
   */
  void (*note)(void *ctx, const char *text);
  /* Since 0.7. Scratch of the rank, one block for all of its plans, for backends whose ops are done when they
   * return (BS_BACKEND_SYNC). reserve is called in prepare: the block will have `bytes`; BS_NO_MEMORY.
   * scratch is called in run, on the thread that run was called on: the block, aligned to 64 bytes, with what
   * earlier ops left in it; it is the plan's until run returns and may be another one at the next run. NULL
   * where nothing was reserved. */
  int32_t (*reserve)(void *ctx, uint64_t bytes);
  void *(*scratch)(void *ctx);
} bs_exec;

typedef struct bs_stream bs_stream; /* a backend's stream; NULL is the rank's default stream */

/* One implementation of one op on one backend. Required: op, backend, name, supports, prepare, run,
 * plan_free; and for matmul pack and packed_free. `state` is what was registered with it. */
typedef struct bs_op_impl {
  uint32_t struct_size;
  uint32_t priority; /* breaks ties of level and score */
  const char *op;
  const char *backend;
  const char *name; /* algorithm, e.g. "dnnl", "packed" */
  const char *summary;
  /* Says whether the query can be served. Pure and thread-safe; it opens no device. */
  int32_t (*supports)(void *state, const bs_op_query *query, bs_op_answer *out_answer);
  /* Pull the partition's columns (query->partition) of `weights` panel by panel. `query` as for
   * prepare; a packed object serves every B. *out_bytes: bytes of device memory it holds. */
  int32_t (*pack)(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                  void **out_packed, uint64_t *out_bytes, bs_error *err);
  /* Adds delta [N,K_r], f32, to the weight. Optional. */
  int32_t (*packed_update)(void *packed, const bs_tensor *delta, bs_error *err);
  /* Reads rows row to row + nrows - 1 of the packed [N,K_r] into out [nrows,K_r], in the dtype of out. out is
   * device memory; the work is in the order of the rank's default stream. */
  int32_t (*packed_read)(void *packed, int64_t row, bs_tensor *out, bs_error *err);
  /* Frees a packed object. The host has freed every plan that uses it. */
  void (*packed_free)(void *packed);
  /* All that is slow: choose, allocate. `packed` is NULL for ops without a weight. Refuses with
   * BS_UNSUPPORTED what supports answers NO to. */
  int32_t (*prepare)(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                     void **out_plan, bs_error *err);
  /* args as in the query, the leading dimension of activations at most the query's. The host has compared
   * shapes, dtypes and alignment. */
  int32_t (*run)(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);
  void (*plan_free)(void *plan);
  /* Since 0.9. The knobs that it takes, and (required with knobs) a plan's report about itself: every knob
   * with the value in use. A knob that was given has the value that was given: supports or prepare refuse a
   * value that the plan cannot use, and never replace it. The host calls echo after prepare. */
  uint32_t n_knobs;
  uint32_t reserved_knobs;
  const bs_knob *const *knobs;
  int32_t (*echo)(const void *plan, bs_op_echo *out_echo);
} bs_op_impl;

#ifdef __cplusplus
}
#endif
#endif
