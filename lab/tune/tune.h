/* SPDX-License-Identifier: MIT
 * tune.h - chooses an implementation if several could serve (docs/tuning.md): the one that the configuration
 * pins, else the one measured before on this machine (the tuning file), else one measured now, else the table
 * of defaults. The decision is made once, before the phases of a point, so that the gates judge exactly the
 * timed kernels and every rank has the same. */
#ifndef BS_LAB_TUNE_TUNE_H
#define BS_LAB_TUNE_TUNE_H
#include "lab/experiment.h"
#include "lab/progress.h"

typedef struct bs_tuner bs_tuner;

typedef struct bs_tuner_options {
  const char *path; /* the tuning file; NULL: not read or written, and nothing is measured */
  void (*note)(void *user, const char *text);   /* one line for the reader; NULL: no reader */
  void (*detail)(void *user, const char *text); /* measurements and choices, which need no action */
  void *note_user;
  bs_progress_fn progress; /* may be NULL */
  void *progress_user;
} bs_tuner_options;

/* Reads the file; one that cannot be read is a note. The options' texts outlive the tuner. */
int32_t bs_tuner_open(bs_context *context, const bs_tuner_options *options, bs_tuner **out_tuner,
                      bs_error *err);
void bs_tuner_close(bs_tuner *tuner);

/* Decides for every product that the experiment's worlds will request: fills its choices and choice_record
 * and pins them in its configuration (tune.choices). Phase 1 measures keys without a stored choice (unless
 * tune.measure is off or the work is small); call it before phase 0 of the same point. Errors: no memory,
 * unreadable pins. The phase reports what keeps the layer from being built. */
int32_t bs_tuner_choose(bs_tuner *tuner, bs_experiment *experiment, bs_error *err);

/* The name that tune.choices of a configuration pins for a key (PLUGIN:NAME or NAME), or NULL. */
const char *bs_tune_pinned(const bs_experiment *experiment, const char *key);
/* Writes the new measurements to the file. judged: 1 if phase 0 passed with the choice. wrong: NULL, or why
 * the numbers were wrong: then the default stays, and the candidate is kept as failed. Both apply only to the
 * method's products: phase 0 runs no dense peer. */
void bs_tuner_keep(bs_tuner *tuner, int judged, const char *wrong);
/* Drops the new measurements: the run with them gave no verdict. */
void bs_tuner_drop(bs_tuner *tuner);

/* The file's entry (docs/tuning.md) for one product, for `bsrun explain`: its candidates are those of `asked`
 * ({key, candidates}, see bs_tune_candidate). NULL: none. */
const json_t *bs_tuner_find(const bs_tuner *tuner, const json_t *asked);
/* The verdict of an entry on one candidate: "chosen, speedup 1.23 against cpu:packed". Returns out. */
const char *bs_tune_words(const json_t *entry, const char *name, char *out, size_t size);
#endif
