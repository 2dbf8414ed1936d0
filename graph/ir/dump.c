/* SPDX-License-Identifier: MIT
 * dump.c - a graph as text or JSON, a line each value and node, in an order and with numbers that depend on
 * the graph alone: values are numbered as they appear, so that two dumps can be compared by diff. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/op/expr.h"
#include "core/op/quant.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"
#include "graph/ir/query.h"

typedef struct dump {
  const graph *g;
  uint32_t *number; /* of a value; GNONE: not seen yet */
  uint32_t next;
  bs_text text;
  int json;
} dump;

static uint32_t number_of(dump *d, uint32_t value) {
  if (d->number[value] == GNONE) d->number[value] = d->next++;
  return d->number[value];
}

void graph_put_json_text(bs_text *t, const char *text) {
  bs_text_append(t, "\"", 1);
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\')
      bs_text_printf(t, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      bs_text_printf(t, "\\u%04x", (unsigned)(unsigned char)*text);
    else
      bs_text_append(t, text, 1);
  }
  bs_text_append(t, "\"", 1);
}

static void put_ints(bs_text *t, const int64_t *ints, uint32_t n) {
  bs_text_append(t, "[", 1);
  for (uint32_t i = 0; i < n; i++) bs_text_printf(t, "%s%" PRId64, i > 0 ? "," : "", ints[i]);
  bs_text_append(t, "]", 1);
}

/* f32[1,128,768]; q4.g32[768,768] of a quantised constant */
static void put_type(dump *d, const gvalue *v) {
  if (v->flags & GV_QUANT) {
    char form[BS_QUANT_TEXT];
    bs_quant_text(&((const gquant *)v->data)->quant, form);
    bs_text_printf(&d->text, "%s", form);
    put_ints(&d->text, v->dims, v->rank);
    bs_text_printf(&d->text, " %" PRIu64 " bytes", bs_quant_bytes(&((const gquant *)v->data)->quant));
    return;
  }
  bs_text_printf(&d->text, "%s", bs_dtype_name(v->dtype));
  put_ints(&d->text, v->dims, v->rank);
}

/* %3, or of a view: %3{f32[2,4]:[8,1]+4} */
static void put_value(dump *d, uint32_t value) {
  if (value == GNONE) {
    bs_text_append(&d->text, "-", 1);
    return;
  }
  const gvalue *v = &d->g->values[value];
  bs_text_printf(&d->text, "%%%u", number_of(d, v->base));
  if (v->kind != GV_VIEW) return;
  bs_text_append(&d->text, "{", 1);
  put_type(d, v);
  if (!graph_is_dense(v)) {
    bs_text_append(&d->text, ":", 1);
    put_ints(&d->text, v->strides, v->rank);
  }
  if (v->offset != 0) bs_text_printf(&d->text, "+%" PRId64, v->offset);
  bs_text_append(&d->text, "}", 1);
}

static const char *const kind_names[] = {[GV_FREE] = "free", [GV_INPUT] = "input", [GV_CONST] = "const",
                                         [GV_TEMP] = "temp", [GV_VIEW] = "view",   [GV_STATE] = "state"};

/* ---- programs -------------------------------------------------------------------------------- */

static void put_operand(bs_text *t, const gexpr *e, uint8_t o) {
  if (o >= GX_STEP) {
    bs_text_printf(t, "t%u", o - GX_STEP);
  } else if (o >= GX_CONST && e->compute == BS_I64) {
    bs_text_printf(t, "%" PRId64, (int64_t)e->consts[o - GX_CONST]);
  } else if (o >= GX_CONST) {
    double number;
    memcpy(&number, &e->consts[o - GX_CONST], sizeof number);
    bs_text_printf(t, "%.9g", number);
  } else {
    bs_text_printf(t, "x%u", o);
  }
}

static void put_expr(dump *d, const gexpr *e) {
  bs_text *t = &d->text;
  bs_text_printf(t, "%s{", bs_dtype_name(e->compute));
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint8_t *operands[3] = {&e->steps[i].a, &e->steps[i].b, &e->steps[i].c};
    bs_text_printf(t, "t%u=%s", i, bs_expr_op_name(e->steps[i].op));
    for (uint32_t k = 0; k < gexpr_arity(e->steps[i].op); k++) {
      bs_text_append(t, " ", 1);
      put_operand(t, e, *operands[k]);
    }
    if (e->steps[i].op == BS_EXPR_INDEX) bs_text_printf(t, " %u", e->steps[i].a);
    if (e->steps[i].op == BS_EXPR_TO)
      bs_text_printf(t, " %s", bs_dtype_name((uint32_t)e->steps[i].b << 8 | e->steps[i].c));
    bs_text_append(t, "; ", 2);
  }
  for (uint32_t i = 0; i < e->n_out; i++) {
    if (i > 0) bs_text_append(t, ",", 1);
    put_operand(t, e, e->outs[i]);
  }
  bs_text_append(t, "}", 1);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_origins(dump *d, uint32_t origin) {
  int first = 1;
  for (; origin != GNONE; origin = d->g->origins[origin].next, first = 0) {
    const char *text = graph_text_of(d->g, d->g->origins[origin].text);
    if (!first) bs_text_append(&d->text, d->json ? "," : ", ", d->json ? 1 : 2);
    if (d->json)
      graph_put_json_text(&d->text, text);
    else
      bs_text_printf(&d->text, "%s", text);
  }
}

static void put_settings(dump *d, const gnode *n) {
  static const char *const activations[] = {"", " relu", " gelu", " silu", " gelu_tanh"};
  uint32_t last = 0;
  for (uint32_t i = 0; i < 8; i++)
    if (n->attrs[i] != 0) last = i + 1;
  if (last > 0) {
    bs_text_append(&d->text, " ", 1);
    put_ints(&d->text, n->attrs, last);
  }
  for (uint32_t i = 0; i < 4; i++)
    if (n->numbers[i] != 0) bs_text_printf(&d->text, " %.9g", n->numbers[i]);
  if (n->activation < 5) bs_text_printf(&d->text, "%s", activations[n->activation]);
}

static void put_node(dump *d, const gnode *n) {
  if (d->json) bs_text_printf(&d->text, "{\"op\":\"%s\",\"text\":\"", graph_op_name(n->op));
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (i > 0) bs_text_append(&d->text, ", ", 2);
    put_value(d, n->out[i]);
    if (n->out[i] == GNONE || d->g->values[n->out[i]].kind == GV_VIEW) continue;
    bs_text_append(&d->text, " ", 1);
    put_type(d, &d->g->values[n->out[i]]);
  }
  bs_text_printf(&d->text, " = %s(", graph_op_name(n->op));
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (i > 0) bs_text_append(&d->text, ", ", 2);
    put_value(d, n->in[i]);
  }
  if (n->weight != GNONE) {
    bs_text_append(&d->text, "; ", 2);
    put_value(d, n->weight);
    if (d->g->values[n->weight].scale != 0)
      bs_text_printf(&d->text, " times %.9g", d->g->values[n->weight].scale);
  }
  bs_text_append(&d->text, ")", 1);
  put_settings(d, n);
  if (n->op == GOP_MAP) {
    bs_text_append(&d->text, " ", 1);
    put_expr(d, &d->g->exprs[n->expr]);
  }
  bs_text_printf(&d->text, "%s", d->json ? "\",\"from\":[" : "  # ");
  put_origins(d, n->origin);
  if (d->json) bs_text_append(&d->text, "]}", 2);
}

static void put_root(dump *d, uint32_t value, const char *what) {
  const gvalue *v = &d->g->values[value];
  if (d->json) bs_text_printf(&d->text, "{\"%s\":", what);
  if (!d->json) bs_text_printf(&d->text, "%s ", what);
  if (d->json) bs_text_append(&d->text, "\"", 1);
  bs_text_printf(&d->text, "%%%u ", number_of(d, value));
  put_type(d, v);
  bs_text_printf(&d->text, "%s", d->json ? "\",\"name\":" : " ");
  if (d->json)
    graph_put_json_text(&d->text, graph_text_of(d->g, v->name));
  else
    bs_text_printf(&d->text, "%s", graph_text_of(d->g, v->name));
  if (d->json) bs_text_append(&d->text, "}", 1);
}

static void put_port(dump *d, const gport *p, const char *what) {
  if (d->json) {
    bs_text_printf(&d->text, "{\"%s\":", what);
    graph_put_json_text(&d->text, graph_text_of(d->g, p->name));
    bs_text_append(&d->text, ",\"value\":\"", 10);
  } else {
    bs_text_printf(&d->text, "%s %s = ", what, graph_text_of(d->g, p->name));
  }
  put_value(d, p->value);
  if (d->json) bs_text_append(&d->text, "\"}", 2);
}

/* *io_lines: lines so far; JSON objects are separated by commas. */
static void flush(dump *d, uint32_t *io_lines, void (*put)(void *user, const char *text), void *user) {
  if (d->json && *io_lines > 0) put(user, ",\n");
  put(user, d->text.data != NULL ? d->text.data : "");
  if (!d->json) put(user, "\n");
  ++*io_lines;
  d->text.size = 0;
}

/* Inputs, states, constants that have a name or that a node reads. */
static int is_listed(const gvalue *v) {
  return v->kind == GV_INPUT || v->kind == GV_STATE ||
         (v->kind == GV_CONST && (v->name != GNONE || v->first_use != GNONE));
}

int32_t graph_dump(const graph *g, int json, void (*put)(void *user, const char *text), void *user,
                   bs_error *err) {
  dump d = {.g = g, .json = json};
  uint32_t lines = 0;
  d.number = malloc((g->n_values + 1u) * sizeof *d.number);
  if (d.number == NULL) return graph_no_memory(err);
  for (uint32_t i = 0; i < g->n_values; i++) d.number[i] = GNONE;
  if (json) put(user, "[");
  for (uint32_t i = 0; i < g->n_values; i++) {
    if (!is_listed(&g->values[i])) continue;
    put_root(&d, i, kind_names[g->values[i].kind]);
    flush(&d, &lines, put, user);
  }
  for (uint32_t i = g->first; i != GNONE; i = g->nodes[i].next) {
    put_node(&d, &g->nodes[i]);
    flush(&d, &lines, put, user);
  }
  for (uint32_t i = 0; i < g->n_outputs; i++) {
    put_port(&d, &g->outputs[i], "output");
    flush(&d, &lines, put, user);
  }
  for (uint32_t i = 0; i < g->n_states; i++) {
    put_port(&d, &g->states[i], "state");
    flush(&d, &lines, put, user);
  }
  if (json) put(user, "]\n");
  const int failed = d.text.failed;
  bs_text_free(&d.text);
  free(d.number);
  return failed ? graph_no_memory(err) : BS_OK;
}
