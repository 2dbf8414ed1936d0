/* SPDX-License-Identifier: MIT
 * hf_build.c - the pieces of a decoder: weights, products, heads, attention over the key-value cache. Values
 * have the shape [tokens, width] between layers. Called by gpt2.c and llama.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/gguf.h"

bs_attr hf_attr_int(const char *name, int64_t value) {
  return (bs_attr){.struct_size = (uint32_t)sizeof(bs_attr), .type = BS_ATTR_INT, .name = name, .i = value};
}

bs_attr hf_attr_float(const char *name, double value) {
  return (bs_attr){.struct_size = (uint32_t)sizeof(bs_attr), .type = BS_ATTR_FLOAT, .name = name, .f = value};
}

bs_attr hf_attr_text(const char *name, const char *value) {
  return (bs_attr){
      .struct_size = (uint32_t)sizeof(bs_attr), .type = BS_ATTR_TEXT, .name = name, .text = value};
}

bs_attr hf_attr_ints(const char *name, const int64_t *values, uint64_t count) {
  return (bs_attr){.struct_size = (uint32_t)sizeof(bs_attr),
                   .type = BS_ATTR_INTS,
                   .name = name,
                   .ints = values,
                   .count = count};
}

const char *hf_name(hf_build *b, const char *prefix, const char *suffix) {
  const size_t first = strlen(prefix), second = strlen(suffix);
  char *name = b->rc == BS_OK ? gmodel_alloc(b->model, first + second + 1) : NULL;
  if (name == NULL) {
    if (b->rc == BS_OK) b->rc = model_no_memory(b->err);
    return "";
  }
  snprintf(name, first + second + 1, "%s%s", prefix, suffix);
  return name;
}

/* ---- operators and constants ------------------------------------------------------------------ */

uint32_t hf_op(hf_build *b, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
               const bs_attr *attrs, uint32_t n_attr) {
  const bs_attr *list[8] = {NULL};
  uint32_t out = GMODEL_NONE;
  if (b->rc != BS_OK) return GMODEL_NONE;
  for (uint32_t i = 0; i < n_attr; i++) list[i] = &attrs[i];
  b->rc = gmodel_op(b->model, op, name, in, n_in, list, n_attr, &out, 1, b->err);
  return out;
}

uint32_t hf_own_op(hf_build *b, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
                   const bs_attr *attrs, uint32_t n_attr) {
  const bs_attr *list[8] = {NULL};
  const gmodel_node_desc desc = {.op = op,
                                 .domain = "blockshock",
                                 .name = name,
                                 .opset = 1,
                                 .in = in,
                                 .n_in = n_in,
                                 .n_out = 1,
                                 .n_attr = n_attr,
                                 .attrs = list,
                                 .copy_tensors = 1};
  uint32_t out = GMODEL_NONE;
  for (uint32_t i = 0; i < n_attr; i++) list[i] = &attrs[i];
  if (b->rc == BS_OK) b->rc = gmodel_computed(b->model, NULL, &out, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_node_add(b->model, &desc, &out, b->err);
  return out;
}

uint32_t hf_op1(hf_build *b, const char *op, const char *name, uint32_t x) {
  return hf_op(b, op, name, &x, 1, NULL, 0);
}

uint32_t hf_op2(hf_build *b, const char *op, const char *name, uint32_t x, uint32_t y) {
  const uint32_t in[2] = {x, y};
  return hf_op(b, op, name, in, 2, NULL, 0);
}

static uint32_t int_constant(hf_build *b, uint32_t rank, const int64_t *values, int64_t count) {
  uint32_t out = GMODEL_NONE;
  if (b->rc == BS_OK)
    b->rc = gmodel_constant(b->model, "", BS_I64, rank, &count, values, (uint64_t)count * sizeof *values, 1,
                            &out, b->err);
  return out;
}

uint32_t hf_ints(hf_build *b, const int64_t *values, uint32_t count) {
  return int_constant(b, 1, values, (int64_t)count);
}

uint32_t hf_scalar(hf_build *b, int64_t value) {
  return int_constant(b, 0, &value, 1);
}

uint32_t hf_reshape(hf_build *b, const char *name, uint32_t x, uint32_t rank, const int64_t *dims) {
  return hf_op2(b, "Reshape", name, x, hf_ints(b, dims, rank));
}

/* ---- weights ---------------------------------------------------------------------------------- */

int hf_has_weight(hf_build *b, const char *name) {
  if (b->weights->shapes != NULL) return hf_shapes_has(b, name);
  return hf_weights_find(b->weights, name) != NULL;
}

static void bad_shape(hf_build *b, const bs_st_tensor *t, uint32_t rank, const int64_t *dims) {
  char seen[128] = "", want[128] = "";
  size_t s = 0, w = 0;
  for (uint32_t i = 0; i < t->rank && s < sizeof seen - 24; i++)
    s += (size_t)snprintf(seen + s, sizeof seen - s, "%s%" PRId64, i > 0 ? "," : "", t->dims[i]);
  for (uint32_t i = 0; i < rank; i++)
    w += (size_t)snprintf(want + w, sizeof want - w, "%s%" PRId64, i > 0 ? "," : "", dims[i]);
  b->rc =
      bs_error_set(b->err, BS_INPUT, "BS-HF-SHAPE", "tensor '%.200s' has the shape [%s]; %s [%s]", t->name,
                   seen, b->weights->gguf != NULL ? "the keys ask for" : "config.json asks for", want);
}

static int is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16;
}

/* The number of a dtype in ONNX, for Cast. */
static int64_t onnx_number(uint32_t dtype) {
  for (uint32_t i = 1; bs_onnx_type_of(i) != NULL; i++)
    if (bs_onnx_type_of(i)->dtype == dtype) return i;
  return 0;
}

static uint32_t cast(hf_build *b, const char *name, uint32_t x, uint32_t from, uint32_t to) {
  const bs_attr number = hf_attr_int("to", onnx_number(to));
  return from == to ? x : hf_op(b, "Cast", name, &x, 1, &number, 1);
}

uint32_t hf_cast(hf_build *b, const char *name, uint32_t x, uint32_t dtype) {
  return cast(b, name, x, dtype, b->dtype);
}

uint32_t hf_wide(const hf_build *b) {
  return b->dtype == BS_F16 || b->dtype == BS_BF16 ? BS_F32 : b->dtype;
}

uint32_t hf_widen(hf_build *b, const char *name, uint32_t x) {
  return cast(b, name, x, b->dtype, hf_wide(b));
}

uint32_t hf_number(hf_build *b, double value, uint32_t dtype) {
  const float number = (float)value;
  uint32_t out = GMODEL_NONE;
  if (b->rc == BS_OK)
    b->rc = gmodel_constant(b->model, "", BS_F32, 0, NULL, &number, sizeof number, 1, &out, b->err);
  return cast(b, "", out, BS_F32, dtype);
}

uint32_t hf_soft_cap(hf_build *b, const char *name, uint32_t x, double cap) {
  if (cap == 0) return x;
  const uint32_t most = hf_number(b, cap, b->dtype);
  return hf_op2(b, "Mul", name, hf_op1(b, "Tanh", name, hf_op2(b, "Div", name, x, most)), most);
}

static const char quantized[] =
    "config.json has quantization_config: quantised weights are not read, take the original ones";

/* The tensor, checked and marked as read; NULL: b->rc tells. dtype 0: of GGUF, not a float. */
static const bs_st_tensor *checked(hf_build *b, const char *name, uint32_t rank, const int64_t *dims) {
  if (b->rc != BS_OK) return NULL;
  const bs_st_tensor *t =
      b->weights->shapes != NULL ? hf_shapes_tensor(b, name, rank, dims) : hf_weights_find(b->weights, name);
  if (b->rc != BS_OK) return NULL;
  if (t == NULL) {
    char own[GGUF_NAME];
    b->rc = bs_error_set(b->err, BS_INPUT, "BS-HF-TENSOR", "no file has the tensor '%.200s'",
                         hf_weights_name(b->weights, name, own));
    if (hf_has_key(b, "quantization_config")) bs_error_hint(b->err, "%s", quantized);
    return NULL;
  }
  hf_weights_use(b->weights, name);
  if (!is_float(t->dtype) && !(t->dtype == 0 && b->weights->gguf != NULL)) {
    b->rc =
        bs_error_set(b->err, BS_INPUT, "BS-HF-DTYPE", "tensor '%.200s' has the dtype %s", name, t->type_name);
    bs_error_hint(b->err, "%s",
                  hf_has_key(b, "quantization_config") ? quantized : "dtypes of weights: F64 F32 F16 BF16");
    return NULL;
  }
  if (t->rank == rank && memcmp(t->dims, dims, rank * sizeof *dims) == 0) return t;
  bad_shape(b, t, rank, dims);
  return NULL;
}

uint32_t hf_weight(hf_build *b, const char *name, uint32_t rank, const int64_t *dims) {
  uint32_t out = GMODEL_NONE;
  const bs_st_tensor *t = checked(b, name, rank, dims);
  if (t == NULL) return GMODEL_NONE;
  if (t->dtype == 0) return gguf_constant(b, name, t);
  b->rc = gmodel_constant(b->model, name, t->dtype, rank, t->dims, t->data, t->bytes, 0, &out, b->err);
  if (b->dtype == 0) b->dtype = t->dtype; /* the embeddings come first */
  return hf_cast(b, name, out, t->dtype);
}

uint32_t hf_weight_rows(hf_build *b, const char *name, const char *part, uint32_t rank, const int64_t *dims,
                        int64_t first, int64_t rows) {
  uint32_t out = GMODEL_NONE;
  const bs_st_tensor *t = checked(b, name, rank, dims);
  if (t != NULL && t->dtype == 0)
    b->rc = bs_error_set(b->err, BS_INPUT, "BS-GGUF-TYPE", "rows of '%.200s' in %s are not built", t->name,
                         t->type_name);
  if (t == NULL || b->rc != BS_OK) return GMODEL_NONE;
  const int64_t shape[2] = {rows, dims[rank - 1]};
  const uint64_t row = (uint64_t)dims[rank - 1] * BS_DTYPE_BYTES(t->dtype);
  name = hf_name(b, name, part);
  if (b->rc == BS_OK)
    b->rc = gmodel_constant(b->model, name, t->dtype, 2, shape, (const char *)t->data + (uint64_t)first * row,
                            (uint64_t)rows * row, 0, &out, b->err);
  return hf_cast(b, name, out, t->dtype);
}

uint32_t hf_gemm(hf_build *b, const char *name, uint32_t x, uint32_t weight, uint32_t bias, int turned) {
  const uint32_t in[3] = {x, weight, bias};
  const bs_attr attr = hf_attr_int("transB", !turned);
  return hf_op(b, "Gemm", name, in, bias != GMODEL_NONE ? 3 : 2, &attr, 1);
}

uint32_t hf_linear(hf_build *b, const char *prefix, uint32_t x, int64_t inputs, int64_t outputs, int turned) {
  turned = turned && !b->straight;
  const int64_t dims[2] = {turned ? inputs : outputs, turned ? outputs : inputs};
  const char *bias = hf_name(b, prefix, ".bias");
  const int has_bias = b->rc == BS_OK && hf_has_weight(b, bias);
  const uint32_t weight = hf_weight(b, hf_name(b, prefix, ".weight"), 2, dims);
  return hf_gemm(b, prefix, x, weight, has_bias ? hf_weight(b, bias, 1, &outputs) : GMODEL_NONE, turned);
}

/* ---- attention -------------------------------------------------------------------------------- */

static uint32_t swap_heads(hf_build *b, const char *name, uint32_t x) {
  static const int64_t order[4] = {0, 2, 1, 3};
  const bs_attr perm = hf_attr_ints("perm", order, 4);
  return hf_op(b, "Transpose", name, &x, 1, &perm, 1);
}

uint32_t hf_heads(hf_build *b, const char *name, uint32_t x, int64_t heads, int64_t width) {
  const int64_t dims[4] = {1, -1, heads, width};
  if (b->slots == 0) return swap_heads(b, name, hf_reshape(b, name, x, 4, dims));
  const uint32_t parts[2] = {b->shape, hf_ints(b, dims + 2, 2)};
  const bs_attr axis = hf_attr_int("axis", 0);
  const uint32_t shape = hf_op(b, "Concat", name, parts, 2, &axis, 1);
  return swap_heads(b, name, hf_op2(b, "Reshape", name, x, shape));
}

uint32_t hf_unheads(hf_build *b, const char *name, uint32_t x, int64_t heads, int64_t width) {
  const int64_t dims[2] = {-1, heads * width};
  return hf_reshape(b, name, swap_heads(b, name, x), 2, dims);
}

uint32_t hf_remember(hf_build *b, const char *name, uint32_t now, int64_t groups, int64_t width) {
  const int64_t dims[4] = {1, groups, b->cache, width};
  const uint32_t dtype = b->cache_dtype != 0 ? b->cache_dtype : b->dtype;
  uint32_t state = GMODEL_NONE;
  if (b->rc == BS_OK) b->rc = gmodel_state(b->model, name, dtype, 4, dims, &state, b->err);
  const uint32_t in[3] = {state, cast(b, name, now, b->dtype, dtype), b->before};
  const bs_attr axis = hf_attr_int("axis", 2);
  const uint32_t next = hf_op(b, "TensorScatter", name, in, 3, &axis, 1);
  if (b->rc == BS_OK) b->rc = gmodel_state_next(b->model, state, next, b->err);
  return next;
}

uint32_t hf_attention(hf_build *b, const char *name, uint32_t q, uint32_t keys, uint32_t values,
                      const hf_attend *how) {
  const uint32_t in[7] = {q, keys, values, GMODEL_NONE, GMODEL_NONE, GMODEL_NONE, how->filled};
  bs_attr attrs[4] = {hf_attr_int("is_causal", 1), hf_attr_float("scale", how->scale)};
  uint32_t n = 2;
  if (how->window > 0) attrs[n++] = hf_attr_int("left_window_size", how->window - 1);
  if (how->softcap > 0) attrs[n++] = hf_attr_float("softcap", how->softcap);
  if (b->cache_dtype == 0 || b->cache_dtype == b->dtype) return hf_op(b, "Attention", name, in, 7, attrs, n);
  /* ONNX's takes K in Q's dtype alone. */
  return hf_own_op(b, "Attention", name, in, 7, attrs, n);
}

uint32_t hf_activation(hf_build *b, const char *key, const char *usual, const char *name, uint32_t x) {
  static const struct {
    const char *name, *op, *approximate;
  } known[] = {
      {"gelu", "Gelu", "none"},      {"gelu_new", "Gelu", "tanh"}, {"gelu_pytorch_tanh", "Gelu", "tanh"},
      {"gelu_fast", "Gelu", "tanh"}, {"relu", "Relu", NULL},       {"silu", "Swish", NULL},
      {"swish", "Swish", NULL},      {"tanh", "Tanh", NULL}};
  const char *asked = hf_text(b, key, usual);
  for (size_t i = 0; b->rc == BS_OK && i < sizeof known / sizeof *known; i++) {
    if (strcmp(asked, known[i].name) != 0) continue;
    const bs_attr how = hf_attr_text("approximate", known[i].approximate);
    return hf_op(b, known[i].op, name, &x, 1, &how, known[i].approximate != NULL);
  }
  hf_refuse(b, key, "known: gelu gelu_new gelu_pytorch_tanh gelu_fast relu silu swish tanh");
  return GMODEL_NONE;
}

/* ---- ports ------------------------------------------------------------------------------------ */

/* The inputs of a model with slots: ids, lengths, rows. Returns the ids. */
static uint32_t slot_inputs(hf_build *b) {
  static const int64_t dims[2] = {-1, -1};
  static const char *const symbols[2] = {"batch", "sequence"}, *const rows[1] = {"rows"};
  uint32_t ids = GMODEL_NONE;
  b->rc = gmodel_slots(b->model, b->slots, b->cache, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_input(b->model, "input_ids", BS_I64, 2, dims, symbols, &ids, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_input(b->model, "lengths", BS_I64, 1, dims, symbols, &b->before, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_input(b->model, "rows", BS_I64, 1, dims, rows, &b->rows, b->err);
  b->shape = hf_op1(b, "Shape", "shape", ids);
  return ids;
}

static uint32_t one_input(hf_build *b) {
  static const int64_t dims[2] = {1, -1};
  static const char *const symbols[2] = {NULL, "sequence"};
  uint32_t ids = GMODEL_NONE;
  b->rc = gmodel_input(b->model, "input_ids", BS_I64, 2, dims, symbols, &ids, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_cache(b->model, ids, 1, b->cache, b->err);
  if (b->rc == BS_OK) b->rc = gmodel_length(b->model, &b->before, b->err);
  return ids;
}

void hf_begin(hf_build *b, int64_t positions, int64_t asked) {
  static const int64_t flat = -1, none = 0, one = 1;
  const bs_attr shape[2] = {hf_attr_int("start", 1), hf_attr_int("end", 2)};
  if (b->rc != BS_OK) return;
  if (asked > positions) {
    b->rc =
        bs_error_set(b->err, BS_INPUT, "BS-HF-CACHE",
                     "a cache of %" PRId64 " tokens; the model has %" PRId64 " positions", asked, positions);
    bs_error_hint(b->err, "ask for a cache of at most %" PRId64 " tokens", positions);
    return;
  }
  b->cache = asked > 0 ? asked : positions;
  const uint32_t input = b->slots > 0 ? slot_inputs(b) : one_input(b);
  b->ids = hf_reshape(b, "input_ids", input, 1, &flat);
  const uint32_t tokens = hf_op(b, "Shape", "tokens", &input, 1, shape, 2);
  const uint32_t range[3] = {hf_scalar(b, 0), hf_op2(b, "Squeeze", "tokens", tokens, hf_ints(b, &none, 1)),
                             hf_scalar(b, 1)};
  const uint32_t count = hf_op(b, "Range", "positions", range, 3, NULL, 0);
  if (b->slots > 0) {
    b->places = hf_op2(b, "Add", "position_ids", count,
                       hf_op2(b, "Unsqueeze", "lengths", b->before, hf_ints(b, &one, 1)));
    b->positions = hf_reshape(b, "positions", b->places, 1, &flat);
  } else {
    b->positions = hf_op2(b, "Add", "positions", count, b->before);
  }
  b->filled = hf_op2(b, "Add", "cache_filled", b->before, tokens);
}

static uint32_t last_row(hf_build *b, uint32_t x) {
  static const int64_t first = -1, end = INT64_MAX, axis = 0;
  const uint32_t in[4] = {x, hf_ints(b, &first, 1), hf_ints(b, &end, 1), hf_ints(b, &axis, 1)};
  return hf_op(b, "Slice", "wanted", in, 4, NULL, 0);
}

void hf_end(hf_build *b, uint32_t x, uint32_t head, int64_t words, double cap) {
  const int64_t dims[3] = {1, -1, words};
  if (b->slots > 0)
    x = hf_op2(b, "Gather", "wanted", x, b->rows);
  else if (b->last_logits)
    x = last_row(b, x);
  const uint32_t in[2] = {x, head};
  const bs_attr turned = hf_attr_int("transB", 1);
  const uint32_t all = hf_soft_cap(b, "logits_cap", hf_op(b, "Gemm", "lm_head", in, 2, &turned, 1), cap);
  const uint32_t logits = b->slots > 0 ? all : hf_reshape(b, "logits", all, 3, dims);
  if (b->rc == BS_OK) b->rc = gmodel_output(b->model, "logits", logits, b->err);
}
