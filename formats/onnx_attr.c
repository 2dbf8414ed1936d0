/* SPDX-License-Identifier: MIT
 * onnx_attr.c - AttributeProto records. Only the field that the attribute's type names is read; a file that
 * gives no type has the one of the field that is there. Graphs go into the reader's queue. Called by onnx.c.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/onnx_parse.h"

/* The field of each type's value, by the number of the type. */
static const uint8_t value_field_of[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 22, 23, 14, 15};
enum { TYPES = sizeof value_field_of, LAST_FIELD = 23 };

typedef struct attr_state {
  bs_onnx_attr *attr;
  bs_span *strings;
  bs_onnx_tensor *tensors;
  bs_onnx_graph **graphs;
  uint64_t filled, type;
  uint32_t depth;
} attr_state;

static int32_t head_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  attr_state *s = record;
  (void)r;
  if (f->number == 1) return bs_onnx_name(f, &s->attr->name, err);
  if (f->number == 21) return bs_onnx_name(f, &s->attr->reference, err);
  if (f->number != 20) return BS_OK;
  s->type = f->value;
  return bs_pb_want(f, BS_PB_VARINT, err);
}

static int32_t value_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  attr_state *s = record;
  bs_onnx_attr *a = s->attr;
  int32_t rc;
  uint32_t bits;
  if (f->number != value_field_of[a->type]) return BS_OK;
  switch (a->type) {
    case BS_ONNX_ATTR_FLOAT:
      bits = (uint32_t)f->value;
      memcpy(&a->value.f, &bits, sizeof bits);
      return bs_pb_want(f, BS_PB_FIXED32, err);
    case BS_ONNX_ATTR_INT:
      a->value.i = (int64_t)f->value;
      return bs_pb_want(f, BS_PB_VARINT, err);
    case BS_ONNX_ATTR_STRING:
      return bs_onnx_span(f, &a->value.s, err);
    case BS_ONNX_ATTR_STRINGS:
      return bs_onnx_span(f, &s->strings[s->filled++], err);
    case BS_ONNX_ATTR_TENSOR:
    case BS_ONNX_ATTR_TENSORS:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? bs_onnx_read_tensor(r, f->body, f->offset, &s->tensors[s->filled++], err) : rc;
    case BS_ONNX_ATTR_GRAPH:
    case BS_ONNX_ATTR_GRAPHS:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? bs_onnx_queue_graph(r, f->body, s->depth + 1, &s->graphs[s->filled++], err) : rc;
    default:
      return BS_OK;
  }
}

static int32_t read_numbers(bs_onnx_reader *r, bs_pb body, bs_onnx_attr *a, bs_error *err) {
  int floats = a->type == BS_ONNX_ATTR_FLOATS;
  uint32_t field = value_field_of[a->type], wire = floats ? BS_PB_FIXED32 : BS_PB_VARINT;
  uint32_t width = floats ? 4 : 8;
  void *to = NULL;
  int32_t rc = bs_onnx_count_numbers(body, field, wire, &a->count, err);
  if (rc == BS_OK) rc = bs_onnx_bytes(r, a->count, width, &to, err);
  if (rc == BS_OK) rc = bs_onnx_read_numbers(body, field, wire, width, to, err);
  if (floats)
    a->value.floats = to;
  else
    a->value.ints = to;
  return rc;
}

/* Room for what value_field puts into lists. A single tensor or graph is a list of one. */
static int32_t take_lists(bs_onnx_reader *r, const bs_pb *body, attr_state *s, uint64_t count,
                          bs_error *err) {
  bs_onnx_attr *a = s->attr;
  int single = a->type == BS_ONNX_ATTR_TENSOR || a->type == BS_ONNX_ATTR_GRAPH;
  if (single && count != 1)
    return bs_error_set(err, BS_INPUT, count == 0 ? "BS-ONNX-ATTR" : "BS-ONNX-TWICE",
                        "at byte %" PRIu64 ": attribute '%.*s' has %s value", bs_pb_offset(body),
                        BS_SPAN_PRINT(a->name), count == 0 ? "no" : "more than one");
  a->count = count;
  switch (a->type) {
    case BS_ONNX_ATTR_STRINGS:
      return bs_onnx_bytes(r, count, sizeof *s->strings, &s->strings, err);
    case BS_ONNX_ATTR_TENSOR:
    case BS_ONNX_ATTR_TENSORS:
      return bs_onnx_list(r, body, count, 4, sizeof *s->tensors, &s->tensors, err);
    case BS_ONNX_ATTR_GRAPH:
    case BS_ONNX_ATTR_GRAPHS:
      return bs_onnx_list(r, body, count, 2, sizeof *s->graphs, &s->graphs, err);
    default:
      return BS_OK;
  }
}

static void keep_lists(attr_state *s) {
  bs_onnx_attr *a = s->attr;
  if (a->type == BS_ONNX_ATTR_STRINGS) a->value.strings = s->strings;
  if (a->type == BS_ONNX_ATTR_TENSOR || a->type == BS_ONNX_ATTR_TENSORS) a->value.tensor = s->tensors;
  if (a->type == BS_ONNX_ATTR_GRAPH) a->value.graph = s->graphs[0];
  if (a->type == BS_ONNX_ATTR_GRAPHS) a->value.graphs = s->graphs;
}

static int32_t find_type(const bs_pb *body, attr_state *s, const uint64_t *counts, bs_error *err) {
  bs_onnx_attr *a = s->attr;
  if (a->name.size == 0)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-ATTR", "at byte %" PRIu64 ": an attribute has no name",
                        bs_pb_offset(body));
  for (uint32_t i = 1; s->type == 0 && i < TYPES; i++)
    if (counts[value_field_of[i]] != 0) s->type = i;
  if (s->type >= TYPES || (s->type == 0 && a->reference.size == 0))
    return bs_error_set(err, BS_INPUT, "BS-ONNX-ATTR",
                        "at byte %" PRIu64 ": attribute '%.*s' has %s type %" PRIu64, bs_pb_offset(body),
                        BS_SPAN_PRINT(a->name), s->type == 0 ? "no value and" : "the unknown", s->type);
  a->type = (uint32_t)s->type;
  return BS_OK;
}

int32_t bs_onnx_read_attr(bs_onnx_reader *r, bs_pb body, uint32_t depth, bs_onnx_attr *out, bs_error *err) {
  attr_state s = {.attr = out, .depth = depth};
  uint64_t counts[LAST_FIELD + 1];
  int32_t rc = bs_pb_count(body, counts, LAST_FIELD + 1, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, head_field, &s, err);
  if (rc == BS_OK) rc = find_type(&body, &s, counts, err);
  if (rc != BS_OK || out->reference.size != 0) return rc;
  if (out->type == BS_ONNX_ATTR_FLOATS || out->type == BS_ONNX_ATTR_INTS)
    return read_numbers(r, body, out, err);
  rc = take_lists(r, &body, &s, counts[value_field_of[out->type]], err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, value_field, &s, err);
  if (rc == BS_OK) keep_lists(&s);
  return rc;
}
