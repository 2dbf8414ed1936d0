/* SPDX-License-Identifier: MIT
 * taps.h - reads pictures at computed places between their elements: for each axis the one, two or four
 * elements next to a place, with their weights, and the weighted sum over all axes. */
#ifndef BS_GRAPH_LOWER_TAPS_H
#define BS_GRAPH_LOWER_TAPS_H
#include "graph/lower/build.h"

enum { TAPS_MAX = 4, TAPS_AXES = 3 };
enum taps_beyond {
  TAPS_ZERO,    /* an element beyond the picture counts as 0 */
  TAPS_BORDER,  /* as the last one */
  TAPS_REFLECT, /* as its mirror image */
  TAPS_ROI      /* as the last one up to a distance of one element, then as 0 */
};

/* How places become elements. count: 1 nearest, 2 linear, 4 cubic. */
typedef struct taps_rule {
  uint32_t count;
  enum taps_beyond beyond;
  int corners; /* mirrors lie in the middle of the last elements, and not at their outer edge */
  double cubic_a;
} taps_rule;

/* The elements of one axis (i64, within the axis) and their weights; each has the shape of the places. */
typedef struct taps {
  uint32_t count, index[TAPS_MAX], weight[TAPS_MAX];
} taps;

/* at: places in elements, of floats. */
taps taps_make(build *b, uint32_t at, int64_t size, const taps_rule *rule);
/* The sum over all taps of `axes`, a number per channel: data [batch.., elements, C], places [batch.., ..]
 * (those of several axes broadcast): [places.., C]. strides: elements of data from one place of an axis to
 * the next. more: added to the element's number; GNONE: nothing. largest: the largest weighted element
 * instead of the sum. */
typedef struct taps_sum {
  uint32_t data, batch_dims, n_axes, more;
  const taps *axes[TAPS_AXES];
  int64_t strides[TAPS_AXES];
  int largest;
} taps_sum;
uint32_t taps_read(build *b, const taps_sum *sum);
/* x [N, C, places..] as [N, places, C] without gaps. */
uint32_t taps_channels_last(build *b, uint32_t x);
#endif
