/* SPDX-License-Identifier: MIT
 * oplog_attention.c - the log of a run of attention. The scratch of a lane is: the slots of Q, those of K,
 * those of V, the buffers of scores, the sums. Exp works in the place of its scores, and a store reads the
 * sums: it divides and converts them on their way. */
#include "sim/oplog_parts.h"
#include "sim/program_parts.h"

typedef struct places {
  uint64_t q, k, v, scores, sums; /* begins in the scratch, of this job's step */
} places;

static places places_of(const sim_attention *a, const sim_recorder *r, const sim_attention_spot *at) {
  const sim_attention_shape *s = &a->shape;
  const sim_knobs *k = &a->plan.knobs;
  const uint64_t slots = r->slots > 0 ? r->slots : k->stages, buffers = 1 + (uint64_t)k->ahead,
                 of_q = k->tm * s->d * s->in_bytes, of_k = k->tn * s->d * s->in_bytes,
                 of_v = k->tn * s->e * s->in_bytes, of_scores = (uint64_t)k->tm * k->tn * 4,
                 of_sums = k->tm * s->e * 4, q_slots = sim_attention_q_slots(a);
  const uint64_t k_begins = q_slots * of_q, v_begins = k_begins + slots * of_k,
                 scores = v_begins + slots * of_v, sums = scores + buffers * of_scores;
  return (places){.q = at->turn % q_slots * of_q,
                  .k = k_begins + at->step % slots * of_k,
                  .v = v_begins + at->step % slots * of_v,
                  .scores = scores + at->step % buffers * of_scores,
                  .sums = sums + at->turn % k->accumulators * of_sums};
}

static void reads(sim_logged *g, uint64_t start, uint64_t bytes) {
  g->reads[g->n_reads++] = sim_in_scratch(start, bytes);
}

void sim_oplog_attention(const sim_program *program, const sim_recorder *r, uint64_t index, const sim_job *j,
                         sim_logged *g) {
  const sim_attention *a = &program->attention;
  const sim_attention_shape *s = &a->shape;
  sim_attention_spot at;
  sim_attention_spot_of(a, g->lane, index, &at);
  const places p = places_of(a, r, &at);
  const uint64_t q = at.queries * s->d * s->in_bytes, k = at.keys * s->d * s->in_bytes,
                 v = at.keys * s->e * s->in_bytes, scores = at.queries * at.keys * 4,
                 sums = at.queries * s->e * 4;
  g->n_writes = 1;
  switch (j->what) {
    case SIM_LOAD_Q:
    case SIM_LOAD_K:
    case SIM_LOAD_V:
      g->reads[g->n_reads++] = sim_moved(SIM_OP_ATTENTION, j);
      g->writes = j->what == SIM_LOAD_Q   ? sim_in_scratch(p.q, q)
                  : j->what == SIM_LOAD_K ? sim_in_scratch(p.k, k)
                                          : sim_in_scratch(p.v, v);
      break;
    case SIM_SCORES:
      reads(g, p.q, q);
      reads(g, p.k, k);
      g->writes = sim_in_scratch(p.scores, scores);
      break;
    case SIM_EXP:
      reads(g, p.scores, scores);
      g->writes = sim_in_scratch(p.scores, scores);
      break;
    case SIM_VALUES:
      reads(g, p.scores, scores);
      reads(g, p.v, v);
      if (!at.first) reads(g, p.sums, sums);
      g->writes = sim_in_scratch(p.sums, sums);
      break;
    default:
      reads(g, p.sums, sums);
      g->writes = sim_moved(SIM_OP_ATTENTION, j);
  }
}
