/* SPDX-License-Identifier: MIT
 * layout.c - see layout.h. The parts; layout_way.c has the ways, layout_place.c the names. */
#include "sim/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/layout_net.h"

static uint64_t q32_of(double rate) {
  return rate > 0 && isfinite(rate) ? sim_rate_q32(rate) : 0;
}

/* The rates that serve a dtype, the best first. */
static double rate_of(const sim_class *c, uint32_t dtype) {
  switch (dtype) {
    case BS_F64:
      return c->rate[SIM_RATE_F64];
    case BS_F32:
      return c->rate[SIM_RATE_F32];
    case BS_BF16:
      return c->rate[SIM_RATE_BF16] > 0 ? c->rate[SIM_RATE_BF16] : c->rate[SIM_RATE_F16];
    case BS_F16:
      return c->rate[SIM_RATE_F16] > 0 ? c->rate[SIM_RATE_F16] : c->rate[SIM_RATE_BF16];
    case BS_F8E4M3:
    case BS_F8E5M2:
      return c->rate[SIM_RATE_F8];
    default:
      return BS_DTYPE_BYTES(dtype) == 1 ? c->rate[SIM_RATE_I8] : 0;
  }
}

static double server_rate(const sim_class *c, uint32_t dtype) {
  if (c->does == SIM_DOES_PRODUCT) return rate_of(c, dtype);
  if (c->rate[SIM_RATE_F32] > 0) return c->rate[SIM_RATE_F32];
  return rate_of(c, dtype);
}

/* ---- parts ------------------------------------------------------------------------------------- */

static uint32_t parts_of(const sim_device *d, const sim_class *c) {
  const uint32_t places = d->levels[c->level].places;
  if (c->kind == SIM_NET) return places * sim_net_slots(c);
  if (c->kind == SIM_MEMORY && c->node == SIM_NODE_OWN) return d->levels[c->level + 1].places;
  return places;
}

static double share_reached(const sim_device *d, const sim_class *c) {
  if (c->kind == SIM_SERVER && c->does == SIM_DOES_PRODUCT) return d->of_units;
  if (c->kind == SIM_MEMORY && !sim_device_is_hit(d, (uint32_t)(c - d->classes))) return d->of_memory;
  return 1;
}

static void fill_part(const sim_layout *l, const sim_class *c, uint32_t index, sim_part *p) {
  const sim_device *d = l->device;
  *p = (sim_part){.kind = c->kind,
                  .workers = c->workers,
                  .flit = c->flit,
                  .first = c->first,
                  .gap = c->gap,
                  .credit = c->credit,
                  .interleave = c->interleave,
                  .bytes = c->bytes};
  const double speed = l->speed[c - d->classes] > 0 ? l->speed[c - d->classes] : 1;
  p->q32 =
      q32_of((c->kind == SIM_SERVER ? server_rate(c, l->dtype) : c->rate[0]) * (speed * share_reached(d, c)));
  if (c->gap > 0) p->gap = sim_round((double)c->gap / speed);
  if (c->kind == SIM_SERVER && c->does != SIM_DOES_PRODUCT) p->grain = c->grain[0];
  if (c->kind == SIM_MEMORY && c->node == SIM_NODE_OWN)
    p->workers = c->workers / d->levels[c->level + 1].each;
  if (c->kind == SIM_CACHE) { /* the memory of the same place, or of the one above it */
    const uint32_t level = d->classes[c->hit].level, mine = c->level;
    uint32_t place = index;
    for (uint32_t at = mine; at > level; at--) place /= d->levels[at].each;
    p->hit = l->base[c->hit] + place;
  }
  if (c->kind != SIM_NET) return;
  p->kind = SIM_LINK;
  p->workers = 1;
  if (c->shape == SIM_SHAPE_CROSSBAR) p->first = index % 2 == 0 ? c->first / 2 : c->first - c->first / 2;
}

static int32_t open_parts(sim_layout *l, bs_error *err) {
  for (uint32_t c = 0; c < l->device->n_classes; c++)
    for (uint32_t i = 0; i < l->n[c]; i++) {
      fill_part(l, &l->device->classes[c], i, &l->parts[l->base[c] + i]);
      if (!sim_part_open(&l->parts[l->base[c] + i]))
        return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u parts of a device",
                            l->n_parts);
    }
  return BS_OK;
}

static int32_t check_rates(const sim_layout *l, int products, bs_error *err) {
  if (l->dtype == 0) return BS_OK; /* nothing is computed */
  for (uint32_t c = 0; c < l->device->n_classes; c++) {
    const sim_class *class = &l->device->classes[c];
    if (class->kind != SIM_SERVER || class->does == SIM_DOES_NOTHING || class->does == SIM_DOES_COMMAND)
      continue;
    if (class->does == SIM_DOES_PRODUCT && !products) continue;
    if (server_rate(class, l->dtype) > 0) continue;
    bs_error_set(err, BS_CONFIG, "BS-DEVICE-RATE", "part %s of device %s has no rate for 0x%04x", class->name,
                 l->device->name, l->dtype);
    bs_error_hint(err, "add it to the device's file, or take another dtype");
    return BS_CONFIG;
  }
  return BS_OK;
}

/* ---- ways that must reach ---------------------------------------------------------------------- */

static int32_t check_trip(const sim_layout *l, const sim_trip *trip, bs_error *err) {
  sim_job job;
  memset(&job, 0, sizeof job);
  return sim_layout_trip(l, trip, &job, err);
}

/* From the first lane to each channel's place, and to the last lane. */
static int32_t check_ways(const sim_layout *l, bs_error *err) {
  const sim_device *d = l->device;
  int32_t rc = BS_OK;
  for (uint32_t w = 0; rc == BS_OK && w < SIM_WAY_SEND; w++) {
    uint32_t channels = d->ways[w].n > 0;
    uint64_t unit = 1;
    for (uint32_t i = 0; i < d->ways[w].n; i++) {
      const sim_class *c = &d->classes[d->ways[w].classes[i]];
      if (c->kind == SIM_MEMORY && c->node == SIM_NODE_SPREAD) channels = c->workers, unit = c->interleave;
    }
    for (uint32_t c = 0; rc == BS_OK && c < channels; c++)
      rc = check_trip(l, &(sim_trip){.way = w, .home = UINT32_MAX, .request = {1, c * unit, 0, 0}}, err);
  }
  if (rc == BS_OK && d->ways[SIM_WAY_SEND].n > 0 && d->lanes > 1)
    rc = check_trip(
        l, &(sim_trip){.way = SIM_WAY_SEND, .home = UINT32_MAX, .to = d->lanes - 1, .request = {1, 0, 0, 0}},
        err);
  return rc;
}

/* ------------------------------------------------------------------------------------------------ */

static int32_t make(const sim_device *device, uint32_t dtype, int products, sim_layout *out, bs_error *err) {
  sim_layout *l = out;
  uint64_t n = 0;
  memset(l, 0, sizeof *l);
  l->device = device;
  l->dtype = dtype;
  for (uint32_t c = 0; c < device->n_classes; c++) {
    l->base[c] = (uint32_t)n;
    l->n[c] = parts_of(device, &device->classes[c]);
    n += l->n[c];
    if (n > SIM_PARTS)
      return bs_error_set(err, BS_CONFIG, "BS-DEVICE-SIZE", "device %s has more than %d parts", device->name,
                          SIM_PARTS);
  }
  l->n_parts = (uint32_t)n;
  int32_t rc = check_rates(l, products, err);
  if (rc != BS_OK) return rc;
  l->parts = calloc(n > 0 ? n : 1, sizeof *l->parts);
  if (l->parts == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %llu parts of a device",
                        (unsigned long long)n);
  rc = open_parts(l, err);
  if (rc == BS_OK) rc = check_ways(l, err);
  if (rc != BS_OK) sim_layout_free(l);
  return rc;
}

int32_t sim_layout_make(const sim_device *device, uint32_t dtype, sim_layout *out, bs_error *err) {
  return make(device, dtype, 1, out, err);
}

int32_t sim_layout_make_without_products(const sim_device *device, uint32_t dtype, sim_layout *out,
                                         bs_error *err) {
  return make(device, dtype, 0, out, err);
}

void sim_layout_free(sim_layout *l) {
  for (uint32_t p = 0; p < l->n_parts && l->parts != NULL; p++) sim_part_close(&l->parts[p]);
  free(l->parts);
  l->parts = NULL;
  l->n_parts = 0;
}

int32_t sim_layout_reset(sim_layout *l, bs_error *err) {
  for (uint32_t p = 0; p < l->n_parts; p++) sim_part_close(&l->parts[p]);
  return open_parts(l, err);
}

int sim_layout_has_speed(const sim_layout *l, uint32_t class) {
  const sim_part *first = &l->parts[l->base[class]];
  return l->n[class] > 0 && (first->q32 != 0 || first->gap != 0);
}

uint32_t sim_layout_does(const sim_layout *l, uint32_t does) {
  for (uint32_t c = 0; c < l->device->n_classes; c++)
    if (l->device->classes[c].kind == SIM_SERVER && l->device->classes[c].does == does) return c;
  return SIM_CLASSES;
}

uint32_t sim_layout_class_of(const sim_layout *l, uint32_t part) {
  uint32_t c = 0;
  while (c + 1 < l->device->n_classes && l->base[c + 1] <= part) c++;
  return c;
}

uint64_t sim_layout_units(const sim_layout *l, uint32_t class) {
  const sim_class *c = &l->device->classes[class];
  const uint64_t places = l->device->levels[c->level].places;
  if (c->kind == SIM_NET) return places * sim_net_links(c);
  return places * c->workers;
}
