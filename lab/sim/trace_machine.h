/* SPDX-License-Identifier: MIT
 * trace_machine.h - the machine of a simulated trace (trace_run.h) from the parameters of the plugin sim and
 * a topology. */
#ifndef BS_LAB_SIM_TRACE_MACHINE_H
#define BS_LAB_SIM_TRACE_MACHINE_H
#include "lab/sim/trace_run.h"

typedef struct bs_trace_place {
  bs_trace_machine machine;
  const bs_topology *topology;
  void *opened;
  struct bs_named *named;
} bs_trace_place;

/* Gives place->machine the ways of a topology, as hardware.topology names it. The caller closes in each case;
 * the machine points into *place. */
int32_t bs_trace_place_open(bs_context *context, const char *topology, uint32_t ranks, bs_trace_place *place,
                            bs_error *err);
/* The simulation's work, messages and collectives are kept: at most so many events; 0: the usual number. */
int32_t bs_trace_place_record(bs_trace_place *place, uint64_t events, uint32_t ranks, bs_error *err);
/* Writes them as a file for Perfetto. BS_IO. */
int32_t bs_trace_place_write(const bs_trace_place *place, const char *path, uint64_t *out_events,
                             uint64_t *out_left_out, bs_error *err);
void bs_trace_place_close(bs_trace_place *place);
/* "2500:1500:1000:6", and :O: the links of messages by LogGP in ns. BS_USAGE. */
int32_t bs_trace_loggp(const char *text, bs_trace_machine *machine, bs_error *err);
#endif
