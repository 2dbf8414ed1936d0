/* SPDX-License-Identifier: MIT
 * choose.c - see choose.h. */
#include "sim/choose.h"

#include <string.h>

#include "core/base/error.h"

int sim_left_out(const bs_error *why) {
  static const char *const ids[] = {"BS-INSIDE-SCRATCH", "BS-INSIDE-SIZE", "BS-INSIDE-KNOB"};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    if (strcmp(why->id, ids[i]) == 0) return 1;
  return 0;
}

int32_t sim_run_once(sim_program *p, sim_layout *l, const sim_inside_config *hooks, void *told,
                     sim_inside_result *out, bs_error *err) {
  int32_t rc = sim_layout_reset(l, err);
  p->told = told;
  if (rc == BS_OK) rc = sim_program_run(p, l, hooks, out, err);
  p->told = NULL;
  return rc;
}

/* Runs a candidate, unless it cannot be faster than the best by the least gain. */
static int32_t try_one(const sim_choose *c, const sim_knobs *knobs, sim_program *p, sim_chosen *inout,
                       bs_error *err) {
  sim_inside_result result = {0};
  sim_program_close(p);
  int32_t rc = sim_program_make(c->layout, c->op, knobs, p, err);
  if (rc != BS_OK) return rc;
  if ((double)sim_program_bound(p) >= (double)inout->result.settled * (1 - c->least_gain)) {
    inout->skipped++;
    return BS_OK;
  }
  rc = sim_run_once(p, c->layout, NULL, NULL, &result, err);
  if (rc != BS_OK) return rc;
  inout->tried++;
  inout->is_last = result.settled < inout->result.settled;
  if (!inout->is_last) return BS_OK;
  inout->result = result;
  inout->knobs = *knobs;
  return BS_OK;
}

int32_t sim_choose_run(const sim_choose *c, sim_program *inout_program, sim_chosen *out, bs_error *err) {
  bs_error first = BS_ERROR_INIT;
  sim_knobs knobs;
  *out = (sim_chosen){.result = {.settled = SIM_NEVER}};
  for (uint32_t i = 0; c->candidate(c->user, i, &knobs); i++) {
    bs_error why = BS_ERROR_INIT;
    if (try_one(c, &knobs, inout_program, out, &why) == BS_OK) continue;
    if (!sim_left_out(&why)) {
      if (err != NULL) *err = why;
      return why.code;
    }
    if (first.code == BS_OK) first = why;
    out->skipped++;
  }
  if (out->result.settled != SIM_NEVER) return BS_OK;
  if (err != NULL) *err = first;
  return first.code;
}
