/* SPDX-License-Identifier: MIT
 * engine.h - ranks in virtual time on one thread. The engine resumes one rank at a time by a callback; the
 * rank runs until a call of this header returns SIM_BLOCKED, then its resume returns SIM_BLOCKED as well, and
 * the engine resumes it again when the call can go on: the rank then makes the same call again. A coroutine
 * gives way in between (sim/coroutine.h); a state machine without a stack just returns. No global state: an
 * engine belongs to one thread, several engines do not know of each other.
 *
 * Order K: ranks that can run wait in a FIFO. Exact where no link is shared and all receives name their
 * source. Order E: the rank with the lowest (clock, rank, seq) runs first, and links are claimed in the order
 * of time. */
#ifndef BS_SIM_ENGINE_H
#define BS_SIM_ENGINE_H
#include <stddef.h>

#include "blockshock/blockshock.h"
#include "sim/link.h"

/* The results of resume and of the blocking calls. A result below 0 is the negative of a bs code (enum
 * bs_status): the world has failed, and sim_failure returns the error. */
enum sim_state { SIM_BLOCKED = 0, SIM_DONE = 1 };

enum sim_order { SIM_ORDER_K = 0, SIM_ORDER_E = 1 };

/* How long a send lasts. EAGER: until the send port has taken the message. ONE_SLOT: until the message before
 * it, of the same pair of ranks, has been received. RENDEZVOUS: until the receiver waits for it. A program
 * that ends with EAGER and is stuck with another one leans on buffers that a network may not have. */
enum sim_buffering { SIM_EAGER = 0, SIM_ONE_SLOT = 1, SIM_RENDEZVOUS = 2 };

typedef struct sim_engine sim_engine;
typedef struct sim_meeting sim_meeting;

/* The call of a rank, for the texts of errors and for the comparison of calls that must agree. It lives until
 * the function that it was given to has returned SIM_DONE. Texts may be NULL; numbers of 0 are not named. */
typedef struct sim_call {
  const char *kind;     /* "all_reduce" */
  const char *site;     /* where in the program; must live as long as the engine */
  const char *dtype;    /* "f32" */
  const char *op;       /* "sum" */
  uint64_t round;       /* counted from 1 */
  uint64_t count;       /* elements */
  uint64_t fingerprint; /* of all that must agree, also of values that no field above has */
} sim_call;

/* One step of a route of order E, and of a path of order K, which adds up what the steps say. */
typedef struct sim_hop {
  uint64_t id; /* the same number: the same wire in the same direction; 0: no other pair uses it */
  uint64_t latency;
  uint64_t beta_q32;
} sim_hop;

enum { SIM_HOPS = 64 }; /* a route has at most so many */

struct sim_message;
typedef struct sim_config {
  uint32_t ranks;
  uint32_t order;     /* enum sim_order */
  uint32_t buffering; /* enum sim_buffering */
  /* The class of all links, copied. Where `route` is given, latency and beta are the route's, and the link
   * says a_port alone (alpha-beta only). */
  sim_link link;
  /* Goes on with this rank. SIM_DONE: it has ended. SIM_BLOCKED: a call said so, or it gives way. Below 0:
   * it has ended with this (negative) code; the world is aborted when that was not done yet. */
  int32_t (*resume)(void *user, uint32_t rank);
  /* Gets the hops from one rank to another and returns their number; where that is more than SIM_HOPS, only
   * the number. 0 or more than SIM_HOPS is an error of the world. NULL: every pair of ranks has a separate
   * link. */
  uint32_t (*route)(void *user, uint32_t from, uint32_t to, sim_hop *out_hops);
  /* Frees a payload that was not received; may be NULL. */
  void (*drop)(void *user, void *payload);
  /* Takes the place of sim_recv, in order E with EAGER: gets each message as soon as its arrival is known,
   * which may lie ahead, with all that sim_recv fills but `done`. The payload is the callee's. May be NULL.
   */
  void (*arrived)(void *user, const struct sim_message *m);
  /* Called in order E for a message with a route, when its head has reached hop `index` (the number of hops:
   * the receive port); the hop is free for it at `took`. May be NULL. */
  void (*hop)(void *user, uint32_t from, uint32_t to, uint32_t index, uint64_t reached, uint64_t took);
  void *user;
  struct sim_trace *trace; /* trace.h: gets every message; NULL: no trace */
} sim_config;

/* A message. `payload` travels as a pointer: the receiver owns it from sim_recv on; a sender that wants to go
 * on with its memory sends a copy. */
typedef struct sim_message {
  uint32_t from, to;
  uint64_t bytes;
  uint64_t ready; /* send: when the data are there; recv: from when on the receiver waits */
  void *payload;
  uint32_t together;    /* send: 1: EAGER, since the sender's receives are under way with it */
  const sim_call *call; /* fingerprints (both not 0), and bytes, must agree on both ends; may be NULL */
  /* Filled. */
  uint64_t done;    /* send: the sender's time after it (LogGP: + o); recv: when the receiver has it */
  uint64_t start;   /* when the send port took it */
  uint64_t arrival; /* its last byte, after the receive port; done = max(ready, arrival) + o. Of a send over a
                     * route: as if no wire were shared */
  uint64_t latency; /* its latency part, and its part of bytes */
  uint64_t wire;
} sim_message;

/* A rank in a meeting. */
typedef struct sim_arrival {
  uint32_t rank;
  uint32_t state; /* the engine's */
  uint64_t ready; /* when it came */
  uint64_t done;  /* to be filled by `complete`: when it goes on; ready before */
  const sim_call *call;
  void *data; /* what the rank gave */
} sim_arrival;

typedef struct sim_counters {
  uint64_t messages, bytes, meetings, resumes;
} sim_counters;

/* BS_INVALID_ARGUMENT for 0 ranks or no resume; BS_NO_MEMORY. The engine takes about 100 bytes a rank, and 80
 * bytes a pair of ranks that has a message under way. */
int32_t sim_engine_new(const sim_config *config, sim_engine **out_engine, bs_error *err);
void sim_engine_free(sim_engine *e);

/* Resumes ranks until all have ended. The first failure is what it returns and writes: that of a rank, a
 * mismatch, BS_DEADLINE with the wait-for text when no rank can go on (BS-SIM-STUCK), BS_MISMATCH when
 * messages are left over (BS-SIM-LEFTOVER). It may be called once. */
int32_t sim_run(sim_engine *e, bs_error *err);

/* The clock of a rank (ps). Order E resumes ranks by it. sim_send and sim_recv do not touch it: they return
 * times, so that a rank may have several clocks. */
uint64_t sim_clock(const sim_engine *e, uint32_t rank);
void sim_set_clock(sim_engine *e, uint32_t rank, uint64_t ps);
/* The latest clock of all ranks. */
uint64_t sim_latest(const sim_engine *e);

/* Sends m->from -> m->to. SIM_DONE: it is under way. SIM_BLOCKED: not yet (order E, when `ready` lies in the
 * future; or the config's buffering holds it back); call again when resumed. */
int32_t sim_send(sim_engine *e, sim_message *m);
/* Receives the next message m->from -> m->to in the order of their sends. m->bytes and m->call: what is
 * expected. */
int32_t sim_recv(sim_engine *e, sim_message *m);
/* Both with the rank's clock as `ready`, and set to `done` after. */
int32_t sim_send_now(sim_engine *e, sim_message *m);
int32_t sim_recv_now(sim_engine *e, sim_message *m);

/* For ranks that wait for several things (order E). sim_listen: the rank waits until `until` (SIM_NEVER: no
 * time), or until sim_poke names an earlier one; it returns SIM_BLOCKED, or the failure of the world. */
int32_t sim_listen(sim_engine *e, uint32_t rank, uint64_t until);
void sim_poke(sim_engine *e, uint32_t rank, uint64_t at);
/* The time of the event that resumed the rank that runs (order E). */
uint64_t sim_event_time(const sim_engine *e);

/* A group of ranks that meet. ranks NULL: 0 to n - 1; else copied. `complete` is called once each time that
 * all have come, by the last one, and fills `done` of each (indexed as `ranks`); what it returns but BS_OK
 * ends the world with err. The engine frees it. */
int32_t sim_meeting_new(sim_engine *e, const uint32_t *ranks, uint32_t n,
                        int32_t (*complete)(void *user, sim_arrival *arrivals, uint32_t n, bs_error *err),
                        void *user, sim_meeting **out_meeting, bs_error *err);
/* The member of that index has come at `ready` with `call` and `data` (both live until SIM_DONE). SIM_DONE:
 * all have met, *out_done is this member's. Calls are compared before `complete`: BS_MISMATCH. */
int32_t sim_meet(sim_engine *e, sim_meeting *m, uint32_t member, uint64_t ready, const sim_call *call,
                 void *data, uint64_t *out_done);

/* Ends the world: every blocked rank is resumed, and its call returns -BS_ABORTED. The first failure stays:
 * code, id and text are copied from `why` (may be NULL). */
void sim_abort(sim_engine *e, uint32_t rank, int32_t code, const bs_error *why);
/* The failure of the world, for its ranks; NULL: it has not failed. */
const bs_error *sim_failure(const sim_engine *e);

/* Describes which rank waits for which, when no rank can go on: the cycle or the rank that has ended, and
 * classes of ranks. */
void sim_wait_text(const sim_engine *e, char *out_text, size_t size);

sim_counters sim_count(const sim_engine *e);
/* Messages and bytes that this rank has sent. */
void sim_count_rank(const sim_engine *e, uint32_t rank, uint64_t *out_messages, uint64_t *out_bytes);
/* The rank that is being resumed; UINT32_MAX outside of resume. */
uint32_t sim_now(const sim_engine *e);
#endif
