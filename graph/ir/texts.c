/* SPDX-License-Identifier: MIT
 * texts.c - the graph's memory: texts that are kept once each, chains of origins, data of computed constants.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/ir/arena.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"

static uint64_t hash_text(const char *text) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return h;
}

static int table_grow(struct gtexts *t) {
  const uint32_t size = t->table_size == 0 ? 256u : t->table_size * 2u;
  uint32_t *table = malloc(size * sizeof *table);
  if (table == NULL) return 0;
  for (uint32_t i = 0; i < size; i++) table[i] = GNONE;
  for (uint32_t k = 0; k < t->n; k++) {
    uint64_t at = hash_text(t->texts[k]) & (size - 1u);
    while (table[at] != GNONE) at = (at + 1u) & (size - 1u);
    table[at] = k;
  }
  free(t->table);
  t->table = table;
  t->table_size = size;
  return 1;
}

uint32_t graph_text(graph *g, const char *text) {
  struct gtexts *t = g->texts;
  if (t->n * 2u >= t->table_size && !table_grow(t)) return GNONE;
  uint64_t at = hash_text(text) & (t->table_size - 1u);
  for (; t->table[at] != GNONE; at = (at + 1u) & (t->table_size - 1u))
    if (strcmp(t->texts[t->table[at]], text) == 0) return t->table[at];
  if (!ARRAY_GROW(t->texts, t->n, t->cap)) return GNONE;
  char *copy = arena_text(&t->arena, text, strlen(text));
  if (copy == NULL) return GNONE;
  t->texts[t->n] = copy;
  t->table[at] = t->n;
  return t->n++;
}

const char *graph_text_of(const graph *g, uint32_t text) {
  return text < g->texts->n ? g->texts->texts[text] : "";
}

void *graph_data(graph *g, uint64_t bytes) {
  void *data = arena_alloc(&g->texts->arena, bytes, 64);
  if (data != NULL) g->data_bytes += bytes;
  return data;
}

int graph_owns(const graph *g, const void *data) {
  return arena_has(&g->texts->arena, data);
}

uint32_t graph_origin(graph *g, const char *text, uint32_t next) {
  const uint32_t id = graph_text(g, text);
  if (id == GNONE || !ARRAY_GROW(g->origins, g->n_origins, g->cap_origins)) return GNONE;
  g->origins[g->n_origins] = (gorigin){id, next};
  return g->n_origins++;
}

uint32_t graph_origin_join(graph *g, uint32_t a, uint32_t b) {
  uint32_t joined = a;
  for (uint32_t i = b; i != GNONE; i = g->origins[i].next) {
    uint32_t have = a;
    while (have != GNONE && g->origins[have].text != g->origins[i].text) have = g->origins[have].next;
    if (have != GNONE) continue;
    if (!ARRAY_GROW(g->origins, g->n_origins, g->cap_origins)) return a;
    g->origins[g->n_origins] = (gorigin){g->origins[i].text, joined};
    joined = g->n_origins++;
  }
  return joined;
}

uint32_t graph_expr(graph *g, const gexpr *expr) {
  for (uint32_t i = 0; i < g->n_exprs; i++)
    if (memcmp(&g->exprs[i], expr, sizeof *expr) == 0) return i;
  if (!ARRAY_GROW(g->exprs, g->n_exprs, g->cap_exprs)) return GNONE;
  g->exprs[g->n_exprs] = *expr;
  return g->n_exprs++;
}
