/* SPDX-License-Identifier: MIT
 * gguf_kind.h - a folder's tokenizer as keys of a GGUF file, except tokens and merges. */
#ifndef BS_LAB_MODEL_GGUF_KIND_H
#define BS_LAB_MODEL_GGUF_KIND_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/blockshock.h"

typedef struct bs_gguf_tok {
  int fallback;          /* BPE with byte fallback, by scores; else BPE of bytes, by merges */
  const char *pre;       /* how a text is split; NULL: fallback */
  int prepends;          /* of fallback: a blank is put before a text */
  int64_t before, after; /* the ids of the tokens around a text; -1: none */
} bs_gguf_tok;

/* BS_UNSUPPORTED, BS-GGUF-TOKENIZER: a part of tokenizer.json for which the format has no key, by its name: a
 * reader of the file would give other ids. */
int32_t bs_gguf_kind_of(const json_t *tokenizer, bs_gguf_tok *out, bs_error *err);
/* BS_UNSUPPORTED: `what` cannot be written. */
int32_t bs_gguf_kind_refuse(const char *what, bs_error *err);
#endif
