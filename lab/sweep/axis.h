/* SPDX-License-Identifier: MIT
 * axis.h - the axes of a sweep: "N=512:4096*2" is one axis, several axes are their product, and a batch file
 * has one product a line. Text only: nothing is composed or opened here. */
#ifndef BS_LAB_SWEEP_AXIS_H
#define BS_LAB_SWEEP_AXIS_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/store/plan_text.h"

enum { BS_SWEEP_POINTS_MAX = BS_PLAN_POINTS };

/* The axis of one text, KEY=VALUES, as {key, values: [text]}, which the caller releases. KEY is a
 * configuration key or a short name of one (N, B, K, P, dtype, method, mask, ...). VALUES are texts between
 * commas (a comma within brackets or quotes is part of its text), and each may be a range: FIRST:LAST*FACTOR
 * or FIRST:LAST+STEP. Suffixes k, M and G of whole numbers are binary. BS_USAGE (BS-SWEEP-AXIS). */
int32_t bs_axis_parse(const char *text, json_t **out_axis, bs_error *err);

/* Every combination of the axes' values, the last axis fastest, appended to `points` as {key: value} in the
 * order of the axes. No axes: one empty point. BS_USAGE for a key that two axes vary, and beyond
 * BS_SWEEP_POINTS_MAX points in all. */
int32_t bs_axes_multiply(const json_t *axes, json_t *points, bs_error *err);

/* A batch file: a line has axes between blanks, and gives their product; '#' begins a comment. Appends the
 * axes of each line, as an array, to `lines`. BS_INPUT for a file that cannot be read or has more than 1 MiB;
 * errors name the line. */
int32_t bs_axes_batch(const char *path, json_t *lines, bs_error *err);
#endif
