/* SPDX-License-Identifier: MIT
 * ranks.c - which regions stand on a number of ranks, which rows and columns a rank has, and the report. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/split/split_inside.h"

/* ---- regions that stand ---------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void refuse(gsplit_region *r, const graph *g, uint32_t node,
                                                         const char *format, ...) {
  char name[112], text[112];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  gsplit_name(g, node, name, sizeof name);
  snprintf(r->why, sizeof r->why, "%s %s", name, text);
  r->refused = 1;
  r->stop = node;
}

/* A node that reads a value, or writes it; GNONE: no node does. */
static uint32_t node_of(const graph *g, const gvalue *v) {
  return v->first_use != GNONE ? g->uses[v->first_use].node : v->producer;
}

/* The first node that writes into a root. */
static uint32_t writer_of(const graph *g, uint32_t root, uint32_t otherwise) {
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view)
    if (g->values[i].producer != GNONE) return g->values[i].producer;
  return otherwise;
}

static void check_root(const gsplit *s, const graph *g, const gsplit_root *root, uint32_t ranks,
                       gsplit_region *r) {
  const uint32_t writer = writer_of(g, root->root, s->products[r->f].node);
  for (uint32_t i = 0; i < root->n_parts && !r->refused; i++)
    if (root->parts[i].units % ranks != 0)
      refuse(r, g, writer, "has %" PRId64 " units of %" PRId64 " elements, which %u ranks cannot share alike",
             root->parts[i].units, root->parts[i].width, ranks);
  for (uint32_t i = root->root; i != GNONE && !r->refused; i = g->values[i].next_view) {
    gvalue v = g->values[i];
    const char *why;
    const uint32_t node = node_of(g, &v);
    if (node == GNONE || gsplit_writer(g, i) != GNONE) continue;
    if (gsplit_view_local(root, ranks, &v, &why) != BS_OK) refuse(r, g, node, "reads a view that %s", why);
  }
}

static void check_cut(const graph *g, const gsplit_cut *cut, uint32_t ranks, gsplit_region *r) {
  const int64_t n = g->values[g->nodes[cut->node].in[cut->arg]].dims[cut->dim];
  if (n % ranks != 0 && !r->refused)
    refuse(r, g, cut->node, "reads %" PRId64 " entries, which %u ranks cannot share alike", n, ranks);
}

void gsplit_for(gsplit *s, const graph *g, uint32_t ranks) {
  s->ranks = ranks;
  for (uint32_t i = 0; i < s->n_regions; i++) {
    s->regions[i].refused = 0;
    s->regions[i].stop = GNONE;
    s->regions[i].why[0] = '\0';
  }
  for (uint32_t i = 0; i < s->n_roots; i++)
    check_root(s, g, &s->roots[i], ranks, &s->regions[s->roots[i].region]);
  for (uint32_t i = 0; i < s->n_cuts; i++) check_cut(g, &s->cuts[i], ranks, &s->regions[s->cuts[i].region]);
}

int gsplit_is_split(const gsplit *s, const graph *g, uint32_t value) {
  const uint32_t root = value < s->n_values ? s->root_of[g->values[value].base] : GNONE;
  return root != GNONE && !s->regions[s->roots[root].region].refused;
}

int gsplit_stands(const gsplit *s, uint32_t product) {
  const uint32_t region = s->products[product].region;
  return region != GNONE && !s->regions[region].refused;
}

/* ---- orders ---------------------------------------------------------------------------------- */

void gsplit_units(const gsplit *s, const graph *g, uint32_t product, int64_t *out_units, int64_t *out_width) {
  const gvalue *x = &g->values[g->nodes[s->products[product].node].in[0]];
  const gsplit_root *root = &s->roots[s->root_of[x->base]];
  gsplit_view how = {0, 0};
  gsplit_view_of(root, x, &how);
  *out_units = root->parts[how.part].units;
  *out_width = root->parts[how.part].width;
}

/* Where unit `at` of a part of `n` units comes from, if `units` are in another order; -1: the units of the
 * part are groups of others that do not stay together. */
static int64_t unit_from(int64_t at, int64_t n, const uint32_t *units, int64_t n_units) {
  if (units == NULL) return at;
  if (n % n_units == 0) { /* several of them make a unit of S */
    const int64_t each = n / n_units;
    return (int64_t)units[at / each] * each + at % each;
  }
  if (n_units % n != 0) return -1;
  const int64_t each = n_units / n, first = units[at * each];
  for (int64_t i = 1; i < each; i++)
    if (units[at * each + i] != first + i) return -1;
  return first % each == 0 ? first / each : -1;
}

static int32_t refuse_units(int64_t n, uint32_t n_units, bs_error *err) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-SPLIT-UNITS",
                      "%" PRId64 " units of a product do not follow %u units in another order", n, n_units);
}

static int32_t add_part(const gsplit_part *p, uint32_t ranks, uint32_t rank, const uint32_t *units,
                        uint32_t n_units, bs_order *out, bs_error *err) {
  const int64_t n = p->units / ranks;
  int32_t rc = BS_OK;
  if (units == NULL) return bs_order_add(out, p->begin + rank * n * p->width, n * p->width, err);
  for (int64_t i = rank * n; i < (rank + 1) * n && rc == BS_OK; i++) {
    const int64_t from = unit_from(i, p->units, units, n_units);
    if (from < 0) return refuse_units(p->units, n_units, err);
    rc = bs_order_add(out, p->begin + from * p->width, p->width, err);
  }
  return rc;
}

/* Every value of a region gets the order, not F's output alone: groups of another value stay together too. */
static int32_t check_units(const gsplit *s, uint32_t region, const uint32_t *units, uint32_t n_units,
                           bs_error *err) {
  if (units == NULL) return BS_OK;
  if (n_units == 0) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SPLIT-UNITS", "an order of no units");
  for (uint32_t i = 0; i < s->n_cuts; i++)
    if (s->cuts[i].region == region)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-SPLIT-UNITS",
                          "a value between the two products is cut by place, so that units keep their order");
  for (uint32_t i = 0; i < s->n_roots; i++)
    for (uint32_t k = 0; s->roots[i].region == region && k < s->roots[i].n_parts; k++) {
      const int64_t n = s->roots[i].parts[k].units;
      for (int64_t at = 0; at < n; at++)
        if (unit_from(at, n, units, n_units) < 0) return refuse_units(n, n_units, err);
    }
  return BS_OK;
}

int32_t gsplit_order(const gsplit *s, const graph *g, uint32_t product, const uint32_t *units,
                     uint32_t n_units, bs_order *out, bs_error *err) {
  const gsplit_product *p = &s->products[product];
  memset(out, 0, sizeof *out);
  if (!gsplit_stands(s, product) || p->role == GSPLIT_S)
    return bs_order_add(out, 0, p->role == GSPLIT_S ? p->k : p->n, err);
  const gsplit_root *root = &s->roots[s->root_of[g->values[g->nodes[p->node].out[0]].base]];
  int32_t rc = check_units(s, p->region, units, n_units, err);
  for (uint32_t rank = 0; rank < s->ranks && rc == BS_OK; rank++)
    for (uint32_t i = 0; i < root->n_parts && rc == BS_OK; i++)
      rc = add_part(&root->parts[i], s->ranks, rank, units, n_units, out, err);
  if (rc == BS_OK) rc = bs_order_check(out, p->n, err);
  if (rc != BS_OK) bs_order_free(out);
  return rc;
}

/* ---- the report ------------------------------------------------------------------------------ */

static void put_role(const gsplit *s, const graph *g, uint32_t product, bs_text *t) {
  const gsplit_product *p = &s->products[product];
  const gsplit_region *r = &s->regions[p->region];
  bs_text_printf(t, " %s %u", p->role == GSPLIT_F ? "F" : "S", p->region);
  if (p->role == GSPLIT_F) {
    const gsplit_root *root = &s->roots[s->root_of[g->values[g->nodes[p->node].out[0]].base]];
    for (uint32_t i = 0; i < root->n_parts; i++)
      bs_text_printf(t, "%s%" PRId64 " x %" PRId64, i > 0 ? ", " : ": ", root->parts[i].units,
                     root->parts[i].width);
    if (r->n_states > 0) bs_text_printf(t, "; %u states", r->n_states);
    if (r->refused) bs_text_printf(t, "; refused: %s", r->why);
  }
  bs_text_append(t, "\n", 1);
}

void gsplit_text(const gsplit *s, const graph *g, bs_text *t) {
  for (uint32_t i = 0; i < s->n_products; i++) {
    const gsplit_product *p = &s->products[i];
    char name[112];
    gsplit_name(g, p->node, name, sizeof name);
    bs_text_printf(t, "%s", name);
    if (p->role != GSPLIT_ALONE)
      put_role(s, g, i, t);
    else
      bs_text_printf(t, " alone: %s\n", p->why);
  }
}
