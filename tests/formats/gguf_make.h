/* SPDX-License-Identifier: MIT
 * gguf_make.h - writes GGUF files for tests: keys and tensors one after another, then the file. A test may
 * change any byte of `whole` before it is written. One file at a time. */
#ifndef BS_TESTS_FORMATS_GGUF_MAKE_H
#define BS_TESTS_FORMATS_GGUF_MAKE_H
#include "formats/gguf.h"
#include "tests/formats/files.h"

typedef struct gguf_bytes {
  unsigned char *data;
  size_t size, room;
} gguf_bytes;

static struct {
  gguf_bytes keys, infos, data, whole;
  uint64_t n_keys, n_tensors;
  uint32_t version, alignment;
} gguf_made;

static inline void gguf_put(gguf_bytes *b, const void *data, size_t size) {
  if (b->size + size > b->room) {
    b->room = 2 * (b->size + size) + 4096;
    b->data = realloc(b->data, b->room);
    ck_assert_ptr_nonnull(b->data);
  }
  if (size > 0) memcpy(b->data + b->size, data, size);
  b->size += size;
}

static inline void gguf_put_number(gguf_bytes *b, uint64_t value, int size) {
  for (int i = 0; i < size; i++) gguf_put(b, &(unsigned char){(unsigned char)(value >> (8 * i))}, 1);
}

static inline void gguf_put_text(gguf_bytes *b, const char *text) {
  gguf_put_number(b, strlen(text), 8);
  gguf_put(b, text, strlen(text));
}

static inline void gguf_make_begin(void) {
  gguf_made.keys.size = gguf_made.infos.size = gguf_made.data.size = gguf_made.whole.size = 0;
  gguf_made.n_keys = gguf_made.n_tensors = 0;
  gguf_made.version = 3;
  gguf_made.alignment = 32;
}

static inline void gguf_make_key(const char *name, uint32_t kind) {
  gguf_made.n_keys++;
  gguf_put_text(&gguf_made.keys, name);
  gguf_put_number(&gguf_made.keys, kind, 4);
}

static inline void gguf_make_u32(const char *name, uint32_t value) {
  gguf_make_key(name, BS_GGUF_KIND_U32);
  gguf_put_number(&gguf_made.keys, value, 4);
}

static inline void gguf_make_f32(const char *name, float value) {
  gguf_make_key(name, BS_GGUF_KIND_F32);
  gguf_put(&gguf_made.keys, &value, sizeof value);
}

static inline void gguf_make_text(const char *name, const char *text) {
  gguf_make_key(name, BS_GGUF_KIND_TEXT);
  gguf_put_text(&gguf_made.keys, text);
}

/* The head of an array; its items follow. */
static inline void gguf_make_array(const char *name, uint32_t kind, uint64_t count) {
  gguf_make_key(name, BS_GGUF_KIND_ARRAY);
  gguf_put_number(&gguf_made.keys, kind, 4);
  gguf_put_number(&gguf_made.keys, count, 8);
}

/* dims as in the program: the innermost last. data NULL: zeros. */
static inline void gguf_make_tensor(const char *name, uint32_t type, uint32_t rank, const int64_t *dims,
                                    const void *data, size_t bytes) {
  static const unsigned char zeros[65536];
  gguf_bytes *d = &gguf_made.data;
  gguf_made.n_tensors++;
  gguf_put_text(&gguf_made.infos, name);
  gguf_put_number(&gguf_made.infos, rank, 4);
  for (uint32_t i = rank; i-- > 0;) gguf_put_number(&gguf_made.infos, (uint64_t)dims[i], 8);
  gguf_put_number(&gguf_made.infos, type, 4);
  gguf_put(d, zeros, (gguf_made.alignment - d->size % gguf_made.alignment) % gguf_made.alignment);
  gguf_put_number(&gguf_made.infos, d->size, 8);
  ck_assert(data != NULL || bytes <= sizeof zeros);
  gguf_put(d, data != NULL ? data : zeros, bytes);
}

/* All parts as one file in `whole`. */
static inline void gguf_make_whole(void) {
  static const unsigned char zeros[65536];
  gguf_bytes *w = &gguf_made.whole;
  w->size = 0;
  gguf_put(w, "GGUF", 4);
  gguf_put_number(w, gguf_made.version, 4);
  gguf_put_number(w, gguf_made.n_tensors, 8);
  gguf_put_number(w, gguf_made.n_keys, 8);
  gguf_put(w, gguf_made.keys.data, gguf_made.keys.size);
  gguf_put(w, gguf_made.infos.data, gguf_made.infos.size);
  if (gguf_made.n_tensors > 0)
    gguf_put(w, zeros, (gguf_made.alignment - w->size % gguf_made.alignment) % gguf_made.alignment);
  gguf_put(w, gguf_made.data.data, gguf_made.data.size);
}

static inline const char *gguf_make_file(const char *name) {
  gguf_make_whole();
  return files_write(name, gguf_made.whole.data, gguf_made.whole.size);
}
#endif
