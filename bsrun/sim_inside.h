/* SPDX-License-Identifier: MIT
 * sim_inside.h - what verbs of `bsrun sim` do when --device names a device. */
#ifndef BS_BSRUN_SIM_INSIDE_H
#define BS_BSRUN_SIM_INSIDE_H
#include "bsrun/bsrun.h"

/* `bsrun sim probe PLACE PLACE --device D`. */
int32_t sim_inside_probe(const args *a, bs_error *err);
/* `bsrun sim explain --inside OP --device D`. */
int32_t sim_inside_explain(const args *a, bs_error *err);
#endif
