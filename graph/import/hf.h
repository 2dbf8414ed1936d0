/* SPDX-License-Identifier: MIT
 * hf.h - inside the importer of folders: the folder's config.json and safetensors, and the pieces that the
 * builders of models (gpt2.c, llama.c) are made of. The first error is kept in the build: later calls do
 * nothing, and the builder need not look after each. */
#ifndef BS_GRAPH_IMPORT_HF_H
#define BS_GRAPH_IMPORT_HF_H
#include <jansson.h>

#include "formats/names.h"
#include "formats/safetensors.h"
#include "graph/model.h"

/* One file of weights, or the tensors of all of them by name. With gguf they are those of a GGUF file, and
 * have its names; names that are asked for are those of a folder. */
typedef struct hf_file {
  char *path;
  bs_st st;
} hf_file;
typedef struct hf_weights {
  hf_file *files;
  uint32_t n_files;
  bs_span *spans; /* names of the tensors, in the order of the files */
  const bs_st_tensor **tensors;
  uint32_t n_tensors;
  unsigned char *read;      /* of each tensor: 1 when the model reads it */
  bs_names by_name;         /* to an index of tensors */
  struct hf_gguf *gguf;     /* NULL: a folder */
  struct hf_shapes *shapes; /* of a folder without weights (hf_shapes.c); NULL: it has them */
} hf_weights;

struct hf_build;
/* Weights of zeros, for a folder that has none. */
int hf_weights_in(const char *folder); /* 1: it has files of weights, or an index of them */
int32_t hf_shapes_open(hf_weights *out_weights, bs_error *err);
void hf_shapes_close(struct hf_shapes *shapes);
/* 1: a model of this kind has the tensor, though no key says so. */
int hf_shapes_has(struct hf_build *b, const char *name);
/* The tensor of that name, made when it is new. NULL: b->rc tells. */
const bs_st_tensor *hf_shapes_tensor(struct hf_build *b, const char *name, uint32_t rank,
                                     const int64_t *dims);
/* Opens model.safetensors, or the files that model.safetensors.index.json names. */
int32_t hf_weights_open(const char *folder, hf_weights *out_weights, bs_error *err);
int32_t hf_weights_unchanged(const hf_weights *weights, bs_error *err);
void hf_weights_close(hf_weights *weights);
/* NULL: there is no such tensor. */
const bs_st_tensor *hf_weights_find(const hf_weights *weights, const char *name);
/* The tensor is read, or is known to be of no use to the model. */
void hf_weights_use(const hf_weights *weights, const char *name);
/* The name of a tensor in the files, for messages. */
const char *hf_weights_name(const hf_weights *weights, const char *name, char buffer[200]);
/* The JSON object in folder/name; NULL with err filled. */
json_t *hf_json(const char *folder, const char *name, bs_error *err);

typedef struct hf_build {
  gmodel *model;
  const hf_weights *weights;
  json_t *config;
  char config_path[160]; /* for messages; cut when it is longer */
  uint32_t dtype;        /* of activations: that of the embeddings */
  uint32_t cache_dtype;  /* of the key-value cache; 0: as the activations */
  uint32_t last_logits;  /* bs_graph_options.last_logits */
  int pairs;          /* columns 2i and 2i + 1 of a head of Q and K are turned together, not i and i + half */
  int straight;       /* weights that GPT-2 has as [inputs, outputs] lie as [outputs, inputs] */
  int64_t cache;      /* tokens of the key-value cache */
  int64_t layers;     /* that are wanted; 0: all */
  int64_t slots;      /* bs_graph_options.slots */
  uint32_t ids;       /* i64 [tokens] */
  uint32_t positions; /* i64 [tokens] */
  uint32_t filled;    /* i64 [batch], [1] without slots: tokens in the cache after the run */
  uint32_t before;    /* likewise, before the run */
  uint32_t shape;     /* with slots, i64 [2]: batch and sequence */
  uint32_t places;    /* with slots, i64 [batch, sequence]: positions */
  uint32_t rows;      /* with slots, i64 [rows]: whose logits are wanted */
  const char *note;   /* for the model's warning; NULL */
  int32_t rc;
  bs_error *err;
} hf_build;

/* ---- config.json ---------------------------------------------------------------------------- */
/* A whole number between least and most. `otherwise` stands for a key that is absent or null; below least:
 * the key must be there. A key like "rope_parameters.factor" is one of an object. */
int64_t hf_int(hf_build *b, const char *key, int64_t least, int64_t most, int64_t otherwise);
/* The layers to read: those that config.json says under `key`, or as many of them as are wanted. */
int64_t hf_layers(hf_build *b, const char *key);
double hf_real(hf_build *b, const char *key, double otherwise); /* finite and positive */
int hf_bool(hf_build *b, const char *key, int otherwise);
const char *hf_text(hf_build *b, const char *key, const char *otherwise);
int hf_has_key(const hf_build *b, const char *key); /* and it is not null */
int hf_is_null(const hf_build *b, const char *key); /* it is there, and null */
/* Elements of a list, or keys of an object; -1: it is neither. */
int64_t hf_count(const hf_build *b, const char *key);
/* Text i of a list; NULL: it is not there or no text. */
const char *hf_item(const hf_build *b, const char *key, int64_t i);
int hf_list_has_int(const hf_build *b, const char *key, int64_t number);
/* Element i of a list, a whole number between least and most. */
int64_t hf_list_int(hf_build *b, const char *key, int64_t i, int64_t least, int64_t most);
/* A list of `count` positive numbers. */
void hf_reals(hf_build *b, const char *key, int64_t count, float *out_numbers);
/* Refuses what is no object, and a key of it that is not in `known`, a list that ends with NULL. */
void hf_known_keys(hf_build *b, const char *object, const char *const *known);
/* Refuses a value that the library does not support: BS-HF-CONFIG with the key, its value and the known ones.
 */
void hf_refuse(hf_build *b, const char *key, const char *known);

/* ---- pieces of a model ---------------------------------------------------------------------- */
/* A tensor of the files: its shape must be that of dims. In another dtype than the activations it is cast. */
uint32_t hf_weight(hf_build *b, const char *name, uint32_t rank, const int64_t *dims);
/* `rows` rows, from the row `first` on, of a tensor of these dims: those of all dims but the last are rows.
 * The value's name is that of the tensor and `part`. */
uint32_t hf_weight_rows(hf_build *b, const char *name, const char *part, uint32_t rank, const int64_t *dims,
                        int64_t first, int64_t rows);
/* x of `dtype` in the dtype of activations. */
uint32_t hf_cast(hf_build *b, const char *name, uint32_t x, uint32_t dtype);
/* f32 where activations have 16 bits, else their dtype; x of theirs in that dtype. */
uint32_t hf_wide(const hf_build *b);
uint32_t hf_widen(hf_build *b, const char *name, uint32_t x);
int hf_has_weight(hf_build *b, const char *name);
/* prefix followed by suffix, in the model's memory. */
const char *hf_name(hf_build *b, const char *prefix, const char *suffix);
bs_attr hf_attr_int(const char *name, int64_t value);
bs_attr hf_attr_float(const char *name, double value);
bs_attr hf_attr_text(const char *name, const char *value);
bs_attr hf_attr_ints(const char *name, const int64_t *values, uint64_t count);
/* An operator of ONNX; the first output is returned. */
uint32_t hf_op(hf_build *b, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
               const bs_attr *attrs, uint32_t n_attr);
/* Like hf_op, for an operator of the domain `blockshock`. */
uint32_t hf_own_op(hf_build *b, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
                   const bs_attr *attrs, uint32_t n_attr);
uint32_t hf_op1(hf_build *b, const char *op, const char *name, uint32_t x);
uint32_t hf_op2(hf_build *b, const char *op, const char *name, uint32_t x, uint32_t y);
uint32_t hf_ints(hf_build *b, const int64_t *values, uint32_t count); /* i64 [count] */
uint32_t hf_scalar(hf_build *b, int64_t value);                       /* i64, rank 0 */
uint32_t hf_number(hf_build *b, double value, uint32_t dtype);        /* rank 0, rounded to f32 first */
/* cap tanh(x / cap); cap 0: x. */
uint32_t hf_soft_cap(hf_build *b, const char *name, uint32_t x, double cap);
uint32_t hf_reshape(hf_build *b, const char *name, uint32_t x, uint32_t rank, const int64_t *dims);
/* x W + bias for x [tokens, inputs]. The weight is prefix.weight, [outputs, inputs] or with `turned` [inputs,
 * outputs]; the bias prefix.bias, where the files have one. */
uint32_t hf_linear(hf_build *b, const char *prefix, uint32_t x, int64_t inputs, int64_t outputs, int turned);
/* x times a weight as hf_weight gives it, and a bias or GMODEL_NONE. */
uint32_t hf_gemm(hf_build *b, const char *name, uint32_t x, uint32_t weight, uint32_t bias, int turned);
/* [tokens, heads width] as [batch, heads, sequence, width], and back; batch is 1 without slots. */
uint32_t hf_heads(hf_build *b, const char *name, uint32_t x, int64_t heads, int64_t width);
uint32_t hf_unheads(hf_build *b, const char *name, uint32_t x, int64_t heads, int64_t width);
/* The cache of keys or values, with `now` (with heads) written after its earlier tokens. */
uint32_t hf_remember(hf_build *b, const char *name, uint32_t now, int64_t groups, int64_t width);
/* Causal attention of q (with heads) over the first `filled` tokens of a cache, of which a query sees the
 * last `window`, itself included (0: all). softcap 0: none. */
typedef struct hf_attend {
  double scale, softcap;
  int64_t window;
  uint32_t filled; /* i64 [1] */
} hf_attend;
uint32_t hf_attention(hf_build *b, const char *name, uint32_t q, uint32_t keys, uint32_t values,
                      const hf_attend *how);
/* An activation by its name in config.json under `key`; usual: the one without the key, NULL: it must be
 * there. */
uint32_t hf_activation(hf_build *b, const char *key, const char *usual, const char *name, uint32_t x);

/* ---- rotary positions (hf_rope.c) ----------------------------------------------------------- */
/* The rotation of a model: `width` of each head's columns are turned by the angles of a row of the tables. */
typedef struct hf_rope {
  int64_t width;
  int wide;
  uint32_t cosines, sines, places; /* places: the rows, i64 [1, tokens] */
} hf_rope;
/* Reads the rotation of heads of `head` columns. theta: where config.json has none. wide: heads of 16 bits
 * are turned in f32. */
void hf_rope_read(hf_build *b, int64_t head, double theta, int wide, hf_rope *out_rope);
/* x (with heads) turned. */
uint32_t hf_rope_turn(hf_build *b, const hf_rope *rope, const char *name, uint32_t x, int64_t head);

/* ---- experts (hf_experts.c) ------------------------------------------------------------------ */
typedef struct hf_experts {
  int64_t width, inner; /* columns of a token, of what is between an expert's products */
  int64_t count, chosen;
  int64_t step; /* every how many layers there are experts */
  int norm;     /* the gates of a token have the sum 1 */
  int wide;     /* results of 16 bits get their gates in f32 */
  int numbered; /* tensors are w1, w3 and w2 */
} hf_experts;
/* The experts of one layer for x [tokens, width]. */
uint32_t hf_experts_of(hf_build *b, const hf_experts *e, const char *prefix, uint32_t x);

/* The input ids, positions and cache of a model of `positions` positions: fills ids, positions, filled. */
void hf_begin(hf_build *b, int64_t positions, int64_t asked);
/* The output "logits" [1, tokens, words] of x [tokens, width], with slots [rows, words]; cap: as in
 * hf_soft_cap. */
void hf_end(hf_build *b, uint32_t x, uint32_t head, int64_t words, double cap);

/* The model of the weights, which it takes over, also when it fails. path: the folder or the file. */
int32_t hf_import(const char *path, json_t *config, hf_weights *weights, const bs_graph_options *options,
                  gmodel **out_model, bs_error *err);

/* The builders. `asked`: tokens of the cache that the caller wants, 0: as many as there are positions. */
void hf_gpt2(hf_build *b, int64_t asked);
void hf_llama(hf_build *b, int64_t asked);
#endif
