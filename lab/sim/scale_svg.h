/* SPDX-License-Identifier: MIT
 * scale_svg.h - a plot of simulated times over the number of ranks: a bar for each, split into the parts of
 * its time. */
#ifndef BS_LAB_SIM_SCALE_SVG_H
#define BS_LAB_SIM_SCALE_SVG_H
#include <jansson.h>
#include <stdio.h>

/* A panel for each method, in the order of `rows` (those of `bsrun sim scale`); `title` above them. 0:
 * written. */
int bs_scale_svg(FILE *out, const json_t *rows, const char *title);
#endif
