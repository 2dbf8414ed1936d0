/* SPDX-License-Identifier: MIT
 * counted_sequence.c - sequences of values with a mark, made by SplitToSequence and read by SequenceAt alone:
 * exporters write an unbind so. The sequence is the value that it was cut from, with a mark (counted.h). */
#include "graph/lower/counted.h"
#include "graph/lower/rules.h"

int32_t lower_split_to_sequence(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), split = build_optional(&b, 1);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), build_rank(&b, x));
  const build_shape shape = build_shape_of(&b, split);
  if (c->frame != NULL || !lower_wants(node, 0)) build_refuse(&b, 0, "the sequence is not read");
  if (split != GNONE && (shape.rank > 0 || build_read_int(&b, split, "its split") != 1))
    build_refuse(&b, 0, "parts of other lengths than 1");
  if (b.rc != BS_OK) return b.rc;
  const lower_mark rows = c->marks[node->in[0]];
  if (rows.kind == MARK_SEQUENCE || (rows.kind == MARK_ROWS && rows.axis == axis))
    build_refuse(&b, 0, "the number of its parts depends on values");
  build_out(&b, 0, x);
  if (b.rc == BS_OK)
    c->marks[node->out[0]] =
        (lower_mark){MARK_SEQUENCE, rows.kind == MARK_ROWS ? rows.count : GNONE, rows.axis,
                     split != GNONE || lower_int(node, "keepdims", 1) != 0, axis};
  return b.rc;
}

int32_t lower_sequence_at(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  int64_t at = build_read_int(&b, build_in(&b, 1), "its position");
  if (b.rc != BS_OK) return b.rc;
  const lower_mark mark = c->frame == NULL ? c->marks[node->in[0]] : (lower_mark){0};
  if (mark.kind != MARK_SEQUENCE) build_refuse(&b, 0, "its sequence is not made by SplitToSequence");
  const int64_t n = build_dim(&b, x, mark.shadow);
  if (at < 0) at += n;
  build_check(&b, at >= 0 && at < n, "its position is beyond the sequence");
  uint32_t part = build_slice(&b, x, mark.shadow, at, 1, 1), axis = mark.axis;
  if (mark.bound == 0) {
    part = build_squeeze(&b, part, mark.shadow);
    axis -= mark.axis > mark.shadow;
  }
  build_out(&b, 0, part);
  if (mark.count != GNONE) lower_mark_rows(&b, 0, axis, mark.count);
  return b.rc;
}
