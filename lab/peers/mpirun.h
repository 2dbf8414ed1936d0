/* SPDX-License-Identifier: MIT
 * mpirun.h - the words that start the ranks of an MPI job here: the mpirun of PATH, srun inside a Slurm job,
 * or words of the user's (docs/launch.md). Used by bsrun and by the conformance kit. */
#ifndef BS_LAB_MPIRUN_H
#define BS_LAB_MPIRUN_H
#include <stddef.h>
#include <stdint.h>

#include "blockshock/blockshock.h"

enum { BS_MPIRUN_WORDS = 64 };
typedef struct bs_mpirun {
  const char *words[BS_MPIRUN_WORDS]; /* the program and its arguments follow these n */
  size_t n;
  char *text; /* of the user's words */
  char number[16];
  int alone; /* 1: mpirun of Open MPI, whose job stays on this machine */
} bs_mpirun;

/* command: the user's words that take -n P PROGRAM; NULL or "": searches for mpirun. crowded: 1: times do not
 * matter, so more ranks than cores are allowed. BS_UNAVAILABLE with a hint: nothing found. bs_mpirun_free in
 * any case. */
int32_t bs_mpirun_find(bs_mpirun *m, uint32_t ranks, int crowded, const char *command, bs_error *err);
void bs_mpirun_free(bs_mpirun *m);
#endif
