/* SPDX-License-Identifier: MIT
 * simulate.c - the rungs of a ladder whose communicator has a virtual clock (plugins/sim). It simulates one
 * pass of each and ranks the times. This machine's constants predict nothing, and nothing is measured. Called
 * by ladder.c. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/clock.h"
#include "lab/ladder/ladder.h"

/* A simulated rank has no cores: the additional dense layer runs on one device. It is left out if the user's
 * settings already name dense. */
static void keep_one_dense(bs_ladder *l) {
  uint32_t keep = 1;
  for (uint32_t i = 0; i < l->n - l->beside; i++)
    if (strcmp(l->rungs[i].settings[0], "method.name=dense") == 0) keep = 0;
  for (; l->beside > keep; l->beside--) bs_rung_free(&l->rungs[--l->n]);
  if (l->beside == 1) snprintf(l->rungs[l->n - 1].name, sizeof l->rungs[0].name, "dense on one device");
}

int32_t bs_ladder_clock(bs_context *context, bs_ladder *l, bs_error *err) {
  const bs_rung *first = NULL;
  for (uint32_t i = 0; i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    if (r->e.comm == NULL) continue; /* it could not be made */
    const uint32_t is_virtual = (uint32_t)bs_clock_is_virtual(context, r->e.comm);
    if (first == NULL) l->simulated = is_virtual;
    if (first == NULL) first = r;
    if (is_virtual == l->simulated) continue;
    bs_error_set(
        err, BS_UNSUPPORTED, "BS-SPAN-CLOCK",
        "%s is timed by the clock of communicator %s, %s by that of %s: one of them is virtual, and such "
        "times are not compared",
        first->name, first->e.comm, r->name, r->e.comm);
    bs_error_hint(err, "compare in two commands: simulated ones, and measured ones");
    return BS_UNSUPPORTED;
  }
  if (l->simulated) keep_one_dense(l);
  return BS_OK;
}

static int32_t simulate_rung(bs_context *context, const bs_ladder *l, bs_rung *r, bs_error *err) {
  bs_experiment e = r->e;
  e.phase = BS_PHASE_FORWARD; /* nothing is judged */
  int32_t rc = bs_simulated_check(context, &e, &r->refused);
  bs_case c = r->c;
  if (c.world_size == 1) c.algorithm = c.topology = NULL; /* no topology of several ranks has to fit one */
  if (rc == BS_OK) rc = bs_simulate_case(&c, l->pass, &r->sim, &r->refused);
  if (rc == BS_OK && (rc = bs_simulated_takes_time(r->sim.ps, &r->refused)) != BS_OK)
    json_decref(r->sim.steps);
  if (rc != BS_OK) r->sim.steps = NULL;
  r->is_simulated = rc == BS_OK;
  return rc == BS_NO_MEMORY || rc == BS_ABORTED ? (*err = r->refused, rc) : BS_OK;
}

int32_t bs_ladder_simulate(bs_context *context, bs_ladder *l, const bs_ladder_options *o, bs_error *err) {
  const bs_rung *why = NULL;
  uint32_t able = 0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->n; i++) {
    bs_rung *r = &l->rungs[i];
    if (o->progress) o->progress(o->progress_user, "simulate", i + 1, l->n);
    if (r->refused.code == BS_OK) rc = simulate_rung(context, l, r, err);
    able += r->is_simulated;
    if (why == NULL && r->refused.code != BS_OK) why = r;
  }
  if (rc != BS_OK || able > 0 || why == NULL) return rc;
  bs_error_set(err, BS_CONFIG, "BS-AUTO-NONE", "none of %u candidates can be simulated; %s: %.300s", l->n,
               why->name, why->refused.message);
  bs_error_hint(err, "%.150s", why->refused.hint);
  return BS_CONFIG;
}
