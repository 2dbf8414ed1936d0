/* SPDX-License-Identifier: MIT
 * torture_plan.c - `bsrun torture --plan`: one run of the program of collectives, which ends as the program
 * ends; and how the ranks of a communicator come to be. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

const char *const torture_launch_names[TORTURE_LAUNCHES] = {"threads", "processes", "mpi"};
enum { ASK_S = 30, ANSWER = 16 };

const char *torture_comm_of(int launch) {
  return launch == TORTURE_MPI ? bs_mpi_of_environment() : launch == TORTURE_PROCESSES ? "shm" : "threads";
}

/* ---- how ranks come to be ------------------------------------------------------------------- */

/* An ATTACHED one is asked whether it joins processes that bsrun starts; one that does not is of an MPI.
 * TORTURE_LAUNCHES: one thread drives all ranks. */
static int ask(const torture *t, const char *comm) {
  bs_context *context = NULL;
  const bs_comm *found = NULL;
  void *state = NULL;
  char text[48];
  bs_attachment here = {.struct_size = sizeof here};
  if (plugins_open_context(t->a, NULL, 0, &context, NULL) != BS_OK ||
      bs_find_comm(context, comm, &found, &state, NULL) != BS_OK)
    return TORTURE_THREADS;
  if (found->launch != BS_LAUNCH_ATTACHED)
    return found->launch == BS_LAUNCH_DRIVEN ? TORTURE_LAUNCHES : TORTURE_THREADS;
  snprintf(text, sizeof text, "BLOCKSHOCK_SHM_FD=%d", memfd_create("ask", 0u));
  const char *const environment[] = {"BLOCKSHOCK_RANK=0", "BLOCKSHOCK_WORLD_SIZE=1", text, NULL};
  return found->attach(state, environment, &here, NULL) == BS_UNAVAILABLE ? TORTURE_MPI : TORTURE_PROCESSES;
}

/* It is about to be tortured for a reason: it is asked in a child. */
static int ask_in_child(const torture *t, const char *comm) {
  int status = 0;
  if (comm == NULL || strcmp(comm, "threads") == 0) return TORTURE_THREADS;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL) _exit(1);
    alarm(ASK_S);
    _exit(ANSWER + ask(t, comm));
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return TORTURE_THREADS;
  const int answer = WEXITSTATUS(status) - ANSWER;
  return answer >= 0 && answer <= TORTURE_LAUNCHES ? answer : TORTURE_THREADS;
}

int torture_launch_of(const torture *t, const char *comm) {
  if (t->launch >= 0) return t->launch;
  const int answer = ask_in_child(t, comm);
  return answer < TORTURE_LAUNCHES ? answer : TORTURE_THREADS;
}

int torture_is_driven(const torture *t, const char *comm) {
  return t->launch <= TORTURE_THREADS && ask_in_child(t, comm) == TORTURE_LAUNCHES;
}

/* ---- one run -------------------------------------------------------------------------------- */

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

static int start_mpi(const torture *t, uint32_t P, bs_error *err) {
  bs_node *config = NULL;
  if (plugins_compose(t->a, NULL, NULL, 0, &config, err) != BS_OK) return bsrun_fail(err);
  const int code = bsrun_launch_mpi(P, 0.0, bs_schema_str(config, "hardware.mpirun"));
  bs_config_free(config);
  return code;
}

/* The program in this process. Ends the process itself when a rank was left behind in a plugin. */
static int run_here(const torture *t, const char *comm, const char *plan, bs_error *err) {
  const uint32_t P = t->worlds[0];
  bs_context *context = NULL;
  uint64_t(*counts)[BS_COLL_COUNT_] = P > 0 ? calloc(P, sizeof *counts) : NULL;
  int32_t rc = counts == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
  if (rc == BS_OK) rc = open_planned(t->a, plan, &context, err);
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

int torture_run_planned(const torture *t, const char *plan, bs_error *err) {
  const char *inner = args_value(t->a, "comm"), *how = bsrun_rank_how();
  char comm[128];
  const uint32_t P = t->worlds[0];
  if (t->n_worlds != 1) {
    bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--plan runs one world: --ranks takes one number");
    return bsrun_fail(err);
  }
  const int launch = torture_launch_of(t, inner);
  if (launch == TORTURE_PROCESSES && P > 1 && how == NULL) return bsrun_launch(P, t->deadline);
  if (launch == TORTURE_MPI && P > 1 && (how == NULL || strcmp(how, "mpi") != 0)) return start_mpi(t, P, err);
  if (bsrun_rank_follows()) bsrun_follow();
  if (launch == TORTURE_MPI && P > 1) bsrun_mpi_enter();
  snprintf(comm, sizeof comm, "fault:%s", inner != NULL ? inner : torture_comm_of(launch));
  return run_here(t, comm, plan, err);
}
