/* SPDX-License-Identifier: MIT
 * ccl.h - collective algorithms for `bsrun coll`: found by name, listed, proven (sim/check.h), explained.
 * Rows are JSON objects whose keys are those of the reports. */
#ifndef BS_LAB_COLL_CCL_H
#define BS_LAB_COLL_CCL_H
#include <jansson.h>

#include "sim/check.h"

/* An algorithm and its options. */
typedef struct bs_ccl {
  const bs_algorithm *algorithm;
  void *state;
  bs_value options[BS_ALGORITHM_MAX_OPTIONS];
  char *texts[BS_ALGORITHM_MAX_OPTIONS]; /* that the options point into */
  bs_thing_info thing;                   /* its plugin and file */
} bs_ccl;

/* Finds the algorithm and reads options "key=value"; others keep their defaults. The caller frees.
 * BS_NOT_FOUND: unknown name; the error has the nearest. BS_USAGE: an unknown option or an invalid value. */
int32_t bs_ccl_open(bs_context *context, const char *name, const char *const *options, size_t n_options,
                    bs_ccl *out_ccl, bs_error *err);
void bs_ccl_free(bs_ccl *ccl);
/* Names of the algorithms that `plugin` registers, or, with NULL, all usable plugins: strings of a new array.
 */
int32_t bs_ccl_names(bs_context *context, const char *plugin, json_t **out_names, bs_error *err);
/* A row of its properties: name, plugin, kinds, same order, parameters. */
json_t *bs_ccl_row(const bs_ccl *ccl);
/* Proves it: a row a level and collective. Codes as of sim_check. */
int32_t bs_ccl_check(const bs_ccl *ccl, const sim_check_request *request, json_t *rows, bs_error *err);

/* A collective on a link that every pair of ranks has for itself. */
typedef struct bs_ccl_place {
  uint32_t kind, world_size, root, element_bytes;
  uint64_t count;
  double alpha_s, bytes_per_s; /* a rate of 0: bytes take no time */
  double reduce_bytes_per_s;   /* 0: reducing takes no time */
  uint32_t late_rank;          /* begins late_s seconds after the others */
  double late_s;
  const char *trace_file; /* NULL; else a trace of its messages */
  uint64_t trace_events;  /* at most; 0: SIM_TRACE_CAP */
} bs_ccl_place;
/* The text of a parameter of the plugin "sim", which is opened. BS_UNAVAILABLE: no such plugin. */
int32_t bs_sim_param(bs_context *context, const char *name, char *out_text, size_t size, bs_error *err);
/* Reads the place's link from the parameters of the plugin "sim" in the context. */
int32_t bs_ccl_place_link(bs_context *context, bs_ccl_place *place, bs_error *err);
/* Simulates it message by message and evaluates its formula. The row has rounds, messages, bytes, both times,
 * and the critical path split into latency, bytes and reducing. If a trace is requested it is written, and
 * the row has its trace_events and trace_left_out. After a request to stop (lab/stop.h) the row has the
 * formula alone, and no trace is written. Returns a row; NULL on failure. */
json_t *bs_ccl_explain(const bs_ccl *ccl, const bs_ccl_place *place, bs_error *err);
/* The number of a collective's name; BS_COLL_COUNT_ for an unknown name. */
uint32_t bs_ccl_kind(const char *name);
#endif
