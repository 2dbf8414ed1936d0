/* SPDX-License-Identifier: MIT
 * alpha.c - a number before or after a product becomes part of it. Of `contract` it goes into alpha. Of
 * `matmul` each element of the weight is multiplied by it while the weight is packed (gvalue.scale): one
 * rounding more of each element, of the size of the product's own. Weights in bf16 and f16 take powers of two
 * alone, which round nothing. Behind a product the bias is multiplied too. A number that would make the sums
 * much larger stays where it is: they could overflow where those as written do not. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/query.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* Larger numbers leave little of the range of the dtype. */
static int is_moderate(double factor) {
  return fabs(factor) >= 0x1p-16 && fabs(factor) <= 0x1p16;
}

static int is_power_of_two(double factor) {
  int exponent;
  return frexp(fabs(factor), &exponent) == 0.5;
}

/* The smallest normal number of a dtype, and the largest number. */
static void range_of(uint32_t dtype, double *out_least, double *out_most) {
  const int half = dtype == BS_F16, wide = dtype == BS_F64;
  *out_least = half ? 0x1p-14 : wide ? DBL_MIN : (double)FLT_MIN;
  *out_most = half ? 65504 : dtype == BS_BF16 ? 0x1.fep127 : wide ? DBL_MAX : (double)FLT_MAX;
}

/* ---- constants times a number ---------------------------------------------------------------- */

typedef struct scaling {
  uint32_t dtype;
  double factor, least, most;
} scaling;

/* Each of n elements has a product that is normal, or is 0, infinite or NaN itself. */
static int run_scales(const scaling *s, const unsigned char *data, int64_t n) {
  enum { RUN = 512 };
  unsigned char aligned[RUN * 8];
  double wide[RUN];
  const uint32_t size = BS_DTYPE_BYTES(s->dtype);
  int bad = 0;
  for (int64_t first = 0; first < n && !bad; first += RUN) {
    const int64_t some = n - first < RUN ? n - first : RUN;
    memcpy(aligned, data + (uint64_t)first * size, (size_t)some * size);
    bs_convert(BS_F64, wide, s->dtype, aligned, (uint64_t)some);
    for (int64_t i = 0; i < some; i++) {
      const double y = fabs(wide[i] * s->factor);
      bad |= wide[i] != 0 && isfinite(wide[i]) && !(y >= s->least && y <= s->most);
    }
  }
  return !bad;
}

/* The same of a constant's elements; where a view shows its whole root, in the order of that. */
static int elements_scale(const graph *g, uint32_t value, const scaling *s) {
  const gvalue *v = &g->values[value], *root = &g->values[v->base];
  const uint64_t size = BS_DTYPE_BYTES(v->dtype);
  const unsigned char *data = root->data;
  const int64_t count = graph_count(v);
  if (graph_ask(g, value, NULL) != BS_OK) return 0;
  int64_t index[BS_MAX_DIMS] = {0}, at = v->offset;
  if (count == graph_count(root)) return run_scales(s, data, count);
  for (int64_t i = 0; i < count; i++) {
    if (!run_scales(s, data + (uint64_t)at * size, 1)) return 0;
    for (uint32_t d = v->rank; d-- > 0;) {
      at += v->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * v->strides[d];
      index[d] = 0;
    }
  }
  return 1;
}

/* A constant takes a factor with one rounding of each element, in halves with none. */
static int takes_factor(const graph *g, uint32_t value, double factor, scaling *out) {
  const gvalue *v = &g->values[value];
  if (!graph_is_const(g, value) || g->values[v->base].flags & GV_JOINED) return 0;
  if (v->dtype != BS_F32 && v->dtype != BS_F64 && v->dtype != BS_F16 && v->dtype != BS_BF16) return 0;
  *out = (scaling){v->dtype, factor, 0, 0};
  range_of(v->dtype, &out->least, &out->most);
  if ((v->dtype == BS_F16 || v->dtype == BS_BF16) && !is_power_of_two(factor)) return 0;
  return elements_scale(g, value, out);
}

int32_t match_scaled_weight(graph *g, uint32_t weight, double factor, uint32_t *out_weight, bs_error *err) {
  const gvalue v = g->values[weight];
  const double all = v.scale != 0 ? v.scale * factor : factor;
  scaling s;
  *out_weight = GNONE;
  if (!is_moderate(all) || !takes_factor(g, weight, all, &s)) return BS_OK;
  const int32_t rc = graph_add_view(g, v.base, v.dtype, v.rank, v.dims, v.strides, v.offset, out_weight, err);
  if (rc == BS_OK) g->values[*out_weight].scale = all;
  return rc;
}

static int32_t scaled_bias(graph *g, uint32_t bias, double factor, uint32_t *out_bias, bs_error *err) {
  const gvalue v = g->values[bias];
  scaling s;
  *out_bias = GNONE;
  if (!takes_factor(g, bias, factor, &s) || !graph_is_dense(&v)) return BS_OK;
  unsigned char *data = graph_data(g, graph_bytes(&v));
  if (data == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a pass");
  int32_t rc = graph_read_const(g, bias, data, err);
  for (int64_t i = 0; i < graph_count(&v); i++)
    bs_store_f64(v.dtype, data, i, factor * bs_load_f64(v.dtype, data, i));
  if (rc == BS_OK) rc = graph_add_root(g, GV_CONST, v.dtype, v.rank, v.dims, data, NULL, out_bias, err);
  return rc;
}

/* Of a product that cannot take a number over. */
#define NOT_TAKEN                                                                                        \
  "the product cannot take the number %g: its sums would be larger, it is beyond 2^-16 .. 2^16, or the " \
  "weight "                                                                                              \
  "or the bias loses digits"

/* ---- products times a number ----------------------------------------------------------------- */

/* How much larger sums of the new product may be than those as written, which may then overflow earlier:
 * alpha multiplies what was summed, the number in a weight what is summed. In f16 the end is near: no number
 * of the new product may be larger. */
#define GROWTH 16

static int stays_in_range(const graph *g, const gnode *product, double factor, int after) {
  const int half = g->values[product->out[0]].dtype == BS_F16, contract = product->op == GOP_CONTRACT;
  const double size = fabs(factor), most = half ? 1 : GROWTH;
  if (after) return (contract && !half) || size <= most;
  return !contract || size * most >= 1;
}

/* Multiplies A B of a product, and its bias where the number stood after it. *out_ok 0: it cannot be. */
static int32_t scale_product(graph *g, gnode *io_product, double factor, int after, int *out_ok,
                             bs_error *err) {
  const uint32_t slot = io_product->op == GOP_CONTRACT ? 2 : 1, bias = io_product->in[slot];
  int32_t rc = BS_OK;
  *out_ok = 0;
  if (!stays_in_range(g, io_product, factor, after)) return BS_OK;
  if (io_product->op == GOP_CONTRACT) {
    io_product->numbers[0] *= factor;
    if (!is_moderate(io_product->numbers[0])) return BS_OK;
  } else {
    rc = match_scaled_weight(g, io_product->weight, factor, &io_product->weight, err);
    if (rc != BS_OK || io_product->weight == GNONE) return rc;
  }
  if (after && bias != GNONE) {
    rc = scaled_bias(g, bias, factor, &io_product->in[slot], err);
    if (rc != BS_OK || io_product->in[slot] == GNONE) return rc;
  }
  *out_ok = 1;
  return rc;
}

/* The compute dtype of a map rounds its values no coarser than they are. */
static int computes(const gexpr *e, uint32_t dtype) {
  return bs_dtype_is_float(dtype) && (e->compute == dtype || (e->compute == BS_F32 && dtype != BS_F64));
}

/* ---- after a product ------------------------------------------------------------------------ */

/* The only step that reads an input multiplies it by a number. */
static int factor_of(const form *f, uint8_t slot, uint32_t *out_step, double *out_factor) {
  uint32_t readers = 0;
  for (uint32_t i = 0; i < f->e->n_out; i++) readers += 2u * (f->e->outs[i] == slot);
  for (uint32_t i = 0; i < f->e->n_steps; i++) {
    const uint8_t operands[3] = {f->e->steps[i].a, f->e->steps[i].b, f->e->steps[i].c};
    for (uint32_t k = 0; k < gexpr_arity(f->e->steps[i].op) && k < 3; k++) {
      if (operands[k] != slot) continue;
      readers++;
      *out_step = i;
    }
  }
  if (readers != 1) return 0;
  const uint8_t op = f->e->steps[*out_step].op, a = f->e->steps[*out_step].a, b = f->e->steps[*out_step].b;
  *out_factor = -1;
  if (op == BS_EXPR_NEG) return 1;
  if (op == BS_EXPR_MUL) return form_is_const(f, a == slot ? b : a, out_factor);
  if (op != BS_EXPR_DIV || !form_is_const(f, b, out_factor)) return 0;
  *out_factor = 1 / *out_factor;
  return 1;
}

/* A program whose input `slot` comes multiplied. */
typedef struct peeled {
  gexpr e;
  uint32_t slot;
  double factor;
} peeled;

static double of_multiplied(const double *in, const void *arg) {
  const peeled *p = arg;
  double given[GX_MAX_IN] = {0}, out[GX_MAX_OUT] = {0};
  memcpy(given, in, p->e.n_in * sizeof *in);
  given[p->slot] *= p->factor;
  return program_value(&p->e, given, out) ? out[0] : (double)NAN;
}

static int peel(const form *f, uint32_t slot, peeled *out) {
  uint32_t step = 0;
  *out = (peeled){.e = *f->e, .slot = slot};
  if (!factor_of(f, (uint8_t)slot, &step, &out->factor)) return 0;
  out->e.steps[step].op = BS_EXPR_MOV;
  out->e.steps[step].a = (uint8_t)slot;
  out->e.steps[step].b = out->e.steps[step].c = 0;
  program_tidy(&out->e);
  return program_is(f->e, of_multiplied, out);
}

/* c y + d b of a map of two inputs. */
typedef struct weighted_sum {
  uint32_t y, b; /* slots */
  double c, d;
} weighted_sum;

static double of_sum(const double *in, const void *arg) {
  const weighted_sum *w = arg;
  return w->c * in[w->y] + w->d * in[w->b];
}

static int is_weighted_sum(const gnode *map, const form *f, uint32_t slot, weighted_sum *out) {
  form_sum s;
  if (map->n_in != 2 || map->n_out != 1 || !form_sum_of(f, f->e->outs[0], &s) || s.n != 2 || s.has_constant ||
      s.operand[0] + s.operand[1] != GX_IN + 1)
    return 0;
  const uint32_t at = s.operand[0] == slot ? 0 : 1;
  *out = (weighted_sum){slot, 1 - slot, s.factor[at], s.factor[1 - at]};
  return out->c != 1 && program_is(f->e, of_sum, out);
}

/* c y + d b: the product gives c y, and the bias becomes d b. */
static int32_t try_sum(graph *g, const gpass_ctx *ctx, uint32_t map_id, uint32_t id, const weighted_sum *w,
                       uint32_t *out_changes, bs_error *err) {
  gnode product = g->nodes[id];
  gexpr e = {.compute = g->exprs[g->nodes[map_id].expr].compute, .n_in = 2, .n_steps = 1, .n_out = 1};
  uint32_t bias = g->nodes[map_id].in[w->b];
  int ok = 0;
  e.outs[0] = GX_STEP;
  e.steps[0].op = BS_EXPR_ADD;
  e.steps[0].b = GX_IN + 1;
  int32_t rc = w->d != 1 ? scaled_bias(g, bias, w->d, &bias, err) : BS_OK;
  if (rc == BS_OK && bias != GNONE) rc = scale_product(g, &product, w->c, 1, &ok, err);
  if (rc == BS_OK && (!ok || !match_accepts(g, &product))) gpass_miss(ctx, map_id, NOT_TAKEN, w->c);
  if (rc != BS_OK || !ok || !match_accepts(g, &product)) return rc;
  const uint32_t number = graph_expr(g, &e);
  if (number == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  rc = gpass_replace(g, ctx, &product, &id, 1, out_changes, err);
  if (rc == BS_OK) rc = graph_set_input(g, map_id, w->b, bias, err);
  if (rc == BS_OK) g->nodes[map_id].expr = number;
  return rc;
}

static int32_t try_behind(graph *g, const gpass_ctx *ctx, uint32_t map_id, uint32_t slot,
                          uint32_t *out_changes, bs_error *err) {
  const gnode map = g->nodes[map_id];
  uint32_t id = match_only(g, map.in[slot], GOP_MATMUL, map_id);
  if (id == GNONE) id = match_only(g, map.in[slot], GOP_CONTRACT, map_id);
  if (id == GNONE || match_slot(g, &map, g->values[map.in[slot]].base) != slot) return BS_OK;
  gnode product = g->nodes[id];
  const form f = form_of(g, &map);
  const uint32_t dtype =
      g->values[product.out[0]].dtype; /* of f16, the map could give numbers beyond its end */
  weighted_sum w;
  peeled p;
  int ok = 0;
  if (product.activation != BS_ACT_NONE || (product.op == GOP_MATMUL && product.in[2] != GNONE) ||
      !computes(f.e, dtype) || (dtype == BS_F16 && f.rounds != BS_F16)) {
    if (is_weighted_sum(&map, &f, slot, &w) || peel(&f, slot, &p))
      gpass_miss(
          ctx, map_id,
          "the product in front has an activation or a residual, or the number is applied in another dtype");
    return BS_OK;
  }
  if (is_weighted_sum(&map, &f, slot, &w)) return try_sum(g, ctx, map_id, id, &w, out_changes, err);
  if (!peel(&f, slot, &p)) return BS_OK;
  int32_t rc = scale_product(g, &product, p.factor, 1, &ok, err);
  if (rc == BS_OK && !ok) gpass_miss(ctx, map_id, NOT_TAKEN, p.factor);
  if (rc != BS_OK || !ok || !match_accepts(g, &product)) return rc;
  const uint32_t number = graph_expr(g, &p.e);
  if (number == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  rc = gpass_replace(g, ctx, &product, &id, 1, out_changes, err);
  if (rc == BS_OK) g->nodes[map_id].expr = number;
  return rc;
}

/* ---- before a product ------------------------------------------------------------------------ */

static double times(const double *in, const void *arg) {
  return in[0] * *(const double *)arg;
}

/* The map that writes a root, which only this node reads, by one argument: a number times a value. */
static int is_multiplied(const graph *g, const gnode *product, uint32_t id, uint32_t k, uint32_t *out_map,
                         double *out_factor) {
  const uint32_t root = g->values[product->in[k]].base;
  *out_map = match_only(g, root, GOP_MAP, id);
  if (*out_map == GNONE) return 0;
  for (uint32_t i = 0; i < product->n_in; i++)
    if (i != k && product->in[i] != GNONE && g->values[product->in[i]].base == root) return 0;
  const gnode *map = &g->nodes[*out_map];
  const form f = form_of(g, map);
  return map->n_in == 1 && map->n_out == 1 && g->values[map->in[0]].dtype == g->values[root].dtype &&
         computes(f.e, g->values[root].dtype) && form_is_scaled(&f, f.e->outs[0], GX_IN, out_factor) &&
         program_is(f.e, times, out_factor);
}

/* What `seen`, a view of what the map writes, shows of what the map reads; *out_value GNONE: it is no view.
 */
static int32_t seen_before(graph *g, uint32_t read, uint32_t seen, uint32_t *out_value, bs_error *err) {
  const gvalue x = g->values[read], v = g->values[seen], root = g->values[v.base];
  *out_value = GNONE;
  if (graph_count(&x) != graph_count(&root)) return BS_OK;
  if (graph_is_dense(&x))
    return graph_add_view(g, x.base, x.dtype, v.rank, v.dims, v.strides, x.offset + v.offset, out_value, err);
  if (graph_is_dense(&v) && match_dims(g, read, seen)) *out_value = read;
  return BS_OK;
}

static int32_t try_before(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t k, uint32_t *out_changes,
                          bs_error *err) {
  gnode product = g->nodes[id];
  uint32_t map;
  double factor;
  int ok = 0;
  if (!is_multiplied(g, &product, id, k, &map, &factor)) return BS_OK;
  int32_t rc = seen_before(g, g->nodes[map].in[0], product.in[k], &product.in[k], err);
  if (rc == BS_OK && product.in[k] == GNONE)
    gpass_miss(ctx, map, "the product cannot read what is multiplied without a copy");
  if (rc != BS_OK || product.in[k] == GNONE) return rc;
  if (product.op == GOP_MATMUL && g->values[product.in[k]].strides[1] != 1) {
    gpass_miss(ctx, map, "rows of what is multiplied have gaps");
    return BS_OK;
  }
  rc = scale_product(g, &product, factor, 0, &ok, err);
  if (rc == BS_OK && !ok) gpass_miss(ctx, map, NOT_TAKEN, factor);
  if (rc != BS_OK || !ok) return rc;
  product.origin = graph_origin_join(g, product.origin, g->nodes[map].origin);
  const uint32_t old[2] = {id, map};
  return gpass_replace(g, ctx, &product, old, 2, out_changes, err);
}

int32_t gpass_alpha(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t id = g->first, next; id != GNONE && rc == BS_OK; id = next) {
    next = g->nodes[id].next;
    for (uint32_t k = 0; rc == BS_OK && g->nodes[id].op == GOP_MAP && k < g->nodes[id].n_in; k++)
      rc = try_behind(g, ctx, id, k, out_changes, err);
    const uint32_t op = g->nodes[id].op, before = *out_changes, n = op == GOP_CONTRACT ? 2 : op == GOP_MATMUL;
    for (uint32_t k = 0; rc == BS_OK && k < n && *out_changes == before; k++)
      rc = try_before(g, ctx, id, k, out_changes, err);
  }
  return rc;
}
