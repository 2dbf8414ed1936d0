/* SPDX-License-Identifier: MIT
 * inside_tune.h - `bsrun tune PROBLEM --device D`: a search (lab/choose) for the knobs with which an op is
 * the fastest inside of a device. Each point is simulated. Nothing is measured, and no file is read or
 * written. */
#ifndef BS_LAB_SIM_INSIDE_TUNE_H
#define BS_LAB_SIM_INSIDE_TUNE_H
#include <jansson.h>

#include "lab/choose/strategy.h"
#include "sim/device.h"

typedef struct bs_inside_tune {
  const char *op; /* of inside_op.h */
  /* Knobs of inside.h and their values as lab/choose/space.h has them: "tm", "64:512*2". A knob that is not
   * given has the values of the device's tiles and stages; those of a tile also halved and doubled. */
  const char *const *names, *const *values;
  size_t n_knobs;
  const char *where, *start; /* a constraint; the first point; NULL: none, the fastest tile of the device */
  uint32_t strategy, survivors; /* of bs_search, as the rest; there are no finalists: a point has one time */
  uint64_t seed, points;
  double seconds;
  void *user;
  /* Called before each simulation: how many are done and may be done, seconds that remain (0: unknown). */
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t most, double left_s);
} bs_inside_tune;

/* *out: {problem, device, label, origin "simulated", choice, default, default_s, ratio, strategy, simulated,
 * refused, spent_s, spaces, elite, refused_points}. Each row of the elite and of the refused points has how
 * "simulated"; a refused one has a reason: its buffers do not fit, its program is too large, or its knobs do
 * not go together. Also after a signal (lab/stop.h): then it has what was found, with origin "stopped", and
 * the error is BS_ABORTED. NULL after other errors: BS_USAGE BS-INSIDE-KNOB, BS-TUNE-START; BS_CONFIG
 * BS-KNOB-SPACE; those of bs_inside_open, where no point could be simulated that of the first one. */
int32_t bs_inside_tune_run(const sim_device *device, const bs_inside_tune *tune, json_t **out, bs_error *err);
#endif
