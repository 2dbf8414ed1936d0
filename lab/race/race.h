/* SPDX-License-Identifier: MIT
 * race.h - `bsrun tune`: finds the fastest implementation and values of its knobs for one problem of a kernel
 * (docs/tuning.md). Each candidate runs in a separate process: its plan must show its knobs, its numbers must
 * pass the gates on two shapes, then it is timed. A search (lab/choose) chooses the next candidates, the
 * finalists are timed for longer, and the fastest is measured in pairs against the default. The winner is
 * written to the tuning file, where runs find it. This process opens no plugin. */
#ifndef BS_LAB_RACE_RACE_H
#define BS_LAB_RACE_RACE_H
#include <jansson.h>

#include "lab/choose/strategy.h"

typedef struct bs_race_knob {
  const char *name, *values; /* a part of the declared values: "--knob keys=64,128" */
} bs_race_knob;

typedef struct bs_race_options {
  const char *problem;  /* canonical (lab/kernel/problem.h) */
  const char *backend;  /* NULL: cpu */
  const char *provider; /* only this one, "cpu:online"; NULL: all that serve */
  uint32_t threads;
  const char *config; /* the configuration as YAML: plugins and their parameters */
  const bs_race_knob *knobs;
  size_t n_knobs;
  const char *where; /* a constraint of the points; NULL: none */
  const char *point; /* "keys=16": no search; this point is judged and compared with the default; nothing is
                      * stored */
  const char *start; /* "keys=16;exp=exact": the start of the search; NULL: the default */
  uint32_t strategy; /* enum bs_strategy */
  uint32_t survivors, finalists;
  uint64_t seed, points;       /* 0: the strategy's own */
  double seconds;              /* of the search; 0: no limit */
  double deadline_s;           /* of one candidate */
  double sample_seconds;       /* of one candidate's samples; a finalist has twice as much, and more */
  double pair_seconds, margin; /* of the pairs with the default */
  const char *tune_path;       /* the tuning file; NULL: none */
  const char *points_path;     /* of the measured points; NULL: none */
  int go_on, anew, cache_only; /* each 1: searches even if a choice is stored; ignores all that is stored;
                                * measures nothing */
  const char *program;         /* the children: program words... FILE */
  const char *const *words;
  void *user;
  void (*note)(void *user, const char *text);
  /* What cannot be kept, and where to keep it. The search goes on. */
  void (*warn)(void *user, const char *text);
  /* Called before each measurement: how many are done and may be done (0: unknown), seconds that remain. */
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t most, double left_s);
} bs_race_options;

/* *out: {problem, key, choice, default, origin, word, ratio, low, high, measured, known, spaces, elite, ...}
 * (docs/tuning.md); also if a signal ended the search (*out_signal): then its origin is "stopped", its choice
 * the default. Also with BS_IO: then the choice is made, and the tuning file cannot be written. BS_NOT_FOUND
 * (BS-TUNE-UNKNOWN): cache_only, but nothing is stored. */
int32_t bs_race_run(const bs_race_options *options, json_t **out, int *out_signal, bs_error *err);

/* Does the task in the text of a child's file; prints nothing. The answer is one JSON object, also for an
 * error ({"error": {code, id, where, message, hint}}); NULL: no memory. */
int32_t bs_race_child(const char *input, json_t **out_answer, bs_error *err);
#endif
