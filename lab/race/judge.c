/* SPDX-License-Identifier: MIT
 * judge.c - see judge.h. */
#include "lab/race/judge.h"

#include <stdio.h>
#include <string.h>

#include "lab/case/ask.h"
#include "lab/choose/history.h"
#include "lab/error.h"
#include "lab/kernel/record.h"

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void bs_judge_ragged(const bs_kernel_problem *p, bs_kernel_problem *out) {
  *out = *p;
  if (p->kind == BS_KERNEL_SDPA || p->kind == BS_KERNEL_SDPA_DX) {
    out->B = 1;
    out->G = least(p->G, 2);
    out->H = p->H / p->G * out->G;
    /* Large tiles have a rest, too; decoding stays that. */
    out->S = p->S > 384 ? 389 : p->S > 128 ? 197 : p->S > 1 ? 67 : 1;
    out->T = p->T == p->S ? out->S : 131;
  } else {
    out->N = 70;
    out->K = 132;
    out->B = p->B > 1 ? 5 : 1;
  }
}

/* Judges one stage. An unknown value does not pass. */
static int32_t judge_stage(const bs_rules *rules, uint32_t stage, const json_t *record, int ragged,
                           bs_judgement *out, bs_error *err) {
  const json_t *build = json_object_get(record, "build");
  bs_rules_outcome o = {0};
  const int32_t rc = bs_rules_judge_stage(rules, stage, record, &o, err);
  const bs_rule_result *bad = rc == BS_OK ? bs_rules_first(&o, BS_GATE_FAIL) : NULL;
  if (bad == NULL && rc == BS_OK) bad = bs_rules_first(&o, BS_GATE_UNKNOWN);
  if (bad != NULL) {
    const int numbers = stage == BS_STAGE_NUMERIC || stage == BS_STAGE_DETERMINISM;
    const char *message = bs_tune_text(build, "message");
    out->verdict = numbers ? BS_VERDICT_WRONG : BS_VERDICT_REFUSED;
    out->unserved = stage == BS_STAGE_BUILD && strcmp(bs_tune_text(build, "code"), "UNSUPPORTED") == 0;
    if (stage == BS_STAGE_BUILD && message[0] != '\0')
      snprintf(out->cause, sizeof out->cause, "[%.40s] %.260s", bs_tune_text(build, "error"), message);
    else
      snprintf(out->cause, sizeof out->cause, "gate %.40s%s: %.240s", bad->rule->name,
               ragged ? " (ragged shape)" : "", bad->text);
  }
  bs_rules_outcome_free(&o);
  return rc;
}

/* Judges from build up to the stage `last`. */
static int32_t judge(const bs_rules *rules, const bs_kernel_setup *s, uint32_t last, int ragged,
                     bs_kernel_arm **arm, bs_judgement *out, bs_error *err) {
  bs_kernel_seeds seeds = {.problem = *s->problem, .first = 1, .n = 1};
  json_t *record = json_object();
  int32_t rc = record == NULL ? bs_no_memory(err, "a record") : BS_OK;
  for (uint32_t stage = BS_STAGE_BUILD; rc == BS_OK && stage <= last; stage++) {
    rc = bs_kernel_stage(stage, s, &seeds, arm, record, err);
    if (rc == BS_OK) rc = judge_stage(rules, stage, record, ragged, out, err);
    if (out->verdict != BS_VERDICT_OK) break;
  }
  json_decref(record);
  if (rc == BS_OK && *arm != NULL) rc = bs_kernel_arm_load(*arm, s->data, err); /* the seeds end here */
  bs_kernel_seeds_free(&seeds);
  return rc;
}

/* One that serves the problem, and does not serve the small one, passes on one shape, which is noted. Any
 * other failure of the small one is a failure. */
static int32_t judge_ragged(const bs_rules *rules, const bs_kernel_setup *s, bs_judgement *out,
                            bs_error *err) {
  bs_kernel_problem small;
  bs_kernel_setup other = *s;
  bs_kernel_arm *arm = NULL;
  bs_kernel_data *data = NULL;
  bs_judgement second = {.verdict = BS_VERDICT_OK};
  bs_judge_ragged(s->problem, &small);
  int32_t rc = bs_kernel_data_make(&small, 1, &data, err);
  other.problem = &small;
  other.data = data;
  if (rc == BS_OK) rc = judge(rules, &other, BS_STAGE_MEMORY, 1, &arm, &second, err);
  if (rc == BS_OK && !second.unserved) *out = second;
  if (rc == BS_OK && second.unserved)
    snprintf(out->cause, sizeof out->cause, "judged on one shape: %.290s", second.cause);
  bs_kernel_arm_close(arm);
  bs_kernel_data_free(data);
  return rc;
}

int32_t bs_judge_candidate(const bs_kernel_setup *s, bs_kernel_arm **out_arm, bs_judgement *out,
                           bs_error *err) {
  bs_rules *rules = NULL;
  *out_arm = NULL;
  *out = (bs_judgement){.verdict = BS_VERDICT_OK};
  int32_t rc = bs_rules_load("sdpa", "gates", &rules, err);
  if (rc == BS_OK) rc = judge(rules, s, BS_STAGE_MEMORY, 0, out_arm, out, err);
  if (rc == BS_OK && out->verdict == BS_VERDICT_OK) rc = judge_ragged(rules, s, out, err);
  bs_rules_free(rules);
  return rc;
}

int32_t bs_judge_build(const bs_kernel_setup *s, bs_judgement *out, bs_error *err) {
  bs_rules *rules = NULL;
  bs_kernel_arm *arm = NULL;
  *out = (bs_judgement){.verdict = BS_VERDICT_OK};
  int32_t rc = bs_rules_load("sdpa", "gates", &rules, err);
  if (rc == BS_OK) rc = judge(rules, s, BS_STAGE_BUILD, 0, &arm, out, err);
  bs_kernel_arm_close(arm);
  bs_rules_free(rules);
  return rc;
}
