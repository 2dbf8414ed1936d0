/* SPDX-License-Identifier: MIT
 * oplog_map.c - the log of a map's run. The scratch of a lane is: the slots of what is loaded, then those of
 * what leaves. In a slot the operands of the tile lie one behind the other, so a short tile leaves no gaps.
 */
#include "sim/oplog_parts.h"
#include "sim/program_parts.h"

void sim_oplog_map(const sim_program *program, const sim_recorder *r, uint64_t index, const sim_job *j,
                   sim_logged *g) {
  const sim_map *m = &program->map;
  const sim_map_shape *s = &m->shape;
  const sim_knobs *k = &m->plan.knobs;
  uint32_t number = 0;
  if (!sim_works(m->plan.layout, k, g->lane, &number)) return;
  const uint64_t turn = index / m->jobs_a_tile, in = index % m->jobs_a_tile,
                 from = (number + turn * sim_working(m->plan.layout, k)) * k->tm,
                 n = s->elements - from < k->tm ? s->elements - from : k->tm;
  const uint64_t slots = r->slots > 0 ? r->slots : k->stages, slot = turn % slots;
  const uint64_t loaded = slot * k->tm * s->inputs * s->in_bytes,
                 leaves = slots * k->tm * s->inputs * s->in_bytes + slot * k->tm * s->outputs * s->out_bytes;
  const uint64_t one_in = n * s->in_bytes, one_out = n / s->out_of * s->out_bytes;
  g->n_reads = g->n_writes = 1;
  if (j->what == SIM_LOAD) {
    g->reads[0] = sim_moved(SIM_OP_MAP, j);
    g->writes = sim_in_scratch(loaded + in * one_in, one_in);
  } else if (j->what == SIM_MAP) {
    g->reads[0] = sim_in_scratch(loaded, s->inputs * one_in);
    g->writes = sim_in_scratch(leaves, s->outputs * one_out);
  } else { /* a copy stores what it has loaded */
    const uint64_t which = in - s->inputs - m->maps;
    g->reads[0] = m->maps ? sim_in_scratch(leaves + which * one_out, one_out)
                          : sim_in_scratch(loaded + which * one_in, one_in);
    g->writes = sim_moved(SIM_OP_MAP, j);
  }
}
