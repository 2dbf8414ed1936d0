/* SPDX-License-Identifier: MIT
 * late.h - who keeps the ranks of an MPI job waiting before they have joined: inside MPI_Init they cannot
 * give up themselves, so the bsrun that has started them looks (launch_mpi.c). */
#ifndef BSRUN_LATE_H
#define BSRUN_LATE_H
#include "bsrun/board.h"

typedef struct bsrun_late {
  const char *mark; /* "NAME=value", in the environment of each rank of this machine */
  double timeout_s; /* how long a stopped rank is waited for; 0: not checked */
  double since;     /* when a rank was first seen to wait; 0: no rank waits */
  double next_look;
} bsrun_late;

/* 1 once ranks have waited for too long for one that has not come: *out_err names it. now_s: of any clock
 * that goes on. */
int bsrun_late_look(bsrun_late *late, const bsrun_board *board, double now_s, bs_error *out_err);
/* Ends every rank of this machine, also one that has not come as far as the board. */
void bsrun_late_kill(const bsrun_late *late);
#endif
