/* SPDX-License-Identifier: MIT
 * board.h - the memory that a launcher shares with the ranks that it has started on this machine: their
 * processes and their results. A rank gets the file's name, and the file may have been replaced. The rank
 * uses it only when device, inode, boot and size are the launcher's, and the file has a board's mark. */
#ifndef BSRUN_BOARD_H
#define BSRUN_BOARD_H
#include "lab/lab.h"

#define BSRUN_BOARD_ID "BLOCKSHOCK_BOARD_ID" /* device, inode and boot of the file */
#define BSRUN_BOARD_RANKS 65536u

/* How far a rank of an MPI job has come. */
enum bsrun_stage {
  BSRUN_STARTED = 0,
  BSRUN_WAITS = 1, /* for all others, inside MPI */
  BSRUN_JOINED = 2
};

typedef struct bsrun_row {
  int32_t pid;
  _Atomic uint32_t stage; /* enum bsrun_stage */
  uint32_t written;       /* err is the error that it ended with, or that its last point did */
  bs_error err;
} bsrun_row;

typedef struct bsrun_board {
  uint64_t magic;
  uint64_t ranks;
  _Atomic uint32_t ending;  /* 1: the launcher ends the remaining ranks; the end of a rank is expected */
  _Atomic uint32_t dead;    /* 1 + the rank that a signal has ended before any rank failed; 0: none */
  _Atomic uint32_t told;    /* 1: `death` is complete */
  _Atomic uint32_t held;    /* 1 + a rank that stands still, or did when another missed it; 0: none */
  _Atomic uint32_t stopped; /* the signal that has ended rank 0 immediately, with no run open; 0: none */
  bs_error death;
  bsrun_row rows[];
} bsrun_board;

/* In the launcher. flags: of memfd_create. NULL and errno: there is no memory. Sets BSRUN_BOARD_ID. */
bsrun_board *bsrun_board_make(uint32_t ranks, unsigned flags, int *out_fd);
/* In a rank: by the number of an open file, or by a path; NULL: there is no board there. */
bsrun_board *bsrun_board_at(int fd, int64_t ranks);
bsrun_board *bsrun_board_open(const char *path, int64_t ranks);
void bsrun_board_close(bsrun_board *board);
/* Sets a rank's error in its row; NULL: clears the row. */
void bsrun_board_put(bsrun_board *board, int64_t rank, const bs_error *err);
/* A signal has ended the rank: kept when it is the first failure of all. */
void bsrun_board_put_death(bsrun_board *board, int64_t rank, const bs_error *err);
/* The error of a rank that a signal has ended, or NULL. */
const bs_error *bsrun_board_death(const bsrun_board *board);
/* A signal has stopped the rank, or lets it go on: which is forgotten unless it was missed meanwhile. */
void bsrun_board_hold(bsrun_board *board, int64_t rank);
void bsrun_board_release(bsrun_board *board, int64_t rank);
/* The first error of ranks from `first` on that is not an echo of another's; NULL: they have left no error.
 */
const bs_error *bsrun_board_error(const bsrun_board *board, uint32_t first);
#endif
