/* SPDX-License-Identifier: MIT
 * gguf.h - the GGUF container, versions 2 and 3, little endian: keys of metadata, tensors, data. The file is
 * mapped read-only and guarded: what is cut from it meanwhile reads as zeros, and bs_map_unchanged(&g->map)
 * fails. Keys are a flat table. Texts and arrays stay in the map: bs_gguf_text_next walks through an array of
 * texts and checks each length again, for a file that is written meanwhile. After bs_gguf_open the record is
 * only read: thread-safe.
 *
 * Checks: magic, version; at most 65,536 tensors and keys, each name once; texts of at most 1 MiB; arrays of
 * one level, at most 4 Mi items; all before the data at most 256 MiB; 1 to 4 dims, the product in 63 bits,
 * the innermost dim a multiple of the type's block; tensors aligned, inside of the file, without overlap. */
#ifndef BS_FORMATS_GGUF_H
#define BS_FORMATS_GGUF_H
#include "formats/arena.h"
#include "formats/map.h"
#include "formats/names.h"

#define BS_GGUF_MAX_DIMS 4
#define BS_GGUF_MAX_ENTRIES 65536u /* of tensors, and of keys */
#define BS_GGUF_MAX_NAME 1024u
#define BS_GGUF_MAX_TEXT (1u << 20)
#define BS_GGUF_MAX_ITEMS (4u << 20)
#define BS_GGUF_MAX_METADATA (256u << 20)

/* Types of metadata. */
enum bs_gguf_kind {
  BS_GGUF_KIND_U8 = 0,
  BS_GGUF_KIND_I8 = 1,
  BS_GGUF_KIND_U16 = 2,
  BS_GGUF_KIND_I16 = 3,
  BS_GGUF_KIND_U32 = 4,
  BS_GGUF_KIND_I32 = 5,
  BS_GGUF_KIND_F32 = 6,
  BS_GGUF_KIND_BOOL = 7,
  BS_GGUF_KIND_TEXT = 8,
  BS_GGUF_KIND_ARRAY = 9, /* never the kind of a key: is_array says it */
  BS_GGUF_KIND_U64 = 10,
  BS_GGUF_KIND_I64 = 11,
  BS_GGUF_KIND_F64 = 12
};

/* Types of tensors that bs_gguf_dequantize knows. */
enum bs_gguf_type_number {
  BS_GGUF_F32 = 0,
  BS_GGUF_F16 = 1,
  BS_GGUF_Q4_0 = 2,
  BS_GGUF_Q4_1 = 3,
  BS_GGUF_Q8_0 = 8,
  BS_GGUF_Q4_K = 12,
  BS_GGUF_Q5_K = 13,
  BS_GGUF_Q6_K = 14,
  BS_GGUF_BF16 = 30
};
typedef struct bs_gguf_type {
  uint32_t number;
  uint32_t block, bytes; /* numbers of a block, and its bytes */
  uint32_t is_read;      /* 1: one of enum bs_gguf_type_number */
  const char *name;      /* "Q4_K" */
} bs_gguf_type;
/* NULL: a number that the format does not have. */
const bs_gguf_type *bs_gguf_type_of(uint32_t number);

typedef struct bs_gguf_key {
  const char *name; /* terminated */
  bs_span span;     /* the same name */
  uint32_t kind;    /* enum bs_gguf_kind: of the value, or of each item */
  uint32_t is_array;
  uint64_t count;   /* items; 1 for a value that is no array */
  const void *data; /* in the map, not aligned: the first item; of one text: its bytes */
  uint64_t bytes;   /* of data */
} bs_gguf_key;

typedef struct bs_gguf_tensor {
  const char *name; /* terminated */
  bs_span span;     /* the same name */
  const bs_gguf_type *type;
  uint32_t rank;
  int64_t dims[BS_GGUF_MAX_DIMS]; /* the innermost last, as elsewhere here; the file has them the other way */
  const void *data;               /* in the map; aligned as general.alignment says */
  uint64_t bytes, offset;         /* offset: of data in the file */
} bs_gguf_tensor;

typedef struct bs_gguf {
  bs_gguf_key *keys;       /* in the order of the file */
  bs_gguf_tensor *tensors; /* in the order of the file */
  uint32_t n_keys, n_tensors, version, alignment;
  bs_names key_names, tensor_names; /* to indices */
  bs_arena arena;
  bs_map map;
} bs_gguf;

/* Errors are BS_INPUT (exit 4), ids BS-GGUF-*. On failure *out_gguf is closed. A tensor of a type that is not
 * read is no error here. */
int32_t bs_gguf_open(const char *path, bs_gguf *out_gguf, bs_error *err);
void bs_gguf_close(bs_gguf *gguf);
/* NULL: there is nothing of that name. */
const bs_gguf_key *bs_gguf_find_key(const bs_gguf *gguf, const char *name);
const bs_gguf_tensor *bs_gguf_find_tensor(const bs_gguf *gguf, const char *name);
/* BS-GGUF-TYPE with the tensor's name and type when bs_gguf_dequantize does not know the type. */
int32_t bs_gguf_check_type(const bs_gguf_tensor *tensor, bs_error *err);

/* Item i of a key of whole numbers or bools. 1; 0: it is no whole number, does not fit, or i is outside. */
int bs_gguf_int(const bs_gguf_key *key, uint64_t i, int64_t *out_value);
/* Item i of a key of numbers; 0: it is no number, or i is outside. */
int bs_gguf_real(const bs_gguf_key *key, uint64_t i, double *out_value);
/* The text of a key that is one text; 0: it is another value. */
int bs_gguf_text(const bs_gguf_key *key, bs_span *out_text);
/* The next text of an array of texts; *at is 0 at first. 0: there is no further one, or the file was changed.
 */
int bs_gguf_text_next(const bs_gguf_key *key, uint64_t *at, bs_span *out_text);

/* `count` numbers, a multiple of the type's block, from blocks in memory to f32. Each number has the bits
 * that gguf.quants.dequantize of the Python package gives. The type must be one that is read. */
void bs_gguf_dequantize(uint32_t type, const void *blocks, uint64_t count, float *out);
#endif
