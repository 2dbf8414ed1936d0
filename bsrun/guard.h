/* SPDX-License-Identifier: MIT
 * guard.h - a process that outlives a rank of an MPI job and reports what has ended it. The ranks of a
 * machine see each other's processes end. A rank that is alone on its machine is seen by no one, and mpirun
 * ends the other ranks before they notice (docs/launch.md). */
#ifndef BSRUN_GUARD_H
#define BSRUN_GUARD_H
#include "bsrun/board.h"

/* Forks: the new process returns and is the rank; this one stays as its guard, and ends as it ends. A signal
 * that ends the rank, or stops it, is put on the board, or an end on stderr where `board` is NULL: on another
 * machine than the launcher's. Before anything is opened. */
void bsrun_guard(bsrun_board *board, int64_t rank);
#endif
