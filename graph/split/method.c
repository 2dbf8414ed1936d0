/* SPDX-License-Identifier: MIT
 * method.c - the methods of a session: which of its options each takes, the spec of a product as a layer, and
 * what a method proposes for it. */
#include "graph/split/method.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/knob.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a split");
}

/* ---- the options ----------------------------------------------------------------------------- */

static int32_t add_option(gmethod_arm *arm, const char *key, const char *value, bs_error *err) {
  arm->keys[arm->n_options] = bs_strdup(key);
  arm->values[arm->n_options] = bs_strdup(value);
  arm->n_options++;
  return arm->keys[arm->n_options - 1] != NULL && arm->values[arm->n_options - 1] != NULL ? BS_OK
                                                                                          : no_memory(err);
}

static int lists(const gmethod_arm *arm, const char *key) {
  return bs_option_listed(arm->method->option_docs, key);
}

/* Each of two methods takes the options that it lists. One that neither lists goes to both, which refuse it.
 */
static int32_t copy_options(gmethod *m, const bs_session_options *o, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < o->n_method_options && rc == BS_OK; i++) {
    const char *key = o->method_keys[i], *value = o->method_values[i];
    int listed = 0;
    for (uint32_t k = 0; k < m->n_arms; k++) listed |= lists(&m->arms[k], key);
    for (uint32_t k = 0; k < m->n_arms && rc == BS_OK; k++) {
      if (listed && !lists(&m->arms[k], key)) continue;
      rc = bs_method_check_options(m->arms[k].method, 1, &key, &value, err);
      if (rc == BS_OK) rc = add_option(&m->arms[k], key, value, err);
    }
  }
  return rc;
}

/* The class that the session's promise of bits needs of each layer, unless the caller gave one. Of a batch, a
 * method without classes keeps what it keeps. */
static int32_t add_repro(gmethod *m, uint32_t bits, bs_error *err) {
  static const char *const key = "repro";
  const char *const value = bits == BS_BITS_RANKS ? "R3" : "R2";
  int32_t rc = BS_OK;
  m->bits = bits;
  if (bits >= BS_BITS_TOKENS) m->repro = bits == BS_BITS_RANKS ? BS_REPRO_R3 : BS_REPRO_R2;
  for (uint32_t k = 0; k < m->n_arms && rc == BS_OK; k++) {
    gmethod_arm *arm = &m->arms[k];
    int given = 0;
    for (uint32_t i = 0; i < arm->n_options; i++) given |= strcmp(arm->keys[i], key) == 0;
    if (given || bits == BS_BITS_RUNS || !lists(arm, key) ||
        bs_method_check_options(arm->method, 1, &key, &value, NULL) != BS_OK)
      continue;
    rc = add_option(arm, key, value, err);
  }
  return rc;
}

static int32_t open_arm(bs_context *context, gmethod *m, const char *name, size_t size, uint32_t n_options,
                        bs_error *err) {
  gmethod_arm *arm = &m->arms[m->n_arms++];
  void *state;
  arm->name = strndup(name, size);
  arm->keys = calloc(n_options + 1u, sizeof *arm->keys);
  arm->values = calloc(n_options + 1u, sizeof *arm->values);
  if (arm->name == NULL || arm->keys == NULL || arm->values == NULL) return no_memory(err);
  return bs_find_method(context, arm->name, &arm->method, &state, err);
}

/* A mask that no method looks at would have no effect. One method that has masks says what it thinks of it.
 */
static int32_t check_mask(const gmethod *m, bs_error *err) {
  uint64_t kinds = 0;
  for (uint32_t k = 0; k < m->n_arms; k++) kinds |= m->arms[k].method->mask_kinds;
  if (m->mask == NULL || kinds >> m->mask->kind & 1u || (m->n_arms == 1 && kinds != 0)) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-GRAPH-MASK", "%s splits without the mask %s", m->text,
               m->mask->name != NULL ? m->mask->name : "that is given");
  bs_error_hint(err, "leave the mask out, or use a method that has it, such as blockshock");
  return BS_CONFIG;
}

static int32_t check_text(const char *text, bs_error *err) {
  const char *plus = strchr(text, '+');
  if (plus == NULL || (plus != text && plus[1] != '\0' && strchr(plus + 1, '+') == NULL)) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-GRAPH-SPLIT", "'%.80s' is neither a method nor two as F+S", text);
  bs_error_hint(err, "for example column_parallel+row_parallel");
  return BS_CONFIG;
}

int32_t gmethod_make(bs_context *context, const bs_session_options *o, uint32_t world_size,
                     gmethod **out_method, bs_error *err) {
  *out_method = NULL;
  if (o->method == NULL) return BS_OK;
  const int32_t wrong = check_text(o->method, err);
  if (wrong != BS_OK) return wrong;
  gmethod *m = calloc(1, sizeof *m);
  if (m == NULL) return no_memory(err);
  const char *plus = strchr(o->method, '+');
  m->text = bs_strdup(o->method);
  m->mask = o->mask;
  m->tokens = o->tokens;
  m->world_size = world_size;
  int32_t rc = m->text == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK)
    rc = open_arm(context, m, o->method, plus != NULL ? (size_t)(plus - o->method) : strlen(o->method),
                  o->n_method_options, err);
  if (rc == BS_OK && plus != NULL)
    rc = open_arm(context, m, plus + 1, strlen(plus + 1), o->n_method_options, err);
  if (rc == BS_OK) rc = check_mask(m, err);
  if (rc == BS_OK) rc = copy_options(m, o, err);
  if (rc == BS_OK) rc = add_repro(m, o->tokenwise, err);
  if (rc != BS_OK) {
    gmethod_free(m);
    return rc;
  }
  *out_method = m;
  return BS_OK;
}

void gmethod_free(gmethod *m) {
  if (m == NULL) return;
  for (uint32_t k = 0; k < m->n_arms; k++) {
    for (uint32_t i = 0; i < m->arms[k].n_options; i++) {
      free(m->arms[k].keys[i]);
      free(m->arms[k].values[i]);
    }
    free(m->arms[k].keys);
    free(m->arms[k].values);
    free(m->arms[k].name);
  }
  for (uint32_t i = 0; i < m->n_probes; i++) free(m->probes[i].columns);
  free(m->probes);
  free(m->text);
  free(m);
}

/* ---- one product ----------------------------------------------------------------------------- */

int32_t gmethod_spec(const gmethod *m, const graph *g, const gnode *n, uint32_t role, uint32_t bias,
                     const gmethod_arm **out_arm, bs_layer_spec *out, bs_error *err) {
  const gvalue *x = &g->values[n->in[0]], *y = &g->values[n->out[0]];
  const int rows = x->rank == 2 && y->rank == 2;
  const char *why = n->op != GOP_MATMUL                         ? "its weight is quantised"
                    : n->in[2] != GNONE                         ? "a residual is part of it"
                    : !rows || y->dims[0] < 1                   ? "it has no rows"
                    : bias != GNONE && !graph_is_const(g, bias) ? "its bias is computed in the run"
                                                                : NULL;
  if (why != NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT", "no method takes the product: %s", why);
    bs_error_hint(err,
                  "methods split float weights with constant biases; without --method one rank runs the "
                  "model");
    return BS_UNSUPPORTED;
  }
  const gvalue *w = &g->values[n->weight];
  const gmethod_arm *arm = &m->arms[(role == GNODE_S || role == GNODE_S_WHOLE) && m->n_arms > 1];
  const uint64_t kinds = arm->method->mask_kinds;
  *out_arm = arm;
  *out = (bs_layer_spec){.struct_size = (uint32_t)sizeof *out,
                         .has_bias = bias != GNONE,
                         .B = y->dims[0],
                         .N = w->dims[0],
                         .K = w->dims[1],
                         .x_dtype = x->dtype,
                         .w_dtype = w->dtype,
                         .y_dtype = y->dtype,
                         .accumulate = n->accumulate,
                         .activation = n->activation,
                         .x_placement = role == GNODE_S ? BS_SPLIT : BS_REPLICATED,
                         .y_placement = role == GNODE_F ? BS_SPLIT : BS_REPLICATED,
                         .mask = kinds != 0 ? m->mask : NULL,
                         .n_options = arm->n_options,
                         .option_keys = (const char *const *)arm->keys,
                         .option_values = (const char *const *)arm->values};
  return BS_OK;
}

int32_t gmethod_propose(bs_context *context, const gmethod *m, const graph *g, const gnode *n, uint32_t role,
                        uint32_t bias, uint32_t rank, bs_proposal *out, bs_error *err) {
  const gmethod_arm *arm;
  bs_layer_spec spec;
  *out = (bs_proposal){.struct_size = (uint32_t)sizeof *out};
  int32_t rc = gmethod_spec(m, g, n, role, bias, &arm, &spec, err);
  if (rc == BS_OK) rc = bs_method_propose(context, arm->name, &spec, rank, m->world_size, out, err);
  if (rc != BS_OK) return rc;
  const uint32_t wanted = role == GNODE_F ? BS_SPLIT_N : BS_SPLIT_K;
  if ((role == GNODE_F || role == GNODE_S) && m->world_size > 1 && out->split != wanted)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT", "method %s does not split %s of a weight",
                        arm->name, role == GNODE_F ? "the rows" : "the columns");
  if (out->repro >= m->repro) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-REPRO", "method %s promises R%u of the product, R%u is needed",
               arm->name, out->repro, m->repro);
  bs_error_hint(err, "without the promise of bits (--with repro=runs) it is served");
  return BS_UNSUPPORTED;
}
