/* SPDX-License-Identifier: MIT
 * record.h - what is found out about one provider of one problem, as the record that configs/gates/sdpa.yaml
 * judges (docs/kernel-lab.md lists the fields). What is not known is left out, and no gate passes by it. */
#ifndef BS_LAB_KERNEL_RECORD_H
#define BS_LAB_KERNEL_RECORD_H
#include <jansson.h>

#include "lab/kernel/bound.h"
#include "lab/kernel/case.h"
#include "lab/measure/stats.h"

/* Adds build, resource, numeric (the worst of `seeds` seeds, from the setup's on), determinism and memory to
 * an object. stored_id: build id of the choice that is stored; NULL: none. Where no plan can be prepared,
 * *out_arm is NULL, build.prepared 0 and build.error the error's id: that is no error here. The caller closes
 * the arm. */
int32_t bs_kernel_examine(const bs_kernel_setup *setup, uint32_t seeds, const char *stored_id,
                          bs_kernel_arm **out_arm, json_t *record, bs_error *err);

/* What was measured of one provider. */
typedef struct bs_kernel_timed {
  double seconds;               /* of a call, median */
  size_t samples;               /* stored */
  const bs_kernel_bound *bound; /* NULL: unknown */
  uint32_t peers;               /* other providers in the same pairs */
  const bs_comparison *best;    /* with the fastest of them: its time / this one's; NULL without peers */
  uint32_t candidate;           /* 1: it asks to be promoted: to be the choice from now on */
} bs_kernel_timed;
/* Adds performance and evidence. A bound that is beaten is written as it is, above 100 %. */
int32_t bs_kernel_record_times(const bs_kernel_timed *timed, json_t *record, bs_error *err);
#endif
