/* SPDX-License-Identifier: MIT
 * form.h - what an op costs a device's inside, by its name: counts of the plain loops. `sim explain --inside`
 * and the layers of simulated backends read the same table. It includes nothing of parts (ask.h says why). */
#ifndef BS_SIM_FORM_H
#define BS_SIM_FORM_H
#include <stddef.h>
#include <stdint.h>

enum sim_form_rows {
  SIM_ROWS_CUT = 0, /* a row may be in two tiles */
  SIM_ROWS_WHOLE,   /* a row is in one tile */
  SIM_ROWS_FOLDED   /* and becomes one element */
};

/* Operands of an element and ops of the vector unit on it. Numbers of a row, a column or a group (gamma,
 * scales) are not counted. */
typedef struct sim_form {
  const char *name;
  uint32_t inputs, outputs, ops;
  uint32_t out_bytes; /* 0: as the inputs */
  uint32_t rows;      /* enum sim_form_rows */
} sim_form;

/* The first `length` characters are the name; NULL: no map has it. Any thread. */
const sim_form *sim_form_of(const char *name, size_t length);

/* Query s sees keys from s + *out_from on and before s + *out_end; causal: enum bs_causal; windows 0: none.
 * The limits of no limit are those of program.h. */
void sim_form_keys(uint32_t causal, int64_t left, int64_t right, int64_t queries, int64_t keys,
                   int64_t *out_from, int64_t *out_end);
#endif
