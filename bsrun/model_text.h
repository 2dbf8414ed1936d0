/* SPDX-License-Identifier: MIT
 * model_text.h - text of tokens that come one by one: whole characters go to stdout, and what may be the
 * beginning of a text that ends the sequence is held back until that is known. */
#ifndef BSRUN_MODEL_TEXT_H
#define BSRUN_MODEL_TEXT_H
#include "blockshock/text.h"
#include "core/base/text.h"

typedef struct model_text {
  bs_text_stream *stream;
  int64_t ids;      /* the tokenizer's; a model may have more, which have no text */
  bs_text all;      /* without the text that ended it */
  size_t shown;     /* bytes of it that were printed, or would have been */
  const char *stop; /* NULL: none */
  int prints;       /* to stdout */
  int ended;        /* by `stop` */
} model_text;

int32_t model_text_open(const bs_tokenizer *tokenizer, const char *stop, int prints, model_text *out,
                        bs_error *err);
/* Adds a token; `ended` is set when the text has `stop`. */
int32_t model_text_add(model_text *t, int64_t id, bs_error *err);
/* Prints what was held back. */
int32_t model_text_end(model_text *t, bs_error *err);
void model_text_close(model_text *t);
/* The ids of a text, with the tokens that the model wants around it; to be freed. */
int32_t model_text_ids(const bs_tokenizer *tokenizer, const char *text, int64_t **out_ids, size_t *out_n,
                       bs_error *err);
#endif
