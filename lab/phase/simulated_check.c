/* SPDX-License-Identifier: MIT
 * simulated_check.c - refuses what a run in virtual time cannot do, and decides which of its rows a gate may
 * judge. */
#include <string.h>

#include "lab/clock.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/measure/chunks.h"
#include "lab/phase/simulated.h"

int32_t bs_simulated_check(bs_context *context, const bs_experiment *e, bs_error *err) {
  const int is_virtual = bs_clock_is_virtual(context, e->comm);
  if (bs_backend_is_phantom(context, e->backend)) {
    if (e->phase == BS_PHASE_CORRECTNESS) {
      bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-VALUES", "backend %s holds no values: %s judges numbers",
                   e->backend, e->phase_name);
      bs_error_hint(err, "--backend virtual:ref has values and the same times; --phase time tells the time");
      return BS_UNSUPPORTED;
    }
    if (!is_virtual) {
      bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-CLOCK",
                   "backend %s has virtual time, communicator %s lives by the machine's clock", e->backend,
                   e->comm);
      bs_error_hint(err, "--comm sim");
      return BS_UNSUPPORTED;
    }
  }
  const int traced = e->trace_file != NULL || e->et_prefix != NULL;
  if (traced && e->phase == BS_PHASE_CORRECTNESS) {
    bs_error_set(err, BS_USAGE, "BS-SIM-TRACE", "--to %s needs virtual time, and phase 0 has none",
                 e->trace_file != NULL ? "trace" : "et");
    bs_error_hint(err, "--phase time");
    return BS_USAGE;
  }
  if (!is_virtual && traced) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-TRACE",
                 "a trace needs virtual time, and communicator %s uses the machine's clock", e->comm);
    bs_error_hint(err, "--plugin sim --hardware sim-flat");
    return BS_UNSUPPORTED;
  }
  if (!is_virtual) return BS_OK;
  const int by_messages =
      e->algorithm != NULL && e->algorithm[0] != '\0' && strcmp(e->algorithm, "native") != 0;
  if (e->topology != NULL && e->topology[0] != '\0' && !by_messages) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-TOPOLOGY",
                 "closed forms do not look at a topology, and no algorithm sends messages over %.60s",
                 e->topology);
    bs_error_hint(err, "--set hardware.algorithm=ring");
    return BS_UNSUPPORTED;
  }
  if (strcmp(bs_schema_str(e->config, "hardware.launch"), "threads") != 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-LAUNCH",
                 "communicator %s drives all of its ranks on one thread: they cannot be processes", e->comm);
    bs_error_hint(err, "leave --launch out");
    return BS_UNSUPPORTED;
  }
  if (!bs_overlap_asked(e)) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-OVERLAP",
               "overlap=auto is chosen by measured times, and this clock is virtual");
  bs_error_hint(err, "a number: --set method.overlap=4");
  return BS_UNSUPPORTED;
}

int32_t bs_simulated_judgeable(const char *what, const char *domain, const char *label, int accept,
                               bs_error *err) {
  if (accept || (domain != NULL && strcmp(domain, "in-domain") == 0)) return BS_OK;
  const int fitted = label != NULL && strcmp(label, "calibrated") == 0;
  bs_error_set(err, BS_INCONCLUSIVE, "BS-SIM-EXTRAPOLATED",
               "%s: the row is extrapolated (%s), so no gate judges it", what,
               fitted ? "a collective has a size or ranks that the machine was not fitted to"
                      : "the machine is published, not calibrated");
  bs_error_hint(err, "a machine of bsrun sim fit that covers these sizes and ranks, or --force");
  return BS_INCONCLUSIVE;
}
