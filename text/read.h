/* SPDX-License-Identifier: MIT
 * read.h - reading tokenizer.json: what its parts have in common. */
#ifndef BS_TEXT_READ_H
#define BS_TEXT_READ_H
#include <jansson.h>

#include "text/tokenizer.h"

/* A member of a part of the file; of the wrong type, or missing, it is BS-TOK-FORMAT. `part` is the name for
 * messages. */
int32_t bs_tok_json_text(const json_t *object, const char *part, const char *key, const char **out_text,
                         size_t *out_bytes, bs_error *err);
/* Missing or null: `fallback`. */
int32_t bs_tok_json_bool(const json_t *object, const char *part, const char *key, int fallback, int *out,
                         bs_error *err);
/* The type of a part. */
const char *bs_tok_json_type(const json_t *object);
int32_t bs_tok_bad(bs_error *err, const char *part, const char *what);
/* BS-TOK-KIND: `what` names the kind of part. */
int32_t bs_tok_unknown(bs_error *err, const char *what, const char *type);
char *bs_tok_copy(const char *text, size_t bytes);

/* read_steps.c; NULL and null are no steps. */
int32_t bs_tok_read_normalizer(const json_t *part, bs_tok_steps *out, bs_error *err);
int32_t bs_tok_read_splitter(const json_t *part, bs_tok_steps *out, bs_error *err);
int32_t bs_tok_read_decoder(const json_t *part, bs_tok_steps *out, bs_error *err);
/* read_model.c */
/* A merge of two tokens gives the token of both texts; the prefix of the second is left out. whole: room. */
int32_t bs_tok_read_merge(const char *const parts[2], const size_t bytes[2], uint32_t rank, bs_text *whole,
                          bs_tok_model *out, bs_error *err);
int32_t bs_tok_read_model(const json_t *model, bs_tok_model *out, bs_error *err);
int32_t bs_tok_read_around(const json_t *part, bs_tokenizer *out, bs_error *err);

/* ends.c: an id that ends a text; -1: none. */
int32_t bs_tok_add_end(bs_tokenizer *tokenizer, int64_t id, bs_error *err);
/* Tokens that llama.cpp takes as ends by their text. */
int32_t bs_tok_add_known_ends(bs_tokenizer *tokenizer, bs_error *err);
#endif
