/* SPDX-License-Identifier: MIT
 * spec.c - graphs as data: choices, values, nodes and their shapes. */
#include "tests/graph/fuzz_passes/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tests/graph/fuzz_passes/changes.h"

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

uint32_t draw(spec *s, uint32_t n) {
  choices *c = s->choices;
  if (c->n == SPEC_CHOICES || n == 0) {
    s->bad = 1;
    return 0;
  }
  uint32_t made = 0;
  if (c->n < c->n_given)
    made = c->given[c->n] % n;
  else if (!c->quiet)
    made = (uint32_t)(next_random(&c->state) >> 32) % n;
  c->made[c->n++] = made;
  return made;
}

int seldom(spec *s, uint32_t n) {
  return draw(s, n) == n - 1u;
}

void spec_clear(spec *s) {
  for (uint32_t i = 0; i < s->n_values; i++) free(s->values[i].data);
  memset(s, 0, sizeof *s);
}

int64_t spec_count(const value *v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; i++) n *= v->dims[i];
  return n;
}

int is_float_dtype(uint32_t dtype) {
  return bs_dtype_is_float(dtype);
}

static int add_value(spec *s, const value *v) {
  if (s->n_values == SPEC_VALUES || v->rank > SPEC_RANK || spec_count(v) > SPEC_ELEMENTS) {
    s->bad = 1;
    return 0;
  }
  s->values[s->n_values] = *v;
  return (int)s->n_values++;
}

int add_source(spec *s, uint32_t kind, uint32_t role, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  value v = {.dtype = dtype, .kind = kind, .rank = rank, .role = role};
  if (rank > SPEC_RANK) {
    s->bad = 1;
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) v.dims[i] = dims[i];
  return add_value(s, &v);
}

int add_data(spec *s, uint32_t dtype, uint32_t rank, const int64_t *dims, const double *data) {
  const int v = add_source(s, VALUE_CONST, 0, dtype, rank, dims);
  if (s->bad) return 0;
  const int64_t n = spec_count(&s->values[v]);
  s->values[v].data = malloc(((size_t)n + 1u) * sizeof *data);
  if (s->values[v].data == NULL) {
    s->bad = 1;
    return 0;
  }
  s->values[v].exact = n == 1 || !is_float_dtype(dtype);
  for (int64_t i = 0; i < n; i++) {
    unsigned char one[8];
    bs_store_f64(dtype, one, 0, data[i]);
    s->values[v].data[i] = bs_load_f64(dtype, one, 0);
  }
  return v;
}

int add_ints(spec *s, uint32_t n, const int64_t *values) {
  double data[16];
  const int64_t dims[1] = {n};
  for (uint32_t i = 0; i < n && i < 16; i++) data[i] = (double)values[i];
  return add_data(s, BS_I64, 1, dims, data);
}

int add_number(spec *s, double number) {
  if (s->n_numbers < 32) s->numbers[s->n_numbers++] = number;
  return add_data(s, s->dtype, 0, NULL, &number);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int64_t attr_int(const char *attrs, const char *name, int64_t otherwise) {
  const char *at = strstr(attrs, name);
  return at != NULL ? strtoll(at + strlen(name), NULL, 10) : otherwise;
}

static int broadcast(value *io, const value *b) {
  const uint32_t rank = io->rank > b->rank ? io->rank : b->rank;
  int64_t dims[SPEC_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    const int64_t x = i + io->rank >= rank ? io->dims[i + io->rank - rank] : 1;
    const int64_t y = i + b->rank >= rank ? b->dims[i + b->rank - rank] : 1;
    if (x != y && x != 1 && y != 1) return 0;
    dims[i] = x > y ? x : y;
  }
  io->rank = rank;
  memcpy(io->dims, dims, sizeof dims);
  return 1;
}

static int shape_broadcast(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  for (uint32_t i = 1; i < n->n_in; i++)
    if (n->in[i] != SPEC_NONE && !broadcast(out, &s->values[n->in[i]])) return 0;
  return 1;
}

static int shape_select(const spec *s, const node *n, value *out) {
  if (!shape_broadcast(s, n, out)) return 0;
  out->dtype = s->values[n->in[1]].dtype;
  return 1;
}

static int shape_truth(const spec *s, const node *n, value *out) {
  const int ok = shape_broadcast(s, n, out);
  out->dtype = BS_BOOL;
  return ok;
}

static int shape_same(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  return 1;
}

static int shape_cast(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  for (const cast_type *t = cast_types; t->dtype != 0; t++)
    if (t->onnx == attr_int(n->attrs, "to=", 0)) out->dtype = t->dtype;
  return 1;
}

/* The dtype is that of the scales. */
static int shape_dequantize(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  out->dtype = s->values[n->in[1]].dtype;
  return 1;
}

/* Rows of a matrix; the index is i64 [n]. */
static int shape_gather(const spec *s, const node *n, value *out) {
  const value *index = &s->values[n->in[1]];
  *out = s->values[n->in[0]];
  if (out->rank != 2 || index->rank != 1) return 0;
  out->dims[0] = index->dims[0];
  return 1;
}

static int shape_matmul(const spec *s, const node *n, value *out) {
  value a = s->values[n->in[0]], b = s->values[n->in[1]];
  if (a.rank < 2 || b.rank < 2 || a.dims[a.rank - 1] != b.dims[b.rank - 2]) return 0;
  const int64_t rows = a.dims[a.rank - 2], columns = b.dims[b.rank - 1];
  a.rank -= 2;
  b.rank -= 2;
  if (!broadcast(&a, &b)) return 0;
  a.dims[a.rank] = rows;
  a.dims[a.rank + 1] = columns;
  a.rank += 2;
  *out = a;
  return 1;
}

static int shape_gemm(const spec *s, const node *n, value *out) {
  const value *b = &s->values[n->in[1]];
  *out = s->values[n->in[0]];
  if (out->rank != 2 || b->rank != 2) return 0;
  const int turned = attr_int(n->attrs, "transB=", 0) != 0;
  if (out->dims[1] != b->dims[turned ? 1 : 0]) return 0;
  out->dims[1] = b->dims[turned ? 0 : 1];
  if (n->n_in < 3) return 1;
  value c = *out;
  return broadcast(&c, &s->values[n->in[2]]) && c.rank == 2 && spec_count(&c) == spec_count(out);
}

static int shape_transpose(const spec *s, const node *n, value *out) {
  const value v = s->values[n->in[0]];
  *out = v;
  const char *at = n->attrs + 5; /* behind "perm=" */
  for (uint32_t i = 0; i < v.rank; i++, at += 2) {
    const int64_t from = at[0] - '0';
    if (from < 0 || from >= v.rank) return 0;
    out->dims[i] = v.dims[from];
    if (at[1] == '\0') return i + 1u == v.rank;
  }
  return 0;
}

static int shape_reshape(const spec *s, const node *n, value *out) {
  const value *to = &s->values[n->in[1]];
  *out = s->values[n->in[0]];
  const int64_t count = spec_count(out);
  out->rank = (uint32_t)to->dims[0];
  for (uint32_t i = 0; i < out->rank; i++) out->dims[i] = (int64_t)to->data[i];
  return spec_count(out) == count;
}

static int shape_expand(const spec *s, const node *n, value *out) {
  const value *to = &s->values[n->in[1]];
  value target = {.rank = (uint32_t)to->dims[0]};
  for (uint32_t i = 0; i < target.rank; i++) target.dims[i] = (int64_t)to->data[i];
  *out = s->values[n->in[0]];
  return broadcast(out, &target);
}

static int shape_reduce(const spec *s, const node *n, value *out) {
  const value v = s->values[n->in[0]];
  const int64_t named = (int64_t)s->values[n->in[1]].data[0], axis = named < 0 ? named + v.rank : named;
  *out = v;
  if (axis < 0 || axis >= v.rank) return 0;
  if (attr_int(n->attrs, "keepdims=", 1)) {
    out->dims[axis] = 1;
    return 1;
  }
  for (uint32_t i = (uint32_t)axis; i + 1 < v.rank; i++) out->dims[i] = v.dims[i + 1];
  out->rank--;
  return 1;
}

/* Starts, ends and axes are i64 [1]; steps of 1 or 2. */
static int shape_slice(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  int64_t from = (int64_t)s->values[n->in[1]].data[0], to = (int64_t)s->values[n->in[2]].data[0];
  const int64_t axis = (int64_t)s->values[n->in[3]].data[0];
  const int64_t step = n->n_in > 4 ? (int64_t)s->values[n->in[4]].data[0] : 1;
  if (axis < 0 || axis >= out->rank) return 0;
  const int64_t d = out->dims[axis];
  if (from < 0) from += d;
  if (to < 0) to += d;
  if (to > d) to = d;
  if (from < 0 || from >= to) return 0;
  out->dims[axis] = (to - from + step - 1) / step;
  return 1;
}

static int shape_concat(const spec *s, const node *n, value *out) {
  *out = s->values[n->in[0]];
  const int64_t named = attr_int(n->attrs, "axis=", 0), axis = named < 0 ? named + out->rank : named;
  if (axis < 0 || axis >= out->rank) return 0;
  for (uint32_t i = 1; i < n->n_in; i++) {
    const value *v = &s->values[n->in[i]];
    if (v->rank != out->rank) return 0;
    for (uint32_t d = 0; d < v->rank; d++)
      if (d != axis && v->dims[d] != out->dims[d]) return 0;
    out->dims[axis] += v->dims[axis];
  }
  return 1;
}

/* Operators: how their shape comes about, and whether they round: 1 where the result is one of the inputs'
 * numbers. */
static const struct rule {
  const char *op;
  int (*shape)(const spec *s, const node *n, value *out);
  uint32_t exact;
} rules[] = {
    {"Abs", shape_same, 1},
    {"Neg", shape_same, 1},
    {"Relu", shape_same, 1},
    {"Identity", shape_same, 1},
    {"Sqrt", shape_same, 0},
    {"Exp", shape_same, 0},
    {"Log", shape_same, 0},
    {"Erf", shape_same, 0},
    {"Tanh", shape_same, 0},
    {"Sigmoid", shape_same, 0},
    {"Softplus", shape_same, 0},
    {"Gelu", shape_same, 0},
    {"Reciprocal", shape_same, 0},
    {"Sin", shape_same, 0},
    {"Cos", shape_same, 0},
    {"Softmax", shape_same, 0},
    {"LayerNormalization", shape_same, 0},
    {"RMSNormalization", shape_same, 0},
    {"Floor", shape_same, 1},
    {"Sign", shape_same, 1},
    {"Not", shape_same, 1},
    {"IsNaN", shape_truth, 1},
    {"IsInf", shape_truth, 1},
    {"Equal", shape_truth, 1},
    {"Greater", shape_truth, 1},
    {"Less", shape_truth, 1},
    {"LessOrEqual", shape_truth, 1},
    {"And", shape_truth, 1},
    {"Add", shape_broadcast, 0},
    {"Sub", shape_broadcast, 0},
    {"Mul", shape_broadcast, 0},
    {"Div", shape_broadcast, 0},
    {"Pow", shape_broadcast, 0},
    {"Max", shape_broadcast, 1},
    {"Min", shape_broadcast, 1},
    {"Clip", shape_broadcast, 1},
    {"Where", shape_select, 1},
    {"Cast", shape_cast, 0},
    {"DequantizeLinear", shape_dequantize, 0},
    {"Gather", shape_gather, 1},
    {"MatMul", shape_matmul, 0},
    {"Gemm", shape_gemm, 0},
    {"Transpose", shape_transpose, 1},
    {"Reshape", shape_reshape, 1},
    {"Expand", shape_expand, 1},
    {"ReduceSum", shape_reduce, 0},
    {"ReduceMean", shape_reduce, 0},
    {"ReduceMax", shape_reduce, 1},
    {"ReduceSumSquare", shape_reduce, 0},
    {"Slice", shape_slice, 1},
    {"Concat", shape_concat, 1},
};

int raw_op(spec *s, const char *name, const char *attrs, const int *in, uint32_t n_in) {
  if (s->bad || s->n_nodes == SPEC_NODES || n_in > 6) {
    s->bad = 1;
    return 0;
  }
  const struct rule *r = rules;
  while (r < rules + sizeof rules / sizeof *rules && strcmp(r->op, name) != 0) r++;
  node *n = &s->nodes[s->n_nodes];
  *n = (node){.n_in = n_in};
  snprintf(n->op, sizeof n->op, "%s", name);
  snprintf(n->attrs, sizeof n->attrs, "%s", attrs);
  for (uint32_t i = 0; i < n_in; i++) n->in[i] = in[i];
  value out = {0};
  if (r == rules + sizeof rules / sizeof *rules || !r->shape(s, n, &out)) {
    s->bad = 1;
    return 0;
  }
  out.kind = VALUE_NODE;
  out.exact = r->exact;
  out.data = NULL;
  n->out = add_value(s, &out);
  s->n_nodes++;
  return n->out;
}

int op(spec *s, const char *name, const char *attrs, int a, int b, int c) {
  const int in[3] = {a, b, c};
  uint32_t n = 3;
  while (n > 0 && in[n - 1] == SPEC_NONE) n--;
  return change_here(s, raw_op(s, name, attrs, in, n));
}

int op1(spec *s, const char *name, int a) {
  return op(s, name, "", a, SPEC_NONE, SPEC_NONE);
}

int op2(spec *s, const char *name, int a, int b) {
  return op(s, name, "", a, b, SPEC_NONE);
}

void add_output(spec *s, int v) {
  for (uint32_t i = 0; i < s->n_outputs; i++)
    if (s->outputs[i] == v) return;
  if (s->bad || s->n_outputs == SPEC_OUTPUTS) return;
  s->outputs[s->n_outputs++] = v;
}
