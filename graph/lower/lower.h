/* SPDX-License-Identifier: MIT
 * lower.h - how an ONNX operator becomes kernel ops: the contract of a lowering rule, and what the frame
 * gives it. To add an operator: write a rule, put a row into the table of its family (graph/lower/FAMILY.c).
 *
 *   static int32_t gelu(lower_ctx *c, const gmodel_node *node, bs_error *err) {
 *     lower_map m;
 *     lower_map_begin(&m, c, BS_F32);
 *     const uint8_t x = lower_map_in(&m, lower_in(c, node, 0));
 *     const uint8_t y = lower_map_step(&m, BS_EXPR_GELU, x, 0, 0);
 *     uint32_t out;
 *     const int32_t rc = lower_map_one(&m, node, y, lower_dtype(c, lower_in(c, node, 0)), &out, err);
 *     return rc != BS_OK ? rc : lower_out(c, node, 0, out, err);
 *   }
 *   const lower_rule lower_rules_elementwise[] = {{"Gelu", 20, 0, gelu}, ... {0}};
 *
 * A rule is called once a node with every input lowered: static shapes, constants with their data. It emits
 * kernel ops and views and says which value each output is. What it emits over constants alone is computed at
 * once, so that the next rule finds a constant: shapes that are computed are read by
 * lower_read_ints. A value, once emitted, is never changed.
 *
 * A rule returns: BS_OK; what a helper failed with, passed on; lower_unsupported(...) for what the library
 * cannot do: the node becomes a row of `bsrun model info`, the next nodes are lowered, and those that need
 * its outputs are left out; lower_bad(...) for a node that breaks the operator's specification. The frame has
 * checked that the opset is within the row's range and that the inputs up to the last one that the node has
 * are known; a rule checks how many there are by lower_has. */
#ifndef BS_GRAPH_LOWER_LOWER_H
#define BS_GRAPH_LOWER_LOWER_H
#include "graph/ir/graph.h"
#include "graph/model.h"

typedef struct lower_ctx lower_ctx;

/* A result that no value of the graph holds has a number with this bit: a sequence, or a tensor of more than
 * six dims (compound.c). A rule gets one only as an input that compound.c lists. */
#define LOWER_COMPOUND 0x40000000u
enum { LOWER_DEEP_DIMS = 12 };
static inline int lower_is_compound(uint32_t value) {
  return value != GNONE && (value & LOWER_COMPOUND) != 0;
}

/* A row of a table, which ends with {0}. max_opset 0: no end. domain NULL: ai.onnx. Of several rows of an op
 * the opset picks one. */
typedef struct lower_rule {
  const char *op;
  uint32_t min_opset, max_opset;
  int32_t (*run)(lower_ctx *c, const gmodel_node *node, bs_error *err);
  const char *domain;
} lower_rule;

/* ---- inputs, outputs, attributes ------------------------------------------------------------ */
int lower_has(const gmodel_node *node, uint32_t i);   /* input i is there */
int lower_wants(const gmodel_node *node, uint32_t i); /* output i is wanted by the node */
uint32_t lower_in(const lower_ctx *c, const gmodel_node *node, uint32_t i); /* its value; GNONE: absent */
const gvalue *lower_value(const lower_ctx *c,
                          uint32_t value); /* valid until the next emit; copy what you need */
uint32_t lower_dtype(const lower_ctx *c, uint32_t value);
uint32_t lower_rank(const lower_ctx *c, uint32_t value);
/* Output i of the node is `value`. Ignored when the output is not wanted. */
int32_t lower_out(lower_ctx *c, const gmodel_node *node, uint32_t i, uint32_t value, bs_error *err);
int64_t lower_int(const gmodel_node *node, const char *attr, int64_t otherwise);
double lower_float(const gmodel_node *node, const char *attr, double otherwise);
const char *lower_text(const gmodel_node *node, const char *attr, const char *otherwise);
const bs_attr *lower_ints(const gmodel_node *node, const char *attr); /* ->ints, ->count; NULL: absent */
/* An axis from -rank..rank-1 as 0..rank-1; BS_INPUT when it is beyond. */
int32_t lower_axis(lower_ctx *c, const gmodel_node *node, int64_t axis, uint32_t rank, uint32_t *out_axis,
                   bs_error *err);

/* ---- constants ------------------------------------------------------------------------------ */
int lower_is_const(const lower_ctx *c, uint32_t value);
/* The elements of a constant of integers or bool. More than max, or no constant: an issue that names `what`
 * ("its axes"). */
int32_t lower_read_ints(lower_ctx *c, const gmodel_node *node, uint32_t value, const char *what, int64_t *out,
                        uint32_t max, uint32_t *out_count, bs_error *err);
int32_t lower_read_floats(lower_ctx *c, const gmodel_node *node, uint32_t value, const char *what,
                          double *out, uint32_t max, uint32_t *out_count, bs_error *err);
/* New constants. lower_const copies dense `data`; lower_const_model refers to a model's memory (a tensor of
 * an attribute). */
int32_t lower_const(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                    uint32_t *out_value, bs_error *err);
int32_t lower_const_model(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                          uint32_t *out_value, bs_error *err);
int32_t lower_const_scalar(lower_ctx *c, uint32_t dtype, double value, uint32_t *out_value,
                           bs_error *err); /* rank 0 */
int32_t lower_const_ints(lower_ctx *c, uint32_t dtype, uint32_t count, const int64_t *values,
                         uint32_t *out_value, bs_error *err); /* [count], dtype i32 or i64 */
/* The data of a constant are there. */
int32_t lower_ask(const lower_ctx *c, uint32_t value, bs_error *err);
/* on 1: what is computed over constants lies in memory that is given back when it is packed. */
void lower_keep_computed(lower_ctx *c, int on);
/* A number of the sizes is kept in the graph: what follows from it may hide it (enum gkept_kind). */
int32_t lower_keep(lower_ctx *c, int64_t number, uint32_t kind, bs_error *err);

/* ---- views (no kernel op; they do not change the value that they look at) -------------------- */
/* Strides and offset count in elements of the ROOT: see lower_value(c, v)->strides and ->offset. */
int32_t lower_view(lower_ctx *c, uint32_t value, uint32_t rank, const int64_t *dims, const int64_t *strides,
                   int64_t offset, uint32_t *out_value, bs_error *err);
/* A view with the same number of elements; copies first where the strides do not allow a view. */
int32_t lower_reshape(lower_ctx *c, uint32_t value, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                      bs_error *err);
int32_t lower_transpose(lower_ctx *c, uint32_t value, const uint32_t *perm, uint32_t *out_value,
                        bs_error *err);
/* count elements of `axis` from begin, every step-th; step > 0 (a negative step is lower_take). */
int32_t lower_slice(lower_ctx *c, uint32_t value, uint32_t axis, int64_t begin, int64_t count, int64_t step,
                    uint32_t *out_value, bs_error *err);
/* Broadcasts to dims by ONNX's rule (leading dims added, 1 becomes any size); BS_INPUT where it does not fit.
 */
int32_t lower_expand(lower_ctx *c, const gmodel_node *node, uint32_t value, uint32_t rank,
                     const int64_t *dims, uint32_t *out_value, bs_error *err);
/* The common shape of values by ONNX's broadcasting; GNONE entries do not count. */
int32_t lower_broadcast(lower_ctx *c, const gmodel_node *node, const uint32_t *values, uint32_t n,
                        uint32_t *out_rank, int64_t *out_dims, bs_error *err);

/* ---- map: build a program, then emit it ------------------------------------------------------ */
/* Misuse and full tables are kept in the builder and reported by the emit. */
typedef struct lower_map {
  lower_ctx *c;
  gexpr expr;
  uint32_t in[GX_MAX_IN];
  const char *wrong; /* NULL: fine so far */
} lower_map;
/* compute: BS_F32, BS_F64 or BS_I64: the dtype of every value of the program. */
void lower_map_begin(lower_map *m, lower_ctx *c, uint32_t compute);
/* Adds an input; a value that is one already keeps its number. The emit broadcasts it to the outputs' shape.
 */
uint8_t lower_map_in(lower_map *m, uint32_t value);
uint8_t lower_map_const(lower_map *m, double value); /* compute I64: the integer nearest to it */
uint8_t lower_map_const_int(lower_map *m, int64_t value);
uint8_t lower_map_step(lower_map *m, uint8_t op, uint8_t a, uint8_t b,
                       uint8_t c); /* enum bs_expr_op; unused: 0 */
/* Emits outputs outs[i] as dtypes[i], all of the inputs' common shape (rank and dims NULL), or of the given
 * dims, which the inputs broadcast to. A value of 0 steps is a copy. */
int32_t lower_map_emit(lower_map *m, const gmodel_node *node, uint32_t rank, const int64_t *dims,
                       uint32_t n_out, const uint8_t *outs, const uint32_t *dtypes, uint32_t *out_values,
                       bs_error *err);
/* Writes into given values (parts of a TEMP of lower_temp) instead of new ones. */
int32_t lower_map_emit_into(lower_map *m, const gmodel_node *node, uint32_t n_out, const uint8_t *outs,
                            const uint32_t *into, bs_error *err);
/* One output of the inputs' common shape. */
int32_t lower_map_one(lower_map *m, const gmodel_node *node, uint8_t out, uint32_t dtype, uint32_t *out_value,
                      bs_error *err);
/* f32 for f16, bf16, fp8 and f32; f64; I64 for integers and bool. */
uint32_t lower_compute(uint32_t dtype);
int32_t lower_copy(lower_ctx *c, uint32_t value, uint32_t *out_value, bs_error *err); /* dense */
int32_t lower_copy_into(lower_ctx *c, uint32_t value, uint32_t into, bs_error *err);
int32_t lower_cast(lower_ctx *c, uint32_t value, uint32_t dtype, uint32_t *out_value, bs_error *err);
/* A TEMP without a producer, for values that are written in parts: make views of it and write each once. */
int32_t lower_temp(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                   bs_error *err);

/* ---- the other kernel ops (op.h has what they compute; docs/ops.md the details) -------------- */
/* Any op: args as op.h orders them; outs are values that are made before (lower_temp, or views of one). An op
 * over constants only is computed immediately. The helpers below call this with the attributes filled in. */
int32_t lower_emit(lower_ctx *c, const gnode *node, bs_error *err);

/* kind: enum bs_normalize. Over the last dim. add, gamma, beta: GNONE: absent. out_sum NULL: not wanted. */
int32_t lower_normalize(lower_ctx *c, uint32_t kind, double eps, uint32_t x, uint32_t add, uint32_t gamma,
                        uint32_t beta, uint32_t dtype, uint32_t *out_y, uint32_t *out_sum, bs_error *err);

/* q [B,H,S,D], k [B,G,T,D], v [B,G,T,E], H a multiple of G; mask of rank 2 to 4, broadcast, bool or float;
 * kv_len [B] i32. scale is not 0. window_left, window_right: -1 none. softcap 0: none. */
typedef struct lower_attention_args {
  uint32_t q, k, v, mask, kv_len; /* GNONE: absent mask, kv_len */
  double scale, softcap;
  uint32_t causal; /* enum bs_causal */
  int64_t window_left, window_right;
  uint32_t dtype; /* of Y; 0: q's */
} lower_attention_args;
int32_t lower_attention(lower_ctx *c, const lower_attention_args *args, uint32_t *out_y, bs_error *err);
/* Y = act(alpha A B + bias) of activations: a [z..,M,K], b [z..,K,N] (a transposed one is a view), z
 * broadcast. */
int32_t lower_contract(lower_ctx *c, uint32_t a, uint32_t b, uint32_t bias, double alpha, uint32_t activation,
                       uint32_t dtype, uint32_t *out_y, bs_error *err);
/* Y = act(X W^T + bias): x [..,K], weight a constant [N,K] (a view of one is as good), bias [N] or GNONE. */
int32_t lower_matmul(lower_ctx *c, uint32_t x, uint32_t weight, uint32_t bias, uint32_t activation,
                     uint32_t dtype, uint32_t *out_y, bs_error *err);
/* kind: enum bs_fold but CUMSUM. Over the axes of `axes` (bit i: dim i), which become 1; the result times
 * `factor`. ArgMax, ArgMin: one axis, i64 out; last: the last of equal ones. */
int32_t lower_reduce(lower_ctx *c, uint32_t kind, uint32_t x, uint32_t axes, double factor, int last,
                     uint32_t dtype, uint32_t *out_y, bs_error *err);
int32_t lower_cumsum(lower_ctx *c, uint32_t x, uint32_t axis, int exclusive, int reverse, uint32_t *out_y,
                     bs_error *err);
/* kind: enum bs_index. ROWS: Gather on `axis`; ELEMENTS: GatherElements; TUPLES: GatherND with batch_dims. */
int32_t lower_take(lower_ctx *c, uint32_t kind, uint32_t data, uint32_t index, uint32_t axis,
                   uint32_t batch_dims, uint32_t *out_y, bs_error *err);
/* kind: enum bs_index, reduction: enum bs_put. base with `updates` at the places of `index`: ScatterElements,
 * ScatterND, TensorScatter (op.h has the shapes). The output is the
 * state itself where base is a STATE. */
int32_t lower_put(lower_ctx *c, uint32_t kind, uint32_t reduction, uint32_t base, uint32_t index,
                  uint32_t updates, uint32_t axis, uint32_t *out_y, bs_error *err);
int32_t lower_topk(lower_ctx *c, uint32_t x, uint32_t axis, int64_t k, int largest, uint32_t *out_values,
                   uint32_t *out_indices, bs_error *err);

/* ---- quantised constants (help_quant.c, quant_read.c) ---------------------------------------- */
/* MatMul, Gemm, Gather, Transpose, Cast, Identity and what is made of them get a quantised constant as it is;
 * lower_in gives other rules its floats. A rule that cannot use one asks for the floats itself. */
int lower_is_quant(const lower_ctx *c, uint32_t value);
uint32_t lower_float_dtype(const lower_ctx *c, uint32_t value); /* lower_dtype, or that of its floats */
/* The value, or the floats of a quantised one: `explain` says so. */
int32_t lower_wide(lower_ctx *c, const gmodel_node *node, uint32_t value, uint32_t *out_value, bs_error *err);
/* The quantised constant [N,K] that the value [N,K] is, or that bs_session_options.weights makes of it.
 * table 1: for rows of it, not for a product. *out_quant GNONE: neither. */
int32_t lower_quant_weight(lower_ctx *c, const gmodel_node *node, uint32_t value, int table,
                           uint32_t *out_quant, bs_error *err);
/* Its form; NULL where whole numbers of X are not asked for (activations float). */
const bs_quant *lower_quant_form(const lower_ctx *c, uint32_t quant);
/* The codes of a DequantizeLinear: x, scale, zero (GNONE: absent) are constants, of two dims each or scales
 * of one. *out_value GNONE: no kernel op has this form. */
typedef struct lower_codes {
  uint32_t x, scale, zero;
  int64_t axis, block; /* axis -1: one scale */
  uint32_t dtype;      /* of the floats */
} lower_codes;
int32_t lower_floats_of(lower_ctx *c, const lower_codes *codes, uint32_t *out_value, bs_error *err);
/* A constant of 4 bits as one of bytes; another value stays. */
int32_t lower_unpacked(lower_ctx *c, uint32_t *io_value, bs_error *err);
int32_t lower_quant_codes(lower_ctx *c, const lower_codes *codes, uint32_t *out_value, bs_error *err);
/* Blocks of codes along the columns, a row after the other, as com.microsoft packs them: of constants without
 * gaps. zero (GNONE: 2^(bits-1)) has codes of `bits` bits, of which a row fills whole bytes, or floats. */
typedef struct lower_blocks {
  uint32_t codes, scale, zero, bits;
  int64_t rows, cols, block;
  int64_t stride; /* codes of a row in memory */
  int x_bytes;
} lower_blocks;
int32_t lower_quant_blocks(lower_ctx *c, const lower_blocks *blocks, uint32_t *out_value, bs_error *err);
/* The scale of each row, and the sum of its codes less zero, of one that has a scale a row: f32 and i32 [N].
 */
int32_t lower_quant_sums(lower_ctx *c, uint32_t quant, uint32_t *out_scales, uint32_t *out_sums,
                         bs_error *err);
/* `value` is (codes.x - zero) scale: not a constant, with one scale. lower_is_dequantised: 1, and of what. */
int32_t lower_note_dequantised(lower_ctx *c, uint32_t value, const lower_codes *codes, bs_error *err);
int lower_is_dequantised(const lower_ctx *c, uint32_t value, lower_codes *out_codes);
/* The same constant with floats of another dtype. */
int32_t lower_quant_cast(lower_ctx *c, uint32_t value, uint32_t dtype, uint32_t *out_value, bs_error *err);
/* `value` is the cast of the constant `from`. */
int32_t lower_note_cast(lower_ctx *c, uint32_t value, uint32_t from, bs_error *err);
/* Y = X W^T + bias: as lower_matmul; x of floats, or of i8 or u8 with dtype BS_I32. */
int32_t lower_matmul_q(lower_ctx *c, uint32_t x, uint32_t quant, uint32_t bias, uint32_t dtype,
                       uint32_t *out_y, bs_error *err);
/* Rows of it at the places of an index of any rank. */
int32_t lower_take_q(lower_ctx *c, uint32_t quant, uint32_t index, uint32_t dtype, uint32_t *out_y,
                     bs_error *err);
/* The list of bs_session_options.weights is well-formed; BS_CONFIG else. NULL is. */
int32_t lower_weights_check(const char *list, bs_error *err);

/* ---- composition ---------------------------------------------------------------------------- */
/* Lowers another operator by its rule: inputs are values, attributes as a model's node has them,
 * outs[0..n_out) are filled. `node` is the node whose rule calls this. */
int32_t lower_call(lower_ctx *c, const gmodel_node *node, const char *op, const uint32_t *in, uint32_t n_in,
                   const bs_attr *attrs, uint32_t n_attr, uint32_t *outs, uint32_t n_out, bs_error *err);
/* Lowers the nodes of a branch or body: its inputs are the given values, outs its outputs. */
int32_t lower_block(lower_ctx *c, const gmodel_node *node, uint32_t block, const uint32_t *in, uint32_t n_in,
                    uint32_t *outs, uint32_t n_out, bs_error *err);
/* Lowers a branch that is taken when `condition` (one bool) has the value `when`. In a run that does not take
 * it, an index out of range is not an error. */
int32_t lower_branch(lower_ctx *c, const gmodel_node *node, uint32_t block, uint32_t condition, int when,
                     const uint32_t *in, uint32_t n_in, uint32_t *outs, uint32_t n_out, bs_error *err);

/* ---- what went wrong ------------------------------------------------------------------------ */
/* dtype 0: the reason is another one. Returns BS_UNSUPPORTED, with err filled. */
int32_t lower_unsupported(lower_ctx *c, const gmodel_node *node, uint32_t dtype, bs_error *err,
                          const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The node breaks its operator's specification: BS_INPUT, which ends the lowering. */
int32_t lower_bad(lower_ctx *c, const gmodel_node *node, bs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- the frame ------------------------------------------------------------------------------ */
/* Computes a node over constants: out_data[i] is dense memory of output i. BS_UNSUPPORTED: it stays a node.
 */
typedef struct lower_folder {
  int32_t (*run)(void *user, const graph *g, const gnode *node, void *const *out_data, bs_error *err);
  void *user;
  /* The same in memory of its own, for what is large and packed: it is given back then, and `ask` has it
   * computed again. NULL: none. */
  int32_t (*keep)(void *user, const graph *g, const gnode *node, void **out_data, bs_error *err);
  int32_t (*ask)(void *user, const void *data, bs_error *err);
} lower_folder;
/* How a model is lowered. */
typedef struct lower_options {
  const bs_dim *const *dims; /* sizes of symbols */
  uint32_t n_dims;
  int64_t missing; /* the size of symbols that dims lacks; 0: a missing one is BS_CONFIG */
  lower_folder folder;
  const char *weights; /* as bs_session_options has it */
  uint32_t x_bytes;    /* X of quantised products: 0 as the model asks, 1 floats, 2 bytes */
  void (*issue)(void *user, const bs_graph_issue *issue); /* NULL: the first issue is the error */
  void *issue_user;
  /* A node that is wrong, but depends on a size that is `missing`: it and those that need it are left out.
   * NULL: it is the error. */
  void (*not_judged)(void *user, const gmodel_node *node, const bs_error *why);
} lower_options;
/* The model as a graph. With issues, or nodes that are not judged: BS_UNSUPPORTED, and *out_graph NULL. */
int32_t lower_model(const gmodel *model, const lower_options *options, graph **out_graph, bs_error *err);
/* The row for an operator; NULL: none has the name (out_known 0) or none has the opset (1). */
const lower_rule *lower_find(const char *op, const char *domain, uint32_t opset, int *out_known);
/* The operators that some row serves, sorted; NULL beyond the last. */
const char *lower_op_name(uint32_t index);

/* Tables of the families, each ended by {0}. */
extern const lower_rule lower_rules_angle[], lower_rules_recurrent[], lower_rules_spectral[],
    lower_rules_attention[], lower_rules_sample[], lower_rules_sequence[], lower_rules_unpool[];
extern const lower_rule lower_rules_elementwise[], lower_rules_compare[], lower_rules_view[],
    lower_rules_join[], lower_rules_reduce[], lower_rules_norm[], lower_rules_product[], lower_rules_conv[],
    lower_rules_pool[], lower_rules_resize[], lower_rules_conv_transpose[], lower_rules_contrib[],
    lower_rules_index[], lower_rules_quant[], lower_rules_qlinear[], lower_rules_control[];
#endif
