/* SPDX-License-Identifier: MIT
 * op.h - one implementation of an op (actor.c), tensors between guard bytes (tensor.c), and a query of a core
 * op with generated data, its run and its judgement against the fp64 oracle of the gates (op_case.c,
 * op_judge.c). */
#ifndef BS_KIT_OP_H
#define BS_KIT_OP_H
#include "blockshock/plugin.h"
#include "kit/kit.h"

enum { KIT_GUARD = 64, KIT_ARGS = 16 };

typedef struct kit_actor {
  kit_plugin own, *p;              /* p: own, or one that is open already */
  const bs_op_impl *impl, *packer; /* packer: the matmul that packs the weights of impl; NULL: not needed */
  void *state, *packer_state;
  const bs_op_impl *packer24; /* of an optimiser's step: the matmul24 of the same plugin; NULL: there is
                               * none */
  void *packer24_state;
  const bs_backend *backend;
  bs_context *context; /* holds a backend that is not the plugin's own */
  void *device;
  bs_exec exec;
  int64_t live;           /* blocks of exec memory */
  int64_t calls, fail_at; /* of exec's alloc and reserve */
  void *scratch;
  uint64_t scratch_bytes;
  int64_t team_calls, team_fail_at; /* of exec's parallel_for */
} kit_actor;

/* Opens the plugin. Returns 0 after kit_unsupported: there is no device. */
int kit_actor_open(kit_actor *a, uint32_t thing, uint32_t width);
/* Uses a plugin that is open, and leaves it open. NULL, or the reason why there is no device. */
const char *kit_actor_attach(kit_actor *a, kit_plugin *p, uint32_t thing, uint32_t width);
/* Closes what was opened; nothing may be left. */
void kit_actor_close(kit_actor *a);
int kit_host_memory(const kit_actor *a);

typedef struct kit_tensor {
  bs_tensor t;
  bs_tensor_desc d;
  unsigned char *block;       /* on the host: guard, elements, guard; or one guard, and a fence (fence.c) */
  unsigned char *before;      /* its content before the run */
  uint64_t block_bytes, lead; /* lead: of the first element from the block's begin */
  int at_end, shifted;        /* the block ends at the fence; KIT_SHIFTED */
  unsigned char *device;      /* NULL: block itself is device memory */
} kit_tensor;

/* fence.c: memory whose first byte (at_end: whose last one) is at a protected page; NULL: not available.
 * free: 0 if the block is not the kit's. turn: 0 or 1, in a fixed order. While the plan of `data` runs (NULL:
 * none does), an access to such a page fails the check with the argument's number. watch: once a check. */
struct kit_data;
void *kit_fence_alloc(uint64_t bytes, int at_end);
void *kit_fence_move(void *data, uint64_t bytes, int at_end); /* to the other end; copies nothing */
int kit_fence_free(void *data);
int kit_fence_turn(void);
void kit_fence_run(const struct kit_data *data);

/* Makes a matrix. spread 0: dense, 1: rows padded, 2: also a gap between columns; and KIT_SHIFTED: the data
 * are only aligned to an element. rank 1: a vector of cols. */
enum { KIT_SHIFTED = 4 };
void kit_tensor_make(kit_tensor *m, uint32_t dtype, uint32_t rank, int64_t rows, int64_t cols,
                     uint32_t spread);
/* Makes a tensor of any rank. spread: 0 dense, KIT_PADDED rows padded, KIT_GAPS a gap between elements,
 * KIT_TURNED all dims except the last in reverse order, KIT_COLUMNS all of them; and KIT_SHIFTED. Dimension i
 * of bit i of repeats has stride 0. */
enum { KIT_PADDED = 1, KIT_GAPS = 2, KIT_TURNED = 3, KIT_COLUMNS = 8 };
void kit_tensor_make_nd(kit_tensor *m, uint32_t dtype, uint32_t rank, const int64_t *dims, uint32_t spread,
                        uint32_t repeats);
void kit_tensor_free(kit_actor *a, kit_tensor *m);
/* Moves it to the other end of its memory, if that is the host's. */
void kit_tensor_turn(kit_tensor *m);
/* Elements by their number, row-major: how many, offset in elements, value, bytes. */
int64_t kit_elements(const kit_tensor *m);
int64_t kit_offset(const kit_tensor *m, int64_t i);
double kit_get_at(const kit_tensor *m, int64_t i);
void kit_set_at(kit_tensor *m, int64_t i, double value);
unsigned char *kit_place_at(const kit_tensor *m, int64_t i);
double kit_get(const kit_tensor *m, int64_t row, int64_t col);
void kit_set(kit_tensor *m, int64_t row, int64_t col, double value);
/* Values in [-1, 1) rounded to the dtype, small integers. */
void kit_fill(kit_tensor *m, uint64_t *seed);
void kit_poison(kit_tensor *m, int byte);
/* Copies it to the device (allocated at the first call) and back. */
void kit_push(kit_actor *a, kit_tensor *m);
void kit_pull(kit_actor *a, kit_tensor *m);
/* No byte changed that belongs to no element; of an input no byte at all. */
void kit_check_around(const kit_tensor *m, const char *what, int input);

enum { KIT_ALL = 0, KIT_RUN = 1, KIT_PATTERN = 2, KIT_LIST = 3 };

/* op_step.c: optimiser steps and slopes. */
struct kit_data;
struct kit_shape;
int kit_is_step(const char *op);
int kit_changes_weight(const char *op);
void kit_step_fit(const char *op, struct kit_shape *shape);
void kit_step_args(struct kit_data *d);
void kit_step_reset(struct kit_data *d);
void kit_step_judge(const struct kit_data *d, uint32_t tolerance, int special);
void kit_slope_judge(const struct kit_data *d, int special);

/* op_quant.c: quantize_groups, dequantize_sum, dequantize_product, and by op_scaled.c scaled_matmul. */
int kit_is_quant(const char *op);
/* Is it one of the two with a bias, a base, which may share memory with out, and an activation? */
int kit_has_base(const char *op);
uint32_t kit_base(const struct kit_data *d); /* that argument */
void kit_quant_fit(const char *op, struct kit_shape *shape);
void kit_quant_args(struct kit_data *d);
int64_t kit_quant_group(const struct kit_data *d); /* columns of a group */
int64_t kit_quant_terms(const struct kit_data *d);
void kit_quant_fill(struct kit_data *d, uint64_t *seed);
/* The first float argument, and the meaning of its columns. */
kit_tensor *kit_quant_floats(struct kit_data *d);
/* Descriptors of a query of B x N that is too large to run. */
void kit_quant_huge(struct kit_data *d, int64_t B, int64_t N);
void kit_quant_judge(const struct kit_data *d, uint32_t tolerance, int special);
int kit_is_scaled(const char *op);
int kit_scaled_weight(const struct kit_data *d, uint32_t i); /* argument i has N rows */
void kit_scaled_fit(struct kit_shape *shape);
void kit_scaled_args(struct kit_data *d);
void kit_scaled_huge(struct kit_data *d, int64_t B, int64_t N);
void kit_scaled_judge(const struct kit_data *d, uint32_t tolerance, int special);

/* op_q.c, op_q_judge.c: matmul_q and take_q. kit_shape.values are those of graph.h. */
struct kit_q;
int kit_is_q(const char *op);
int kit_is_take_q(const char *op);
void kit_q_make(struct kit_data *d, uint64_t *seed);
void kit_q_free(struct kit_data *d);
const char *kit_q_text(const struct kit_data *d);
/* Descriptors, and a form, of a query of B x N x K that is too large to run. */
void kit_q_huge(struct kit_data *d, const int64_t size[3]);
/* An element of the weight, as take_q gives it and packed_read. */
float kit_q_value(const struct kit_data *d, int64_t n, int64_t k);
void kit_q_judge(const struct kit_data *d, uint32_t tolerance, int special);

/* op_loss.c: loss_gradient. x: dtype of Y, w: of the target, y: of dY. */
int kit_is_loss(const char *op);
int64_t kit_loss_kind(const struct kit_data *d);
int64_t kit_loss_count(const struct kit_data *d);
void kit_loss_fit(const char *op, struct kit_shape *shape);
void kit_loss_args(struct kit_data *d);
void kit_loss_judge(const struct kit_data *d, int special);

/* A query. x: dtype of X, dX, or the input; y: of Y, dY, or the output; w: of the weight, of dW. */
typedef struct kit_shape {
  uint32_t x, w, y, bias, residual;
  int64_t B, N, K;
  uint32_t part, x_full, activation, accumulate, spread, flags;
  uint32_t of24;  /* an optimiser's step over a weight of matmul24 */
  uint32_t index; /* of the grid */
  uint32_t edge;  /* 1: a size at an edge, for values only: plugins answer it like the others */
  uint64_t seed;
  /* Fields for ops of graphs (graph.h). */
  uint32_t values;   /* enum kit_values: the values of the inputs */
  uint32_t shrinks;  /* strides are those of a plan whose dims may shrink; 2: they have shrunk */
  uint32_t in_place; /* the output may be in an input: same dtype, dims and strides */
  uint32_t plain;    /* attention: no optional argument, no attribute, one head of K and V for each of Q */
} kit_shape;

typedef struct kit_data {
  const char *op;
  kit_shape shape;
  kit_tensor a[KIT_ARGS]; /* the op's args; block NULL: absent */
  uint32_t nargs;
  int32_t out;                 /* the arg that is written; -1: none (matmul_update) */
  int32_t second;              /* a second arg that is written; -1: none */
  uint32_t outs;               /* of an op of graphs: bit i: arg i is written */
  struct kit_program *program; /* map's */
  kit_tensor w;                /* the dense weight */
  struct kit_q *q;             /* the quantised one; NULL: another op */
  bs_partition partition;
  const bs_partition *part; /* NULL: all */
  uint32_t *columns;
  int64_t kept;
  unsigned char *groups; /* of 2:4 weights: which two of each four are kept; NULL: all */
  bs_kept positions;
  int64_t length; /* of a packed row: kept columns, or kept values */
  double *after;  /* matmul_update: the packed weight after it, [N,length] */
  const bs_tensor_desc *descs[KIT_ARGS], *pack_descs[KIT_ARGS];
  bs_tensor_desc pack_x, pack_y;
  bs_op_query query, pack_query;
  char note[80]; /* a remark: a service that failed */
} kit_data;

/* tree_sum: blocks of the input, and the one at a place. */
int64_t kit_blocks(const kit_data *d);
int64_t kit_block(const kit_data *d, int64_t place);
/* Is op `what`, or its form for 2:4 weights? "matmul24_dx" is "matmul_dx". */
int kit_op_is(const char *op, const char *what);
/* Is value j of packed row n that of column *out_k of the weight's part? 0 beyond the last column. */
int kit_place(const kit_data *d, int64_t n, int64_t j, int64_t *out_k);
/* Compares the output of an op over 2:4 weights with sums over kept weights (op_judge24.c). */
void kit_judge24(const kit_data *d, uint32_t tolerance, int special);
void kit_check_value(const kit_data *d, uint32_t dtype, int special, int64_t row, int64_t col, double got,
                     double want, double slack);
/* A sum as an output of this dtype has it: i32 keeps the low 32 bits. */
double kit_wrapped(uint32_t dtype, double sum);
/* docs/ops.md: each step rounded to its dtype. An answer of class EXACT must fulfil that: functions for a sum
 * with one more product, for the epilogue of element [b,n], and for the remaining bound. */
int kit_in_steps(const kit_data *d, uint32_t tolerance, int special);
double kit_step(int wide, double sum, double a, double b);
double kit_finish_steps(const kit_data *d, int64_t b, int64_t n, double sum, double *out_slack);
/* A weight after an update by alpha times this sum. */
double kit_updated(const kit_data *d, double weight, double sum);
/* An activation that no processor has in one instruction. */
int kit_curved(uint32_t activation);
/* 1: the kit knows the op. */
int kit_op_known(const char *op);
int64_t kit_column(const kit_data *d, int64_t i);
void kit_data_make(kit_data *d, const char *op, const kit_shape *shape);
void kit_data_free(kit_actor *a, kit_data *d);
const char *kit_data_text(const kit_data *d); /* static buffer */
/* The implementation that packs the weight of this query; NULL: none in this plugin. */
const bs_op_impl *kit_packer(const kit_actor *a, const kit_data *d, void **out_state);
/* Asks impl. If another one packs its weights and answers NO to them, the level is UNKNOWN. */
void kit_data_ask(const kit_actor *a, const kit_data *d, bs_op_answer *out);
/* Packs, prepares, runs, and frees all. *stage: the last stage reached. keep: receives the packed weight (may
 * be NULL). */
int32_t kit_data_run(kit_actor *a, kit_data *d, const char **stage, bs_error *err);
/* Checks that the plan's echo shows all knobs, and the values that were given (knobs.c). */
void kit_echo_check(const kit_actor *a, const kit_data *d, const void *plan);
/* Rubbish into all that the op writes. */
void kit_poison_outputs(kit_data *d, int byte);
/* Packs the weight of a query; NULL: the op has none. */
void *kit_data_pack(kit_actor *a, kit_data *d);
/* Sets the leading dimension of the activations in a run; descriptors of the prepared query stay. */
void kit_data_rows(kit_data *d, int64_t rows);
/* The bits that a run wrote, one element after another; the caller frees them. */
unsigned char *kit_data_bits(const kit_data *d, size_t *out_bytes);
/* Runs a plan over the present tensors. */
int32_t kit_data_run_plan(kit_actor *a, kit_data *d, void *plan, bs_error *err);
/* Are sums requested in f64? */
int kit_wide(const kit_data *d);
/* Does the tolerance of an answer fulfil what the query requires of its sums? */
int kit_tolerance_fits(const kit_data *d, uint32_t tolerance);
/* Are both values of the same class: NaN, an infinity or a number? */
int kit_same_class(uint32_t dtype, double got, double exact);
/* Judges the inputs and the bytes between and around the outputs: both must be unchanged by the run. */
void kit_data_judge_beside(const kit_data *d);
/* Judges the same, and the output against the oracle. Of special values only the class is compared. */
void kit_data_judge(const kit_data *d, uint32_t tolerance, int special);
/* Reads the packed weight back: rows of [N,length] as doubles; BS_UNSUPPORTED without the slot. */
int32_t kit_packed_values(kit_actor *a, void *packed, const kit_data *d, double *out, bs_error *err);
double kit_packed_value(const kit_data *d, int64_t n, int64_t i);
uint64_t kit_packed_least(const kit_data *d);
bs_source kit_weight_source(kit_data *d);
bs_source kit_tensor_source(kit_tensor *m); /* a matrix, which must live on */
/* The largest round-off error of one element whose terms have this sum of sizes. */
double kit_slack(const kit_data *d, uint32_t tolerance, int64_t terms, double magnitude);
/* Is `got` in the range of `exact` with an error of at most slack, then rounded to dtype? */
int kit_within(uint32_t dtype, double got, double exact, double slack);
/* Query number i of the grid of an op; integers: of integer dtypes. 0 at the end. */
int kit_grid(const char *op, uint32_t i, int integers, kit_shape *out);
uint32_t kit_grid_size(void);
#endif
