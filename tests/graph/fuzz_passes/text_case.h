/* SPDX-License-Identifier: MIT
 * text_case.h - a spec as a case of tests/graph/cases: its model, inputs and what it gives as written. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_TEXT_CASE_H
#define TESTS_GRAPH_FUZZ_PASSES_TEXT_CASE_H
#include <stdio.h>

#include "tests/graph/fuzz_passes/judge.h"

/* The graph of the choices as text. 0: it cannot be run as written. Tolerances: such that what cpu and ref
 * give without passes lies well within, and what passes give does not; they are not run where they crash. */
int write_case(judging *j, choices *c, const char *name, int crashes, FILE *out);
#endif
