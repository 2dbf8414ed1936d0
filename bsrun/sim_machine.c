/* SPDX-License-Identifier: MIT
 * sim_machine.c - see sim_machine.h. */
#include "bsrun/sim_machine.h"

#include <stdlib.h>

#include "bsrun/opening.h"
#include "lab/config/compose.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"

int32_t sim_machine_open(const args *a, sim_machine *m, bs_error *err) {
  bsrun_base base = {.plugin = "sim", .hardware = "sim-flat"};
  char *dir = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  base.configs_dir = dir;
  if (rc == BS_OK) rc = bsrun_base_tree(a, &base, &m->config, err);
  free(dir);
  if (rc == BS_OK) rc = bs_context_of_config(m->config, BS_LOG_WARN, bsrun_log, NULL, &m->context, err);
  if (rc == BS_OK) rc = bs_ccl_place_link(m->context, &m->link, err);
  if (rc == BS_OK) rc = bs_sim_param(m->context, "label", m->label, sizeof m->label, err);
  if (rc != BS_OK) return rc;
  m->name = bs_schema_str(m->config, "hardware.name");
  m->topology = bs_schema_str(m->config, "hardware.topology");
  if (m->name == NULL) m->name = "";
  if (m->topology != NULL && m->topology[0] == '\0') m->topology = NULL;
  return BS_OK;
}

void sim_machine_close(sim_machine *m) {
  bs_config_free(m->config);
  if (m->context != NULL) bs_context_close(m->context);
}
