/* SPDX-License-Identifier: MIT
 * device_class.c - the parts of a device: a class each, of a kind that says which fields it has. */
#include <string.h>

#include "core/base/error.h"
#include "sim/device_read.h"

static const char *const kinds[] = {"server", "link", "memory", "cache", "queue", "net"};
_Static_assert(sizeof kinds / sizeof kinds[0] == SIM_NET + 1, "a name for each");
static const char *const does[] = {"nothing", "product", "map", "command"};
static const char *const shapes[] = {"mesh", "ring", "torus2d", "fullmesh", "crossbar"};
static const char *const nodes[] = {"here", "spread", "own"};
static const char *const truths[] = {"false", "true"};
static const char *const rates[] = {"f64", "f32", "bf16", "f16", "f8", "i8"};

/* The fields of each kind; all have at, kind, pJ and assumed. */
enum { FIELDS = 10 };
static const char *const fields[][FIELDS] = {
    {"at", "kind", "pJ", "does", "workers", "first_s", "rate", "grain"},
    {"at", "kind", "pJ", "workers", "first_s", "Bps", "flit_B"},
    {"at", "kind", "pJ", "channels", "first_s", "Bps", "flit_B", "gap_s", "interleave_B", "bytes"},
    {"at", "kind", "pJ", "bytes", "hit"},
    {"at", "kind", "pJ", "slots", "first_s", "credit_s"},
    {"at", "kind", "pJ", "shape", "size", "first_s", "Bps", "flit_B"},
};
static const char *const memory_more[] = {"node", "posted"};

const char *sim_class_kind_name(uint32_t kind) {
  return kind <= SIM_NET ? kinds[kind] : "?";
}

static int32_t check_fields(const sim_class *c, const sim_node *node, bs_error *err) {
  const char *known[FIELDS + 3];
  uint32_t n = 0;
  while (n < FIELDS && fields[c->kind][n] != NULL) {
    known[n] = fields[c->kind][n];
    n++;
  }
  for (uint32_t m = 0; m < 2 && c->kind == SIM_MEMORY; m++) known[n++] = memory_more[m];
  known[n++] = "assumed";
  return sim_read_fields(node, known, n, err);
}

static int32_t read_rates(sim_class *c, const sim_node *node, bs_error *err) {
  double all = 0;
  if (node == NULL) return BS_OK;
  if (node->kind != SIM_NODE_MAP) {
    const int32_t rc = sim_read_rate(node, &all, err);
    for (uint32_t r = 0; r < SIM_RATES; r++) c->rate[r] = all;
    return rc;
  }
  int32_t rc = sim_read_fields(node, rates, SIM_RATES, err);
  for (uint32_t r = 0; rc == BS_OK && r < SIM_RATES; r++)
    rc = sim_read_rate(sim_tree_entry(node, rates[r]), &c->rate[r], err);
  return rc;
}

static int32_t read_numbers(sim_class *c, const sim_node *node, bs_error *err) {
  static const char *const counts[] = {"workers", "channels", "slots"};
  uint64_t workers = 1, flit = 0;
  int32_t rc = BS_OK;
  c->interleave = 256;
  for (int i = 0; rc == BS_OK && i < 3; i++)
    rc = sim_read_count(sim_tree_entry(node, counts[i]), 1, 4096, &workers, err);
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "flit_B"), 1, 1 << 20, &flit, err);
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "interleave_B"), 1, 1 << 30, &c->interleave, err);
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "bytes"), 1, UINT64_C(1) << 50, &c->bytes, err);
  if (rc == BS_OK) rc = sim_read_seconds(sim_tree_entry(node, "first_s"), &c->first, err);
  if (rc == BS_OK) rc = sim_read_seconds(sim_tree_entry(node, "gap_s"), &c->gap, err);
  if (rc == BS_OK) rc = sim_read_seconds(sim_tree_entry(node, "credit_s"), &c->credit, err);
  if (rc == BS_OK) rc = sim_read_real(sim_tree_entry(node, "pJ"), 0, 1e12, &c->pJ, err);
  if (rc == BS_OK) rc = read_rates(c, sim_tree_entry(node, c->kind == SIM_SERVER ? "rate" : "Bps"), err);
  c->workers = (uint32_t)workers;
  c->flit = (uint32_t)flit;
  return rc;
}

static int32_t read_words(sim_class *c, const sim_node *node, bs_error *err) {
  const sim_node *grain = sim_tree_entry(node, "grain");
  uint32_t n = 0;
  int32_t rc = sim_read_word(sim_tree_entry(node, "does"), does, SIM_DOES, &c->does, err);
  if (rc == BS_OK) rc = sim_read_word(sim_tree_entry(node, "shape"), shapes, 5, &c->shape, err);
  if (rc == BS_OK) rc = sim_read_word(sim_tree_entry(node, "node"), nodes, 3, &c->node, err);
  if (rc == BS_OK) rc = sim_read_word(sim_tree_entry(node, "posted"), truths, 2, &c->posted, err);
  if (rc == BS_OK) rc = sim_read_word(sim_tree_entry(node, "assumed"), truths, 2, &c->assumed, err);
  c->grain[0] = c->grain[1] = c->grain[2] = 1;
  if (rc != BS_OK || grain == NULL) return rc;
  rc = sim_read_counts(grain, c->grain, 3, &n, err);
  if (rc == BS_OK && n == 2)
    rc = sim_read_wrong(grain, err, "BS-DEVICE-VALUE", "a grain is one number, or [rows, columns, depth]");
  return rc;
}

/* The places that a net or a memory of places joins: those of the next level, in one of its own. */
static int32_t check_places(const sim_device *d, sim_class *c, const sim_node *node, bs_error *err) {
  const uint32_t below = c->level + 1 < d->n_levels ? d->levels[c->level + 1].each : 0;
  const sim_node *size = sim_tree_entry(node, "size");
  uint32_t n = 0;
  int32_t rc = size != NULL ? sim_read_counts(size, c->size, 2, &n, err) : BS_OK;
  if (rc != BS_OK || (c->kind == SIM_MEMORY && c->node == SIM_NODE_HERE)) return rc;
  if (below == 0)
    return sim_read_wrong(node, err, "BS-DEVICE-LEVEL", "%s is at the last level: it has no places to join",
                          c->name);
  if (c->kind == SIM_MEMORY && c->workers % below != 0)
    return sim_read_wrong(node, err, "BS-DEVICE-SIZE", "%s has %u channels for %u places: they do not divide",
                          c->name, c->workers, below);
  if (c->kind != SIM_NET) return BS_OK;
  if (c->shape == SIM_SHAPE_MESH || c->shape == SIM_SHAPE_TORUS2D) {
    if (n == 2 && (uint64_t)c->size[0] * c->size[1] == below) return BS_OK;
    return sim_read_wrong(size != NULL ? size : node, err, "BS-DEVICE-SIZE",
                          "%s needs size: [columns, rows] whose product is %u, the places of level %s",
                          c->name, below, d->levels[c->level + 1].name);
  }
  c->size[0] = below;
  c->size[1] = 1;
  if (c->shape == SIM_SHAPE_FULLMESH && below > 256)
    return sim_read_wrong(node, err, "BS-DEVICE-SIZE", "a fullmesh joins at most 256 places, not %u", below);
  return BS_OK;
}

static int32_t need(const sim_class *c, const sim_node *node, const char *field, bs_error *err) {
  if (sim_tree_entry(node, field) != NULL) return BS_OK;
  return sim_read_wrong(node, err, "BS-DEVICE-FIELD", "%s needs the field %s", c->name, field);
}

static int32_t read_class(sim_device *d, const sim_node *node, bs_error *err) {
  static const char *const needed[] = {NULL, "Bps", "Bps", "bytes", "slots", "Bps"};
  static const char *const rows[] = {"total", "idle"}; /* of explain, beside a row for each part */
  sim_class *c = &d->classes[d->n_classes];
  c->pJ = -1;
  int32_t rc = sim_read_name(node, node->key, c->name, sizeof c->name, err);
  if (rc == BS_OK) rc = sim_read_kind(node, SIM_NODE_MAP, err);
  if (rc == BS_OK) rc = need(c, node, "at", err);
  if (rc == BS_OK) rc = need(c, node, "kind", err);
  if (rc != BS_OK) return rc;
  for (uint32_t l = 0; l < d->n_levels; l++)
    if (strcmp(d->levels[l].name, c->name) == 0)
      return sim_read_wrong(node, err, "BS-DEVICE-NAME", "'%s' is the name of a level", c->name);
  for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (strcmp(rows[i], c->name) == 0)
      return sim_read_wrong(node, err, "BS-DEVICE-NAME", "'%s' is the name of a row of the table", c->name);
  rc = sim_read_level(d, sim_tree_entry(node, "at"), &c->level, err);
  if (rc == BS_OK) rc = sim_read_word(sim_tree_entry(node, "kind"), kinds, SIM_NET + 1, &c->kind, err);
  if (rc == BS_OK) rc = check_fields(c, node, err);
  if (rc == BS_OK && needed[c->kind] != NULL) rc = need(c, node, needed[c->kind], err);
  if (rc == BS_OK && c->kind == SIM_NET) rc = need(c, node, "shape", err);
  if (rc == BS_OK && c->kind == SIM_CACHE) rc = need(c, node, "hit", err);
  if (rc == BS_OK) rc = read_numbers(c, node, err);
  if (rc == BS_OK) rc = read_words(c, node, err);
  if (rc == BS_OK && (c->kind == SIM_NET || c->kind == SIM_MEMORY)) rc = check_places(d, c, node, err);
  d->n_classes++;
  return rc;
}

/* Which memory each cache keeps its tiles in. */
static int32_t read_hits(sim_device *d, const sim_node *parts, bs_error *err) {
  const char *names[SIM_CLASSES];
  uint32_t n = 0;
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (d->classes[c].kind == SIM_MEMORY && d->classes[c].node != SIM_NODE_OWN)
      names[n++] = d->classes[c].name;
  for (uint32_t c = 0; c < d->n_classes; c++) {
    if (d->classes[c].kind != SIM_CACHE) continue;
    const sim_node *hit = sim_tree_entry(sim_tree_entry(parts, d->classes[c].name), "hit");
    uint32_t word = 0;
    const int32_t rc = sim_read_word(hit, names, n, &word, err);
    if (rc != BS_OK) return rc;
    d->classes[c].hit = sim_device_class(d, names[word]);
  }
  return BS_OK;
}

int32_t sim_read_classes(sim_device *d, const sim_node *parts, bs_error *err) {
  int32_t rc = sim_read_kind(parts, SIM_NODE_MAP, err);
  for (const sim_node *n = parts->first; rc == BS_OK && n != NULL; n = n->next) {
    if (d->n_classes == SIM_CLASSES)
      return sim_read_wrong(n, err, "BS-DEVICE-SIZE", "a device has at most %d parts", SIM_CLASSES);
    rc = read_class(d, n, err);
  }
  return rc == BS_OK ? read_hits(d, parts, err) : rc;
}
