/* SPDX-License-Identifier: MIT
 * oplog_record.c - the log of a run, job by job: see oplog.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "sim/oplog_parts.h"

/* NULL: no log. */
static sim_oplog_fill *const fills[SIM_OPS] = {[SIM_OP_PRODUCT] = sim_oplog_product,
                                               [SIM_OP_ATTENTION] = sim_oplog_attention,
                                               [SIM_OP_MAP] = sim_oplog_map};

int sim_recorder_takes(uint32_t kind, const sim_knobs *knobs) {
  return kind < SIM_OPS && fills[kind] != NULL && knobs->split <= 1;
}

int32_t sim_recorder_open(sim_recorder *out, sim_oplog *log, bs_error *err) {
  *out = (sim_recorder){.log = log, .err = err};
  out->loaded = calloc(log->n_lanes > 0 ? log->n_lanes : 1, sizeof *out->loaded);
  return out->loaded != NULL ? BS_OK
                             : bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for an op log");
}

void sim_recorder_close(sim_recorder *r) {
  free(r->loaded);
  r->loaded = NULL;
}

sim_range sim_moved(uint32_t kind, const sim_job *j) {
  const uint64_t bytes = j->n_stops > 0 ? j->stops[0].amount : 0;
  sim_range r = {.space = sim_space_at(kind, j->address),
                 .rows = 1,
                 .start = j->address % SIM_OPLOG_BYTES,
                 .bytes = bytes};
  if (j->rows > 1) {
    r.rows = j->rows;
    r.bytes = bytes / j->rows;
    r.pitch = j->pitch;
  }
  return r;
}

void sim_recorder_done(void *user, uint32_t lane, uint64_t index, const sim_job *j, uint64_t begin,
                       uint64_t end) {
  const sim_program *p = user;
  sim_recorder *r = p->told;
  sim_logged g = {.begin = begin, .end = end, .lane = lane, .job = (uint32_t)index, .what = j->what};
  if (r->rc != BS_OK) return;
  for (uint32_t k = 0; k < j->n_needs; k++)
    if (j->needs[k] > 0 && j->needs[k] <= index) g.needs[g.n_needs++] = (uint32_t)index - j->needs[k];
  fills[sim_program_kind_of(p)](p, r, index, j, &g);
  r->rc = sim_oplog_add(r->log, &g, r->err);
}
