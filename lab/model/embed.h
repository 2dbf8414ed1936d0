/* SPDX-License-Identifier: MIT
 * embed.h - vectors of texts. The tokenizer in the model's folder makes ids, the model makes hidden states,
 * and pooling makes one vector of length 1 for each text, as sentence-transformers does. */
#ifndef BS_LAB_MODEL_EMBED_H
#define BS_LAB_MODEL_EMBED_H
#include "lab/model/model.h"

enum bs_pooling {
  BS_POOL_MEAN = 0,  /* of all tokens of the text */
  BS_POOL_CLS,       /* the first token */
  BS_POOL_MAX,       /* of each number */
  BS_POOL_SQRT_MEAN, /* the sum, over the root of the number of tokens */
  BS_POOL_LAST       /* the last token */
};

/* The settings in the files next to a model (embed_kind.c). */
typedef struct bs_embed_kind {
  char *folder; /* of tokenizer.json */
  int pooling;
  const char *name; /* of the pooling, for the reader */
  char from[96];    /* the file that names the pooling; "": no file does */
  int64_t most;     /* tokens of a text that the model takes; 0: no file says it */
} bs_embed_kind;

/* Reads modules.json, 1_Pooling/config.json and sentence_bert_config.json of the model's folder or of the one
 * around it. BS_UNSUPPORTED, BS-EMBED-KIND: a module or a pooling that is not served, by name. */
int32_t bs_embed_kind_read(const char *model, bs_embed_kind *out, bs_error *err);
void bs_embed_kind_free(bs_embed_kind *kind);

typedef struct bs_embedded {
  size_t n;
  int64_t width;
  float *vectors;  /* [n, width] */
  int64_t *tokens; /* of each text */
  size_t cut;      /* texts with more tokens than the model takes: they were cut */
  int64_t most;    /* to so many */
  char how[256];   /* "mean of last_hidden_state (1_Pooling/config.json)" */
  uint64_t fallback_nodes;
} bs_embedded;

/* request->path: a file .onnx, or a folder with model.onnx, onnx/model.onnx or vectors.txt. Texts of one
 * length run together. BS_UNSUPPORTED, BS-EMBED-MODEL: the model takes no token ids, needs another input, or
 * gives neither hidden states nor vectors. The caller frees in every case. */
int32_t bs_model_embed(bs_context *context, const bs_model_request *request, const char *const *texts,
                       size_t n, bs_embedded *out, bs_error *err);
void bs_embedded_free(bs_embedded *embedded);
/* The cosine of two of the vectors. */
double bs_embedded_cosine(const bs_embedded *embedded, size_t a, size_t b);
#endif
