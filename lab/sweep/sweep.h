/* SPDX-License-Identifier: MIT
 * sweep.h - a sweep from its plan to its last point: planned, tuned, run by children, and resumed after any
 * crash. docs/sweeps.md. */
#ifndef BS_LAB_SWEEP_SWEEP_H
#define BS_LAB_SWEEP_SWEEP_H
#include "lab/sweep/plan.h"
#include "lab/sweep/tasks.h"

enum bs_point_state {
  BS_POINT_LEFT = 0,    /* must run, or was interrupted by a signal, the budget or an error */
  BS_POINT_DONE = 1,    /* ran now */
  BS_POINT_BEFORE = 2,  /* was done when the sweep was resumed */
  BS_POINT_FAILED = 3,  /* ran now and its exit code is not 0, or before and was not right */
  BS_POINT_REFUSED = 4, /* cannot run here */
  BS_POINT_TWIN = 5     /* has the same request as an earlier point */
};
typedef struct bs_point_outcome {
  int state, code;
  int before; /* the result is from runs that existed when the sweep was resumed */
  double seconds;
  char *said; /* of one that failed: its error line; or NULL */
} bs_point_outcome;

typedef struct bs_sweep {
  bs_sweep_folder folder;
  char *id, *root;            /* root: absolute */
  json_t *header, *points;    /* plan.h */
  bs_point_outcome *outcomes; /* one a point */
  size_t other_build;         /* of a resumed one: points that only another build has done */
  json_t *choices;            /* layer -> list of texts that its points pin */
} bs_sweep;

typedef struct bs_sweep_options {
  const char *program;
  const char *const *words; /* of `run --planned`, NULL at the end; the path of its file follows */
  uint32_t jobs;
  double deadline_s, budget_s; /* for one point, for all that remain; 0: none */
  int fail_fast;
  /* Called before a point or a tuning (point NULL), and after a point. done: points that need not run any
   * more; left_s: estimated from those that ran; below 0: not known. */
  void (*tell)(void *user, const json_t *point, const bs_point_outcome *outcome, size_t done, double left_s);
  void *user;
} bs_sweep_options;

/* Claims <root>/<id> and writes the plan. Takes header and points in every case. Close it in any case. */
int32_t bs_sweep_begin(const char *root, const char *id, json_t *header, json_t *points, bs_sweep *out,
                       bs_error *err);
/* Opens <root>/<id>, reads its plan, and finds the finished points. Keys are computed with the current
 * plugins: after a change of the library or a plugin the points that it served run again, unless
 * any_build. */
int32_t bs_sweep_resume(const char *root, const char *id, bs_context *context, int any_build, bs_sweep *out,
                        bs_error *err);
/* Checks again whether the points that the plan refuses, and that no run has done, can run now. The plan does
 * not change. quiet_dir, constants: as for bs_points_check. */
int32_t bs_sweep_ask_again(bs_sweep *sweep, bs_context *context, const char *quiet_dir,
                           const json_t *constants, bs_error *err);
/* Tunes the layers of the remaining points, then runs them. *out_signal as bs_tasks_run. BS_DEADLINE: the
 * budget; BS_IO: writing fails; BS_SOME_FAILED with fail_fast. Points that fail are outcomes, not errors. */
int32_t bs_sweep_run(bs_sweep *sweep, const bs_sweep_options *options, int *out_signal, bs_error *err);
void bs_sweep_close(bs_sweep *sweep);
#endif
