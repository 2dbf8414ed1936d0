/* SPDX-License-Identifier: MIT
 * shrink.h - a found case, made smaller. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_SHRINK_H
#define TESTS_GRAPH_FUZZ_PASSES_SHRINK_H
#include "tests/graph/fuzz_passes/judge.h"

/* Judges in a process of its own, so that a graph may crash or hang. *io is then what was drawn. */
void judge_apart(judging *j, choices *io, verdict *out);
/* Simpler choices with the same outcome behind the same pass; `tries`: how many graphs it may judge. */
void shrink(judging *j, choices *io, verdict *io_verdict, uint32_t tries);
#endif
