/* SPDX-License-Identifier: MIT
 * profile.h - the parts of the time of a layer, a kernel or a model, compared with the machine's limits, and
 * findings from them (docs/profile.md). A profile is one JSON record:
 *   subject    {kind: "layer", "kernel", "model" or "ncu", name, threads, ranks, kernel: 0|1, model: 0|1}
 *   call_s     of one forward, call or run, median
 *   calls      {n, min_s, p95_s}: the number of forwards, calls or samples of runs, and their spread
 *   parts      [{part, rank, seconds, share (of call_s), flops, bytes, gflops, gbytes_s, bound_percent}]:
 *              regions of ranks, the kernel, or nodes
 *   bound      {limit, seconds, percent (of call_s), beyond_s, fma_share, exp_share, bytes_share, wire_share,
 *              launch_share}: seconds by each limit over call_s; unknown ones are left out
 *   ranks      {n, imbalance (the slowest rank's own work over the mean), imbalance_s, wait_share, wait_s,
 *              collective_share, collective_s}
 *   nodes      {n, fallback, fallback_s, top_share} of a model
 *   counters   {known, reason, ...}: counters.h
 *   conditions other work of the processors: bs_load_json
 *   findings   [{rule, state: "holds", "no", "UNKNOWN", text, says, cost_s}], by bs_profile_judge, ordered by
 *              falling cost; cost_s (seconds of a call) if the rule has it */
#ifndef BS_LAB_PROFILE_PROFILE_H
#define BS_LAB_PROFILE_PROFILE_H
#include "lab/case/case.h"
#include "lab/experiment.h"
#include "lab/kernel/case.h"
#include "lab/model/model.h"
#include "lab/progress.h"

typedef struct bs_profile_options {
  int counters;      /* 0: none are opened */
  const char *trace; /* a file of Chrome trace events; NULL: none */
  double seconds;    /* that measuring may take, roughly */
  bs_progress_fn progress;
  void *user;
} bs_profile_options;

/* Profiles one forward of the experiment's method (without its dense peers), by the implementations that its
 * configuration pins or that the tuning file (NULL: none) names; nothing is tuned. The caller releases
 * *out. */
int32_t bs_profile_layer(bs_context *context, bs_experiment *experiment, const char *tune_path,
                         const bs_profile_options *options, json_t **out, bs_error *err);
/* Profiles a given case: c->iterations forwards, after a third of them as warm-up. */
int32_t bs_profile_case(bs_case *c, const bs_experiment *experiment, const bs_profile_options *options,
                        json_t **out, bs_error *err);
int32_t bs_profile_kernel(const bs_kernel_setup *setup, const bs_profile_options *options, json_t **out,
                          bs_error *err);
/* Profiles an open model that has no session yet (bench.h); parts are nodes, the slowest first. */
int32_t bs_profile_model(bs_context *context, bs_model_request *request, bs_model *model,
                         const bs_profile_options *options, json_t **out, bs_error *err);
/* Makes the profile of a run that was measured before. row: {median_s, threads, world_size (missing: 1),
 * flops, bytes, fallback_nodes} of a run; nodes: those of bs_model_by_time. `calls`, `counters` and
 * `conditions` are missing. */
int32_t bs_profile_run(const char *name, const json_t *row, const json_t *nodes, json_t **out, bs_error *err);
/* Makes profiles from a file of Nsight Compute (ncu.h): a record a kernel, with the findings of a rule file,
 * number `at` of `all`. Records are made one after another, so that many kernels need little memory. */
typedef int32_t (*bs_profile_take)(void *user, json_t *record, size_t at, size_t all, bs_error *err);
int32_t bs_profile_ncu(const char *path, const char *rules, bs_profile_take take, void *user, bs_error *err);

/* Adds the findings of a rule file (a name of configs/rules, or a path) to a record. It is not an error if
 * all are UNKNOWN. */
int32_t bs_profile_judge(json_t *record, const char *rules, bs_error *err);
#endif
