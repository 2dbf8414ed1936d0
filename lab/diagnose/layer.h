/* SPDX-License-Identifier: MIT
 * layer.h - a layer as the subject of a diagnosis: the requested case, timed once at the start, and variants
 * of the case with something changed. */
#ifndef BS_LAB_DIAGNOSE_LAYER_H
#define BS_LAB_DIAGNOSE_LAYER_H
#include "core/op/watch.h"
#include "lab/case/case.h"
#include "lab/diagnose/check.h"
#include "lab/lab.h"
#include "lab/measure/arm.h"

typedef struct diag_layer {
  bs_context *context;
  const bs_node *config;
  const char *quiet_dir;
  bs_experiment e;
  bs_subject subject;
  bs_case c;     /* the requested case */
  bs_case dense; /* its peer on all cores; method NULL: it is that itself */
  int opened;
  /* From the unchanged pass. */
  double steady, first;
  bs_span build, pack;
  bs_case_result result;
  bs_proposal proposal; /* of rank 0 */
} diag_layer;

/* An experiment with its subject and case, of a tree. The caller closes, also after an error. */
int32_t diag_layer_open(bs_context *context, const bs_node *config, const char *quiet_dir, diag_layer *out,
                        bs_error *err);
void diag_layer_close(diag_layer *layer);
/* Builds the layer, times it, and stores the values with which checks compare variants. */
int32_t diag_layer_measure(bs_diagnosis *d, diag_layer *layer, bs_error *err);
/* Times the unchanged case and another one alternately. work: enum bs_arm_work, of both. */
int32_t diag_layer_pair(bs_diagnosis *d, const diag_layer *layer, const bs_case *other, uint32_t work,
                        bs_pair_times *out, bs_error *err);
/* Times a case: a call of `work`. out_result may be NULL; free it. */
int32_t diag_layer_time(const bs_diagnosis *d, const bs_case *c, uint32_t work, double *out_steady,
                        double *out_first, bs_span out_once[2], bs_case_result *out_result, bs_error *err);

/* ---- single calls (layer_probe.c) ------------------------------------------------------------ */

/* Data of one forward, over all ranks: seconds of the slowest, the rest summed. Collectives are not in
 * blocked_s and sleeps. */
typedef struct diag_call {
  int64_t tokens;
  double seconds, blocked_s, plan_s;
  uint64_t sleeps, waits, copied_bytes, plans[BS_REPLAN_COUNT_];
  char last[160]; /* of rank 0: bs_watch.last */
} diag_call;
typedef struct diag_probe {
  uint32_t capture; /* 1: the layer is built with BS_LAYER_CAPTURE */
  uint32_t n;
  diag_call *calls;   /* n; tokens are set */
  char captured[200]; /* of rank 0, after the last call; "" without capture */
} diag_probe;
/* Builds the layer in a separate world and makes the calls in their order, after three that are not
 * reported. */
int32_t diag_probe_run(const bs_case *c, diag_probe *probe, bs_error *err);
#endif
