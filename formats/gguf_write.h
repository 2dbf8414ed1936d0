/* SPDX-License-Identifier: MIT
 * gguf_write.h - writes a GGUF file, version 3. Metadata are gathered in memory, data are streamed. */
#ifndef BS_FORMATS_GGUF_WRITE_H
#define BS_FORMATS_GGUF_WRITE_H
#include "formats/gguf.h"

/* The metadata, as the file has them. {0} at first. */
typedef struct bs_gguf_keys {
  unsigned char *data;
  uint64_t size, room, count;
  int failed; /* no memory: bs_gguf_write says so */
} bs_gguf_keys;
void bs_gguf_put_text(bs_gguf_keys *keys, const char *name, const char *text, uint64_t size);
void bs_gguf_put_u32(bs_gguf_keys *keys, const char *name, uint32_t value);
void bs_gguf_put_f32(bs_gguf_keys *keys, const char *name, float value);
void bs_gguf_put_bool(bs_gguf_keys *keys, const char *name, int value);
/* An array: its head, then `count` items, each by one of the two below. */
void bs_gguf_put_array(bs_gguf_keys *keys, const char *name, uint32_t kind, uint64_t count);
void bs_gguf_put_item(bs_gguf_keys *keys, const void *item, uint64_t bytes);
void bs_gguf_put_item_text(bs_gguf_keys *keys, const char *text, uint64_t size);
void bs_gguf_keys_free(bs_gguf_keys *keys);

typedef struct bs_gguf_new_tensor {
  char name[72]; /* the format allows 64 bytes */
  uint32_t type, rank;
  int64_t dims[BS_GGUF_MAX_DIMS]; /* the innermost last */
  uint64_t bytes;
  void *ctx;
  /* Gives bytes offset .. offset + bytes - 1 of the data. The pieces are asked in ascending order, once. */
  int32_t (*fill)(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err);
} bs_gguf_new_tensor;

/* Writes the file. At every moment `to` is the old file, the new file, or absent, and never a part of one.
 * Pieces of a tensor are whole rows, of about 4 MiB. The caller owns everything. BS_IO, BS-GGUF-WRITE: `to`
 * cannot be written. */
int32_t bs_gguf_write(const bs_gguf_keys *keys, const bs_gguf_new_tensor *tensors, uint64_t n, const char *to,
                      bs_error *err);
#endif
