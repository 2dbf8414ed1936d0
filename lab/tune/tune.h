/* SPDX-License-Identifier: MIT
 * tune.h - which implementation serves where several could (docs/tuning.md): pinned by the configuration,
 * else measured before on this machine (the tuning file), else measured now, else the table of defaults. The
 * decision is made once, before the phases of a point, so that the gates judge the very kernels that are
 * timed and every rank has the same. */
#ifndef BS_LAB_TUNE_TUNE_H
#define BS_LAB_TUNE_TUNE_H
#include "lab/experiment.h"
#include "lab/progress.h"

typedef struct bs_tuner bs_tuner;

typedef struct bs_tuner_options {
  const char *path; /* the tuning file; NULL: none is read or written, and nothing is measured */
  void (*note)(void *user, const char *text);   /* one line for the reader; NULL: nobody listens */
  void (*detail)(void *user, const char *text); /* what was measured and chosen: nothing to do about it */
  void *note_user;
  bs_progress_fn progress; /* may be NULL */
  void *progress_user;
} bs_tuner_options;

/* Reads the file; one that cannot be read is a note. The options' texts outlive the tuner. */
int32_t bs_tuner_open(bs_context *context, const bs_tuner_options *options, bs_tuner **out_tuner,
                      bs_error *err);
void bs_tuner_close(bs_tuner *tuner);

/* Decide for every product that the experiment's worlds will ask for: fills its choices and choice_record and
 * pins them in its configuration (tune.choices). Phase 1 measures what nobody knows yet (unless tune.measure
 * is off or the work is small); ask it before phase 0 of the same point. Errors: no memory, pins that cannot
 * be read. What keeps the layer from being built is left for the phase to say. */
int32_t bs_tuner_choose(bs_tuner *tuner, bs_experiment *experiment, bs_error *err);

/* The name that tune.choices of a configuration pins for a key (PLUGIN:NAME or NAME), or NULL. */
const char *bs_tune_pinned(const bs_experiment *experiment, const char *key);
/* What was measured since goes into the file. judged: 1 when phase 0 passed with it. wrong: NULL, or why the
 * numbers were not right: then the default stays, and the candidate is kept as failed. Both are said of the
 * method's products alone: phase 0 runs no dense peer. */
void bs_tuner_keep(bs_tuner *tuner, int judged, const char *wrong);
/* What was measured since is forgotten: what ran with it gave no verdict. */
void bs_tuner_drop(bs_tuner *tuner);

/* What the file knows of one product, for `bsrun explain`: the entry (docs/tuning.md) whose candidates are
 * those of `asked` ({key, candidates}, see bs_tune_candidate), or NULL. */
const json_t *bs_tuner_find(const bs_tuner *tuner, const json_t *asked);
/* What an entry says of one candidate: "chosen, speedup 1.23 against cpu:packed". Returns out. */
const char *bs_tune_words(const json_t *entry, const char *name, char *out, size_t size);
#endif
