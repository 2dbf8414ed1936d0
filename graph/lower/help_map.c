/* SPDX-License-Identifier: MIT
 * help_map.c - the builder of programs for map, and the maps that every family needs: copy and cast. */
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/lower/frame.h"

uint32_t lower_compute(uint32_t dtype) {
  if (dtype == BS_F64) return BS_F64;
  return bs_dtype_is_float(dtype) ? BS_F32 : BS_I64;
}

void lower_map_begin(lower_map *m, lower_ctx *c, uint32_t compute) {
  memset(m, 0, sizeof *m);
  m->c = c;
  m->expr.compute = compute;
}

uint8_t lower_map_in(lower_map *m, uint32_t value) {
  for (uint32_t i = 0; i < m->expr.n_in; i++)
    if (m->in[i] == value) return (uint8_t)(GX_IN + i);
  if (value >= m->c->g->n_values) m->wrong = "it reads a value that does not exist";
  if (m->expr.n_in == GX_MAX_IN) m->wrong = "it has too many inputs";
  if (m->wrong != NULL) return 0;
  m->in[m->expr.n_in] = value;
  return (uint8_t)(GX_IN + m->expr.n_in++);
}

static uint8_t map_bits(lower_map *m, uint64_t bits) {
  for (uint32_t i = 0; i < m->expr.n_const; i++)
    if (m->expr.consts[i] == bits) return (uint8_t)(GX_CONST + i);
  if (m->expr.n_const == GX_MAX_CONST) {
    m->wrong = "it has too many constants";
    return 0;
  }
  m->expr.consts[m->expr.n_const] = bits;
  return (uint8_t)(GX_CONST + m->expr.n_const++);
}

uint8_t lower_map_const_int(lower_map *m, int64_t value) {
  uint64_t bits;
  if (m->expr.compute != BS_I64) return lower_map_const(m, (double)value);
  memcpy(&bits, &value, sizeof bits);
  return map_bits(m, bits);
}

uint8_t lower_map_const(lower_map *m, double value) {
  uint64_t bits;
  if (m->expr.compute == BS_I64) {
    int64_t whole = 0;
    bs_convert(BS_I64, &whole, BS_F64, &value, 1);
    return lower_map_const_int(m, whole);
  }
  memcpy(&bits, &value, sizeof bits);
  return map_bits(m, bits);
}

uint8_t lower_map_step(lower_map *m, uint8_t op, uint8_t a, uint8_t b, uint8_t c) {
  if (m->expr.n_steps == GX_MAX_STEPS) m->wrong = "it has too many steps";
  if (m->wrong != NULL) return 0;
  const uint32_t i = m->expr.n_steps++;
  m->expr.steps[i].op = op;
  m->expr.steps[i].a = a;
  m->expr.steps[i].b = b;
  m->expr.steps[i].c = c;
  return (uint8_t)(GX_STEP + i);
}

static int32_t map_node(lower_map *m, uint32_t rank, uint32_t n_out, const uint8_t *outs,
                        const uint32_t *into, bs_error *err) {
  if (n_out > GX_MAX_OUT) m->wrong = "it has too many outputs";
  if (m->wrong != NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-EXPR", "a map is too large: %s", m->wrong);
  gnode n = {.op = GOP_MAP, .n_in = m->expr.n_in, .n_out = (uint8_t)n_out, .weight = GNONE};
  for (uint32_t i = 0; i < m->expr.n_in; i++) {
    const int32_t rc = lower_argument(m->c, m->in[i], rank, 0, &n.in[i], err);
    if (rc != BS_OK) return rc;
  }
  m->expr.n_out = (uint8_t)n_out;
  for (uint32_t i = 0; i < n_out; i++) {
    m->expr.outs[i] = outs[i];
    n.out[i] = into[i];
  }
  n.expr = graph_expr(m->c->g, &m->expr);
  if (n.expr == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  return lower_emit(m->c, &n, err);
}

/* Every input is of these dims or 1 in their place: map's own rule. */
static int32_t inputs_fit(lower_map *m, const gmodel_node *node, uint32_t rank, const int64_t *dims,
                          bs_error *err) {
  for (uint32_t i = 0; i < m->expr.n_in; i++) {
    uint32_t unused;
    const int32_t rc = lower_expand(m->c, node, m->in[i], rank, dims, &unused, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t lower_map_emit(lower_map *m, const gmodel_node *node, uint32_t rank, const int64_t *dims,
                       uint32_t n_out, const uint8_t *outs, const uint32_t *dtypes, uint32_t *out_values,
                       bs_error *err) {
  int64_t shape[BS_MAX_DIMS] = {0};
  int32_t rc = BS_OK;
  if (dims == NULL && rank == 0)
    rc = lower_broadcast(m->c, node, m->in, m->expr.n_in, &rank, shape, err);
  else
    rc = inputs_fit(m, node, rank, dims, err);
  for (uint32_t i = 0; i < rank && dims != NULL; i++) shape[i] = dims[i];
  for (uint32_t i = 0; i < n_out && rc == BS_OK; i++)
    rc = lower_temp(m->c, dtypes[i], rank, shape, &out_values[i], err);
  return rc == BS_OK ? map_node(m, rank, n_out, outs, out_values, err) : rc;
}

int32_t lower_map_emit_into(lower_map *m, const gmodel_node *node, uint32_t n_out, const uint8_t *outs,
                            const uint32_t *into, bs_error *err) {
  const gvalue v = m->c->g->values[into[0]];
  const int32_t rc = inputs_fit(m, node, v.rank, v.dims, err);
  return rc == BS_OK ? map_node(m, v.rank, n_out, outs, into, err) : rc;
}

int32_t lower_map_one(lower_map *m, const gmodel_node *node, uint8_t out, uint32_t dtype, uint32_t *out_value,
                      bs_error *err) {
  return lower_map_emit(m, node, 0, NULL, 1, &out, &dtype, out_value, err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static const gmodel_node copy_node = {.op = "copy", .domain = "", .name = ""};

int32_t lower_copy_into(lower_ctx *c, uint32_t value, uint32_t into, bs_error *err) {
  lower_map m;
  lower_map_begin(&m, c, lower_compute(lower_dtype(c, value)));
  const uint8_t x = lower_map_in(&m, value);
  return lower_map_emit_into(&m, &copy_node, 1, &x, &into, err);
}

int32_t lower_cast(lower_ctx *c, uint32_t value, uint32_t dtype, uint32_t *out_value, bs_error *err) {
  const gvalue v = c->g->values[value];
  if (v.dtype == dtype) {
    *out_value = value;
    return BS_OK;
  }
  const int32_t rc = lower_temp(c, dtype, v.rank, v.dims, out_value, err);
  if (rc != BS_OK) return rc;
  lower_map m;
  const int whole = v.dtype == BS_I8 || v.dtype == BS_U8 || v.dtype == BS_I32; /* rounded once, as by i64 */
  const uint32_t compute = dtype == BS_F32 && whole                        ? BS_F32
                           : dtype == BS_F64 && bs_dtype_is_float(v.dtype) ? BS_F64
                                                                           : lower_compute(v.dtype);
  lower_map_begin(&m, c, compute);
  const uint8_t x = lower_map_in(&m, value);
  return lower_map_emit_into(&m, &copy_node, 1, &x, out_value, err);
}

int32_t lower_copy(lower_ctx *c, uint32_t value, uint32_t *out_value, bs_error *err) {
  const gvalue v = c->g->values[value];
  const int32_t rc = lower_temp(c, v.dtype, v.rank, v.dims, out_value, err);
  return rc == BS_OK ? lower_copy_into(c, value, *out_value, err) : rc;
}

int32_t lower_temp(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                   bs_error *err) {
  return graph_add_root(c->g, GV_TEMP, dtype, rank, dims, NULL, NULL, out_value, err);
}
