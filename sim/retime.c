/* SPDX-License-Identifier: MIT
 * retime.c - see retime.h. */
#include "sim/retime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"

typedef struct retiming {
  const sim_oplog *log;
  const sim_product *program;
  const sim_layout *layout;
  sim_oplog *out;
  uint32_t *lane_of; /* of each lane of the device: that of the log; UINT32_MAX: none */
  bs_error *err;
  int32_t rc;
} retiming;

/* ---- lanes ------------------------------------------------------------------------------------- */

/* Lanes of the same name; where the device has not all names, in the order in which the log has them. */
static int32_t match_lanes(retiming *r) {
  const uint32_t lanes = r->layout->device->lanes, n = r->log->n_lanes;
  uint32_t found = 0;
  char name[64];
  if (n > lanes) {
    bs_error_set(r->err, BS_CONFIG, "BS-RETIME-LANES", "the log has %u lanes, device %s has %u", n,
                 r->layout->device->name, lanes);
    bs_error_hint(r->err, "make a new log for the device");
    return BS_CONFIG;
  }
  r->lane_of = malloc((lanes > 0 ? lanes : 1) * sizeof *r->lane_of);
  if (r->lane_of == NULL)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u lanes of a device", lanes);
  for (uint32_t l = 0; l < lanes; l++) {
    sim_layout_lane_name(r->layout, l, name, sizeof name);
    r->lane_of[l] = sim_oplog_lane(r->log, name);
    found += r->lane_of[l] != UINT32_MAX;
  }
  for (uint32_t l = 0; found < n && l < lanes; l++) r->lane_of[l] = l < n ? l : UINT32_MAX;
  return BS_OK;
}

static int32_t copy_head(const sim_oplog *log, const sim_device *device, sim_oplog *out, bs_error *err) {
  memcpy(out->op, log->op, sizeof out->op);
  memcpy(out->knobs, log->knobs, sizeof out->knobs);
  memcpy(out->device, device->name, sizeof out->device);
  out->hash = device->hash;
  for (uint32_t l = 0; l < log->n_lanes; l++)
    if (sim_oplog_add_lane(out, log->lanes[l]) != l)
      return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for an op log");
  return BS_OK;
}

/* ---- jobs -------------------------------------------------------------------------------------- */

static void trip(retiming *r, uint32_t lane, uint32_t way, const sim_range *range, sim_job *out) {
  sim_trip t = {.way = way, .lane = lane, .home = UINT32_MAX};
  t.request.bytes = range->bytes * range->rows;
  t.request.address = range->space * SIM_OPLOG_BYTES + range->start;
  t.request.pitch = range->pitch;
  t.request.rows = range->rows;
  out->key = t.request.address;
  const int32_t rc = sim_layout_trip(r->layout, &t, out, r->rc == BS_OK ? r->err : NULL);
  if (rc != BS_OK) r->rc = rc;
}

static void serve(const retiming *r, uint32_t class, uint32_t lane, uint64_t amount, sim_job *out) {
  if (class == SIM_CLASSES) return;
  out->stops[out->n_stops++] = (sim_stop){.part = sim_layout_part(r->layout, class, lane), .amount = amount};
}

static int next(void *user, uint32_t lane, uint64_t index, sim_job *out) {
  retiming *r = user;
  const sim_product *p = r->program;
  const uint32_t of = r->lane_of[lane];
  if (r->rc != BS_OK || of == UINT32_MAX || index >= sim_oplog_jobs(r->log, of)) return 0;
  const sim_logged *j = sim_oplog_job(r->log, of, index);
  out->what = j->what;
  for (uint32_t k = 0; k < j->n_needs; k++) out->needs[out->n_needs++] = j->job - j->needs[k];
  switch (j->what) {
    case SIM_PRODUCT:
      serve(r, p->unit, lane, p->amount, out);
      break;
    case SIM_EPILOGUE:
      serve(r, p->vector, lane, j->writes.bytes / p->shape.out_bytes * p->shape.epilogue, out);
      break;
    case SIM_STORE:
      if (j->n_writes > 0) trip(r, lane, SIM_WAY_STORE, &j->writes, out);
      break;
    case SIM_LOAD_A:
    case SIM_LOAD_B:
      if (j->n_reads > 0) trip(r, lane, SIM_WAY_LOAD, &j->reads[0], out);
      break;
    default:
      r->rc = bs_error_set(r->err, BS_UNSUPPORTED, "BS-RETIME-JOB", "a %s is no job of a product",
                           sim_what_name(j->what));
  }
  return r->rc == BS_OK;
}

static void done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  retiming *r = user;
  sim_logged j = *sim_oplog_job(r->log, r->lane_of[lane], index);
  (void)job;
  j.begin = begin;
  j.end = end;
  if (r->rc == BS_OK) r->rc = sim_oplog_add(r->out, &j, r->err);
}

/* ------------------------------------------------------------------------------------------------ */

int32_t sim_retime(const sim_oplog *log, sim_product *program, sim_layout *layout, sim_oplog *out,
                   bs_error *err) {
  retiming r = {.log = log, .program = program, .layout = layout, .out = out, .err = err};
  sim_inside_result result;
  memset(out, 0, sizeof *out);
  int32_t rc = match_lanes(&r);
  if (rc == BS_OK) rc = copy_head(log, layout->device, out, err);
  if (rc == BS_OK) rc = sim_layout_reset(layout, err);
  const sim_inside_config config = {.parts = layout->parts,
                                    .n_parts = layout->n_parts,
                                    .n_lanes = layout->device->lanes,
                                    .next = next,
                                    .done = done,
                                    .user = &r};
  if (rc == BS_OK) rc = sim_inside_run(&config, &result, err);
  if (rc == BS_OK) rc = r.rc;
  if (rc == BS_OK) rc = sim_oplog_index(out, err);
  free(r.lane_of);
  return rc;
}

int sim_retime_equal(const sim_oplog *a, const sim_oplog *b, uint64_t *out_job) {
  *out_job = 0;
  if (a->n != b->n || a->n_lanes != b->n_lanes) return 0;
  for (uint64_t i = 0; i < a->n; i++) {
    const sim_logged *x = &a->jobs[i];
    *out_job = i;
    if (x->job >= sim_oplog_jobs(b, x->lane)) return 0;
    const sim_logged *y = sim_oplog_job(b, x->lane, x->job);
    if (x->begin != y->begin || x->end != y->end) return 0;
  }
  return 1;
}

void sim_retime_draw(sim_layout *layout, uint64_t seed, uint32_t machine) {
  float u[SIM_CLASSES];
  bs_rng_uniform(seed, machine, 0, SIM_CLASSES, u);
  for (uint32_t c = 0; c < SIM_CLASSES; c++) layout->speed[c] = exp2(2 * (double)u[c] - 1);
}
