/* SPDX-License-Identifier: MIT
 * gguf_tokens.h - the tokenizer of a folder as metadata of GGUF. */
#ifndef BS_LAB_MODEL_GGUF_TOKENS_H
#define BS_LAB_MODEL_GGUF_TOKENS_H
#include <jansson.h>

#include "formats/gguf_write.h"

/* tokenizer.json: byte-level BPE with the pieces of GPT-2, Llama 3 or Qwen2, or BPE with byte fallback (Llama
 * 2, Mistral). config: config.json, for the ids that begin and end a text. `vocabulary`: rows of the table of
 * embeddings; ids without a token get one that no text has. BS_UNSUPPORTED, BS-GGUF-TOKENIZER: another kind.
 */
int32_t bs_gguf_put_tokens(const json_t *tokenizer, const json_t *config, int64_t vocabulary,
                           bs_gguf_keys *keys, bs_error *err);
/* A JSON object of at most 64 MiB, to be freed by json_decref; NULL with err filled. */
json_t *bs_gguf_read_json(const char *path, bs_error *err);
#endif
