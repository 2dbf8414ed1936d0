/* SPDX-License-Identifier: MIT
 * chunks.c - see chunks.h. */
#include "lab/measure/chunks.h"

#include <string.h>

#include "core/base/error.h"
#include "lab/case/arms.h"
#include "lab/choose/strategy.h"
#include "lab/measure/constants.h"
#include "lab/measure/kernel.h"
#include "lab/peers/peers.h"

static const char *const counts[] = {"off", "2", "3", "4", "5", "6", "7", "8"};
enum { COUNTS = (int)(sizeof counts / sizeof counts[0]) };
static const double WORTH = 0.95; /* of the time without: a smaller gain is within the error of a
                                   * prediction */

/* The number of options that a subject holds. */
#define OPTIONS (sizeof((bs_subject *)0)->option_values / sizeof(char *))

/* The option's place among them; -1: nothing to resolve. */
static int asked(uint32_t n, const char *const *keys, const char *const *values) {
  for (uint32_t i = 0; i < n && n <= OPTIONS; ++i)
    if (strcmp(keys[i], "overlap") == 0 && strcmp(values[i], "auto") == 0) return (int)i;
  return -1;
}

/* BS_OK: *out_best is the best number; any other result leaves the choice to the method. */
static int32_t find(const bs_experiment *e, bs_subject *s, int at, int *out_best, bs_error *err) {
  bs_arm_case arm[BS_ARMS_MAX];
  bs_machine machine;
  bs_kernel kernel;
  bs_error unknown = BS_ERROR_INIT;
  double footprint = 0.0;
  bs_arms_of((bs_context *)(uintptr_t)s->context, e, s, arm);
  bs_case *c = &arm[0].c;
  int32_t rc = bs_predict_footprint(c, &footprint, err);
  if (rc == BS_OK && !bs_constants_find(e->machine_constants, c, footprint, &machine))
    rc = e->only_stored ? bs_error_set(err, BS_NOT_FOUND, "BS-OVERLAP-CONSTANTS", "nothing is stored")
                        : bs_machine_measure(c, footprint, &machine, err);
  if (rc != BS_OK) return rc;
  const int known = bs_kernel_identify(c, &kernel, &unknown) == BS_OK &&
                    bs_constants_kernel(e->machine_constants, c, footprint, &kernel, &kernel);
  const char *values[OPTIONS];
  memcpy(values, s->spec.option_values, s->spec.n_options * sizeof values[0]);
  c->spec.option_values = values;
  double t[COUNTS];
  for (int i = 0; i < COUNTS; ++i) {
    bs_predicted p;
    values[at] = counts[i];
    const int told = bs_predict_case(&machine, known ? &kernel : NULL, c, &p, &unknown) == BS_OK;
    t[i] = !told ? 0.0 : (i == 0 ? WORTH : 1.0) * (p.has_kernel ? p.kernel.total : p.bound.total);
  }
  *out_best = t[0] > 0.0 ? (int)bs_choose_least(t, COUNTS, 1.0) : 0;
  return BS_OK;
}

static void put(bs_subject *s, int at, const char *count) {
  memcpy(s->option_values, s->spec.option_values, s->spec.n_options * sizeof s->option_values[0]);
  s->option_values[at] = count;
  s->spec.option_values = s->option_values;
}

void bs_overlap_resolve(const bs_experiment *e, bs_subject *s) {
  const int at = asked(s->spec.n_options, s->spec.option_keys, s->spec.option_values);
  bs_error why = BS_ERROR_INIT; /* the builder of the layer will report it */
  int best = 0;
  if (at < 0) return;
  if (e->overlap != NULL)
    put(s, at, e->overlap);
  else if (e->peers == NULL && find(e, s, at, &best, &why) == BS_OK) /* processes: bs_overlap_settle */
    put(s, at, counts[best]);
}

int bs_overlap_asked(const bs_experiment *e) {
  return asked(e->n_method_options, e->method_keys, e->method_values) >= 0;
}

/* ---- processes ---------------------------------------------------------------------------------- */

/* Missing ranks end the phase. For any other failure of rank 0 the method's own model decides. */
static int32_t lead(bs_experiment *e, bs_subject *s, bs_told *told, bs_error *err) {
  int best = 0;
  const int at = asked(s->spec.n_options, s->spec.option_keys, s->spec.option_values);
  const int32_t rc = at < 0 ? BS_NOT_FOUND : find(e, s, at, &best, err);
  if (rc == BS_RANK_FAILED || rc == BS_DEADLINE || rc == BS_ABORTED) return rc;
  if (rc == BS_OK) told->n = (uint64_t)best + 1;
  return bs_peers_tell(e->peers, told, err);
}

static int32_t follow(bs_context *context, const bs_experiment *e, const bs_subject *s, bs_told *told,
                      bs_error *err) {
  bs_arm_case arm[BS_ARMS_MAX];
  bs_machine machine = {0};
  bs_arms_of(context, e, s, arm);
  for (;;) {
    int32_t rc = bs_peers_hear(e->peers, told, err);
    if (rc != BS_OK || told->word == BS_WORD_CHUNKS) return rc;
    if (told->word != BS_WORD_EXCHANGE)
      return bs_error_set(err, told->status != BS_OK ? told->status : BS_INTERNAL, "BS-PEERS-WORD",
                          "protocol error: rank 0 sent command %u instead of the number of chunks",
                          told->word);
    rc = bs_machine_exchange(&arm[0].c, &machine, err);
    if (rc != BS_OK) return rc;
  }
}

int32_t bs_overlap_settle(bs_context *context, bs_experiment *e, bs_error *err) {
  bs_subject subject;
  bs_told told = {.word = BS_WORD_CHUNKS};
  e->overlap = NULL;
  if (e->peers == NULL || !bs_overlap_asked(e)) return BS_OK;
  int32_t rc = bs_subject_open(context, e, &subject, err); /* as the phase will: it fails alike on all */
  if (rc != BS_OK) return rc;
  rc = bs_peers_lead(e->peers) ? lead(e, &subject, &told, err) : follow(context, e, &subject, &told, err);
  bs_subject_close(&subject);
  if (rc == BS_OK && told.n > 0 && told.n <= COUNTS) e->overlap = counts[told.n - 1];
  return rc;
}
