/* SPDX-License-Identifier: MIT
 * arms.c - see arms.h. */
#include "lab/case/arms.h"

#include <string.h>

#include "lab/cores.h"

static bs_case common(bs_context *context, const bs_experiment *e, const bs_subject *s) {
  return (bs_case){.context = context,
                   .backend = e->backend,
                   .comm = e->comm,
                   .algorithm = e->algorithm,
                   .topology = e->topology,
                   .peers = e->peers,
                   .bind = e->bind,
                   .sync_mode = e->sync_mode,
                   .timeout_s = e->timeout_s,
                   .choices = e->choices,
                   .n_choices = e->n_choices,
                   .spec = s->spec,
                   .x = &s->x,
                   .w = &s->w,
                   .bias = s->info.has_bias ? &s->bias : NULL};
}

/* The method's mask, placement and options are not the dense peer's. */
static bs_arm_case dense(const char *name, const bs_case *like, uint32_t threads) {
  bs_arm_case arm = {.name = name, .c = *like};
  arm.c.method = "dense";
  arm.c.world_size = 1;
  arm.c.threads_per_rank = threads;
  arm.c.spec.mask = NULL;
  arm.c.spec.y_placement = BS_REPLICATED;
  arm.c.spec.n_options = 0;
  return arm;
}

/* Is the dense peer equal to the subject? With one rank masks and placements have no effect. */
static int is_subject(bs_context *context, const bs_case *subject, uint32_t threads) {
  const bs_method *method = NULL;
  void *state = NULL;
  return subject->world_size == 1 && subject->threads_per_rank == threads && subject->spec.n_options == 0 &&
         bs_find_method(context, subject->method, &method, &state, NULL) == BS_OK &&
         strcmp(method->name, "dense") == 0;
}

uint32_t bs_arms_of(bs_context *context, const bs_experiment *e, const bs_subject *s,
                    bs_arm_case out[BS_ARMS_MAX]) {
  const uint32_t ranks = s->world_size, cores = bs_machine_cores(), share = cores / ranks;
  const uint32_t threads = e->threads_per_rank > 0 ? e->threads_per_rank : share > 0 ? share : 1;
  uint32_t n = 1;
  out[0] = (bs_arm_case){.name = "method", .c = common(context, e, s)};
  out[0].c.method = e->method;
  out[0].c.world_size = ranks;
  out[0].c.threads_per_rank = threads;
  if (e->phase != BS_PHASE_FORWARD || !e->dense_arm) return n;
  if (threads != cores && !is_subject(context, &out[0].c, threads))
    out[n++] = dense("dense, one rank's cores", &out[0].c, threads);
  if (!is_subject(context, &out[0].c, cores)) out[n++] = dense("dense, all cores", &out[0].c, cores);
  return n;
}
