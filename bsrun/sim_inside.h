/* SPDX-License-Identifier: MIT
 * sim_inside.h - what verbs of `bsrun sim` do when --device names a device. */
#ifndef BS_BSRUN_SIM_INSIDE_H
#define BS_BSRUN_SIM_INSIDE_H
#include "bsrun/bsrun.h"

/* `bsrun sim probe PLACE PLACE --device D`. */
int32_t sim_inside_probe(const args *a, bs_error *err);
/* `bsrun sim explain --inside OP --device D`. */
int32_t sim_inside_explain(const args *a, bs_error *err);
struct bs_inside_ask; /* of lab/sim/inside.h, whose names sim/engine.h has for other things */
/* An op with --knob, and with --activation and --bias where the verb has them. */
int32_t sim_inside_ask(const args *a, const char *op, struct bs_inside_ask *ask, bs_error *err);
#endif
