/* SPDX-License-Identifier: MIT
 * launch.c - how the ranks of a communicator start. torture.h. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/torture/torture.h"

const char *const bs_torture_launch_names[BS_TORTURE_LAUNCHES] = {"threads", "processes", "mpi"};
enum { ASK_S = 30, ANSWER = 16 };

typedef struct question {
  const bs_node *config;
  const char *comm;
} question;

const char *bs_torture_comm_of(int launch) {
  return launch == BS_TORTURE_MPI         ? bs_mpi_of_environment()
         : launch == BS_TORTURE_PROCESSES ? "shm"
                                          : "threads";
}

/* Asks a communicator how it starts. An ATTACHED one either joins processes that bsrun starts, or belongs to
 * an MPI. BS_TORTURE_LAUNCHES: one thread drives all ranks. */
static int ask(const question *q) {
  bs_context *context = NULL;
  const bs_comm *found = NULL;
  void *state = NULL;
  char text[48];
  bs_attachment here = {.struct_size = sizeof here};
  if (q->config == NULL ||
      bs_context_of_config(q->config, BS_LOG_WARN, NULL, NULL, &context, NULL) != BS_OK ||
      bs_find_comm(context, q->comm, &found, &state, NULL) != BS_OK)
    return BS_TORTURE_THREADS;
  if (found->launch != BS_LAUNCH_ATTACHED)
    return found->launch == BS_LAUNCH_DRIVEN ? BS_TORTURE_LAUNCHES : BS_TORTURE_THREADS;
  snprintf(text, sizeof text, "BLOCKSHOCK_SHM_FD=%d", memfd_create("ask", 0u));
  const char *const environment[] = {"BLOCKSHOCK_RANK=0", "BLOCKSHOCK_WORLD_SIZE=1", text, NULL};
  return found->attach(state, environment, &here, NULL) == BS_UNAVAILABLE ? BS_TORTURE_MPI
                                                                          : BS_TORTURE_PROCESSES;
}

static void answer(void *user) {
  _exit(ANSWER + ask(user));
}

/* The plugin may be faulty: a child process asks it. */
static int ask_in_child(const bs_torture *t, const char *comm) {
  question q = {t->config, comm};
  const bs_child child = {.run = answer,
                          .user = &q,
                          .stdio = {BS_CHILD_KEEP, BS_CHILD_NULL, BS_CHILD_NULL},
                          .death = SIGKILL,
                          .group = BS_CHILD_KEEP};
  if (comm == NULL || strcmp(comm, "threads") == 0) return BS_TORTURE_THREADS;
  const int code = bs_child_answer(&child, ASK_S) - ANSWER;
  return code >= 0 && code <= BS_TORTURE_LAUNCHES ? code : BS_TORTURE_THREADS;
}

int bs_torture_launch_of(const bs_torture *t, const char *comm, int *out_driven) {
  const int answer = t->launch <= BS_TORTURE_THREADS ? ask_in_child(t, comm) : t->launch;
  *out_driven = answer == BS_TORTURE_LAUNCHES;
  return t->launch >= 0 ? t->launch : *out_driven ? BS_TORTURE_THREADS : answer;
}
