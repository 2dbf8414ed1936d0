/* SPDX-License-Identifier: MIT
 * num_tokenwise.c - numerics.tokenwise: an answer to BS_QUERY_BITS with `bits` promises that an output has
 * the same bits alone and among others, at other strides, for any team, and on every table of instructions. A
 * query is run whole, then again in each of these ways, and outputs are compared bit by bit. Exact answers
 * serve such queries too, so they are tried as well. */
#include <math.h>
#include <stdio.h>

#include "kit/graph.h"

enum { TRIED = 48, MOST_ELEMENTS = 1 << 18 };

/* Values of the parameter `isa`, for plugins that have it; those that do not open are left out. */
static const char *const tables[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { TABLES = sizeof tables / sizeof tables[0] };

typedef struct table {
  kit_plugin plugin;
  kit_actor actor;
  bs_kit_options options;
  const char *params[KIT_MAX_PARAMS + 1];
  char setting[32];
  int open;
} table;

/* How a query differs from the whole one: it has `rows` of its B and `cols` of its N, from these on; 0: all.
 */
typedef struct part {
  int64_t row, rows, col, cols;
} part;

/* ---- tables ---------------------------------------------------------------------------------- */

static int has_isa(const kit_plugin *p) {
  for (uint32_t i = 0; i < p->host.n_params; i++)
    if (strcmp(p->host.params[i].name, "isa") == 0) return 1;
  return 0;
}

static void open_table(table *t, const char *name, uint32_t thing) {
  bs_error err = BS_ERROR_INIT;
  memset(t, 0, sizeof *t);
  snprintf(t->setting, sizeof t->setting, "isa=%s", name);
  t->options = *kit.options;
  if (t->options.n_params > KIT_MAX_PARAMS) return;
  for (uint32_t i = 0; i < t->options.n_params; i++) t->params[i] = kit.options->params[i];
  t->params[t->options.n_params++] = t->setting; /* the last one counts */
  t->options.params = t->params;
  if (kit_plugin_load(&t->plugin, &t->options, &err) != BS_OK ||
      kit_plugin_activate(&t->plugin, &err) != BS_OK)
    return;
  t->open = kit_actor_attach(&t->actor, &t->plugin, thing, 2) == NULL;
}

static void close_table(table *t) {
  if (t->open) kit_actor_close(&t->actor);
  kit_plugin_deactivate(&t->plugin);
}

/* ---- parts of a query ------------------------------------------------------------------------ */

static int writes(const kit_data *d, uint32_t i) {
  if (d->outs != 0) return (int)(d->outs >> i & 1u);
  return (int32_t)i == d->out || (int32_t)i == d->second;
}

/* The dim in which a part of a tensor is smaller: -1 if none is. 0: the tensors have other shapes. */
static int dim_of(const kit_tensor *whole, const kit_tensor *some, int *out_dim) {
  *out_dim = -1;
  if ((whole->block == NULL) != (some->block == NULL)) return 0;
  if (whole->block == NULL) return 1;
  if (whole->t.rank != some->t.rank || whole->t.dtype != some->t.dtype) return 0;
  for (uint32_t k = 0; k < whole->t.rank; k++) {
    if (whole->t.dims[k] == some->t.dims[k]) continue;
    if (*out_dim >= 0 || some->t.dims[k] > whole->t.dims[k]) return 0;
    *out_dim = (int)k;
  }
  return 1;
}

static int same_program(const bs_expr *a, const bs_expr *b) {
  if (a == NULL || b == NULL) return a == b;
  return a->compute == b->compute && a->n_steps == b->n_steps && a->n_const == b->n_const &&
         a->form == b->form && memcmp(a->steps, b->steps, a->n_steps * sizeof *a->steps) == 0 &&
         memcmp(a->consts, b->consts, a->n_const * sizeof *a->consts) == 0;
}

static int same_numbers(const bs_op_query *a, const bs_op_query *b) {
  int same = 1;
  for (size_t i = 0; i < sizeof a->numbers / sizeof a->numbers[0]; i++)
    same &= a->numbers[i] == b->numbers[i];
  return same;
}

/* 1: one is a part of the other: each output is smaller in one dim, if `smaller`, and no input in two. */
static int alike(const kit_data *whole, const kit_data *some, int smaller) {
  int dim = -1;
  const bs_op_query *a = &whole->query, *b = &some->query;
  if (whole->nargs != some->nargs || memcmp(a->attrs, b->attrs, sizeof a->attrs) != 0 ||
      a->activation != b->activation || !same_numbers(a, b) || !same_program(a->expr, b->expr) ||
      !dim_of(&whole->w, &some->w, &dim))
    return 0;
  for (uint32_t i = 0; i < whole->nargs; i++) {
    if (!dim_of(&whole->a[i], &some->a[i], &dim)) return 0;
    if (writes(whole, i) && whole->a[i].block != NULL && smaller != (dim >= 0)) return 0;
  }
  return 1;
}

/* The number in the whole tensor of element i of its part, which begins at `from`. */
static int64_t number_of(const kit_tensor *whole, const kit_tensor *some, int64_t i, int64_t from) {
  int64_t at[BS_MAX_DIMS], number = 0;
  int dim = -1;
  dim_of(whole, some, &dim);
  kit_graph_at(i, some->t.rank, some->t.dims, at);
  if (dim >= 0) at[dim] += from;
  for (uint32_t k = 0; k < some->t.rank; k++) number = number * whole->t.dims[k] + at[k];
  return number;
}

static void copy_part(const kit_tensor *whole, kit_tensor *some, int64_t from) {
  const int64_t n = some->block != NULL ? kit_elements(some) : 0;
  for (int64_t i = 0; i < n; i++)
    memcpy(kit_place_at(some, i), kit_place_at(whole, number_of(whole, some, i, from)),
           BS_DTYPE_BYTES(some->t.dtype));
}

static void compare(const kit_data *whole, const kit_data *some, int64_t from) {
  for (uint32_t i = 0; i < some->nargs; i++) {
    const kit_tensor *w = &whole->a[i], *s = &some->a[i];
    const int64_t n = writes(some, i) && s->block != NULL ? kit_elements(s) : 0;
    for (int64_t e = 0; e < n; e++) {
      const int64_t of = number_of(w, s, e, from);
      if (memcmp(kit_place_at(s, e), kit_place_at(w, of), BS_DTYPE_BYTES(s->t.dtype)) == 0) continue;
      if (isnan(kit_get_at(s, e)) && isnan(kit_get_at(w, of))) continue;
      kit_fail(
          "%s gives other bits than the whole, though supports promises them: element %lld of arg %u is "
          "%.9g, in the whole %.9g",
          kit_data_text(some), (long long)e, i, kit_get_at(s, e), kit_get_at(w, of));
    }
  }
}

/* ---- running --------------------------------------------------------------------------------- */

static int promises(const kit_actor *a, const kit_data *d) {
  bs_op_answer answer;
  kit_data_ask(a, d, &answer);
  return (answer.level == BS_LEVEL_NATIVE || answer.level == BS_LEVEL_EMULATED) &&
         (answer.bits != 0 || answer.tolerance == BS_TOL_EXACT);
}

static void run(kit_actor *a, kit_data *d) {
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  kit_poison_outputs(d, 0xA5);
  kit_assert(kit_data_run(a, d, &stage, &err) == BS_OK, "%s: %s fails: %s: %s", kit_data_text(d), stage,
             err.id, err.message);
}

/* Runs the part of a query, in the tensors of `shape`, where it can be made and is promised. */
static void run_part(kit_actor *a, const kit_data *whole, kit_shape shape, part of, const char *how) {
  const int smaller = of.rows + of.cols > 0;
  const int64_t from = of.rows > 0 ? of.row : of.col;
  kit_data d;
  if (of.rows > 0) shape.B = of.rows;
  if (of.cols > 0) shape.N = of.cols;
  kit_data_make(&d, whole->op, &shape);
  if (alike(whole, &d, smaller)) {
    for (uint32_t i = 0; i < d.nargs; i++)
      if (!writes(&d, i)) copy_part(&whole->a[i], &d.a[i], from);
    copy_part(&whole->w, &d.w, from);
    snprintf(d.note, sizeof d.note, ", %s", how);
    if (promises(a, &d)) {
      run(a, &d);
      compare(whole, &d, from);
    }
  }
  kit_data_free(a, &d);
}

/* Positions of queries move with their number: of these only one row is the same alone. */
static int row_is_alone(const kit_data *d, int64_t row) {
  const int64_t *attrs = d->query.attrs;
  if (strcmp(d->op, "attention") != 0) return 1;
  if (attrs[0] == BS_CAUSAL_LOWER_RIGHT) return row == d->shape.B - 1;
  return row == 0 || attrs[0] + attrs[1] + attrs[2] == 0;
}

static int is_one_of(const char *op, const char *const *ops, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(op, ops[i]) == 0) return 1;
  return 0;
}

/* Sums along rows, and ops that move rows, have no row alone; of the last two a row has its own positions. */
static int has_rows(const kit_data *d) {
  static const char *const without[] = {
      "take", "put", "topk", "attention_dx", "take_q", "matmul_q", "quantize_groups", "expand24"};
  return !is_one_of(d->op, without, sizeof without / sizeof without[0]) &&
         !(strcmp(d->op, "reduce") == 0 && d->query.attrs[0] == BS_FOLD_CUMSUM);
}

/* Ops of which an output column is computed from its own column of the weight, or of the inputs. */
static int has_columns(const kit_data *d) {
  static const char *const with[] = {"matmul", "contract", "map", "activate", "reduce"};
  return is_one_of(d->op, with, sizeof with / sizeof with[0]) && has_rows(d);
}

static void try_parts(kit_actor *a, const kit_data *d) {
  const kit_shape *s = &d->shape;
  const int64_t rows[] = {0, s->B / 2, s->B - 1};
  char how[60];
  for (size_t i = 0; i < 3 && s->B > 1 && has_rows(d); i++) {
    if (!row_is_alone(d, rows[i])) continue;
    snprintf(how, sizeof how, "row %lld alone,", (long long)rows[i]);
    run_part(a, d, *s, (part){rows[i], 1, 0, 0}, how);
  }
  if (s->N < 2 || !has_columns(d)) return;
  const int64_t cols = s->N / 2 + 1, col = s->seed % 2 == 0 ? 0 : s->N - cols;
  snprintf(how, sizeof how, "columns %lld to %lld alone,", (long long)col, (long long)(col + cols - 1));
  run_part(a, d, *s, (part){0, 0, col, cols}, how);
}

static void try_query(kit_actor *a, table *with, const kit_data *d) {
  const part all = {0, 0, 0, 0};
  const int graph = kit_graph_find(d->op) != NULL;
  kit_shape other = d->shape;
  char how[60];
  try_parts(a, d);
  for (uint32_t i = 1; i < (graph ? 2u : 3u); i++) { /* of three layouts of a matrix the other two */
    other.spread = graph ? d->shape.spread ^ KIT_DENSE
                         : (d->shape.spread & KIT_SHIFTED) | ((d->shape.spread & 3u) + i) % 3;
    run_part(a, d, other, all, "at other strides,");
  }
  other = d->shape;
  other.spread ^= KIT_SHIFTED;
  run_part(a, d, other, all, "from another address on,");
  a->exec.width = 4;
  run_part(a, d, d->shape, all, "by a team of 4,");
  a->exec.width = 1;
  for (uint32_t i = 0; i < TABLES; i++) {
    snprintf(how, sizeof how, "by the table isa=%s,", tables[i]);
    if (with[i].open) run_part(&with[i].actor, d, d->shape, all, how);
  }
}

/* One query, where it is promised. */
static uint32_t try_shape(kit_actor *a, table *with, kit_shape s) {
  kit_data d;
  uint32_t ran = 0;
  s.flags |= BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE | BS_QUERY_BITS;
  kit_data_make(&d, a->impl->op, &s);
  if (promises(a, &d)) {
    run(a, &d);
    try_query(a, with, &d);
    ran = 1;
  }
  kit_data_free(a, &d);
  return ran;
}

void kit_num_tokenwise(const kit_case *c) {
  /* So many keys, or columns, that a team may share those of a row; plain: no mask, no positions. */
  static const kit_shape is_long = {
      .x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 4, .N = 1500, .K = 64, .plain = 1, .seed = 5};
  static kit_actor a;
  static table with[TABLES];
  kit_shape s;
  uint32_t ran = 0;
  if (!kit_actor_open(&a, c->thing, 1)) return;
  const int known = kit_op_known(a.impl->op) && !kit_changes_weight(a.impl->op);
  for (uint32_t i = 0; i < TABLES && known && has_isa(a.p); i++) open_table(&with[i], tables[i], c->thing);
  for (uint32_t i = 0; known && kit_grid(a.impl->op, i, 0, &s) && (ran > 0 || i < TRIED); i++)
    if (!s.edge && s.B * s.N <= MOST_ELEMENTS) ran += try_shape(&a, with, s);
  if (ran > 0 && strcmp(a.impl->op, "attention") == 0) try_shape(&a, with, is_long);
  for (uint32_t i = 0; i < TABLES; i++) close_table(&with[i]);
  kit_actor_close(&a);
  if (ran == 0) kit_unsupported("no answer says bits=1 or is exact: it keeps no definition of bits");
}
