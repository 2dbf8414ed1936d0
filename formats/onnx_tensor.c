/* SPDX-License-Identifier: MIT
 * onnx_tensor.c - TensorProto records: shape, and the elements from raw_data, from the field of their type or
 * from a file of external data (onnx_external.c). Called by onnx.c and onnx_attr.c. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "formats/onnx_parse.h"

enum {
  FLOAT_DATA = 4,
  INT32_DATA = 5,
  STRING_DATA = 6,
  INT64_DATA = 7,
  RAW_DATA = 9,
  DOUBLE_DATA = 10,
  UINT64_DATA = 11
};

/* For each type number: the field of its elements, the wire type there, and how many numbers an element has.
 */
static const struct {
  uint8_t field, wire, per_element;
} typed[] = {{0, 0, 0},
             {FLOAT_DATA, BS_PB_FIXED32, 1},   /* FLOAT */
             {INT32_DATA, BS_PB_VARINT, 1},    /* UINT8 */
             {INT32_DATA, BS_PB_VARINT, 1},    /* INT8 */
             {INT32_DATA, BS_PB_VARINT, 1},    /* UINT16 */
             {INT32_DATA, BS_PB_VARINT, 1},    /* INT16 */
             {INT32_DATA, BS_PB_VARINT, 1},    /* INT32 */
             {INT64_DATA, BS_PB_VARINT, 1},    /* INT64 */
             {STRING_DATA, BS_PB_BYTES, 1},    /* STRING */
             {INT32_DATA, BS_PB_VARINT, 1},    /* BOOL */
             {INT32_DATA, BS_PB_VARINT, 1},    /* FLOAT16 */
             {DOUBLE_DATA, BS_PB_FIXED64, 1},  /* DOUBLE */
             {UINT64_DATA, BS_PB_VARINT, 1},   /* UINT32 */
             {UINT64_DATA, BS_PB_VARINT, 1},   /* UINT64 */
             {FLOAT_DATA, BS_PB_FIXED32, 2},   /* COMPLEX64 */
             {DOUBLE_DATA, BS_PB_FIXED64, 2}}; /* COMPLEX128; all later ones: INT32_DATA */

static int32_t tensor_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_tensor *t = record;
  bs_span raw;
  int32_t rc;
  (void)r;
  switch (f->number) {
    case 2:
      rc = bs_pb_want(f, BS_PB_VARINT, err);
      t->type = f->value > UINT32_MAX ? UINT32_MAX : (uint32_t)f->value;
      return rc;
    case 8:
      return bs_onnx_name(f, &t->name, err);
    case RAW_DATA:
      rc = bs_onnx_span(f, &raw, err);
      t->data = raw.data;
      t->bytes = raw.size;
      return rc;
    case 14:
      rc = bs_pb_want(f, BS_PB_VARINT, err);
      t->is_external = f->value == 1;
      return rc;
    default:
      return BS_OK;
  }
}

static int32_t bad(const bs_onnx_tensor *t, const char *id, const char *what, bs_error *err) {
  return bs_error_set(err, BS_INPUT, id, "at byte %" PRIu64 ": tensor '%.*s': %s", t->offset,
                      BS_SPAN_PRINT(t->name), what);
}

static int32_t read_dims(bs_pb body, bs_onnx_tensor *t, bs_error *err) {
  uint64_t rank = 0;
  int32_t rc = bs_onnx_count_numbers(body, 1, BS_PB_VARINT, &rank, err);
  if (rc != BS_OK) return rc;
  if (rank > BS_ONNX_MAX_DIMS)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SHAPE",
                        "at byte %" PRIu64 ": tensor '%.*s' has %" PRIu64 " dimensions, cap %d", t->offset,
                        BS_SPAN_PRINT(t->name), rank, BS_ONNX_MAX_DIMS);
  t->rank = (uint32_t)rank;
  if ((rc = bs_onnx_read_numbers(body, 1, BS_PB_VARINT, 8, t->dims, err)) != BS_OK) return rc;
  t->count = 1;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (t->dims[i] < 0) return bad(t, "BS-ONNX-SHAPE", "a dimension is negative", err);
    if (t->dims[i] == 0) t->count = 0; /* empty before any product is formed */
  }
  for (uint32_t i = 0; i < t->rank && t->count != 0; i++)
    if (!bs_mul_u64(t->count, (uint64_t)t->dims[i], &t->count))
      return bad(t, "BS-ONNX-SHAPE", "the product of its dimensions overflows", err);
  return BS_OK;
}

/* How many numbers must stand in the typed field: elements, or bytes that several small elements share. */
static uint64_t typed_numbers(const bs_onnx_tensor *t, uint32_t bits, uint64_t bytes) {
  if (bits != 0 && bits < 6) return bytes;
  return t->type < sizeof typed / sizeof *typed ? t->count * typed[t->type].per_element : t->count;
}

/* The one packed record that holds all numbers of a field, when they are stored as they are used. */
static int32_t find_whole(bs_pb body, uint32_t field, uint64_t bytes, const void **out_data, bs_error *err) {
  bs_pb_field f;
  int32_t rc;
  while ((rc = bs_pb_next(&body, &f, err)) == BS_OK && f.number != 0)
    if (f.number == field && f.wire == BS_PB_BYTES && bs_pb_size(&f.body) == bytes) *out_data = f.body.at;
  return rc;
}

static int32_t read_typed(bs_onnx_reader *r, bs_pb body, bs_onnx_tensor *t, uint32_t bits, uint64_t bytes,
                          uint64_t strings, bs_error *err) {
  uint32_t known = t->type < sizeof typed / sizeof *typed;
  uint32_t field = known ? typed[t->type].field : INT32_DATA,
           wire = known ? typed[t->type].wire : BS_PB_VARINT;
  uint64_t have = 0, want = typed_numbers(t, bits, bytes);
  int32_t rc = BS_OK;
  if (wire == BS_PB_BYTES)
    have = strings; /* they are counted, not kept */
  else
    rc = bs_onnx_count_numbers(body, field, wire, &have, err);
  if (rc != BS_OK) return rc;
  if (have != want)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SIZE",
                        "at byte %" PRIu64 ": tensor '%.*s' of %" PRIu64 " elements has %" PRIu64
                        " numbers in field %u, it needs %" PRIu64,
                        t->offset, BS_SPAN_PRINT(t->name), t->count, have, field, want);
  if (wire == BS_PB_BYTES || have == 0) return BS_OK;
  if (bits == 6) return bad(t, "BS-ONNX-DATA", "6-bit elements are read from raw_data only", err);
  t->bytes = bytes;
  if (wire != BS_PB_VARINT) {
    if ((rc = find_whole(body, field, bytes, &t->data, err)) != BS_OK || t->data != NULL) return rc;
  }
  uint32_t width = wire == BS_PB_FIXED32 ? 4 : bits < 8 ? 1 : bits > 64 ? 8 : bits / 8;
  void *to = NULL;
  if ((rc = bs_onnx_bytes(r, want, width, &to, err)) != BS_OK) return rc;
  t->data = to;
  return bs_onnx_read_numbers(body, field, wire, width, to, err);
}

static int32_t read_data(bs_onnx_reader *r, bs_pb body, bs_onnx_tensor *t, const uint64_t *counts,
                         bs_error *err) {
  uint32_t bits = bs_onnx_type_of(t->type)->bits;
  uint64_t need = 0;
  if (!bs_mul_u64(t->count, bits, &need) || need > UINT64_MAX - 7)
    return bad(t, "BS-ONNX-SHAPE", "its size in bytes overflows", err);
  need = (need + 7) / 8;
  if (counts[3] != 0) return bad(t, "BS-ONNX-DATA", "it is a segment of a tensor", err);
  if (t->is_external) {
    t->data = NULL;
    t->bytes = need;
    return bs_onnx_external(r, body, t, err);
  }
  uint64_t others = counts[FLOAT_DATA] + counts[INT32_DATA] + counts[STRING_DATA] + counts[INT64_DATA] +
                    counts[DOUBLE_DATA] + counts[UINT64_DATA];
  if (counts[RAW_DATA] == 0 || t->bytes == 0) {
    t->data = NULL;
    return read_typed(r, body, t, bits, need, counts[STRING_DATA], err);
  }
  if (others != 0) return bad(t, "BS-ONNX-DATA", "it has raw_data and another field of elements", err);
  if (bits == 0) return bad(t, "BS-ONNX-DATA", "strings do not stand in raw_data", err);
  if (t->bytes != need)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SIZE",
                        "at byte %" PRIu64 ": tensor '%.*s' of %" PRIu64 " %s elements has %" PRIu64
                        " bytes, it needs %" PRIu64,
                        t->offset, BS_SPAN_PRINT(t->name), t->count, bs_onnx_type_of(t->type)->name, t->bytes,
                        need);
  return BS_OK;
}

int32_t bs_onnx_read_tensor(bs_onnx_reader *r, bs_pb body, uint64_t offset, bs_onnx_tensor *out,
                            bs_error *err) {
  uint64_t counts[16];
  out->offset = offset;
  int32_t rc = bs_pb_count(body, counts, 16, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, tensor_field, out, err);
  if (rc == BS_OK) rc = read_dims(body, out, err);
  if (rc != BS_OK) return rc;
  if (bs_onnx_type_of(out->type) == NULL)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-TYPE",
                        "at byte %" PRIu64 ": tensor '%.*s' has the unknown type %u", offset,
                        BS_SPAN_PRINT(out->name), out->type);
  return read_data(r, body, out, counts, err);
}
