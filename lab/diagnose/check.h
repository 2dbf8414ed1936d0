/* SPDX-License-Identifier: MIT
 * check.h - internals of diagnose: the table of checks, and the results of a check. */
#ifndef BS_LAB_DIAGNOSE_CHECK_H
#define BS_LAB_DIAGNOSE_CHECK_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/diagnose/diagnose.h"
#include "lab/measure/sampler.h"

/* A diagnosis that is made. */
typedef struct bs_diagnosis {
  const bs_diagnose_request *asked;
  const struct bs_check *now; /* the check that runs */
  json_t *findings, *checks, *ablations;
  json_t *facts;       /* of the check that runs */
  size_t found;        /* its findings */
  char skip[160];      /* why there was nothing to check; "" */
  char disturbed[160]; /* what used the processors during a comparison; "" */
  double pass_s;       /* a steady pass of the subject */
  double seconds;      /* that one timing may take */
} bs_diagnosis;

struct diag_layer; /* layer.h */
struct diag_model; /* model_subject.h */

typedef struct bs_check {
  const char *id, *title;
  int32_t (*layer)(bs_diagnosis *d, struct diag_layer *layer, bs_error *err); /* NULL: not of layers */
  int32_t (*model)(bs_diagnosis *d, struct diag_model *model, bs_error *err);
  uint32_t quick; /* 1: of the preset quick too */
} bs_check;
extern const bs_check bs_checks[];
extern const size_t bs_n_checks;

int32_t bs_diagnosis_open(bs_diagnosis *d, const bs_diagnose_request *asked, bs_error *err);
/* Runs the checks of the subject: exactly one of layer and model is there. */
int32_t bs_diagnosis_run(bs_diagnosis *d, struct diag_layer *layer, struct diag_model *model, bs_error *err);
/* The result, with `subject` and `conditions`, which it takes over. */
int32_t bs_diagnosis_result(bs_diagnosis *d, const char *kind, json_t *subject, json_t *conditions,
                            json_t **out, bs_error *err);
void bs_diagnosis_close(bs_diagnosis *d);

/* ---- results of checks ------------------------------------------------------------------------ */

/* Adds a finding: its cost in seconds a pass, further words of the subject's command that show it (NULL:
 * "--only CHECK"), and printf text of the evidence. */
void bs_find(bs_diagnosis *d, double cost_s, const char *more, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void bs_fact(bs_diagnosis *d, const char *fact, double value, const char *unit);
void bs_fact_text(bs_diagnosis *d, const char *fact, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Marks the check as skipped, with the reason. Returns BS_OK. */
int32_t bs_skip(bs_diagnosis *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void bs_tell(const bs_diagnosis *d, const char *what, uint64_t done, uint64_t total);

/* ---- times ----------------------------------------------------------------------------------- */

/* Two arms, sampled alternately; arms[0] is the unchanged subject. */
typedef struct bs_pair_times {
  double as_is, other; /* medians */
  bs_comparison comparison;
} bs_pair_times;
int32_t bs_pair_time(bs_diagnosis *d, const bs_sampler_arm arms[2], bs_pair_times *out, bs_error *err);
/* Like bs_find, for a pair whose second arm lacks the fault: the pair's times give the cost and its share. */
void bs_find_pair(bs_diagnosis *d, const bs_pair_times *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Is the subject decidedly slower than the other, by more than a twentieth? */
int bs_pair_is_slower(const bs_pair_times *times);
/* Adds a row to the ablation's table: the setting, and its time compared with the subject's. */
int32_t bs_ablated(bs_diagnosis *d, const char *setting, const bs_pair_times *times, bs_error *err);
/* Adds a row for a setting that could not be timed, with the reason. Returns BS_OK, or `rc` if that ends the
 * whole diagnosis. */
int32_t bs_ablation_failed(bs_diagnosis *d, const char *setting, int32_t rc, const bs_error *why,
                           bs_error *err);
/* BS_USAGE: no entry of `asked` ({key, candidates: [{name}]}) has the key of "KEY -> NAME{KNOB=VALUE}", or
 * NAME is not one of its candidates. */
int32_t bs_choice_known(const json_t *asked, const char *option, const char *word, bs_error *err);
/* Times one arm: the median; *out_first: its first call. */
int32_t bs_arm_time(const bs_diagnosis *d, const bs_sampler_arm *arm, double *out_median, double *out_first,
                    bs_error *err);
#endif
