/* SPDX-License-Identifier: MIT
 * inside_op.c - see inside_op.h. */
#include "lab/sim/inside_op.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/kernel/problem.h"

/* ---- maps, copy and send ----------------------------------------------------------------------- */

/* Operands of an element and ops of the vector unit on it: counts of the plain loops. */
static const struct simple {
  const char *name;
  uint32_t inputs, outputs, ops;
  uint32_t out_bytes; /* 0: as the inputs */
  uint32_t rows;      /* 1: a row lies in one tile; 2: and becomes one element */
} simples[] = {{"map", 1, 1, 1, 0, 0},
               {"activate", 1, 1, 1, 0, 0},
               {"convert", 1, 1, 1, 4, 0},
               {"normalize", 1, 1, 4, 0, 1},
               {"softmax", 1, 1, 5, 0, 1},
               {"reduce", 1, 1, 1, 0, 2},
               {"quantize_groups", 1, 1, 2, 1, 0},
               {"sgd_update", 2, 1, 2, 0, 0},
               {"adamw_update", 4, 3, 12, 0, 0},
               {"copy", 1, 1, 0, 0, 0},
               {"send", 1, 1, 0, 0, 0}};
enum { SIMPLES = sizeof simples / sizeof simples[0] };

static const struct simple *simple_of(const char *text) {
  const size_t n = strcspn(text, " ");
  for (int i = 0; i < SIMPLES; i++)
    if (strlen(simples[i].name) == n && strncmp(simples[i].name, text, n) == 0) return &simples[i];
  return NULL;
}

static int32_t bad_size(const char *text, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-INSIDE-OP", "'%.60s' is not NAME nELEMENTS[bROWS][:DTYPE]", text);
  bs_error_hint(err, "as in 'normalize n4096b64:bf16'");
  return BS_USAGE;
}

/* A name that no dtype has. */
static int32_t bad_dtype(const char *text, const char *dtype, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-INSIDE-OP",
               "'%.60s' is not NAME nELEMENTS[bROWS][:DTYPE]: there is no dtype '%.20s'", text, dtype);
  bs_error_hint(err, "as f32, bf16 or f8e4m3");
  return BS_USAGE;
}

/* The number behind a letter; 0: there is none. */
static int number_of(const char **inout_at, char letter, int64_t *out) {
  char word[32];
  if (**inout_at != letter) return 0;
  const char *from = *inout_at + 1;
  const size_t n = strcspn(from, letter == 'n' ? "b:" : ":");
  if (n == 0 || n >= sizeof word) return 0;
  memcpy(word, from, n);
  word[n] = '\0';
  *inout_at = from + n;
  return bs_parse_size(word, out) && *out >= 1 && *out <= INT64_C(1) << 40;
}

static int32_t read_simple(const struct simple *s, const char *text, sim_op *out, uint32_t *out_dtype,
                           char *out_text, size_t size, bs_error *err) {
  const char *at = text + strlen(s->name);
  int64_t columns = 0, rows = 1;
  while (*at == ' ') at++;
  if (!number_of(&at, 'n', &columns)) return bad_size(text, err);
  if (*at == 'b' && !number_of(&at, 'b', &rows)) return bad_size(text, err);
  *out_dtype = *at == ':' ? bs_dtype_parse(at + 1) : BS_F32;
  if (*at == ':' && *out_dtype == 0) return bad_dtype(text, at + 1, err);
  if ((*at != '\0' && *at != ':') || columns > (INT64_C(1) << 40) / rows) return bad_size(text, err);
  const uint32_t bytes = BS_DTYPE_BYTES(*out_dtype);
  const uint64_t elements = (uint64_t)(columns * rows);
  snprintf(out_text, size, "%s n%lld%s", s->name, (long long)columns, rows > 1 ? "b" : "");
  if (rows > 1) snprintf(out_text + strlen(out_text), size - strlen(out_text), "%lld", (long long)rows);
  snprintf(out_text + strlen(out_text), size - strlen(out_text), ":%s", bs_dtype_name(*out_dtype));
  if (strcmp(s->name, "send") == 0) {
    *out = (sim_op){.kind = SIM_OP_SEND, .send = {.elements = elements, .bytes = bytes, .shift = 1}};
    return BS_OK;
  }
  *out = (sim_op){.kind = SIM_OP_MAP,
                  .map = {.elements = elements,
                          .inputs = s->inputs,
                          .outputs = s->outputs,
                          .in_bytes = bytes,
                          .out_bytes = s->out_bytes > 0 ? s->out_bytes : bytes,
                          .ops = s->ops,
                          .row = s->rows > 0 ? (uint64_t)columns : 1,
                          .out_of = s->rows > 1 ? (uint64_t)columns : 1}};
  return BS_OK;
}

/* ---- products and attention -------------------------------------------------------------------- */

static int32_t product_of(const bs_kernel_problem *q, uint32_t epilogue, sim_op *out) {
  const uint64_t b = (uint64_t)q->B, n = (uint64_t)q->N, k = (uint64_t)bs_kernel_w_cols(q);
  sim_product_shape *s = &out->product;
  out->kind = SIM_OP_PRODUCT;
  if (q->kind == BS_KERNEL_MATMUL)
    *s = (sim_product_shape){.m = b, .n = n, .k = k};
  else if (q->kind == BS_KERNEL_MATMUL_DX)
    *s = (sim_product_shape){.m = b, .n = k, .k = n};
  else if (q->kind == BS_KERNEL_MATMUL_DW)
    *s = (sim_product_shape){.m = n, .n = k, .k = b};
  else
    return BS_UNSUPPORTED;
  s->in_bytes = BS_DTYPE_BYTES(q->dtype);
  s->out_bytes = BS_DTYPE_BYTES(bs_kernel_y_dtype(q));
  s->epilogue = 1 + epilogue;
  return BS_OK;
}

/* The keys of bs_kernel_keys. */
static void attention_of(const bs_kernel_problem *q, sim_op *out) {
  const int64_t shift = q->causal == BS_CAUSAL_LOWER_RIGHT ? q->T - q->S : 0;
  int64_t end = q->causal != BS_CAUSAL_NONE ? shift + 1 : SIM_SEES_LAST;
  if (q->right > 0 && shift + q->right < end) end = shift + q->right;
  out->kind = SIM_OP_ATTENTION;
  out->attention = (sim_attention_shape){.heads = (uint64_t)(q->B * q->H),
                                         .group = (uint64_t)(q->H / q->G),
                                         .s = (uint64_t)q->S,
                                         .t = (uint64_t)q->T,
                                         .d = (uint64_t)q->D,
                                         .e = (uint64_t)q->E,
                                         .sees_from = q->left > 0 ? shift - q->left + 1 : SIM_SEES_FIRST,
                                         .sees_end = end,
                                         .in_bytes = BS_DTYPE_BYTES(q->dtype),
                                         .out_bytes = BS_DTYPE_BYTES(bs_kernel_y_dtype(q))};
}

int32_t bs_inside_op_read(const char *text, uint32_t epilogue, sim_op *out, uint32_t *out_dtype,
                          char *out_text, size_t size, bs_error *err) {
  const struct simple *simple = simple_of(text);
  bs_kernel_problem problem;
  if (simple != NULL) return read_simple(simple, text, out, out_dtype, out_text, size, err);
  const int attention = strncmp(text, "attention ", 10) == 0;
  int32_t rc = bs_kernel_problem_parse(attention ? text + 10 : text, &problem, err);
  if (rc != BS_OK) return rc;
  const int words = problem.kind == BS_KERNEL_SDPA ? snprintf(out_text, size, "attention ") : 0;
  bs_kernel_problem_text(&problem, out_text + words, size - (size_t)words);
  *out_dtype = problem.dtype;
  if (problem.kind == BS_KERNEL_SDPA) {
    attention_of(&problem, out);
    return BS_OK;
  }
  if (product_of(&problem, epilogue, out) == BS_OK) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "%s has no program for the inside of a device",
               bs_kernel_problem_op(problem.kind));
  bs_error_hint(err,
                "matmul, matmul_dx, matmul_dw, attention, map, copy, send and others of "
                "share/doc/blockshock/inside.md do");
  return BS_UNSUPPORTED;
}

/* ---- operands ---------------------------------------------------------------------------------- */

void bs_inside_op_bytes(const sim_op *op, double *out_copied, double *out_divided) {
  const sim_product_shape *p = &op->product;
  const sim_attention_shape *a = &op->attention;
  const sim_map_shape *m = &op->map;
  const uint64_t kv_heads = op->kind == SIM_OP_ATTENTION ? a->heads / a->group : 0;
  *out_copied = 0;
  switch (op->kind) {
    case SIM_OP_PRODUCT:
      *out_copied = (double)(p->m + p->n) * (double)p->k * p->in_bytes;
      *out_divided = (double)p->m * (double)p->n * p->out_bytes;
      return;
    case SIM_OP_ATTENTION:
      *out_copied = (double)kv_heads * (double)a->t * (double)(a->d + a->e) * a->in_bytes;
      *out_divided =
          (double)a->heads * (double)a->s * ((double)a->d * a->in_bytes + (double)a->e * a->out_bytes);
      return;
    case SIM_OP_MAP:
      *out_divided =
          (double)m->elements * ((double)m->inputs * m->in_bytes +
                                 (double)m->outputs * m->out_bytes / (double)(m->out_of > 0 ? m->out_of : 1));
      return;
    default:
      *out_divided = 2.0 * (double)op->send.elements * op->send.bytes;
  }
}
