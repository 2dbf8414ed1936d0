/* SPDX-License-Identifier: MIT
 * ladder.c - see ladder.h: makes the rungs of the candidates, predicts and measures them, gives them places.
 */
#include "lab/ladder/ladder.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/arms.h"
#include "lab/choose/strategy.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/chunks.h"
#include "lab/measure/sampler.h"
#include "lab/peers/exchange.h"
#include "lab/peers/peers.h"
#include "lab/store/request_key.h"

enum { PAIRS_MIN = 18 };                  /* three builds */
static const double REBUILD_SHARE = 0.25; /* of the time of measuring */

static void tell(const bs_ladder_options *o, const char *what, uint64_t done, uint64_t total) {
  if (o->progress) o->progress(o->progress_user, what, done, total);
}

/* ---- making --------------------------------------------------------------------------------- */

int32_t bs_rung_apply(const char (*settings)[64], uint32_t n, bs_node *tree, bs_error *err) {
  static const char *const patterns[] = {"mask.pattern", "mask.pattern_a", "mask.pattern_b"};
  int32_t rc = BS_OK;
  int masked = 0;
  for (uint32_t i = 0; i < n; i++) masked |= strncmp(settings[i], "mask.name=", 10) == 0;
  for (size_t i = 0; rc == BS_OK && masked && i < 3; i++)
    if (bs_config_find(tree, patterns[i]) != NULL) rc = bs_config_set(tree, patterns[i], "null", err);
  for (uint32_t i = 0; rc == BS_OK && i < n; i++) {
    char path[64];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(settings[i], "="), settings[i]);
    rc = bs_config_set_text(tree, path, settings[i] + strlen(path) + 1, err);
  }
  return rc;
}

static void add_collectives(bs_rung *r, uint32_t n, const uint32_t *kinds, const uint64_t *payloads) {
  size_t used = strlen(r->collectives);
  for (uint32_t i = 0; i < n && i < BS_MAX_PROPOSED; i++) {
    r->wire_bytes += payloads[i];
    if (used > 0 && strstr(r->collectives, bs_name_of(BS_NAMES_COLL, kinds[i])) != NULL) continue;
    const int more = snprintf(r->collectives + used, sizeof r->collectives - used, "%s%s",
                              used > 0 ? " " : "", bs_name_of(BS_NAMES_COLL, kinds[i]));
    if (more > 0 && used + (size_t)more < sizeof r->collectives) used += (size_t)more;
  }
}

/* Asks for rank 0's proposal. A refusal applies to the rung, not to the ladder. */
static int32_t ask(bs_context *context, const bs_ladder_options *o, bs_rung *r, bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  bs_proposal p;
  const uint32_t phase = r->e.phase;
  r->e.machine_constants = o->constants;
  r->e.only_stored = 1; /* overlap=auto is the methods' own model then */
  int32_t rc = bs_subject_open(context, &r->e, &r->subject, err);
  if (rc != BS_OK) return rc;
  bs_overlap_resolve(&r->e, &r->subject);
  r->opened = 1;
  r->e.phase = BS_PHASE_CORRECTNESS; /* only the method's own arm */
  bs_arms_of(context, &r->e, &r->subject, arms);
  r->e.phase = phase;
  r->c = arms[0].c;
  r->c.spec.flags |= bs_arm_work_flags(o->pass);
  rc = bs_case_propose(&r->c, 0, &p, err);
  if (rc != BS_OK) return rc;
  r->flops = p.flops;
  r->weight_bytes = p.weight_bytes;
  r->wire_error = p.wire_error;
  if (o->pass != BS_ARM_BACKWARD) add_collectives(r, p.n_collectives, p.coll_kind, p.coll_payload);
  if (o->pass != BS_ARM_FORWARD) add_collectives(r, p.n_backward, p.backward_kind, p.backward_payload);
  return BS_OK;
}

/* Processes that were started are all ranks of one world. */
static int32_t join(const bs_ladder_options *o, uint32_t world, bs_rung *r, bs_error *err) {
  if (o->peers == NULL || r->e.world_size == world) return BS_OK;
  return bs_error_set(err, BS_CONFIG, "BS-AUTO-RANKS", "%u ranks, but %u processes were started",
                      r->e.world_size, world);
}

static int32_t make_rung(bs_context *context, const bs_node *config, const bs_ladder_options *o,
                         uint32_t world, bs_rung *r, bs_error *err) {
  const bs_rung *given = r;
  bs_node *tree = bs_config_clone(config);
  if (tree == NULL) return bs_no_memory(err, "candidates");
  int32_t rc = bs_rung_apply(given->settings, given->n_settings, tree, err);
  if (rc != BS_OK) {
    bs_config_free(tree);
    return rc;
  }
  rc = bs_experiment_make(context, tree, o->quiet_dir, NULL, &r->e, &r->refused);
  if (rc == BS_OK && r->e.world_size == world) r->e.peers = o->peers;
  if (rc == BS_OK) rc = ask(context, o, r, &r->refused);
  if (rc == BS_OK && bs_rung_describe(r, err) != BS_OK) return err->code;
  if (rc == BS_OK) join(o, world, r, &r->refused); /* the dense layer's products are known all the same */
  return r->refused.code == BS_NO_MEMORY ? (*err = r->refused, BS_NO_MEMORY) : BS_OK;
}

/* ---- places --------------------------------------------------------------------------------- */

static double seconds_of(const bs_rung *r) {
  if (r->refused.code != BS_OK) return INFINITY;
  const bs_parts *parts = r->predicted.has_kernel ? &r->predicted.kernel : &r->predicted.bound;
  return fmin(r->measured ? r->seconds : r->is_simulated ? r->sim.ps * 1e-12 : parts->total, DBL_MAX);
}

/* Ranks the rungs as a search does: measured times first, then predictions from the implementation's own
 * rates, then lower bounds, which no run reaches. */
static void give_places(bs_ladder *l) {
  bs_searched_row rows[BS_RUNGS_MAX];
  size_t order[BS_RUNGS_MAX];
  for (uint32_t i = 0; i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    const uint32_t effort = r->measured ? 2 : r->predicted.has_kernel;
    rows[i] = (bs_searched_row){.point = i, .seconds = seconds_of(r), .effort = effort};
    l->rungs[i].place = 0;
  }
  const bs_searched all = {.n = l->n, .rows = rows};
  const size_t n = bs_searched_elite(&all, l->n, order);
  for (size_t i = 0; i < n; i++) l->rungs[order[i]].place = (uint32_t)i + 1;
}

/* Describes a rung with the decided ranks and threads; settings other than the layer and its split are left
 * out. */
int32_t bs_rung_describe(bs_rung *r, bs_error *err) {
  static const char *const left_out[] = {"run_id",
                                         "config_paths",
                                         "logging",
                                         "sweep",
                                         "auto",
                                         "phase",
                                         "experiment",
                                         "hardware.world_size",
                                         "hardware.threads_per_rank",
                                         "mask"};
  const size_t n = sizeof left_out / sizeof left_out[0] - (r->c.spec.mask != NULL);
  bs_node *tree = NULL;
  int32_t rc = bs_experiment_settle(&r->e, r->c.world_size, &tree, err);
  if (rc == BS_OK) rc = bs_request_text(tree, left_out, n, &r->same, err);
  if (rc == BS_OK)
    bs_text_printf(&r->same, "%u ranks of %u threads\n", r->c.world_size, r->c.threads_per_rank);
  bs_config_free(tree);
  return rc == BS_OK && r->same.failed ? bs_no_memory(err, "a candidate") : rc;
}

int32_t bs_ladder_rungs(bs_context *context, const bs_node *config, const bs_ladder_options *o,
                        bs_ladder *out, uint32_t *out_able, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->pass = o->pass;
  const int64_t asked = bs_schema_i64(config, "hardware.world_size");
  const uint32_t world = asked > 0 ? (uint32_t)asked : 2;
  int32_t rc =
      o->n_specs > 0 ? bs_ladder_specs(o, out, err) : bs_ladder_candidates(context, config, o, out, err);
  if (rc == BS_OK) rc = bs_ladder_vary(context, o, out, err);
  *out_able = 0;
  for (uint32_t i = 0; rc == BS_OK && i < out->n; i++) {
    rc = make_rung(context, config, o, world, &out->rungs[i], err);
    *out_able += out->rungs[i].refused.code == BS_OK;
  }
  return rc == BS_OK ? bs_ladder_clock(context, out, err) : rc;
}

int32_t bs_ladder_make(bs_context *context, const bs_node *config, const bs_ladder_options *o, bs_ladder *out,
                       bs_error *err) {
  uint32_t able = 0;
  int32_t rc = bs_ladder_rungs(context, config, o, out, &able, err);
  if (rc == BS_OK && able == 0) {
    if (out->n == 0) return bs_error_set(err, BS_CONFIG, "BS-AUTO-NONE", "there is no candidate");
    bs_error_set(err, BS_CONFIG, "BS-AUTO-NONE", "none of %u candidates can run; %s: %.300s", out->n,
                 out->rungs[0].name, out->rungs[0].refused.message);
    bs_error_hint(err, "%.150s", out->rungs[0].refused.hint);
    return BS_CONFIG;
  }
  if (rc == BS_OK)
    rc = out->simulated ? bs_ladder_simulate(context, out, o, err) : bs_ladder_predict(out, o, err);
  give_places(out);
  return rc;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* Worlds and layers of the rungs that are sampled; one that cannot be built is refused from then on. */
typedef struct sampled {
  bs_rung *rung[BS_SAMPLER_ARMS];
  bs_arm *arm[BS_SAMPLER_ARMS];
  uint32_t n;
  const bs_ladder_options *o;
  bs_sampled *sampling;
} sampled;

static void tell_sampled(void *user, const char *what, uint64_t done, uint64_t total) {
  tell(((const sampled *)user)->o, what, done, total);
}

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  const sampled *s = user;
  return bs_arms_rebuild(s->arm, s->n, build % 2 == 0, err);
}

static int32_t open_sampled(bs_ladder *l, uint32_t most, const bs_ladder_options *o, sampled *s,
                            bs_error *err) {
  for (uint32_t turn = 1; turn <= l->n && s->n < most; turn++) {
    for (uint32_t i = 0; i < l->n; i++) {
      bs_rung *r = &l->rungs[i];
      const int taken = o->in_order ? i + 1 == turn && r->place > 0 && r->place <= most : r->place == turn;
      if (!taken) continue;
      const bs_told open = {.word = BS_WORD_OPEN, .n = i, .arm = s->n};
      tell(o, r->name, s->n + 1, most);
      int32_t rc = bs_peers_tell(o->peers, &open, err);
      if (rc != BS_OK) return rc;
      rc = bs_arm_open_work(&r->c, r->name, l->pass, s->n, &s->arm[s->n], &r->refused);
      if (rc == BS_NO_MEMORY || rc == BS_ABORTED) return (*err = r->refused, rc);
      if (rc == BS_OK) s->rung[s->n++] = r;
    }
  }
  if (s->n > 0) return BS_OK;
  return bs_error_set(err, BS_CONFIG, "BS-AUTO-NONE", "none of the candidates could be built");
}

static int32_t run_sampled(sampled *s, double seconds, bs_error *err) {
  bs_sampler_options so;
  bs_sampler_arm arms[BS_SAMPLER_ARMS];
  bs_sampled *taken = NULL;
  const bs_sampler_host host = {
      .user = s, .disturb = bs_disturb_host, .progress = tell_sampled, .rebuild = rebuild};
  bs_sampler_defaults(&so);
  so.pairs_min = PAIRS_MIN;
  so.pairs_max = (size_t)fmax(PAIRS_MIN, (double)s->rung[0]->e.pairs_max);
  so.warm_calls = (uint64_t)s->rung[0]->e.warmup_iters;
  so.seconds = seconds;
  so.keep_stopped = 1;
  so.rebuild_seconds = REBUILD_SHARE * seconds;
  so.warm_seconds = seconds / (2.0 * s->n) < so.warm_seconds ? seconds / (2.0 * s->n) : so.warm_seconds;
  for (uint32_t i = 0; i < s->n; i++) {
    arms[i] = bs_arm_sampled(s->arm[i], s->rung[i]->name, BS_TIME_HOT);
    arms[i].configuration = s->rung[i]->same.data;
  }
  const int32_t rc = bs_sampler_run(&so, &host, arms, s->n, &taken, err);
  for (uint32_t i = 0; rc == BS_OK && i < s->n; i++) {
    s->rung[i]->measured = 1;
    s->rung[i]->seconds = taken->arm[i].look.p50;
    s->rung[i]->against = taken->arm[i].comparison;
  }
  s->sampling = taken;
  return rc;
}

int32_t bs_ladder_measure(bs_ladder *l, uint32_t most, const bs_ladder_options *o, bs_error *err) {
  sampled s = {.o = o};
  if (l->simulated) return BS_OK;
  if (most > BS_SAMPLER_ARMS) most = BS_SAMPLER_ARMS;
  int32_t rc = open_sampled(l, most, o, &s, err);
  if (rc == BS_OK) rc = run_sampled(&s, o->seconds, err);
  for (uint32_t i = 0; i < s.n; i++) bs_arm_close(s.arm[i], NULL, NULL);
  l->sampling = s.sampling;
  give_places(l);
  return rc;
}

const bs_rung *bs_ladder_best(const bs_ladder *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    if (l->rungs[i].place == 1) return &l->rungs[i];
  }
  return NULL;
}

void bs_rung_free(bs_rung *r) {
  json_decref(r->sim.steps);
  bs_text_free(&r->same);
  if (r->opened) bs_subject_close(&r->subject);
  bs_experiment_free(&r->e);
}

void bs_ladder_free(bs_ladder *l) {
  for (uint32_t i = 0; i < l->n; i++) bs_rung_free(&l->rungs[i]);
  free(l->rungs);
  bs_sampling_free(l->sampling);
  memset(l, 0, sizeof *l);
}
