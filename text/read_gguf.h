/* SPDX-License-Identifier: MIT
 * read_gguf.h - reading the tokenizer of a GGUF file (read_gguf.c, gguf_vocab.c, gguf_pre.c). */
#ifndef BS_TEXT_READ_GGUF_H
#define BS_TEXT_READ_GGUF_H
#include "formats/gguf.h"
#include "text/tokenizer.h"

enum bs_tok_pre_flag {
  BS_TOK_PRE_NFC = 1,   /* the text is brought into the normal form C first */
  BS_TOK_PRE_WHOLE = 2, /* a piece that is a token is that token, whatever the merges give */
  BS_TOK_PRE_BOS = 4    /* a text begins with the token of the beginning, where the file does not say it */
};
typedef struct bs_tok_pre {
  const char *name;
  int flags;
  const char *patterns[6]; /* NULL: no further one */
} bs_tok_pre;

/* gguf_pre.c; NULL: a name that is not known. */
const bs_tok_pre *bs_tok_pre_find(const char *name, size_t bytes);

enum bs_tok_gguf_model { BS_TOK_GGUF_LLAMA, BS_TOK_GGUF_GPT2, BS_TOK_GGUF_BERT };

typedef struct bs_tok_gguf {
  const bs_gguf *gguf;
  bs_tokenizer *out;
  int model;             /* enum bs_tok_gguf_model */
  const bs_tok_pre *pre; /* of gpt2 */
  const bs_gguf_key *types, *scores;
  uint64_t n;          /* tokens */
  bs_text text, whole; /* room */
  bs_error *err;
} bs_tok_gguf;

/* The key tokenizer.ggml.NAME; its whole name is then in `full`. NULL: the file has no such key. */
const bs_gguf_key *bs_tok_gguf_key(const bs_tok_gguf *r, const char *name, char full[64]);
/* gguf_vocab.c */
int32_t bs_tok_gguf_tokens(bs_tok_gguf *r);
int32_t bs_tok_gguf_merges(bs_tok_gguf *r);
int32_t bs_tok_gguf_ranks(bs_tok_gguf *r);

/* 1: a file that begins as GGUF does, or is named so. */
int bs_tok_is_gguf(const char *path);
int32_t bs_tok_read_gguf(const char *path, bs_tokenizer *out_tokenizer, bs_error *err);
#endif
