/* SPDX-License-Identifier: MIT
 * changes.h - what a pattern is given that a pass may not look over: a clamp, a select, another axis, ... */
#ifndef TESTS_GRAPH_FUZZ_PASSES_CHANGES_H
#define TESTS_GRAPH_FUZZ_PASSES_CHANGES_H
#include "tests/graph/fuzz_passes/spec.h"

/* Dtypes that a Cast goes to; ends with dtype 0. */
typedef struct cast_type {
  uint32_t dtype;
  int64_t onnx;
} cast_type;
extern const cast_type cast_types[];

/* A value that was made just now, perhaps changed. */
int change_here(spec *s, int v);
/* A constant of a pattern as a value, perhaps another one. */
int change_number(spec *s, double number);
/* keepdims and axis of a reduction, perhaps others. */
void change_reduction(spec *s, const value *of, int64_t *io_axis, int *io_keep);
/* The axis of Softmax. */
void change_axis(spec *s, const value *of, int64_t *io_axis);
/* Casts v to a drawn dtype. */
int cast_value(spec *s, int v);
/* 1: what comes next is to be done on another view of the elements. */
int change_view(spec *s);
/* v with other dims; v itself where it has none. */
int reshaped(spec *s, int v);
/* The last change that was counted turned out to be none. */
void change_undone(spec *s);
/* v, perhaps no less than a small number, as losses have it before a logarithm. */
int change_floor(spec *s, int v);
/* The place of eps, 0: inside the root. */
uint32_t change_eps(spec *s, uint32_t places);

/* 1: the changes from the one of that number on leave the value as it is. */
int only_beside(const spec *s, uint32_t from);
/* 1: they leave its elements as they are, in their order. */
int only_views(const spec *s, uint32_t from);
/* Names of changes by their numbers; NULL beyond the last. */
const char *change_name(uint32_t number);
#endif
