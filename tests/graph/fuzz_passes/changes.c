/* SPDX-License-Identifier: MIT
 * changes.c - the changes that patterns are given. */
#include "tests/graph/fuzz_passes/changes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/graph/fuzz_passes/data.h"

const cast_type cast_types[] = {{BS_I32, 6},  {BS_I64, 7},   {BS_BOOL, 9}, {BS_U8, 2}, {BS_F32, 1},
                                {BS_F16, 10}, {BS_BF16, 16}, {BS_F64, 11}, {0, 0}};

static const double limits[] = {6, 1, 0.5, 20, 31, 50, 100, 1000, 64504, 1e-3, 1e-7, 1e4};
enum { LIMITS = (int)(sizeof limits / sizeof limits[0]) };

static double limit(spec *s) {
  return limits[draw(s, LIMITS)];
}

static int three(spec *s, const char *name, int a, int b, int c) {
  const int in[3] = {a, b, c};
  return raw_op(s, name, "", in, 3);
}

static int two(spec *s, const char *name, int a, int b) {
  const int in[2] = {a, b};
  return raw_op(s, name, "", in, 2);
}

static int clamped(spec *s, int v) {
  const double hi = limit(s);
  const uint32_t form = draw(s, 5);
  const double lo = form == 0 ? -hi : form == 1 ? 0 : form == 2 ? limit(s) - hi : -hi;
  const int low = form == 3 ? SPEC_NONE : add_number(s, lo), high = form == 4 ? SPEC_NONE : add_number(s, hi);
  return high == SPEC_NONE ? two(s, "Clip", v, low) : three(s, "Clip", v, low, high);
}

/* Min or Max with a number or with a row. */
static int bounded(spec *s, int v) {
  const char *name = draw(s, 2) == 0 ? "Min" : "Max";
  const value *of = &s->values[v];
  if (of->rank > 0 && seldom(s, 4))
    return two(s, name, v, add_source(s, VALUE_CONST, ROLE_ROW, of->dtype, 1, &of->dims[of->rank - 1]));
  const double x = limit(s);
  return two(s, name, v, add_number(s, draw(s, 2) == 0 ? x : -x));
}

static int selected(spec *s, int v) {
  const double x = limit(s);
  const int c = add_number(s, draw(s, 2) == 0 ? x : -x);
  if (draw(s, 2) == 0) return three(s, "Where", two(s, draw(s, 2) == 0 ? "Greater" : "Less", v, c), c, v);
  const value of = s->values[v];
  return three(s, "Where", add_source(s, VALUE_INPUT, ROLE_MASK, BS_BOOL, of.rank, of.dims), v, c);
}

static int repaired(spec *s, int v, const char *test) {
  const int in[1] = {v};
  const int c = add_number(s, draw(s, 2) == 0 ? 0 : limit(s));
  return three(s, "Where", raw_op(s, test, "", in, 1), c, v);
}
static int without_nan(spec *s, int v) {
  return repaired(s, v, "IsNaN");
}
static int without_inf(spec *s, int v) {
  return repaired(s, v, "IsInf");
}

static int cast_to(spec *s, int v, int64_t onnx) {
  char attrs[48];
  const int in[1] = {v};
  snprintf(attrs, sizeof attrs, "to=%d", (int)onnx);
  return raw_op(s, "Cast", attrs, in, 1);
}

int cast_value(spec *s, int v) {
  return cast_to(s, v, cast_types[draw(s, 8)].onnx);
}

static int64_t onnx_type(uint32_t dtype) {
  const cast_type *t = cast_types;
  while (t->dtype != 0 && t->dtype != dtype) t++;
  return t->onnx;
}

/* To another dtype and back. */
static int cast_between(spec *s, int v) {
  uint32_t i = draw(s, 7);
  if (cast_types[i].dtype == s->dtype) i = 7;
  return cast_to(s, cast_to(s, v, cast_types[i].onnx), onnx_type(s->dtype));
}

/* Another reader, of another dtype, whose result is an output. */
static int cast_beside(spec *s, int v) {
  add_output(s, cast_value(s, v));
  return v;
}

static int read_beside(spec *s, int v) {
  const int in[1] = {v};
  add_output(s, raw_op(s, "Neg", "", in, 1));
  return v;
}

static int also_output(spec *s, int v) {
  add_output(s, v);
  return v;
}

static int with_dims(spec *s, int v, uint32_t rank, const int64_t *dims) {
  return two(s, "Reshape", v, add_ints(s, rank, dims));
}

int reshaped(spec *s, int v) {
  const value of = s->values[v];
  int64_t dims[SPEC_RANK] = {0};
  uint32_t rank = of.rank;
  if (rank < 2) return v;
  for (uint32_t i = 0; i < rank; i++) dims[i] = of.dims[i];
  switch (draw(s, 6)) {
    case 0: /* the last two dims in turn */
      dims[rank - 1] = of.dims[rank - 2];
      dims[rank - 2] = of.dims[rank - 1];
      break;
    case 1: /* the last two as one */
      rank--;
      dims[rank - 1] *= of.dims[rank];
      break;
    case 2: /* the first two as one */
      rank--;
      dims[0] *= dims[1];
      for (uint32_t i = 1; i < rank; i++) dims[i] = of.dims[i + 1];
      break;
    case 3: /* the last dim as two */
      if (dims[rank - 1] % 2 != 0 || rank == SPEC_RANK) return v;
      dims[rank - 1] /= 2;
      dims[rank++] = 2;
      break;
    case 4: /* the last two as two others */
      if (dims[rank - 2] % 2 != 0) return v;
      dims[rank - 2] /= 2;
      dims[rank - 1] *= 2;
      break;
    default: /* the first as two */
      if (dims[0] % 2 != 0 || rank == SPEC_RANK) return v;
      for (uint32_t i = rank++; i > 1; i--) dims[i] = of.dims[i - 1];
      dims[0] = 2;
      dims[1] = of.dims[0] / 2;
  }
  const int same = rank == of.rank && memcmp(dims, of.dims, rank * sizeof *dims) == 0;
  return same ? v : with_dims(s, v, rank, dims);
}

/* Seen with other dims and back again: nothing changes. */
static int seen_twice(spec *s, int v) {
  const value of = s->values[v];
  const int64_t flat[1] = {spec_count(&of)};
  return with_dims(s, with_dims(s, v, 1, flat), of.rank, of.dims);
}

static int turned(spec *s, int v) {
  const uint32_t rank = s->values[v].rank;
  char attrs[48] = "perm=";
  if (rank < 2) return v;
  const uint32_t at = draw(s, rank - 1u);
  for (uint32_t i = 0; i < rank; i++) {
    const uint32_t from = i == rank - 2u - at ? i + 1u : i == rank - 1u - at ? i - 1u : i;
    attrs[5 + 2 * i] = (char)('0' + from);
    attrs[6 + 2 * i] = i + 1u < rank ? ',' : '\0';
  }
  const int in[1] = {v};
  return raw_op(s, "Transpose", attrs, in, 1);
}

static int scaled(spec *s, int v) {
  const double x = limit(s);
  return two(s, draw(s, 2) == 0 ? "Mul" : "Add", v, add_number(s, draw(s, 2) == 0 ? x : -x));
}

static int through_step(spec *s, int v) {
  static const char *const steps[] = {"Neg", "Abs", "Floor", "Relu", "Tanh", "Sign"};
  const int in[1] = {v};
  return raw_op(s, steps[draw(s, 6)], "", in, 1);
}

enum { CHANGE_CLAMP = 0, CHANGE_NUMBER = 14, CHANGE_KEEPDIMS, CHANGE_AXIS, CHANGE_EPS, CHANGE_VIEW };
static const struct change {
  const char *name;
  int (*make)(spec *s, int v);
  int beside; /* 1: the value stays as it is; 2: its elements do */
} changes[] = {{"clamp", clamped, 0},
               {"min or max", bounded, 0},
               {"select", selected, 0},
               {"NaN repair", without_nan, 0},
               {"Inf repair", without_inf, 0},
               {"cast between", cast_between, 0},
               {"cast beside", cast_beside, 1},
               {"reader", read_beside, 1},
               {"also output", also_output, 1},
               {"reshape", reshaped, 2},
               {"views", seen_twice, 1},
               {"transpose", turned, 2},
               {"scale or shift", scaled, 0},
               {"step", through_step, 0},
               {"constant", NULL, 0},
               {"keepdims", NULL, 0},
               {"axis", NULL, 0},
               {"eps", NULL, 0},
               {"other view", NULL, 0}};
enum { CHANGES = (int)(sizeof changes / sizeof changes[0]) };

const char *change_name(uint32_t number) {
  return number < CHANGES ? changes[number].name : NULL;
}

static int all_are(const spec *s, uint32_t from, int least, int most) {
  for (uint32_t i = from; i < s->n_changes; i++)
    if (changes[s->changes[i]].beside < least || changes[s->changes[i]].beside > most) return 0;
  return 1;
}

int only_beside(const spec *s, uint32_t from) {
  return all_are(s, from, 1, 1);
}

int only_views(const spec *s, uint32_t from) {
  return all_are(s, from, 1, 2);
}

/* Is there a change here? Once in `often` places, while the graph may have more. */
static int wanted(spec *s, uint32_t often) {
  return !s->bad && s->hidden == 0 && s->n_changes < s->max_changes && seldom(s, often);
}

static void count(spec *s, uint32_t number) {
  s->changes[s->n_changes++] = number;
}

int change_here(spec *s, int v) {
  if (s->bad || s->values[v].dtype != s->dtype || !wanted(s, 6)) return v;
  const uint32_t drawn = draw(s, CHANGE_NUMBER + 2), number = drawn < CHANGE_NUMBER ? drawn : CHANGE_CLAMP;
  count(s, number); /* clamps more often: they have many limits */
  const int made = changes[number].make(s, v);
  if (made == v && changes[number].beside != 1) change_undone(s); /* the shape does not allow it */
  return made;
}

void change_undone(spec *s) {
  s->n_changes--;
}

int change_number(spec *s, double number) {
  static const double factors[] = {1 + 1e-5, 1 + 1e-3, 1.1, 2, -1, 0};
  if (!wanted(s, 16)) return add_number(s, number);
  count(s, CHANGE_NUMBER);
  const int written = add_number(s, number), changed = add_number(s, number * factors[draw(s, 6)]);
  if (!s->bad && s->values[written].data[0] == s->values[changed].data[0])
    change_undone(s); /* in its dtype */
  return changed;
}

void change_axis(spec *s, const value *of, int64_t *io_axis) {
  if (of->rank < 2 || !wanted(s, 8)) return;
  count(s, CHANGE_AXIS);
  *io_axis = draw(s, of->rank - 1u);
  if (of->dims[*io_axis] == 1 && of->dims[of->rank - 1] == 1) change_undone(s); /* the same rows */
}

void change_reduction(spec *s, const value *of, int64_t *io_axis, int *io_keep) {
  if (wanted(s, 8)) {
    if (of->rank > 1) count(s, CHANGE_KEEPDIMS); /* of one dim the result broadcasts all the same */
    *io_keep = 0;
  }
  change_axis(s, of, io_axis);
}

uint32_t change_eps(spec *s, uint32_t places) {
  if (!wanted(s, 2)) return 0;
  count(s, CHANGE_EPS);
  return 1 + draw(s, places - 1u);
}

int change_view(spec *s) {
  if (!wanted(s, 6)) return 0;
  count(s, CHANGE_VIEW);
  return 1;
}

int change_floor(spec *s, int v) {
  static const double floors[] = {1e-7, 1e-3, 1e-10};
  if (s->bad || !wanted(s, 2)) return v;
  count(s, CHANGE_CLAMP);
  const int least = add_number(s, floors[draw(s, 3)]);
  return draw(s, 2) == 0 ? three(s, "Clip", v, least, add_number(s, 1)) : two(s, "Max", v, least);
}
