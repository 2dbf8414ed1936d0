/* SPDX-License-Identifier: MIT
 * pb.c - walking protobuf records (pb.h). Every length is held against the message that contains it. Called
 * by the ONNX reader. */
#include "formats/pb.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"

uint64_t bs_pb_size(const bs_pb *message) {
  return (uint64_t)(message->end - message->at);
}

uint64_t bs_pb_offset(const bs_pb *message) {
  return (uint64_t)(message->at - message->file);
}

int bs_pb_varint(bs_pb *list, uint64_t *out_value) {
  const unsigned char *at = list->at;
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70 && at < list->end; shift += 7) {
    unsigned char byte = *at++;
    if (shift == 63 && byte > 1) return 0; /* more than 64 bits */
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte & 0x80) continue;
    list->at = at;
    *out_value = value;
    return 1;
  }
  return 0;
}

static int32_t bad_varint(const bs_pb *at, const char *what, bs_error *err) {
  return bs_error_set(
      err, BS_INPUT, "BS-PB-VARINT", "at byte %" PRIu64 ": %s %s", bs_pb_offset(at), what,
      bs_pb_size(at) < 10 ? "is cut off by the end of its message" : "is longer than 10 bytes or 64 bits");
}

static int32_t read_fixed(bs_pb *message, unsigned bytes, bs_pb_field *f, bs_error *err) {
  if (bs_pb_size(message) < bytes)
    return bs_error_set(err, BS_INPUT, "BS-PB-LENGTH",
                        "at byte %" PRIu64 ": field %u needs %u bytes, its message has %" PRIu64, f->offset,
                        f->number, bytes, bs_pb_size(message));
  for (unsigned i = 0; i < bytes; i++) f->value |= (uint64_t)message->at[i] << (8 * i);
  message->at += bytes;
  return BS_OK;
}

static int32_t read_body(bs_pb *message, bs_pb_field *f, bs_error *err) {
  uint64_t length = 0;
  if (!bs_pb_varint(message, &length)) return bad_varint(message, "a length", err);
  if (length > bs_pb_size(message))
    return bs_error_set(err, BS_INPUT, "BS-PB-LENGTH",
                        "at byte %" PRIu64 ": field %u says %" PRIu64 " bytes, its message has %" PRIu64,
                        f->offset, f->number, length, bs_pb_size(message));
  f->body = *message;
  message->at += length;
  f->body.end = message->at;
  return BS_OK;
}

int32_t bs_pb_next(bs_pb *message, bs_pb_field *out_field, bs_error *err) {
  uint64_t key = 0;
  memset(out_field, 0, sizeof *out_field);
  out_field->offset = bs_pb_offset(message);
  if (message->at == message->end) return BS_OK;
  if (!bs_pb_varint(message, &key)) return bad_varint(message, "a field's key", err);
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
    return bs_error_set(err, BS_INPUT, "BS-PB-WIRE", "at byte %" PRIu64 ": field number %" PRIu64,
                        out_field->offset, key >> 3);
  out_field->number = (uint32_t)(key >> 3);
  out_field->wire = (uint32_t)(key & 7);
  switch (out_field->wire) {
    case BS_PB_VARINT:
      return bs_pb_varint(message, &out_field->value) ? BS_OK : bad_varint(message, "a number", err);
    case BS_PB_FIXED64:
      return read_fixed(message, 8, out_field, err);
    case BS_PB_BYTES:
      return read_body(message, out_field, err);
    case BS_PB_FIXED32:
      return read_fixed(message, 4, out_field, err);
    default:
      return bs_error_set(err, BS_INPUT, "BS-PB-WIRE",
                          "at byte %" PRIu64 ": field %u has wire type %u; 0, 1, 2 and 5 are read",
                          out_field->offset, out_field->number, out_field->wire);
  }
}

int32_t bs_pb_count(bs_pb message, uint64_t *out_counts, uint32_t n, bs_error *err) {
  bs_pb_field f;
  int32_t rc;
  memset(out_counts, 0, n * sizeof *out_counts);
  while ((rc = bs_pb_next(&message, &f, err)) == BS_OK && f.number != 0)
    if (f.number < n) out_counts[f.number]++;
  return rc;
}

int32_t bs_pb_want(const bs_pb_field *field, uint32_t wire, bs_error *err) {
  if (field->wire == wire) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-PB-WIRE",
                      "at byte %" PRIu64 ": field %u has wire type %u, the format has %u there",
                      field->offset, field->number, field->wire, wire);
}
