/* SPDX-License-Identifier: MIT
 * model_machine.c - the machine that a model is simulated on: --hardware, and the plugin sim without it. */
#include <string.h>

#include "bsrun/model.h"
#include "bsrun/opening.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"

/* The text of the configuration; NULL where it is empty. */
static const char *text_of(const bs_node *config, const char *key) {
  const char *text = bs_schema_str(config, key);
  return text != NULL && text[0] != '\0' ? text : NULL;
}

int32_t model_machine_open(const args *a, model_asked *io, bs_error *err) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  if (args_value(a, "hardware") == NULL) return plugins_open_context(a, NULL, 0, &io->context, err);
  int32_t rc = bsrun_base_config(a, &io->machine, err);
  if (rc == BS_OK && args_has(a, "nodes")) /* their terms: the plugin sim keeps the steps of rank 0 */
    rc = bs_config_set_text(io->machine, "plugins.sim.steps_first", "true", err);
  if (rc == BS_OK) rc = bs_context_of_config(io->machine, BS_LOG_WARN, bsrun_log, NULL, &io->context, err);
  if (rc != BS_OK) return rc;
  io->ranks.comm = text_of(io->machine, "hardware.comm");
  if (io->ranks.comm != NULL) rc = bs_find_comm(io->context, io->ranks.comm, &comm, &state, err);
  if (rc != BS_OK) return rc;
  if (io->request.backend == NULL) io->request.backend = text_of(io->machine, "hardware.backend");
  if (bs_clock_is_virtual(io->context, io->ranks.comm)) {
    io->ranks.machine = text_of(io->machine, "hardware.name");
    io->ranks.algorithm = text_of(io->machine, "hardware.algorithm");
    io->ranks.topology = text_of(io->machine, "hardware.topology");
    return BS_OK;
  }
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--hardware %.60s is no simulated machine",
               args_value(a, "hardware"));
  bs_error_hint(err, "h100-dgx, h200-dgx, a100-dgx, sim-flat, two-core, or a file with comm: sim");
  return BS_USAGE;
}
