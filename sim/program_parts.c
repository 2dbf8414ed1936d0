/* SPDX-License-Identifier: MIT
 * program_parts.c - see program_parts.h. */
#include "sim/program_parts.h"

#include "core/base/error.h"

int32_t sim_plan_has(const sim_plan *p, uint32_t class, const char *what, const char *hint, bs_error *err) {
  if (class != SIM_CLASSES) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "device %s has no %s", p->layout->device->name, what);
  bs_error_hint(err, "%s", hint);
  return BS_UNSUPPORTED;
}

int32_t sim_where_check(const sim_layout *l, const sim_knobs *k, bs_error *err) {
  const uint32_t all = l->device->levels[l->device->lane_level].places;
  if (k->where_first < all && k->where_places <= all - k->where_first) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "where: %u places from number %u, of %u", k->where_places,
               k->where_first, all);
  return BS_CONFIG;
}

static uint32_t queue_of(const sim_device *d) {
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (d->classes[c].kind == SIM_QUEUE && d->classes[c].level == d->lane_level) return c;
  return SIM_CLASSES;
}

int32_t sim_plan_make(const sim_layout *layout, const sim_knobs *knobs, int columns, sim_plan *out,
                      bs_error *err) {
  const uint32_t most = 1 << 24;
  sim_knobs *k = &out->knobs;
  *out = (sim_plan){.layout = layout, .knobs = *knobs, .err = err};
  out->unit = sim_layout_does(layout, SIM_DOES_PRODUCT);
  out->vector = sim_layout_does(layout, SIM_DOES_MAP);
  out->queue = queue_of(layout->device);
  if (k->accumulators == 0) k->accumulators = 1;
  k->grain = 1;
  k->resident = sim_resident(layout, knobs);
  if (k->tm > 0 && k->tm <= most && (!columns || (k->tn > 0 && k->tn <= most)) && k->stages > 0 &&
      k->stages <= SIM_PROGRAM_STAGES && k->accumulators <= SIM_PROGRAM_STAGES &&
      (k->ahead == 0 || k->ahead < k->stages))
    return sim_where_check(layout, k, err);
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "tm=%u;tn=%u;stages=%u;accumulators=%u;ahead=%u", k->tm,
               k->tn, k->stages, k->accumulators, k->ahead);
  bs_error_hint(err, "tm and tn are 1 to %u, stages and accumulators 1 to %d, ahead is below stages", most,
                SIM_PROGRAM_STAGES);
  return BS_CONFIG;
}

int32_t sim_plan_tokens(double tokens, bs_error *err) {
  if (tokens <= SIM_PROGRAM_TOKENS) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-SIZE", "the program has %.3g tokens, at most %d are allowed",
               tokens, SIM_PROGRAM_TOKENS);
  bs_error_hint(err, "larger tiles, or a smaller shape");
  return BS_CONFIG;
}

void sim_serve(const sim_layout *l, uint32_t class, uint32_t lane, uint64_t amount, sim_job *j) {
  j->stops[j->n_stops++] = (sim_stop){.part = sim_layout_part(l, class, lane), .amount = amount};
}

void sim_plan_move(sim_plan *p, uint32_t way, uint32_t lane, uint64_t address, uint64_t bytes, sim_job *j) {
  const sim_trip trip = {.way = way, .lane = lane, .home = UINT32_MAX, .request = {bytes, address, 0, 0}};
  const int32_t rc = sim_layout_trip(p->layout, &trip, j, p->rc == BS_OK ? p->err : NULL);
  j->key = address;
  if (rc != BS_OK) p->rc = rc;
}

void sim_plan_moved(const sim_plan *p, uint32_t way, uint64_t bytes, sim_amounts *inout) {
  const sim_device *d = p->layout->device;
  for (uint32_t i = 0; i < d->ways[way].n; i++) {
    const uint32_t c = d->ways[way].classes[i], kind = d->classes[c].kind;
    if (kind == SIM_CACHE) break; /* what hits goes no further */
    if (kind == SIM_LINK || kind == SIM_MEMORY) inout->of[c] += bytes;
  }
}

uint64_t sim_plan_bound(const sim_plan *p, const sim_amounts *amounts) {
  const sim_layout *l = p->layout;
  uint64_t bound = 0;
  for (uint32_t c = 0; c < l->device->n_classes; c++) {
    const uint64_t units = sim_layout_units(l, c);
    if (amounts->of[c] == 0) continue;
    bound = sim_max(bound, sim_bytes_ps(amounts->of[c], l->parts[l->base[c]].q32) / (units > 0 ? units : 1));
  }
  return bound;
}
