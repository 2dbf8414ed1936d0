/* SPDX-License-Identifier: MIT
 * absent.c - text.h where PCRE2 or utf8proc was missing when the library was built: no tokenizer is ever
 * open. */
#include "blockshock/text.h"
#include "core/base/error.h"

static int32_t absent(bs_error *err) {
  bs_error_set(err, BS_UNAVAILABLE, "BS-TOK-ABSENT", "Block-Shock was built without tokenizers");
  bs_error_hint(err, "install libpcre2-dev and libutf8proc-dev (apt), then configure and build it anew");
  return BS_UNAVAILABLE;
}

int32_t bs_tokenizer_open(const char *path, bs_tokenizer **out, bs_error *err) {
  (void)path, (void)out;
  return absent(err);
}

void bs_tokenizer_close(bs_tokenizer *t) {
  (void)t;
}

int32_t bs_tokenizer_encode(const bs_tokenizer *t, const char *text, uint64_t bytes, uint32_t flags,
                            int64_t *ids, uint64_t room, uint64_t *out_n, bs_error *err) {
  (void)t, (void)text, (void)bytes, (void)flags, (void)ids, (void)room, (void)out_n;
  return absent(err);
}

int32_t bs_tokenizer_decode(const bs_tokenizer *t, const int64_t *ids, uint64_t n, uint32_t flags, char *text,
                            uint64_t room, uint64_t *out_bytes, bs_error *err) {
  (void)t, (void)ids, (void)n, (void)flags, (void)text, (void)room, (void)out_bytes;
  return absent(err);
}

uint64_t bs_tokenizer_size(const bs_tokenizer *t) {
  (void)t;
  return 0;
}

int64_t bs_tokenizer_id(const bs_tokenizer *t, const char *token) {
  (void)t, (void)token;
  return -1;
}

const char *bs_tokenizer_token(const bs_tokenizer *t, int64_t id) {
  (void)t, (void)id;
  return NULL;
}

int bs_tokenizer_ends(const bs_tokenizer *t, int64_t id) {
  (void)t, (void)id;
  return 0;
}

int64_t bs_tokenizer_special(const bs_tokenizer *t, uint32_t role) {
  (void)t, (void)role;
  return -1;
}

int32_t bs_text_stream_open(const bs_tokenizer *t, uint32_t flags, bs_text_stream **out, bs_error *err) {
  (void)t, (void)flags, (void)out;
  return absent(err);
}

int32_t bs_text_stream_add(bs_text_stream *s, int64_t id, const char **out_text, uint64_t *out_bytes,
                           bs_error *err) {
  (void)s, (void)id, (void)out_text, (void)out_bytes;
  return absent(err);
}

int32_t bs_text_stream_end(bs_text_stream *s, const char **out_text, uint64_t *out_bytes, bs_error *err) {
  (void)s, (void)out_text, (void)out_bytes;
  return absent(err);
}

void bs_text_stream_close(bs_text_stream *s) {
  (void)s;
}
