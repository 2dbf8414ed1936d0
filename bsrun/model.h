/* SPDX-License-Identifier: MIT
 * model.h - the sub-verbs of `bsrun model`: one file each (model_plan.c, ...), in a table in model.c, from
 * which help, completion and the manual page are made. */
#ifndef BSRUN_MODEL_H
#define BSRUN_MODEL_H
#include "bsrun/bsrun.h"
#include "lab/model/model.h"

extern const bsrun_verb model_info, model_run, model_check, model_bench, model_explain, model_generate,
    model_plan, model_tokenize, model_quantize, model_embed;

/* ---- sub-verbs that open a model (model_words.c) --------------------------------------------- */

/* Rows of their tables of options. */
#define MODEL_OPTION_DIM \
  { OPT_DIM, NULL, 0 }
#define MODEL_OPTION_CONSTANT \
  { OPT_CONSTANT, NULL, 0 }
#define MODEL_OPTION_BACKEND \
  { OPT_BACKEND, "default: cpu. What it lacks runs on ref, or on the host of a device, with a warning", 0 }
#define MODEL_OPTION_THREADS \
  { OPT_THREADS, "default: all cores", 0 }
#define MODEL_OPTION_PASS \
  { OPT_NO_PASS, NULL, 0 }
#define MODEL_OPTION_TOKENS \
  { OPT_CACHE_TOKENS, "default: as the model says", 0 }
/* A word of --with, which the table has before it. */
#define MODEL_OPTION_CACHE_DTYPE \
  { OPT_WITH_CACHE_DTYPE, NULL, 0 }
#define MODEL_OPTION_SEED \
  { OPT_SEED, "of made inputs; default: 0", 0 }
#define MODEL_OPTIONS_QUANT                                                                          \
  {OPT_WEIGHTS, "default: as in the model. Schemes: w8, w8g32, w4g32, w4z32, w4k, w6k, float", 0}, { \
    OPT_ACTIVATIONS, "float or x8; default: as the model's format asks", 0                           \
  }
#define MODEL_OPTION_TUNED \
  { OPT_TUNE_CACHE, NULL, 0 }
#define MODEL_OPTIONS_PLUGINS                     \
  {OPT_PLUGIN, NULL, 0}, {OPT_CONFIG, NULL, 0}, { \
    OPT_SET, NULL, 0                              \
  }

#define MODEL_OPTIONS_KEEP \
  {OPT_OUT, NULL, 0}, {    \
    OPT_RUN_ID, NULL, 0    \
  }

/* A model over many ranks (model_ranks.c). */
#define MODEL_OPTIONS_RANKS                                                             \
  {OPT_METHOD, "split products over ranks: M, or F+S for pairs; default: one rank", 0}, \
      {OPT_WORLD_SIZE, "with --method; default: the method's usual number, or 2", 0},   \
      {OPT_COMM, "with --method; default: as --launch needs it", 0},                    \
      {OPT_LAUNCH, "with --method; default: threads", 0},                               \
      {OPT_TIMEOUT, "of every wait between ranks; default: 60", 0}, {                   \
    OPT_MASK, "with --method; default: the method's", 0                                 \
  }

/* A model that is open, with what was asked. */
typedef struct model_asked {
  bs_model_request request;
  bs_model_ranks ranks; /* request.ranks, with --method */
  bs_context *context;
  bs_model model;
  const char **lists[5];
  char *tuning;     /* the tuning file; NULL: none */
  bs_node *machine; /* the configuration; NULL without --hardware */
  int quiet;
  bsrun_progress progress; /* of what takes long; its first line comes after half a second */
  bs_progress_fn show;     /* NULL: no terminal */
  double since;
} model_asked;

/* Clears the line of progress. Call it before anything is printed. */
void model_progress_end(model_asked *asked);
/* Reads parsed options: dim, input, constant, pass, backend, threads, seed, cache-tokens, cache-dtype,
 * tune-cache and those of plugins, as far as they are there. Without tune-cache no tuning file is read. The
 * first word is the model. The caller frees in every case; `a` outlives it, and `out` is not moved. */
int32_t model_asked_read(const args *a, model_asked *out, bs_error *err);
/* Reads them as model_asked_read does, and opens the model. */
int32_t model_asked_make(const args *a, model_asked *out, bs_error *err);
/* Reads the words of a model over ranks into asked->ranks, and points the request at them. threads: of a
 * rank; 0: not given. */
int32_t model_ranks_read(const args *a, bs_context *context, int64_t threads, model_asked *io_asked,
                         bs_error *err);
/* A process that was started as a rank of the model becomes one: above rank 0 it prints nothing from here on.
 * Comes first of all, so that one error is one line. */
void model_ranks_join(const args *a, model_asked *io_asked);
/* How the others were launched that this process has joined as a rank of the model: "processes" or "mpi".
 * NULL: all ranks are threads. */
const char *model_ranks_joined(const args *a);
/* For verbs that open several sessions. BS_UNSUPPORTED: the ranks are to be processes. */
int32_t model_ranks_threads_only(const args *a, bs_error *err);
/* Opens the context; with --hardware the simulated machine's, whose names are in asked->ranks then
 * (model_machine.c). */
int32_t model_machine_open(const args *a, model_asked *io_asked, bs_error *err);
void model_ranks_free(bs_model_ranks *ranks);
/* Warns, unless --quiet, that nodes ran on ref for the backend that was asked for, and notes products that no
 * rank splits. stats: bs_model_stats. */
void model_tell_fallback(const args *a, const bs_model_request *request, const json_t *stats);
void model_asked_free(model_asked *asked);
/* Keeps what was found as a run folder (model_record.c; options MODEL_OPTIONS_KEEP). phase: model_check, one
 * record; model_bench, a record for each of the rows. `result` gets the folder as `run`; so does *out_folder,
 * which the caller frees, or NULL with --out off. */
int32_t model_keep(const args *a, const model_asked *asked, const char *phase, int passed, json_t *result,
                   char **out_folder, bs_error *err);
/* "run: FOLDER" below a table; folder may be NULL. */
void model_print_folder(int format, const char *folder);
/* The error of a result that differs from the graph as written; 0: it does not. */
int model_say_written(const json_t *result, bs_error *err);
/* model_bench.c: the rows that `model bench` prints for these words. Nothing is kept. The caller frees them.
 */
int32_t model_bench_rows(const args *a, json_t **out_rows, bs_error *err);
int32_t model_print_json(const json_t *value, bs_error *err);
/* "[batch, 128]" of a shape. */
json_t *model_shape_text(const json_t *shape);
#endif
