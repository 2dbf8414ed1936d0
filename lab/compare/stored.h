/* SPDX-License-Identifier: MIT
 * stored.h - compares two stored runs: their differences, whether they may be compared, and the speedup of
 * one over the other. Nothing is run. */
#ifndef BS_LAB_COMPARE_STORED_H
#define BS_LAB_COMPARE_STORED_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* A committed run. */
typedef struct bs_stored_run {
  char *root, *path; /* the folder is root/path */
  json_t *records, *env, *samples;
  json_t *config; /* {"model.N": "1024", ...}: without settings that name the run and its folder */
} bs_stored_run;

/* `name`: a run as bs_run_find finds it below root; or "@NAME", a baseline of root. BS_NOT_FOUND; BS_USAGE:
 * several runs are meant; BS_CORRUPT; BS_IO. The caller releases, also after an error. */
int32_t bs_stored_open(const char *root, const char *name, bs_stored_run *out, bs_error *err);
void bs_stored_close(bs_stored_run *run);

/* [{what, a, b}]: settings ("config.model.N") and facts of the environment ("env.system.cpu") that differ.
 * Differences between any two runs (times, loads, identifiers) are left out. New reference; NULL: no
 * memory. */
json_t *bs_stored_differences(const bs_stored_run *a, const bs_stored_run *b);
/* BS_CONFIG, BS-COMPARE-UNLIKE: two records of theirs at one place are of different phases, passes, clocks
 * (host, device, virtual), dtypes or devices, and their times do not answer one question. */
int32_t bs_stored_alike(const bs_stored_run *a, const bs_stored_run *b, bs_error *err);

/* [{arm, phase, pass, peer, a_ms, b_ms, speedup, low, high, word, cause, samples_a, samples_b}]: each arm of
 * A. speedup: the time of A over that of B, with a 95 % interval; word describes B. MISSING: B has no such
 * arm, and no time. peer: the arm is the dense layer next to the method. A FASTER or SLOWER arm becomes
 * UNCLEAR if a peer of its pass and phase has the same word and the intervals overlap. Simulated times are
 * exact: low = speedup = high. BS_NOT_FOUND, BS-COMPARE-SAMPLES: no arm has times in both runs. The caller
 * releases. */
int32_t bs_stored_rows(const bs_stored_run *a, const bs_stored_run *b, json_t **out_rows, bs_error *err);
#endif
