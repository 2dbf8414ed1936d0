/* SPDX-License-Identifier: MIT
 * launch_mpi.h - ranks that mpirun or srun starts (docs/launch.md): bsrun finds that it is such a rank,
 * or starts mpirun with copies of this command. */
#ifndef BSRUN_LAUNCH_MPI_H
#define BSRUN_LAUNCH_MPI_H
#include "lab/lab.h"

/* A rank of an MPI job, as the environment describes it. */
typedef struct bsrun_mpi {
  int64_t rank, size;
  const char *starter; /* "mpirun of Open MPI", ... */
} bsrun_mpi;
/* 1: this process is one. */
int bsrun_mpi_found(bsrun_mpi *out);
/* Leaves the error of this rank for the bsrun that has started the job; it prints errors that rank 0 cannot
 * print. 0: no such bsrun runs on this machine. */
int bsrun_mpi_error(const bs_error *err);
/* 1: what this rank has missed another with has a cause that guards have seen: a signal has ended a rank of
 * this machine, or stopped it. */
int bsrun_mpi_cause(const bs_error *err, bs_error *out);
/* 1: this rank was stopped, and others have missed it: what it says now follows from that. */
int bsrun_mpi_was_missed(void);
/* The place where rank 0 leaves the signal that ends it immediately, with no run open. NULL: not rank 0, or
 * no launcher reads it. */
_Atomic uint32_t *bsrun_mpi_stopped(void);
/* From now on this process ends with the one that has started it, and another one watches it (guard.h):
 * before anything is opened. */
void bsrun_mpi_enter(void);

/* How far this rank has come (board.h): the launcher ends a job whose ranks wait for one that does not come.
 */
void bsrun_mpi_stage(uint32_t stage);

/* Starts mpirun (in a Slurm job: srun; or the words of `command`, when not empty) with `ranks` copies of this
 * very command and waits for it; the exit code of the whole. timeout_s: how long ranks wait for one that was
 * stopped before it joined; 0: for ever. */
int bsrun_launch_mpi(uint32_t ranks, double timeout_s, const char *command);
#endif
