/* SPDX-License-Identifier: MIT
 * watch.h - a weight source that is watched while a layer is built from it: between two pieces a request to
 * stop is heard, and how much has been read is told. Building is mostly this reading, whatever the method. */
#ifndef BS_LAB_PHASE_WATCH_H
#define BS_LAB_PHASE_WATCH_H
#include <stdatomic.h>

#include "lab/phase/case.h"

typedef struct bs_watch {
  const bs_case *tell;  /* whose progress is told; NULL: none, nothing is counted (the building is timed) */
  atomic_ullong values; /* read by all ranks */
} bs_watch;

typedef struct bs_watched {
  const bs_source *inner;
  bs_watch *watch;
  int shows;         /* one rank tells, for all: its steps follow one another */
  bs_generator made; /* what a device makes by itself is not watched: it takes no time */
} bs_watched;

/* inner as out, through *view: both, and the watch, must outlive out. */
void bs_watch_source(bs_watch *watch, bs_watched *view, const bs_source *inner, int shows, bs_source *out);
#endif
