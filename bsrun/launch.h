/* SPDX-License-Identifier: MIT
 * launch.h - ranks that are processes (docs/launch.md): bsrun starts copies of itself and watches them, or
 * finds that something else has started it as one. */
#ifndef BSRUN_LAUNCH_H
#define BSRUN_LAUNCH_H
#include "lab/lab.h"

/* How this process was started as a rank: "processes" (by bsrun or by torchrun), "mpi"; NULL: it was not. */
const char *bsrun_rank_how(void);
int bsrun_rank_found(void);
int64_t bsrun_rank_count(void);
/* 1: this process was started by bsrun, which prints what has to be said when rank 0 cannot. */
int bsrun_rank_launched(void);
/* 1: it is not rank 0, as far as its environment tells. */
int bsrun_rank_follows(void);
/* From now on this process prints nothing: rank 0 does. Its errors go to the board, or without a board to
 * stderr, except echoes. */
void bsrun_follow(void);
int bsrun_following(void);
/* Leaves the error of this rank where the launcher finds it. 0: there is no launcher. */
int bsrun_rank_error(const bs_error *err);
/* Clears this rank's error, which belongs to an earlier point of a sweep and did not end the rank. */
void bsrun_rank_begin(void);

/* Starts `ranks` copies of this very command and waits for them; the exit code of the whole. timeout_s: how
 * long a rank may be stopped. */
int bsrun_launch(uint32_t ranks, double timeout_s);
#endif
