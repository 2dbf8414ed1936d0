/* SPDX-License-Identifier: MIT
 * et.h - a trace: what each rank computes, sends, receives and joins, and what each of these nodes needs.
 * Chakra (chakra.h) and GOAL (goal.h) are read into it and written from it. One thread at a time. */
#ifndef BS_FORMATS_ET_H
#define BS_FORMATS_ET_H
#include <stddef.h>

#include "formats/arena.h"

enum bs_et_kind { BS_ET_CALC = 0, BS_ET_SEND, BS_ET_RECV, BS_ET_COLL, BS_ET_MEMORY, BS_ET_KINDS };

/* Chakra's numbers of collectives. */
enum bs_et_coll {
  BS_ET_ALL_REDUCE = 0,
  BS_ET_REDUCE,
  BS_ET_ALL_GATHER,
  BS_ET_GATHER,
  BS_ET_SCATTER,
  BS_ET_BROADCAST,
  BS_ET_ALL_TO_ALL,
  BS_ET_REDUCE_SCATTER,
  BS_ET_REDUCE_SCATTER_BLOCK,
  BS_ET_BARRIER,
  BS_ET_COLLS
};
/* "all_reduce", ...; "collective" for an unknown number. */
const char *bs_et_coll_name(uint32_t coll);

#define BS_ET_NO_TIME UINT64_MAX /* no duration is recorded */
#define BS_ET_MAX_RANKS 65536u
#define BS_ET_MAX_NODES (UINT32_C(1) << 26)
#define BS_ET_MAX_NEEDS (UINT32_C(1) << 28)
#define BS_ET_MAX_CPUS 256u /* of a rank */
#define BS_ET_MAX_GROUPS 4096u
#define BS_ET_MAX_SIZE (UINT64_C(1) << 62) /* of bytes, FLOPs and ps */

typedef struct bs_et_node {
  uint64_t id;      /* of a Chakra file, or the line of a GOAL file */
  const char *name; /* "": it has none */
  uint64_t ps;      /* recorded; BS_ET_NO_TIME: none */
  uint64_t start;   /* when it began, in ps; 0 where the file does not say it */
  uint64_t flops;   /* 0: none are given */
  uint64_t bytes;   /* of a message, of a collective as Chakra counts them, or moved by work */
  uint32_t rank, kind, coll, peer, tag;
  uint32_t group; /* index of groups: BS_ET_COLL */
  uint32_t cpu;   /* which of the rank's processors it occupies */
  uint32_t nic;   /* which of its network ports */
} bs_et_node;

/* A node begins when all that it needs has ended or, with `start`, begun. */
typedef struct bs_et_need {
  uint32_t on; /* a node of the same rank */
  uint32_t start;
} bs_et_need;

typedef struct bs_et_group {
  const char *name;
  const uint32_t *ranks; /* ascending */
  uint32_t n;            /* 0: its ranks are not known */
} bs_et_group;

typedef struct bs_et {
  uint32_t n_ranks, n_nodes;
  uint64_t n_needs;
  uint32_t n_groups;
  bs_et_node *nodes;        /* rank by rank */
  uint32_t *first_node;     /* of each rank, and the end: n_ranks + 1 */
  bs_et_need *needs;        /* node by node */
  uint64_t *first_need;     /* of each node, and the end: n_nodes + 1 */
  bs_et_group *groups;      /* the first has the name "", and all ranks */
  uint64_t unknown;         /* attributes that the reader does not know */
  uint32_t inferred;        /* groups whose ranks are those that name them */
  const char *source;       /* the GOAL file, of which the id of a node is the line; NULL: another format */
  uint64_t controls;        /* needs of Chakra that say who has called a node: they order nothing */
  struct bs_et_edge *edges; /* until bs_et_end */
  uint64_t room_nodes, room_edges, room_groups;
  bs_arena texts;
} bs_et;

/* An empty trace of n_ranks. Errors of all functions: BS_INPUT with BS-ET-*, or BS_NO_MEMORY. bs_et_free may
 * be called after each. */
int32_t bs_et_begin(bs_et *et, uint32_t n_ranks, bs_error *err);
void bs_et_free(bs_et *et);
/* Appends a node; ranks ascend. node->name must live as long as the trace (bs_et_text). */
int32_t bs_et_add(bs_et *et, const bs_et_node *node, uint32_t *out_index, bs_error *err);
int32_t bs_et_need_add(bs_et *et, uint32_t node, uint32_t on, uint32_t start, bs_error *err);
/* The index of the group of this name, which is added where it is new. "0" is "". */
int32_t bs_et_group_of(bs_et *et, const char *name, size_t size, uint32_t *out_index, bs_error *err);
/* Copies a text: bytes below 32 become blanks. NULL: no memory. */
const char *bs_et_text(bs_et *et, const char *text, size_t size);
/* All nodes and needs are there: sorts them, and checks peers and processors. Groups whose ranks no file
 * gives get those ranks that name them. */
int32_t bs_et_end(bs_et *et, bs_error *err);
/* Reads the ranks of groups from a JSON file {"name": [ranks], ...}; before bs_et_end. */
int32_t bs_et_groups_read(bs_et *et, const char *path, bs_error *err);
/* "rank 2, node 7 (recv of 8 bytes from rank 1, tag 0)". */
void bs_et_node_text(const bs_et *et, uint32_t node, char *out_text, size_t size);
/* Names the file and line of a node of GOAL in err->where. Returns the code. */
int32_t bs_et_where(const bs_et *et, uint32_t node, int32_t code, bs_error *err);
#endif
