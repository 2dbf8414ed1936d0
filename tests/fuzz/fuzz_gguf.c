/* SPDX-License-Identifier: MIT
 * fuzz_gguf.c - any bytes as a GGUF file: an error that names itself, or keys and tensors that lie inside of
 * the file, whose numbers can be made. */
#include <string.h>

#include "core/base/error.h"
#include "formats/gguf.h"
#include "tests/fuzz/input.h"

static void touch_key(const bs_gguf_key *key) {
  uint64_t at = 0, seen = 0;
  int64_t whole = 0;
  double real = 0;
  bs_span text = {"", 0};
  fuzz_touch(key->data, key->bytes);
  while (bs_gguf_text_next(key, &at, &text)) {
    fuzz_touch(text.data, text.size);
    seen++;
  }
  if (key->kind == BS_GGUF_KIND_TEXT && key->is_array && (seen != key->count || at != key->bytes)) abort();
  if (bs_gguf_text(key, &text)) fuzz_touch(text.data, text.size);
  for (uint64_t i = 0; i < key->count + 1; i++) {
    const int is_number = bs_gguf_real(key, i, &real);
    if (bs_gguf_int(key, i, &whole) && i >= key->count) abort();
    if (is_number && (i >= key->count || key->kind == BS_GGUF_KIND_TEXT)) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  float out[256];
  if (bs_gguf_open(fuzz_path(data, size), &g, &err) != BS_OK) {
    if (strncmp(err.id, "BS-GGUF-", 8) != 0 || err.message[0] == '\0') abort();
    return 0;
  }
  for (uint32_t i = 0; i < g.n_keys; i++) {
    if (bs_gguf_find_key(&g, g.keys[i].name) != &g.keys[i]) abort();
    touch_key(&g.keys[i]);
  }
  for (uint32_t i = 0; i < g.n_tensors; i++) {
    const bs_gguf_tensor *t = &g.tensors[i];
    if (bs_gguf_find_tensor(&g, t->name) != t || t->rank > BS_GGUF_MAX_DIMS) abort();
    if (t->bytes > 0 && t->offset + t->bytes > size) abort();
    fuzz_touch(t->data, t->bytes);
    if (bs_gguf_check_type(t, &err) != BS_OK) continue;
    for (uint64_t at = 0; at < t->bytes; at += t->type->bytes)
      bs_gguf_dequantize(t->type->number, (const char *)t->data + at, t->type->block, out);
  }
  bs_gguf_close(&g);
  return 0;
}
