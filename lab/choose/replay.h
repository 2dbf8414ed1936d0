/* SPDX-License-Identifier: MIT
 * replay.h - runs strategies on earlier measurements: the same search over a file (history.h). So strategies
 * can be compared, and repeated with other seeds, without the machine. */
#ifndef BS_LAB_CHOOSE_REPLAY_H
#define BS_LAB_CHOOSE_REPLAY_H
#include <jansson.h>

#include "lab/choose/strategy.h"

/* The points of one problem and implementation. */
typedef struct bs_replay {
  bs_space space;  /* of the values that the file has */
  double *seconds; /* [space.size]; INFINITY: failed; NAN: not in the file */
  uint64_t present, failed;
  uint64_t best; /* the fastest point */
  char of[320];  /* "b2h8s512d64:bf16:full cpu:online" */
} bs_replay;

/* Opens the points of a file. problem, provider NULL: those of the last line. If there are several machines
 * or plugin files the last line's are used. BS_INPUT: no such file, BS_IO, BS_NOT_FOUND (all BS-TUNE-REPLAY
 * except BS_IO): no such points. Free it in any case. */
int32_t bs_replay_open(const char *path, const char *problem, const char *provider, bs_replay *out,
                       bs_error *err);
void bs_replay_free(bs_replay *replay);

typedef struct bs_replay_options {
  uint32_t strategy, repeats, finalists;
  uint64_t seed, points; /* points: as bs_search has them */
  double goal;           /* share of the best speed to reach: 0.95 */
} bs_replay_options;

/* The results of one strategy: each repeat has another seed and begins at another one of the slowest quarter
 * of the points. A share of speed is seconds of the fastest point / those of the fastest found. */
typedef struct bs_replayed {
  uint32_t repeats, reached; /* reached: repeats that reached the goal */
  double found_5, found_10,
      found_25; /* median share of speed after 5, 10, 25 % of the space's measurements */
  double found; /* at the end; low: the worst repeat's */
  double low;
  double measured;  /* median share of the space's points that were measured, halving included */
  double goal_cost; /* median share after which the goal was reached; INFINITY: not by half of the repeats */
} bs_replayed;
int32_t bs_replay_run(const bs_replay *replay, const bs_replay_options *options, bs_replayed *out,
                      bs_error *err);
#endif
