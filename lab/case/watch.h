/* SPDX-License-Identifier: MIT
 * watch.h - a weight source that is watched while a layer is built from it. Between two pieces it checks for
 * a stop request and reports how much has been read. Building is mostly this reading, for every method. */
#ifndef BS_LAB_CASE_WATCH_H
#define BS_LAB_CASE_WATCH_H
#include <stdatomic.h>

#include "lab/case/case.h"

typedef struct bs_watch {
  const bs_case *tell;  /* the case whose progress is reported; NULL: none, and nothing is counted (the
                         * building is timed) */
  atomic_ullong values; /* read by all ranks */
} bs_watch;

typedef struct bs_watched {
  const bs_source *inner;
  bs_watch *watch;
  int shows;         /* one rank reports for all, so that the steps follow one another */
  bs_generator made; /* generation on a device is not watched: it takes no time */
} bs_watched;

/* inner as out, through *view: both, and the watch, must outlive out. */
void bs_watch_source(bs_watch *watch, bs_watched *view, const bs_source *inner, int shows, bs_source *out);

/* The sources from which a rank of a case builds and runs its layer; w is watched. Do not copy it. */
typedef struct bs_case_source {
  bs_source x, w;
  const bs_source *bias; /* NULL: none */
  bs_source unwatched, bias_view;
  bs_watched view;
} bs_case_source;
/* case.c */
int32_t bs_case_sources(const bs_case *c, uint32_t rank, bs_watch *watch, bs_case_source *out, bs_error *err);
#endif
