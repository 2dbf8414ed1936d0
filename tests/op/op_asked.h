/* SPDX-License-Identifier: MIT
 * op_asked.h - queries of the ops of graphs from a line of text, for test_op_graph.c and test_op_dynamic.c.
 */
#ifndef BS_TESTS_OP_ASKED_H
#define BS_TESTS_OP_ASKED_H
#include <stdio.h>
#include <string.h>

#include "op_actor.h"

/* A query from a text: "f32[2,3] - f32[3] ; 1 ; 0.5" has three args, the second is absent, attrs 1 and
 * numbers 0.5. */
typedef struct asked {
  bs_tensor_desc descs[BS_MAX_OP_ARGS];
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  bs_op_query q;
} asked;

static inline void read_args(asked *a, const char *op, const char *text) {
  uint32_t n = 0;
  memset(a, 0, sizeof *a);
  while (*text != '\0' && *text != ';') {
    char name[16] = "";
    int used = 0;
    ck_assert_uint_lt(n, BS_MAX_OP_ARGS);
    if (*text == '-') {
      text++;
    } else {
      bs_tensor_desc *d = &a->descs[n];
      d->struct_size = (uint32_t)sizeof *d;
      ck_assert_int_eq(sscanf(text, "%15[a-z0-9][%n", name, &used), 1);
      d->dtype = bs_dtype_parse(name);
      for (text += used; *text != ']'; text += *text == ',') {
        char *end = NULL;
        d->dims[d->rank++] = strtoll(text, &end, 10);
        text = end;
      }
      text++;
      a->args[n] = d;
    }
    n++;
    if (*text == ' ') text++;
  }
  a->q = fx_query(op, a->args, n);
  char *end = NULL;
  if (*text == ';') text++;
  for (int i = 0; i < 4 && *text != '\0' && *text != ';'; i++, text = end + strspn(end, " "))
    a->q.attrs[i] = strtoll(text, &end, 10);
  if (*text == ';') text++;
  for (int i = 0; i < 2 && *text != '\0'; i++, text = end) a->q.numbers[i] = strtod(text, &end);
}

typedef struct program {
  bs_expr_step steps[BS_EXPR_MAX_STEPS];
  uint64_t consts[4];
  uint8_t outs[4];
  bs_expr e;
} program;

/* x + y, named or not. */
static inline bs_expr *sum_of_two(program *p) {
  *p = (program){.steps = {{BS_EXPR_ADD, 0, 1, 0}}, .outs = {2}};
  p->e = (bs_expr){.struct_size = sizeof p->e,
                   .compute = BS_F32,
                   .n_in = 2,
                   .n_steps = 1,
                   .n_out = 1,
                   .form = BS_MAP_ADD,
                   .max_op = BS_EXPR_ADD,
                   .consts = p->consts,
                   .steps = p->steps,
                   .outs = p->outs};
  return &p->e;
}
#endif
