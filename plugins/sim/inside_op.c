/* SPDX-License-Identifier: MIT
 * inside_op.c - which op has a program for the inside of a device, and the question of one run of it. An op
 * is a row of a table. What its program does not have stays with the roofline: a mask of attention, inputs
 * that broadcast, rows of a map that lie apart, operands of a map of two widths. */
#include "sim.h"
#include "sim/form.h"

enum { NONE = 0xff, WEIGHT = 0xfe, COLUMNS = 0xfd }; /* in the place of an arg */

typedef struct place {
  uint8_t arg, dim; /* arg COLUMNS: what the rank owns of X's columns */
} place;

typedef struct sim_inside_row {
  const char *op;
  uint32_t kind; /* enum sim_ask_kind */
  /* With the ask as it is prepared. 0: these args do not fit. */
  int (*dims)(const sim_inside_op *op, bs_tensor *const *args, sim_ask *inout);
  int (*prepare)(sim_inside_op *out, const bs_op_query *query); /* 0: they never fit; NULL: they may */
  uint8_t in, weight, out; /* whose dtypes, not of a map; all three are there in a run */
  uint8_t option[2];       /* args that may be absent; each of the two is one op more of the vector unit */
  /* Of a product: further ops on an element, in addition to the options, the activation and the conversion;
   * X, whose columns the rank owns; sizes. */
  uint8_t further, owned;
  place m, n, k;
  struct {
    uint8_t arg, width; /* a row of 'm', 'n' or 'k' elements is read */
  } reads[2];
  uint8_t ins[4], outs[3]; /* of a map, at most; WEIGHT: the packed one is read, and written */
} row;

static uint32_t dtype_of(const bs_op_query *q, uint32_t arg) {
  return arg == WEIGHT ? q->weight_dtype : arg < q->nargs && q->args[arg] != NULL ? q->args[arg]->dtype : 0;
}

static uint32_t options_of(const row *r, const bs_op_query *q) {
  return (uint32_t)(dtype_of(q, r->option[0]) != 0) + (dtype_of(q, r->option[1]) != 0);
}

/* Without gaps, the last dimension innermost. */
static int is_dense(const bs_tensor *t) {
  int64_t stride = 1;
  for (uint32_t d = t->rank; d-- > 0; stride *= t->dims[d])
    if (t->dims[d] > 1 && t->strides[d] != stride) return 0;
  return 1;
}

static uint64_t dims_from(const bs_tensor *t, uint32_t first, uint32_t end) {
  uint64_t n = 1;
  for (uint32_t d = first; d < end; d++) n *= (uint64_t)t->dims[d];
  return n;
}

/* ---- products ----------------------------------------------------------------------------------- */

static uint64_t at(const sim_inside_op *op, bs_tensor *const *args, place p) {
  return p.arg == COLUMNS ? op->columns : (uint64_t)args[p.arg]->dims[p.dim];
}

static int is_apart(const bs_tensor *t, uint64_t width) {
  if (t == NULL || t->rank < 2 || t->dims[t->rank - 2] < 2) return 0;
  return (uint64_t)t->strides[t->rank - 2] != width;
}

/* Do rows of an operand that is read lie apart? Then its tiles are pieces, and may share channels. */
static int rows_apart(const row *r, const sim_ask *ask, bs_tensor *const *args) {
  for (uint32_t i = 0; i < 2 && r->reads[i].width != 0; i++) {
    const uint64_t width = r->reads[i].width == 'm' ? ask->m : r->reads[i].width == 'n' ? ask->n : ask->k;
    if (is_apart(args[r->reads[i].arg], width)) return 1;
  }
  return 0;
}

static int product_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  const row *r = op->row;
  ask->m = at(op, args, r->m);
  ask->n = at(op, args, r->n);
  ask->k = at(op, args, r->k);
  ask->rows = (uint64_t)rows_apart(r, ask, args);
  return ask->m > 0 && ask->n > 0 && ask->k > 0;
}

/* A B whose leading dims are 1 serves all rows of A: one product. 0: another form. */
static int contract_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  const bs_tensor *a = args[0], *b = args[1], *y = args[3];
  if (b == NULL) return 0;
  const uint32_t rank = y->rank;
  if (rank < 2 || a->rank != rank || b->rank != rank) return 0;
  for (uint32_t d = 0; d + 2 < rank; d++)
    if (b->dims[d] != 1 || a->dims[d] != y->dims[d]) return 0;
  ask->m = dims_from(y, 0, rank - 1);
  ask->n = (uint64_t)y->dims[rank - 1];
  ask->k = (uint64_t)a->dims[rank - 1];
  ask->rows = (uint64_t)rows_apart(op->row, ask, args);
  return ask->m > 0 && ask->n > 0 && ask->k > 0;
}

/* ---- attention ---------------------------------------------------------------------------------- */

enum { Q, K, V, MASK, LENGTH, DESCALE, O, ARGS };

/* The program has one exp of a score: no softcap, and no operands but Q, K, V and O. The sums of LSE are one
 * number a row. */
static int prepare_attention(sim_inside_op *out, const bs_op_query *q) {
  for (uint32_t i = 0; i < 3; i++) out->attrs[i] = q->attrs[i];
  return dtype_of(q, MASK) == 0 && dtype_of(q, LENGTH) == 0 && dtype_of(q, DESCALE) == 0 &&
         dtype_of(q, K) == dtype_of(q, Q) && dtype_of(q, V) == dtype_of(q, Q) && q->numbers[1] == 0;
}

static int attention_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  const bs_tensor *q = args[Q], *k = args[K], *v = args[V];
  int64_t from, end;
  if (k == NULL || v == NULL || !is_dense(q) || !is_dense(k) || !is_dense(v) || !is_dense(args[O])) return 0;
  if (k->dims[1] == 0 || k->dims[0] != q->dims[0]) return 0;
  sim_form_keys((uint32_t)op->attrs[0], op->attrs[1], op->attrs[2], q->dims[2], k->dims[2], &from, &end);
  ask->heads = dims_from(q, 0, 2);
  ask->sharing = (uint64_t)(q->dims[1] / k->dims[1]);
  ask->s = (uint64_t)q->dims[2];
  ask->t = (uint64_t)k->dims[2];
  ask->d = (uint64_t)q->dims[3];
  ask->e = (uint64_t)v->dims[3];
  ask->sees_from = (uint64_t)from;
  ask->sees_end = (uint64_t)end;
  return ask->heads > 0 && ask->s > 0 && ask->t > 0 && ask->d > 0 && ask->e > 0;
}

/* ---- maps --------------------------------------------------------------------------------------- */

static void add(uint8_t *list, uint32_t *n, uint32_t arg) {
  list[(*n)++] = (uint8_t)arg;
}

/* Args are the inputs, then the outputs. A program without steps copies, or converts. */
static void list_program(sim_inside_op *out, const bs_op_query *q) {
  const bs_expr *e = q->expr;
  for (uint32_t i = 0; i < e->n_in; i++) add(out->in, &out->n_in, i);
  for (uint32_t i = e->n_in; i < q->nargs; i++) add(out->out, &out->n_out, i);
  out->ask.ops = e->n_steps > 0 || e->n_out != e->n_in || dtype_of(q, e->n_in) != dtype_of(q, 0)
                     ? e->n_steps + (e->n_steps == 0)
                     : 0;
}

static void list_args(sim_inside_op *out, const bs_op_query *q) {
  const row *r = out->row;
  for (uint32_t i = 0; i < sizeof r->ins && r->ins[i] != NONE; i++)
    if (dtype_of(q, r->ins[i]) != 0) add(out->in, &out->n_in, r->ins[i]);
  for (uint32_t i = 0; i < sizeof r->outs && r->outs[i] != NONE; i++)
    if (dtype_of(q, r->outs[i]) != 0) add(out->out, &out->n_out, r->outs[i]);
}

/* All that is read has one width, and all that is written. */
static int have_one_width(const sim_inside_op *op, const bs_op_query *q) {
  for (uint32_t i = 0; i < op->n_in; i++)
    if (BS_DTYPE_BYTES(dtype_of(q, op->in[i])) != BS_DTYPE_BYTES((uint32_t)op->ask.in_dtype)) return 0;
  for (uint32_t i = 0; i < op->n_out; i++)
    if (BS_DTYPE_BYTES(dtype_of(q, op->out[i])) != BS_DTYPE_BYTES((uint32_t)op->ask.out_dtype)) return 0;
  return 1;
}

static const sim_form *form_of(const sim_inside_op *op, const bs_op_query *q) {
  const char *name = op->row->op;
  const int softmax = strcmp(name, "normalize") == 0 && q->attrs[0] >= BS_NORMALIZE_SOFTMAX;
  if (softmax) name = "softmax";
  return sim_form_of(name, strlen(name));
}

static int is_folded(const bs_op_query *q) {
  return strcmp(q->op, "reduce") == 0;
}

/* A cumulative sum folds nothing. */
static int prepare_map(sim_inside_op *out, const bs_op_query *q) {
  const sim_form *form = form_of(out, q);
  if (form == NULL || (is_folded(q) && q->attrs[0] == BS_FOLD_CUMSUM)) return 0;
  if (q->expr != NULL) {
    list_program(out, q);
  } else {
    list_args(out, q);
    out->ask.ops = form->ops;
    out->ask.ops += options_of(out->row, q);
  }
  if (out->n_in == 0 || out->n_out == 0) return 0;
  out->ask.in_dtype = dtype_of(q, out->in[0]);
  out->ask.out_dtype = dtype_of(q, out->out[0]);
  out->ask.inputs = out->n_in;
  out->ask.outputs = out->n_out;
  return have_one_width(out, q);
}

static int same_dims(const bs_tensor *a, const bs_tensor *b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

/* WEIGHT has the dims of the others: it is dense. */
static int fit(bs_tensor *const *args, const uint8_t *list, uint32_t n, const bs_tensor *like) {
  for (uint32_t i = 0; i < n; i++) {
    const bs_tensor *t = list[i] == WEIGHT ? like : args[list[i]];
    if (t == NULL || !is_dense(t) || !same_dims(t, like)) return 0;
  }
  return 1;
}

static int map_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  const bs_tensor *x = args[op->in[0]];
  if (x == NULL || !fit(args, op->in, op->n_in, x) || !fit(args, op->out, op->n_out, x)) return 0;
  ask->elements = dims_from(x, 0, x->rank);
  ask->row = ask->out_of = 1;
  return ask->elements > 0;
}

static int rows_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  if (!map_dims(op, args, ask)) return 0;
  ask->row = (uint64_t)args[op->in[0]]->dims[args[op->in[0]]->rank - 1];
  return 1;
}

/* The last dimensions become one element. 0: others are folded, or none. */
static int fold_dims(const sim_inside_op *op, bs_tensor *const *args, sim_ask *ask) {
  const bs_tensor *in = args[0], *out = args[1];
  uint32_t kept = 0;
  if (out == NULL || in->rank != out->rank || !is_dense(in) || !is_dense(out)) return 0;
  while (kept < in->rank && in->dims[kept] == out->dims[kept]) kept++;
  if (dims_from(out, kept, out->rank) != 1 || kept == in->rank) return 0;
  ask->elements = dims_from(in, 0, in->rank);
  ask->row = ask->out_of = dims_from(in, kept, in->rank);
  (void)op;
  return ask->elements > 0;
}

/* ---- the table ---------------------------------------------------------------------------------- */

#define PRODUCT(name, run) .op = (name), .kind = SIM_ASK_PRODUCT, .dims = (run)
#define MAP(name, run)                                                                                  \
  .op = (name), .kind = SIM_ASK_MAP, .dims = (run), .prepare = prepare_map, .in = NONE, .weight = NONE, \
  .out = NONE, .owned = NONE
#define NO_OPTION \
  { NONE, NONE }

static const row rows[] = {
    {PRODUCT("matmul", product_dims), .in = 0, .weight = WEIGHT, .out = 3, .option = {1, 2}, .owned = 0,
     .m = {0, 0}, .n = {3, 1}, .k = {COLUMNS, 0}, .reads = {{0, 'k'}}},
    {PRODUCT("matmul_dx", product_dims), .in = 0, .weight = WEIGHT, .out = 1, .option = NO_OPTION, .owned = 1,
     .m = {0, 0}, .n = {COLUMNS, 0}, .k = {0, 1}, .reads = {{0, 'k'}}},
    {PRODUCT("matmul_dw", product_dims), .in = 0, .weight = 1, .out = 2, .option = NO_OPTION, .owned = 0,
     .m = {2, 0}, .n = {COLUMNS, 0}, .k = {0, 0}, .reads = {{0, 'n'}, {1, 'm'}}},
    {PRODUCT("scaled_matmul", product_dims), .in = 0, .weight = 2, .out = 6, .option = {4, 5}, .owned = NONE,
     .further = 1, .m = {0, 0}, .n = {6, 1}, .k = {0, 1}, .reads = {{0, 'k'}, {2, 'k'}}},
    {PRODUCT("contract", contract_dims), .in = 0, .weight = 1, .out = 3, .option = {2, NONE}, .owned = NONE,
     .reads = {{0, 'k'}, {1, 'n'}}},
    {.op = "attention",
     .kind = SIM_ASK_ATTENTION,
     .dims = attention_dims,
     .prepare = prepare_attention,
     .in = Q,
     .weight = K,
     .out = O,
     .option = NO_OPTION,
     .owned = NONE},
    {MAP("map", map_dims), .option = NO_OPTION, .ins = {NONE}, .outs = {NONE}},
    {MAP("convert", map_dims), .option = NO_OPTION, .ins = {0, NONE}, .outs = {1, NONE}},
    {MAP("activate", map_dims), .option = NO_OPTION, .ins = {0, NONE}, .outs = {1, NONE}},
    {MAP("normalize", rows_dims), .option = {1, NONE}, .ins = {0, 1, NONE}, .outs = {4, 5, NONE}},
    {MAP("reduce", fold_dims), .option = NO_OPTION, .ins = {0, NONE}, .outs = {1, NONE}},
    {MAP("quantize_groups", map_dims), .option = NO_OPTION, .ins = {0, NONE}, .outs = {1, NONE}},
    {MAP("sgd_update", map_dims), .option = {1, 1}, .ins = {0, WEIGHT, 1, NONE}, .outs = {WEIGHT, 1, NONE}},
    {MAP("adamw_update", map_dims), .option = NO_OPTION, .ins = {0, 1, 2, WEIGHT}, .outs = {1, 2, WEIGHT}},
};

static const row *row_of(const char *op) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (strcmp(rows[i].op, op) == 0) return &rows[i];
  return NULL;
}

void sim_inside_prepare(sim_inside_op *out, const bs_op_query *q) {
  sim_ask *ask = &out->ask;
  const row *r = row_of(q->op);
  memset(out, 0, sizeof *out);
  if (r == NULL) return;
  out->row = r;
  while (ask->op < BS_CORE_OPS && strcmp(bs_name_of(BS_NAMES_OP, (uint32_t)ask->op), q->op) != 0) ask->op++;
  ask->kind = r->kind;
  ask->in_dtype = dtype_of(q, r->in);
  ask->weight_dtype = dtype_of(q, r->weight);
  ask->out_dtype = dtype_of(q, r->out);
  if (r->kind == SIM_ASK_PRODUCT) ask->epilogue = 1u + r->further + options_of(r, q) + (q->activation != 0);
  if (dtype_of(q, r->owned) != 0) out->columns = (uint64_t)q->args[r->owned]->dims[1];
  if (q->partition != NULL) out->columns = (uint64_t)q->partition->count;
  if (r->prepare != NULL && !r->prepare(out, q)) out->row = NULL;
}

static int is_there(uint8_t arg, bs_tensor *const *args, uint32_t nargs) {
  return arg >= COLUMNS || (arg < nargs && args[arg] != NULL);
}

int sim_inside_dims(const sim_inside_op *op, bs_tensor *const *args, uint32_t nargs, sim_ask *out) {
  const row *r = op->row;
  *out = op->ask;
  if (r == NULL || !is_there(r->in, args, nargs) || !is_there(r->weight, args, nargs) ||
      !is_there(r->out, args, nargs))
    return 0;
  for (uint32_t i = 0; i < op->n_in; i++)
    if (!is_there(op->in[i], args, nargs)) return 0;
  for (uint32_t i = 0; i < op->n_out; i++)
    if (!is_there(op->out[i], args, nargs)) return 0;
  return r->dims(op, args, out);
}
