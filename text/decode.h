/* SPDX-License-Identifier: MIT
 * decode.h - the text of ids. */
#ifndef BS_TEXT_DECODE_H
#define BS_TEXT_DECODE_H
#include "text/tokenizer.h"

/* The text of ids, in work->now.text. flags: enum bs_decode_flag. */
int32_t bs_tok_decode(const bs_tokenizer *tokenizer, bs_tok_work *work, const int64_t *ids, uint64_t n,
                      uint32_t flags, bs_error *err);
#endif
