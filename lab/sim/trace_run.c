/* SPDX-License-Identifier: MIT
 * trace_run.c - see trace_run.h. A rank has a heap of events: a node can begin, a message has come to its
 * receive, a node ends. It listens until the first of them, and is poked when an earlier one comes. */
#include "lab/sim/trace_run.h"

#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/sim/trace_events.h"
#include "lab/sim/trace_parts.h"
#include "lab/stop.h"
#include "sim/trace.h"

enum { TEXT = 160 };
typedef struct rank_state {
  trace_events events;
  uint32_t left;         /* nodes that are not done */
  uint32_t works, comms; /* nodes of work, and of messages and collectives, that are under way */
  uint64_t last;         /* until when the times below are counted */
  uint64_t meets_free;   /* when the newest collective ends */
  uint64_t compute, comm, exposed;
} rank_state;

typedef struct run {
  bs_et *et;
  const bs_trace_machine *machine;
  uint32_t calc, n_cpus;
  sim_engine *engine;
  trace_match match;
  rank_state *ranks;
  uint8_t *states;     /* enum trace_state of each node */
  uint32_t *missing;   /* needs of each node */
  uint64_t *arrivals;  /* of sends */
  uint64_t *first_dep; /* of each node, and the end */
  uint32_t *deps;      /* nodes that need it: 2 * node + start */
  uint64_t *cpu_free;  /* n_cpus of each rank */
  int32_t failed;      /* out of memory in a callback */
  bs_trace_result result;
} run;

static void push(run *r, uint32_t rank, trace_event e) {
  if (!trace_events_push(&r->ranks[rank].events, e)) r->failed = 1;
}

/* ---- begin and end ------------------------------------------------------------------------------ */

static int is_work(const bs_et_node *n) {
  return n->kind == BS_ET_CALC || n->kind == BS_ET_MEMORY;
}

static void count_until(rank_state *me, uint64_t now) {
  const uint64_t ps = now - me->last;
  if (me->works > 0)
    me->compute += ps;
  else
    me->exposed += ps;
  if (me->comms > 0) me->comm += ps;
  me->last = now;
}

static void add_slice(const run *r, uint32_t node, uint32_t lane, uint64_t from, uint64_t to) {
  const bs_et_node *n = &r->et->nodes[node];
  const char *name = n->kind == BS_ET_COLL ? bs_et_coll_name(n->coll) : "work";
  if (r->machine->trace == NULL || from == to) return;
  sim_trace_slice(r->machine->trace, n->rank, lane, n->name[0] != '\0' ? n->name : name, from, to);
}

/* The needs of others that this node's begin or end serves. */
static void serve(run *r, uint32_t node, uint32_t start, uint64_t now) {
  for (uint64_t k = r->first_dep[node]; k < r->first_dep[node + 1]; k++) {
    const uint32_t dep = r->deps[k] / 2;
    if (r->deps[k] % 2 != start || --r->missing[dep] > 0) continue;
    r->states[dep] = TRACE_READY;
    push(r, r->et->nodes[dep].rank, (trace_event){now, now, dep, NODE_BEGINS});
  }
}

static void begin(run *r, uint32_t node, uint64_t now) {
  bs_et_node *n = &r->et->nodes[node];
  rank_state *me = &r->ranks[n->rank];
  count_until(me, now);
  if (is_work(n))
    me->works++;
  else
    me->comms++;
  n->start = now;
  r->states[node] = TRACE_BEGUN;
  serve(r, node, 1, now);
}

static void end(run *r, uint32_t node, uint64_t now) {
  bs_et_node *n = &r->et->nodes[node];
  rank_state *me = &r->ranks[n->rank];
  count_until(me, now);
  if (is_work(n)) {
    const uint32_t lane = n->cpu == 0 ? SIM_LANE_STREAM : SIM_LANE_STREAMS + n->cpu - 1;
    if (lane < SIM_LANE_COLLECTIVES) add_slice(r, node, lane, n->start, now);
    me->works--;
  } else
    me->comms--;
  n->ps = now - n->start;
  r->states[node] = TRACE_DONE;
  me->left--;
  serve(r, node, 0, now);
}

/* 1: the processor is the node's until `until`; 0: it is taken, and the event comes back. */
static int take_cpu(run *r, const trace_event *e, uint64_t now, uint64_t until) {
  const bs_et_node *n = &r->et->nodes[e->node];
  uint64_t *free_at = &r->cpu_free[(uint64_t)n->rank * r->n_cpus + n->cpu];
  if (*free_at > now) {
    push(r, n->rank, (trace_event){*free_at, e->since, e->node, e->kind});
    return 0;
  }
  *free_at = until;
  return 1;
}

/* ---- nodes -------------------------------------------------------------------------------------- */

static uint64_t work_of(run *r, const bs_et_node *n) {
  const sim_roof *roof = &r->machine->roof;
  const int has_model = n->kind == BS_ET_MEMORY ? n->bytes > 0 : n->flops > 0;
  const int has_time = n->ps != BS_ET_NO_TIME;
  sim_op_time t;
  if (has_time && (r->calc == BS_TRACE_RECORDED || !has_model)) {
    r->result.recorded++;
    return n->ps;
  }
  r->result.modelled += has_model;
  r->result.unknown += !has_model;
  if (!has_model) return 0;
  sim_op_cost(roof, n->flops, n->bytes, &t);
  return sim_add(roof->launch, t.run);
}

static void begin_work(run *r, const trace_event *e, uint64_t now) {
  const bs_et_node *n = &r->et->nodes[e->node];
  if (!take_cpu(r, e, now, now)) return;
  const uint64_t done = sim_add(now, work_of(r, n));
  r->cpu_free[(uint64_t)n->rank * r->n_cpus + n->cpu] = done;
  begin(r, e->node, now);
  push(r, n->rank, (trace_event){done, now, e->node, NODE_ENDS});
}

/* SIM_DONE, SIM_BLOCKED (the event comes back), or the engine's failure. */
static int32_t begin_send(run *r, const trace_event *e, uint64_t now) {
  const bs_et_node *n = &r->et->nodes[e->node];
  const int loggp = r->machine->link.model == SIM_LOGGP;
  const sim_call call = {.site = n->name[0] != '\0' ? n->name : NULL}; /* the name of a trace's slice */
  sim_message m = {.from = n->rank,
                   .to = n->peer,
                   .bytes = n->bytes,
                   .ready = now,
                   .payload = &r->et->nodes[e->node],
                   .call = &call};
  if (loggp && !take_cpu(r, e, now, now)) return SIM_BLOCKED;
  const int32_t state = sim_send(r->engine, &m);
  if (state == SIM_BLOCKED) push(r, n->rank, (trace_event){m.start, e->since, e->node, e->kind});
  if (state != SIM_DONE) return state;
  if (loggp) r->cpu_free[(uint64_t)n->rank * r->n_cpus + n->cpu] = m.done;
  begin(r, e->node, now);
  push(r, n->rank, (trace_event){loggp ? m.done : now, now, e->node, NODE_ENDS});
  return SIM_DONE;
}

static void enqueue(run *r, trace_channel *c, uint32_t node) {
  r->match.next[node] = TRACE_NONE;
  if (c->head == TRACE_NONE)
    c->head = node;
  else
    r->match.next[c->tail] = node;
  c->tail = node;
}

/* Takes the first of the channel's queue where that is of this kind; TRACE_NONE: it is not. */
static uint32_t dequeue(run *r, trace_channel *c, uint32_t kind) {
  const uint32_t node = c->head;
  if (node == TRACE_NONE || r->et->nodes[node].kind != kind) return TRACE_NONE;
  c->head = r->match.next[node];
  return node;
}

/* A receive and the send that it gets. */
static int32_t pair(run *r, uint32_t receive, uint32_t send, uint64_t now) {
  const bs_et_node *to = &r->et->nodes[receive], *from = &r->et->nodes[send];
  const uint64_t at = sim_max(now, r->arrivals[send]);
  bs_error err = BS_ERROR_INIT;
  char first[TEXT], second[TEXT];
  if (to->bytes != from->bytes) {
    bs_et_node_text(r->et, send, first, sizeof first);
    bs_et_node_text(r->et, receive, second, sizeof second);
    bs_error_set(&err, BS_MISMATCH, "BS-TRACE-MATCH", "%s comes to %s: the sizes differ", first, second);
    bs_et_where(r->et, send, BS_MISMATCH, &err);
    sim_abort(r->engine, to->rank, err.code, &err);
    return -err.code;
  }
  push(r, to->rank, (trace_event){at, at, receive, MESSAGE_CAME});
  sim_poke(r->engine, to->rank, at);
  return SIM_DONE;
}

static int32_t begin_receive(run *r, uint32_t node, uint64_t now) {
  trace_channel *c = &r->match.channels[r->match.of[node]];
  begin(r, node, now);
  const uint32_t send = dequeue(r, c, BS_ET_SEND);
  if (send != TRACE_NONE) return pair(r, node, send, now);
  enqueue(r, c, node);
  return SIM_DONE;
}

static void arrived(void *user, const sim_message *m) {
  run *r = user;
  const uint32_t send = (uint32_t)((const bs_et_node *)m->payload - r->et->nodes);
  trace_channel *c = &r->match.channels[r->match.of[send]];
  r->arrivals[send] = m->arrival;
  const uint32_t receive = dequeue(r, c, BS_ET_RECV);
  if (receive != TRACE_NONE)
    pair(r, receive, send, sim_event_time(r->engine));
  else
    enqueue(r, c, send);
}

static void message_came(run *r, const trace_event *e, uint64_t now) {
  const uint64_t o = r->machine->link.model == SIM_LOGGP ? r->machine->link.o : 0;
  if (o > 0 && !take_cpu(r, e, now, sim_add(now, o))) return;
  push(r, r->et->nodes[e->node].rank, (trace_event){sim_add(now, o), now, e->node, NODE_ENDS});
}

/* ---- collectives -------------------------------------------------------------------------------- */

static void begin_collective(run *r, uint32_t node, uint64_t now) {
  trace_meeting *t = &r->match.meetings[r->match.of[node]];
  const bs_et_group *group = &r->et->groups[t->group];
  begin(r, node, now);
  if (++t->came < group->n) return;
  uint64_t start = now;
  for (uint32_t i = 0; i < group->n; i++) start = sim_max(start, r->ranks[group->ranks[i]].meets_free);
  const uint64_t done = sim_add(start, trace_collective_ps(&r->machine->wire, &r->et->nodes[node], group->n));
  for (uint32_t i = 0; i < group->n; i++) {
    const uint32_t rank = group->ranks[i];
    r->ranks[rank].meets_free = done;
    add_slice(r, r->match.members[t->first + i], SIM_LANE_COLLECTIVES, start, done);
    push(r, rank, (trace_event){done, done, r->match.members[t->first + i], NODE_ENDS});
    sim_poke(r->engine, rank, done);
  }
  r->result.collectives++;
}

/* ---- a rank ------------------------------------------------------------------------------------- */

static int32_t handle(run *r, const trace_event *e, uint64_t now) {
  const bs_et_node *n = &r->et->nodes[e->node];
  if (e->kind == NODE_ENDS)
    end(r, e->node, now);
  else if (e->kind == MESSAGE_CAME)
    message_came(r, e, now);
  else if (is_work(n))
    begin_work(r, e, now);
  else if (n->kind == BS_ET_COLL)
    begin_collective(r, e->node, now);
  else if (n->kind == BS_ET_RECV)
    return begin_receive(r, e->node, now);
  else
    return begin_send(r, e, now);
  return SIM_DONE;
}

static int32_t resume(void *user, uint32_t rank) {
  run *r = user;
  rank_state *me = &r->ranks[rank];
  const uint64_t now = sim_event_time(r->engine);
  bs_error err = BS_ERROR_INIT;
  if (sim_failure(r->engine) != NULL) return SIM_DONE;
  while (trace_events_first(&me->events) <= now && me->events.n > 0) {
    const trace_event e = trace_events_pop(&me->events);
    const int32_t state = handle(r, &e, now);
    if (state < 0) return state;
  }
  sim_set_clock(r->engine, rank, now);
  int32_t rc = bs_stop_check(&err);
  if (rc == BS_OK && r->failed) rc = bs_no_memory(&err, "the events of a trace");
  if (rc == BS_OK && me->events.n > 0 && trace_events_first(&me->events) == SIM_NEVER)
    rc = bs_error_set(&err, BS_OVERFLOW, "BS-SIM-TIME",
                      "rank %u would end after more than 213 days of virtual time", rank);
  if (rc != BS_OK) {
    sim_abort(r->engine, rank, rc, &err);
    return -rc;
  }
  if (me->left == 0) return SIM_DONE;
  return sim_listen(r->engine, rank, trace_events_first(&me->events));
}

static uint32_t route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const run *r = user;
  return r->machine->route(r->machine->route_user, from, to, out_hops);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* Refuses nodes that no machine here simulates. */
static int32_t check(const run *r, bs_error *err) {
  const bs_trace_machine *m = r->machine;
  char text[TEXT];
  for (uint32_t i = 0; i < r->et->n_nodes; i++) {
    const bs_et_node *n = &r->et->nodes[i];
    const char *what = NULL;
    if (n->nic > 0) what = "a simulated rank has one port (nic 0)";
    if (n->kind == BS_ET_COLL && (n->coll == BS_ET_GATHER || n->coll == BS_ET_SCATTER))
      what = "this collective has no closed form here";
    if (n->kind == BS_ET_COLL && (m->route != NULL || m->link.model == SIM_LOGGP))
      what = "collectives take their closed form, over links of alpha and beta without a topology";
    if (what == NULL) continue;
    bs_et_node_text(r->et, i, text, sizeof text);
    bs_error_set(err, BS_UNSUPPORTED, "BS-TRACE-NODE", "%s: %s", text, what);
    return bs_et_where(r->et, i, BS_UNSUPPORTED, err);
  }
  return BS_OK;
}

/* The nodes that need each node, from the lists of what each needs. */
static int32_t turn_needs(run *r, bs_error *err) {
  const bs_et *et = r->et;
  r->first_dep = calloc((size_t)et->n_nodes + 2, sizeof *r->first_dep);
  r->deps = malloc((et->n_needs + 1) * sizeof *r->deps);
  if (r->first_dep == NULL || r->deps == NULL) return bs_no_memory(err, "the needs of a trace");
  uint64_t *at = r->first_dep + 1;
  for (uint64_t k = 0; k < et->n_needs; k++) at[et->needs[k].on + 1]++;
  for (uint32_t i = 0; i < et->n_nodes; i++) at[i + 1] += at[i];
  for (uint32_t i = 0; i < et->n_nodes; i++) {
    r->missing[i] = (uint32_t)(et->first_need[i + 1] - et->first_need[i]);
    for (uint64_t k = et->first_need[i]; k < et->first_need[i + 1]; k++)
      r->deps[at[et->needs[k].on]++] = 2 * i + (et->needs[k].start != 0);
  }
  return BS_OK;
}

static int32_t open_run(run *r, bs_error *err) {
  const bs_et *et = r->et;
  for (uint32_t i = 0; i < et->n_nodes; i++)
    if (et->nodes[i].cpu >= r->n_cpus) r->n_cpus = et->nodes[i].cpu + 1;
  r->ranks = calloc(et->n_ranks, sizeof *r->ranks);
  r->states = calloc((size_t)et->n_nodes + 1, 1);
  r->missing = calloc((size_t)et->n_nodes + 1, sizeof *r->missing);
  r->arrivals = calloc((size_t)et->n_nodes + 1, sizeof *r->arrivals);
  r->cpu_free = calloc((size_t)et->n_ranks * r->n_cpus, sizeof *r->cpu_free);
  if (r->ranks == NULL || r->states == NULL || r->missing == NULL || r->arrivals == NULL ||
      r->cpu_free == NULL)
    return bs_no_memory(err, "a trace of %u nodes", et->n_nodes);
  int32_t rc = check(r, err);
  if (rc == BS_OK) rc = turn_needs(r, err);
  if (rc == BS_OK) rc = trace_match_make(et, &r->match, err);
  for (uint32_t i = 0; rc == BS_OK && i < et->n_nodes; i++) {
    r->ranks[et->nodes[i].rank].left++;
    if (r->missing[i] > 0) continue;
    r->states[i] = TRACE_READY;
    push(r, et->nodes[i].rank, (trace_event){0, 0, i, NODE_BEGINS});
  }
  return rc;
}

static void close_run(run *r) {
  for (uint32_t i = 0; r->ranks != NULL && i < r->et->n_ranks; i++) free(r->ranks[i].events.at);
  if (r->engine != NULL) sim_engine_free(r->engine);
  trace_match_free(&r->match);
  free(r->ranks);
  free(r->states);
  free(r->missing);
  free(r->arrivals);
  free(r->first_dep);
  free(r->deps);
  free(r->cpu_free);
}

static void finish(run *r, bs_trace_rank *out_ranks) {
  const sim_counters count = sim_count(r->engine);
  r->result.messages = count.messages;
  r->result.bytes = count.bytes;
  for (uint32_t i = 0; i < r->et->n_ranks; i++) {
    const rank_state *me = &r->ranks[i];
    out_ranks[i] = (bs_trace_rank){.nodes = r->et->first_node[i + 1] - r->et->first_node[i],
                                   .end = me->last,
                                   .compute = me->compute,
                                   .comm = me->comm,
                                   .exposed = me->exposed};
    if (i > 0 && me->last <= r->result.ps) continue;
    r->result.ps = me->last;
    r->result.last_rank = i;
  }
}

int32_t bs_trace_run(bs_et *et, const bs_trace_machine *machine, uint32_t calc, bs_trace_rank *out_ranks,
                     bs_trace_result *out_result, bs_error *err) {
  run r = {.et = et, .machine = machine, .calc = calc, .n_cpus = 1};
  const sim_config config = {.ranks = et->n_ranks,
                             .order = SIM_ORDER_E,
                             .link = machine->link,
                             .resume = resume,
                             .route = machine->route != NULL ? route : NULL,
                             .arrived = arrived,
                             .trace = machine->trace,
                             .user = &r};
  int32_t rc = open_run(&r, err);
  if (rc == BS_OK) rc = sim_engine_new(&config, &r.engine, err);
  if (rc == BS_OK) {
    bs_error why = BS_ERROR_INIT;
    rc = sim_run(r.engine, &why);
    if (rc == BS_DEADLINE)
      rc = trace_stuck(et, &r.match, r.states, err);
    else if (rc != BS_OK && err != NULL)
      *err = why;
  }
  if (rc == BS_OK) {
    finish(&r, out_ranks);
    *out_result = r.result;
  }
  close_run(&r);
  return rc;
}
