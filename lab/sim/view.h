/* SPDX-License-Identifier: MIT
 * view.h - the page of `bsrun sim view`: one or two runs of an op inside of a device as one HTML file that
 * loads nothing. All numbers are made here; the page's script only shows them. */
#ifndef BS_LAB_SIM_VIEW_H
#define BS_LAB_SIM_VIEW_H
#include "core/base/text.h"
#include "lab/sim/inside.h"

typedef struct bs_view_run {
  const json_t *rows;       /* of `bsrun sim explain --inside` */
  bs_inside_answer *answer; /* it is run once more; NULL: the rows alone are shown */
  const char *device;       /* the word of --device, for commands; NULL: none */
} bs_view_run;

typedef struct bs_view {
  bs_view_run runs[2];
  uint32_t n;
  const char *command; /* that makes the page again; NULL: unknown */
} bs_view;

/* The rows of a file that `bsrun sim explain --inside OP --device D -o json` wrote. BS_INPUT BS-VIEW-FILE: it
 * cannot be read, or has other rows. */
int32_t bs_view_rows_read(const char *path, json_t **out_rows, bs_error *err);
/* At most 20,000 jobs of 512 lanes, 2,000 boxes and 4,096 probes of 4 KiB are in a page, over both runs; a
 * sentence says what is left out. Texts of the rows may come from a file: they are escaped. BS_NO_MEMORY, and
 * the errors of a run. */
int32_t bs_view_page(const bs_view *view, bs_text *out, bs_error *err);
#endif
