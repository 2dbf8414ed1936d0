/* SPDX-License-Identifier: MIT
 * exchange.h - sends and receives that are in flight together: the common part of all communicators. A rank
 * polls all of its transfers and moves those that can move, so it receives a message while it waits for
 * another. When nothing moves it spins for a while. Then it sleeps on its inbox; a peer that moves one of its
 * messages wakes it. Each communicator defines how one message moves. Used by threads, shm and mpi. */
#ifndef BS_COMM_EXCHANGE_H
#define BS_COMM_EXCHANGE_H
#include "meet.h"

enum { COMM_NEW = 0, COMM_MOVES = 1, COMM_DONE = 2 };

typedef struct comm_transfer {
  const bs_coll_call *call;
  uint64_t key;
  uint32_t state;
  uint32_t before; /* the previous transfer between the same two ranks; UINT32_MAX: none */
  /* The communicator uses the members from here on. */
  void *link; /* the channel of the two ranks' messages */
  const char *text;
  uint64_t done; /* elements that have moved */
  uint32_t base; /* position of a message that is shown */
} comm_transfer;

/* The transfers of one rank's end of a group. */
typedef struct comm_transfers {
  comm_transfer *all; /* of the largest exchange so far */
  uint32_t room;
  uint32_t n;      /* of this exchange */
  uint32_t *marks; /* the newest transfer to each rank, then from each */
} comm_transfers;

typedef struct comm_mover {
  void *comm;
  /* 1: the message has moved; 0: it cannot now; else *rc. */
  int (*move)(void *comm, comm_transfer *t, int32_t *rc, bs_error *err);
  /* Do the others still live? BS_OK, or why the wait ends. It may shorten *ns, the sleep that follows. NULL:
   * no check is made. */
  int32_t (*look)(void *comm, int64_t *ns);
  /* Ends the wait: offered messages are withdrawn, except those that a peer has begun to take. NULL: no
   * action. */
  void (*settle)(void *comm);
  /* The error of a wait that ended with `why`: BS_ABORTED, BS_DEADLINE or the result of `look`. `t` is not
   * done. */
  int32_t (*fail)(void *comm, const comm_transfer *t, int32_t why, int64_t timeout_ns, bs_error *err);
  uint32_t passes;  /* a transfer may move once the one before it has this state */
  comm_flag *inbox; /* NULL: no bell, so sleeps are short */
  int sleepers;
  const _Atomic uint32_t *failed; /* the world's */
  int patient;                    /* the caller may wait by spinning */
  int64_t spin_ns, timeout_ns;
} comm_mover;

/* Checks the calls of rank `me` of n and makes a transfer of each; the communicator's fields are 0. */
int32_t comm_transfers_open(comm_transfers *transfers, const bs_coll_call *const *calls, uint32_t ncalls,
                            uint32_t me, uint32_t n, bs_error *err);
void comm_transfers_close(comm_transfers *transfers);
/* Moves all of them. */
int32_t comm_transfers_run(comm_transfers *transfers, const comm_mover *mover, bs_error *err);
#endif
