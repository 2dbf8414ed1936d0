/* SPDX-License-Identifier: MIT
 * arms.h - the worlds of an experiment: the method's, and in phase 1 those of the dense peers. Phase 1 times
 * them; the tuner (lab/tune) finds the products that they need. */
#ifndef BS_LAB_CASE_ARMS_H
#define BS_LAB_CASE_ARMS_H
#include "lab/case/case.h"
#include "lab/lab.h"

enum { BS_ARMS_MAX = 3 };

typedef struct bs_arm_case {
  const char *name; /* "method", "dense, one rank's cores", "dense, all cores"; static */
  bs_case c;        /* points into the subject and the experiment */
} bs_arm_case;

/* The number of worlds: 1 in phase 0. The number of threads is set: cores / ranks if the experiment leaves it
 * open. */
uint32_t bs_arms_of(bs_context *context, const bs_experiment *experiment, const bs_subject *subject,
                    bs_arm_case out[BS_ARMS_MAX]);
#endif
