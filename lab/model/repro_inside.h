/* SPDX-License-Identifier: MIT
 * repro_inside.h - what the parts of repro.h share: repro.c has the grid, repro_rows.c the outputs as rows of
 * bits, repro_slots.c sequences side by side. */
#ifndef BS_LAB_MODEL_REPRO_INSIDE_H
#define BS_LAB_MODEL_REPRO_INSIDE_H
#include "lab/model/repro.h"

/* How a sequence is run: the first `length` tokens (0: all), `each` at a time (0: all, -1: all but one), with
 * `beside` other sequences in the same runs. */
typedef struct repro_cut {
  const char *name;
  int64_t length, each;
  uint32_t beside;
} repro_cut;

/* Where the numbers of an output lie in a row. */
typedef struct repro_output {
  uint64_t offset, bytes;
  uint32_t dtype, width;
} repro_output;

typedef struct repro {
  const bs_model_request *request;
  const bs_repro_asked *asked;
  const json_t *certificate; /* NULL: what is compared with is the first run */
  const char *table;         /* of the session that is open; NULL: the plugin's own */
  uint32_t threads, beside;  /* of that session */
  uint32_t ranks;            /* likewise; 0: it runs on no world */
  int joined;                /* likewise: its ranks are those of asked->joined */
  bs_model model;            /* that is open */
  const char *symbol;        /* of the tokens, or of the batch; NULL: the outputs are one row */
  int cached;
  int64_t cache_tokens;
  uint64_t rows, row; /* tokens, or entries of the batch; bytes of one: of all outputs */
  uint64_t numbers;   /* of a row */
  repro_output *outputs;
  uint32_t n_outputs;
  uint8_t *first, *now;
  int64_t *ids; /* of a model with a cache: its tokens */
  int has_files, has_inputs;
  int has_whole;    /* a cell with all rows was compared with the certificate */
  int keep_first;   /* of the control: what it is compared with is there */
  bs_error differs; /* of the first run whose ranks have other outputs than rank 0; code BS_OK: none */
  json_t *cells, *skipped, *result;
} repro;

int32_t repro_no_memory(bs_error *err);
/* How a run ended. That ranks differ is kept: the bits of rank 0 are compared all the same. */
int32_t repro_ran(repro *r, int32_t rc, bs_error *err);

/* ---- repro_rows.c: the outputs of the run that is over, a row a token or an entry -------------- */

/* Copies rows `from`..`from + n` of the last run, which has `all`, to rows `at` on of r->now. Every NaN
 * becomes the same one. The first call lays out a row, and allocates. */
int32_t repro_take(repro *r, uint64_t at, uint64_t from, uint64_t n, uint64_t all, bs_error *err);
/* {numbers, sha256, rows: [8 digits of each]} of r->first. NULL: out of memory. */
json_t *repro_digest(const repro *r);
/* {table, threads, run, compared, differ, first, equal} of the first `rows` rows; with a certificate {..,
 * rows, differ, ..}. BS_INPUT: the certificate contradicts itself. */
int32_t repro_compare(repro *r, const repro_cut *cut, uint64_t rows, json_t **out, bs_error *err);

/* ---- repro_slots.c ----------------------------------------------------------------------------- */

/* Opens the model as r->beside + 1 sequences. BS_UNSUPPORTED: it cannot be opened so. */
int32_t repro_slots_start(repro *r, bs_context *context, const bs_model_request *request, bs_error *err);
/* Runs the sequence, `each` tokens at a time, beside others of other tokens and lengths. */
int32_t repro_slots_run(repro *r, int64_t each, bs_error *err);
#endif
