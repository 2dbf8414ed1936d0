/* SPDX-License-Identifier: MIT
 * points.h - the points of a plan (plan.h): composed from settings, checked, paired with their twins, and
 * looked for among the runs that exist. */
#ifndef BS_LAB_SWEEP_POINTS_H
#define BS_LAB_SWEEP_POINTS_H
#include <jansson.h>

#include "lab/config/compose.h"

/* Composes one point for each of `settings` ({key: value}), without opening a plugin: a word of an axis over
 * method, mask, workload, hardware or phase is read as by --method, --mask, ... Without a phase in the
 * request a point has phases 0 and 1, as a bare run. BS_USAGE (BS-SWEEP-AXIS): the request sets a key that is
 * varied. *out_points is the caller's. */
int32_t bs_points_make(const bs_compose_request *request, bs_context *context, const json_t *settings,
                       json_t **out_points, bs_error *err);

/* The request keys of a planned point with the current plugins; the tree stays as planned. out_changed: 1:
 * they differ from the plan's. */
int32_t bs_point_rekey(bs_context *context, json_t *point, int *out_changed, bs_error *err);

/* Opens plugins in a child process, and checks there each point that no `duplicate_of` names. Fills refused,
 * layer, alone, predicted_s (of one forward, by stored constants of the machine, which may be NULL) and
 * leaves out a phase 0 that has no values to judge. Points with equal requests in other words become
 * duplicates. If a child dies, or is silent for a minute, the point gets {unchecked: true}, and another child
 * continues after it, 16 times at most. */
int32_t bs_points_check(bs_context *context, const char *quiet_dir, const json_t *constants, json_t *points,
                        bs_error *err);
/* Like bs_points_check, only for the points that were refused: memory may be free now. */
int32_t bs_points_check_refused(bs_context *context, const char *quiet_dir, const json_t *constants,
                                json_t *points, bs_error *err);
/* The number of unchecked points. */
size_t bs_points_unchecked(const json_t *points);

/* Sets duplicate_of of every point that has the request key of an earlier one. */
void bs_points_pair(json_t *points);

enum { BS_POINT_OPEN = -1 };
/* The verdict on each point from the committed runs below the sweep's folder. out_said[i]: BS_OK if each
 * phase of point i has a run with its key that was right. BS_NUMERIC or BS_INCONCLUSIVE: a phase was wrong or
 * could not be judged, which ended the point. BS_POINT_OPEN: the point must run, also if a run of it was
 * interrupted. any_build: a run of this point and phase counts with any key. *out_other (NULL: not wanted):
 * the number of points that have such runs of another build only. BS_IO. */
int32_t bs_points_done(const char *folder, const json_t *points, int any_build, int32_t *out_said,
                       size_t *out_other, bs_error *err);

/* The arguments of `bsrun run` that run only one point of the plan: the common "words" of the header, then
 * the point's settings. NULL: the plan does not have them. */
json_t *bs_point_words(const json_t *header, const json_t *point);
/* The content of the file of `run --planned` (lab/run/planned.h). header: of the plan, whose command the
 * records contain. choices: list of pinned texts, or NULL; tune: choose, report the choices, and run nothing.
 * NULL: out of memory. */
char *bs_point_input(const char *root, const char *sweep, const json_t *header, const json_t *point,
                     const json_t *choices, int tune);
#endif
