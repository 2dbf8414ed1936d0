/* SPDX-License-Identifier: MIT
 * internal.h - what the files of the engine share. */
#ifndef BS_SIM_INTERNAL_H
#define BS_SIM_INTERNAL_H
#include "sim/engine.h"
#include "sim/heap.h"
#include "sim/mailbox.h"
#include "sim/wires.h"

enum rank_state {
  RANK_READY = 0, /* in the queue of runnable ranks */
  RANK_RUNS,
  RANK_RECEIVES, /* waits for a message of `peer` */
  RANK_MEETS,    /* waits in `meeting` */
  RANK_SENDS,    /* waits until `peer` receives, or until its message before has been received */
  RANK_LISTENS,  /* waits for sim_poke, or for a time */
  RANK_ENDED
};

typedef struct sim_rank {
  uint64_t clock;
  uint64_t send_free, receive_free; /* the ports */
  uint64_t messages, bytes;         /* sent */
  const sim_call *call;             /* of the call that waits; may be NULL */
  sim_meeting *meeting;
  uint64_t expects; /* bytes; RANK_RECEIVES, RANK_SENDS */
  uint64_t since;   /* RANK_RECEIVES: when it began to wait */
  uint64_t wakes;   /* RANK_LISTENS: the time of its event; SIM_NEVER: it has none */
  uint64_t event;   /* order E: the seq of its newest event; older ones are stale */
  uint32_t peer;
  uint32_t matched;           /* RANK_RECEIVES: a rendezvous has sent what it waits for */
  uint32_t next;              /* in the FIFO */
  uint32_t last_in, last_out; /* hints of the mailbox */
  uint32_t state;             /* enum rank_state */
} sim_rank;

struct sim_meeting {
  sim_meeting *next;
  uint32_t n, here;
  int32_t (*complete)(void *user, sim_arrival *arrivals, uint32_t n, bs_error *err);
  void *user;
  sim_arrival arrivals[];
};

struct sim_engine {
  sim_config config;
  sim_rank *ranks;
  sim_mail mail;
  sim_meeting *meetings;
  uint32_t first, last; /* order K: FIFO */
  sim_heap heap;        /* order E */
  sim_wires wires;      /* when each is free */
  sim_wires slots;      /* of pairs of ranks, ONE_SLOT: since when it is free, SIM_NEVER: it is not */
  uint64_t time, seq;   /* of the last event */
  uint32_t flights;     /* messages in the heap */
  uint32_t stale;       /* events in the heap that sim_poke has replaced */
  uint32_t now, left;   /* the rank that runs; ranks that have not ended */
  uint32_t ran;
  sim_counters count;
  bs_error failure; /* code 0: none */
  int32_t told;     /* what the calls of the ranks return then */
};

/* Whether a rank waits for something of another rank or of a meeting. */
static inline int sim_waits(const sim_rank *r) {
  return r->state == RANK_RECEIVES || r->state == RANK_SENDS || r->state == RANK_MEETS ||
         r->state == RANK_LISTENS;
}
/* The rank can run from `at` on (order E). */
void sim_wake(sim_engine *e, uint32_t rank, uint64_t at);
/* Sets the failure of the world if it has none, and wakes all ranks that wait. Every rank gets the failure.
 */
void sim_fail(sim_engine *e, const bs_error *why);
/* Describes why no rank can run: fills message and hint. */
void sim_stuck(const sim_engine *e, bs_error *err);
/* 0: both agree; else the text of what differs. */
int sim_differ(const sim_call *a, uint32_t rank_a, const sim_call *b, uint32_t rank_b, char *text,
               size_t size);
/* Takes the send port at m->start and sends the message; fills m. */
int32_t sim_depart(sim_engine *e, sim_message *m);
/* Moves on a message of order E that has reached its next wire. */
void sim_flight_go(sim_engine *e, void *flight);
void sim_flights_free(sim_engine *e);
/* Delivers the message to its receiver. */
int32_t sim_deliver(sim_engine *e, uint32_t from, uint32_t to, const sim_letter *letter);
int32_t sim_no_memory(sim_engine *e, uint32_t rank);
void sim_meetings_free(sim_engine *e);
#endif
