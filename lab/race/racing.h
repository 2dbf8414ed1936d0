/* SPDX-License-Identifier: MIT
 * racing.h - shared parts of race.c (decides), runners.c (which implementation serves, with which space),
 * report.c and ask.c (starts children). */
#ifndef BS_LAB_RACE_RACING_H
#define BS_LAB_RACE_RACING_H
#include "lab/choose/history.h"
#include "lab/race/race.h"
#include "lab/tune/cache.h"

struct race;

/* An implementation that serves, with the space of its knobs and the results in it. */
typedef struct runner {
  struct race *race;
  const char *name, *echo; /* "cpu:online"; the plan's echo if no knob is given */
  bs_space *space;         /* &of */
  bs_space of;
  int of_build[BS_SPACE_KNOBS]; /* 1: each value selects a separate binary */
  uint64_t allowed;             /* points that --where allows */
  uint64_t start, standard;     /* standard: the default's point, or the nearest */
  int standard_exact;           /* 1: the default is a point that --where allows */
  double share;                 /* of the budget */
  bs_history history;
  bs_searched found;
} runner;

typedef struct race {
  const bs_race_options *o;
  double began;
  bs_tune_cache cache;
  const json_t *asked;        /* the probe's answer */
  json_t *settings;           /* the parameters of plugins: {"cpu": {"isa": "avx2"}} */
  json_t *restriction;        /* the restrictions of --provider, --knob and --where; {}: none */
  const char *key, *standard; /* of it */
  size_t n;
  runner *run, *best;
  uint64_t measured, known, bad, most;
  uint64_t refused; /* of the bad ones: knobs that the judged shape cannot take */
  char choice[BS_SPACE_TEXT + 160];
  json_t *result;  /* of the pairs; NULL: there were none */
  char cause[200]; /* of the last candidate that failed */
  int number;      /* the signal that ended it */
} race;

/* A line for the user. */
void race_note(const race *r, const char *text);
/* Fills r->run with those of the probe's providers that can be searched; checks --provider, --knob, --where
 * and --start. Call race_close_runners in any case. */
int32_t race_open_runners(race *r, bs_error *err);
void race_close_runners(race *r);
/* origin: "measured", "stopped". NULL: out of memory. */
json_t *race_report(const race *r, const char *origin);
/* Makes a report without points from an entry of the tuning file. */
json_t *race_stored_report(const race *r, const json_t *entry);

/* Each starts a child and waits for its answer; BS_ABORTED when a signal ended it (race.number). A point that
 * crashed or was late is an answer. */
int32_t race_ask_probe(race *r, json_t **out, bs_error *err);
/* {verdict, cause}: is the plan of the stored choice the code that was measured? */
int32_t race_ask_stored(race *r, const char *choice, const char *build, json_t **out, bs_error *err);
int32_t race_ask_point(race *r, const char *provider, const char *config, uint32_t effort, json_t **out,
                       bs_error *err);
int32_t race_ask_pairs(race *r, const char *provider, const char *config, json_t **out, bs_error *err);
#endif
