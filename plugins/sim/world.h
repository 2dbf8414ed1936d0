/* SPDX-License-Identifier: MIT
 * world.h - a world of the communicator sim, its groups and the calls of ranks in a meeting. */
#ifndef BS_PLUGINS_SIM_WORLD_H
#define BS_PLUGINS_SIM_WORLD_H
#include "sim.h"

/* Ranks that meet. */
typedef struct sim_group {
  struct sim_group *next;
  sim_world *world;
  uint32_t n;
  uint32_t opened;       /* of its ranks, by group_open */
  uint32_t *ranks;       /* of the world, ascending; NULL: all */
  unsigned char *joined; /* a bit a member; NULL: the world's own */
  sim_meeting *meeting;  /* of the engine of this run; NULL: none has met yet */
  uint64_t run;          /* of that meeting */
} sim_group;

typedef struct sim_comm {
  sim_rank *rank;
  sim_group *group;
  uint32_t me; /* in the group */
  uint32_t reserved;
} sim_comm;

/* A call site that a message names: its sender may have ended the plan that the text is of. */
typedef struct sim_site {
  struct sim_site *next;
  char text[];
} sim_site;

struct sim_world {
  sim_plugin *plugin;
  uint32_t size;
  uint32_t last; /* the rank that ended last in the newest run */
  sim_rank *ranks;
  sim_group all;      /* and the list of the others */
  sim_engine *engine; /* while it is driven */
  sim_coroutines *coroutines;
  uint64_t run;   /* how many there were */
  uint64_t began; /* when the newest began */
  uint64_t messages, message_bytes, meetings;
  uint64_t exchanges; /* calls of exchange */
  uint64_t outside;   /* collectives and messages that the machine was not fitted to */
  void (*rank_main)(void *arg, uint32_t rank);
  void *arg;
  pthread_t thread; /* that drives it */
  sim_world *next_driven;
  const bs_topology *topology; /* NULL: every two ranks have a link of their own */
  void *topology_opened;
  sim_site *sites;  /* each once, the newest used first */
  sim_trace *trace; /* of the newest run; NULL: not requested */
};

/* The request of one rank in a meeting. */
typedef struct sim_request {
  sim_comm *comm;
  const bs_coll_call *call;
  sim_time *time; /* of the stream that the call is on */
} sim_request;

static inline const bs_coll_call *sim_call_at(const sim_arrival *arrivals, uint32_t member) {
  return ((const sim_request *)arrivals[member].data)->call;
}
static inline uint32_t sim_group_rank(const sim_group *group, uint32_t member) {
  return group->ranks != NULL ? group->ranks[member] : member;
}

/* meet.c: any collective, and the barrier. */
int32_t sim_meet_all(sim_comm *comm, const bs_coll_call *call, bs_error *err);
/* world.c: the text, kept until the world closes; NULL: none, or no memory. */
const char *sim_world_site(sim_world *world, const char *text);
void sim_world_met(sim_world *world, uint64_t bytes, uint32_t ranks);
/* data.c: checks the facts that the ranks' calls must share in addition to their fingerprints; and computes
 * their values if all data are in host memory. */
int32_t sim_data_check(const sim_arrival *arrivals, uint32_t ranks, bs_error *err);
int32_t sim_data_move(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks);
/* enum sim_order: in which messages take wires and receive ports. */
uint32_t sim_world_order(const sim_world *world);
/* topology.c: the `route` of the engine, of a world with a topology. */
uint32_t sim_world_route(void *world, uint32_t from, uint32_t to, sim_hop *out_hops);
/* p2p.c */
int32_t sim_comm_send(void *comm, const bs_coll_call *call, bs_error *err);
int32_t sim_comm_recv(void *comm, const bs_coll_call *call, bs_error *err);
int32_t sim_comm_exchange(void *comm, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err);
void sim_letter_free(void *user, void *payload);
/* The bs code of a failed call of the engine. */
int32_t sim_failed(const sim_world *world, int32_t state, bs_error *err);
/* The description of the call, for the texts of errors. */
sim_call sim_call_of(const bs_coll_call *call);
#endif
