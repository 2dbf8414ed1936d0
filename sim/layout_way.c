/* SPDX-License-Identifier: MIT
 * layout_way.c - ways as stops: nets become hops, a memory with places at its channels becomes the hops to
 * that place. The first place of a level joins its net with the one above. */
#include <string.h>

#include "core/base/error.h"
#include "sim/layout_net.h"

/* ---- nets -------------------------------------------------------------------------------------- */

static sim_topology topology_of(const sim_class *net) {
  static const uint32_t kinds[] = {SIM_MESH2D, SIM_RING, SIM_TORUS2D, SIM_FULLMESH, SIM_NVSWITCH};
  return (sim_topology){.kind = kinds[net->shape],
                        .ranks = net->size[0] * net->size[1],
                        .a = net->size[0],
                        .oversubscription = 1};
}

uint32_t sim_net_slots(const sim_class *net) {
  const uint32_t n = net->size[0] * net->size[1];
  if (net->shape == SIM_SHAPE_FULLMESH) return n * n;
  return net->shape == SIM_SHAPE_MESH || net->shape == SIM_SHAPE_TORUS2D ? 4 * n : 2 * n;
}

uint32_t sim_net_links(const sim_class *net) {
  const uint32_t x = net->size[0], y = net->size[1], n = x * y;
  switch (net->shape) {
    case SIM_SHAPE_MESH:
      return 2 * ((x - 1) * y + x * (y - 1));
    case SIM_SHAPE_RING:
      return n == 1 ? 0 : n == 2 ? 2 : 2 * n;
    case SIM_SHAPE_TORUS2D:
      return (x == 1 ? 0 : x == 2 ? 2 : 2 * x) * y + (y == 1 ? 0 : y == 2 ? 2 : 2 * y) * x;
    case SIM_SHAPE_FULLMESH:
      return n * (n - 1);
    default:
      return 2 * n;
  }
}

uint32_t sim_net_route(const sim_class *net, uint32_t from, uint32_t to, uint32_t out_slots[SIM_HOPS]) {
  sim_topology t = topology_of(net);
  sim_hop hops[SIM_HOPS];
  const uint32_t n = sim_topology_route(&t, from, to, hops);
  const uint32_t grid = net->shape == SIM_SHAPE_MESH || net->shape == SIM_SHAPE_TORUS2D;
  for (uint32_t h = 0; h < n && h < SIM_HOPS; h++) {
    const uint32_t level = (uint32_t)(hops[h].id >> 56) - 1, begin = (uint32_t)(hops[h].id >> 24);
    const uint32_t which = (uint32_t)(hops[h].id & 0xffffff);
    out_slots[h] = grid ? begin * 4 + level * 2 + which : begin * 2 + which;
    if (net->shape == SIM_SHAPE_FULLMESH) out_slots[h] = from * t.ranks + to;
  }
  return n;
}

void sim_net_ends(const sim_class *net, uint32_t slot, uint32_t *out_from, uint32_t *out_to) {
  const uint32_t x = net->size[0], n = x * net->size[1];
  *out_to = UINT32_MAX;
  switch (net->shape) {
    case SIM_SHAPE_FULLMESH:
      *out_from = slot / n;
      *out_to = slot % n;
      return;
    case SIM_SHAPE_CROSSBAR:
      *out_from = slot / 2;
      return;
    case SIM_SHAPE_RING:
      *out_from = slot / 2;
      *out_to = slot % 2 == 0 ? (*out_from + 1) % n : (*out_from + n - 1) % n;
      return;
    default: {
      *out_from = slot / 4;
      const uint32_t row = *out_from / x, column = *out_from % x, rows = n / x;
      const int back = slot % 2;
      if (slot % 4 < 2)
        *out_to = row * x + (column + (back ? x - 1 : 1)) % x;
      else
        *out_to = (row + (back ? rows - 1 : 1)) % rows * x + column;
    }
  }
}

uint32_t sim_place_above(const sim_device *d, uint32_t from_level, uint32_t place, uint32_t level) {
  for (uint32_t at = from_level; at > level; at--) place /= d->levels[at].each;
  return place;
}

/* ---- a trip ------------------------------------------------------------------------------------ */

/* Where the token is. Positions are places of the deepest level that a net joins or a lane is at.
 */
typedef struct walk {
  const sim_layout *l;
  const sim_trip *trip;
  sim_job *job;
  uint32_t level;    /* of positions */
  uint32_t at, goal; /* positions */
  uint32_t netted;   /* a net has been passed */
} walk;

static uint32_t first_below(const sim_device *d, uint32_t level, uint32_t place, uint32_t deeper) {
  for (uint32_t at = level + 1; at <= deeper; at++) place *= d->levels[at].each;
  return place;
}

static int add(walk *w, uint32_t part) {
  if (w->job->n_stops == SIM_STOPS) return 0;
  const uint16_t how = w->l->parts[part].kind == SIM_QUEUE ? SIM_TAKE : SIM_PASS;
  w->job->stops[w->job->n_stops++] = (sim_stop){.part = part, .how = how, .amount = w->trip->request.bytes};
  return 1;
}

/* Channel of the first byte, dealt out; a request that touches a channel of every place is taken for one
 * from a single place, which changes from tile to tile. */
static uint32_t node_of(const sim_class *c, uint32_t nodes, const sim_request *r) {
  if (r->rows <= 1 && r->bytes >= (uint64_t)nodes * c->interleave)
    return (uint32_t)(r->address / r->bytes % nodes);
  return (uint32_t)(r->address / c->interleave % c->workers % nodes);
}

/* The part of a memory, and the position of the bytes. */
static uint32_t home_of(const walk *w, uint32_t class, uint32_t *out_position) {
  const sim_device *d = w->l->device;
  const sim_class *c = &d->classes[class];
  const uint32_t lane_place = w->trip->lane / d->lanes_each;
  uint32_t part = w->trip->home;
  const uint32_t below = c->level + 1 < d->n_levels ? d->levels[c->level + 1].each : 1;
  if (c->node == SIM_NODE_OWN) {
    if (part == UINT32_MAX) part = sim_place_above(d, d->lane_level, lane_place, c->level + 1);
    *out_position = first_below(d, c->level + 1, part, w->level);
    return part;
  }
  if (part == UINT32_MAX) part = sim_place_above(d, d->lane_level, lane_place, c->level);
  if (c->node == SIM_NODE_SPREAD) {
    const uint32_t node = node_of(c, below, &w->trip->request);
    *out_position = first_below(d, c->level + 1, part * below + node, w->level);
  } else { /* here: wherever the token is, below its own place */
    *out_position = sim_place_above(d, w->level, w->at, c->level) == part
                        ? w->at
                        : first_below(d, c->level, part, w->level);
  }
  return part;
}

static int cross(walk *w, uint32_t class) {
  const sim_device *d = w->l->device;
  const sim_class *c = &d->classes[class];
  const uint32_t below = c->level + 1, each = d->levels[below].each;
  const uint32_t from = sim_place_above(d, w->level, w->at, below),
                 to = sim_place_above(d, w->level, w->goal, below);
  const int inside = from / each == to / each;
  uint32_t slots[SIM_HOPS];
  const uint32_t n = sim_net_route(c, from % each, inside ? to % each : 0, slots);
  if (n > SIM_HOPS) return 0;
  for (uint32_t h = 0; h < n; h++)
    if (!add(w, w->l->base[class] + from / each * sim_net_slots(c) + slots[h])) return 0;
  w->netted = 1;
  if (inside && from != to) w->at = below == w->level ? w->goal : first_below(d, below, to, w->level);
  if (!inside) w->at = first_below(d, c->level, from / each, w->level);
  return 1;
}

static void say_ends(const walk *w, uint32_t position, char *out, uint32_t size) {
  sim_layout_place_name(w->l, &(sim_place){w->level, position, SIM_CLASSES, UINT32_MAX}, out, size);
}

static int32_t not_reached(const walk *w, bs_error *err) {
  char from[64], to[64];
  say_ends(w, w->at, from, sizeof from);
  say_ends(w, w->goal, to, sizeof to);
  bs_error_set(err, BS_CONFIG, "BS-DEVICE-REACH", "the way %s ends at %s and does not reach %s",
               sim_way_name(w->trip->way), from, to);
  bs_error_where(err, "ways.%s", sim_way_name(w->trip->way));
  bs_error_hint(err, "a net on the way must join the two");
  return BS_CONFIG;
}

/* The goal of the next part: the memory, while one is ahead, then the end of the way. */
static uint32_t goal_of(const walk *w, const sim_way_of *way, uint32_t from) {
  const sim_device *d = w->l->device;
  uint32_t position = w->at;
  for (uint32_t i = from; i < way->n; i++)
    if (d->classes[way->classes[i]].kind == SIM_MEMORY) {
      home_of(w, way->classes[i], &position);
      return position;
    }
  if (w->trip->way == SIM_WAY_STORE) return w->goal;
  const uint32_t lane = w->trip->way == SIM_WAY_SEND ? w->trip->to : w->trip->lane;
  return first_below(d, d->lane_level, lane / d->lanes_each, w->level);
}

static uint32_t deepest(const sim_device *d, const sim_way_of *way) {
  uint32_t level = d->lane_level;
  for (uint32_t i = 0; i < way->n; i++) {
    const sim_class *c = &d->classes[way->classes[i]];
    const uint32_t joins =
        c->level + (c->kind == SIM_NET || (c->kind == SIM_MEMORY && c->node != SIM_NODE_HERE));
    if (joins > level) level = joins;
  }
  return level;
}

int32_t sim_layout_trip(const sim_layout *l, const sim_trip *trip, sim_job *job, bs_error *err) {
  const sim_device *d = l->device;
  const sim_way_of *way = &d->ways[trip->way];
  walk w = {.l = l, .trip = trip, .job = job, .level = deepest(d, way)};
  int room = 1;
  if (way->n == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-DEVICE-WAY", "device %s has no way %s", d->name,
                        sim_way_name(trip->way));
  w.at = first_below(d, d->lane_level, trip->lane / d->lanes_each, w.level);
  job->address = trip->request.address;
  job->pitch = trip->request.pitch;
  job->rows = trip->request.rows;
  for (uint32_t i = 0; i < way->n && room; i++) {
    const uint32_t class = way->classes[i];
    const sim_class *c = &d->classes[class];
    w.goal = goal_of(&w, way, i);
    if (c->kind == SIM_NET) {
      room = cross(&w, class);
    } else if (c->kind == SIM_MEMORY) {
      uint32_t position = w.at;
      const uint32_t part = home_of(&w, class, &position);
      if (trip->way == SIM_WAY_LOAD && !w.netted) w.at = position; /* what asks for the bytes takes no time */
      if (w.at != position) return not_reached(&w, err);
      if (trip->way == SIM_WAY_STORE) job->posted |= c->posted;
      room = add(&w, l->base[class] + part);
    } else {
      room = add(&w, l->base[class] + sim_place_above(d, w.level, w.at, c->level));
    }
  }
  if (!room)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-DEVICE-WAY", "the way %s has more than %d stops",
                        sim_way_name(trip->way), SIM_STOPS);
  w.goal = goal_of(&w, way, way->n);
  return w.at == w.goal ? BS_OK : not_reached(&w, err);
}

uint32_t sim_layout_part(const sim_layout *l, uint32_t class, uint32_t lane) {
  const sim_device *d = l->device;
  const uint32_t level = d->classes[class].level, place = lane / d->lanes_each;
  return l->base[class] + (level > d->lane_level ? first_below(d, d->lane_level, place, level)
                                                 : sim_place_above(d, d->lane_level, place, level));
}
