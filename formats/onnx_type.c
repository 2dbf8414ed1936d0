/* SPDX-License-Identifier: MIT
 * onnx_type.c - the types of ONNX by number, and ValueInfo records: the type and shape of a named value.
 * Called by onnx.c, onnx_tensor.c and importers. */
#include <inttypes.h>

#include "core/base/error.h"
#include "formats/onnx_parse.h"

static const bs_onnx_type types[] = {{1, 32, BS_F32, "FLOAT"},
                                     {2, 8, BS_U8, "UINT8"},
                                     {3, 8, BS_I8, "INT8"},
                                     {4, 16, 0x0110, "UINT16"},
                                     {5, 16, 0x0010, "INT16"},
                                     {6, 32, BS_I32, "INT32"},
                                     {7, 64, BS_I64, "INT64"},
                                     {8, 0, 0, "STRING"},
                                     {9, 8, BS_BOOL, "BOOL"},
                                     {10, 16, BS_F16, "FLOAT16"},
                                     {11, 64, BS_F64, "DOUBLE"},
                                     {12, 32, 0x0120, "UINT32"},
                                     {13, 64, 0x0140, "UINT64"},
                                     {14, 64, 0x0540, "COMPLEX64"},
                                     {15, 128, 0x0580, "COMPLEX128"},
                                     {16, 16, BS_BF16, "BFLOAT16"},
                                     {17, 8, BS_F8E4M3, "FLOAT8E4M3FN"},
                                     {18, 8, 0x0B08, "FLOAT8E4M3FNUZ"},
                                     {19, 8, BS_F8E5M2, "FLOAT8E5M2"},
                                     {20, 8, 0x0D08, "FLOAT8E5M2FNUZ"},
                                     {21, 4, 0x0104, "UINT4"},
                                     {22, 4, 0x0004, "INT4"},
                                     {23, 4, 0x1104, "FLOAT4E2M1"},
                                     {24, 8, 0x0E08, "FLOAT8E8M0"},
                                     {25, 2, 0x0102, "UINT2"},
                                     {26, 2, 0x0002, "INT2"},
                                     {27, 6, 0x0F06, "FLOAT6E2M3"},
                                     {28, 6, 0x1006, "FLOAT6E3M2"}};

const bs_onnx_type *bs_onnx_type_of(uint32_t number) {
  if (number == 0 || number > sizeof types / sizeof *types) return NULL;
  return &types[number - 1];
}

static int32_t dim_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_dim *dim = record;
  (void)r;
  if (f->number == 2) {
    dim->value = -1;
    return bs_onnx_name(f, &dim->symbol, err);
  }
  if (f->number != 1) return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_VARINT, err);
  if (rc != BS_OK) return rc;
  /* Older exporters wrote -1 and 0 for sizes that they did not know; 0 is a size. */
  dim->value = (int64_t)f->value < 0 ? -1 : (int64_t)f->value;
  dim->symbol = (bs_span){0};
  return BS_OK;
}

static int32_t shape_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_value *v = record;
  if (f->number != 1) return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
  if (rc != BS_OK) return rc;
  bs_onnx_dim *dim = &v->dims[v->rank++];
  dim->value = -1;
  return bs_onnx_fields(r, f->body, dim_field, dim, err);
}

static int32_t read_shape(bs_onnx_reader *r, bs_onnx_value *v, bs_pb body, bs_error *err) {
  uint64_t counts[2];
  int32_t rc = bs_pb_count(body, counts, 2, err);
  if (rc != BS_OK) return rc;
  if (counts[1] > BS_ONNX_MAX_DIMS)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SHAPE",
                        "at byte %" PRIu64 ": '%.*s' has %" PRIu64 " dimensions, cap %d", bs_pb_offset(&body),
                        BS_SPAN_PRINT(v->name), counts[1], BS_ONNX_MAX_DIMS);
  v->has_shape = 1;
  v->rank = 0;
  rc = bs_onnx_list(r, &body, counts[1], 2, sizeof *v->dims, &v->dims, err);
  if (rc != BS_OK) return rc;
  return bs_onnx_fields(r, body, shape_field, v, err);
}

/* TypeProto.Tensor and TypeProto.SparseTensor. */
static int32_t tensor_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_value *v = record;
  if (f->number == 2) {
    int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
    return rc == BS_OK ? read_shape(r, v, f->body, err) : rc;
  }
  if (f->number != 1) return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_VARINT, err);
  if (rc != BS_OK) return rc;
  if (f->value > UINT32_MAX || (f->value != 0 && bs_onnx_type_of((uint32_t)f->value) == NULL))
    return bs_error_set(err, BS_INPUT, "BS-ONNX-TYPE",
                        "at byte %" PRIu64 ": '%.*s' has the unknown type %" PRIu64, f->offset,
                        BS_SPAN_PRINT(v->name), f->value);
  v->type = (uint32_t)f->value;
  return BS_OK;
}

/* Keeps only the kind of a sequence, a map or an optional value. */
static int32_t type_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_value *v = record;
  if (f->number != BS_ONNX_KIND_TENSOR && f->number != BS_ONNX_KIND_SEQUENCE &&
      f->number != BS_ONNX_KIND_MAP && f->number != BS_ONNX_KIND_OPAQUE && f->number != BS_ONNX_KIND_SPARSE &&
      f->number != BS_ONNX_KIND_OPTIONAL)
    return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
  if (rc != BS_OK) return rc;
  if (v->kind != BS_ONNX_KIND_NONE)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE", "at byte %" PRIu64 ": '%.*s' has two types",
                        f->offset, BS_SPAN_PRINT(v->name));
  v->kind = f->number;
  if (f->number != BS_ONNX_KIND_TENSOR && f->number != BS_ONNX_KIND_SPARSE) return BS_OK;
  return bs_onnx_fields(r, f->body, tensor_field, v, err);
}

static int32_t value_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_value *v = record;
  if (f->number == 1) return bs_onnx_name(f, &v->name, err);
  if (f->number != 2) return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
  return rc == BS_OK ? bs_onnx_fields(r, f->body, type_field, v, err) : rc;
}

int32_t bs_onnx_read_value(bs_onnx_reader *r, bs_pb body, bs_onnx_value *out, bs_error *err) {
  int32_t rc = bs_onnx_fields(r, body, value_field, out, err);
  if (rc == BS_OK && out->name.size == 0)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-NAME", "at byte %" PRIu64 ": a value has no name",
                        bs_pb_offset(&body));
  return rc;
}
