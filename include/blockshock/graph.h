/* SPDX-License-Identifier: MIT
 *
 * graph.h - the graph runtime, libblockshock-graph: reads or builds a model, lowers it to the kernel ops of
 * op.h, plans its memory and runs it. examples/embed-graph is a complete program.
 *
 *   bs_graph     a model: read from a file, or built by calls. It reads no weights and binds no shapes.
 *   bs_session   a model that is lowered, optimised, packed and planned for one set of shapes, and runs.
 *
 * Errors: functions return an enum bs_status and fill a caller-owned bs_error (may be NULL). An error of a
 * file has its path in `message` and `where`; bs_error_format makes one line with the hint.
 *
 * Threads: any thread may call. What may run at the same time:
 * - A session takes one call at a time. Different sessions may be opened, bound, run, checked, asked and
 *   closed at the same time: of one graph or of several, with shared weights or without. A bind or a close
 *   waits for another one of a session with the same weights; a run waits for nothing.
 * - Sessions that share a key-value cache are run and checked one at a time, and bs_session_cache is called
 *   between runs. A run during another one is refused: BS-GRAPH-BUSY.
 * - A graph takes one call at a time that adds to it, fixes an input or closes it, and no other call uses the
 *   graph meanwhile. All other calls may be made at the same time, also while its sessions work.
 *
 * Units: shapes are counted in elements, memory in bytes, times in seconds.
 * Ownership: the caller closes what it opens. The context outlives its graphs, and a graph outlives its
 * sessions, which read its constants. Strings that a call returns live as long as the graph or the session
 * that they belong to.
 *
 * NULL: err may be NULL, and any argument whose function says so. A NULL elsewhere is BS_INVALID_ARGUMENT
 * (BS-GRAPH-NULL), and 0 from functions that return a number. A list with a count may be NULL when the count
 * is 0; the count is the number of its entries. No entry may be NULL.
 *
 * Structs: a struct_size of 0 is BS_INVALID_ARGUMENT (BS-GRAPH-STRUCT): set struct_size to sizeof before a
 * call that fills or reads one; zero in every other field is the default.
 */
#ifndef BLOCKSHOCK_GRAPH_H
#define BLOCKSHOCK_GRAPH_H

#include "blockshock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_graph bs_graph;     /* a model */
typedef struct bs_session bs_session; /* a model that runs */

/* An absent optional input of bs_graph_op. */
#define BS_GRAPH_NONE UINT32_MAX

/* The type of an attribute of an operator. */
enum bs_attr_type {
  BS_ATTR_INT = 1,
  BS_ATTR_FLOAT = 2,
  BS_ATTR_TEXT = 3,
  BS_ATTR_INTS = 4,
  BS_ATTR_FLOATS = 5,
  BS_ATTR_TEXTS = 6,
  BS_ATTR_TENSOR = 7,
  BS_ATTR_GRAPH = 8 /* a branch of If; only models that were read from a file have it */
};

/* One attribute of an operator: `type` says which fields count. bs_graph_op copies it with all that it points
 * to. */
typedef struct bs_attr {
  uint32_t struct_size;
  uint32_t type; /* enum bs_attr_type */
  const char *name;
  int64_t i;                    /* INT; of GRAPH the number of the branch */
  double f;                     /* FLOAT */
  const char *text;             /* TEXT */
  uint64_t count;               /* INTS, FLOATS, TEXTS: how many */
  const int64_t *ints;          /* INTS */
  const double *floats;         /* FLOATS */
  const char *const *texts;     /* TEXTS */
  const bs_tensor_desc *tensor; /* TENSOR: dtype and shape, dense */
  const void *data;             /* TENSOR: its elements */
} bs_attr;

/* An input or an output of a model. */
typedef struct bs_port {
  uint32_t struct_size;
  uint32_t dtype; /* enum bs_dtype; 0: not known before a session is open */
  const char *name;
  uint32_t rank; /* UINT32_MAX: not known before a session is open */
  uint32_t reserved;
  int64_t dims[BS_MAX_DIMS];        /* -1: a symbol, or not known */
  const char *symbols[BS_MAX_DIMS]; /* the symbol's name; NULL: none */
} bs_port;

/* The size of a symbolic dimension. */
typedef struct bs_dim {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  int64_t size;
} bs_dim;

/* How a model is read. NULL in its place: the defaults. */
typedef struct bs_graph_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* The most tokens of the key-value cache of a folder or a GGUF file. 0: the number that it says. */
  int64_t cache_tokens;
  /* The number of first layers to read of a folder or a GGUF file, for a comparison that would take too long.
   * 0: all. */
  int64_t layers;
  /* Since 0.13. Sequences of a folder whose key-value caches lie side by side, at most 1024 (generate.h uses
   * it). 0: one sequence, whose length the session counts. Else the inputs are `input_ids` i64 [batch,
   * sequence], `lengths` i64 [batch] (tokens in the cache of each row before the run) and `rows` i64 [rows]
   * (rows of [batch sequence] whose logits are wanted); the output is `logits` [rows, words]. Row i of a run
   * uses slot bs_session_slot + i. */
  int64_t slots;
  /* Since 0.13. The dtype of the key-value cache of a folder or a GGUF file: BS_F32, BS_F16 or BS_BF16. 0:
   * f16 of a GGUF file with quantised weights, else that of the activations. */
  uint32_t cache_dtype;
  /* Since 0.13. 1: without slots, `logits` of a folder or a GGUF file is that of the last token alone, [1, 1,
   * words]. */
  uint32_t last_logits;
  /* Since 0.15. 1: a folder may have config.json and no weights. Its sessions run on backends without values
   * alone (BS_BACKEND_PHANTOM), which take time as with the weights. */
  uint32_t shapes;
  uint32_t reserved2;
} bs_graph_options;

/* A node that the library cannot serve. Strings live during the call. */
typedef struct bs_graph_issue {
  uint32_t struct_size;
  uint32_t dtype; /* the dtype that is not served; 0: the reason is another */
  const char *node;
  const char *op;
  const char *domain; /* "" is ai.onnx */
  uint32_t opset;
  uint32_t reserved;
  const char *reason;
} bs_graph_issue;

/* ---- models --------------------------------------------------------------------------------- */

/* Reads a model: a file .onnx or .gguf, or a folder with config.json and safetensors. Maps its files; the
 * files must stay as they are until the graph is closed. options may be NULL. BS_INPUT: the file is damaged
 * or unusual, and where. */
BS_API int32_t bs_graph_open(bs_context *context, const char *path, const bs_graph_options *options,
                             bs_graph **out_graph, bs_error *err);
/* Makes an empty model, which the functions below fill. Its operators are those of ai.onnx, opset 24. */
BS_API int32_t bs_graph_new(bs_context *context, bs_graph **out_graph, bs_error *err);
/* Adds an input. dims of -1 are symbols: dim_names names each (entries of fixed dims may be NULL); the same
 * name is the same size. dim_names may be NULL when all dims are fixed. *out_value is the value's number. */
BS_API int32_t bs_graph_input(bs_graph *graph, const char *name, const bs_tensor_desc *desc,
                              const char *const *dim_names, uint32_t *out_value, bs_error *err);
/* Adds a constant. `data` is dense, belongs to the caller, and stays until the graph is closed. name may be
 * NULL; data may be NULL where there is no element. */
BS_API int32_t bs_graph_constant(bs_graph *graph, const char *name, const bs_tensor_desc *desc,
                                 const void *data, uint32_t *out_value, bs_error *err);
/* Adds an operator of ONNX by its name: inputs and attributes as its specification says, BS_GRAPH_NONE for an
 * optional input that is absent. BS_INPUT (BS-GRAPH-BAD) names an attribute or input that the operator does
 * not have, or needs and has not. Fills out_values[0..n_out) with the numbers of its outputs; out_values may
 * be `in` or a part of it. Shapes and dtypes are checked when a session opens. */
BS_API int32_t bs_graph_op(bs_graph *graph, const char *onnx_op, const uint32_t *in, uint32_t n_in,
                           const bs_attr *const *attrs, uint32_t n_attr, uint32_t *out_values, uint32_t n_out,
                           bs_error *err);
/* Makes a value an output of the model. */
BS_API int32_t bs_graph_output(bs_graph *graph, const char *name, uint32_t value, bs_error *err);
/* Makes the input of that name a constant with the tensor's elements, which are copied: shapes, axes and
 * other numbers that the lowering must know. The name may also be that of an initializer that a file lists
 * among its inputs: this value then replaces the one in the file. Call it before the first session opens;
 * later it is an error.
 */
BS_API int32_t bs_graph_fix(bs_graph *graph, const char *name, const bs_tensor *tensor, bs_error *err);
/* The inputs (inputs not 0) or the outputs of a model, in its order. */
BS_API uint32_t bs_graph_port_count(const bs_graph *graph, uint32_t inputs);
BS_API int32_t bs_graph_port(const bs_graph *graph, uint32_t inputs, uint32_t index, bs_port *out_port,
                             bs_error *err);
/* Calls `each` (may be NULL) for every node that cannot be served: an operator, version, attribute or dtype
 * that the library does not know, with dims at the sizes given and every other symbol at a size that is
 * tried. `backend` NULL: the lowering alone is asked, else also the backend's ops. BS_OK with no call of
 * `each`: all is served; where nodes fit none of the sizes that were tried, they are not judged, and err has
 * the id BS-GRAPH-GUESS and says which sizes to give. BS_UNSUPPORTED when there were calls. */
BS_API int32_t bs_graph_check(bs_graph *graph, const char *backend, const bs_dim *const *dims,
                              uint32_t n_dims, void (*each)(void *user, const bs_graph_issue *issue),
                              void *user, bs_error *err);
/* The size and content of a model; `bsrun model info` prints them. */
typedef struct bs_graph_info {
  uint32_t struct_size;
  uint32_t opset;       /* of ai.onnx; 0: the model imports none */
  const char *path;     /* "" when it was built by calls */
  const char *producer; /* as the file says; "" */
  uint64_t nodes, constants, constant_bytes;
  uint64_t states, state_bytes; /* key-value cache */
  int64_t cache_tokens;         /* 0: it has no cache */
  double load_seconds;
  int64_t slots; /* since 0.13: as in bs_graph_options */
} bs_graph_info;
BS_API int32_t bs_graph_info_get(const bs_graph *graph, bs_graph_info *out_info, bs_error *err);
/* Calls `each` for each operator that the model uses: its name, domain and how many nodes. */
BS_API int32_t bs_graph_ops(const bs_graph *graph,
                            void (*each)(void *user, const char *op, const char *domain, uint64_t nodes),
                            void *user, bs_error *err);
/* Closes a graph after its sessions. NULL is allowed. */
BS_API void bs_graph_close(bs_graph *graph);

/* ---- sessions ------------------------------------------------------------------------------- */

/* Which runs give a token the same bits.
 * RUNS: runs of the same sizes, threads and choices.
 * BATCH: also runs with other tokens in the call, and other threads. Products, and attention of up to 8
 * queries, are asked with BS_QUERY_TOKENWISE. What the backend does not serve so runs on `ref`.
 * TOKENS, since 0.14: also runs of a sequence that is cut elsewhere, and other processors. All nodes are
 * asked with BS_QUERY_BITS. A session with a node that nothing serves so is not opened (BS_UNSUPPORTED).
 * RANKS, since 0.15: also 1, 2, 4 and 8 ranks of the same method. Every layer promises R3.
 * share/doc/blockshock/numbers.md has the definition. */
enum bs_session_bits { BS_BITS_RUNS = 0, BS_BITS_BATCH = 1, BS_BITS_TOKENS = 2, BS_BITS_RANKS = 3 };

/* How a session is opened. bs_session_open copies it. */
typedef struct bs_session_options {
  uint32_t struct_size;
  uint32_t threads;    /* of a run, the caller's among them; 0: all processors that the process may use; of a
                        * session that shares, 0: as many as the other has */
  const char *backend; /* NULL: "cpu", or that of `share` */
  const bs_dim *const *dims;
  uint32_t n_dims; /* every symbol of the model needs a size */
  uint32_t n_passes_off;
  const char *const *passes_off; /* names of passes that do not run; "all": none runs */
  uint32_t bind;        /* 1: pin the threads to their cores, as a session that shares has the other's */
  uint32_t no_fallback; /* 1: no other backend may serve what the backend lacks (benchmarks) */
  const char *const *choices; /* as bs_world_options */
  uint32_t n_choices;
  uint32_t f64;      /* 1: every float is f64, on `ref`: the reference of bs_session_check */
  uint32_t profile;  /* 1: bs_session_run times each node */
  uint32_t plans;    /* sets of shapes, or ranges of them, whose plans are kept; 0: 16 */
  bs_session *share; /* a session of the same graph and backend: packed weights, copies of constants and the
                      * key-value cache are in common; threads and scratch are not. NULL: none. */
  /* Called while the session is opened and bound, on the caller's thread: "lower", "passes", "plan" (total 0)
   * and "pack weights", product `done` of `total`. NULL: not called. A session that shares has the other's.
   * It opens, binds and closes no session that shares with this one.
   */
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
  void *progress_user;
  /* Since 0.13. The weights of products are rounded to a scheme when they are packed, and stay so in memory:
   * w8, w8g32, w4g32, w4z32, w4k, w6k (share/doc/blockshock/models.md), or a list "PATTERN=SCHEME;..", of
   * which the first counts whose pattern (* is any text) fits the name of the weight or of its node. "float"
   * leaves a weight as it is. Beside quantised weights a model of token ids has f32 activations. NULL: as in
   * the model; of a session that shares, as the other has. */
  const char *weights;
  /* Since 0.13. How products take X beside quantised weights: "float" or "x8" (whole numbers of 8 bits with
   * scales). NULL: as the model's format asks. */
  const char *activations;
  /* Since 0.13: enum bs_session_bits. */
  uint32_t tokenwise;
  /* Since 0.13. 1: sizes that are bound after the first ones are planned alone. 0: one plan serves a range of
   * sizes (up to 4, 8, .. 512, then multiples of 512; 1 and 2 alone) where the model allows it, with memory
   * for the largest. */
  uint32_t exact;
  /* Since 0.15. The session runs on all ranks of this world (share/doc/blockshock/split.md): each call below
   * runs every rank once, so the world runs nothing else meanwhile. Inputs are the caller's memory for all
   * ranks; outputs are those of rank 0. Backend, threads, `bind`, choices and fallback are the world's: they
   * must be zero here. The world outlives the session. NULL: one rank. */
  bs_world *world;
  /* Since 0.15. For a function that a world runs on each rank: the session is that of this rank. Every rank
   * opens one of the same model with the same options, and makes the same calls. The session is used and
   * closed while the world runs, on the rank's thread. NULL: none. */
  bs_rank *rank;
  /* Since 0.15, with `world` or `rank`. The method that splits products with constant weights over the ranks:
   * each rank holds its part of these weights. A product that it does not take is computed whole on every
   * rank. NULL: every rank computes everything. */
  const char *method;
  const char *const *method_keys; /* options of the method, as in bs_layer_spec */
  const char *const *method_values;
  const bs_mask *mask; /* NULL: the method's default; outlives the session */
  int64_t tokens;      /* rows that layers are built for. More rows build them again. 0: of the first sizes */
  uint32_t n_method_options;
  uint32_t reserved;
} bs_session_options;

/* Lowers the model, runs the passes, packs the weights and plans the memory. options may be NULL.
 * BS_UNSUPPORTED names the first node that cannot be served and how many there are: bs_graph_check has all.
 */
BS_API int32_t bs_session_open(bs_context *context, bs_graph *graph, const bs_session_options *options,
                               bs_session **out_session, bs_error *err);
/* Gives symbols new sizes; symbols that are not named keep theirs. Keeps the plans of the sets of shapes that
 * were used last (`plans`). One plan serves a range of sizes if the model allows it (`exact`). Packs no
 * weight again. Forgets the tensors of bs_session_set. */
BS_API int32_t bs_session_bind(bs_session *session, const bs_dim *const *dims, uint32_t n, bs_error *err);
/* Bytes of the memory for intermediate values, and memory of the caller's for them: 64-byte aligned, at least
 * that many bytes, until the session is closed or bound again. Without this call the session allocates it at
 * its first run. */
BS_API uint64_t bs_session_workspace(const bs_session *session);
BS_API int32_t bs_session_use_workspace(bs_session *session, void *memory, uint64_t bytes, bs_error *err);
/* The ports of a session: its inputs first, then its outputs, in the model's order. out_name and out_desc may
 * be NULL. */
BS_API uint32_t bs_session_port_count(const bs_session *session);
BS_API int32_t bs_session_port(const bs_session *session, uint32_t port, const char **out_name,
                               bs_tensor_desc *out_desc, bs_error *err);
/* The port of that name; BS_NOT_FOUND names the nearest one. */
BS_API int32_t bs_session_find(const bs_session *session, const char *name, uint32_t *out_port,
                               bs_error *err);
/* Gives a port the caller's memory, which is dense and stays until another is set: an input is read from it
 * by each run, an output is written to it. Shape and dtype are checked here. An output that is not set lies
 * in the workspace. The memory of an output overlaps that of no other port: a run may write an output before
 * it has read every input, and what it gives then is not defined. */
BS_API int32_t bs_session_set(bs_session *session, uint32_t port, const bs_tensor *tensor, bs_error *err);
/* Returns the tensor of a port. The values of an output stay until the next run. */
BS_API int32_t bs_session_get(const bs_session *session, uint32_t port, bs_tensor *out_tensor, bs_error *err);
/* Runs the model once. Every input must be set. Allocates nothing after the first run. */
BS_API int32_t bs_session_run(bs_session *session, bs_error *err);
/* Tokens in the key-value cache. Each run adds those of its input. bs_session_cache cuts the cache to
 * `length` (0: empty). BS_OVERFLOW: a run, or a length, that is more than the cache holds. */
BS_API int64_t bs_session_cache_length(const bs_session *session);
BS_API int64_t bs_session_cache_limit(const bs_session *session);
BS_API int32_t bs_session_cache(bs_session *session, int64_t length, bs_error *err);
/* Since 0.13, of a graph with slots. Row 0 of the next runs uses the cache of slot `first`, row 1 the one
 * after it. Another plan keeps the choice. */
BS_API int32_t bs_session_slot(bs_session *session, int64_t first, bs_error *err);
/* Since 0.13, of a graph with slots. Copies the first `tokens` tokens of the cache of slot `from` to slot
 * `to`, and leaves the rest of it. Between runs. */
BS_API int32_t bs_session_slot_copy(bs_session *session, int64_t from, int64_t to, int64_t tokens,
                                    bs_error *err);

/* One node of a plan, as it was judged by bs_session_check. */
typedef struct bs_node_check {
  uint32_t struct_size;
  uint32_t index;
  const char *op;     /* kernel op */
  const char *serves; /* "cpu:packed" */
  const char *origin; /* the model's nodes that it came from */
  double deviation;   /* largest |value - f64 value|, over the largest |f64 value| of the node */
  double bound;       /* what the deviation may be */
  uint32_t ok;        /* 1: within the bound, guards whole, equal bits with bs_session_run */
  uint32_t reserved;
  const char *reason; /* why not; "" */
} bs_node_check;
/* Runs the model node by node: outputs are poisoned first, guard bytes lie around them, and each node is
 * compared with the same node computed in f64 by `ref` from the same inputs. `each` (may be NULL) is called
 * for each node. BS_NUMERIC: a node was not ok. The outputs are those of bs_session_run bit for bit, else
 * BS_NUMERIC. */
BS_API int32_t bs_session_check(bs_session *session, void (*each)(void *user, const bs_node_check *row),
                                void *user, bs_error *err);

/* Since 0.13. A node of a run, after it has run. Everything is the session's, and valid during the call. */
typedef struct bs_node_trace {
  uint32_t struct_size;
  uint32_t index;
  const char *op;     /* kernel op */
  const char *origin; /* the first of the model's nodes that it came from */
  const char
      *weight; /* the name of its packed weight in the model; "": it has none, or the name is unknown */
  uint32_t n_inputs, n_outputs;
  const bs_tensor *const *inputs;  /* NULL where one is absent; some ops write their output over an input */
  const bs_tensor *const *outputs; /* NULL where one is absent */
} bs_node_trace;
/* Since 0.13. Runs the model once, as bs_session_run does and with its results, and calls `each` on the
 * caller's thread after each node. `each` may read the tensors, and uses no session of the graph. */
BS_API int32_t bs_session_trace(bs_session *session, void (*each)(void *user, const bs_node_trace *row),
                                void *user, bs_error *err);

/* The result of bs_session_verify. Strings live until its next call, or until the session is closed. */
typedef struct bs_verify_report {
  uint32_t struct_size;
  uint32_t ok;       /* 1: every number that was compared is within its bound */
  uint64_t compared; /* numbers of all outputs */
  /* Numbers that are not compared: the graph as written gives an infinity or NaN there because it overflows,
   * or right runs of it differ (the place of the largest of equal numbers). */
  uint64_t skipped;
  /* The number that is furthest from its bound. */
  const char *output;
  uint32_t rank, reserved;
  int64_t at[BS_MAX_DIMS];
  double value, expected, bound;
  /* Set where it is not ok; "" means unknown. */
  const char *pass;   /* the first pass with which the outputs differ */
  const char *off;    /* passes, between commas: without them the outputs are right */
  const char *node;   /* the model's node that the wrong numbers begin with */
  const char *serves; /* "cpu:packed": no pass is to blame, this kernel is */
} bs_verify_report;
/* Runs the model once, as bs_session_run does, and compares its outputs with those of the graph as written:
 * the lowered model without any pass, on `ref`, with every float in f64. share/doc/blockshock/dev/graph.md
 * has the bound of a number. BS_NUMERIC: the outputs differ; the error names the pass or the kernel, or the
 * rank whose outputs are not those of rank 0 (BS-GRAPH-RANKS; `output` is "" then). A call opens the sessions
 * that this needs, and closes them: a program calls it to test a model, not in its runs. */
BS_API int32_t bs_session_verify(bs_session *session, bs_verify_report *out_report, bs_error *err);

/* A node of a session's plan and who serves it. */
typedef struct bs_node_info {
  uint32_t struct_size;
  uint32_t level; /* enum bs_level */
  const char *op;
  const char *serves; /* "cpu:packed", "ref:portable" */
  const char *origin;
  const char *reason; /* why the backend itself does not serve it; "" */
  uint64_t flops, bytes;
  uint64_t runs;  /* with `profile` */
  double seconds; /* with `profile`: of all runs */
  /* Since 0.15, of a product that a method splits. flops, bytes: of the rank. */
  const char *method;     /* "" otherwise */
  const char *split;      /* how it is split, as the method says, or why every rank computes all of it; "" */
  uint32_t n_collectives; /* of one run */
  uint32_t reserved;
  uint64_t payload_bytes; /* of these collectives, as in bs_proposal */
} bs_node_info;
BS_API uint32_t bs_session_node_count(const bs_session *session);
BS_API int32_t bs_session_node(const bs_session *session, uint32_t index, bs_node_info *out_info,
                               bs_error *err);

/* The counts of a session, and how long its parts took, in seconds. */
typedef struct bs_session_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t runs;
  uint64_t plans_made, plans_reused; /* bindings that were planned; sizes that a plan was there for */
  uint64_t host_waits;               /* times that a run waited for a device */
  uint64_t copied_bytes;             /* bytes that runs copied between host and device */
  uint64_t
      fallback_nodes; /* nodes of the plan that another backend serves: `ref` or, of a device, the host */
  uint64_t arena_bytes, bound_bytes, naive_bytes; /* bytes: planned, lower bound, without sharing */
  uint64_t scratch_bytes, packed_bytes, constant_bytes, state_bytes;
  double load_s, lower_s, pass_s, plan_s, pack_s, prepare_s, first_run_s;
  /* How many of plans_made were made again, for sizes whose plan had been dropped. One of the rest is the
   * first of the session; the others are for new sizes. */
  uint64_t plans_again;
  /* Since 0.15. Products of the plan that a method splits, those that every rank computes whole, and layers
   * that were built again for more rows; collectives of a run on one rank, and their payload. packed_bytes
   * and state_bytes are those of rank 0. */
  uint64_t layers, layers_whole, layers_again, collectives, payload_bytes;
  uint32_t ranks; /* 1 without a world */
  uint32_t reserved2;
} bs_session_stats;
BS_API int32_t bs_session_stats_get(const bs_session *session, bs_session_stats *out_stats, bs_error *err);

/* Reports of a session: as text, or as JSON. */
enum bs_session_report {
  BS_REPORT_EXPLAIN = 1, /* passes, nodes, who serves them, memory */
  BS_REPORT_PLAN = 2,    /* the arena: bound, ratio, peak step and its largest tensors */
  BS_REPORT_PROFILE = 3, /* time of each node; needs `profile` */
  BS_REPORT_DUMP = 4,    /* the lowered graph, a line a node */
  /* Since 0.13. Why passes left nodes: lines "NODE<tab>PASS<tab>REASON"; "NODE<tab><tab>" of each. */
  BS_REPORT_MISSES = 5
};
BS_API int32_t bs_session_text(bs_session *session, uint32_t what, uint32_t json,
                               void (*put)(void *user, const char *text), void *user, bs_error *err);
/* Since 0.15, for a world whose ranks are processes (bs_world_own_rank). Every process opens the same
 * session: the same model, options and sizes, else BS_MISMATCH (BS-GRAPH-SAME) on each. Then rank 0 makes
 * the calls above, and ranks above 0 make this one: it serves rank 0's calls until rank 0 closes its session,
 * and returns BS_OK. Inputs travel from rank 0. A failure of one rank is an error of all, with its code and
 * its rank: BS_RANK_FAILED where it died, BS_DEADLINE where it came too late. A session of such a world
 * shares with no other. BS_INVALID_ARGUMENT: the session has no such world, this is rank 0, or rank 0 has
 * closed it. */
BS_API int32_t bs_session_follow(bs_session *session, bs_error *err);
/* Closes a session. NULL is allowed. */
BS_API void bs_session_close(bs_session *session);

/* The passes, in the order in which they run. NULL beyond the last. Names and summaries are static. */
BS_API const char *bs_graph_pass_name(uint32_t index);
BS_API const char *bs_graph_pass_summary(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
