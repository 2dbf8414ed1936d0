/* SPDX-License-Identifier: MIT
 * trace_match.c - which sends and receives, and which collectives of ranks, belong together (trace_parts.h).
 * Found before anything runs: a message without an other end, and a collective that a rank does not join. */
#include <stdlib.h>
#include <string.h>

#include "blockshock/comm.h"
#include "lab/error.h"
#include "lab/sim/trace_parts.h"

enum { TEXT = 160 };

typedef struct message_key {
  uint32_t from, to, tag, node;
} message_key;

void trace_match_free(trace_match *m) {
  free(m->of);
  free(m->members);
  free(m->next);
  free(m->channels);
  free(m->meetings);
  *m = (trace_match){0};
}

/* ---- messages ----------------------------------------------------------------------------------- */

static int same_channel(const message_key *a, const message_key *b) {
  return a->from == b->from && a->to == b->to && a->tag == b->tag;
}

static int by_channel(const void *a, const void *b) {
  const message_key *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

/* A channel has as many sends as receives; else the error names the first node that has no other end. */
static int32_t check_channel(const bs_et *et, const message_key *keys, uint32_t n, bs_error *err) {
  uint32_t sends = 0, receives = 0, extra = 0;
  char text[TEXT];
  for (uint32_t i = 0; i < n; i++) sends += et->nodes[keys[i].node].kind == BS_ET_SEND;
  receives = n - sends;
  if (sends == receives) return BS_OK;
  const uint32_t kind = sends > receives ? BS_ET_SEND : BS_ET_RECV;
  const uint32_t least = sends > receives ? receives : sends;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < n; i++)
    if (et->nodes[keys[i].node].kind == kind && seen++ == least) extra = keys[i].node;
  bs_et_node_text(et, extra, text, sizeof text);
  bs_error_set(err, kind == BS_ET_SEND ? BS_MISMATCH : BS_DEADLINE,
               kind == BS_ET_SEND ? "BS-TRACE-MATCH" : "BS-TRACE-STUCK",
               "%s %s: rank %u has %u %s rank %u with tag %u, and rank %u has %u %s", text,
               kind == BS_ET_SEND ? "has no receive" : "waits for a send that no rank makes", keys[0].from,
               sends, sends == 1 ? "send to" : "sends to", keys[0].to, keys[0].tag, keys[0].to, receives,
               receives == 1 ? "receive" : "receives");
  bs_error_hint(err, "each send needs one receive with its source and tag");
  return bs_et_where(et, extra, kind == BS_ET_SEND ? BS_MISMATCH : BS_DEADLINE, err);
}

static int32_t make_channels(const bs_et *et, trace_match *m, uint32_t n_messages, bs_error *err) {
  message_key *keys = malloc(((size_t)n_messages + 1) * sizeof *keys);
  m->channels = malloc(((size_t)n_messages + 1) * sizeof *m->channels);
  uint32_t n = 0;
  int32_t rc = keys != NULL && m->channels != NULL ? BS_OK : bs_no_memory(err, "the messages of a trace");
  for (uint32_t i = 0; rc == BS_OK && i < et->n_nodes; i++) {
    const bs_et_node *node = &et->nodes[i];
    if (node->kind == BS_ET_SEND) keys[n++] = (message_key){node->rank, node->peer, node->tag, i};
    if (node->kind == BS_ET_RECV) keys[n++] = (message_key){node->peer, node->rank, node->tag, i};
  }
  if (rc == BS_OK && n > 0) qsort(keys, n, sizeof *keys, by_channel);
  for (uint32_t i = 0, end; rc == BS_OK && i < n; i = end) {
    for (end = i; end < n && same_channel(&keys[i], &keys[end]); end++) {
      m->of[keys[end].node] = m->n_channels;
      m->members[end] = keys[end].node;
    }
    m->channels[m->n_channels++] = (trace_channel){i, end, TRACE_NONE, TRACE_NONE};
    rc = check_channel(et, &keys[i], end - i, err);
  }
  m->n_members = n;
  free(keys);
  return rc;
}

/* ---- collectives -------------------------------------------------------------------------------- */

/* The place of a rank in a group; TRACE_NONE: it is not in it. */
static uint32_t place_in(const bs_et_group *group, uint32_t rank) {
  uint32_t low = 0, high = group->n;
  while (low < high) {
    const uint32_t mid = low + (high - low) / 2;
    if (group->ranks[mid] < rank)
      low = mid + 1;
    else
      high = mid;
  }
  return low < group->n && group->ranks[low] == rank ? low : TRACE_NONE;
}

static int32_t differs(const bs_et *et, uint32_t a, uint32_t b, bs_error *err) {
  char first[TEXT], second[TEXT];
  bs_et_node_text(et, a, first, sizeof first);
  bs_et_node_text(et, b, second, sizeof second);
  bs_error_set(err, BS_MISMATCH, "BS-TRACE-MATCH", "%s meets %s: they differ", first, second);
  return bs_et_where(et, a, BS_MISMATCH, err);
}

/* Puts the n-th node of its rank and group into the n-th meeting of the group. */
static int32_t join(const bs_et *et, trace_match *m, uint32_t node, uint32_t meeting, bs_error *err) {
  const bs_et_node *n = &et->nodes[node];
  const trace_meeting *t = &m->meetings[meeting];
  const uint32_t place = place_in(&et->groups[n->group], n->rank);
  char text[TEXT];
  bs_et_node_text(et, node, text, sizeof text);
  if (place == TRACE_NONE)
    return bs_error_set(err, BS_MISMATCH, "BS-TRACE-MATCH", "%s: the rank is not in the group '%.24s'", text,
                        et->groups[n->group].name);
  m->members[t->first + place] = node;
  m->of[node] = meeting;
  for (uint32_t i = 0; i < place; i++) {
    const uint32_t other = m->members[t->first + i];
    if (other == TRACE_NONE) continue;
    const bs_et_node *o = &et->nodes[other];
    return o->coll == n->coll && o->bytes == n->bytes ? BS_OK : differs(et, other, node, err);
  }
  return BS_OK;
}

/* A rank that does not come to a meeting of its group. */
static int32_t check_meeting(const bs_et *et, const trace_match *m, const trace_meeting *t, bs_error *err) {
  const bs_et_group *group = &et->groups[t->group];
  uint32_t here = TRACE_NONE, missing = TRACE_NONE;
  char text[TEXT];
  for (uint32_t i = group->n; i-- > 0;) {
    const uint32_t node = m->members[t->first + i];
    if (node == TRACE_NONE)
      missing = group->ranks[i];
    else
      here = node;
  }
  if (missing == TRACE_NONE || here == TRACE_NONE) return BS_OK;
  bs_et_node_text(et, here, text, sizeof text);
  return bs_error_set(err, BS_DEADLINE, "BS-TRACE-STUCK", "%s waits for rank %u, which has no such node",
                      text, missing);
}

/* How many meetings each group has: the most nodes of it on a rank. */
static void count_meetings(const bs_et *et, uint32_t *most, uint32_t *now) {
  for (uint32_t r = 0; r < et->n_ranks; r++) {
    memset(now, 0, et->n_groups * sizeof *now);
    for (uint32_t i = et->first_node[r]; i < et->first_node[r + 1]; i++) {
      const bs_et_node *n = &et->nodes[i];
      if (n->kind == BS_ET_COLL && ++now[n->group] > most[n->group]) most[n->group] = now[n->group];
    }
  }
}

static int32_t room_for_meetings(const bs_et *et, trace_match *m, const uint32_t *most, bs_error *err) {
  uint64_t members = m->n_members, meetings = 0;
  for (uint32_t g = 0; g < et->n_groups; g++) {
    members += (uint64_t)most[g] * et->groups[g].n;
    meetings += most[g];
  }
  if (members >= TRACE_NONE) return bs_no_memory(err, "the collectives of a trace");
  uint32_t *more = realloc(m->members, (members + 1) * sizeof *more);
  if (more != NULL) m->members = more;
  m->meetings = calloc(meetings + 1, sizeof *m->meetings);
  if (more == NULL || m->meetings == NULL) return bs_no_memory(err, "the collectives of a trace");
  for (uint32_t g = 0; g < et->n_groups; g++)
    for (uint32_t k = 0; k < most[g]; k++) {
      m->meetings[m->n_meetings++] = (trace_meeting){.group = g, .first = m->n_members};
      for (uint32_t i = 0; i < et->groups[g].n; i++) m->members[m->n_members++] = TRACE_NONE;
    }
  return BS_OK;
}

static int32_t make_meetings(const bs_et *et, trace_match *m, bs_error *err) {
  uint32_t *most = calloc(3 * (size_t)et->n_groups, sizeof *most);
  if (most == NULL) return bs_no_memory(err, "the collectives of a trace");
  uint32_t *now = most + et->n_groups, *base = now + et->n_groups;
  count_meetings(et, most, now);
  int32_t rc = room_for_meetings(et, m, most, err);
  for (uint32_t g = 1; g < et->n_groups; g++) base[g] = base[g - 1] + most[g - 1];
  for (uint32_t r = 0; rc == BS_OK && r < et->n_ranks; r++) {
    memset(now, 0, et->n_groups * sizeof *now);
    for (uint32_t i = et->first_node[r]; rc == BS_OK && i < et->first_node[r + 1]; i++) {
      const uint32_t g = et->nodes[i].group;
      if (et->nodes[i].kind == BS_ET_COLL) rc = join(et, m, i, base[g] + now[g]++, err);
    }
  }
  for (uint32_t i = 0; rc == BS_OK && i < m->n_meetings; i++) rc = check_meeting(et, m, &m->meetings[i], err);
  free(most);
  return rc;
}

uint64_t trace_collective_ps(const sim_wire *wire, const bs_et_node *n, uint32_t p) {
  static const uint32_t kinds[BS_ET_COLLS] = {[BS_ET_ALL_REDUCE] = BS_COLL_ALL_REDUCE,
                                              [BS_ET_REDUCE] = BS_COLL_BROADCAST,
                                              [BS_ET_ALL_GATHER] = BS_COLL_ALL_GATHER,
                                              [BS_ET_BROADCAST] = BS_COLL_BROADCAST,
                                              [BS_ET_ALL_TO_ALL] = BS_COLL_ALL_TO_ALL,
                                              [BS_ET_REDUCE_SCATTER] = BS_COLL_REDUCE_SCATTER,
                                              [BS_ET_REDUCE_SCATTER_BLOCK] = BS_COLL_REDUCE_SCATTER,
                                              [BS_ET_BARRIER] = BS_COLL_BARRIER};
  const uint64_t block = n->bytes / p + (n->bytes % p != 0);
  const sim_closed_call call = {
      .kind = kinds[n->coll],
      .ranks = p,
      .element_bytes = 1,
      .count = n->bytes,
      .largest = n->coll == BS_ET_ALL_GATHER ? n->bytes : block, /* Chakra: what each rank gives */
      .busiest = sim_times(p - 1, sim_bytes_ps(block, wire->beta_q32))};
  sim_closed closed;
  sim_closed_of(wire, &call, &closed);
  uint64_t reduce = closed.reduce;
  if (n->coll == BS_ET_REDUCE) /* the tree of a broadcast, upwards */
    reduce = sim_times(sim_log2_up(p), sim_bytes_ps(n->bytes, wire->gamma_q32));
  return sim_add(sim_add(closed.latency, closed.wire), reduce);
}

int32_t trace_match_make(const bs_et *et, trace_match *m, bs_error *err) {
  uint32_t messages = 0;
  for (uint32_t i = 0; i < et->n_nodes; i++)
    messages += et->nodes[i].kind == BS_ET_SEND || et->nodes[i].kind == BS_ET_RECV;
  m->of = malloc(((size_t)et->n_nodes + 1) * sizeof *m->of);
  m->next = malloc(((size_t)et->n_nodes + 1) * sizeof *m->next);
  m->members = malloc(((size_t)messages + 1) * sizeof *m->members);
  if (m->of == NULL || m->next == NULL || m->members == NULL)
    return bs_no_memory(err, "the messages of a trace");
  for (uint32_t i = 0; i < et->n_nodes; i++) m->of[i] = TRACE_NONE;
  const int32_t rc = make_channels(et, m, messages, err);
  return rc == BS_OK ? make_meetings(et, m, err) : rc;
}
