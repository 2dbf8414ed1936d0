/* SPDX-License-Identifier: MIT
 * diagnose.h - `bsrun diagnose`: finds avoidable time and memory of a layer or a model (docs/profile.md). A
 * table of checks; each gives facts and findings, and findings are ordered by cost. */
#ifndef BS_LAB_DIAGNOSE_DIAGNOSE_H
#define BS_LAB_DIAGNOSE_DIAGNOSE_H
#include <jansson.h>

#include "lab/model/model.h"
#include "lab/progress.h"
#include "lab/yaml/config.h"

enum bs_preset { BS_PRESET_QUICK = 0, BS_PRESET_FULL = 1, BS_PRESET_LARGE = 2, BS_PRESETS_ = 3 };
extern const char *const bs_preset_names[BS_PRESETS_];

typedef struct bs_diagnose_request {
  uint32_t preset;
  double seconds;          /* of one timing; 0: as the preset has it */
  int64_t samples;         /* of one timing at most; 0: 300 */
  const char *const *only; /* ids of checks; n_only 0: all of the preset */
  size_t n_only;
  const char *const *skip;
  size_t n_skip;
  const char *const *ablate; /* "NAME" or "NAME=VALUE": a key of the configuration, a pass, a choice */
  size_t n_ablate;
  const char *const *vary; /* "NAME=V1,V2,..": sizes of a dimension, in the order of calls; none: made */
  size_t n_vary;
  const char *command; /* "bsrun diagnose ...": the words that name the subject, for the findings' commands */
  bs_progress_fn progress; /* may be NULL */
  void *progress_user;
} bs_diagnose_request;

/* A check of the table, for --list; returns 0 beyond the last. layer, model: 1: the check is for such a
 * subject. */
typedef struct bs_check_info {
  const char *id, *title;
  int layer, model, quick;
} bs_check_info;
int bs_diagnose_check(size_t index, bs_check_info *out);
/* Checks the words of `only` and `skip`. BS_USAGE: a word is not a check (the error has the nearest id), or
 * no check remains. */
int32_t bs_diagnose_words(const bs_diagnose_request *request, int model, bs_error *err);

/* *out: {subject, kind, preset, pass_s, findings: [{rank, check, severity, cost_s, share, evidence,
 * command}], checks: [{check, title, state (clean, found, skipped, failed), why, seconds, facts: [{fact,
 * value, unit}]}], ablations: [{setting, pairs, seconds, ratio, low, high, verdict}], conditions}. `config`:
 * a composed and checked tree. A check that cannot do its work is a row with state failed; an error concerns
 * what all checks need. */
int32_t bs_diagnose_layer(bs_context *context, const bs_node *config, const char *quiet_dir,
                          const bs_diagnose_request *request, json_t **out, bs_error *err);
/* Diagnoses an open model that has no session. BS_INPUT, BS-MODEL-INPUT: the numbers of an input are outside
 * the domain that the model requires; the error names the input. */
int32_t bs_diagnose_model(bs_context *context, const bs_model_request *request, bs_model *model,
                          const bs_diagnose_request *asked, json_t **out, bs_error *err);
#endif
