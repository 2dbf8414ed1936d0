/* SPDX-License-Identifier: MIT
 * sweep.h - a sweep from its plan to its last point: planned, tuned, run by children, and resumed after any
 * death. docs/sweeps.md. */
#ifndef BS_LAB_SWEEP_SWEEP_H
#define BS_LAB_SWEEP_SWEEP_H
#include "lab/sweep/plan.h"
#include "lab/sweep/tasks.h"

enum bs_point_state {
  BS_POINT_LEFT = 0,    /* to be run, or left by a signal, the budget or an error */
  BS_POINT_DONE = 1,    /* ran now */
  BS_POINT_BEFORE = 2,  /* was done when the sweep was resumed */
  BS_POINT_FAILED = 3,  /* ran now and its exit code is not 0, or before and was not right */
  BS_POINT_REFUSED = 4, /* cannot run here */
  BS_POINT_TWIN = 5     /* asks for what an earlier point asks for */
};
typedef struct bs_point_outcome {
  int state, code;
  int before; /* it is told of runs that were there when the sweep was resumed */
  double seconds;
  char *said; /* of one that failed: its error line; or NULL */
} bs_point_outcome;

typedef struct bs_sweep {
  bs_sweep_folder folder;
  char *id, *root;            /* root: absolute */
  json_t *header, *points;    /* plan.h */
  bs_point_outcome *outcomes; /* one a point */
  size_t other_build;         /* of a resumed one: points that are done by another build alone */
  json_t *choices;            /* layer -> list of texts that its points pin */
} bs_sweep;

typedef struct bs_sweep_options {
  const char *program;
  const char *const *words; /* of `run --planned`, NULL at the end; the path of its file follows */
  uint32_t jobs;
  double deadline_s, budget_s; /* of a point, of all that is left; 0: none */
  int fail_fast;
  /* Before a point or a tuning (point NULL), and behind a point. done: points that are no longer to be run;
   * left_s: by those that ran, below 0: not known. */
  void (*tell)(void *user, const json_t *point, const bs_point_outcome *outcome, size_t done, double left_s);
  void *user;
} bs_sweep_options;

/* Claims <root>/<id> and writes the plan. Takes header and points in every case. Close it in any case. */
int32_t bs_sweep_begin(const char *root, const char *id, json_t *header, json_t *points, bs_sweep *out,
                       bs_error *err);
/* Opens <root>/<id>, reads its plan, and finds out what is done. Keys are those of what serves now: after a
 * change of the library or a plugin the points that it served are to be run again, unless any_build. */
int32_t bs_sweep_resume(const char *root, const char *id, bs_context *context, int any_build, bs_sweep *out,
                        bs_error *err);
/* Asks the points that the plan refuses, and that no run has done, whether they can run by now. The plan
 * stays as it is. quiet_dir, constants: as of bs_points_check. */
int32_t bs_sweep_ask_again(bs_sweep *sweep, bs_context *context, const char *quiet_dir,
                           const json_t *constants, bs_error *err);
/* Tunes the layers of what is left, then runs it. *out_signal as bs_tasks_run. BS_DEADLINE: the budget;
 * BS_IO: nothing can be written any more; BS_SOME_FAILED with fail_fast. Points that fail are outcomes, no
 * errors. */
int32_t bs_sweep_run(bs_sweep *sweep, const bs_sweep_options *options, int *out_signal, bs_error *err);
void bs_sweep_close(bs_sweep *sweep);
#endif
