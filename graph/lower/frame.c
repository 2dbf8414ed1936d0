/* SPDX-License-Identifier: MIT
 * frame.c - a model becomes a graph: symbols get their sizes, every node is given to its rule, ports are
 * made. What cannot be served is collected; nodes that need its results are left out without a word. */
#include "graph/lower/frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/lower/counted.h"

enum { MAX_DEPTH = 16, MAX_ROUNDS = 8192 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
}

/* ---- what went wrong ------------------------------------------------------------------------- */

static void node_where(const gmodel_node *node, bs_error *err) {
  bs_error_where(err, "node '%.80s' (%.40s)", node->name, node->op);
}

int32_t lower_unsupported(lower_ctx *c, const gmodel_node *node, uint32_t dtype, bs_error *err,
                          const char *fmt, ...) {
  char reason[400];
  va_list args;
  va_start(args, fmt);
  vsnprintf(reason, sizeof reason, fmt, args);
  va_end(args);
  c->issues++;
  if (c->options->issue != NULL) {
    const bs_graph_issue issue = {.struct_size = (uint32_t)sizeof issue,
                                  .dtype = dtype,
                                  .node = node->name,
                                  .op = node->op,
                                  .domain = node->domain,
                                  .opset = node->opset,
                                  .reason = reason};
    c->options->issue(c->options->issue_user, &issue);
  }
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-NODE", "%s of opset %u: %s", node->op, node->opset, reason);
  node_where(node, err);
  bs_error_hint(err, "`bsrun model info` lists every node that is not supported");
  return BS_UNSUPPORTED;
}

int32_t lower_bad(lower_ctx *c, const gmodel_node *node, bs_error *err, const char *fmt, ...) {
  (void)c;
  char reason[400];
  va_list args;
  va_start(args, fmt);
  vsnprintf(reason, sizeof reason, fmt, args);
  va_end(args);
  bs_error_set(err, BS_INPUT, "BS-GRAPH-BAD", "%s of opset %u: %s", node->op, node->opset, reason);
  node_where(node, err);
  return BS_INPUT;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

int lower_has(const gmodel_node *node, uint32_t i) {
  return i < node->n_in && node->in[i] != GMODEL_NONE;
}
int lower_wants(const gmodel_node *node, uint32_t i) {
  return i < node->n_out && node->out[i] != GMODEL_NONE;
}

static uint32_t input_of(const lower_ctx *c, uint32_t in) {
  return in & LOWER_DIRECT ? in & ~LOWER_DIRECT : c->value_of[in];
}

uint32_t lower_in(const lower_ctx *c, const gmodel_node *node, uint32_t i) {
  if (!lower_has(node, i)) return GNONE;
  const uint32_t value = input_of(c, node->in[i]);
  return c->takes_quant || value == GNONE || !lower_is_quant(c, value) ? value : lower_known_wide(c, value);
}

int32_t lower_out(lower_ctx *c, const gmodel_node *node, uint32_t i, uint32_t value, bs_error *err) {
  if (value >= c->g->n_values && lower_compound_of(c, value) == NULL)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-RULE", "the rule of %s gives no value as output %u",
                        node->op, i);
  if (!lower_wants(node, i)) return BS_OK;
  for (lower_frame *f = c->frame; f != NULL; f = f->up)
    if (f->node == node) {
      f->outs[i] = value;
      return BS_OK;
    }
  c->value_of[node->out[i]] = value;
  if (lower_is_compound(value)) return BS_OK;
  gvalue *v = &c->g->values[value];
  const char *name = c->model->values[node->out[i]].name;
  if (v->name == GNONE && name[0] != '\0') v->name = graph_text(c->g, name);
  return BS_OK;
}

/* ---- values of the model --------------------------------------------------------------------- */

static int32_t dim_size(lower_ctx *c, const gmodel_value *v, uint32_t i, int64_t *out_size, bs_error *err) {
  if (v->dims[i] >= 0) {
    *out_size = v->dims[i];
    return BS_OK;
  }
  const uint32_t symbol = v->symbols[i] - 1u;
  if (c->sizes[symbol] < 0) {
    bs_error_set(err, BS_CONFIG, "BS-GRAPH-DIM", "dimension '%.64s' of input '%.64s' has no size",
                 c->model->symbols[symbol], v->name);
    bs_error_hint(err, "give it one: --dim %.64s=N", c->model->symbols[symbol]);
    return BS_CONFIG;
  }
  *out_size = c->sizes[symbol];
  return BS_OK;
}

/* 1: the size of one of its dims is a guess. */
static unsigned char is_guessed(const lower_ctx *c, const gmodel_value *v) {
  for (uint32_t i = 0; i < v->rank && v->rank <= BS_MAX_DIMS; i++) {
    const char *name = v->dims[i] < 0 ? c->model->symbols[v->symbols[i] - 1u] : NULL;
    uint32_t k = 0;
    while (name != NULL && k < c->options->n_dims && strcmp(c->options->dims[k]->name, name) != 0) k++;
    if (name != NULL && k == c->options->n_dims) return 1;
  }
  return 0;
}

/* A value that no node computes. */
static int32_t given_value(lower_ctx *c, uint32_t model_value, bs_error *err) {
  const gmodel_value *v = &c->model->values[model_value];
  static const uint8_t kinds[] = {[GMODEL_INPUT] = GV_INPUT,
                                  [GMODEL_CONSTANT] = GV_CONST,
                                  [GMODEL_STATE] = GV_STATE,
                                  [GMODEL_LENGTH] = GV_INPUT};
  int64_t dims[BS_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < v->rank; i++) {
    const int32_t rc = dim_size(c, v, i, &dims[i], err);
    if (rc != BS_OK) return rc;
  }
  uint32_t value;
  const int32_t rc = v->quant != NULL ? lower_quant_given(c, model_value, &value, err)
                                      : graph_add_root(c->g, kinds[v->kind], v->dtype, v->rank, dims, v->data,
                                                       v->name, &value, err);
  if (rc != BS_OK) return rc;
  c->g->values[value].source = model_value;
  if (v->kind == GMODEL_LENGTH) c->g->values[value].flags |= GV_LENGTH;
  c->value_of[model_value] = value;
  c->guessed[model_value] = is_guessed(c, v);
  return BS_OK;
}

int32_t lower_ready(lower_ctx *c, const gmodel_node *node, int *out_ready, bs_error *err) {
  *out_ready = 1;
  for (uint32_t i = 0; i < node->n_in; i++) {
    if (node->in[i] == GMODEL_NONE || (node->in[i] & LOWER_DIRECT)) continue;
    const gmodel_value *v = &c->model->values[node->in[i]];
    const int given = v->kind != GMODEL_COMPUTED;
    if (given && !bs_dtype_known(v->dtype) &&
        (v->kind != GMODEL_CONSTANT || !lower_takes_nibbles(node, v->dtype)))
      return lower_unsupported(c, node, v->dtype, err, "its input '%.64s' has a dtype that is not supported",
                               v->name);
    if (given && c->value_of[node->in[i]] == GNONE) {
      const int32_t rc = given_value(c, node->in[i], err);
      if (rc != BS_OK) return rc;
    }
    if (c->value_of[node->in[i]] == GNONE) *out_ready = 0;
  }
  return BS_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int32_t rule_of(lower_ctx *c, const gmodel_node *node, const lower_rule **out_rule, bs_error *err) {
  int known = 0;
  *out_rule = lower_find(node->op, node->domain, node->opset, &known);
  if (*out_rule != NULL) return BS_OK;
  if (known) return lower_unsupported(c, node, 0, err, "this version of the operator is not supported");
  if (node->domain[0] != '\0' && strcmp(node->domain, "ai.onnx") != 0)
    return lower_unsupported(c, node, 0, err, "this operator of the domain %.64s is not supported",
                             node->domain);
  return lower_unsupported(c, node, 0, err, "the operator is not supported");
}

int32_t lower_node(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  const lower_rule *rule = NULL;
  int ready = 1, by_element = 0;
  int32_t rc = rule_of(c, node, &rule, err);
  if (rc == BS_OK) rc = lower_ready(c, node, &ready, err);
  if (rc != BS_OK) return rc;
  if (!ready) return BS_UNSUPPORTED; /* a node that it needs was reported */
  const uint64_t issues = c->issues + c->not_judged;
  const uint32_t parts = c->n_parts;
  const int takes = c->takes_quant;
  rc = lower_quant_inputs(c, node, err);
  if (rc == BS_OK) rc = lower_compound_inputs(c, node, &by_element, err);
  if (rc == BS_OK) rc = by_element ? lower_by_element(c, node, err) : rule->run(c, node, err);
  c->takes_quant = takes;
  lower_settle_parts(c, parts);
  if (rc == BS_OK)
    for (uint32_t i = 0; i < node->n_out && c->frame == NULL; i++)
      if (node->out[i] != GMODEL_NONE && c->value_of[node->out[i]] == GNONE)
        return lower_unsupported(c, node, 0, err, "its output %u is not supported", i);
  if (rc == BS_UNSUPPORTED && c->issues + c->not_judged == issues) /* of a helper that knows no node */
    return lower_unsupported(c, node, 0, err, "%s",
                             err != NULL && err->message[0] != '\0' ? err->message : "not supported");
  if (rc == BS_OK) rc = lower_follow(c, node, err);
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') node_where(node, err);
  return rc;
}

int32_t lower_call(lower_ctx *c, const gmodel_node *node, const char *op, const uint32_t *in, uint32_t n_in,
                   const bs_attr *attrs, uint32_t n_attr, uint32_t *outs, uint32_t n_out, bs_error *err) {
  uint32_t ins[16], places[16];
  if (n_in > 16 || n_out > 16 || c->depth >= MAX_DEPTH)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-RULE", "%s calls %s too deep or with too many values",
                        node->op, op);
  for (uint32_t i = 0; i < n_in; i++) ins[i] = in[i] == GNONE ? GMODEL_NONE : in[i] | LOWER_DIRECT;
  for (uint32_t i = 0; i < n_out; i++) {
    places[i] = i;
    outs[i] = GNONE;
  }
  const gmodel_node call = {.op = op,
                            .domain = "",
                            .name = node->name,
                            .opset = node->domain[0] == '\0' ? node->opset : c->model->opset,
                            .block = node->block,
                            .n_in = n_in,
                            .n_out = n_out,
                            .n_attr = n_attr,
                            .in = ins,
                            .out = places,
                            .attrs = attrs};
  lower_frame frame = {&call, outs, c->frame};
  c->frame = &frame;
  c->depth++;
  const int32_t rc = lower_node(c, &call, err);
  c->depth--;
  c->frame = frame.up;
  for (uint32_t i = 0; i < n_out && rc == BS_OK; i++)
    if (outs[i] == GNONE) return lower_unsupported(c, node, 0, err, "its part %s has no output %u", op, i);
  return rc;
}

/* A node may depend on a guess when one of its inputs does; of one with branches that is not known. */
static int depends_on_guess(const lower_ctx *c, const gmodel_node *node) {
  int guess = 0;
  for (uint32_t i = 0; i < node->n_in; i++) guess |= node->in[i] != GMODEL_NONE && c->guessed[node->in[i]];
  for (uint32_t i = 0; i < node->n_attr; i++) guess |= node->attrs[i].type == BS_ATTR_GRAPH;
  return guess && c->options->missing > 0;
}

/* One node of a block. A wrong one whose sizes are guesses is not judged. */
static int32_t lower_judged(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  bs_error own = BS_ERROR_INIT, *why = err != NULL ? err : &own;
  const int guess = depends_on_guess(c, node);
  const int32_t rc = lower_counted(c, node, guess, why);
  for (uint32_t i = 0; i < node->n_out; i++)
    if (node->out[i] != GMODEL_NONE) c->guessed[node->out[i]] = (unsigned char)guess;
  if (rc != BS_OK && node->n_out > 0 && node->out[0] != GMODEL_NONE &&
      strncmp(why->where, "node '' ", 8) == 0)
    bs_error_where(why, "the node (%.40s) that gives '%.80s'", node->op, c->model->values[node->out[0]].name);
  if (rc != BS_INPUT || !guess || c->options->not_judged == NULL) return rc;
  c->not_judged++;
  c->options->not_judged(c->options->issue_user, node, why);
  return BS_UNSUPPORTED;
}

static int32_t lower_nodes(lower_ctx *c, uint32_t block, bs_error *err) {
  const gmodel_block *b = &c->model->blocks[block];
  int32_t first = BS_OK;
  for (uint32_t i = 0; i < b->n_nodes; i++) {
    const gmodel_node *node = &c->model->nodes[b->nodes[i]];
    char text[200];
    snprintf(text, sizeof text, "%.60s%s%.120s", node->op, node->name[0] != '\0' ? " " : "", node->name);
    const uint32_t up = c->origin;
    c->origin = graph_origin(c->g, text, GNONE);
    bs_error later = BS_ERROR_INIT;
    const int32_t rc = lower_judged(c, node, first == BS_OK ? err : &later);
    if (block != 0) c->origin = up;
    if (rc == BS_UNSUPPORTED) {
      first = rc;
      if (c->options->issue == NULL) return rc;
      continue;
    }
    if (rc != BS_OK) {
      if (first != BS_OK && err != NULL) *err = later;
      return rc;
    }
  }
  return first;
}

int32_t lower_block(lower_ctx *c, const gmodel_node *node, uint32_t block, const uint32_t *in, uint32_t n_in,
                    uint32_t *outs, uint32_t n_out, bs_error *err) {
  if (block == 0 || block >= c->model->n_blocks || c->depth >= MAX_DEPTH)
    return lower_bad(c, node, err, "its branch %u is not there, or branches are nested too deep", block);
  if (++c->rounds > MAX_ROUNDS)
    return lower_unsupported(c, node, 0, err, "loops of more than %d rounds in all", MAX_ROUNDS);
  const gmodel_block *b = &c->model->blocks[block];
  if (b->n_inputs != n_in || b->n_outputs < n_out)
    return lower_bad(c, node, err, "its branch has %u inputs and %u outputs, %u and %u are needed",
                     b->n_inputs, b->n_outputs, n_in, n_out);
  for (uint32_t i = 0; i < n_in; i++) {
    c->value_of[b->inputs[i]] = in[i];
    c->marks[b->inputs[i]] = (lower_mark){0};
  }
  lower_frame *up = c->frame;
  c->frame = NULL;
  c->depth++;
  int32_t rc = lower_nodes(c, block, err);
  c->depth--;
  c->frame = up;
  for (uint32_t i = 0; i < n_out && rc == BS_OK; i++) {
    const uint32_t v = b->outputs[i];
    if (c->value_of[v] == GNONE && c->model->values[v].kind != GMODEL_COMPUTED) rc = given_value(c, v, err);
    outs[i] = c->value_of[v];
    if (rc == BS_OK) rc = lower_unmarked(c, node, v, err);
    if (rc == BS_OK && outs[i] != GNONE) rc = lower_wide(c, node, outs[i], &outs[i], err);
    if (rc == BS_OK && outs[i] == GNONE)
      rc = lower_bad(c, node, err, "output %u of its branch is not computed", i);
  }
  return rc;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* 1: an executor can replace the value's memory by the caller's. It is a TEMP, or a dense view of a whole
 * one. */
static int is_own_memory(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  const gvalue *root = &g->values[v->base];
  return root->kind == GV_TEMP && !(root->flags & GV_OUTPUT) && v->offset == 0 && graph_is_dense(v) &&
         graph_count(v) == graph_count(root);
}

static int32_t add_port(graph *g, gport **ports, uint32_t *n, uint32_t *cap, const char *name, uint32_t value,
                        bs_error *err) {
  const uint32_t text = graph_text(g, name);
  if (text == GNONE || !ARRAY_GROW(*ports, *n, *cap)) return no_memory(err);
  (*ports)[(*n)++] = (gport){text, value};
  return BS_OK;
}

static int32_t lower_inputs(lower_ctx *c, bs_error *err) {
  for (uint32_t i = 0; i < c->model->n_inputs; i++) {
    const gmodel_port *p = &c->model->inputs[i];
    if (!bs_dtype_known(c->model->values[p->value].dtype)) {
      const gmodel_node port = {.op = "input", .domain = "", .name = p->name, .opset = c->model->opset};
      lower_unsupported(c, &port, c->model->values[p->value].dtype, err, "its dtype is not supported");
      if (c->options->issue == NULL) return BS_UNSUPPORTED;
      continue;
    }
    int32_t rc = given_value(c, p->value, err);
    if (rc == BS_OK)
      rc = add_port(c->g, &c->g->inputs, &c->g->n_inputs, &c->g->cap_inputs, p->name, c->value_of[p->value],
                    err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* All rows of each output count. */
static int32_t whole_outputs(lower_ctx *c, bs_error *err) {
  for (uint32_t i = 0; i < c->model->n_outputs; i++) {
    const gmodel_port *p = &c->model->outputs[i];
    const gmodel_node port = {.op = "output", .domain = "", .name = p->name, .opset = c->model->opset};
    const int32_t rc = lower_unmarked(c, &port, p->value, err);
    if (rc != BS_OK && c->options->issue == NULL) return rc;
  }
  return BS_OK;
}

static int32_t lower_outputs(lower_ctx *c, bs_error *err) {
  for (uint32_t i = 0; i < c->model->n_outputs; i++) {
    const gmodel_port *p = &c->model->outputs[i];
    int32_t rc = BS_OK;
    const int given = c->model->values[p->value].kind != GMODEL_COMPUTED;
    if (given && !bs_dtype_known(c->model->values[p->value].dtype))
      return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-DTYPE",
                          "output '%.64s' has a dtype that is not supported", p->name);
    if (given && c->value_of[p->value] == GNONE) rc = given_value(c, p->value, err);
    const gmodel_node port = {.op = "output", .domain = "", .name = p->name};
    uint32_t value = c->value_of[p->value];
    if (rc == BS_OK) rc = lower_wide(c, &port, value, &value, err);
    c->origin = graph_origin(c->g, "output", GNONE);
    if (rc == BS_OK && lower_is_compound(value))
      return lower_unsupported(c, &port, 0, err, "it is a sequence, or has more than %d dims", BS_MAX_DIMS);
    if (rc == BS_OK && !is_own_memory(c->g, value)) {
      const uint32_t from = value;
      const gvalue v = c->g->values[from];
      rc = lower_temp(c, v.dtype, v.rank, v.dims, &value, err);
      if (rc == BS_OK) rc = lower_copy_into(c, from, value, err);
    }
    if (rc == BS_OK)
      rc = add_port(c->g, &c->g->outputs, &c->g->n_outputs, &c->g->cap_outputs, p->name, value, err);
    if (rc != BS_OK) return rc;
    c->g->values[c->g->values[value].base].flags |= GV_OUTPUT;
  }
  return BS_OK;
}

/* Makes the next value of each state a port. A put has written it in place; any other value is copied into
 * the state at the end. */
static int32_t lower_states(lower_ctx *c, bs_error *err) {
  for (uint32_t i = 0; i < c->model->n_values; i++) {
    const gmodel_value *v = &c->model->values[i];
    if (v->kind != GMODEL_STATE) continue;
    int32_t rc = c->value_of[i] == GNONE ? given_value(c, i, err) : BS_OK;
    if (rc != BS_OK) return rc;
    const uint32_t state = c->value_of[i];
    uint32_t next = c->value_of[v->next];
    if (next == GNONE)
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-STATE",
                          "the next value of the state '%.64s' is not computed", v->name);
    const gmodel_node port = {.op = "state", .domain = "", .name = v->name};
    rc = lower_unmarked(c, &port, v->next, err);
    if (rc == BS_OK) rc = lower_wide(c, &port, next, &next, err);
    if (rc == BS_OK && lower_is_compound(next))
      rc = lower_unsupported(c, &port, 0, err, "its next value is a sequence, or has more than %d dims",
                             BS_MAX_DIMS);
    if (rc != BS_OK) return rc;
    if (c->g->values[next].base != state) {
      const gvalue s = c->g->values[state];
      uint32_t whole;
      rc = graph_add_view(c->g, state, s.dtype, s.rank, s.dims, s.strides, 0, &whole, err);
      c->origin = graph_origin(c->g, "state", GNONE);
      if (rc == BS_OK) rc = lower_copy_into(c, next, whole, err);
      if (rc != BS_OK) return rc;
      next = whole;
    }
    rc = add_port(c->g, &c->g->states, &c->g->n_states, &c->g->cap_states, v->name, next, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int32_t take_sizes(lower_ctx *c, bs_error *err) {
  const gmodel *m = c->model;
  for (uint32_t s = 0; s < m->n_symbols; s++)
    c->sizes[s] = c->options->missing > 0 ? c->options->missing : -1;
  for (uint32_t i = 0; i < c->options->n_dims; i++) {
    const bs_dim *d = c->options->dims[i];
    uint32_t s = 0;
    while (s < m->n_symbols && strcmp(m->symbols[s], d->name) != 0) s++;
    if (s == m->n_symbols) {
      bs_error_set(err, BS_CONFIG, "BS-GRAPH-DIM", "the model has no dimension '%.64s'", d->name);
      bs_error_hint(err, "its symbolic dimensions: %.64s%s", m->n_symbols > 0 ? m->symbols[0] : "none",
                    m->n_symbols > 1 ? ", ..." : "");
      return BS_CONFIG;
    }
    if (d->size < 0)
      return bs_error_set(err, BS_CONFIG, "BS-GRAPH-DIM", "dimension '%.64s' has the size %lld", d->name,
                          (long long)d->size);
    c->sizes[s] = d->size;
  }
  return BS_OK;
}

static uint64_t constant_bytes(const gmodel *m) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < m->n_values; i++)
    if (m->values[i].kind == GMODEL_CONSTANT) bytes += m->values[i].bytes;
  return bytes;
}

int32_t lower_once(const gmodel *model, const lower_options *options, lower_fixes *fixes, graph **out_graph,
                   bs_error *err) {
  lower_ctx c = {.model = model, .options = options, .origin = GNONE, .fixes = fixes};
  *out_graph = NULL;
  c.fold_limit = (UINT64_C(256) << 20) + 2u * constant_bytes(model);
  c.value_of = malloc((model->n_values + 1u) * sizeof *c.value_of);
  c.sizes = malloc((model->n_symbols + 1u) * sizeof *c.sizes);
  c.guessed = calloc(model->n_values + 1u, 1);
  c.marks = calloc(model->n_values + 1u, sizeof *c.marks);
  int32_t rc = c.value_of == NULL || c.sizes == NULL || c.guessed == NULL || c.marks == NULL
                   ? no_memory(err)
                   : graph_new(&c.g, err);
  for (uint32_t i = 0; i < model->n_values && c.value_of != NULL; i++) c.value_of[i] = GNONE;
  if (rc == BS_OK) {
    c.g->ask = options->folder.ask;
    c.g->ask_user = options->folder.user;
    c.g->file_of = model->file_of;
    rc = take_sizes(&c, err);
  }
  if (rc == BS_OK) rc = lower_inputs(&c, err);
  if (rc == BS_OK) rc = lower_nodes(&c, 0, err);
  if (rc == BS_OK) rc = whole_outputs(&c, err);
  if (rc == BS_OK) rc = lower_fixed_outputs(&c, err);
  if (rc == BS_OK && c.issues + c.not_judged > 0) rc = BS_UNSUPPORTED;
  c.ports = 1;
  if (rc == BS_OK) rc = lower_states(&c, err);
  if (rc == BS_OK) rc = lower_outputs(&c, err);
  free(c.value_of);
  free(c.sizes);
  free(c.guessed);
  free(c.marks);
  free(c.counts);
  free(c.checks);
  free(c.parts);
  free(c.quants);
  free(c.follows);
  lower_compounds_free(&c);
  if (rc != BS_OK) {
    graph_free(c.g);
    return rc;
  }
  *out_graph = c.g;
  return BS_OK;
}
