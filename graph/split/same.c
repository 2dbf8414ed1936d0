/* SPDX-License-Identifier: MIT
 * same.c - sums of what processes that open one session must have in common: the model with its constants,
 * the method, options and sizes. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/split/tell.h"

static const uint64_t WHOLE = UINT64_C(64) << 20, PIECE = UINT64_C(1) << 20;
enum { PIECES = 64, FIRST_BYTES = 64, QUANT_ROWS = 8 };

static void add(uint64_t *io_sum, const void *data, uint64_t bytes) {
  const unsigned char *from = data;
  uint64_t sum = *io_sum ^ bytes;
  for (uint64_t at = 0; at < bytes; at += sizeof sum) {
    uint64_t word = 0;
    memcpy(&word, from + at, bytes - at < sizeof word ? (size_t)(bytes - at) : sizeof word);
    sum = (sum ^ word) * UINT64_C(1099511628211);
    sum ^= sum >> 32;
  }
  *io_sum = sum;
}

static void add_number(uint64_t *io_sum, uint64_t number) {
  add(io_sum, &number, sizeof number);
}

/* NULL and "" differ. */
static void add_text(uint64_t *io_sum, const char *text) {
  add_number(io_sum, text != NULL);
  if (text != NULL) add(io_sum, text, strlen(text));
}

static void add_texts(uint64_t *io_sum, const char *const *texts, uint64_t n) {
  add_number(io_sum, n);
  for (uint64_t i = 0; i < n; i++) add_text(io_sum, texts[i]);
}

/* ---- the model ------------------------------------------------------------------------------- */

static void add_attr(uint64_t *io_sum, const bs_attr *a) {
  add_text(io_sum, a->name);
  add_number(io_sum, a->type);
  add_number(io_sum, (uint64_t)a->i);
  add(io_sum, &a->f, sizeof a->f);
  add_text(io_sum, a->text);
  if (a->ints != NULL) add(io_sum, a->ints, a->count * sizeof *a->ints);
  if (a->floats != NULL) add(io_sum, a->floats, a->count * sizeof *a->floats);
  if (a->texts != NULL) add_texts(io_sum, a->texts, a->count);
}

static void add_node(uint64_t *io_sum, const gmodel_node *n) {
  add_text(io_sum, n->op);
  add_text(io_sum, n->domain);
  add_number(io_sum, n->block);
  if (n->n_in > 0) add(io_sum, n->in, n->n_in * sizeof *n->in);
  if (n->n_out > 0) add(io_sum, n->out, n->n_out * sizeof *n->out);
  for (uint32_t i = 0; i < n->n_attr; i++) add_attr(io_sum, &n->attrs[i]);
}

/* A few rows of a weight that is quantised in its file. */
static int32_t add_quant(uint64_t *io_sum, const bs_quant *q, bs_error *err) {
  const uint64_t cols = (uint64_t)q->cols, groups = (cols + (uint64_t)q->group - 1) / (uint64_t)q->group;
  const uint64_t bytes = cols + groups * (2 * sizeof(float) + 3);
  unsigned char *row = calloc(1, (size_t)bytes);
  if (row == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a row");
  float *scales = (float *)(void *)row, *lows = scales + groups;
  uint8_t *zeros = (uint8_t *)(lows + groups), *low_steps = zeros + groups;
  int8_t *steps = (int8_t *)(low_steps + groups);
  const bs_quant_rows out = {.struct_size = (uint32_t)sizeof out,
                             .codes = (uint8_t *)(steps + groups),
                             .codes_stride = q->cols,
                             .scales = scales,
                             .zeros = zeros,
                             .lows = lows,
                             .steps = steps,
                             .low_steps = low_steps};
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < QUANT_ROWS && i < q->rows; i++) {
    rc = q->read(q->ctx, i * q->rows / QUANT_ROWS, 1, &out, err);
    if (rc == BS_OK) add(io_sum, row, bytes);
  }
  free(row);
  return rc;
}

/* The bytes of a constant that lie in a piece: `at` is its place among all constants. */
static void add_pieces(uint64_t *io_sum, const gmodel_value *v, uint64_t at, uint64_t all) {
  const unsigned char *data = v->data;
  if (all <= WHOLE) {
    add(io_sum, data, v->bytes);
    return;
  }
  add(io_sum, data, v->bytes < FIRST_BYTES ? v->bytes : FIRST_BYTES);
  for (uint64_t p = 0; p < PIECES; p++) {
    const uint64_t piece = all / PIECES * p;
    const uint64_t begin = piece > at ? piece : at;
    const uint64_t end = piece + PIECE < at + v->bytes ? piece + PIECE : at + v->bytes;
    if (begin < end) add(io_sum, data + (begin - at), end - begin);
  }
}

static int32_t add_constants(uint64_t *io_sum, const gmodel *m, bs_error *err) {
  uint64_t all = 0, at = 0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < m->n_values; i++)
    if (m->values[i].kind == GMODEL_CONSTANT && m->values[i].data != NULL) all += m->values[i].bytes;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_values; i++) {
    const gmodel_value *v = &m->values[i];
    if (v->kind != GMODEL_CONSTANT) continue;
    if (v->quant != NULL && v->quant->read != NULL) rc = add_quant(io_sum, v->quant, err);
    if (v->data == NULL) continue;
    add_pieces(io_sum, v, at, all);
    at += v->bytes;
  }
  return rc;
}

static int32_t add_model(uint64_t *io_sum, const gmodel *m, bs_error *err) {
  for (uint32_t i = 0; i < m->n_values; i++) {
    const gmodel_value *v = &m->values[i];
    add_number(io_sum, v->kind);
    add_number(io_sum, v->dtype);
    add_number(io_sum, v->rank);
    add(io_sum, v->dims, sizeof v->dims);
    add(io_sum, v->symbols, sizeof v->symbols);
  }
  for (uint32_t i = 0; i < m->n_nodes; i++) add_node(io_sum, &m->nodes[i]);
  for (uint32_t i = 0; i < m->n_inputs; i++) add_text(io_sum, m->inputs[i].name);
  for (uint32_t i = 0; i < m->n_outputs; i++) add_text(io_sum, m->outputs[i].name);
  return add_constants(io_sum, m, err);
}

/* ---- options --------------------------------------------------------------------------------- */

static void add_mask(uint64_t *io_sum, const bs_mask *m) {
  add_number(io_sum, m != NULL);
  if (m == NULL) return;
  const uint64_t numbers[] = {m->kind, m->pattern_len, m->pattern_a, m->pattern_b, m->n_shares, m->seed};
  add(io_sum, numbers, sizeof numbers);
  if (m->shares != NULL) add(io_sum, m->shares, m->n_shares * sizeof *m->shares);
  if (m->order != NULL) add(io_sum, m->order, (uint64_t)m->n_order * sizeof *m->order);
}

static void add_method(uint64_t *io_sum, const bs_session_options *o) {
  add_text(io_sum, o->method);
  add_texts(io_sum, o->method_keys, o->n_method_options);
  add_texts(io_sum, o->method_values, o->n_method_options);
  add_mask(io_sum, o->mask);
  add_number(io_sum, (uint64_t)o->tokens);
}

/* The size and dtype of the cache are options that the model was opened with. */
static void add_options(uint64_t *io_sum, const gmodel *m, const bs_session_options *o) {
  add_number(io_sum, (uint64_t)m->cache_tokens);
  add_number(io_sum, m->cache_dtype);
  add_number(io_sum, (uint64_t)m->slots);
  add_texts(io_sum, o->passes_off, o->n_passes_off);
  add_text(io_sum, o->weights);
  add_text(io_sum, o->activations);
  add_number(io_sum, o->tokenwise);
  add_number(io_sum, o->exact);
  add_number(io_sum, o->plans);
}

int32_t gsame_make(const gmodel *model, const bs_session_options *o, gsame *out, bs_error *err) {
  for (int i = 0; i < GSAME_COUNT; i++) out->sums[i] = UINT64_C(14695981039346656037);
  add_method(&out->sums[GSAME_METHOD], o);
  add_options(&out->sums[GSAME_OPTIONS], model, o);
  for (uint32_t i = 0; i < o->n_dims; i++) {
    add_text(&out->sums[GSAME_SIZES], o->dims[i]->name);
    add_number(&out->sums[GSAME_SIZES], (uint64_t)o->dims[i]->size);
  }
  return add_model(&out->sums[GSAME_MODEL], model, err);
}
