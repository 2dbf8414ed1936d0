/* SPDX-License-Identifier: MIT
 * internal.h - shared parts of tune.c (decides) and measure.c (measures). */
#ifndef BS_LAB_TUNE_INTERNAL_H
#define BS_LAB_TUNE_INTERNAL_H
#include "lab/case/arms.h"
#include "lab/tune/cache.h"
#include "lab/tune/tune.h"

struct bs_tuner {
  bs_context *context;
  bs_tuner_options options;
  bs_tune_cache
      cache; /* its entries with "pending", the arm's number, are measured and not yet in the file */
};

void bs_tuner_say(const bs_tuner *tuner, int detail, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* One product of an experiment. */
typedef struct bs_decision {
  const json_t *asked; /* {key, default, candidates} */
  uint32_t arm;        /* the first world that requests it */
  const char *choice;  /* "cpu:packed" */
  const char *knobs;   /* of a pin: "{tokens=48}"; "" none */
  const char *origin;  /* "default", "cache", "measured", "pinned" */
  const json_t *entry; /* of the tuning file; NULL: none */
  char why[160];       /* of a default */
} bs_decision;

/* All products of an experiment's worlds. */
typedef struct bs_tuning {
  bs_tuner *tuner;
  bs_experiment *e;
  bs_subject subject;
  uint32_t n_arms;
  bs_arm_case arms[BS_ARMS_MAX];
  json_t *asked;
  bs_decision *decisions;
  size_t n, waiting[BS_ARMS_MAX]; /* waiting: undecided at the request */
} bs_tuning;

/* Measures the undecided products (origin "default") of one world together, with the others as decided;
 * records their entries and decides them. why: the reason not to measure, "" for none. */
int32_t bs_tune_measure(const bs_tuning *of, uint32_t arm, double seconds, char why[160], bs_error *err);
/* "KEY -> NAME{knobs}", with `other` (NULL: none) instead of the choice. The caller frees; NULL: out of
 * memory. */
char *bs_decision_pin(const bs_decision *decision, const char *other);
/* Is it one of this world that has two candidates, and is it still the default? */
int bs_decision_waits(const bs_decision *decision, uint32_t arm);
#endif
