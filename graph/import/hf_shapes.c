/* SPDX-License-Identifier: MIT
 * hf_shapes.c - a folder that has config.json and no weights (bs_graph_options.shapes): each tensor that a
 * builder asks for is made of zeros, in pages that the system does not keep. Called by hf_build.c and hf.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/error.h"
#include "graph/import/hf.h"
#include "graph/import/import.h"
#include "graph/ir/arena.h"

static const uint64_t MOST_BYTES = UINT64_C(1) << 44;

typedef struct made {
  bs_span span; /* of the name */
  bs_st_tensor tensor;
} made;

struct hf_shapes {
  made **all;
  uint32_t n, cap;
  bs_names by_name; /* to an index of all */
  uint64_t bytes;
};

int32_t hf_shapes_open(hf_weights *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->shapes = calloc(1, sizeof *out->shapes);
  return out->shapes != NULL ? BS_OK : model_no_memory(err);
}

static void made_free(made *m) {
  if (m == NULL) return;
  if (m->tensor.data != NULL) munmap((void *)(uintptr_t)m->tensor.data, m->tensor.bytes);
  free(m->tensor.name);
  free(m);
}

void hf_shapes_close(struct hf_shapes *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < s->n; i++) made_free(s->all[i]);
  bs_names_free(&s->by_name);
  free(s->all);
  free(s);
}

/* Tensors that only some models have, where no key of config.json says so. type NULL: all models. */
static const struct {
  const char *type, *end;
} optional[] = {{NULL, "model.embed_tokens.weight"},
                {"gpt2", "transformer.wte.weight"},
                {"gpt2", ".bias"},
                {"qwen2", ".q_proj.bias"},
                {"qwen2", ".k_proj.bias"},
                {"qwen2", ".v_proj.bias"},
                {"mixtral", ".block_sparse_moe.gate.weight"}};

int hf_shapes_has(hf_build *b, const char *name) {
  const char *type = hf_text(b, "model_type", NULL);
  const size_t size = strlen(name);
  for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
    const char *end = optional[i].end;
    if (optional[i].type != NULL && strcmp(optional[i].type, type) != 0) continue;
    if (size >= strlen(end) && strcmp(name + size - strlen(end), end) == 0) return 1;
  }
  return 0;
}

/* The dtype of the weights: `dtype`, in older files `torch_dtype`; f32 without both. */
static uint32_t dtype_of(hf_build *b, const char **out_name) {
  static const struct {
    const char *name, *type_name;
    uint32_t dtype;
  } known[] = {{"float32", "F32", BS_F32}, {"bfloat16", "BF16", BS_BF16}, {"float16", "F16", BS_F16}};
  const char *key = hf_has_key(b, "dtype") ? "dtype" : "torch_dtype";
  const char *text = hf_has_key(b, key) ? hf_text(b, key, NULL) : known[0].name;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(text, known[i].name) == 0) {
      *out_name = known[i].type_name;
      return known[i].dtype;
    }
  if (b->rc == BS_OK) hf_refuse(b, key, "known: float32 bfloat16 float16");
  return 0;
}

static void *zeros(uint64_t bytes) {
  void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data != MAP_FAILED ? data : NULL;
}

static int32_t fill(hf_build *b, made *m, const char *name, uint32_t rank, const int64_t *dims) {
  struct hf_shapes *s = b->weights->shapes;
  bs_st_tensor *t = &m->tensor;
  t->dtype = dtype_of(b, &t->type_name);
  if (b->rc != BS_OK) return b->rc;
  uint64_t bytes = 0;
  if (!gmodel_shape_bytes(t->dtype, rank, dims, &bytes) || bytes == 0 || bytes > MOST_BYTES - s->bytes)
    return bs_error_set(b->err, BS_INPUT, "BS-HF-SHAPE", "tensor '%.200s' or the model is too large", name);
  t->rank = rank;
  memcpy(t->dims, dims, rank * sizeof *dims);
  t->name = strdup(name);
  t->data = zeros(bytes);
  if (t->name == NULL || t->data == NULL) return model_no_memory(b->err);
  t->bytes = bytes;
  s->bytes += bytes;
  m->span = (bs_span){t->name, strlen(t->name)};
  return bs_names_add(&s->by_name, &m->span, s->n) > 0 ? BS_OK : model_no_memory(b->err);
}

const bs_st_tensor *hf_shapes_tensor(hf_build *b, const char *name, uint32_t rank, const int64_t *dims) {
  struct hf_shapes *s = b->weights->shapes;
  const uint32_t *found = bs_names_find(&s->by_name, (bs_span){name, strlen(name)});
  if (found != NULL) return &s->all[*found]->tensor;
  made *m = ARRAY_GROW(s->all, s->n, s->cap) ? calloc(1, sizeof *m) : NULL;
  b->rc = m == NULL ? model_no_memory(b->err) : fill(b, m, name, rank, dims);
  if (b->rc != BS_OK) {
    made_free(m);
    return NULL;
  }
  s->all[s->n++] = m;
  return &m->tensor;
}
