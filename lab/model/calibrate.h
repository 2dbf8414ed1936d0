/* SPDX-License-Identifier: MIT
 * calibrate.h - the ranges of what products read, over sets of inputs. */
#ifndef BS_LAB_MODEL_CALIBRATE_H
#define BS_LAB_MODEL_CALIBRATE_H
#include "lab/model/model.h"

/* The range of X in the products of one weight. */
typedef struct bs_x_range {
  char *weight; /* its name in the model */
  double low, high;
  uint64_t *bins, count;
} bs_x_range;
typedef struct bs_x_ranges {
  bs_x_range *rows;
  size_t n, room, sets;
  double
      keep; /* 1: low and high are the least and the largest number; 0.9999: beyond them lies 1 of 10,000 */
  int counts, failed;
} bs_x_ranges;

/* Runs the float model of `request` on each set of a folder (sets.h), and once more for `keep` below 1. The
 * caller frees in every case. */
int32_t bs_calibrate(bs_context *context, const bs_model_request *request, const char *folder, double keep,
                     bs_x_ranges *out, bs_error *err);
/* NULL: no product read that weight. */
const bs_x_range *bs_x_range_of(const bs_x_ranges *ranges, const char *weight);
void bs_x_ranges_free(bs_x_ranges *ranges);
#endif
