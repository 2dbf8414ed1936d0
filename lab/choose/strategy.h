/* SPDX-License-Identifier: MIT
 * strategy.h - the search for the fastest point of a space. A callback measures: on this machine, or from a
 * table of earlier measurements (replay.h). The same seed and the same answers give the same points.
 *
 *   full    every point, in order
 *   random  points drawn without repetition
 *   fast    the start and its neighbours, 8 points: those that a prior expects to be the fastest first
 *   elite   the K fastest points survive; each new point is one of them with one knob changed, or a crossover
 *           of two. First any value of a knob (macro), then only adjacent ones (micro), until all neighbours
 *           of survivors are measured
 *   mixed   fast, then elite with every fourth point drawn at random
 *
 * After the search the finalists are measured again with doubled effort, and half of them drop out each time
 * (successive halving). The search leaves at most half of the measurements for this step; with fewer
 * measurements there are fewer finalists. */
#ifndef BS_LAB_CHOOSE_STRATEGY_H
#define BS_LAB_CHOOSE_STRATEGY_H
#include "lab/choose/space.h"

enum bs_strategy {
  BS_STRATEGY_FULL = 0,
  BS_STRATEGY_RANDOM = 1,
  BS_STRATEGY_FAST = 2,
  BS_STRATEGY_ELITE = 3,
  BS_STRATEGY_MIXED = 4,
  BS_STRATEGIES = 5
};
extern const char *const bs_strategy_names[BS_STRATEGIES];

/* The reason why a point was measured. */
enum bs_origin {
  BS_ORIGIN_START = 0,
  BS_ORIGIN_ORDER = 1,
  BS_ORIGIN_RANDOM = 2,
  BS_ORIGIN_NEIGHBOUR = 3,
  BS_ORIGIN_MACRO = 4,
  BS_ORIGIN_CROSSOVER = 5,
  BS_ORIGIN_MICRO = 6,
  BS_ORIGIN_FINAL = 7
};
extern const char *const bs_origin_names[8];

typedef struct bs_search {
  uint32_t strategy;  /* enum bs_strategy */
  uint32_t survivors; /* K of elite; 0: 6 */
  uint32_t finalists; /* of the halving; 0: none */
  uint64_t seed;
  uint64_t start;  /* the first point of fast, elite and mixed */
  uint64_t points; /* most measurements, halving included; 0: the strategy's own: full all, random, elite and
                      mixed a quarter of the space and at least 16, fast 8 */
  double seconds;  /* no new measurement after so long; 0: no limit */
  void *user;
  double (*now)(void *user); /* required if seconds is not 0 */
  /* Returns the seconds of a call at a point, INFINITY for one that failed, which drops out. effort counts
   * from 0; each step doubles the time spent. An error ends the search. */
  int32_t (*measure)(void *user, uint64_t point, uint32_t effort, double *out_seconds, bs_error *err);
  /* 1: the result was measured before, and costs nothing. May be NULL. */
  int (*known)(void *user, uint64_t point, double *out_seconds);
  double (*prior)(void *user, uint64_t point); /* expected seconds, for fast; may be NULL */
} bs_search;

typedef struct bs_searched_row {
  uint64_t point;
  double seconds; /* INFINITY: failed */
  uint32_t effort, origin;
  uint32_t is_known; /* 1: by `known` */
} bs_searched_row;

enum bs_search_end { BS_SEARCH_DONE = 0, BS_SEARCH_POINTS = 1, BS_SEARCH_SECONDS = 2 };
extern const char *const bs_search_end_names[3]; /* "converged", "budget", "seconds" */

typedef struct bs_searched {
  size_t n;
  bs_searched_row *rows; /* in the order of time; a finalist has a row an effort */
  uint64_t measured;     /* rows that are not known ones */
  uint64_t best;
  double best_seconds; /* INFINITY: no point could be measured */
  uint32_t end;        /* enum bs_search_end */
} bs_searched;

/* The strategy of a name; -1: none. */
int bs_strategy_find(const char *name);
/* The budget that is used for 0. */
uint64_t bs_search_points(const bs_search *search, const bs_space *space);
/* BS_NO_MEMORY, BS_CONFIG (BS-KNOB-SPACE): the constraint allows no point, or the error of `measure`. Free
 * out in any case. */
int32_t bs_search_run(const bs_space *space, const bs_search *search, bs_searched *out, bs_error *err);
void bs_searched_free(bs_searched *searched);
/* The fastest `most` points, each by its row of the highest effort, fastest first, as places in rows. Returns
 * how many. */
size_t bs_searched_elite(const bs_searched *searched, size_t most, size_t *out_rows);

/* Choosers with a short list use this: the place of the least of n values. A later value replaces an earlier
 * one only if it is below `worth` times it. Values that are not positive do not count; n: no value counts. */
size_t bs_choose_least(const double *values, size_t n, double worth);
#endif
