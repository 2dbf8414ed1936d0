/* SPDX-License-Identifier: MIT
 * view_parts.h - what the files of the page of `bsrun sim view` share: see view.h. */
#ifndef BS_LAB_SIM_VIEW_PARTS_H
#define BS_LAB_SIM_VIEW_PARTS_H
#include "lab/sim/view.h"

enum { VIEW_BOXES = 2000, VIEW_JOBS = 20000, VIEW_LANES = 512, VIEW_BINS = 64, VIEW_PAIRS = 4096 };
#define VIEW_NONE UINT32_MAX

enum view_kind { VIEW_PLACE, VIEW_PART, VIEW_CHANNEL };

/* A place of the device, a part or the links of a net there, or a channel of a memory. */
typedef struct view_box {
  uint32_t kind, level, place; /* where it lies */
  uint32_t class, part, parts; /* of a part: its parts of the layout; of a channel: its memory */
  uint32_t channel;            /* of the memory's part */
  uint32_t end;                /* of a probe; VIEW_NONE */
} view_box;

typedef struct view_job {
  uint64_t begin, end;
  uint32_t lane, what;
} view_job;

typedef struct view_run {
  const bs_view_run *of;
  const sim_layout *l; /* of the answer; NULL: there are the rows alone */
  uint64_t time;       /* ps of the run */
  /* boxes, the outer ones first */
  view_box *boxes;
  uint32_t n_boxes, shown[SIM_LEVELS], channels; /* at most so many of a place are shown */
  uint32_t n_ends, *end_boxes;
  /* token-ps at the parts of a series, in each of the bins */
  uint32_t *series_of, n_series; /* of a part */
  uint64_t *waiting, *working, bin;
  view_job *jobs;
  uint32_t n_jobs, most_jobs;
  uint64_t left, until; /* jobs that are left out; when the last one ended that is shown */
  struct {
    uint64_t jobs, ps;
  } kinds[SIM_WHATS];
} view_run;

/* The boxes of a device, and room for their series. Free it in every case. */
int32_t view_boxes_make(view_run *r, bs_error *err);
void view_run_free(view_run *r);
/* The boxes as HTML, a button each, and what a press on one shows: columns in their order. */
void view_boxes_html(const view_run *r, bs_text *out);
json_t *view_boxes_json(const view_run *r);
void view_box_name(const view_run *r, const view_box *b, char *out, uint32_t size);

/* Runs the program once more, and keeps jobs and series. */
int32_t view_watch(view_run *r, bs_error *err);
/* [[most that wait, most in work, text, text]] or null, a series each. A letter of a text is a bin, 0-9A-Za-z
 * of 61 parts of the most. */
json_t *view_series_json(const view_run *r);
/* {names, spans}, a text a lane: "BEGIN.TAKESWHAT", in ps to the base of 36, a begin after that of the job
 * before, and what as a capital letter. */
json_t *view_lanes_json(const view_run *r);

/* {names, profiles, pairs}: "FROM TO" to "PROFILE:NAME.NAME", at most so many pairs. */
int32_t view_probes_json(const view_run *r, uint32_t most, json_t **out, bs_error *err);
#endif
