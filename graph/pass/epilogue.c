/* SPDX-License-Identifier: MIT
 * epilogue.c - what follows a product element by element becomes part of it: bias, activation, residual; a
 * sum in front of a normalisation becomes part of that. */
#include <math.h>
#include <string.h>

#include "blockshock/expr_value.h"
#include "core/base/error.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* act(y + bias) + residual: which input of the program is which. */
typedef struct roles {
  uint32_t y, bias, residual; /* slots; GNONE: absent */
  uint32_t activation;
} roles;

static const struct activation {
  uint8_t op; /* its step; max: of 0 */
  uint32_t activation;
} activations[] = {{BS_EXPR_MAX, BS_ACT_RELU},
                   {BS_EXPR_GELU, BS_ACT_GELU},
                   {BS_EXPR_SILU, BS_ACT_SILU},
                   {BS_EXPR_GELU_TANH, BS_ACT_GELU_TANH}};

static double wanted(const double *in, const void *arg) {
  const roles *r = arg;
  double x = in[r->y];
  if (r->bias != GNONE) x += in[r->bias];
  for (uint32_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
    if (activations[i].activation == r->activation) x = bs_expr_value(activations[i].op, x, 0, 0);
  return r->residual != GNONE ? x + in[r->residual] : x;
}

/* The activation that gives an operand, and the activation's input; BS_ACT_NONE: the operand itself. */
static uint32_t activation_of(const form *f, uint8_t operand, uint8_t *out_inner) {
  uint32_t step;
  const uint8_t op = form_op(f, operand, &step);
  *out_inner = operand;
  for (uint32_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
    if (activations[i].op != op) continue;
    const uint8_t a = f->e->steps[step].a, b = f->e->steps[step].b;
    double zero = 1;
    const int second = form_is_const(f, b, &zero);
    if (op == BS_EXPR_MAX && !second && !form_is_const(f, a, &zero)) return BS_ACT_NONE;
    if (op == BS_EXPR_MAX && zero != 0) return BS_ACT_NONE;
    *out_inner = op == BS_EXPR_MAX && !second ? b : a;
    return activations[i].activation;
  }
  return BS_ACT_NONE;
}

/* The other one of two terms with the factor 1, of which one is `known`. 0: operand is no such sum. */
static int other_term(const form *f, uint8_t operand, uint8_t known, uint8_t *out_other) {
  form_sum s;
  if (!form_sum_of(f, operand, &s) || s.n != 2 || s.has_constant || s.factor[0] != 1 || s.factor[1] != 1)
    return 0;
  *out_other = s.operand[0] == known ? s.operand[1] : s.operand[0];
  return s.operand[0] == known || s.operand[1] == known;
}

/* act(y + bias) + residual, of the roles that the shapes gave. */
static int is_epilogue(const form *f, roles *io) {
  static const double ones[3] = {1, 1, 1};
  uint8_t terms[3] = {(uint8_t)io->y}, core = form_operand(f, f->e->outs[0]), inner;
  uint32_t n = 1;
  if (io->bias != GNONE) terms[n++] = (uint8_t)io->bias;
  io->activation = BS_ACT_NONE;
  if (io->residual != GNONE) {
    terms[n] = (uint8_t)io->residual;
    if (form_is_sum(f, core, terms, ones, n + 1)) return program_is(f->e, wanted, io);
    if (!other_term(f, core, (uint8_t)io->residual, &core)) return 0;
  }
  io->activation = activation_of(f, core, &inner);
  if (io->residual != GNONE && io->activation == BS_ACT_NONE) return 0;
  return form_is_sum(f, inner, terms, ones, n) && program_is(f->e, wanted, io);
}

/* Slots of the map by their shapes: rows are biases, whole values residuals. 0: another one, or two of a
 * kind. */
static int assign(const graph *g, const gnode *map, uint32_t y, int64_t columns, roles *out) {
  const gvalue *out_value = &g->values[map->out[0]];
  *out = (roles){y, GNONE, GNONE, 0};
  for (uint32_t i = 0; i < map->n_in; i++) {
    const gvalue *v = &g->values[map->in[i]];
    if (i == y) continue;
    if (v->dtype != out_value->dtype) return 0;
    const int row = match_row(g, map->in[i], columns), whole = graph_count(v) == graph_count(out_value);
    const int prefer = !whole || graph_is_const(g, map->in[i]); /* of one token both are possible */
    if (row && out->bias == GNONE && (prefer || out->residual != GNONE))
      out->bias = i;
    else if (whole && out->residual == GNONE)
      out->residual = i;
    else
      return 0;
  }
  return 1;
}

/* The views of the map's values as the product's arguments; *out_ok 0: one would need a copy. */
static int32_t arguments(graph *g, const gnode *map, const roles *r, const int64_t *dims, gnode *io_product,
                         int *out_ok, bs_error *err) {
  int32_t rc = match_reshape(g, map->out[0], 2, dims, &io_product->out[0], err);
  if (rc == BS_OK && r->bias != GNONE)
    rc = match_reshape(g, map->in[r->bias], 1, &dims[1], &io_product->in[1], err);
  if (rc == BS_OK && r->residual != GNONE)
    rc = match_reshape(g, map->in[r->residual], 2, dims, &io_product->in[2], err);
  if (rc != BS_OK) return rc;
  *out_ok = io_product->out[0] != GNONE && (r->bias == GNONE || io_product->in[1] != GNONE) &&
            (r->residual == GNONE || io_product->in[2] != GNONE);
  const uint32_t rows[2] = {io_product->out[0], io_product->in[2]};
  for (uint32_t i = 0; i < 2 && *out_ok; i++)
    *out_ok = rows[i] == GNONE || dims[1] == 1 || g->values[rows[i]].strides[1] == 1;
  return rc;
}

static int32_t try_product(graph *g, const gpass_ctx *ctx, uint32_t map_id, uint32_t slot,
                           uint32_t *out_changes, bs_error *err) {
  const gnode map = g->nodes[map_id];
  uint32_t product_id = match_only(g, map.in[slot], GOP_MATMUL, map_id);
  if (product_id == GNONE) product_id = match_only(g, map.in[slot], GOP_MATMUL_Q, map_id);
  if (product_id == GNONE || match_slot(g, &map, g->values[map.in[slot]].base) != slot) return BS_OK;
  gnode product = g->nodes[product_id];
  const gvalue y = g->values[product.out[0]];
  const form f = form_of(g, &map);
  roles r;
  int ok = 0;
  if (product.in[2] != GNONE || product.activation != BS_ACT_NONE || map.n_out != 1) {
    gpass_miss(ctx, map_id, "the product in front has an activation or a residual already");
    return BS_OK;
  }
  if (g->values[map.out[0]].dtype != y.dtype || f.e->compute != y.dtype) {
    gpass_miss(ctx, map_id, "the product in front is of another dtype than what follows it");
    return BS_OK;
  }
  if (!assign(g, &map, slot, y.dims[1], &r) || !is_epilogue(&f, &r) ||
      (r.bias != GNONE && product.in[1] != GNONE)) {
    gpass_miss(ctx, map_id, "it is not act(product + row) + value, with an activation that products have");
    return BS_OK;
  }
  if (ctx->layers && r.residual != GNONE) {
    gpass_miss(ctx, map_id, "the product is summed over the ranks before the residual is added");
    return BS_OK;
  }
  const int32_t rc = arguments(g, &map, &r, y.dims, &product, &ok, err);
  if (rc == BS_OK && !ok)
    gpass_miss(ctx, map_id, "the bias, the residual or the result has gaps in its rows");
  if (rc != BS_OK || !ok) return rc;
  product.activation = r.activation;
  product.origin = graph_origin_join(g, product.origin, map.origin);
  const uint32_t old[2] = {map_id, product_id};
  return gpass_replace(g, ctx, &product, old, 2, out_changes, err);
}

/* ---- sums before normalisations -------------------------------------------------------------- */

/* Every reader of the sum runs after the normalisation, which will write it. *out_others: there are some.
 * Whatever reads the sum runs after `add`, so that the nodes from there to `norm` are all that is looked at.
 */
static int readers_follow(const graph *g, uint32_t root, uint32_t add, uint32_t norm, int *out_others) {
  *out_others = (g->values[root].flags & GV_OUTPUT) != 0 || graph_sole_user(g, root) == GNONE;
  if (graph_sole_user(g, root) == norm) return 1;
  for (uint32_t i = g->nodes[add].next; i != norm && i != GNONE; i = g->nodes[i].next)
    for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
      if (g->nodes[i].in[k] != GNONE && g->values[g->nodes[i].in[k]].base == root) return 0;
  return 1;
}

/* The map is a sum of two values with the dims of the result, or one of them broadcast to it; *out_x: the
 * whole one. */
static int is_sum_of_two(const graph *g, const gnode *add, uint32_t sum, uint32_t *out_x) {
  static const uint8_t terms[2] = {GX_IN, GX_IN + 1};
  static const double ones[2] = {1, 1};
  const gvalue *v = &g->values[sum];
  if (add->out[0] != sum || add->n_in != 2 || add->n_out != 1 || g->exprs[add->expr].compute != v->dtype)
    return 0;
  const form f = form_of(g, add);
  for (uint32_t i = 0; i < 2; i++) {
    const gvalue *a = &g->values[add->in[i]];
    if (a->dtype != v->dtype || (a->dims[a->rank - 1] > 1 && a->strides[a->rank - 1] != 1)) return 0;
  }
  *out_x = match_dims(g, add->in[0], sum) ? 0 : 1;
  return match_dims(g, add->in[*out_x], sum) && form_is_sum(&f, f.e->outs[0], terms, ones, 2);
}

static int32_t try_norm(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes, bs_error *err) {
  gnode n = g->nodes[id];
  const uint32_t sum = n.in[0], add_id = match_producer(g, sum);
  int others = 0;
  uint32_t x;
  if (add_id == GNONE || g->nodes[add_id].op != GOP_MAP) return BS_OK;
  const gnode add = g->nodes[add_id];
  int twice = 0;
  for (uint32_t i = 1; i < n.n_in; i++)
    twice |= n.in[i] != GNONE && g->values[n.in[i]].base == g->values[sum].base;
  const char *why =
      n.in[1] != GNONE || n.out[1] != GNONE ? "the normalisation has a sum already"
      : twice                               ? "the normalisation reads the sum twice"
      : !is_sum_of_two(g, &add, sum, &x)    ? "what it normalises is no sum of two values of its dtype"
      : !readers_follow(g, sum, add_id, id, &others) ? "the sum is read before the normalisation"
                                                     : NULL;
  if (why != NULL) {
    gpass_miss(ctx, id, "%s", why);
    return BS_OK;
  }
  n.in[0] = add.in[x];
  n.in[1] = add.in[1 - x];
  n.origin = graph_origin_join(g, n.origin, add.origin);
  if (others) {
    n.n_out = 2;
    n.out[1] = sum;
  }
  const uint32_t old[2] = {id, add_id};
  return gpass_replace(g, ctx, &n, old, 2, out_changes, err);
}

int32_t gpass_epilogue(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    for (uint32_t slot = 0; g->nodes[id].op == GOP_MAP && slot < g->nodes[id].n_in; slot++) {
      const int32_t rc = try_product(g, ctx, id, slot, out_changes, err);
      if (rc != BS_OK) return rc;
    }
  }
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_NORMALIZE) continue;
    const int32_t rc = try_norm(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
