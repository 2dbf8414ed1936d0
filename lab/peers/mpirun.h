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
  const char *words[BS_MPIRUN_WORDS]; /* the program and its words follow behind these n */
  size_t n;
  char *text; /* of the user's words */
  char number[16];
} bs_mpirun;

/* command: words of the user's, that take -n P PROGRAM; NULL or "": what there is here. crowded: 1 where
 * times do not matter, and more ranks than mpirun counts cores are no mistake. BS_UNAVAILABLE with a hint
 * where there is nothing. bs_mpirun_free in any case. */
int32_t bs_mpirun_find(bs_mpirun *m, uint32_t ranks, int crowded, const char *command, bs_error *err);
void bs_mpirun_free(bs_mpirun *m);
#endif
