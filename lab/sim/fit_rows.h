/* SPDX-License-Identifier: MIT
 * fit_rows.h - the rows of `bsrun coll bench` as fits of a simulated machine (sim/fit.h). */
#ifndef BS_LAB_SIM_FIT_ROWS_H
#define BS_LAB_SIM_FIT_ROWS_H
#include <jansson.h>

#include "sim/fit.h"

/* The rows of a file: a JSON array, or an object a line. The caller releases *out_rows. BS_INPUT with the
 * line. */
int32_t bs_fit_rows_read(const char *path, json_t **out_rows, bs_error *err);
/* A row for each collective, communicator, number of ranks, dtype and algorithm of `rows`: its segments, and
 * the error of the fit of every second size on the others. Rows of one size twice: the later one counts. */
int32_t bs_fit_rows(const json_t *rows, json_t **out_fits, bs_error *err);
/* Regret of the fits at sizes that several algorithms of one collective were measured at and that the fits
 * had not seen: {"cells", "within_5_percent", "worst"}. Regret is the time of the algorithm that the fits
 * choose / least time - 1. */
int32_t bs_fit_regret(const json_t *rows, json_t **out_regret, bs_error *err);

/* One class of links: the cost of a ring all-reduce, or of a message, as one straight line. */
typedef struct bs_fit_link {
  double alpha_s, bytes_per_s;
  double least_bytes, most_bytes; /* the sizes that were measured */
  uint32_t ranks;
  sim_fit_error held_out; /* of one straight line */
} bs_fit_link;
/* Fits the all_reduce rows of the first communicator in `rows`; without any its send_recv rows. */
int32_t bs_fit_link_of(const json_t *rows, bs_fit_link *out, bs_error *err);
#endif
