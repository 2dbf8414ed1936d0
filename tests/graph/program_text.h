/* SPDX-License-Identifier: MIT
 * program_text.h - programs of map as texts, for tests of what passes ask of programs. */
#ifndef TESTS_GRAPH_PROGRAM_TEXT_H
#define TESTS_GRAPH_PROGRAM_TEXT_H
#include "graph/ir/graph.h"

/* "exp a; add t0 1; t1": steps, then the outputs. a to l: inputs; t0: what step 0 gives; other words:
 * constants. "to a bool": a conversion; "index 0": the element's index. Behind "i64 " or "f64 " the program
 * computes in that dtype. As many inputs as the last one named, at least one. The test fails where the text
 * is wrong. */
gexpr program_of(const char *text);
/* The same text. */
void program_print(const gexpr *e, char out[1024]);
/* The operand that a word names, of a program. Constants are added. */
uint8_t program_operand(gexpr *e, const char *word);
/* The word for an operand: "a", "t0", "0.5". */
const char *program_word(const gexpr *e, uint8_t operand);
#endif
