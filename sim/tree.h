/* SPDX-License-Identifier: MIT
 * tree.h - the canonical text of a device as a tree: {key: value, key: [a, b], key: "quoted, text"}. It is
 * what lab writes of a YAML file; a plugin, which reads no file, gets the text alone. */
#ifndef BS_SIM_TREE_H
#define BS_SIM_TREE_H
#include "blockshock/blockshock.h"

enum { SIM_TREE_TEXT = 4095, SIM_TREE_DEPTH = 8 };
enum sim_node_kind { SIM_NODE_SCALAR = 0, SIM_NODE_LIST, SIM_NODE_MAP };

typedef struct sim_node {
  uint32_t kind;    /* enum sim_node_kind */
  const char *key;  /* of an entry of a map, else "" */
  const char *text; /* of a scalar */
  const struct sim_node *parent;
  struct sim_node *first, *next;
} sim_node;

typedef struct sim_tree {
  sim_node *nodes; /* the first is the root, a map */
  uint32_t n;
  char *text;
} sim_tree;

/* BS_CONFIG BS-DEVICE-TEXT says which character is wrong. Free it in every case. */
int32_t sim_tree_read(const char *text, sim_tree *out, bs_error *err);
void sim_tree_free(sim_tree *tree);
/* The entry of a map; NULL: none. */
const sim_node *sim_tree_entry(const sim_node *map, const char *key);
/* "parts.tensor.rate" of a node; entries of lists have none of their own. */
void sim_tree_path(const sim_node *node, char *out, uint32_t size);
#endif
