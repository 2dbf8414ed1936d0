/* SPDX-License-Identifier: MIT
 * part.h - the parts of a device and their laws: what a token (one tile's load, product or store) takes at a
 * server, a link, a memory and a queue. Times are whole ps, rates Q32 (clock.h); each law rounds once.
 * docs/inside.md has the equations. */
#ifndef BS_SIM_PART_H
#define BS_SIM_PART_H
#include "sim/clock.h"

enum sim_part_kind {
  SIM_SERVER = 0, /* takes whole tokens, one a worker */
  SIM_LINK,       /* passes flits on: the head leaves before the tail has come */
  SIM_MEMORY,     /* channels, by address */
  SIM_CACHE,      /* goes on at the memory `hit`, or through what lies between */
  SIM_QUEUE,      /* slots and items */
  SIM_PART_KINDS
};
enum { SIM_CACHES = 2 }; /* at most, on the way of a token */

/* Where a token is. Behind a link the last flit goes on at `tail`, and the whole token is there at `whole`.
 */
typedef struct sim_flow {
  uint64_t head, tail, whole;
} sim_flow;

typedef struct sim_part {
  uint32_t kind;    /* enum sim_part_kind */
  uint32_t workers; /* server, link; channels of a memory; slots of a queue */
  uint32_t flit;    /* bytes; 0: a token is one flit */
  uint32_t hit;     /* SIM_CACHE: the number of a memory */
  uint64_t first;   /* ps: of a token's head, or of each job of a server */
  uint64_t q32;     /* ps a unit (byte, FLOP, element) of one worker or channel */
  uint64_t gap;     /* SIM_MEMORY: ps that a channel takes for each piece */
  uint64_t interleave, bytes;
  uint64_t credit; /* SIM_QUEUE: ps until a slot that is given back can be taken */
  uint64_t grain;  /* SIM_SERVER: amounts count in multiples of it; 0: of one */
  uint64_t *free;  /* of each worker, channel or slot: when it can take the next; SIM_NEVER: a slot is held */
  /* SIM_MEMORY: `workers` of each, for one request. */
  uint64_t *piece_bytes;
  uint32_t *pieces;
  struct sim_cache *cache; /* SIM_CACHE */
  /* SIM_QUEUE: items that no one has taken, and who waits, in order. */
  uint64_t items;
  struct sim_waiter *want_slot, *want_slot_last, *want_item, *want_item_last;
  /* What it did. A wait is that of a token, at a memory that of a channel's part of it. */
  uint64_t jobs, amount, busy, waited, waits;
  uint64_t gaps;    /* SIM_MEMORY: ps of all pieces; part of busy */
  uint64_t *served; /* SIM_MEMORY: ps of each channel; their sum is busy */
} sim_part;

/* A token that a queue or a cache holds back; the first member of the engine's token. */
typedef struct sim_waiter {
  struct sim_waiter *next;
} sim_waiter;

/* Which bytes a request takes: `rows` pieces of bytes / rows, `pitch` apart. */
typedef struct sim_request {
  uint64_t bytes, address, pitch;
  uint32_t rows; /* 0: one */
} sim_request;

/* 0: no memory. Takes the arrays of a part whose kind and workers are set, all free. */
int sim_part_open(sim_part *part);
void sim_part_close(sim_part *part);

void sim_part_serve(sim_part *server, uint64_t amount, sim_flow *flow);
void sim_part_pass(sim_part *link, uint64_t bytes, sim_flow *flow);
void sim_part_access(sim_part *memory, const sim_request *request, sim_flow *flow);

/* A slot. *out_at is when it can be taken, and it is the caller's from now on. 0: the waiter is in the line.
 */
int sim_part_take(sim_part *queue, uint64_t now, sim_waiter *waiter, uint64_t *out_at);
/* Gives a slot back at `now`: it is free from now + credit on. Returns who gets it then (out_at), or NULL. */
sim_waiter *sim_part_give(sim_part *queue, uint64_t now, uint64_t *out_at);
/* An item. 0: the waiter is in the line. */
int sim_part_get(sim_part *queue, sim_waiter *waiter);
/* Adds an item. Returns who gets it, or NULL. */
sim_waiter *sim_part_put(sim_part *queue);
#endif
