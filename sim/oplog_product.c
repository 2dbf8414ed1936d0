/* SPDX-License-Identifier: MIT
 * oplog_product.c - the log of a product's run. Operands are where the program has them. The scratch of a
 * lane is: the slots of A, those of B, the sums, the tile of Y that leaves. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/oplog.h"

enum { STEP = 3 };

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

/* The bytes of a load or a store in the device's memory. */
static sim_range moved(const sim_job *j) {
  const uint64_t bytes = j->n_stops > 0 ? j->stops[0].amount : 0;
  sim_range r = {.space = (uint32_t)(j->address / SIM_OPLOG_BYTES),
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

static sim_range in_scratch(uint64_t start, uint64_t bytes) {
  return (sim_range){.space = SIM_SPACE_SCRATCH, .rows = 1, .start = start, .bytes = bytes};
}

/* Where things lie, and how large this lane's tile and step are. */
typedef struct spot {
  uint64_t a, b, sums, leaves; /* begins in the scratch: of the slots of this step, of this tile's sums */
  uint64_t step;
} spot;

static spot spot_of(const sim_product *p, const sim_recorder *r, uint64_t index) {
  const sim_knobs *k = &p->knobs;
  const uint64_t turn = index / p->jobs_a_tile, slots = r->slots > 0 ? r->slots : k->stages;
  const uint64_t of_a = (uint64_t)k->tm * p->depth * p->shape.in_bytes,
                 of_b = (uint64_t)k->tn * p->depth * p->shape.in_bytes, of_sums = (uint64_t)k->tm * k->tn * 4;
  spot s = {.step = index % p->jobs_a_tile / STEP};
  const uint64_t slot = (turn * p->steps + s.step) % slots, sums = slots * (of_a + of_b);
  s.a = slot * of_a;
  s.b = slots * of_a + slot * of_b;
  s.sums = sums + turn % k->accumulators * of_sums;
  s.leaves = sums + k->accumulators * of_sums;
  return s;
}

/* Elements of the tile, from the loads before a job of it: `back` jobs before it is one of A. */
static uint64_t elements(const sim_product *p, const sim_recorder *r, uint32_t lane, uint64_t index,
                         uint64_t step, uint64_t back) {
  const uint64_t rest = p->shape.k - step * p->depth,
                 line = (rest < p->depth ? rest : p->depth) * p->shape.in_bytes;
  return r->loaded[lane][(index - back) % SIM_OPEN] / line *
         (r->loaded[lane][(index - back + 1) % SIM_OPEN] / line);
}

static void product(const sim_product *p, const sim_recorder *r, const spot *s, uint64_t index,
                    sim_logged *g) {
  const uint64_t sums = elements(p, r, g->lane, index, s->step, 2) * 4;
  g->reads[g->n_reads++] = in_scratch(s->a, r->loaded[g->lane][(index - 2) % SIM_OPEN]);
  g->reads[g->n_reads++] = in_scratch(s->b, r->loaded[g->lane][(index - 1) % SIM_OPEN]);
  if (s->step > 0) g->reads[g->n_reads++] = in_scratch(s->sums, sums);
  g->writes = in_scratch(s->sums, sums);
}

static void fill(const sim_product *p, const sim_recorder *r, uint64_t index, const sim_job *j,
                 sim_logged *g) {
  const spot s = spot_of(p, r, index);
  const uint64_t last = p->steps - 1;
  g->n_writes = 1;
  switch (j->what) {
    case SIM_LOAD_A:
    case SIM_LOAD_B:
      g->reads[g->n_reads++] = moved(j);
      g->writes = in_scratch(j->what == SIM_LOAD_A ? s.a : s.b, j->n_stops > 0 ? j->stops[0].amount : 0);
      r->loaded[g->lane][index % SIM_OPEN] = g->writes.bytes;
      break;
    case SIM_PRODUCT:
      product(p, r, &s, index, g);
      break;
    case SIM_EPILOGUE: {
      const uint64_t n = elements(p, r, g->lane, index, last, 3);
      g->reads[g->n_reads++] = in_scratch(s.sums, n * 4);
      g->writes = in_scratch(s.leaves, n * p->shape.out_bytes);
      break;
    }
    default:
      g->reads[g->n_reads++] =
          in_scratch(s.leaves, elements(p, r, g->lane, index, last, 4) * p->shape.out_bytes);
      g->writes = moved(j);
  }
}

void sim_recorder_done(void *user, uint32_t lane, uint64_t index, const sim_job *j, uint64_t begin,
                       uint64_t end) {
  const sim_product *p = user;
  sim_recorder *r = p->told;
  sim_logged g = {.begin = begin, .end = end, .lane = lane, .job = (uint32_t)index, .what = j->what};
  if (r->rc != BS_OK) return;
  for (uint32_t k = 0; k < j->n_needs; k++)
    if (j->needs[k] > 0 && j->needs[k] <= index) g.needs[g.n_needs++] = (uint32_t)index - j->needs[k];
  fill(p, r, index, j, &g);
  r->rc = sim_oplog_add(r->log, &g, r->err);
}
