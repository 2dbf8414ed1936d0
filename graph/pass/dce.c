/* SPDX-License-Identifier: MIT
 * dce.c - removes nodes whose results are never read. */
#include <stdlib.h>

#include "core/base/error.h"
#include "graph/pass/pass.h"

/* Marks what must be computed, from the last node to the first: a node is needed when a needed node reads one
 * of the values that it writes, or a part of its root, or a port does. */
int32_t gpass_dce(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  (void)ctx;
  unsigned char *needed = calloc(g->n_values + 1u, 1); /* of roots */
  if (needed == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a pass");
  for (uint32_t i = 0; i < g->n_outputs; i++) needed[g->values[g->outputs[i].value].base] = 1;
  for (uint32_t i = 0; i < g->n_states; i++) needed[g->values[g->states[i].value].base] = 1;
  for (uint32_t id = g->last, before; id != GNONE; id = before) {
    const gnode *n = &g->nodes[id];
    before = n->prev;
    int used = 0;
    for (uint32_t k = 0; k < n->n_out; k++) used |= n->out[k] != GNONE && needed[g->values[n->out[k]].base];
    if (!used) {
      graph_remove_node(g, id);
      ++*out_changes;
      continue;
    }
    for (uint32_t k = 0; k < n->n_in; k++)
      if (n->in[k] != GNONE) needed[g->values[n->in[k]].base] = 1;
  }
  free(needed);
  return BS_OK;
}
