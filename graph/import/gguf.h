/* SPDX-License-Identifier: MIT
 * gguf.h - inside the importer: a GGUF file seen as the folder that it was made from, so that one set of
 * builders serves both. Its keys become those of config.json, and a builder's tensor names those of the file.
 */
#ifndef BS_GRAPH_IMPORT_GGUF_H
#define BS_GRAPH_IMPORT_GGUF_H
#include "formats/gguf.h"
#include "formats/gguf_names.h"
#include "graph/import/hf.h"

enum { GGUF_NAME = 200 }; /* bytes of a buffer for a name */

typedef struct hf_gguf {
  bs_gguf file;
  char *path;
  const bs_gguf_arch *arch;
  bs_st_tensor *tensors; /* those of the file; dtype 0: quantised, or a type that is not read */
} hf_gguf;

/* Opens the file as weights without files of safetensors. */
int32_t gguf_weights_open(const char *path, hf_weights *out_weights, bs_error *err);
int32_t gguf_weights_unchanged(const hf_gguf *gguf, bs_error *err);
void gguf_weights_close(hf_gguf *gguf);
/* What config.json would hold; NULL with err filled. */
json_t *gguf_config(const hf_gguf *gguf, bs_error *err);
/* What the builders must know of the file: order of rows, dtype of activations. */
void gguf_settings(hf_build *b);
/* The file's name for a tensor or a key of a folder; `name` itself where it has no other. */
const char *gguf_tensor_name(const hf_gguf *gguf, const char *name, char buffer[GGUF_NAME]);
const char *gguf_key_name(const hf_gguf *gguf, const char *name, char buffer[GGUF_NAME]);
/* A tensor of a quantised type as a constant that stays quantised; one that has not two dims in f32. */
uint32_t gguf_constant(hf_build *b, const char *name, const bs_st_tensor *tensor);
#endif
