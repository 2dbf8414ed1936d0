/* SPDX-License-Identifier: MIT
 * points.h - the points of a plan (plan.h): composed from settings, checked, paired with their twins, and
 * looked for among the runs that exist. */
#ifndef BS_LAB_SWEEP_POINTS_H
#define BS_LAB_SWEEP_POINTS_H
#include <jansson.h>

#include "lab/config/compose.h"

/* Composes one point for each of `settings` ({key: value}), without a plugin being opened: a word of an axis
 * over method, mask, workload, hardware or phase is what --method, --mask, ... would take. Without a phase in
 * the request a point has phases 0 and 1, as a bare run. BS_USAGE (BS-SWEEP-AXIS) when the request gives a
 * key that is varied. *out_points is the caller's. */
int32_t bs_points_make(const bs_compose_request *request, bs_context *context, const json_t *settings,
                       json_t **out_points, bs_error *err);

/* The request keys of a planned point for what serves now; the tree stays as it was planned.
 * *out_changed: 1 when they are others than planned. */
int32_t bs_point_rekey(bs_context *context, json_t *point, int *out_changed, bs_error *err);

/* Opens plugins in a child process, which ends with it, and asks each point that no `duplicate_of` names what
 * it would be: fills refused, layer, alone, predicted_s (of one forward, by stored constants of the machine,
 * which may be NULL) and leaves out a phase 0 that has no values to judge. Points that ask for the same with
 * other words become duplicates. Where a child dies, or says nothing for a minute, the point gets {unchecked:
 * true}, and another child goes on behind it, 16 times at most. */
int32_t bs_points_check(bs_context *context, const char *quiet_dir, const json_t *constants, json_t *points,
                        bs_error *err);
/* The same for the points that were refused, and no others: memory may be free by now. */
int32_t bs_points_check_refused(bs_context *context, const char *quiet_dir, const json_t *constants,
                                json_t *points, bs_error *err);
/* How many points are unchecked. */
size_t bs_points_unchecked(const json_t *points);

/* Sets duplicate_of of every point that has the request key of an earlier one. */
void bs_points_pair(json_t *points);

enum { BS_POINT_OPEN = -1 };
/* What the committed runs below the sweep's folder say of each point. out_said[i]: BS_OK when each phase of
 * point i has a run with its key that was right; BS_NUMERIC or BS_INCONCLUSIVE when a phase was wrong or
 * could not be judged, which ended the point; BS_POINT_OPEN when it is to be run, also because a run of it
 * broke off. any_build: a run of this point and phase counts whatever its key. *out_other (NULL: not wanted):
 * how many points have such runs of another build alone. BS_IO. */
int32_t bs_points_done(const char *folder, const json_t *points, int any_build, int32_t *out_said,
                       size_t *out_other, bs_error *err);

/* The words of `bsrun run` that run a point of the plan alone: what the header's "words" have in common, then
 * the point's settings. NULL: the plan does not tell. */
json_t *bs_point_words(const json_t *header, const json_t *point);
/* What stands in the file of `run --planned` (lab/run/planned.h). header: of the plan, whose command the
 * records have. choices: list of texts that are pinned, or NULL; tune: choose and tell the choices, and run
 * nothing. NULL: out of memory. */
char *bs_point_input(const char *root, const char *sweep, const json_t *header, const json_t *point,
                     const json_t *choices, int tune);
#endif
