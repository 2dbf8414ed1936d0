/* SPDX-License-Identifier: MIT
 * wordpiece.c - the longest token that begins a word, then the longest with the prefix ("##") that begins the
 * rest. A word that has no such tokens is the unknown token. Called by encode.c. */
#include <string.h>

#include "core/base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* The longest token at text[at]; 0 bytes: none. `start` is a buffer that begins with the prefix. */
static size_t longest(const bs_tok_model *m, bs_text *word, size_t prefix, const char *text, size_t bytes,
                      size_t at, uint32_t *out_id) {
  const size_t with = at > 0 ? prefix : 0;
  size_t end = bytes;
  if (end - at > m->vocab.longest) end = at + m->vocab.longest;
  while (end < bytes && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
  word->size = prefix;
  bs_text_append(word, text + at, end - at);
  if (word->failed) return 0;
  for (; end > at; end = bs_utf8_before(text, end)) {
    *out_id = bs_tok_vocab_find(&m->vocab, word->data + prefix - with, with + end - at);
    if (*out_id != BS_TOK_NONE) return end - at;
  }
  return 0;
}

int32_t bs_tok_wordpiece_encode(const bs_tok_model *m, bs_tok_work *w, const char *text, size_t bytes,
                                bs_error *err) {
  const size_t begin = w->n_ids, prefix = m->prefix == NULL ? 0 : strlen(m->prefix);
  size_t at = 0, n = 0;
  uint64_t characters = 0;
  uint32_t id = BS_TOK_NONE;
  int32_t rc = BS_OK;
  for (size_t i = 0; i < bytes && characters <= m->longest_word; i++)
    characters += ((unsigned char)text[i] & 0xc0) != 0x80;
  int known = characters <= m->longest_word;
  w->other.size = 0;
  bs_text_append(&w->other, m->prefix == NULL ? "" : m->prefix, prefix);
  while (rc == BS_OK && known && at < bytes) {
    n = longest(m, &w->other, prefix, text, bytes, at, &id);
    if (w->other.failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a word");
    known = n > 0;
    if (known) rc = bs_tok_work_id(w, id, err);
    at += n;
  }
  if (rc != BS_OK || known) return rc;
  w->n_ids = begin;
  return bs_tok_work_id(w, m->unk, err);
}
