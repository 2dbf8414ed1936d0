/* SPDX-License-Identifier: MIT
 * gguf_write.c - see gguf_write.h. */
#include "formats/gguf_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"

enum { ALIGNMENT = 32, PIECE = 4 << 20, VERSION = 3 };

/* ---- metadata ----------------------------------------------------------------------------------- */

static void put(bs_gguf_keys *k, const void *data, uint64_t bytes) {
  if (k->failed || bytes == 0) return;
  if (bytes > k->room - k->size) {
    const uint64_t room = 2 * (k->size + bytes) + 4096;
    unsigned char *more = realloc(k->data, room);
    k->failed = more == NULL;
    if (more == NULL) return;
    k->data = more;
    k->room = room;
  }
  memcpy(k->data + k->size, data, bytes);
  k->size += bytes;
}

static void put_u64(bs_gguf_keys *k, uint64_t value) {
  put(k, &value, sizeof value); /* little endian, as the whole library */
}

static void put_word(bs_gguf_keys *k, uint32_t value) {
  put(k, &value, sizeof value);
}

void bs_gguf_put_item(bs_gguf_keys *k, const void *item, uint64_t bytes) {
  put(k, item, bytes);
}

void bs_gguf_put_item_text(bs_gguf_keys *k, const char *text, uint64_t size) {
  put_u64(k, size);
  put(k, text, size);
}

static void begin(bs_gguf_keys *k, const char *name, uint32_t kind) {
  bs_gguf_put_item_text(k, name, strlen(name));
  put_word(k, kind);
  k->count++;
}

void bs_gguf_put_text(bs_gguf_keys *k, const char *name, const char *text, uint64_t size) {
  begin(k, name, BS_GGUF_KIND_TEXT);
  bs_gguf_put_item_text(k, text, size);
}

void bs_gguf_put_u32(bs_gguf_keys *k, const char *name, uint32_t value) {
  begin(k, name, BS_GGUF_KIND_U32);
  put_word(k, value);
}

void bs_gguf_put_f32(bs_gguf_keys *k, const char *name, float value) {
  begin(k, name, BS_GGUF_KIND_F32);
  put(k, &value, sizeof value);
}

void bs_gguf_put_bool(bs_gguf_keys *k, const char *name, int value) {
  const unsigned char byte = value != 0;
  begin(k, name, BS_GGUF_KIND_BOOL);
  put(k, &byte, 1);
}

void bs_gguf_put_array(bs_gguf_keys *k, const char *name, uint32_t kind, uint64_t count) {
  begin(k, name, BS_GGUF_KIND_ARRAY);
  put_word(k, kind);
  put_u64(k, count);
}

void bs_gguf_keys_free(bs_gguf_keys *k) {
  free(k->data);
  *k = (bs_gguf_keys){0};
}

/* ---- the file ----------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* All before the data: the caller frees. */
static void put_head(bs_gguf_keys *head, const bs_gguf_keys *keys, const bs_gguf_new_tensor *tensors,
                     uint64_t n) {
  static const unsigned char zeros[ALIGNMENT] = {0};
  uint64_t offset = 0;
  put(head, "GGUF", 4);
  put_word(head, VERSION);
  put_u64(head, n);
  put_u64(head, keys->count);
  put(head, keys->data, keys->size);
  for (uint64_t i = 0; i < n; i++) {
    const bs_gguf_new_tensor *t = &tensors[i];
    bs_gguf_put_item_text(head, t->name, strlen(t->name));
    put_word(head, t->rank);
    for (uint32_t d = t->rank; d > 0; d--) put_u64(head, (uint64_t)t->dims[d - 1]);
    put_word(head, t->type);
    put_u64(head, offset);
    offset += aligned(t->bytes);
  }
  put(head, zeros, aligned(head->size) - head->size);
}

/* Bytes of the rows that make a piece. */
static uint64_t piece_of(const bs_gguf_new_tensor *t) {
  uint64_t rows = 1;
  for (uint32_t d = 0; d + 1 < t->rank; d++) rows *= (uint64_t)t->dims[d];
  const uint64_t row = rows > 0 ? t->bytes / rows : t->bytes;
  return row == 0 || row >= PIECE ? row : PIECE / row * row;
}

static int32_t put_tensor(bs_out_file *out, const bs_gguf_new_tensor *t, void *piece, int *why,
                          bs_error *err) {
  static const unsigned char zeros[ALIGNMENT] = {0};
  const uint64_t size = piece_of(t);
  int32_t rc = BS_OK;
  for (uint64_t at = 0; at < t->bytes && rc == BS_OK && *why == 0; at += size) {
    const uint64_t n = t->bytes - at < size ? t->bytes - at : size;
    rc = t->fill(t->ctx, at, n, piece, err);
    if (rc == BS_OK) *why = bs_out_write(out, piece, n);
  }
  if (rc == BS_OK && *why == 0) *why = bs_out_write(out, zeros, aligned(t->bytes) - t->bytes);
  return rc;
}

int32_t bs_gguf_write(const bs_gguf_keys *keys, const bs_gguf_new_tensor *tensors, uint64_t n, const char *to,
                      bs_error *err) {
  bs_gguf_keys head = {.failed = keys->failed};
  bs_out_file out;
  uint64_t most = PIECE;
  int32_t rc = BS_OK;
  for (uint64_t i = 0; i < n; i++)
    if (piece_of(&tensors[i]) > most) most = piece_of(&tensors[i]);
  put_head(&head, keys, tensors, n);
  void *piece = malloc(most);
  if (piece == NULL || head.failed) {
    free(piece);
    bs_gguf_keys_free(&head);
    return bs_error_set(err, BS_NO_MEMORY, "BS-GGUF-MEMORY", "no memory for a piece of the file");
  }
  int why = bs_out_open(to, &out);
  if (why == 0) {
    why = bs_out_write(&out, head.data, head.size);
    for (uint64_t i = 0; i < n && rc == BS_OK && why == 0; i++)
      rc = put_tensor(&out, &tensors[i], piece, &why, err);
    why = bs_out_close(&out, rc == BS_OK ? why : (why != 0 ? why : ECANCELED), 1);
  }
  free(piece);
  bs_gguf_keys_free(&head);
  if (rc != BS_OK || why == 0) return rc;
  bs_error_errno(err, BS_IO, "BS-GGUF-WRITE", why, "cannot be written");
  bs_error_where(err, "%s", to);
  return BS_IO;
}
