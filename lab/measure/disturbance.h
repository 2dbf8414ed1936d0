/* SPDX-License-Identifier: MIT
 * disturbance.h - which pairs of a sampling were disturbed, and by what. Other programs are detected by
 * processor time that the measurement did not use itself. A thread whose partner waits for a busy processor
 * spins or sleeps, and its own counters do not show that (docs/measuring.md, "Disturbances"). */
#ifndef BS_LAB_MEASURE_DISTURBANCE_H
#define BS_LAB_MEASURE_DISTURBANCE_H
#include <jansson.h>

#include "lab/measure/disturb.h"

enum bs_disturbed_by {
  BS_BY_OTHERS = 0,  /* other programs had processors that the arms need */
  BS_BY_WAITING = 1, /* threads of the arms were switched away and waited while other programs ran */
  BS_BY_STEAL = 2,   /* the hypervisor */
  BS_BY_QUOTA = 3,   /* the cgroup's quota ran out */
  BS_BY_COUNT_ = 4
};

typedef struct bs_disturbance {
  size_t pairs, disturbed; /* that were used; of them */
  size_t by[BS_BY_COUNT_]; /* of them; one may be counted by several */
  double others, stolen;   /* parts of the processors' time; below 0: not known */
} bs_disturbance;

/* The rule: 1 if more than a fifth of the pairs were disturbed. A ratio leaves out a fifth of the
 * observations at either end: up to a fifth of disturbed ones cannot decide, more can. */
int bs_disturbance_decides(const bs_disturbance *disturbance);
/* "others took 87 % of the processors' time during the measurement (58 of 60 pairs)"; "" if nothing disturbed
 * the pairs. Returns out. */
const char *bs_disturbance_cause(const bs_disturbance *disturbance, char *out, size_t size);
/* {pairs, disturbed, others_pairs, waiting_pairs, stolen_pairs, quota_pairs, others, stolen, decides, cause};
 * new reference. */
json_t *bs_disturbance_json(const bs_disturbance *disturbance);
/* Reads such an object; all zero for NULL. */
void bs_disturbance_read(const json_t *object, bs_disturbance *out);

/* ---- while pairs are taken --------------------------------------------------------------------- */

typedef struct bs_disturbed_pair {
  uint8_t steal, quota, waited;
} bs_disturbed_pair;

/* Pairs are judged by windows of half a second: /proc/stat counts in ticks of 10 ms. */
typedef struct bs_disturbance_judge {
  uint32_t threads;         /* of the widest arm; 0: all processors */
  uint32_t crowded;         /* 1: threads of the arms share the processors */
  bs_disturbed_pair *pair;  /* [room] */
  size_t room, pairs, from; /* from: the window's first pair */
  bs_load begin, window;    /* at the first pair; at the start of the window */
  double last, last_doubt;  /* others of the last closed window; below 0: none yet */
  bs_disturbance sum;
} bs_disturbance_judge;

/* 0: no memory. */
int bs_disturbance_open(bs_disturbance_judge *judge, size_t pairs_max, uint32_t threads, uint32_t crowded);
void bs_disturbance_begin(bs_disturbance_judge *judge, const bs_disturb *now);
/* A pair that is used. */
void bs_disturbance_pair(bs_disturbance_judge *judge, const bs_disturbed_pair *pair, const bs_disturb *now);
void bs_disturbance_end(bs_disturbance_judge *judge, const bs_disturb *now, bs_disturbance *out);
void bs_disturbance_close(bs_disturbance_judge *judge);
#endif
