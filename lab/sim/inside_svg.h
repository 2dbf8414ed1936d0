/* SPDX-License-Identifier: MIT
 * inside_svg.h - the lanes of an op inside of a device as a chart: what each lane does when. */
#ifndef BS_LAB_SIM_INSIDE_SVG_H
#define BS_LAB_SIM_INSIDE_SVG_H
#include "core/base/text.h"
#include "lab/sim/inside.h"

/* What a job of this enum sim_what looks like: its colour p0 to p7, and whether it stands in the upper half
 * of its lane. */
typedef struct bs_inside_look {
  uint8_t colour, upper;
} bs_inside_look;
extern const bs_inside_look bs_inside_looks[SIM_WHATS];

/* At most 64 lanes of 200 spans each; a line names what is left out. The trace is that of bs_inside_trace. */
void bs_inside_svg(const bs_inside_answer *answer, const sim_trace *trace, bs_text *out);
#endif
