/* SPDX-License-Identifier: MIT
 * graph_text.h - graphs of kernel ops as texts, also such as no lowering makes, for tests of passes. */
#ifndef TESTS_GRAPH_GRAPH_TEXT_H
#define TESTS_GRAPH_GRAPH_TEXT_H
#include "graph/ir/graph.h"

/* The graph of the test that runs. gt_begin makes it, gt_end frees it. */
extern graph *gt_graph;
void gt_begin(void);
void gt_end(void);

/* A root of dims "2,3"; its data, of a constant, is 0. A view of a value, the offset counted in its root. */
uint32_t gt_root(uint32_t kind, uint32_t dtype, const char *dims);
uint32_t gt_view(uint32_t of, const char *dims, const char *strides, int64_t offset);
/* The numbers of "2,3"; how many. */
uint32_t gt_numbers(const char *text, int64_t out[BS_MAX_DIMS]);

/* The graph of lines, each a value:
 *   x 2,4                     an input; x 2,4:f16 of another dtype than f32 (f64, i64)
 *   w 4 = const               a constant of zeros
 *   v 8 = view 1 0 x          strides and offset
 *   y 2,4 = {exp a; t0} x     a map (program_text.h); y+z 2,4 = {..} x gives two
 *   s 2,1 = sum x             a fold over the dims that are 1: sum, sumsq, max, min; mean, meansq: over the
 * last y 2,4 = layer x           a normalisation: layer, softmax. sum*0.5, layer*1: the factor, eps The last
 * value is the output. The test fails where the graph is not valid. */
void gt_make(const char *text);
uint32_t gt_named(const char *name);
#endif
