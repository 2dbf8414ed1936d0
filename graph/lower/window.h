/* SPDX-License-Identifier: MIT
 * window.h - the windows of convolutions and pooling: their sizes from a node's attributes, the padded input,
 * and the windows as a view of it. */
#ifndef BS_GRAPH_LOWER_WINDOW_H
#define BS_GRAPH_LOWER_WINDOW_H
#include "graph/lower/build.h"

enum { WINDOW_PLACES = 3 };

/* Sizes of each place: of the input's pads, of the kernel, of the output. `more`: elements after the pads
 * that the last window of ceil_mode reaches. */
typedef struct window {
  uint32_t places;
  int64_t begin[WINDOW_PLACES], end[WINDOW_PLACES], more[WINDOW_PLACES], stride[WINDOW_PLACES],
      dilation[WINDOW_PLACES], kernel[WINDOW_PLACES], out[WINDOW_PLACES];
} window;

/* Reads strides, dilations, pads, auto_pad and ceil_mode; places and kernel are known. x: [N, C, places..] */
void window_read(build *b, const build_shape *x, window *w);
/* x with its pads, filled with a number of rank 0; GNONE: 0. */
uint32_t window_pad(build *b, uint32_t x, const window *w, uint32_t number);
/* The windows as a view [N, C, kernel.., out..] of the padded input; of one or two places, because a view has
 * at most 6 dims. */
uint32_t window_view(build *b, uint32_t x, const window *w);
/* The windows of the first of three places alone: [N, C, kernel, out, place 2, place 3]. */
uint32_t window_first(build *b, uint32_t x, const window *w);
#endif
