/* SPDX-License-Identifier: MIT
 * onnx_fields.c - what the message parsers of the ONNX reader share: walking fields, lists of exact length
 * under the budget, texts, repeated numbers. Called by onnx*.c. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/onnx_parse.h"

int bs_span_same(bs_span a, bs_span b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}

int bs_span_is(bs_span span, const char *text) {
  return bs_span_same(span, (bs_span){text, strlen(text)});
}

int32_t bs_onnx_fields(bs_onnx_reader *r, bs_pb message, bs_onnx_each each, void *record, bs_error *err) {
  bs_pb_field f;
  int32_t rc;
  while ((rc = bs_pb_next(&message, &f, err)) == BS_OK && f.number != 0)
    if ((rc = each(r, record, &f, err)) != BS_OK) return rc;
  return rc;
}

int32_t bs_onnx_bytes(bs_onnx_reader *r, uint64_t count, uint64_t bytes, void *out, bs_error *err) {
  void *taken = bs_arena_take(&r->store->arena, count, bytes);
  if (taken == NULL)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-BUDGET",
                        "%" PRIu64 " records of %" PRIu64
                        " bytes exceed the memory that a file of this size may take, %" PRIu64
                        " bytes, or what is to be had",
                        count, bytes, r->store->arena.limit);
  memcpy(out, &taken, sizeof taken);
  return BS_OK;
}

int32_t bs_onnx_list(bs_onnx_reader *r, const bs_pb *message, uint64_t count, uint64_t least, uint64_t bytes,
                     void *out_list, bs_error *err) {
  if (count > bs_pb_size(message) / least)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-EMPTY",
                        "at byte %" PRIu64 ": %" PRIu64 " records in %" PRIu64 " bytes: some are empty",
                        bs_pb_offset(message), count, bs_pb_size(message));
  r->items += count;
  if (r->items > BS_ONNX_MAX_ITEMS)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT",
                        "at byte %" PRIu64 ": more than %u nodes, tensors, attributes and values",
                        bs_pb_offset(message), BS_ONNX_MAX_ITEMS);
  return bs_onnx_bytes(r, count, bytes, out_list, err);
}

int32_t bs_onnx_span(const bs_pb_field *field, bs_span *out, bs_error *err) {
  int32_t rc = bs_pb_want(field, BS_PB_BYTES, err);
  if (rc == BS_OK) *out = (bs_span){(const char *)field->body.at, bs_pb_size(&field->body)};
  return rc;
}

int32_t bs_onnx_name(const bs_pb_field *field, bs_span *out, bs_error *err) {
  int32_t rc = bs_onnx_span(field, out, err);
  if (rc != BS_OK) return rc;
  if (out->size > BS_ONNX_MAX_NAME)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-NAME",
                        "at byte %" PRIu64 ": a name of %" PRIu64 " bytes; up to %u are read", field->offset,
                        out->size, BS_ONNX_MAX_NAME);
  for (uint64_t i = 0; i < out->size; i++)
    if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7f)
      return bs_error_set(err, BS_INPUT, "BS-ONNX-NAME",
                          "at byte %" PRIu64 ": a name has the control byte 0x%02x at %" PRIu64,
                          field->offset, (unsigned)(unsigned char)out->data[i], i);
  return BS_OK;
}

int32_t bs_onnx_domain(const bs_pb_field *field, bs_span *out, bs_error *err) {
  int32_t rc = bs_onnx_name(field, out, err);
  if (rc == BS_OK && bs_span_is(*out, "ai.onnx")) *out = (bs_span){NULL, 0};
  return rc;
}

static uint32_t fixed_bytes(uint32_t wire) {
  return wire == BS_PB_FIXED32 ? 4 : 8;
}

/* Numbers in a packed list. The number of varints is the number of bytes without the continuation bit. */
static int32_t count_packed(const bs_pb_field *f, uint32_t wire, uint64_t *count, bs_error *err) {
  uint64_t n = bs_pb_size(&f->body);
  if (wire == BS_PB_VARINT) {
    for (const unsigned char *at = f->body.at; at < f->body.end; at++) *count += (*at & 0x80) == 0;
    return BS_OK;
  }
  if (n % fixed_bytes(wire) != 0)
    return bs_error_set(err, BS_INPUT, "BS-PB-LENGTH",
                        "at byte %" PRIu64 ": a list of %" PRIu64 " bytes is not one of %u-byte numbers",
                        f->offset, n, fixed_bytes(wire));
  *count += n / fixed_bytes(wire);
  return BS_OK;
}

int32_t bs_onnx_count_numbers(bs_pb message, uint32_t field, uint32_t wire, uint64_t *out_count,
                              bs_error *err) {
  bs_pb_field f;
  int32_t rc;
  *out_count = 0;
  while ((rc = bs_pb_next(&message, &f, err)) == BS_OK && f.number != 0) {
    if (f.number != field) continue;
    if (f.wire == BS_PB_BYTES)
      rc = count_packed(&f, wire, out_count, err);
    else if ((rc = bs_pb_want(&f, wire, err)) == BS_OK)
      ++*out_count;
    if (rc != BS_OK) return rc;
  }
  return rc;
}

/* 1: the value fits a signed or an unsigned number of `width` bytes. */
static int fits(uint64_t value, uint32_t width) {
  if (width == 8) return 1;
  uint64_t limit = (uint64_t)1 << (8 * width);
  return value < limit || value >= (uint64_t)0 - limit / 2;
}

static int32_t store(uint64_t value, uint32_t width, uint64_t offset, unsigned char **to, bs_error *err) {
  if (!fits(value, width))
    return bs_error_set(err, BS_INPUT, "BS-ONNX-VALUE",
                        "at byte %" PRIu64 ": the number %" PRId64 " does not fit into %u bits", offset,
                        (int64_t)value, 8 * width);
  for (uint32_t i = 0; i < width; i++) *(*to)++ = (unsigned char)(value >> (8 * i));
  return BS_OK;
}

static int32_t read_packed(const bs_pb_field *f, uint32_t wire, uint32_t width, unsigned char **to,
                           bs_error *err) {
  bs_pb list = f->body;
  uint64_t value = 0;
  if (wire != BS_PB_VARINT) {
    memcpy(*to, list.at, (size_t)bs_pb_size(&list)); /* width is the size of the fixed number */
    *to += bs_pb_size(&list);
    return BS_OK;
  }
  while (list.at < list.end) {
    uint64_t offset = bs_pb_offset(&list);
    if (!bs_pb_varint(&list, &value))
      return bs_error_set(err, BS_INPUT, "BS-PB-VARINT",
                          "at byte %" PRIu64 ": a number is cut off, or longer than 10 bytes or 64 bits",
                          offset);
    int32_t rc = store(value, width, offset, to, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t bs_onnx_read_numbers(bs_pb message, uint32_t field, uint32_t wire, uint32_t width, void *out,
                             bs_error *err) {
  unsigned char *to = out;
  bs_pb_field f;
  int32_t rc;
  while ((rc = bs_pb_next(&message, &f, err)) == BS_OK && f.number != 0) {
    if (f.number != field) continue;
    rc = f.wire == BS_PB_BYTES ? read_packed(&f, wire, width, &to, err)
                               : store(f.value, width, f.offset, &to, err);
    if (rc != BS_OK) return rc;
  }
  return rc;
}
