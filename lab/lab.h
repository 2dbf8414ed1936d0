/* SPDX-License-Identifier: MIT
 * lab.h - the library under bsrun. An experiment is a resolved configuration; phases run it and return a
 * record; the store keeps records as run folders. config/ composes YAML into a bs_experiment; case/ builds
 * its layer on ranks and runs it; gate/ judges numbers; measure/ times and computes statistics; phase/ runs
 * one phase of an experiment; store/ writes run folders; report/ prints tables. */
#ifndef BS_LAB_LAB_H
#define BS_LAB_LAB_H
#include "lab/experiment.h"
#include "lab/progress.h"
#include "lab/result.h"

/* lab/phase/phase0.c. progress may be NULL. */
int32_t bs_phase0_run(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                      void *user, bs_phase_result *out_result, bs_error *err);
/* lab/phase/phase1.c */
int32_t bs_phase1_run(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                      void *user, bs_phase_result *out_result, bs_error *err);
/* lab/phase/phase2.c */
int32_t bs_phase2_run(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                      void *user, bs_phase_result *out_result, bs_error *err);
/* lab/phase/phase3.c */
int32_t bs_phase3_run(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                      void *user, bs_phase_result *out_result, bs_error *err);

/* The workload opened for an experiment, and the layer spec that follows from both. */
typedef struct bs_subject {
  const bs_workload *workload;
  void *instance;
  bs_workload_info info;
  bs_source x, w, bias, target;
  bs_layer_spec spec;  /* sizes, dtypes, mask, options; strings point into the experiment */
  uint32_t world_size; /* resolved: the requested one, else the method's default */
  const bs_context *context;
  bs_mask mask; /* the experiment's, with its order */
  uint32_t *order;
  /* The values of the options for which bs_overlap_resolve (lab/measure/chunks.h) replaced overlap=auto; the
   * keys are e's. */
  const char *option_values[16];
} bs_subject;
/* Do not move it: spec points into it. */
int32_t bs_subject_open(bs_context *context, const bs_experiment *experiment, bs_subject *out_subject,
                        bs_error *err);
void bs_subject_close(bs_subject *subject);
/* lab/case/importance.c: the subject's K columns by the norm of their weights or inputs, or by a file's
 * numbers, the largest first; equals in their own order. `by`: bs_experiment.importance. free() it. */
int32_t bs_importance_order(const bs_subject *subject, const char *by, uint32_t **out_order, bs_error *err);
#endif
