/* SPDX-License-Identifier: MIT
 * stored.h - two runs that are stored, held against each other: what differs between them, whether they may
 * be compared, and how fast one is beside the other. Nothing is run. */
#ifndef BS_LAB_COMPARE_STORED_H
#define BS_LAB_COMPARE_STORED_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* A committed run. */
typedef struct bs_stored_run {
  char *root, *path; /* the folder is root/path */
  json_t *records, *env, *samples;
  json_t *config; /* {"model.N": "1024", ...}: without what names the run and its folder */
} bs_stored_run;

/* `name`: a run as bs_run_find finds it below root; or "@NAME", a baseline of root. BS_NOT_FOUND; BS_USAGE:
 * several runs are meant; BS_CORRUPT; BS_IO. The caller releases, also after an error. */
int32_t bs_stored_open(const char *root, const char *name, bs_stored_run *out, bs_error *err);
void bs_stored_close(bs_stored_run *run);

/* [{what, a, b}]: settings ("config.model.N") and facts of the environment ("env.system.cpu") that differ.
 * What differs between any two runs (times, loads, identifiers) is left out. New reference; NULL: no memory.
 */
json_t *bs_stored_differences(const bs_stored_run *a, const bs_stored_run *b);
/* BS_CONFIG, BS-COMPARE-UNLIKE: two records of theirs at one place are of different phases, passes, clocks
 * (host, device, virtual), dtypes or devices, and their times do not answer one question. */
int32_t bs_stored_alike(const bs_stored_run *a, const bs_stored_run *b, bs_error *err);

/* [{arm, phase, pass, peer, a_ms, b_ms, speedup, low, high, word, cause, samples_a, samples_b}]: each arm of
 * A. speedup: how many times B is as fast as A, with a 95 % interval, and word says what B is; MISSING: B has
 * no such arm, and no time. peer: the arm is the dense layer beside the method. An arm that is FASTER or
 * SLOWER is UNCLEAR where a peer of its pass and phase moved alike: the same word, and the intervals leave
 * open whether the arm moved farther. Simulated times are exact: low = speedup = high. BS_NOT_FOUND,
 * BS-COMPARE-SAMPLES: no arm of both has times. The caller releases. */
int32_t bs_stored_rows(const bs_stored_run *a, const bs_stored_run *b, json_t **out_rows, bs_error *err);
#endif
