/* SPDX-License-Identifier: MIT
 * oplog_product.c - the log of a product's run. Operands are where the program has them. The scratch of a
 * lane is: the slots of A, those of B, the sums, the tile of Y that leaves. */
#include "sim/oplog_parts.h"

enum { STEP = 3 };

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
  return r->loaded[lane][(index - back) % SIM_LOADED] / line *
         (r->loaded[lane][(index - back + 1) % SIM_LOADED] / line);
}

static void product(const sim_product *p, const sim_recorder *r, const spot *s, uint64_t index,
                    sim_logged *g) {
  const uint64_t sums = elements(p, r, g->lane, index, s->step, 2) * 4;
  g->reads[g->n_reads++] = sim_in_scratch(s->a, r->loaded[g->lane][(index - 2) % SIM_LOADED]);
  g->reads[g->n_reads++] = sim_in_scratch(s->b, r->loaded[g->lane][(index - 1) % SIM_LOADED]);
  if (s->step > 0) g->reads[g->n_reads++] = sim_in_scratch(s->sums, sums);
  g->writes = sim_in_scratch(s->sums, sums);
}

void sim_oplog_product(const sim_program *program, const sim_recorder *r, uint64_t index, const sim_job *j,
                       sim_logged *g) {
  const sim_product *p = &program->product;
  const spot s = spot_of(p, r, index);
  const uint64_t last = p->steps - 1;
  g->n_writes = 1;
  switch (j->what) {
    case SIM_LOAD_A:
    case SIM_LOAD_B:
      g->reads[g->n_reads++] = sim_moved(SIM_OP_PRODUCT, j);
      g->writes = sim_in_scratch(j->what == SIM_LOAD_A ? s.a : s.b, j->n_stops > 0 ? j->stops[0].amount : 0);
      r->loaded[g->lane][index % SIM_LOADED] = g->writes.bytes;
      break;
    case SIM_PRODUCT:
      product(p, r, &s, index, g);
      break;
    case SIM_EPILOGUE: {
      const uint64_t n = elements(p, r, g->lane, index, last, 3);
      g->reads[g->n_reads++] = sim_in_scratch(s.sums, n * 4);
      g->writes = sim_in_scratch(s.leaves, n * p->shape.out_bytes);
      break;
    }
    default:
      g->reads[g->n_reads++] =
          sim_in_scratch(s.leaves, elements(p, r, g->lane, index, last, 4) * p->shape.out_bytes);
      g->writes = sim_moved(SIM_OP_PRODUCT, j);
  }
}
