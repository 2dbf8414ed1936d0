/* SPDX-License-Identifier: MIT
 * frame.c - see frame.h. */
#include "lab/phase/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/arms.h"
#include "lab/error.h"
#include "lab/measure/chunks.h"

int32_t bs_phase_result_open(bs_phase_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->record = json_object();
  return out->record ? BS_OK : bs_no_memory(err, "a record");
}

void bs_phase_result_free(bs_phase_result *result) {
  json_decref(result->record);
  free(result->samples);
  memset(result, 0, sizeof *result);
}

int32_t bs_phase_run_judged(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                            bs_phase_judge_fn judge, bs_phase_result *out, bs_error *err) {
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  int32_t rc = bs_phase_result_open(out, err);
  if (rc != BS_OK) return rc;
  rc = bs_subject_open(context, e, &subject, err);
  if (rc == BS_OK) {
    bs_overlap_resolve(e, &subject);
    (void)bs_arms_of(context, e, &subject, arms);
    bs_case *c = &arms[0].c;
    c->warmup = e->warmup_iters;
    c->iterations = e->timed_iters;
    c->progress = progress;
    c->progress_user = user;
    rc = judge(c, e, &subject, out, err);
    bs_subject_close(&subject);
  }
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}

void bs_phase_add_gates(bs_phase_result *out, const bs_gate *gates, uint32_t count) {
  for (uint32_t i = 0; i < count && out->n_gates < sizeof out->gates / sizeof out->gates[0]; ++i)
    out->gates[out->n_gates++] = gates[i];
}

void bs_phase_add_skipped(bs_phase_result *out, const char *name, const char *why) {
  bs_gate gate = {.state = BS_GATE_SKIPPED, .rank = -1};
  snprintf(gate.name, sizeof gate.name, "%s", name);
  snprintf(gate.text, sizeof gate.text, "%s", why);
  bs_phase_add_gates(out, &gate, 1);
}

/* "a, b" as a list of texts. */
static json_t *words_of(const char *list) {
  json_t *words = json_array();
  for (const char *at = list; *at != '\0'; at += strspn(at, ", ")) {
    const size_t length = strcspn(at, ",");
    json_array_append_new(words, json_stringn(at, length));
    at += length;
  }
  return words;
}

void bs_phase_add_fault_gate(bs_phase_result *out, const bs_fault_tally *t) {
  bs_gate gate = {.name = "T6", .rank = -1, .value = t->injected - t->caught};
  json_t *all = json_object();
  gate.state = t->injected > 0 && t->caught == t->injected ? BS_GATE_PASS : BS_GATE_FAIL;
  snprintf(gate.text, sizeof gate.text, "%u of %u injected faults judged rightly%s%.96s", t->caught,
           t->injected, t->missed[0] ? "; not: " : "", t->missed);
  for (uint32_t i = 0; i < t->n; ++i) json_object_set_new(all, t->row[i].name, words_of(t->row[i].gates));
  json_object_set_new(out->record, "faults_caught_by", all);
  json_object_set_new(out->record, "faults_missed", json_string(t->missed));
  bs_phase_add_gates(out, &gate, 1);
}
