/* SPDX-License-Identifier: MIT
 * gguf.c - opening a GGUF file: its keys, its list of tensors, the checks of gguf.h. Each length is read once
 * and checked before it is used, since another program may write the file meanwhile. Called by the importer
 * of models and by the tokenizer. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"

/* The unread part of what lies before the data. */
typedef struct reader {
  const unsigned char *begin, *at, *end;
  bs_error *err;
} reader;

static int32_t cut(const reader *r, const char *what) {
  const uint64_t place = (uint64_t)(r->at - r->begin), size = (uint64_t)(r->end - r->begin);
  if (size >= BS_GGUF_MAX_METADATA)
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-SIZE",
                        "%s at byte %" PRIu64 ": keys of more than %u bytes", what, place,
                        BS_GGUF_MAX_METADATA);
  return bs_error_set(r->err, BS_INPUT, "BS-GGUF-CUT",
                      "the file ends inside of %s that begins at byte %" PRIu64, what, place);
}

/* A whole number of `size` bytes. The bytes must be there. */
static uint64_t number_at(const void *data, uint32_t size) {
  const unsigned char *p = data;
  uint64_t value = 0;
  for (uint32_t i = size; i-- > 0;) value = value << 8 | p[i];
  return value;
}

static int32_t take(reader *r, uint32_t size, const char *what, uint64_t *out) {
  if ((uint64_t)(r->end - r->at) < size) return cut(r, what);
  *out = number_at(r->at, size);
  r->at += size;
  return BS_OK;
}

static int32_t take_text(reader *r, uint64_t most, const char *what, bs_span *out) {
  uint64_t size = 0;
  const int32_t rc = take(r, 8, what, &size);
  if (rc != BS_OK) return rc;
  if (size > most)
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-TEXT", "%s of %" PRIu64 " bytes, cap %" PRIu64, what, size,
                        most);
  if (size > (uint64_t)(r->end - r->at)) return cut(r, what);
  *out = (bs_span){(const char *)r->at, size};
  r->at += size;
  return BS_OK;
}

/* A name, copied and terminated, and put into the table of names. */
static int32_t take_name(reader *r, bs_gguf *g, bs_names *names, const char *what, uint32_t index,
                         bs_span *span, const char **out) {
  bs_span seen = {0};
  const int32_t rc = take_text(r, BS_GGUF_MAX_NAME, what, &seen);
  if (rc != BS_OK) return rc;
  char *name = bs_arena_take(&g->arena, seen.size + 1, 1);
  if (name == NULL) return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "no memory for a name");
  if (seen.size == 0) return bs_error_set(r->err, BS_INPUT, "BS-GGUF-NAME", "%s is empty", what);
  memcpy(name, seen.data, (size_t)seen.size);
  for (uint64_t i = 0; i < seen.size; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
      return bs_error_set(r->err, BS_INPUT, "BS-GGUF-NAME", "%s has the control byte 0x%02x at %" PRIu64,
                          what, (unsigned)(unsigned char)name[i], i);
  *span = (bs_span){name, seen.size};
  *out = name;
  const int added = bs_names_add(names, span, index);
  if (added < 0) return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "no memory for the names");
  if (added == 0)
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-TWICE", "%s '%.200s' is there twice", what, name);
  return BS_OK;
}

/* ---- metadata --------------------------------------------------------------------------------- */

/* Bytes of a kind; 0: a text, an array, or no kind. */
static uint32_t kind_bytes(uint64_t kind) {
  static const uint8_t bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kind < sizeof bytes ? bytes[kind] : 0;
}

/* The items of an array, or a single number or text. */
static int32_t take_items(reader *r, bs_gguf_key *key) {
  const unsigned char *first = r->at;
  bs_span text = {(const char *)r->at, 0};
  if (key->kind == BS_GGUF_KIND_TEXT) {
    for (uint64_t i = 0; i < key->count; i++) {
      const int32_t rc = take_text(r, BS_GGUF_MAX_TEXT, "a text", &text);
      if (rc != BS_OK) return rc;
    }
    key->data = key->is_array ? (const void *)first : text.data;
    key->bytes = key->is_array ? (uint64_t)(r->at - first) : text.size;
    return BS_OK;
  }
  key->data = first;
  key->bytes = key->count * kind_bytes(key->kind); /* at most 4 Mi items of 8 bytes */
  if (key->bytes > (uint64_t)(r->end - r->at)) return cut(r, "a value");
  r->at += key->bytes;
  for (uint64_t i = 0; key->kind == BS_GGUF_KIND_BOOL && i < key->count; i++)
    if (first[i] > 1) return bs_error_set(r->err, BS_INPUT, "BS-GGUF-KEY", "a bool is %u", first[i]);
  return BS_OK;
}

static int32_t take_key(reader *r, bs_gguf *g, uint32_t index) {
  bs_gguf_key *key = &g->keys[index];
  uint64_t kind = 0;
  int32_t rc = take_name(r, g, &g->key_names, "a key", index, &key->span, &key->name);
  if (rc == BS_OK) rc = take(r, 4, "a key", &kind);
  key->count = 1;
  if (rc == BS_OK && kind == BS_GGUF_KIND_ARRAY) {
    key->is_array = 1;
    rc = take(r, 4, "an array", &kind);
    if (rc == BS_OK) rc = take(r, 8, "an array", &key->count);
    if (rc == BS_OK && kind == BS_GGUF_KIND_ARRAY)
      rc = bs_error_set(r->err, BS_INPUT, "BS-GGUF-KEY", "an array of arrays is not read");
    if (rc == BS_OK && key->count > BS_GGUF_MAX_ITEMS)
      rc = bs_error_set(r->err, BS_INPUT, "BS-GGUF-KEY", "an array of %" PRIu64 " items, cap %u", key->count,
                        BS_GGUF_MAX_ITEMS);
  }
  if (rc == BS_OK && kind != BS_GGUF_KIND_TEXT && kind_bytes(kind) == 0)
    rc = bs_error_set(r->err, BS_INPUT, "BS-GGUF-KEY", "the type %" PRIu64 " of a key is not known", kind);
  key->kind = (uint32_t)kind;
  if (rc == BS_OK) rc = take_items(r, key);
  if (rc != BS_OK && key->name != NULL) bs_error_where(r->err, "key '%.100s'", key->name);
  return rc;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static int32_t set_shape(reader *r, bs_gguf_tensor *t, const uint64_t *sizes) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (sizes[i] > INT64_MAX || !bs_mul_u64(count, sizes[i], &count) || count > INT64_MAX)
      return bs_error_set(r->err, BS_INPUT, "BS-GGUF-SHAPE", "the product of its shape overflows");
    t->dims[t->rank - 1 - i] = (int64_t)sizes[i];
  }
  if (sizes[0] % t->type->block != 0)
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-SHAPE",
                        "rows of %" PRIu64 " numbers are no whole blocks of %u (%s)", sizes[0],
                        t->type->block, t->type->name);
  if (!bs_mul_u64(count / t->type->block, t->type->bytes, &t->bytes))
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-SHAPE", "its bytes overflow");
  return BS_OK;
}

static int32_t take_tensor(reader *r, bs_gguf *g, uint32_t index) {
  bs_gguf_tensor *t = &g->tensors[index];
  uint64_t rank = 0, type = 0, sizes[BS_GGUF_MAX_DIMS] = {0};
  int32_t rc = take_name(r, g, &g->tensor_names, "a tensor", index, &t->span, &t->name);
  if (rc == BS_OK) rc = take(r, 4, "a tensor", &rank);
  if (rc == BS_OK && (rank < 1 || rank > BS_GGUF_MAX_DIMS))
    rc = bs_error_set(r->err, BS_INPUT, "BS-GGUF-SHAPE", "%" PRIu64 " dimensions; 1 to %d are read", rank,
                      BS_GGUF_MAX_DIMS);
  t->rank = rc == BS_OK ? (uint32_t)rank : 0;
  for (uint32_t i = 0; rc == BS_OK && i < t->rank; i++) rc = take(r, 8, "a tensor", &sizes[i]);
  if (rc == BS_OK) rc = take(r, 4, "a tensor", &type);
  if (rc == BS_OK) rc = take(r, 8, "a tensor", &t->offset);
  if (rc == BS_OK) {
    t->type = bs_gguf_type_of((uint32_t)type);
    rc = t->type == NULL ? bs_error_set(r->err, BS_INPUT, "BS-GGUF-TYPE",
                                        "tensor '%.200s' has the unknown type %" PRIu64, t->name, type)
                         : set_shape(r, t, sizes);
  }
  if (rc != BS_OK && t->name != NULL) bs_error_where(r->err, "tensor '%.100s'", t->name);
  return rc;
}

static int by_offset(const void *a, const void *b) {
  const bs_gguf_tensor *x = *(const bs_gguf_tensor *const *)a, *y = *(const bs_gguf_tensor *const *)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Tensors are aligned, lie inside of the file and do not overlap. `data`: where offsets count from. */
static int32_t place_tensors(bs_gguf *g, uint64_t data, bs_error *err) {
  const bs_gguf_tensor **order = bs_arena_take(&g->arena, g->n_tensors, sizeof *order);
  const uint64_t size = g->map.bytes > data ? g->map.bytes - data : 0;
  if (order == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for %u tensors", g->n_tensors);
  for (uint32_t i = 0; i < g->n_tensors; i++) {
    const bs_gguf_tensor *t = order[i] = &g->tensors[i];
    if (t->offset % g->alignment != 0)
      return bs_error_set(err, BS_INPUT, "BS-GGUF-ALIGN",
                          "tensor '%.200s' begins at byte %" PRIu64 " of the data, no multiple of %u",
                          t->name, t->offset, g->alignment);
    if (t->offset > size || t->bytes > size - t->offset)
      return bs_error_set(err, BS_INPUT, "BS-GGUF-CUT",
                          "tensor '%.200s' takes %" PRIu64 " bytes from byte %" PRIu64
                          " of the data on, which has %" PRIu64,
                          t->name, t->bytes, t->offset, size);
  }
  if (g->n_tensors > 1) qsort(order, g->n_tensors, sizeof *order, by_offset);
  for (uint32_t i = 1; i < g->n_tensors; i++)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
      return bs_error_set(err, BS_INPUT, "BS-GGUF-OVERLAP", "tensors '%.200s' and '%.200s' overlap",
                          order[i - 1]->name, order[i]->name);
  for (uint32_t i = 0; i < g->n_tensors; i++) {
    g->tensors[i].offset += data;
    g->tensors[i].data = (const char *)g->map.data + (g->tensors[i].bytes > 0 ? g->tensors[i].offset : 0);
  }
  return BS_OK;
}

/* ---- the file --------------------------------------------------------------------------------- */

static int32_t take_head(reader *r, bs_gguf *g) {
  uint64_t version = 0, tensors = 0, keys = 0;
  if (r->end - r->at < 4 || memcmp(r->at, "GGUF", 4) != 0)
    return bs_error_set(r->err, BS_INPUT, "BS-GGUF-MAGIC", "it does not begin with the letters GGUF");
  r->at += 4;
  int32_t rc = take(r, 4, "the head", &version);
  if (rc == BS_OK && version != 2 && version != 3)
    return version != 0 && (version & 0xffff) == 0
               ? bs_error_set(r->err, BS_INPUT, "BS-GGUF-VERSION", "a big-endian file is not read")
               : bs_error_set(r->err, BS_INPUT, "BS-GGUF-VERSION", "version %" PRIu64 "; 2 and 3 are read",
                              version);
  g->version = (uint32_t)version;
  if (rc == BS_OK) rc = take(r, 8, "the head", &tensors);
  if (rc == BS_OK) rc = take(r, 8, "the head", &keys);
  if (rc == BS_OK && (tensors > BS_GGUF_MAX_ENTRIES || keys > BS_GGUF_MAX_ENTRIES))
    rc = bs_error_set(r->err, BS_INPUT, "BS-GGUF-SIZE",
                      "%" PRIu64 " tensors and %" PRIu64 " keys, cap %u each", tensors, keys,
                      BS_GGUF_MAX_ENTRIES);
  /* A key takes 13 bytes at least, a tensor 32: the tables are never far larger than the file. */
  if (rc == BS_OK && keys * 13 + tensors * 32 > (uint64_t)(r->end - r->at)) rc = cut(r, "the keys");
  if (rc != BS_OK) return rc;
  g->keys = bs_arena_take(&g->arena, keys, sizeof *g->keys);
  g->tensors = bs_arena_take(&g->arena, tensors, sizeof *g->tensors);
  if (g->keys == NULL || g->tensors == NULL)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "no memory for %" PRIu64 " keys", keys);
  g->n_keys = (uint32_t)keys;
  g->n_tensors = (uint32_t)tensors;
  return BS_OK;
}

static int32_t set_alignment(bs_gguf *g, bs_error *err) {
  const bs_gguf_key *key = bs_gguf_find_key(g, "general.alignment");
  int64_t value = 32;
  if (key != NULL &&
      (!bs_gguf_int(key, 0, &value) || value < 8 || value > 65536 || (value & (value - 1)) != 0))
    return bs_error_set(err, BS_INPUT, "BS-GGUF-ALIGN",
                        "general.alignment is no power of two from 8 to 65536");
  g->alignment = (uint32_t)value;
  return BS_OK;
}

static int32_t open_parts(const char *path, bs_gguf *g, bs_error *err) {
  int32_t rc = bs_map_guard(&g->map, path, err);
  if (rc != BS_OK) return rc;
  const uint64_t most = g->map.bytes < BS_GGUF_MAX_METADATA ? g->map.bytes : BS_GGUF_MAX_METADATA;
  const unsigned char *begin = most > 0 ? g->map.data : (const unsigned char *)"";
  reader r = {begin, begin, begin + most, err};
  g->arena.limit = UINT64_MAX;
  rc = take_head(&r, g);
  for (uint32_t i = 0; rc == BS_OK && i < g->n_keys; i++) rc = take_key(&r, g, i);
  for (uint32_t i = 0; rc == BS_OK && i < g->n_tensors; i++) rc = take_tensor(&r, g, i);
  if (rc == BS_OK) rc = set_alignment(g, err);
  const uint64_t used = (uint64_t)(r.at - r.begin), mask = (uint64_t)g->alignment - 1;
  if (rc == BS_OK) rc = place_tensors(g, (used + mask) & ~mask, err);
  if (rc == BS_OK) rc = bs_map_unchanged(&g->map, path, err);
  return rc;
}

int32_t bs_gguf_open(const char *path, bs_gguf *out_gguf, bs_error *err) {
  memset(out_gguf, 0, sizeof *out_gguf);
  int32_t rc = bs_map_open(path, "BS-GGUF-READ", &out_gguf->map, err);
  if (rc != BS_OK) return rc;
  rc = open_parts(path, out_gguf, err);
  if (rc != BS_OK) {
    bs_error_file(err, path);
    bs_gguf_close(out_gguf);
  }
  return rc;
}

void bs_gguf_close(bs_gguf *g) {
  bs_names_free(&g->key_names);
  bs_names_free(&g->tensor_names);
  bs_arena_free(&g->arena);
  bs_map_close(&g->map);
  memset(g, 0, sizeof *g);
}

const bs_gguf_key *bs_gguf_find_key(const bs_gguf *g, const char *name) {
  const uint32_t *found = bs_names_find(&g->key_names, (bs_span){name, strlen(name)});
  return found == NULL ? NULL : &g->keys[*found];
}

const bs_gguf_tensor *bs_gguf_find_tensor(const bs_gguf *g, const char *name) {
  const uint32_t *found = bs_names_find(&g->tensor_names, (bs_span){name, strlen(name)});
  return found == NULL ? NULL : &g->tensors[*found];
}

int32_t bs_gguf_check_type(const bs_gguf_tensor *tensor, bs_error *err) {
  if (tensor->type->is_read) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-GGUF-TYPE", "tensor '%.200s' has the type %s", tensor->name,
               tensor->type->name);
  bs_error_hint(err, "types read: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q4_K Q5_K Q6_K");
  return BS_INPUT;
}

/* ---- values ----------------------------------------------------------------------------------- */

int bs_gguf_int(const bs_gguf_key *key, uint64_t i, int64_t *out_value) {
  const uint32_t kind = key->kind, size = kind_bytes(kind);
  if (i >= key->count || size == 0 || kind == BS_GGUF_KIND_F32 || kind == BS_GGUF_KIND_F64) return 0;
  const uint64_t value = number_at((const char *)key->data + i * size, size);
  const int is_signed = kind == BS_GGUF_KIND_I8 || kind == BS_GGUF_KIND_I16 || kind == BS_GGUF_KIND_I32;
  if (kind == BS_GGUF_KIND_U64 && value > INT64_MAX) return 0;
  *out_value = (int64_t)value; /* an i64 has its own bits */
  if (is_signed && value >> (8 * size - 1) != 0) *out_value -= (int64_t)1 << (8 * size);
  return 1;
}

int bs_gguf_real(const bs_gguf_key *key, uint64_t i, double *out_value) {
  int64_t whole = 0;
  float narrow = 0;
  if (key->kind == BS_GGUF_KIND_F32 && i < key->count) {
    memcpy(&narrow, (const char *)key->data + i * sizeof narrow, sizeof narrow);
    *out_value = (double)narrow;
    return 1;
  }
  if (key->kind == BS_GGUF_KIND_F64 && i < key->count) {
    memcpy(out_value, (const char *)key->data + i * sizeof *out_value, sizeof *out_value);
    return 1;
  }
  if (key->kind == BS_GGUF_KIND_BOOL || !bs_gguf_int(key, i, &whole)) return 0;
  *out_value = (double)whole;
  return 1;
}

int bs_gguf_text(const bs_gguf_key *key, bs_span *out_text) {
  if (key->kind != BS_GGUF_KIND_TEXT || key->is_array) return 0;
  *out_text = (bs_span){key->data, key->bytes};
  return 1;
}

int bs_gguf_text_next(const bs_gguf_key *key, uint64_t *at, bs_span *out_text) {
  if (key->kind != BS_GGUF_KIND_TEXT || !key->is_array || key->bytes - *at < 8) return 0;
  const char *here = (const char *)key->data + *at;
  const uint64_t size = number_at(here, 8);
  if (size > key->bytes - *at - 8) return 0;
  *out_text = (bs_span){here + 8, size};
  *at += 8 + size;
  return 1;
}
