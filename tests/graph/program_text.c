/* SPDX-License-Identifier: MIT
 * program_text.c - programs of map as texts. */
#include "tests/graph/program_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/op/expr.h"
#include "graph/ir/query.h"

static uint8_t constant(gexpr *e, const char *word) {
  char *end;
  double value = strtod(word, &end);
  const int64_t whole = (int64_t)value;
  uint64_t bits;
  ck_assert_msg(*word != '\0' && *end == '\0', "'%s' is no operand", word);
  memcpy(&bits, e->compute == BS_I64 ? (const void *)&whole : (const void *)&value, sizeof bits);
  uint8_t i = 0;
  while (i < e->n_const && e->consts[i] != bits) i++;
  ck_assert_uint_lt(i, GX_MAX_CONST);
  e->consts[i] = bits;
  if (i == e->n_const) e->n_const++;
  return (uint8_t)(GX_CONST + i);
}

uint8_t program_operand(gexpr *e, const char *word) {
  if (word[0] == 't') return (uint8_t)(GX_STEP + strtol(word + 1, NULL, 10));
  if (word[1] != '\0' || word[0] < 'a' || word[0] > 'l') return constant(e, word);
  if (e->n_in <= word[0] - 'a') e->n_in = (uint8_t)(word[0] - 'a' + 1);
  return (uint8_t)(word[0] - 'a');
}

const char *program_word(const gexpr *e, uint8_t operand) {
  static char words[4][32];
  static unsigned next;
  char *word = words[next++ % 4];
  double value;
  if (operand >= GX_STEP) {
    snprintf(word, 32, "t%d", operand - GX_STEP);
  } else if (operand < GX_CONST) {
    snprintf(word, 32, "%c", 'a' + operand);
  } else if (e->compute == BS_I64) {
    snprintf(word, 32, "%lld", (long long)e->consts[operand - GX_CONST]);
  } else {
    memcpy(&value, &e->consts[operand - GX_CONST], sizeof value);
    snprintf(word, 32, "%.9g", value);
  }
  return word;
}

static uint32_t dtype_of(const char *word) {
  static const uint32_t dtypes[] = {BS_BOOL, BS_F16, BS_BF16, BS_F32, BS_F64, BS_I32, BS_I64};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
    if (strcmp(bs_dtype_name(dtypes[i]), word) == 0) return dtypes[i];
  ck_abort_msg("no dtype '%s'", word);
  return 0;
}

/* The words of a step or of the outputs; how many there are. */
static uint32_t words_of(char *text, const char *words[4]) {
  uint32_t n = 0;
  char *rest = NULL;
  for (uint32_t i = 0; i < 4; i++) words[i] = "";
  for (char *w = strtok_r(text, " ,", &rest); w != NULL; w = strtok_r(NULL, " ,", &rest)) {
    ck_assert_uint_lt(n, 4);
    words[n++] = w;
  }
  return n;
}

static void add_step(gexpr *e, char *text) {
  const char *words[4];
  const uint32_t n = words_of(text, words);
  uint8_t op = 1, *operands[3] = {&e->steps[e->n_steps].a, &e->steps[e->n_steps].b, &e->steps[e->n_steps].c};
  while (op < BS_EXPR_OP_COUNT_ && strcmp(bs_expr_op_name(op), words[0]) != 0) op++;
  ck_assert_msg(op < BS_EXPR_OP_COUNT_, "no step '%s'", words[0]);
  ck_assert_uint_eq(n, 1 + (op == BS_EXPR_INDEX || op == BS_EXPR_TO) + gexpr_arity(op));
  for (uint32_t k = 0; k < gexpr_arity(op) && k < 3; k++) *operands[k] = program_operand(e, words[k + 1]);
  if (op == BS_EXPR_INDEX) *operands[0] = (uint8_t)strtol(words[1], NULL, 10);
  if (op == BS_EXPR_TO) {
    *operands[1] = (uint8_t)(dtype_of(words[2]) >> 8);
    *operands[2] = (uint8_t)dtype_of(words[2]);
  }
  e->steps[e->n_steps++].op = op;
}

gexpr program_of(const char *text) {
  gexpr e;
  memset(&e, 0, sizeof e);
  e.compute = strncmp(text, "i64 ", 4) == 0 ? BS_I64 : strncmp(text, "f64 ", 4) == 0 ? BS_F64 : BS_F32;
  e.n_in = 1;
  char *copy = strdup(e.compute != BS_F32 ? text + 4 : text), *rest = NULL;
  const char *words[4];
  char *part = strtok_r(copy, ";", &rest);
  for (char *next = strtok_r(NULL, ";", &rest); next != NULL; next = strtok_r(NULL, ";", &rest)) {
    add_step(&e, part);
    part = next;
  }
  e.n_out = (uint8_t)words_of(part, words);
  for (uint32_t i = 0; i < e.n_out && i < 4; i++) e.outs[i] = program_operand(&e, words[i]);
  free(copy);
  return e;
}

void program_print(const gexpr *e, char out[1024]) {
  FILE *f = fmemopen(out, 1024, "w");
  ck_assert_ptr_nonnull(f);
  if (e->compute != BS_F32) fprintf(f, "%s ", bs_dtype_name(e->compute));
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint8_t op = e->steps[i].op, operands[3] = {e->steps[i].a, e->steps[i].b, e->steps[i].c};
    fputs(bs_expr_op_name(op), f);
    for (uint32_t k = 0; k < gexpr_arity(op) && k < 3; k++) fprintf(f, " %s", program_word(e, operands[k]));
    if (op == BS_EXPR_INDEX) fprintf(f, " %u", operands[0]);
    if (op == BS_EXPR_TO) fprintf(f, " %s", bs_dtype_name((uint32_t)operands[1] << 8 | operands[2]));
    fputs("; ", f);
  }
  for (uint32_t i = 0; i < e->n_out; i++) fprintf(f, "%s%s", i > 0 ? ", " : "", program_word(e, e->outs[i]));
  fclose(f);
}
