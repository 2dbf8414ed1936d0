/* SPDX-License-Identifier: MIT
 * spec.h - a graph of the fuzzer as data: values, nodes, outputs, and the choices that made it. A graph is a
 * function of its choices alone, so that a case is reproduced and made smaller by its list of choices. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_SPEC_H
#define TESTS_GRAPH_FUZZ_PASSES_SPEC_H
#include <stdint.h>

#include "blockshock/graph.h"

enum {
  SPEC_RANK = 6,
  SPEC_VALUES = 512,
  SPEC_NODES = 320,
  SPEC_OUTPUTS = 8,
  SPEC_CHOICES = 900,
  SPEC_ELEMENTS = 4096, /* the most of one value */
  SPEC_NONE = -1
};

/* Choices: from `given` as long as it lasts, then of the generator `state`; with `quiet` then 0. Choice 0 is
 * always the simplest. */
typedef struct choices {
  uint32_t n_given, n;
  uint32_t quiet, reserved;
  uint64_t state;
  uint32_t given[SPEC_CHOICES], made[SPEC_CHOICES];
} choices;

enum value_kind { VALUE_INPUT = 1, VALUE_CONST, VALUE_NODE };

typedef struct value {
  uint32_t dtype, kind, rank;
  int64_t dims[SPEC_RANK];
  uint32_t role;  /* enum data_role of data.h: what fills it */
  uint32_t exact; /* no rounding happens where it is made */
  double *data;   /* INPUT, CONST: its elements, rounded to dtype */
} value;

typedef struct node {
  char op[24], attrs[48]; /* attrs: "axis=1 keepdims=0 perm=0,2,1 epsilon=1e-5" */
  int in[6], out;
  uint32_t n_in, reserved;
} node;

typedef struct spec {
  choices *choices;
  uint32_t dtype; /* of its floats */
  uint32_t n_values, n_nodes, n_outputs, n_changes, max_changes;
  uint32_t stable;     /* 1: the spellings that overflow less (docs/models.md): the second truth */
  uint32_t bad;        /* 1: the choices gave no graph */
  uint32_t hidden;     /* > 0: nodes that are made now get no change */
  uint32_t changes[8]; /* numbers of those in it */
  uint32_t n_patterns, patterns[4];
  value values[SPEC_VALUES];
  node nodes[SPEC_NODES];
  int outputs[SPEC_OUTPUTS];
  uint32_t n_numbers; /* constants of the graph, for the neighbourhood of each */
  double numbers[32];
} spec;

/* A number below n. */
uint32_t draw(spec *s, uint32_t n);
/* True once in n. */
int seldom(spec *s, uint32_t n);

void spec_clear(spec *s);
int64_t spec_count(const value *v);
int is_float_dtype(uint32_t dtype);

int add_source(spec *s, uint32_t kind, uint32_t role, uint32_t dtype, uint32_t rank, const int64_t *dims);
/* A constant with these elements. */
int add_data(spec *s, uint32_t dtype, uint32_t rank, const int64_t *dims, const double *data);
int add_ints(spec *s, uint32_t n, const int64_t *values);
/* A single number of the graph's dtype, exactly this one. */
int add_number(spec *s, double number);

/* An operator of ONNX: SPEC_NONE for inputs that are absent. Wrong shapes make the spec bad. */
int raw_op(spec *s, const char *op, const char *attrs, const int *in, uint32_t n_in);
/* The same with up to three inputs; the result may be changed (changes.c). */
int op(spec *s, const char *name, const char *attrs, int a, int b, int c);
int op1(spec *s, const char *name, int a);
int op2(spec *s, const char *name, int a, int b);
void add_output(spec *s, int v);
#endif
