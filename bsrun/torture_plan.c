/* SPDX-License-Identifier: MIT
 * torture_plan.c - `bsrun torture --plan`: one run of the program of collectives, which ends as the program
 * ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/plugins.h"
#include "bsrun/torture.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/torture/program.h"

static void print_counts(uint64_t (*counts)[BS_COLL_COUNT_], uint32_t P) {
  for (uint32_t r = 0; r < P; r++) {
    printf("calls of rank %u:", r);
    for (uint32_t k = 0; k < BS_COLL_COUNT_; k++)
      if (counts[r][k] > 0)
        bs_print(stdout, " %s=%llu", bs_name_of(BS_NAMES_COLL, k), (unsigned long long)counts[r][k]);
    putchar('\n');
  }
}

static int32_t open_planned(const args *a, const char *plan, bs_context **out, bs_error *err) {
  bs_node *config = NULL;
  int32_t rc = plugins_compose(a, NULL, NULL, 0, &config, err);
  if (rc == BS_OK && plan[0] != '\0') rc = bs_config_set_text(config, "plugins.fault.plan", plan, err);
  const int32_t level = args_has(a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN;
  if (rc == BS_OK) rc = bs_context_of_config(config, level, bsrun_log, NULL, out, err);
  bs_config_free(config);
  return rc;
}

static int start_mpi(const args *a, uint32_t P, bs_error *err) {
  bs_node *config = NULL;
  if (plugins_compose(a, NULL, NULL, 0, &config, err) != BS_OK) return bsrun_fail(err);
  const int code = bsrun_launch_mpi(P, 0.0, bs_schema_str(config, "hardware.mpirun"));
  bs_config_free(config);
  return code;
}

/* Runs the program in this process. Ends the process itself when a rank is stuck inside a plugin. */
static int run_here(const args *a, const bs_torture *t, const char *comm, const char *plan, bs_error *err) {
  const uint32_t P = t->worlds[0];
  bs_context *context = NULL;
  uint64_t(*counts)[BS_COLL_COUNT_] = P > 0 ? calloc(P, sizeof *counts) : NULL;
  int32_t rc = counts == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
  if (rc == BS_OK) rc = open_planned(a, plan, &context, err);
  const bs_torture_request request = {
      .comm = comm, .world_size = P, .deadline_s = t->deadline, .counts = counts};
  if (rc == BS_OK) rc = bs_torture_program(context, &request, err);
  if (rc == BS_OK) print_counts(counts, P); /* of the ranks of this process */
  const int code = rc == BS_OK ? 0 : bsrun_fail(err);
  if (bs_context_stuck(context) > 0) bsrun_leave(bsrun_finish(code));
  if (context != NULL) bs_context_close(context);
  free(counts);
  return code;
}

int torture_run_planned(const args *a, const bs_torture *t, const char *plan, bs_error *err) {
  const char *inner = args_value(a, "comm"), *how = bsrun_rank_how();
  char comm[128];
  const uint32_t P = t->worlds[0];
  if (t->n_worlds != 1) {
    bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--plan runs one world: -P takes one number");
    return bsrun_fail(err);
  }
  int driven;
  const int launch = bs_torture_launch_of(t, inner, &driven);
  if (launch == BS_TORTURE_PROCESSES && P > 1 && how == NULL) return bsrun_launch(P, t->deadline);
  if (launch == BS_TORTURE_MPI && P > 1 && (how == NULL || strcmp(how, "mpi") != 0))
    return start_mpi(a, P, err);
  if (bsrun_rank_follows()) bsrun_follow();
  if (launch == BS_TORTURE_MPI && P > 1) bsrun_mpi_enter();
  snprintf(comm, sizeof comm, "fault:%s", inner != NULL ? inner : bs_torture_comm_of(launch));
  return run_here(a, t, comm, plan, err);
}
