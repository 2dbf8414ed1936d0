/* SPDX-License-Identifier: MIT
 * model.c - the source model: construction and the checks of a whole one. */
#include "graph/model.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "graph/ir/arena.h"
#include "graph/schema.h"

typedef struct kept {
  struct kept *next;
  void *resource;
  void (*close)(void *resource);
  int32_t (*unchanged)(void *resource, bs_error *err);
} kept;

int32_t gmodel_new(uint32_t opset, gmodel **out_model, bs_error *err) {
  gmodel *m = calloc(1, sizeof *m);
  if (m == NULL) return model_no_memory(err);
  m->arena = calloc(1, sizeof(arena));
  m->opset = opset;
  m->length = GMODEL_NONE;
  m->tokens_input = GMODEL_NONE;
  m->path = "";
  m->producer = "";
  m->warning = "";
  uint32_t block;
  if (m->arena == NULL || gmodel_block_new(m, &block, NULL) != BS_OK) {
    gmodel_free(m);
    return model_no_memory(err);
  }
  *out_model = m;
  return BS_OK;
}

void gmodel_free(gmodel *m) {
  if (m == NULL) return;
  while (m->kept != NULL) {
    kept *k = m->kept;
    m->kept = k->next;
    if (k->close != NULL) k->close(k->resource);
    free(k);
  }
  for (uint32_t b = 0; b < m->n_blocks; b++) free((void *)m->blocks[b].nodes);
  free(m->values);
  free(m->nodes);
  free(m->blocks);
  free(m->inputs);
  free(m->outputs);
  free(m->defaults);
  free(m->symbols);
  if (m->arena != NULL) arena_free(m->arena);
  free(m->arena);
  free(m);
}

int32_t gmodel_keep(gmodel *m, void *resource, void (*close)(void *resource), bs_error *err) {
  kept *k = malloc(sizeof *k);
  if (k == NULL) {
    close(resource);
    return model_no_memory(err);
  }
  *k = (kept){m->kept, resource, close, NULL};
  m->kept = k;
  return BS_OK;
}

int32_t gmodel_watch(gmodel *m, void *resource, int32_t (*unchanged)(void *resource, bs_error *err),
                     bs_error *err) {
  kept *k = malloc(sizeof *k);
  if (k == NULL) return model_no_memory(err);
  *k = (kept){m->kept, resource, NULL, unchanged};
  m->kept = k;
  return BS_OK;
}

int32_t gmodel_unchanged(const gmodel *m, bs_error *err) {
  for (const kept *k = m->kept; k != NULL; k = k->next) {
    const int32_t rc = k->unchanged != NULL ? k->unchanged(k->resource, err) : BS_OK;
    if (rc == BS_OK) continue;
    if (m->path != NULL) bs_error_file(err, m->path);
    return rc;
  }
  return BS_OK;
}

void *gmodel_alloc(gmodel *m, uint64_t bytes) {
  return arena_alloc(m->arena, bytes, 64);
}

const char *gmodel_copy_text(gmodel *m, const char *text, uint64_t bytes) {
  return arena_text(m->arena, text, bytes);
}

static const char *copy_name(gmodel *m, const char *name) {
  return name == NULL || name[0] == '\0' ? "" : gmodel_copy_text(m, name, strlen(name));
}

int32_t gmodel_set_about(gmodel *m, const char *path, const char *producer, bs_error *err) {
  m->path = copy_name(m, path);
  m->producer = copy_name(m, producer);
  return m->path == NULL || m->producer == NULL ? model_no_memory(err) : BS_OK;
}

int gmodel_shape_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *out_bytes) {
  uint64_t count = 1;
  int empty = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] < 0) return 0;
    if (dims[i] == 0)
      empty = 1;
    else if (!bs_mul_u64(count, (uint64_t)dims[i], &count))
      return 0;
  }
  uint64_t bits;
  if (!bs_mul_u64(count, dtype & 0xffu, &bits) || bits / 8u > INT64_MAX / 2) return 0;
  *out_bytes = empty ? 0 : bits / 8u + (bits % 8u != 0);
  return 1;
}

/* ---- values ---------------------------------------------------------------------------------- */

int32_t gmodel_symbol(gmodel *m, const char *name, uint32_t *out_symbol, bs_error *err) {
  for (uint32_t i = 0; i < m->n_symbols; i++)
    if (strcmp(m->symbols[i], name) == 0) {
      *out_symbol = i;
      return BS_OK;
    }
  if (!ARRAY_GROW(m->symbols, m->n_symbols, m->cap_symbols)) return model_no_memory(err);
  const char *copy = copy_name(m, name);
  if (copy == NULL) return model_no_memory(err);
  m->symbols[m->n_symbols] = copy;
  *out_symbol = m->n_symbols++;
  return BS_OK;
}

static int32_t value_add(gmodel *m, uint32_t kind, const char *name, uint32_t dtype, uint32_t rank,
                         const int64_t *dims, uint32_t *out_value, bs_error *err) {
  if (rank > BS_MAX_DIMS && rank != GMODEL_RANK_UNKNOWN) {
    bs_error_set(err, BS_INPUT, "BS-GRAPH-RANK", "value '%.64s' has %u dimensions", name != NULL ? name : "",
                 rank);
    bs_error_hint(err, "at most %d dimensions are supported", BS_MAX_DIMS);
    return BS_INPUT;
  }
  const char *copy = copy_name(m, name);
  if (copy == NULL || !ARRAY_GROW(m->values, m->n_values, m->cap_values)) return model_no_memory(err);
  gmodel_value *v = &m->values[m->n_values];
  memset(v, 0, sizeof *v);
  v->kind = (uint8_t)kind;
  v->dtype = dtype;
  v->rank = rank;
  v->name = copy;
  v->producer = GMODEL_NONE;
  v->next = GMODEL_NONE;
  for (uint32_t i = 0; i < BS_MAX_DIMS; i++)
    v->dims[i] = rank != GMODEL_RANK_UNKNOWN && i < rank ? dims[i] : 0;
  *out_value = m->n_values++;
  return BS_OK;
}

static int32_t port_add(gmodel *m, gmodel_port **ports, uint32_t *n, uint32_t *cap, const char *name,
                        uint32_t value, bs_error *err) {
  const char *copy = copy_name(m, name);
  if (copy == NULL || !ARRAY_GROW(*ports, *n, *cap)) return model_no_memory(err);
  (*ports)[(*n)++] = (gmodel_port){copy, value};
  return BS_OK;
}

int32_t gmodel_input(gmodel *m, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     const char *const *dim_names, uint32_t *out_value, bs_error *err) {
  uint32_t value;
  int32_t rc = value_add(m, GMODEL_INPUT, name, dtype, rank, dims, &value, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] >= 0) continue;
    uint32_t symbol;
    if (dims[i] != -1 || dim_names == NULL || dim_names[i] == NULL)
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-DIM", "input '%.64s': dimension %u is %lld without a name",
                          name, i, (long long)dims[i]);
    rc = gmodel_symbol(m, dim_names[i], &symbol, err);
    if (rc != BS_OK) return rc;
    m->values[value].symbols[i] = symbol + 1u;
  }
  rc = port_add(m, &m->inputs, &m->n_inputs, &m->cap_inputs, name, value, err);
  if (rc == BS_OK) *out_value = value;
  return rc;
}

int32_t gmodel_constant(gmodel *m, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                        const void *data, uint64_t bytes, int copy, uint32_t *out_value, bs_error *err) {
  uint64_t wanted = 0;
  if (rank > BS_MAX_DIMS || !gmodel_shape_bytes(dtype, rank, dims, &wanted) ||
      (dtype != 0 && wanted != bytes))
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-CONST",
                        "constant '%.64s' of rank %u holds %llu bytes, its shape and dtype need %llu",
                        name != NULL ? name : "", rank, (unsigned long long)bytes,
                        (unsigned long long)wanted);
  if (copy && bytes > 0) {
    void *own = gmodel_alloc(m, bytes);
    if (own == NULL) return model_no_memory(err);
    data = memcpy(own, data, bytes);
  }
  const int32_t rc = value_add(m, GMODEL_CONSTANT, name, dtype, rank, dims, out_value, err);
  if (rc != BS_OK) return rc;
  m->values[*out_value].data = data;
  m->values[*out_value].bytes = bytes;
  return BS_OK;
}

int32_t gmodel_quant(gmodel *m, const char *name, const bs_quant *quant, const void *data, uint64_t bytes,
                     int x_bytes, uint32_t *out_value, bs_error *err) {
  const int64_t dims[2] = {quant->rows, quant->cols};
  bs_quant *own = gmodel_alloc(m, sizeof *own);
  if (own == NULL) return model_no_memory(err);
  *own = *quant;
  const int32_t rc = value_add(m, GMODEL_CONSTANT, name, BS_F32, 2, dims, out_value, err);
  if (rc != BS_OK) return rc;
  gmodel_value *v = &m->values[*out_value];
  v->quant = own;
  v->x_bytes = x_bytes != 0;
  v->data = data;
  v->bytes = bytes;
  return BS_OK;
}

int32_t gmodel_default_add(gmodel *m, const char *name, uint32_t value, uint32_t rank, const int64_t *dims,
                           bs_error *err) {
  const char *copy = copy_name(m, name);
  if (copy == NULL || !ARRAY_GROW(m->defaults, m->n_defaults, m->cap_defaults)) return model_no_memory(err);
  gmodel_default *d = &m->defaults[m->n_defaults++];
  *d = (gmodel_default){.name = copy, .value = value, .rank = rank};
  for (uint32_t i = 0; rank <= BS_MAX_DIMS && i < rank; i++) d->dims[i] = dims[i];
  return BS_OK;
}

/* The shape of the tensor is the one that is asked for; dims of -1 are of any size. */
static int shape_fits(const bs_tensor *tensor, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  int same = tensor->dtype == dtype && (tensor->rank == rank || rank == GMODEL_RANK_UNKNOWN);
  for (uint32_t d = 0; same && rank <= BS_MAX_DIMS && d < rank; d++)
    same = tensor->dims[d] == dims[d] || dims[d] == -1;
  return same && tensor->rank <= BS_MAX_DIMS;
}

static int32_t fix_value(gmodel *m, uint32_t value, const bs_tensor *tensor, bs_error *err) {
  gmodel_value *v = &m->values[value];
  uint64_t bytes = 0;
  if (!gmodel_shape_bytes(tensor->dtype, tensor->rank, tensor->dims, &bytes) || bytes > tensor->bytes ||
      (bytes > 0 && tensor->data == NULL))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT",
                        "the tensor for input '%.64s' has no data, or fewer bytes than its shape", v->name);
  void *copy = gmodel_alloc(m, bytes);
  if (copy == NULL) return model_no_memory(err);
  if (bytes > 0) memcpy(copy, tensor->data, bytes);
  v->kind = GMODEL_CONSTANT;
  v->data = copy;
  v->bytes = bytes;
  v->rank = tensor->rank;
  for (uint32_t d = 0; d < v->rank; d++) {
    v->dims[d] = tensor->dims[d];
    v->symbols[d] = 0;
  }
  return BS_OK;
}

int32_t gmodel_fix(gmodel *m, const char *name, const bs_tensor *tensor, bs_error *err) {
  uint32_t i = 0, k = 0;
  while (i < m->n_inputs && strcmp(m->inputs[i].name, name) != 0) i++;
  while (k < m->n_defaults && strcmp(m->defaults[k].name, name) != 0) k++;
  if (i == m->n_inputs && k == m->n_defaults)
    return bs_error_set(err, BS_NOT_FOUND, "BS-GRAPH-PORT", "the model has no input '%.64s'", name);
  const int is_input = i < m->n_inputs;
  const uint32_t value = is_input ? m->inputs[i].value : m->defaults[k].value;
  const gmodel_value *v = &m->values[value];
  if (!shape_fits(tensor, v->dtype, is_input ? v->rank : m->defaults[k].rank,
                  is_input ? v->dims : m->defaults[k].dims))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT", "input '%.64s' has another dtype or shape",
                        name);
  const int32_t rc = fix_value(m, value, tensor, err);
  if (rc != BS_OK || !is_input) return rc;
  memmove(&m->inputs[i], &m->inputs[i + 1u], (m->n_inputs - i - 1u) * sizeof *m->inputs);
  m->n_inputs--;
  return BS_OK;
}

int32_t gmodel_state(gmodel *m, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     uint32_t *out_value, bs_error *err) {
  uint32_t symbol = 0;
  int32_t rc = value_add(m, GMODEL_STATE, name, dtype, rank, dims, out_value, err);
  if (rc == BS_OK && m->slots > 0) rc = gmodel_symbol(m, "batch", &symbol, err);
  if (rc != BS_OK) return rc;
  if (m->slots > 0) {
    m->values[*out_value].dims[0] = -1;
    m->values[*out_value].symbols[0] = symbol + 1u;
  }
  m->n_states++;
  return BS_OK;
}

int32_t gmodel_slots(gmodel *m, int64_t slots, int64_t limit, bs_error *err) {
  if (slots < 1 || slots > 1024 || limit < 1) {
    bs_error_set(err, BS_INPUT, "BS-GRAPH-STATE", "%lld slots of %lld tokens", (long long)slots,
                 (long long)limit);
    bs_error_hint(err, "slots: 1 to 1024");
    return BS_INPUT;
  }
  m->slots = slots;
  m->cache_tokens = limit;
  return BS_OK;
}

int32_t gmodel_state_next(gmodel *m, uint32_t state, uint32_t value, bs_error *err) {
  if (state >= m->n_values || value >= m->n_values || m->values[state].kind != GMODEL_STATE)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-STATE", "value %u is no state", state);
  m->values[state].next = value;
  return BS_OK;
}

int32_t gmodel_length(gmodel *m, uint32_t *out_value, bs_error *err) {
  const int64_t one = 1;
  if (m->length == GMODEL_NONE) {
    const int32_t rc = value_add(m, GMODEL_LENGTH, "cache_length", BS_I64, 1, &one, &m->length, err);
    if (rc != BS_OK) return rc;
  }
  *out_value = m->length;
  return BS_OK;
}

int32_t gmodel_cache(gmodel *m, uint32_t input, uint32_t axis, int64_t limit, bs_error *err) {
  if (input >= m->n_values || m->values[input].kind != GMODEL_INPUT || axis >= m->values[input].rank ||
      limit <= 0)
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-STATE",
                        "a cache of %lld tokens cannot be counted by value %u", (long long)limit, input);
  m->tokens_input = input;
  m->tokens_axis = axis;
  m->cache_tokens = limit;
  return BS_OK;
}

int32_t gmodel_computed(gmodel *m, const char *name, uint32_t *out_value, bs_error *err) {
  return value_add(m, GMODEL_COMPUTED, name, 0, GMODEL_RANK_UNKNOWN, NULL, out_value, err);
}

void gmodel_hint(gmodel *m, uint32_t value, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  gmodel_value *v = &m->values[value];
  v->dtype = dtype;
  if (rank > BS_MAX_DIMS) return;
  v->rank = rank;
  for (uint32_t i = 0; i < rank; i++) v->dims[i] = dims[i];
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static const void *copy_bytes(gmodel *m, const void *data, uint64_t count, uint64_t size) {
  uint64_t bytes;
  if (!bs_mul_u64(count, size, &bytes)) return NULL;
  void *own = gmodel_alloc(m, bytes);
  if (own != NULL && bytes > 0) memcpy(own, data, bytes);
  return own;
}

static int copy_texts(gmodel *m, const bs_attr *from, bs_attr *to) {
  const char **texts = gmodel_alloc(m, from->count * sizeof *texts);
  if (texts == NULL) return 0;
  for (uint64_t i = 0; i < from->count; i++) {
    texts[i] = copy_name(m, from->texts[i]);
    if (texts[i] == NULL) return 0;
  }
  to->texts = texts;
  return 1;
}

static int32_t copy_attr(gmodel *m, const bs_attr *from, int copy_tensors, bs_attr *to, bs_error *err) {
  *to = *from;
  to->struct_size = (uint32_t)sizeof *to;
  to->name = copy_name(m, from->name);
  int ok = to->name != NULL;
  uint64_t bytes;
  switch (from->type) {
    case GMODEL_ATTR_OTHER:
    case BS_ATTR_INT:
    case BS_ATTR_FLOAT:
    case BS_ATTR_GRAPH:
      break;
    case BS_ATTR_TEXT:
      ok = ok && (to->text = copy_name(m, from->text)) != NULL;
      break;
    case BS_ATTR_INTS:
      ok = ok && (to->ints = copy_bytes(m, from->ints, from->count, sizeof(int64_t))) != NULL;
      break;
    case BS_ATTR_FLOATS:
      ok = ok && (to->floats = copy_bytes(m, from->floats, from->count, sizeof(double))) != NULL;
      break;
    case BS_ATTR_TEXTS:
      ok = ok && copy_texts(m, from, to);
      break;
    case BS_ATTR_TENSOR:
      if (from->tensor == NULL || from->tensor->rank > BS_MAX_DIMS ||
          !gmodel_shape_bytes(from->tensor->dtype, from->tensor->rank, from->tensor->dims, &bytes))
        return bs_error_set(err, BS_INPUT, "BS-GRAPH-ATTR", "attribute '%.64s' is no tensor", from->name);
      ok = ok && (to->tensor = copy_bytes(m, from->tensor, 1, sizeof *from->tensor)) != NULL;
      if (copy_tensors) ok = ok && (to->data = copy_bytes(m, from->data, bytes, 1)) != NULL;
      break;
    default:
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-ATTR", "attribute '%.64s' has the unknown type %u",
                          from->name, from->type);
  }
  return ok ? BS_OK : model_no_memory(err);
}

static int32_t node_refs(const gmodel *m, const gmodel_node_desc *desc, const uint32_t *out, bs_error *err) {
  const char *wrong = NULL;
  for (uint32_t i = 0; i < desc->n_in; i++)
    if (desc->in[i] != GMODEL_NONE && desc->in[i] >= m->n_values) wrong = "an input that does not exist";
  for (uint32_t i = 0; i < desc->n_out; i++) {
    if (out[i] == GMODEL_NONE) continue;
    if (out[i] >= m->n_values)
      wrong = "an output that does not exist";
    else if (m->values[out[i]].kind != GMODEL_COMPUTED || m->values[out[i]].producer != GMODEL_NONE)
      wrong = "an output that another node or the model gives already";
  }
  if (desc->block >= m->n_blocks) wrong = "a branch that does not exist";
  if (wrong == NULL) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-GRAPH-NODE", "node '%.64s' (%.64s) has %s",
               desc->name != NULL ? desc->name : "", desc->op != NULL ? desc->op : "", wrong);
  return BS_INPUT;
}

int32_t gmodel_node_add(gmodel *m, const gmodel_node_desc *desc, const uint32_t *out, bs_error *err) {
  int32_t rc = node_refs(m, desc, out, err);
  if (rc == BS_OK) rc = schema_check(m, desc, out, err);
  if (rc != BS_OK) return rc;
  gmodel_node n = {.opset = desc->opset != 0 ? desc->opset : m->opset,
                   .block = desc->block,
                   .n_in = desc->n_in,
                   .n_out = desc->n_out,
                   .n_attr = desc->n_attr};
  n.op = copy_name(m, desc->op);
  n.domain = copy_name(m, desc->domain);
  n.name = copy_name(m, desc->name);
  n.in = copy_bytes(m, desc->in, desc->n_in, sizeof(uint32_t));
  n.out = copy_bytes(m, out, desc->n_out, sizeof(uint32_t));
  bs_attr *attrs = gmodel_alloc(m, desc->n_attr * sizeof *attrs);
  if (n.op == NULL || n.domain == NULL || n.name == NULL || n.in == NULL || n.out == NULL || attrs == NULL)
    return model_no_memory(err);
  for (uint32_t i = 0; i < desc->n_attr; i++) {
    rc = copy_attr(m, desc->attrs[i], desc->copy_tensors, &attrs[i], err);
    if (rc != BS_OK) return rc;
  }
  n.attrs = attrs;
  gmodel_block *b = &m->blocks[desc->block];
  uint32_t *list = (uint32_t *)b->nodes;
  if (!ARRAY_GROW(m->nodes, m->n_nodes, m->cap_nodes)) return model_no_memory(err);
  const int grown = ARRAY_GROW(list, b->n_nodes, b->cap_nodes);
  b->nodes = list;
  if (!grown) return model_no_memory(err);
  list[b->n_nodes++] = m->n_nodes;
  for (uint32_t i = 0; i < desc->n_out; i++)
    if (out[i] != GMODEL_NONE) m->values[out[i]].producer = m->n_nodes;
  m->nodes[m->n_nodes++] = n;
  return BS_OK;
}

int32_t gmodel_op(gmodel *m, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
                  const bs_attr *const *attrs, uint32_t n_attr, uint32_t *out_values, uint32_t n_out,
                  bs_error *err) {
  /* The outputs' numbers may replace the inputs' in one array. */
  uint32_t *from = malloc((n_in + 1u) * sizeof *from);
  int32_t rc = from == NULL ? model_no_memory(err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < n_in; i++) from[i] = in[i];
  for (uint32_t i = 0; rc == BS_OK && i < n_out; i++) rc = gmodel_computed(m, NULL, &out_values[i], err);
  const gmodel_node_desc desc = {.op = op,
                                 .name = name,
                                 .in = from,
                                 .n_in = n_in,
                                 .n_out = n_out,
                                 .n_attr = n_attr,
                                 .attrs = attrs,
                                 .copy_tensors = 1};
  if (rc == BS_OK) rc = gmodel_node_add(m, &desc, out_values, err);
  free(from);
  return rc;
}

int32_t gmodel_block_new(gmodel *m, uint32_t *out_block, bs_error *err) {
  if (!ARRAY_GROW(m->blocks, m->n_blocks, m->cap_blocks)) return model_no_memory(err);
  memset(&m->blocks[m->n_blocks], 0, sizeof *m->blocks);
  *out_block = m->n_blocks++;
  return BS_OK;
}

int32_t gmodel_block_input(gmodel *m, const char *name, uint32_t dtype, uint32_t *out_value, bs_error *err) {
  const int32_t rc = gmodel_computed(m, name, out_value, err);
  if (rc == BS_OK) m->values[*out_value].dtype = dtype;
  return rc;
}

int32_t gmodel_block_ports(gmodel *m, uint32_t block, const uint32_t *inputs, uint32_t n_inputs,
                           const uint32_t *outputs, uint32_t n_outputs, bs_error *err) {
  gmodel_block *b = &m->blocks[block];
  b->inputs = copy_bytes(m, inputs, n_inputs, sizeof *inputs);
  b->outputs = copy_bytes(m, outputs, n_outputs, sizeof *outputs);
  if (b->inputs == NULL || b->outputs == NULL) return model_no_memory(err);
  b->n_inputs = n_inputs;
  b->n_outputs = n_outputs;
  return BS_OK;
}

int32_t gmodel_output(gmodel *m, const char *name, uint32_t value, bs_error *err) {
  if (value >= m->n_values)
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-OUTPUT", "output '%.64s' is value %u of %u", name, value,
                        m->n_values);
  return port_add(m, &m->outputs, &m->n_outputs, &m->cap_outputs, name, value, err);
}

const bs_attr *gmodel_attr(const gmodel_node *node, const char *name) {
  for (uint32_t i = 0; i < node->n_attr; i++)
    if (strcmp(node->attrs[i].name, name) == 0) return &node->attrs[i];
  return NULL;
}

/* ---- a whole model --------------------------------------------------------------------------- */

static int compare_ports(const void *a, const void *b) {
  return strcmp(((const gmodel_port *)a)->name, ((const gmodel_port *)b)->name);
}

static int32_t check_names(const gmodel_port *ports, uint32_t n, const char *what, bs_error *err) {
  gmodel_port *sorted = malloc((n > 0 ? n : 1u) * sizeof *sorted);
  if (sorted == NULL) return model_no_memory(err);
  if (n > 0) memcpy(sorted, ports, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, compare_ports);
  int32_t rc = BS_OK;
  for (uint32_t i = 1; i < n && rc == BS_OK; i++)
    if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
      rc = bs_error_set(err, BS_INPUT, "BS-GRAPH-NAMES", "two %ss have the name '%.64s'", what,
                        sorted[i].name);
  free(sorted);
  return rc;
}

/* Known before node `at` of block `block`: no producer, or one before it. Numbers of nodes grow with each
 * block, and a branch is read after what stands before its If: the order of numbers in a block is enough
 * inside it. */
static int known(const gmodel *m, const unsigned char *done, uint32_t value) {
  const gmodel_value *v = &m->values[value];
  return v->producer == GMODEL_NONE ? v->kind != GMODEL_COMPUTED || done[value] : done[value];
}

static int32_t check_block(const gmodel *m, uint32_t block, unsigned char *done, uint32_t depth,
                           bs_error *err) {
  if (depth > 8) return bs_error_set(err, BS_INPUT, "BS-GRAPH-DEPTH", "branches are nested more than 8 deep");
  const gmodel_block *b = &m->blocks[block];
  for (uint32_t i = 0; i < b->n_inputs; i++) done[b->inputs[i]] = 1;
  for (uint32_t k = 0; k < b->n_nodes; k++) {
    const gmodel_node *n = &m->nodes[b->nodes[k]];
    for (uint32_t i = 0; i < n->n_in; i++) {
      if (n->in[i] == GMODEL_NONE || known(m, done, n->in[i])) continue;
      bs_error_set(err, BS_INPUT, "BS-GRAPH-ORDER",
                   "node '%.64s' (%.64s) reads '%.64s', which no node before it gives", n->name, n->op,
                   m->values[n->in[i]].name);
      return BS_INPUT;
    }
    for (uint32_t i = 0; i < n->n_attr; i++) {
      if (n->attrs[i].type != BS_ATTR_GRAPH) continue;
      if (n->attrs[i].i <= 0 || n->attrs[i].i >= m->n_blocks)
        return bs_error_set(err, BS_INPUT, "BS-GRAPH-NODE", "node '%.64s' has no branch %lld", n->name,
                            (long long)n->attrs[i].i);
      const int32_t rc = check_block(m, (uint32_t)n->attrs[i].i, done, depth + 1u, err);
      if (rc != BS_OK) return rc;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
      if (n->out[i] != GMODEL_NONE) done[n->out[i]] = 1;
  }
  for (uint32_t i = 0; i < b->n_outputs; i++)
    if (b->outputs[i] >= m->n_values || !known(m, done, b->outputs[i]))
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-ORDER", "an output of a branch is not computed");
  return BS_OK;
}

int32_t gmodel_check(const gmodel *m, bs_error *err) {
  if (m->n_outputs == 0) return bs_error_set(err, BS_INPUT, "BS-GRAPH-OUTPUT", "the model has no output");
  int32_t rc = check_names(m->inputs, m->n_inputs, "input", err);
  if (rc == BS_OK) rc = check_names(m->outputs, m->n_outputs, "output", err);
  if (rc != BS_OK) return rc;
  unsigned char *done = calloc(m->n_values + 1u, 1);
  if (done == NULL) return model_no_memory(err);
  rc = check_block(m, 0, done, 0, err);
  for (uint32_t i = 0; i < m->n_outputs && rc == BS_OK; i++)
    if (!known(m, done, m->outputs[i].value))
      rc = bs_error_set(err, BS_INPUT, "BS-GRAPH-OUTPUT", "no node computes the output '%.64s'",
                        m->outputs[i].name);
  for (uint32_t i = 0; i < m->n_values && rc == BS_OK; i++) {
    const gmodel_value *v = &m->values[i];
    if (v->kind == GMODEL_STATE &&
        (v->next == GMODEL_NONE || !known(m, done, v->next) || m->cache_tokens == 0))
      rc = bs_error_set(err, BS_INPUT, "BS-GRAPH-STATE", "the state '%.64s' is not carried to the next run",
                        v->name);
  }
  free(done);
  return rc;
}
