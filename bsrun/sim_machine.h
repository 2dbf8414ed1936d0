/* SPDX-License-Identifier: MIT
 * sim_machine.h - the machine of `bsrun sim run` and `sim probe`: the plugin sim with --hardware and --set.
 */
#ifndef BS_BSRUN_SIM_MACHINE_H
#define BS_BSRUN_SIM_MACHINE_H
#include "bsrun/bsrun.h"
#include "lab/coll/ccl.h"

typedef struct sim_machine {
  bs_node *config;
  bs_context *context;
  const char *name;     /* "": none */
  const char *topology; /* NULL: a link of each two ranks */
  char label[16];
  bs_ccl_place link; /* of two ranks */
} sim_machine;

/* All 0 before; the caller closes in each case. */
int32_t sim_machine_open(const args *a, sim_machine *out, bs_error *err);
void sim_machine_close(sim_machine *machine);
#endif
