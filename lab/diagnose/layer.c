/* SPDX-License-Identifier: MIT
 * layer.c - see layer.h. */
#include "lab/diagnose/layer.h"

#include <stdlib.h>
#include <string.h>

#include "lab/case/arms.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/measure/chunks.h"
#include "lab/measure/constants.h"
#include "lab/tune/tune.h"

/* Takes the implementations that the configuration pins; measures nothing. */
static int32_t choose(bs_context *context, bs_experiment *e, bs_error *err) {
  const bs_tuner_options options = {.path = NULL};
  bs_tuner *tuner = NULL;
  int32_t rc = bs_tuner_open(context, &options, &tuner, err);
  if (rc == BS_OK) rc = bs_tuner_choose(tuner, e, err);
  bs_tuner_close(tuner);
  return rc;
}

int32_t diag_layer_open(bs_context *context, const bs_node *config, const char *quiet_dir, diag_layer *out,
                        bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  bs_node *tree = bs_config_clone(config);
  memset(out, 0, sizeof *out);
  out->context = context;
  out->config = config;
  out->quiet_dir = quiet_dir;
  if (tree == NULL) return bs_no_memory(err, "a configuration");
  int32_t rc = bs_experiment_make(context, tree, quiet_dir, NULL, &out->e, err);
  if (rc == BS_OK) rc = choose(context, &out->e, err);
  if (rc != BS_OK) return rc;
  out->e.only_stored = 1; /* overlap=auto is the methods' own model */
  rc = bs_subject_open(context, &out->e, &out->subject, err);
  if (rc != BS_OK) return rc;
  out->opened = 1;
  bs_overlap_resolve(&out->e, &out->subject);
  const uint32_t phase = out->e.phase;
  out->e.phase = BS_PHASE_FORWARD;
  out->e.dense_arm = 1;
  const uint32_t n = bs_arms_of(context, &out->e, &out->subject, arms);
  out->e.phase = phase;
  out->c = arms[0].c;
  if (n > 1) out->dense = arms[n - 1].c;
  return bs_case_propose(&out->c, 0, &out->proposal, err);
}

void diag_layer_close(diag_layer *l) {
  bs_case_result_free(&l->result);
  if (l->opened) bs_subject_close(&l->subject);
  bs_experiment_free(&l->e);
  memset(l, 0, sizeof *l);
}

/* ---- times ----------------------------------------------------------------------------------- */

int32_t diag_layer_time(const bs_diagnosis *d, const bs_case *c, uint32_t work, double *out_steady,
                        double *out_first, bs_span out_once[2], bs_case_result *out_result, bs_error *err) {
  bs_arm *arm = NULL;
  int32_t rc = bs_arm_open_work(c, "layer", work, 0, &arm, err);
  if (rc != BS_OK) return rc;
  const bs_sampler_arm sampled = bs_arm_sampled(arm, "layer", BS_TIME_HOT);
  rc = bs_arm_time(d, &sampled, out_steady, out_first, err);
  out_once[0] = bs_arm_build(arm);
  out_once[1] = bs_arm_pack(arm);
  const int32_t closed = bs_arm_close(arm, rc == BS_OK ? out_result : NULL, rc == BS_OK ? err : NULL);
  return rc == BS_OK ? closed : rc;
}

int32_t diag_layer_measure(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  bs_span once[2];
  bs_tell(d, "the layer as it is", 0, 0);
  const int32_t rc = diag_layer_time(d, &l->c, BS_ARM_FORWARD, &l->steady, &l->first, once, &l->result, err);
  if (rc != BS_OK) return rc;
  l->build = once[0];
  l->pack = once[1];
  d->pass_s = l->steady;
  return BS_OK;
}

int32_t diag_layer_pair(bs_diagnosis *d, const diag_layer *l, const bs_case *other, uint32_t work,
                        bs_pair_times *out, bs_error *err) {
  bs_arm *arms[2] = {NULL, NULL};
  int32_t rc = bs_arm_open_work(&l->c, "as it is", work, 0, &arms[0], err);
  if (rc == BS_OK) rc = bs_arm_open_work(other, "changed", work, 1, &arms[1], err);
  if (rc == BS_OK) {
    const bs_sampler_arm sampled[2] = {bs_arm_sampled(arms[0], "as it is", BS_TIME_HOT),
                                       bs_arm_sampled(arms[1], "changed", BS_TIME_HOT)};
    rc = bs_pair_time(d, sampled, out, err);
  }
  for (int i = 0; i < 2; i++)
    if (arms[i] != NULL) bs_arm_close(arms[i], NULL, NULL);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static json_t *subject_of(const diag_layer *l) {
  const bs_layer_spec *s = &l->c.spec;
  return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:s}", "method", l->e.method, "backend",
                   l->e.backend, "comm", l->e.comm, "world_size", (int)l->c.world_size, "threads_per_rank",
                   (int)l->c.threads_per_rank, "B", (json_int_t)s->B, "N", (json_int_t)s->N, "K",
                   (json_int_t)s->K, "dtype", bs_dtype_name(s->x_dtype));
}

/* All ranks must be here. */
static int32_t ranks_are_threads(bs_context *context, const char *name, bs_error *err) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_comm(context, name, &comm, &state, err);
  if (rc != BS_OK || comm->launch != BS_LAUNCH_ATTACHED) return rc;
  bs_error_set(err, BS_USAGE, "BS-DIAG-COMM",
               "ranks of communicator %.60s are processes, those of diagnose threads", name);
  bs_error_hint(err, "--comm threads");
  return BS_USAGE;
}

int32_t bs_diagnose_layer(bs_context *context, const bs_node *config, const char *quiet_dir,
                          const bs_diagnose_request *request, json_t **out, bs_error *err) {
  diag_layer layer = {0};
  bs_diagnosis d = {0};
  bs_load before, after;
  *out = NULL;
  bs_load_now(&before);
  int32_t rc = bs_diagnose_words(request, 0, err);
  if (rc == BS_OK) rc = bs_diagnosis_open(&d, request, err);
  if (rc == BS_OK) rc = diag_layer_open(context, config, quiet_dir, &layer, err);
  if (rc == BS_OK) rc = ranks_are_threads(context, layer.e.comm, err);
  if (rc == BS_OK) rc = diag_layer_measure(&d, &layer, err);
  if (rc == BS_OK) rc = bs_diagnosis_run(&d, &layer, NULL, err);
  bs_load_now(&after);
  if (rc == BS_OK)
    rc = bs_diagnosis_result(&d, "layer", subject_of(&layer), bs_load_json(&before, &after), out, err);
  diag_layer_close(&layer);
  bs_diagnosis_close(&d);
  return rc;
}
