/* SPDX-License-Identifier: MIT
 * et.c - building a trace (et.h). Needs are collected as pairs, and sorted by their node at the end. */
#include "formats/et.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

typedef struct bs_et_edge {
  uint32_t node, on, start;
} bs_et_edge;

#define TEXT_LIMIT (UINT64_C(1) << 32)

const char *bs_et_coll_name(uint32_t coll) {
  static const char *const names[BS_ET_COLLS] = {
      "all_reduce", "reduce",     "all_gather",     "gather",         "scatter",
      "broadcast",  "all_to_all", "reduce_scatter", "reduce_scatter", "barrier"};
  return coll < BS_ET_COLLS ? names[coll] : "collective";
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a trace");
}

/* Room for one more element. */
static void *grown(void *data, uint64_t n, uint64_t *room, size_t bytes) {
  if (n < *room) return data;
  const uint64_t more = *room == 0 ? 64 : 2 * *room;
  void *moved = realloc(data, more * bytes);
  if (moved != NULL) *room = more;
  return moved;
}

int32_t bs_et_begin(bs_et *et, uint32_t n_ranks, bs_error *err) {
  uint32_t all = 0;
  memset(et, 0, sizeof *et);
  et->texts.limit = TEXT_LIMIT;
  if (n_ranks == 0 || n_ranks > BS_ET_MAX_RANKS)
    return bs_error_set(err, BS_INPUT, "BS-ET-RANKS", "a trace of %u ranks; 1 to %u are read", n_ranks,
                        BS_ET_MAX_RANKS);
  et->n_ranks = n_ranks;
  et->first_node = calloc((size_t)n_ranks + 1, sizeof *et->first_node);
  return et->first_node != NULL ? bs_et_group_of(et, "", 0, &all, err) : no_memory(err);
}

void bs_et_free(bs_et *et) {
  free(et->nodes);
  free(et->first_node);
  free(et->needs);
  free(et->first_need);
  free(et->groups);
  free(et->edges);
  bs_arena_free(&et->texts);
  memset(et, 0, sizeof *et);
}

const char *bs_et_text(bs_et *et, const char *text, size_t size) {
  if (size == 0) return "";
  char *copy = bs_arena_take(&et->texts, size + 1, 1);
  for (size_t i = 0; copy != NULL && i < size; i++) copy[i] = (unsigned char)text[i] < 32 ? ' ' : text[i];
  return copy;
}

int32_t bs_et_add(bs_et *et, const bs_et_node *node, uint32_t *out_index, bs_error *err) {
  *out_index = et->n_nodes;
  if (et->n_nodes == BS_ET_MAX_NODES)
    return bs_error_set(err, BS_INPUT, "BS-ET-NODES", "more than %u nodes", BS_ET_MAX_NODES);
  if (node->rank >= et->n_ranks || (et->n_nodes > 0 && node->rank < et->nodes[et->n_nodes - 1].rank))
    return bs_error_set(err, BS_INPUT, "BS-ET-RANKS", "rank %u of %u: ranks come in ascending order",
                        node->rank, et->n_ranks);
  bs_et_node *nodes = grown(et->nodes, et->n_nodes, &et->room_nodes, sizeof *nodes);
  if (nodes == NULL) return no_memory(err);
  et->nodes = nodes;
  nodes[et->n_nodes++] = *node;
  return BS_OK;
}

int32_t bs_et_need_add(bs_et *et, uint32_t node, uint32_t on, uint32_t start, bs_error *err) {
  if (et->n_needs == BS_ET_MAX_NEEDS)
    return bs_error_set(err, BS_INPUT, "BS-ET-NEEDS", "more than %u needs", BS_ET_MAX_NEEDS);
  bs_et_edge *edges = grown(et->edges, et->n_needs, &et->room_edges, sizeof *edges);
  if (edges == NULL) return no_memory(err);
  et->edges = edges;
  edges[et->n_needs++] = (bs_et_edge){node, on, start};
  return BS_OK;
}

int32_t bs_et_group_of(bs_et *et, const char *name, size_t size, uint32_t *out_index, bs_error *err) {
  if (size == 1 && name[0] == '0') size = 0;
  for (uint32_t i = et->n_groups; i-- > 0;) { /* most often the newest */
    if (strlen(et->groups[i].name) != size || memcmp(et->groups[i].name, name, size) != 0) continue;
    *out_index = i;
    return BS_OK;
  }
  if (et->n_groups == BS_ET_MAX_GROUPS || memchr(name, 0, size) != NULL)
    return bs_error_set(err, BS_INPUT, "BS-ET-GROUP", "a group's name has a byte 0, or there are over %u",
                        BS_ET_MAX_GROUPS);
  bs_et_group *groups = grown(et->groups, et->n_groups, &et->room_groups, sizeof *groups);
  if (groups == NULL) return no_memory(err);
  et->groups = groups;
  char *copy = bs_arena_take(&et->texts, size + 1, 1);
  if (copy == NULL) return no_memory(err);
  memcpy(copy, name, size);
  groups[et->n_groups] = (bs_et_group){.name = copy};
  *out_index = et->n_groups++;
  return BS_OK;
}

/* ---- the end ------------------------------------------------------------------------------------ */

static int32_t check_node(const bs_et *et, uint32_t index, bs_error *err) {
  const bs_et_node *n = &et->nodes[index];
  char text[160];
  int32_t rc = BS_OK;
  bs_et_node_text(et, index, text, sizeof text);
  if ((n->kind == BS_ET_SEND || n->kind == BS_ET_RECV) && (n->peer >= et->n_ranks || n->peer == n->rank))
    rc = bs_error_set(err, BS_INPUT, "BS-ET-PEER", "%s: there are ranks 0 to %u, and none is its own peer",
                      text, et->n_ranks - 1);
  else if (n->cpu >= BS_ET_MAX_CPUS)
    rc = bs_error_set(err, BS_INPUT, "BS-ET-CPU", "%s: processor %u; a rank has at most %u", text, n->cpu,
                      BS_ET_MAX_CPUS);
  else if (n->bytes > BS_ET_MAX_SIZE || n->flops > BS_ET_MAX_SIZE ||
           (n->ps > BS_ET_MAX_SIZE && n->ps != BS_ET_NO_TIME))
    rc = bs_error_set(err, BS_INPUT, "BS-ET-SIZE", "%s: a number is above 2^62", text);
  return rc == BS_OK ? rc : bs_et_where(et, index, rc, err);
}

/* Pairs become the list of each node, in the order in which they were added. */
static int32_t sort_needs(bs_et *et, bs_error *err) {
  et->first_need = calloc((size_t)et->n_nodes + 2, sizeof *et->first_need);
  et->needs = malloc((et->n_needs + 1) * sizeof *et->needs);
  if (et->first_need == NULL || et->needs == NULL) return no_memory(err);
  uint64_t *at = et->first_need + 1; /* at[node]: where its next need goes; its end when all are there */
  for (uint64_t i = 0; i < et->n_needs; i++) at[et->edges[i].node + 1]++;
  for (uint32_t i = 0; i < et->n_nodes; i++) at[i + 1] += at[i];
  for (uint64_t i = 0; i < et->n_needs; i++) {
    const bs_et_edge *e = &et->edges[i];
    et->needs[at[e->node]++] = (bs_et_need){e->on, e->start};
  }
  free(et->edges);
  et->edges = NULL;
  return BS_OK;
}

/* The ranks that name a group, of all groups whose ranks are not known. */
static int32_t infer_groups(bs_et *et, bs_error *err) {
  uint32_t *last = malloc(et->n_groups * sizeof *last); /* the newest rank of each */
  if (last == NULL) return no_memory(err);
  uint32_t **ranks = calloc(et->n_groups, sizeof *ranks);
  uint32_t *counts = calloc(et->n_groups, sizeof *counts);
  int32_t rc = ranks != NULL && counts != NULL ? BS_OK : no_memory(err);
  for (int pass = 0; rc == BS_OK && pass < 2; pass++) {
    for (uint32_t g = 0; g < et->n_groups; g++) {
      last[g] = UINT32_MAX;
      if (pass == 1 && et->groups[g].n == 0 && counts[g] > 0 &&
          (ranks[g] = bs_arena_take(&et->texts, counts[g], sizeof **ranks)) == NULL)
        rc = no_memory(err);
      counts[g] = 0;
    }
    for (uint32_t i = 0; rc == BS_OK && i < et->n_nodes; i++) {
      const bs_et_node *n = &et->nodes[i];
      if (n->kind != BS_ET_COLL || last[n->group] == n->rank) continue;
      last[n->group] = n->rank;
      if (ranks[n->group] != NULL) ranks[n->group][counts[n->group]] = n->rank;
      counts[n->group]++;
    }
  }
  for (uint32_t g = 0; rc == BS_OK && g < et->n_groups; g++)
    if (ranks[g] != NULL) {
      et->groups[g].ranks = ranks[g];
      et->groups[g].n = counts[g];
      et->inferred++;
    }
  free(last);
  free(ranks);
  free(counts);
  return rc;
}

static int32_t all_ranks(bs_et *et, bs_error *err) {
  uint32_t *all = bs_arena_take(&et->texts, et->n_ranks, sizeof *all);
  if (all == NULL) return no_memory(err);
  for (uint32_t r = 0; r < et->n_ranks; r++) all[r] = r;
  et->groups[0].ranks = all;
  et->groups[0].n = et->n_ranks;
  return BS_OK;
}

int32_t bs_et_end(bs_et *et, bs_error *err) {
  int32_t rc = all_ranks(et, err);
  for (uint32_t i = 0; rc == BS_OK && i < et->n_nodes; i++) {
    rc = check_node(et, i, err);
    et->first_node[et->nodes[i].rank + 1]++;
  }
  for (uint32_t r = 0; r < et->n_ranks; r++) et->first_node[r + 1] += et->first_node[r];
  if (rc == BS_OK) rc = infer_groups(et, err);
  return rc == BS_OK ? sort_needs(et, err) : rc;
}

/* ---- text --------------------------------------------------------------------------------------- */

void bs_et_node_text(const bs_et *et, uint32_t node, char *out_text, size_t size) {
  const bs_et_node *n = &et->nodes[node];
  char what[96] = "calc";
  if (n->kind == BS_ET_SEND || n->kind == BS_ET_RECV)
    snprintf(what, sizeof what, "%s of %" PRIu64 " bytes %s rank %u, tag %u",
             n->kind == BS_ET_SEND ? "send" : "recv", n->bytes, n->kind == BS_ET_SEND ? "to" : "from",
             n->peer, n->tag);
  if (n->kind == BS_ET_COLL)
    snprintf(what, sizeof what, "%s of %" PRIu64 " bytes%s%.24s", bs_et_coll_name(n->coll), n->bytes,
             n->group != 0 ? ", group " : "", et->groups[n->group].name);
  if (n->kind == BS_ET_MEMORY) snprintf(what, sizeof what, "memory of %" PRIu64 " bytes", n->bytes);
  snprintf(out_text, size, "rank %u, node %" PRIu64 " (%s)", n->rank, n->id, what);
}

int32_t bs_et_where(const bs_et *et, uint32_t node, int32_t code, bs_error *err) {
  if (et->source != NULL) bs_error_where(err, "%.140s:%" PRIu64, et->source, et->nodes[node].id);
  return code;
}
