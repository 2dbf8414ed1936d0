/* SPDX-License-Identifier: MIT
 * misses.c - what passes say of nodes that they left: a row for each node of the model, pass and reason. */
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "graph/ir/arena.h"
#include "graph/run/session.h"

static void add(gmisses *m, const char *node, const char *pass, const char *text) {
  for (uint32_t i = 0; i < m->n; i++)
    if (m->rows[i].pass == pass && strcmp(m->rows[i].node, node) == 0 && strcmp(m->rows[i].text, text) == 0)
      return;
  m->failed |= !ARRAY_GROW(m->rows, m->n, m->cap);
  if (m->failed) return;
  gmiss row = {arena_text(&m->texts, node, strlen(node)), arena_text(&m->texts, text, strlen(text)), pass};
  m->failed |= row.node == NULL || row.text == NULL;
  if (!m->failed) m->rows[m->n++] = row;
}

static void add_origins(gmisses *m, const graph *g, uint32_t node, const char *pass, const char *text) {
  for (uint32_t o = g->nodes[node].origin; o != GNONE; o = g->origins[o].next)
    add(m, graph_text_of(g, g->origins[o].text), pass, text);
}

void gmiss_add(void *user, const graph *g, uint32_t node, const char *pass, const char *text) {
  gmisses *m = user;
  if (node != GNONE) {
    add_origins(m, g, node, pass, text);
    return;
  }
  /* The first pass begins: all nodes are there yet, each gets a row without a pass. */
  for (uint32_t id = m->n == 0 ? g->first : GNONE; id != GNONE; id = g->nodes[id].next)
    add_origins(m, g, id, NULL, "");
  uint32_t left = 0;
  for (uint32_t i = 0; i < m->n; i++)
    if (m->rows[i].pass == NULL || strcmp(m->rows[i].pass, pass) != 0) m->rows[left++] = m->rows[i];
  m->n = left;
}

void gmisses_put(const gmisses *m, int json, bs_text *t) {
  if (json) bs_text_printf(t, "\"misses\":[");
  for (uint32_t i = 0; i < m->n; i++) {
    const gmiss *row = &m->rows[i];
    if (!json) {
      bs_text_printf(t, "%s\t%s\t%s\n", row->node, row->pass != NULL ? row->pass : "", row->text);
      continue;
    }
    bs_text_printf(t, "%s\n{\"node\":", i > 0 ? "," : "");
    graph_put_json_text(t, row->node);
    bs_text_printf(t, ",\"pass\":\"%s\",\"text\":", row->pass != NULL ? row->pass : "");
    graph_put_json_text(t, row->text);
    bs_text_append(t, "}", 1);
  }
  if (json) bs_text_append(t, "]", 1);
}

void gmisses_free(gmisses *m) {
  arena_free(&m->texts);
  free(m->rows);
}
