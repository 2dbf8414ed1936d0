/* SPDX-License-Identifier: MIT
 * record.h - the facts on one arm, as the JSON record that configs/gates/sdpa.yaml judges, by stage. */
/* clang-format off */
/*
 *   build        prepared, code, error, message, provider, algorithm, key, knobs, unshown_knobs, id,
 *                has_stored, stored_id
 *   resource     reported, registers, shared_bytes, spill_bytes
 *   numeric      relative_rmse, predicted_rmse, predicted_worst_rmse, worst, predicted_worst,
 *                worst_slice_rmse, predicted_slice_rmse, max_error, rms, nonfinite, rows, seeds: the worst
 *                of all seeds; predicted_worst_rmse, _worst and _slice_rmse: what one right kernel of
 *                1 / BS_TAIL_ODDS exceeds (tail.h)
 *   determinism  differing_bytes
 *   memory       plan_bytes, promised_bytes
 *
 * A field with an unknown value is left out. A number that is not finite is the text "nan" or "inf".
 * bs_kernel_record_times adds the times and the evidence. */
/* clang-format on */
#ifndef BS_LAB_KERNEL_RECORD_H
#define BS_LAB_KERNEL_RECORD_H
#include <jansson.h>

#include "lab/kernel/bound.h"
#include "lab/kernel/case.h"
#include "lab/measure/stats.h"
#include "lab/rules/rules.h"

enum { BS_KERNEL_SEEDS = 16 };

/* The numbers of several seeds of one problem, made on first use and kept. */
typedef struct bs_kernel_seeds {
  bs_kernel_problem problem;
  uint64_t first; /* seed; the others follow */
  uint32_t n;     /* 1 to BS_KERNEL_SEEDS */
  bs_kernel_data *of[BS_KERNEL_SEEDS];
} bs_kernel_seeds;
int32_t bs_kernel_seeds_get(bs_kernel_seeds *seeds, uint32_t index, bs_kernel_data **out, bs_error *err);
void bs_kernel_seeds_free(bs_kernel_seeds *seeds);

/* Adds the object of one stage (enum bs_rule_stage, BUILD to MEMORY) to the record. BUILD opens the arm with
 * the first seed's numbers (setup->data is not used). If the arm cannot be opened, that is not an error:
 * build.prepared is 0, and *arm stays NULL. The other stages need an arm. An error means no memory, or a
 * failed run. */
int32_t bs_kernel_stage(uint32_t stage, const bs_kernel_setup *setup, bs_kernel_seeds *seeds,
                        bs_kernel_arm **arm, json_t *record, bs_error *err);
/* All of them without a judgement in between; the caller closes *arm. */
int32_t bs_kernel_examine(const bs_kernel_setup *setup, bs_kernel_seeds *seeds, bs_kernel_arm **arm,
                          json_t *record, bs_error *err);

/* The relative error that the arm's dtype and class explain, and how it differs from output to output: by
 * lab/kernel/oracle.h, of a product by its reference. */
int32_t bs_kernel_predict(const bs_kernel_arm *arm, bs_kernel_data *data, double *out_rmse, bs_tail *out_tail,
                          bs_error *err);
/* A number of a record: real, or the text "nan", "inf", "-inf". */
json_t *bs_kernel_number(double value);

/* The measurement of one provider. */
typedef struct bs_kernel_timed {
  double seconds;               /* of a call, median */
  size_t samples;               /* stored */
  const bs_kernel_bound *bound; /* NULL: unknown */
  uint32_t peers;               /* other providers that it is judged by */
  const bs_comparison *best; /* with the fastest of them, in pairs: its time / this one's; NULL: no pairs */
  const char *unpaired;      /* why there are no pairs; NULL: there are, or there is no other provider */
  uint32_t baseline;         /* 1: there is a stored build, to which it is compared */
  const bs_comparison *progress; /* the stored build's time / this one's, in pairs; NULL: no pairs */
  const char *no_progress;       /* why there are none */
  uint32_t candidate;            /* 1: it should be promoted: become the default from now on */
} bs_kernel_timed;
/* 1: the interval says slower, but the verdict is UNCLEAR for lack of pairs, the machine was disturbed, or
 * both configurations are the same. Then it is not known to be slower. */
int bs_kernel_undecided(const bs_comparison *best);
/* Adds performance and evidence. An undecided ratio is recorded as not known. A time below its bound is
 * recorded as it is, above 100 %. */
int32_t bs_kernel_record_times(const bs_kernel_timed *timed, json_t *record, bs_error *err);
#endif
