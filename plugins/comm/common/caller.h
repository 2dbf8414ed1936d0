/* SPDX-License-Identifier: MIT
 * caller.h - may the caller of a collective wait by spinning? The rank's own thread may: it has nothing else
 * to do. An additional thread (of a started collective) may only if it has a separate core. On the rank's
 * core spinning wastes the time that starting should save. Yielding (sched_yield) there delays the thread by
 * a whole time slice of the rank's computing, milliseconds; a sleeping thread runs as soon as it is woken.
 * Used by threads, shm and mpi. */
#ifndef BS_COMM_CALLER_H
#define BS_COMM_CALLER_H
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

/* State of one rank's end. One thread calls at a time; threads that have called exist until the end is
 * closed. */
typedef struct comm_caller {
  pthread_t owner; /* the thread that opened it */
  cpu_set_t cores; /* that the owner ran on then */
  pthread_t other; /* the last one that called and is not the owner */
  uint32_t known;  /* `other` is set */
  uint32_t shares; /* it may run on one of the owner's cores */
} comm_caller;

static inline void comm_caller_open(comm_caller *c) {
  c->owner = pthread_self();
  c->known = 0;
  if (pthread_getaffinity_np(c->owner, sizeof c->cores, &c->cores) != 0) CPU_ZERO(&c->cores);
}

/* 1: it may. Makes a system call once a thread. */
static inline int comm_caller_may_spin(comm_caller *c) {
  const pthread_t self = pthread_self();
  if (pthread_equal(self, c->owner)) return 1;
  if (c->known && pthread_equal(self, c->other)) return !c->shares;
  cpu_set_t cores, both;
  CPU_ZERO(&both);
  if (pthread_getaffinity_np(self, sizeof cores, &cores) == 0) CPU_AND(&both, &cores, &c->cores);
  c->other = self;
  c->known = 1;
  c->shares = CPU_COUNT(&both) > 0;
  return !c->shares;
}
#endif
