/* SPDX-License-Identifier: MIT
 * device.c - see device.h. The head of a device, its ways, launch and tiles; device_class.c has the parts. */
#include "sim/device.h"

#include <string.h>

#include "core/base/error.h"
#include "sim/device_read.h"

static const char *const ways[] = {"load", "store", "send"};

const char *sim_way_name(uint32_t way) {
  return way < SIM_WAYS ? ways[way] : "?";
}

uint32_t sim_device_class(const sim_device *d, const char *name) {
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (strcmp(d->classes[c].name, name) == 0) return c;
  return SIM_CLASSES;
}

int32_t sim_device_fits(const sim_device *d, uint64_t bytes, bs_error *err) {
  if (d->scratch == 0 || bytes <= d->scratch) return BS_OK;
  bs_error_set(err, BS_NO_MEMORY, "BS-INSIDE-SCRATCH",
               "the buffers of %s take %llu bytes, its scratch on %s has %llu",
               d->lanes_each == 1 ? "a lane" : "a place's lanes", (unsigned long long)bytes, d->name,
               (unsigned long long)d->scratch);
  bs_error_hint(err, "smaller tiles, or fewer stages");
  return BS_NO_MEMORY;
}

int sim_device_is_hit(const sim_device *d, uint32_t class) {
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (d->classes[c].kind == SIM_CACHE && d->classes[c].hit == class) return 1;
  return 0;
}

uint32_t sim_device_memory(const sim_device *d) {
  const sim_way_of *way = &d->ways[SIM_WAY_LOAD];
  for (uint32_t i = 0; i < way->n; i++)
    if (d->classes[way->classes[i]].kind == SIM_MEMORY && !sim_device_is_hit(d, way->classes[i]))
      return way->classes[i];
  return SIM_CLASSES;
}

/* ---- levels and lanes -------------------------------------------------------------------------- */

static int32_t read_levels(sim_device *d, const sim_node *node, bs_error *err) {
  d->n_levels = 1;
  memcpy(d->levels[0].name, "package", sizeof "package");
  d->levels[0].each = d->levels[0].places = 1;
  if (node == NULL) return BS_OK;
  int32_t rc = sim_read_kind(node, SIM_NODE_MAP, err);
  for (const sim_node *n = node->first; rc == BS_OK && n != NULL; n = n->next) {
    uint64_t each = 0;
    if (d->n_levels == SIM_LEVELS)
      return sim_read_wrong(n, err, "BS-DEVICE-LEVEL", "a device has at most %d levels below the package",
                            SIM_LEVELS - 1);
    rc = sim_read_name(n, n->key, d->levels[d->n_levels].name, sizeof d->levels[0].name, err);
    if (rc == BS_OK) rc = sim_read_count(n, 1, SIM_PLACES, &each, err);
    if (rc != BS_OK) return rc;
    const uint64_t places = each * d->levels[d->n_levels - 1].places;
    if (places > SIM_PLACES)
      return sim_read_wrong(n, err, "BS-DEVICE-LEVEL",
                            "level %s has %llu places in all, at most %d are allowed", n->key,
                            (unsigned long long)places, SIM_PLACES);
    d->levels[d->n_levels].each = (uint32_t)each;
    d->levels[d->n_levels++].places = (uint32_t)places;
  }
  return rc;
}

static int32_t read_lane(sim_device *d, const sim_node *node, bs_error *err) {
  static const char *const fields[] = {"at", "count", "scratch_B", "slots_B"};
  const sim_node *at;
  uint64_t count = 1;
  int32_t rc = sim_read_fields(node, fields, 4, err);
  if (rc != BS_OK) return rc;
  at = sim_tree_entry(node, "at");
  if (at == NULL) return sim_read_wrong(node, err, "BS-DEVICE-FIELD", "a lane needs the field at");
  rc = sim_read_level(d, at, &d->lane_level, err);
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "count"), 1, 64, &count, err);
  if (rc == BS_OK)
    rc = sim_read_count(sim_tree_entry(node, "scratch_B"), 0, UINT64_C(1) << 40, &d->scratch, err);
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "slots_B"), 0, UINT64_C(1) << 40, &d->slots, err);
  d->lanes_each = (uint32_t)count;
  d->lanes = d->levels[d->lane_level].places * d->lanes_each;
  if (rc == BS_OK && d->lanes > SIM_LANES_MOST)
    rc = sim_read_wrong(node, err, "BS-DEVICE-SIZE", "a device has at most %d lanes, not %u", SIM_LANES_MOST,
                        d->lanes);
  return rc;
}

/* ---- ways -------------------------------------------------------------------------------------- */

static int32_t read_way(const sim_device *d, const sim_node *node, sim_way_of *out, bs_error *err) {
  const char *names[SIM_CLASSES];
  int32_t rc = sim_read_kind(node, SIM_NODE_LIST, err);
  for (uint32_t c = 0; c < d->n_classes; c++) names[c] = d->classes[c].name;
  for (const sim_node *n = node->first; rc == BS_OK && n != NULL; n = n->next) {
    if (out->n == SIM_WAY_PARTS)
      return sim_read_wrong(node, err, "BS-DEVICE-WAY", "a way has at most %d parts", SIM_WAY_PARTS);
    out->classes[out->n] = sim_device_class(d, n->text);
    if (out->classes[out->n++] == SIM_CLASSES)
      return sim_read_unknown(n, n->text, "BS-DEVICE-WAY", "a part of the device", names, d->n_classes, err);
  }
  return rc;
}

/* What a token passes once: its line of a cache, the place of its bytes, and a slot until a net moves it on.
 */
static int32_t check_twice(const sim_device *d, const sim_node *node, const sim_way_of *way, bs_error *err) {
  for (uint32_t i = 0; i < way->n; i++) {
    const sim_class *c = &d->classes[way->classes[i]];
    if (c->kind != SIM_CACHE && c->kind != SIM_MEMORY && c->kind != SIM_QUEUE) continue;
    for (uint32_t k = i + 1; k < way->n; k++) {
      if (c->kind == SIM_QUEUE && d->classes[way->classes[k]].kind == SIM_NET) break;
      if (way->classes[k] == way->classes[i])
        return sim_read_wrong(node, err, "BS-DEVICE-WAY", "%s stands twice on this way", c->name);
    }
  }
  return BS_OK;
}

/* Where on the way the memory behind number i stands that this cache keeps its tiles in; way->n: nowhere. */
static uint32_t hit_behind(const sim_device *d, const sim_way_of *way, uint32_t i) {
  uint32_t k = i + 1;
  while (k < way->n && way->classes[k] != d->classes[way->classes[i]].hit) k++;
  return k;
}

/* A cache is followed by the memory that it keeps its tiles in. A hit of a cache that stands between the two
 * must still pass that memory, where the line of the first one is filled: others may wait for it. */
static int32_t check_caches(const sim_device *d, const sim_node *node, const sim_way_of *way, bs_error *err) {
  uint32_t caches = 0, outer = 0, outer_hit = 0;
  for (uint32_t i = 0; i < way->n; i++) {
    const sim_class *c = &d->classes[way->classes[i]], *before = &d->classes[way->classes[outer]];
    if (c->kind != SIM_CACHE) continue;
    if (++caches > SIM_CACHES)
      return sim_read_wrong(node, err, "BS-DEVICE-WAY", "%s is cache number %u on this way, %d are allowed",
                            c->name, caches, SIM_CACHES);
    const uint32_t hit = hit_behind(d, way, i);
    if (hit == way->n)
      return sim_read_wrong(node, err, "BS-DEVICE-WAY",
                            "%s keeps its tiles in %s, which does not follow on this way", c->name,
                            d->classes[c->hit].name);
    if (i < outer_hit && hit > outer_hit)
      return sim_read_wrong(node, err, "BS-DEVICE-WAY",
                            "%s comes behind %s, so %s, where its tiles are, must stand before %s", c->name,
                            before->name, d->classes[c->hit].name, d->classes[before->hit].name);
    outer = i;
    outer_hit = hit;
  }
  return BS_OK;
}

/* A net joins a lane and a memory; `send` joins two lanes. */
static int32_t check_ends(const sim_device *d, const sim_node *node, uint32_t w, bs_error *err) {
  const sim_way_of *way = &d->ways[w];
  const sim_class *net = NULL;
  for (uint32_t i = 0; i < way->n; i++) {
    const sim_class *c = &d->classes[way->classes[i]];
    if (c->kind == SIM_MEMORY || w == SIM_WAY_SEND) return BS_OK;
    if (c->kind == SIM_NET) net = c;
  }
  if (net == NULL) return BS_OK;
  const char *lane = d->levels[d->lane_level].name;
  sim_read_wrong(node, err, "BS-DEVICE-WAY",
                 "%s on the way %s has one end, the lane at %s, and no memory at the other", net->name,
                 ways[w], lane);
  bs_error_hint(err, w == SIM_WAY_LOAD ? "a memory before %s" : "a memory behind %s", net->name);
  return BS_CONFIG;
}

static int32_t read_ways(sim_device *d, const sim_node *node, bs_error *err) {
  int32_t rc = sim_read_fields(node, ways, SIM_WAYS, err);
  for (uint32_t w = 0; rc == BS_OK && w < SIM_WAYS; w++) {
    const sim_node *way = sim_tree_entry(node, ways[w]);
    if (way != NULL) rc = read_way(d, way, &d->ways[w], err);
    if (rc == BS_OK && way != NULL) rc = check_twice(d, way, &d->ways[w], err);
    if (rc == BS_OK && way != NULL) rc = check_caches(d, way, &d->ways[w], err);
    if (rc == BS_OK && way != NULL) rc = check_ends(d, way, w, err);
  }
  return rc;
}

static int32_t read_launch(sim_device *d, const sim_node *node, bs_error *err) {
  static const char *const fields[] = {"first_s", "out", "back"};
  const sim_node *out = sim_tree_entry(node, "out"), *back = sim_tree_entry(node, "back");
  int32_t rc = sim_read_fields(node, fields, 3, err);
  if (rc == BS_OK) rc = sim_read_seconds(sim_tree_entry(node, "first_s"), &d->launch, err);
  if (rc == BS_OK && sim_tree_entry(node, "first_s") != NULL && (out != NULL || back != NULL))
    rc = sim_read_wrong(node, err, "BS-DEVICE-LAUNCH",
                        "first_s is a launch in one number: leave it, or out and back, out");
  if (rc == BS_OK && out != NULL) rc = read_way(d, out, &d->launch_out, err);
  if (rc == BS_OK && back != NULL) rc = read_way(d, back, &d->launch_back, err);
  return rc;
}

static int32_t read_attention(sim_device *d, const sim_node *node, bs_error *err) {
  int32_t rc = node != NULL ? sim_read_kind(node, SIM_NODE_LIST, err) : BS_OK;
  for (const sim_node *n = node != NULL ? node->first : NULL; rc == BS_OK && n != NULL; n = n->next) {
    uint32_t count = 0;
    if (d->n_attention == SIM_TILES)
      return sim_read_wrong(node, err, "BS-DEVICE-TILES", "at most %d tiles are allowed", SIM_TILES);
    rc = sim_read_counts(n, d->attention[d->n_attention++], 2, &count, err);
    if (rc == BS_OK && count != 2)
      return sim_read_wrong(n, err, "BS-DEVICE-TILES", "'%s' is not \"queries,keys\"", n->text);
  }
  return rc;
}

static int32_t read_tiles(sim_device *d, const sim_node *node, bs_error *err) {
  static const char *const fields[] = {"product", "stages", "attention", "group"};
  uint64_t group = 0;
  int32_t rc = sim_read_fields(node, fields, 4, err);
  const sim_node *product = sim_tree_entry(node, "product"), *stages = sim_tree_entry(node, "stages");
  if (rc == BS_OK) rc = read_attention(d, sim_tree_entry(node, "attention"), err);
  if (rc == BS_OK && product != NULL) rc = sim_read_kind(product, SIM_NODE_LIST, err);
  for (const sim_node *n = product != NULL ? product->first : NULL; rc == BS_OK && n != NULL; n = n->next) {
    uint32_t count = 0;
    if (d->n_tiles == SIM_TILES)
      return sim_read_wrong(product, err, "BS-DEVICE-TILES", "at most %d tiles are allowed", SIM_TILES);
    rc = sim_read_counts(n, d->tiles[d->n_tiles++], SIM_TILE_NUMBERS, &count, err);
    if (rc == BS_OK && count <= SIM_TILE_K)
      return sim_read_wrong(n, err, "BS-DEVICE-TILES", "'%s' is not \"rows,columns,depth\"", n->text);
    if (rc == BS_OK && d->tiles[d->n_tiles - 1][SIM_TILE_RESIDENT] > d->lanes_each)
      return sim_read_wrong(n, err, "BS-DEVICE-TILES", "'%s': a place has %u lanes, not %u", n->text,
                            d->lanes_each, d->tiles[d->n_tiles - 1][SIM_TILE_RESIDENT]);
  }
  if (rc == BS_OK) rc = sim_read_count(sim_tree_entry(node, "group"), 1, 1 << 16, &group, err);
  d->group = (uint32_t)group;
  if (rc == BS_OK && stages != NULL) rc = sim_read_counts(stages, d->stages, SIM_TILES, &d->n_stages, err);
  return rc;
}

static int32_t read_efficiency(sim_device *d, const sim_node *node, bs_error *err) {
  static const char *const fields[] = {"units", "memory"};
  int32_t rc = sim_read_fields(node, fields, 2, err);
  if (rc == BS_OK) rc = sim_read_real(sim_tree_entry(node, "units"), 0.01, 1.5, &d->of_units, err);
  if (rc == BS_OK) rc = sim_read_real(sim_tree_entry(node, "memory"), 0.01, 1.5, &d->of_memory, err);
  return rc;
}

/* ------------------------------------------------------------------------------------------------ */

static int32_t read_head(sim_device *d, const sim_node *root, bs_error *err) {
  static const char *const labels[] = {"published", "calibrated", "example"};
  const sim_node *name = sim_tree_entry(root, "name"), *label = sim_tree_entry(root, "label");
  const sim_node *watts = sim_tree_entry(root, "watts_idle");
  uint32_t word = 0;
  if (name == NULL || label == NULL)
    return sim_read_wrong(root, err, "BS-DEVICE-FIELD", "a device needs the field %s",
                          name == NULL ? "name" : "label");
  int32_t rc = sim_read_name(name, name->text, d->name, sizeof d->name, err);
  if (rc == BS_OK) rc = sim_read_word(label, labels, 3, &word, err);
  if (rc == BS_OK) memcpy(d->label, labels[word], strlen(labels[word]) + 1);
  d->watts_idle = -1;
  if (rc == BS_OK && watts != NULL) rc = sim_read_real(watts, 0, 1e6, &d->watts_idle, err);
  return rc;
}

static uint64_t hash_of(const char *text) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return h;
}

int32_t sim_device_read(const char *text, sim_device *out, bs_error *err) {
  static const char *const fields[] = {"name", "label",  "levels", "lane",       "parts",
                                       "ways", "launch", "tiles",  "watts_idle", "efficiency"};
  sim_tree tree;
  sim_device *d = out;
  memset(d, 0, sizeof *d);
  d->of_units = d->of_memory = 1;
  int32_t rc = sim_tree_read(text, &tree, err);
  if (rc == BS_OK) {
    const sim_node *root = tree.nodes, *lane = sim_tree_entry(root, "lane"),
                   *parts = sim_tree_entry(root, "parts");
    const sim_node *routes = sim_tree_entry(root, "ways"), *launch = sim_tree_entry(root, "launch"),
                   *tiles = sim_tree_entry(root, "tiles"), *efficiency = sim_tree_entry(root, "efficiency");
    rc = sim_read_fields(root, fields, sizeof fields / sizeof fields[0], err);
    if (rc == BS_OK) rc = read_head(d, root, err);
    if (rc == BS_OK) rc = read_levels(d, sim_tree_entry(root, "levels"), err);
    if (rc == BS_OK && (lane == NULL || parts == NULL))
      rc = sim_read_wrong(root, err, "BS-DEVICE-FIELD", "a device needs the field %s",
                          lane == NULL ? "lane" : "parts");
    if (rc == BS_OK) rc = read_lane(d, lane, err);
    if (rc == BS_OK) rc = sim_read_classes(d, parts, err);
    if (rc == BS_OK && routes != NULL) rc = read_ways(d, routes, err);
    if (rc == BS_OK && launch != NULL) rc = read_launch(d, launch, err);
    if (rc == BS_OK && tiles != NULL) rc = read_tiles(d, tiles, err);
    if (rc == BS_OK && efficiency != NULL) rc = read_efficiency(d, efficiency, err);
    d->hash = hash_of(text);
  }
  sim_tree_free(&tree);
  return rc;
}
