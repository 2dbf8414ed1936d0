/* SPDX-License-Identifier: MIT
 * fuzz_tokenizer.c - any bytes as a tokenizer.json or a GGUF file: an error that names itself, or a tokenizer
 * whose ids all are tokens, and which makes text of them. */
#include <string.h>

#include "blockshock/text.h"
#include "core/base/error.h"
#include "tests/fuzz/input.h"

static void use(const bs_tokenizer *t, const char *text, size_t size) {
  static int64_t ids[1024];
  static char out[4096];
  uint64_t n = 0, bytes = 0;
  bs_error err = BS_ERROR_INIT;
  if (bs_tokenizer_encode(t, text, size, BS_ENCODE_PLAIN, ids, 1024, &n, &err) != BS_OK) {
    if (strncmp(err.id, "BS-TOK-", 7) != 0) abort();
    return;
  }
  if (n > 1024) n = 1024;
  for (uint64_t i = 0; i < n; i++)
    if (bs_tokenizer_token(t, ids[i]) == NULL) abort();
  if (bs_tokenizer_decode(t, ids, n, BS_DECODE_SPECIAL, out, sizeof out, &bytes, &err) != BS_OK &&
      strcmp(err.id, "BS-TOK-TEXT") != 0 && strcmp(err.id, "BS-TOK-REGEX") != 0)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "Don't a\xcc\x81 b \xe4\xbd\xa0 <s>12 a\n\n  ab\xf0\x9f\x91\x8d";
  bs_tokenizer *t = NULL;
  bs_error err = BS_ERROR_INIT;
  if (bs_tokenizer_open(fuzz_path(data, size), &t, &err) != BS_OK) {
    const int known = strncmp(err.id, "BS-TOK-", 7) == 0 || strncmp(err.id, "BS-GGUF-", 8) == 0;
    if (!known || err.message[0] == '\0') abort();
    return 0;
  }
  use(t, text, sizeof text - 1);
  use(t, "ab", 2);
  bs_tokenizer_close(t);
  return 0;
}
