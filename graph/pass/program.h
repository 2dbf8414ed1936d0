/* SPDX-License-Identifier: MIT
 * program.h - what passes ask of programs of map: their values at given inputs, their parts, programs put
 * together. */
#ifndef BS_GRAPH_PASS_PROGRAM_H
#define BS_GRAPH_PASS_PROGRAM_H
#include "graph/ir/graph.h"

/* The values of the outputs at one point, in f64. in: n_in numbers. 0: the program has a step (index) that
 * depends on more than its inputs. */
int program_value(const gexpr *e, const double *in, double out[GX_MAX_OUT]);
/* The value of operand `to` where operand `from` is x. 0: `to` depends on other values than `from` and
 * constants. */
int program_between(const gexpr *e, uint8_t from, uint8_t to, double x, double *out_value);
/* Which inputs an operand depends on: bit i. */
uint32_t program_inputs(const gexpr *e, uint8_t operand);
int program_has(const gexpr *e, uint8_t op);
/* Constant i of a program. */
double program_const(const gexpr *e, uint32_t i);
/* Does the only output agree with `want`, a function of the inputs, at 0, at infinity, NaN, 1e-40 to 1e38 of
 * both signs, and around each constant? A pass may only ask it of what it has recognised by its form
 * (form.h): points cannot prove that two functions are equal. */
typedef double (*program_function)(const double *in, const void *arg);
int program_is(const gexpr *e, program_function want, const void *arg);
/* Does operand `to`, as a function of operand `from`, agree with `want` at points up to `limit`? */
int program_is_between(const gexpr *e, uint8_t from, uint8_t to, double (*want)(double x), double limit);

/* The steps of `producer` in front of those of `consumer`, in which input `input` is the producer's only
 * output. maps[i]: input of the result for each input of the producer; inputs of the consumer keep their
 * numbers but `input` (which the caller gives to another, or removes). `round`: the dtype of the value
 * between, 0: the compute dtype. 0: too large. */
int program_join(gexpr *consumer, uint8_t input, const gexpr *producer, const uint8_t *maps, uint32_t round);
/* Removes an input that no step reads; the inputs after it move up. */
void program_drop_input(gexpr *e, uint8_t input);
/* Folds constants, keeps one of equal steps, removes dead steps and constants, and sorts the operands of
 * commutative steps. Returns whether the program changed. */
int program_tidy(gexpr *e);
#endif
