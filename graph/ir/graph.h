/* SPDX-License-Identifier: MIT
 * graph.h - the IR: a list of kernel ops over values with static shapes. Lowering makes it, passes change it,
 * the planner and the executors read it. Values and nodes are numbers, never pointers: an array may move when
 * something is added, so a pointer to a gvalue or gnode is valid until the next mutator.
 *
 * A value is a root (INPUT, CONST, TEMP, STATE: separate, dense, row-major memory) or a VIEW: dims, strides
 * and offset in elements of a root (never of another view). Movement is views: reshape, transpose, slice,
 * expand (stride 0). A TEMP is written by the node that has it as output, or in parts by nodes whose outputs
 * are views of it: two writes never overlap. A STATE is written through a view of it by one `put`. */
#ifndef BS_GRAPH_IR_GRAPH_H
#define BS_GRAPH_IR_GRAPH_H
#include "blockshock/graph.h"
#include "core/base/text.h"
#include "core/partition/order.h"

#define GNONE UINT32_MAX /* no value, node, use, text, expression */

enum gvalue_kind { GV_FREE = 0, GV_INPUT = 1, GV_CONST = 2, GV_TEMP = 3, GV_VIEW = 4, GV_STATE = 5 };

typedef struct gvalue {
  uint8_t kind, rank;
  uint16_t flags; /* enum gvalue_flags */
  uint32_t dtype;
  uint32_t base;      /* VIEW: its root; else the value itself */
  uint32_t producer;  /* node that has it as output; GNONE */
  uint32_t first_use; /* of the chain of nodes that have it as input; GNONE */
  uint32_t next_view; /* chain of what lies in a root's memory: the root, then its views; GNONE at the end */
  uint32_t last_view; /* root: the last of that chain, itself when it has no view */
  uint32_t name;      /* text; GNONE */
  uint32_t slot;      /* planner's: block of the arena; GNONE */
  uint32_t source;    /* model's value that a CONST or STATE came from; GNONE: computed here */
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS]; /* strides in elements, filled in, never negative */
  int64_t offset;                                  /* VIEW: first element, counted from the root's first */
  double scale;     /* VIEW, the weight of a matmul: its elements are these times it; 0: as they are */
  const void *data; /* CONST: elements of the root, aligned or not */
} gvalue;
enum gvalue_flags {
  GV_OUTPUT = 1u << 0,  /* a port or a state needs it at the end of the run */
  GV_JOINED = 1u << 2,  /* CONST [N,K]: `data` is a gjoin, the rows of several constants; a weight only */
  GV_QUANT = 1u << 3,   /* CONST f32 [N,K]: `data` is a gquant; the weight of matmul_q and take_q only */
  GV_FOLLOWS = 1u << 4, /* CONST: dims or elements follow the sizes of the model, as lower/follow.c says */
  GV_LENGTH = 1u << 1   /* INPUT that the session fills: tokens in the cache before the run */
};

/* The rows of a joined constant: constants [n,K] (roots or views), one below the other. */
enum { GJOIN_MAX = 4 };
typedef struct gjoin {
  uint32_t n, parts[GJOIN_MAX];
} gjoin;

/* A constant that stays quantised. Its codes and scales lie where `quant.read` finds them: in the model's
 * file, or it rounds floats of the model. Equal forms and keys mean equal contents, also in another graph of
 * the model: a key is a pointer into the model's memory, or a hash of what the graph computed. */
typedef struct gquant_key {
  uint64_t at[4];
} gquant_key;
/* The codes in a mapped file, whose pages are given back while the weight is packed; data may be NULL. */
typedef struct gquant_place {
  const void *data;
  uint64_t bytes;
  int64_t rows, line; /* line: bytes of a row, if the rows follow each other from `data` on; else 0 */
} gquant_place;
typedef struct gquant {
  bs_quant quant; /* its ctx lives as long as the graph or the model */
  gquant_key keys[GJOIN_MAX];
  gquant_place places[GJOIN_MAX];
  uint32_t n_keys;
  uint32_t x_bytes; /* 1: its format asks for X in bytes */
} gquant;

/* Kernel ops, in the order of their names in graph_op_name. */
enum gop {
  GOP_FREE = 0,
  GOP_MATMUL = 1,
  GOP_MAP = 2,
  GOP_NORMALIZE = 3,
  GOP_ATTENTION = 4,
  GOP_CONTRACT = 5,
  GOP_REDUCE = 6,
  GOP_TAKE = 7,
  GOP_PUT = 8,
  GOP_TOPK = 9,
  GOP_MATMUL_Q = 10,
  GOP_TAKE_Q = 11,
  GOP_COUNT_ = 12
};
enum { GNODE_IN = 14, GNODE_OUT = 4 };

/* in and out are the op's arguments in the order of op.h, GNONE where one is absent; attrs, numbers and
 * activation are those of its query. `weight` of a matmul is a constant [N,K] (a root or a view), not an
 * argument; that of matmul_q and take_q a root with GV_QUANT. */
typedef struct gnode {
  uint16_t op; /* enum gop */
  uint8_t n_in, n_out;
  uint32_t in[GNODE_IN], out[GNODE_OUT];
  uint32_t weight;
  uint32_t prev, next; /* in the order of the run */
  uint32_t origin;     /* chain of the model's nodes that it came from */
  uint32_t activation, accumulate;
  uint32_t expr;  /* map: number of its gexpr */
  uint32_t layer; /* a product that a method splits over ranks: 1 + its index in graph.splits; 0: none */
  uint32_t whole; /* a product that every rank computes whole: 1 + the text that says why; 0: none */
  int64_t attrs[8];
  double numbers[4];
} gnode;

/* An index at which take and put fail: lower/nonzero.c gives it where rows are not as the model needs them.
 */
#define GRAPH_NO_ROW (INT64_MAX - 77777)

/* A program of `map` as the graph keeps it: operands have fixed numbers, so that inputs, constants and steps
 * can be added without renumbering. gexpr_pack makes the bs_expr of the ABI. */
enum {
  GX_IN = 0,
  GX_CONST = 16,
  GX_STEP = 32,
  GX_MAX_IN = 12,
  GX_MAX_CONST = 16,
  GX_MAX_STEPS = 64,
  GX_MAX_OUT = 4
};
typedef struct gexpr {
  uint32_t compute; /* BS_F32, BS_F64, BS_I64 */
  uint8_t n_in, n_const, n_steps, n_out;
  uint8_t outs[GX_MAX_OUT];      /* operands: GX_IN + i, GX_CONST + i, GX_STEP + i */
  uint32_t reserved;             /* 0: there are no bytes between, programs are compared as memory */
  uint64_t consts[GX_MAX_CONST]; /* bits of an f64 (compute f32 and f64) or an i64 */
  struct {
    uint8_t op, a, b, c; /* enum bs_expr_op; operands that the step does not use are 0 */
  } steps[GX_MAX_STEPS];
} gexpr;

typedef struct guse {
  uint32_t node, arg, next; /* arg GNODE_IN: the weight */
} guse;

/* One of the model's nodes that a node came from. */
typedef struct gorigin {
  uint32_t text, next;
} gorigin;

/* A port or a state's end. */
typedef struct gport {
  uint32_t name; /* text */
  uint32_t value;
} gport;

/* A number that the lowering computed of the sizes, which says whether a plan can serve a range of them. */
enum gkept_kind {
  GKEPT_LINEAR, /* it must be a linear function of the sizes */
  GKEPT_SIDE,   /* a sign: it must not be 1 at one size and -1 at another */
  GKEPT_FIXED,  /* what follows from it is known where it does not vary */
  GKEPT_UNKNOWN /* what follows from it is not known */
};
typedef struct gkept {
  int64_t number;
  uint32_t kind;
} gkept;

/* A product as a layer of a method (graph/split). F has rows of the weight and a part of y, S has columns and
 * a part of x; x and y of the others are whole. */
enum gnode_role {
  GNODE_ALONE = 0, /* by the first method */
  GNODE_F = 1,
  GNODE_S = 2,
  GNODE_S_WHOLE = 3 /* an S whose pair does not stand: by the second method, so that its sum is the same */
};
typedef struct gnode_split {
  uint32_t role;
  uint32_t bias;     /* value, of the whole of N; GNONE */
  uint32_t why;      /* text: why it is alone; GNONE */
  uint32_t refused;  /* the role in a pair that `why` refuses; 0: it is in no pair */
  uint32_t n_states; /* F: states that became a part */
  bs_order rows;    /* F: of the weight, as the method has them; rank r has the r-th part. n 0: as they are */
  bs_order columns; /* S: likewise */
  bs_order held;    /* S: columns of the weight as ranks have them in x, rank after rank. n 0: as they are */
} gnode_split;

typedef struct graph {
  gnode_split *splits;
  uint32_t n_splits, cap_splits;
  gvalue *values;
  gnode *nodes;
  gexpr *exprs;
  guse *uses;
  gport *inputs, *outputs;
  gport *states; /* name of the state, and the value that it becomes (a view of it) */
  gorigin *origins;
  gkept *kept;
  uint32_t n_values, n_nodes, n_exprs, n_uses, n_inputs, n_outputs, n_states, n_origins, n_kept;
  uint32_t cap_values, cap_nodes, cap_exprs, cap_uses, cap_inputs, cap_outputs, cap_states, cap_origins,
      cap_kept;
  uint32_t first, last; /* nodes */
  uint32_t n_live;      /* nodes in the list */
  uint32_t free_use;
  uint32_t notes;       /* chain of gorigin: what the lowering has to say of constants; GNONE */
  struct gtexts *texts; /* interned texts, and the data of constants that were computed */
  uint64_t data_bytes;
  uint32_t tokenwise;                                          /* bs_session_options.tokenwise */
  int32_t (*ask)(void *user, const void *data, bs_error *err); /* NULL: the data of constants are there */
  void *ask_user;
  int (*file_of)(const void *data, uint64_t bytes, uint64_t *out_at); /* the model's */
} graph;

int32_t graph_new(graph **out_graph, bs_error *err);
void graph_free(graph *g);

/* ---- texts and memory ----------------------------------------------------------------------- */
uint32_t graph_text(graph *g, const char *text);          /* GNONE: no memory */
const char *graph_text_of(const graph *g, uint32_t text); /* "" for GNONE */
void *graph_data(graph *g, uint64_t bytes);               /* 64-byte aligned, lives as long as the graph */
uint32_t graph_origin(graph *g, const char *text, uint32_t next); /* GNONE: no memory */
uint32_t graph_origin_join(graph *g, uint32_t a, uint32_t b);     /* both chains, each name once */

/* ---- the mutators --------------------------------------------------------------------------- */
/* A root. data: of a CONST; it outlives the graph (the model's), or comes from graph_data. */
int32_t graph_add_root(graph *g, uint32_t kind, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       const void *data, const char *name, uint32_t *out_value, bs_error *err);
/* A quantised constant [rows,cols] of these contents, whose struct is copied. */
int32_t graph_add_quant(graph *g, const gquant *quant, const char *name, uint32_t *out_value, bs_error *err);
/* The rows of n quantised constants of one form (but for their rows), one below the other. */
int32_t graph_join_quants(graph *g, const uint32_t *values, uint32_t n, uint32_t *out_value, bs_error *err);
/* A view of `base`, a root or a view. Strides and offset count in elements of the root, also where `base` is
 * a view. BS_INTERNAL when it reaches beyond the root. */
int32_t graph_add_view(graph *g, uint32_t base, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       const int64_t *strides, int64_t offset, uint32_t *out_value, bs_error *err);
/* Adds a copy of `node` (prev, next do not count) before node `at`, GNONE: at the end. Its outputs have no
 * producer yet. */
int32_t graph_add_node(graph *g, const gnode *node, uint32_t at, uint32_t *out_node, bs_error *err);
/* Removes a node; its outputs have no producer then. */
void graph_remove_node(graph *g, uint32_t node);
/* Another value as an input of a node (arg GNODE_IN: its weight), or as an output. */
int32_t graph_set_input(graph *g, uint32_t node, uint32_t arg, uint32_t value, bs_error *err);
int32_t graph_set_output(graph *g, uint32_t node, uint32_t index, uint32_t value, bs_error *err);
/* All that reads `from` reads `to`, of the same dtype and shape: nodes, views of it (where it is a root, `to`
 * must then be dense), outputs. */
int32_t graph_replace(graph *g, uint32_t from, uint32_t to, bs_error *err);

/* ---- expressions ---------------------------------------------------------------------------- */
uint32_t graph_expr(
    graph *g, const gexpr *expr); /* the number of an equal one, made when it is new; GNONE: no memory */

/* ---- questions ------------------------------------------------------------------------------ */
const char *graph_op_name(uint32_t op); /* "map" */
int64_t graph_count(const gvalue *v);   /* elements */
static inline uint64_t graph_bytes(const gvalue *v) {
  return (uint64_t)graph_count(v) * BS_DTYPE_BYTES(v->dtype);
}
int graph_is_dense(const gvalue *v);                /* row-major without gaps, whatever its offset */
int graph_is_const(const graph *g, uint32_t value); /* its root is a CONST */
uint32_t graph_sole_user(
    const graph *g,
    uint32_t value); /* the only node that reads it, or a view of it, and no port does; else GNONE */
const char *graph_value_name(const graph *g, uint32_t value, char buffer[32]); /* its name, or "%12" */
const gquant *graph_quant(const graph *g, uint32_t value); /* of its root; NULL: it is not quantised */
/* 1: they can be joined. */
int graph_quants_join(const gquant *a, const gquant *b);
/* 1: an op that has a packed weight. */
static inline int graph_is_packed(uint32_t op) {
  return op == GOP_MATMUL || op == GOP_MATMUL_Q || op == GOP_TAKE_Q;
}
static inline int graph_is_product(uint32_t op) {
  return op == GOP_MATMUL || op == GOP_MATMUL_Q;
}
/* Row-major strides of dims. */
void graph_dense_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides);
/* Strides with which elements that lie as (rank, dims, strides) are seen as new_dims, in row-major order,
 * without a copy. 0: that is not possible. */
int graph_reshape_strides(uint32_t rank, const int64_t *dims, const int64_t *strides, uint32_t new_rank,
                          const int64_t *new_dims, int64_t *out_strides);
/* The data of a constant (root or view) can be read from here on: what was computed may have given its bytes
 * back, and is computed again. */
int32_t graph_ask(const graph *g, uint32_t value, bs_error *err);
int graph_owns(const graph *g, const void *data); /* it comes from graph_data of this graph */
/* Copies the elements of a constant (root or view) in row-major order; of a quantised one (a root) the f32
 * that they stand for. BS_INTERNAL: not a constant. */
int32_t graph_read_const(const graph *g, uint32_t value, void *out, bs_error *err);

/* validate.c: references, order (nothing is read before it is written), shapes by each op's rule, bounds of
 * views, no overlapping writes. BS_INTERNAL names `when` ("after fuse_map") and the node. */
int32_t graph_validate(const graph *g, const char *when, bs_error *err);

/* widen.c: every float becomes f64, constants with their data: the reference of a graph. Or bf16 and f16
 * become f32, but for tables, whose rows are cast. Steps of programs that round to a dtype
 * stay, and so do quantised constants. */
int32_t graph_widen(graph *g, uint32_t to, bs_error *err);
/* 1: floats of 16 bits, and no input of floats. */
int graph_has_ids(const graph *g);

/* dump.c: a line (or a JSON object) for each value and node, in an order that depends on the graph alone. */
int32_t graph_dump(const graph *g, int json, void (*put)(void *user, const char *text), void *user,
                   bs_error *err);
/* A string of JSON with its quotes. */
void graph_put_json_text(bs_text *t, const char *text);
#endif
