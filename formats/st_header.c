/* SPDX-License-Identifier: MIT
 * st_header.c - the JSON header of a safetensors file, by jansson (duplicate keys refused). A scan before
 * the parser bounds the nesting and the length of arrays, so that a hostile header cannot make a tree that is
 * far larger than itself. Called by safetensors.c. */
#include "formats/st_header.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"

/* Every dtype of the format, in bits. dtype 0: the file is read, the tensor is refused by bs_st_find. */
static const struct {
  const char *name;
  uint32_t dtype, bits;
} types[] = {{"F64", BS_F64, 64},
             {"F32", BS_F32, 32},
             {"F16", BS_F16, 16},
             {"BF16", BS_BF16, 16},
             {"F8_E4M3", BS_F8E4M3, 8},
             {"F8_E5M2", BS_F8E5M2, 8},
             {"I64", BS_I64, 64},
             {"I32", BS_I32, 32},
             {"I8", BS_I8, 8},
             {"U8", BS_U8, 8},
             {"BOOL", BS_BOOL, 8},
             {"I16", 0, 16},
             {"U16", 0, 16},
             {"U32", 0, 32},
             {"U64", 0, 64},
             {"C64", 0, 64},
             {"F8_E8M0", 0, 8},
             {"F6_E2M3", 0, 6},
             {"F6_E3M2", 0, 6},
             {"F4", 0, 4}};

/* Nesting and array lengths, minding strings. Malformed text is left to the parser. */
static int32_t scan(const char *text, size_t size, bs_error *err) {
  int depth = 0, in_string = 0;
  unsigned commas[BS_ST_MAX_DEPTH + 1] = {0};
  char opened[BS_ST_MAX_DEPTH + 1] = {0};
  for (size_t i = 0; i < size; i++) {
    char ch = text[i];
    if (in_string) {
      if (ch == '\\')
        i++;
      else if (ch == '"')
        in_string = 0;
    } else if (ch == '"') {
      in_string = 1;
    } else if (ch == '{' || ch == '[') {
      if (++depth > BS_ST_MAX_DEPTH)
        return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "header nests deeper than %d at byte %zu",
                            BS_ST_MAX_DEPTH, i);
      commas[depth] = 0;
      opened[depth] = ch;
    } else if (ch == '}' || ch == ']') {
      if (depth > 0) depth--;
    } else if (ch == ',' && depth > 0 && opened[depth] == '[' && ++commas[depth] >= BS_ST_MAX_DIMS) {
      return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE",
                          "header has an array of more than %d numbers at byte %zu", BS_ST_MAX_DIMS, i);
    }
  }
  return BS_OK;
}

static int32_t check_name(const char *name, size_t length, bs_error *err) {
  if (length == 0 || length > BS_ST_MAX_NAME)
    return bs_error_set(err, BS_INPUT, "BS-ST-NAME", "a tensor name of %zu bytes; 1 to %u are read", length,
                        BS_ST_MAX_NAME);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
      return bs_error_set(err, BS_INPUT, "BS-ST-NAME", "a tensor name has the control byte 0x%02x at %zu",
                          (unsigned)(unsigned char)name[i], i);
  return BS_OK;
}

static int32_t check_metadata(json_t *metadata, bs_error *err) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata))
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "__metadata__ is not an object");
  json_object_foreach(metadata, key, value) if (!json_is_string(value)) return bs_error_set(
      err, BS_INPUT, "BS-ST-JSON", "__metadata__ entry '%.100s' is not a string", key);
  return BS_OK;
}

/* Exactly the keys dtype (string), shape (array), data_offsets (array of two). */
static int32_t check_keys(const char *name, json_t *entry, bs_error *err) {
  const char *key;
  json_t *value;
  if (!json_is_object(entry))
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "tensor '%.200s' is not an object", name);
  json_object_foreach(entry, key, value) {
    if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0)
      return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "tensor '%.200s' has the unknown key '%.100s'", name,
                          key);
  }
  if (!json_is_string(json_object_get(entry, "dtype")))
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "tensor '%.200s' has no dtype", name);
  if (!json_is_array(json_object_get(entry, "shape")))
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "tensor '%.200s' has no shape", name);
  if (!json_is_array(json_object_get(entry, "data_offsets")))
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "tensor '%.200s' has no data_offsets", name);
  return BS_OK;
}

/* The shape and the bytes it needs. A zero dimension makes the tensor empty before any product is formed. */
static int32_t parse_shape(json_t *shape, uint32_t bits, bs_st_tensor *t, uint64_t *out_bytes,
                           bs_error *err) {
  size_t rank = json_array_size(shape), i;
  json_t *dim;
  uint64_t count = 1, all_bits = 0;
  if (rank > BS_ST_MAX_DIMS)
    return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE", "tensor '%.200s' has %zu dimensions, cap %d", t->name,
                        rank, BS_ST_MAX_DIMS);
  t->rank = (uint32_t)rank;
  json_array_foreach(shape, i, dim) {
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE",
                          "tensor '%.200s': dimension %zu is not a non-negative integer", t->name, i);
    t->dims[i] = (int64_t)json_integer_value(dim);
    if (t->dims[i] == 0) count = 0;
  }
  for (i = 0; i < rank && count != 0; i++)
    if (!bs_mul_u64(count, (uint64_t)t->dims[i], &count))
      return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE", "tensor '%.200s': the product of its shape overflows",
                          t->name);
  if (!bs_mul_u64(count, bits, &all_bits))
    return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE",
                        "tensor '%.200s': %" PRIu64 " elements of %u bits overflow", t->name, count, bits);
  if (all_bits % 8 != 0)
    return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE", "tensor '%.200s': %" PRIu64 " bits are not whole bytes",
                        t->name, all_bits);
  *out_bytes = all_bits / 8;
  return BS_OK;
}

static int32_t parse_offsets(json_t *offsets, uint64_t shape_bytes, uint64_t data_bytes, bs_st_tensor *t,
                             bs_error *err) {
  json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return bs_error_set(err, BS_INPUT, "BS-ST-OFFSET",
                        "tensor '%.200s': data_offsets are not two ascending byte positions", t->name);
  t->offset = (uint64_t)json_integer_value(begin);
  t->bytes = (uint64_t)json_integer_value(end) - t->offset;
  if ((uint64_t)json_integer_value(end) > data_bytes)
    return bs_error_set(err, BS_INPUT, "BS-ST-OFFSET",
                        "tensor '%.200s' ends at byte %" PRIu64 " of the data, which has %" PRIu64, t->name,
                        (uint64_t)json_integer_value(end), data_bytes);
  if (t->bytes != shape_bytes)
    return bs_error_set(err, BS_INPUT, "BS-ST-SHAPE",
                        "tensor '%.200s': its shape needs %" PRIu64 " bytes, its offsets span %" PRIu64,
                        t->name, shape_bytes, t->bytes);
  return BS_OK;
}

static int32_t parse_tensor(const char *name, json_t *entry, uint64_t data_bytes, bs_st_tensor *t,
                            bs_error *err) {
  size_t type = 0, length = strlen(name);
  uint64_t bytes = 0;
  int32_t rc = check_name(name, length, err);
  if (rc == BS_OK) rc = check_keys(name, entry, err);
  if (rc != BS_OK) return rc;
  t->name = malloc(length + 1);
  if (t->name == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", length);
  memcpy(t->name, name, length + 1);
  const char *type_name = json_string_value(json_object_get(entry, "dtype"));
  while (type < sizeof types / sizeof *types && strcmp(types[type].name, type_name) != 0) type++;
  if (type == sizeof types / sizeof *types)
    return bs_error_set(err, BS_INPUT, "BS-ST-DTYPE", "tensor '%.200s': unknown dtype '%.40s'", name,
                        type_name);
  t->dtype = types[type].dtype;
  t->type_name = types[type].name;
  rc = parse_shape(json_object_get(entry, "shape"), types[type].bits, t, &bytes, err);
  if (rc != BS_OK) return rc;
  return parse_offsets(json_object_get(entry, "data_offsets"), bytes, data_bytes, t, err);
}

static int32_t parse_object(json_t *root, uint64_t data_bytes, bs_st *out, bs_error *err) {
  const char *key;
  json_t *value;
  size_t count = json_object_size(root);
  if (count > BS_ST_MAX_TENSORS)
    return bs_error_set(err, BS_INPUT, "BS-ST-HEADER", "%zu tensors, cap %u", count, BS_ST_MAX_TENSORS);
  out->tensors = calloc(count == 0 ? 1 : count, sizeof *out->tensors);
  if (out->tensors == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for %zu tensors is not to be had", count);
  json_object_foreach(root, key, value) {
    int32_t rc = strcmp(key, "__metadata__") == 0
                     ? check_metadata(value, err)
                     : parse_tensor(key, value, data_bytes, &out->tensors[out->count++], err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t bs_st_parse_header(const char *text, size_t size, uint64_t data_bytes, bs_st *out, bs_error *err) {
  json_error_t bad;
  if (size == 0 || text[0] != '{')
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "the header of %zu bytes does not start with '{'", size);
  int32_t rc = scan(text, size, err);
  if (rc != BS_OK) return rc;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &bad);
  if (root == NULL) {
    enum json_error_code code = json_error_code(&bad);
    if (code == json_error_out_of_memory)
      return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a header of %zu bytes", size);
    if (code == json_error_duplicate_key)
      return bs_error_set(err, BS_INPUT, "BS-ST-DUP", "a name appears twice in the header: %.200s", bad.text);
    return bs_error_set(err, BS_INPUT, "BS-ST-JSON", "the header is not JSON: %.200s at byte %d", bad.text,
                        bad.position);
  }
  rc = json_is_object(root) ? parse_object(root, data_bytes, out, err)
                            : bs_error_set(err, BS_INPUT, "BS-ST-JSON", "the header is not an object");
  json_decref(root);
  return rc;
}
