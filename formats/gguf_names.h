/* SPDX-License-Identifier: MIT
 * gguf_names.h - the names of tensors and keys in GGUF, and the same names in a folder of Hugging Face. */
#ifndef BS_FORMATS_GGUF_NAMES_H
#define BS_FORMATS_GGUF_NAMES_H
#include <stddef.h>

#include "formats/gguf.h"

/* The beginnings of names: of a folder, of the file. */
typedef struct bs_gguf_name_pair {
  const char *folder, *file;
} bs_gguf_name_pair;

/* Models of one builder. Lists end with {0}. */
typedef struct bs_gguf_family {
  const char *layers; /* "model.layers." followed by a number is "blk." followed by that number */
  const bs_gguf_name_pair *tensors;  /* outside of the layers */
  const bs_gguf_name_pair *in_layer; /* the part after the layer's number */
  int is_gpt2;
} bs_gguf_family;

typedef struct bs_gguf_arch {
  const char *name;
  const bs_gguf_family *family;
  int pairs; /* 1: the rows of Q and K lie as pairs that are turned together, and not as two halves of a head
              */
} bs_gguf_arch;
#define BS_GGUF_ARCHS "llama (Mistral, SmolLM too) qwen2 qwen3 gpt2"
/* NULL: an architecture that is not built. */
const bs_gguf_arch *bs_gguf_arch_of(bs_span name);

/* The part of a GGUF key after the architecture's name, and the keys of config.json that mean the same. NULL:
 * the family's builder reads no such key. */
enum bs_gguf_config_kind {
  BS_GGUF_CONFIG_INT,
  BS_GGUF_CONFIG_REAL,
  BS_GGUF_CONFIG_ZERO, /* only 0 is built */
  BS_GGUF_CONFIG_UNUSED
};
typedef struct bs_gguf_config_key {
  const char *key, *llama, *gpt2;
  enum bs_gguf_config_kind kind;
} bs_gguf_config_key;
extern const bs_gguf_config_key bs_gguf_config_keys[]; /* ends with {0} */

/* The file's name for a tensor of a folder; `name` itself where it has no other. */
const char *bs_gguf_tensor_name(const bs_gguf_family *family, const char *name, char *buffer, size_t size);
#endif
