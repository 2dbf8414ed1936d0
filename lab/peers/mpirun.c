/* SPDX-License-Identifier: MIT
 * mpirun.c - see mpirun.h. */
#include "lab/peers/mpirun.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"

static void add_word(bs_mpirun *m, const char *word) {
  if (m->n + 1 < BS_MPIRUN_WORDS) m->words[m->n++] = word;
}

/* The first line that a program prints for --version; "" if it does not run. */
static void version_of(const char *program, char *out, size_t size) {
  char command[128];
  out[0] = '\0';
  snprintf(command, sizeof command, "%s --version 2>&1", program);
  FILE *f = popen(command, "r");
  if (f == NULL) return;
  const size_t n = fread(out, 1, size - 1, f);
  out[n] = '\0';
  while (fgetc(f) != EOF) {
  }
  pclose(f);
}

static uint32_t cores_allowed(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
}

/* 1: mpirun finds no other machine: no queue and no file names one. */
static int stays_here(void) {
  static const char *const others[] = {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE",
                                       "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_hostfile"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (getenv(others[i]) != NULL) return 0;
  return 1;
}

/* docs/launch.md, "What bsrun starts". The communicator divides the cores, so mpirun binds nothing. */
static int32_t add_mpirun(bs_mpirun *m, int crowded, bs_error *err) {
  char version[256];
  version_of("mpirun", version, sizeof version);
  const int open_mpi = strstr(version, "Open MPI") != NULL, hydra = strstr(version, "HYDRA") != NULL;
  if (!open_mpi && !hydra) {
    bs_error_set(err, BS_UNAVAILABLE, "BS-LAUNCH-MPIRUN", "no mpirun of Open MPI or MPICH is in PATH");
    bs_error_hint(err, "install one, or --set hardware.mpirun='COMMAND WORDS' that takes -n P PROGRAM");
    return BS_UNAVAILABLE;
  }
  add_word(m, "mpirun");
  if (hydra)
    add_word(m, "-disable-auto-cleanup"); /* otherwise it kills the ranks that could report which
                                           * rank has died */
  if (hydra) return BS_OK;
  m->alone = stays_here();
  add_word(m, "--quiet");
  add_word(m, "--bind-to");
  add_word(m, "none");
  if (crowded) add_word(m, "--oversubscribe");
  if (geteuid() == 0) add_word(m, "--allow-run-as-root");
  return BS_OK;
}

static void add_srun(bs_mpirun *m) {
  add_word(m, "srun");
  add_word(m, "--kill-on-bad-exit=1");
  if (getenv("SLURM_MPI_TYPE") == NULL) add_word(m, "--mpi=pmix");
}

int32_t bs_mpirun_find(bs_mpirun *m, uint32_t ranks, int crowded, const char *command, bs_error *err) {
  int32_t rc = BS_OK;
  memset(m, 0, sizeof *m);
  if (command != NULL && command[0] != '\0') {
    m->text = bs_strdup(command);
    if (m->text == NULL) return bs_no_memory(err, "the words of mpirun");
    char *rest = NULL;
    for (char *w = strtok_r(m->text, " \t", &rest); w != NULL; w = strtok_r(NULL, " \t", &rest))
      add_word(m, w);
  } else if (getenv("SLURM_JOB_ID") != NULL) {
    add_srun(m);
  } else {
    rc = add_mpirun(m, crowded || ranks > cores_allowed(), err);
  }
  snprintf(m->number, sizeof m->number, "%u", ranks);
  add_word(m, "-n");
  add_word(m, m->number);
  return rc;
}

void bs_mpirun_free(bs_mpirun *m) {
  free(m->text);
  m->text = NULL;
}
