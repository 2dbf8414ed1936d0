/* SPDX-License-Identifier: MIT
 * read_gguf.h - reading the tokenizer of a GGUF file (read_gguf.c, gguf_pre.c). */
#ifndef BS_TEXT_READ_GGUF_H
#define BS_TEXT_READ_GGUF_H
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

/* 1: a file that begins as GGUF does, or is named so. */
int bs_tok_is_gguf(const char *path);
int32_t bs_tok_read_gguf(const char *path, bs_tokenizer *out_tokenizer, bs_error *err);
#endif
