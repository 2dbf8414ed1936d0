/* SPDX-License-Identifier: MIT
 * vocab.h - the tokens of a vocabulary, by text and by id. */
#ifndef BS_TEXT_VOCAB_H
#define BS_TEXT_VOCAB_H
#include "core/base/text.h"

enum { BS_TOK_MAX_TOKENS = 1 << 20, BS_TOK_MAX_BYTES = 4096, BS_TOK_MAX_MERGES = 1 << 22 };
#define BS_TOK_NONE UINT32_MAX

typedef struct bs_tok_vocab {
  bs_text texts;   /* each with a NUL after it */
  size_t *at;      /* of an id: where its text begins in `texts`, plus 1; 0: no token has this id */
  uint32_t *bytes; /* of an id */
  uint32_t *slots; /* the hash table: id + 1; 0: free */
  size_t n_slots;  /* a power of two */
  uint64_t seed;
  uint32_t size;    /* one more than the highest id */
  uint32_t room;    /* of at and bytes */
  uint32_t count;   /* tokens */
  uint32_t longest; /* bytes */
} bs_tok_vocab;

/* Adds a token. A second one of its text or id is BS-TOK-FORMAT. */
int32_t bs_tok_vocab_add(bs_tok_vocab *vocab, const char *text, size_t bytes, int64_t id, bs_error *err);
/* BS_TOK_NONE: no such token. */
uint32_t bs_tok_vocab_find(const bs_tok_vocab *vocab, const char *text, size_t bytes);
/* NULL: no token has this id. */
const char *bs_tok_vocab_text(const bs_tok_vocab *vocab, int64_t id, size_t *out_bytes);
void bs_tok_vocab_free(bs_tok_vocab *vocab);
/* A 64-bit hash: every bit of the input changes half of its bits. */
uint64_t bs_tok_mix(uint64_t x);
#endif
