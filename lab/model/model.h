/* SPDX-License-Identifier: MIT
 * model.h - the work of `bsrun model`, apart from printing: reads a model with the command line's settings,
 * opens a session, runs it on .npy files. */
#ifndef BS_LAB_MODEL_MODEL_H
#define BS_LAB_MODEL_MODEL_H
#include <jansson.h>

#include "blockshock/generate.h"
#include "formats/npy.h"

/* Words of the command line, each "NAME=...". They and the texts outlive the model. */
typedef struct bs_model_words {
  const char *const *words;
  size_t n;
} bs_model_words;

/* A model over many ranks: the words of --method, -P, --threads, --comm, --mask and method.KEY. */
typedef struct bs_model_ranks {
  uint32_t n;                  /* ranks */
  uint32_t threads;            /* of each; 0: cores / ranks */
  const char *method, *comm;   /* method NULL: one rank; comm NULL: threads */
  const char *launch;          /* "threads", "processes" or "mpi"; NULL: threads */
  double timeout_s;            /* of a wait for another rank; 0: 60 */
  const char **keys, **values; /* n_options: of the method */
  uint32_t n_options, has_mask;
  bs_mask mask;
  /* Of a communicator with a virtual clock: the machine's name, and its collectives as bs_world_options has
   * them. */
  uint32_t simulated, phantom; /* phantom 1: without values */
  uint32_t replicas;           /* of n ranks each, of which one is simulated; 0: one */
  const char *machine, *algorithm, *topology;
} bs_model_ranks;

typedef struct bs_model_request {
  const char *path;         /* or builtin:NAME (builtin.h), or a folder with vectors.txt (vectors.h) */
  const char *backend;      /* NULL: cpu */
  bs_model_words dims;      /* NAME=N */
  bs_model_words inputs;    /* NAME=FILE.npy */
  bs_model_words constants; /* NAME=FILE.npy: inputs that become constants */
  bs_model_words passes;    /* NAME=off or NAME=on; "all=off" */
  bs_model_words choices;   /* KEY -> PLUGIN:NAME, as bs_world_options has them */
  const char *tuning;       /* the tuning file, whose choices serve products that `choices` leaves open; NULL:
                             * none */
  const char *weights;      /* as bs_session_options; NULL: as in the model */
  const char *activations;  /* likewise */
  int64_t cache_tokens;     /* for a folder with config.json; 0: the number in that file */
  int64_t slots;            /* for a folder with config.json: bs_graph_options.slots */
  uint32_t cache_dtype;     /* bs_graph_options; so is last_logits */
  uint32_t last_logits;
  uint32_t shapes;  /* bs_graph_options.shapes */
  uint32_t threads; /* 0: all processors that the process may use */
  uint32_t seed;    /* of made inputs */
  uint32_t profile;
  uint32_t bind;               /* the threads stay on their cores */
  uint32_t exact, tokenwise;   /* as bs_session_options */
  const bs_model_ranks *ranks; /* NULL: one */
  /* Receives progress of slow work: reading, the steps of bs_session_options.progress, a check's nodes. May
   * be NULL. */
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
  void *progress_user;
  void (*note)(void *user, const char *text); /* a line for the reader; may be NULL */
  void *note_user;
} bs_model_request;

struct bs_model_domain; /* inputs.h */

/* A model with the data that were read for it. */
typedef struct bs_model {
  bs_graph *graph;
  bs_session *session;
  bs_world *world;    /* of the session; NULL: one rank */
  const char **names; /* of inputs; n_inputs */
  bs_npy *files;      /* of inputs; n_inputs */
  size_t n_inputs;
  bs_dim *dims; /* n_dims: of --dim, then of the inputs' shapes */
  const bs_dim **dim_pointers;
  size_t n_dims;
  char **texts; /* the names of dims that were cut out of words */
  size_t n_texts;
  const char **passes_off;
  size_t n_passes_off;
  uint32_t seed;                   /* of made inputs: the request's */
  struct bs_model_domain *domains; /* of the graph's inputs; NULL: not found yet */
  void **made;                     /* of each input, numbers that were made; NULL: none */
  uint64_t made_hash;              /* of those numbers, when they were set */
  json_t *tuned; /* {key: choice}: from the tuning file, when the session was opened; NULL: not requested */
} bs_model;

/* Opens the graph, makes the constants, reads the inputs' files and the sizes of dimensions: those of --dim,
 * and those from the inputs' shapes. BS_USAGE: a word that is not of that form, an unknown name (with the
 * nearest). BS_INPUT: a file. The caller closes in every case. */
int32_t bs_model_open(bs_context *context, const bs_model_request *request, bs_model *out, bs_error *err);
/* Sends request->note a note on parts of the model's files that are ignored, if there are any. */
void bs_model_warn(const bs_model_request *request, const bs_graph *graph);
/* Sizes of dimensions that nothing gives: of those called a batch, and of all others. */
enum { BS_MODEL_MADE_BATCH = 2, BS_MODEL_MADE_SIZE = 32 };
/* Opens its session. Dimensions without a size get one (inputs.h). */
int32_t bs_model_start(bs_context *context, const bs_model_request *request, bs_model *model, bs_error *err);
/* Like bs_model_start, with the packed weights and the key-value cache of another session of the model, which
 * must outlive it; NULL: the session makes its own. */
int32_t bs_model_start_beside(bs_context *context, const bs_model_request *request, bs_model *model,
                              bs_session *share, bs_error *err);
/* Returns the options that the request asks for. The world of the model is made. */
bs_session_options bs_model_session_options(const bs_model_request *request, const bs_model *model);
/* Makes model->world where the request has ranks; bs_model_start calls it. */
int32_t bs_model_world(bs_context *context, const bs_model_request *request, bs_model *model, bs_error *err);
/* Threads of one rank, which the request may leave open. */
uint32_t bs_model_threads(const bs_model_request *request);
/* 1: the model's ranks are processes, and this one is above rank 0: it follows. */
int bs_model_follows(const bs_model *model);
/* After the session of the model was opened: a process that follows serves rank 0's calls here until rank 0
 * closes its session. Then it has nothing more to do, and gets bs_model_done. Elsewhere BS_OK at once. */
int32_t bs_model_follow(const bs_model *model, bs_session *session, bs_error *err);
/* The error of a process that has done its part: BS_ABORTED with this id. The process ends without a word,
 * with the exit code in native_code. */
#define BS_MODEL_DONE_ID "BS-MODEL-DONE"
int32_t bs_model_done(int exit_code, bs_error *err);
/* Gives a dimension its size before the session opens; --dim has said no other. */
int32_t bs_model_set_dim(bs_model *model, const char *symbol, int64_t size, bs_error *err);
void bs_model_close(bs_model *model);

/* {path, producer, opset, nodes, constants, constant_bytes, states, state_bytes, cache_tokens, load_seconds,
 * inputs, outputs: [{name, dtype, shape}], ops: [{op, domain, nodes}], unsupported: [{node, op, domain,
 * opset, dtype, reason}], not_judged: a line with the sizes that would help, or ""}. A symbolic dimension is
 * its name. `backend` NULL: only the lowering is checked. */
int32_t bs_model_info(const bs_model *model, const char *backend, json_t **out, bs_error *err);
/* Runs a started model once on its inputs; ran: that was done, and its outputs are in the session. {model,
 * backend, dims, made_inputs, nodes, outputs: [{name, dtype, shape, min, max, mean, nonfinite, first, file}],
 * stats}. output_dir (may be NULL): each output is written there as NAME.npy; the folder is made. */
int32_t bs_model_run(const bs_model_request *request, bs_model *model, int ran, const char *output_dir,
                     json_t **out, bs_error *err);
/* A report of a session (enum bs_session_report) as text, malloc'd. */
int32_t bs_model_text(const bs_model *model, uint32_t what, uint32_t json, char **out_text, bs_error *err);

/* ---- generation (generate.c) ----------------------------------------------------------------- */

typedef struct bs_model_times {
  double prompt_s, tokens_s; /* the run of the prompt; all runs of one token */
  double first_token_s;      /* the first of them, which binds the session */
} bs_model_times;

/* The symbol for the number of tokens of a generating model. BS_UNSUPPORTED: it has no key-value cache, or
 * other inputs than token ids [1, symbol]. */
int32_t bs_model_token_dim(const bs_graph *graph, const char **out_symbol, bs_error *err);
/* BS_INPUT, BS-MODEL-IDS: one of the ids is not in the vocabulary of the bound session's logits. (An operator
 * would take one below 0, which counts from the end.) */
int32_t bs_model_ids_check(const bs_session *session, const int64_t *ids, size_t n, bs_error *err);
/* What bs_model_generate_many is asked for. A prompt is given to the slot of its number, modulo the graph's
 * slots: so its tokens do not depend on how many prompts there are. */
typedef struct bs_model_prompts {
  const int64_t *const *ids;
  const size_t *lengths;
  size_t n, n_new; /* prompts; the most new tokens of each */
  int64_t stop;    /* ends a sequence, of which it is the last token; -1: none */
  bs_sampling sampling;
  /* Receives each token. Not 0: the sequence ends here. */
  int (*token)(void *user, size_t prompt, int64_t id);
  void *user;
} bs_model_prompts;

/* Opens a generator on a model that was opened with slots, and generates. Ends early, with BS_OK, when a stop
 * is asked for (lab/stop.h). BS_OVERFLOW: the cache was full before a sequence had n_new tokens, and nothing
 * ended it. */
int32_t bs_model_generate_many(bs_context *context, const bs_model_request *request, bs_model *model,
                               const bs_model_prompts *prompts, bs_generator_stats *out_stats, bs_error *err);
/* BS_UNSUPPORTED: the model was not opened with slots, because it is no folder of a language model. */
int32_t bs_model_has_slots(const bs_graph *graph, bs_error *err);
/* BS_USAGE, BS-MODEL-CONTEXT: a prompt and n_new tokens do not fit the model's cache. The last new token is
 * not in it. cache_tokens: as in the request. */
int32_t bs_model_context_check(const bs_graph *graph, int64_t cache_tokens, size_t n_prompt, size_t n_new,
                               bs_error *err);
/* Runs a session of the model on n ids, after those in its cache. out_logits points into the session until
 * its next run. */
int32_t bs_model_feed(bs_session *session, const char *symbol, const int64_t *ids, size_t n,
                      bs_tensor *out_logits, bs_error *err);
/* Empties the cache, runs the prompt and takes the likeliest token n_new times, or until it is `stop` (which
 * is kept; -1: none). out_ids: n_new numbers. BS_OVERFLOW: the cache is full; *out_n tokens are valid. */
int32_t bs_model_generate(bs_session *session, const char *symbol, const int64_t *prompt, size_t n_prompt,
                          size_t n_new, int64_t stop, int64_t *out_ids, size_t *out_n, bs_model_times *times,
                          bs_error *err);

/* ---- checks (check.c) ------------------------------------------------------------------------ */

/* Runs every case of a folder with vectors.txt (tools/bs-export writes it) and compares the outputs with the
 * expected ones. `nodes`: also checks each case node by node (bs_session_check). Uses backend, threads,
 * passes and cache_tokens of `request`. *out: {folder, model, backend, cases, failed, rows: [{case, output,
 * deviation, limit, cosine, cosine_limit, ok, reason}], nodes: [{case, node, op, serves, origin, deviation,
 * limit, ok, reason}], stats (of the last case)}: `nodes` are all nodes of each case; of a prompt those of
 * its last run. BS_INPUT: a file is wrong, there is no case, or a case compares nothing. Wrong numbers are
 * not an error. */
int32_t bs_model_check_folder(bs_context *context, const bs_model_request *request, int nodes, json_t **out,
                              bs_error *err);
/* Checks a started model on its inputs, node by node: rows is empty. */
int32_t bs_model_check_nodes(const bs_model_request *request, bs_model *model, json_t **out, bs_error *err);

/* A dense copy of a tensor as .npy files have it, malloc'd: its dtype (bf16 is widened to f32) and the number
 * of its elements. NULL: out of memory. */
void *bs_model_dense(const bs_tensor *tensor, uint32_t *out_dtype, uint64_t *out_count);
/* 1: a file has the dtype and the shape of a port, as far as these are known. */
int bs_model_fits(const bs_port *port, const bs_npy *file);
/* 1: a file holds token ids: i64, none of them negative, at least one. */
int bs_model_are_ids(const bs_npy *file);
/* BS_INPUT: "PATH holds ..; input NAME is ..". */
int32_t bs_model_shape_error(bs_error *err, const bs_port *port, const bs_npy *file, const char *path);
/* A file of at most BS_MAX_DIMS dimensions as a tensor, which reads the file's memory. */
bs_tensor bs_model_npy_tensor(const bs_npy *file);
/* The names of passes that are off (request->passes) into the model. */
int32_t bs_model_read_passes(bs_model *model, const bs_model_words *words, bs_error *err);

/* Helpers for the above. A text as JSON; bytes that are not UTF-8 are shown as \xNN. */
json_t *bs_model_json_text(const char *text);
/* {NAME: N} of the sizes of dimensions. */
json_t *bs_model_dims(const bs_model *model);
/* The numbers of bs_session_stats. */
json_t *bs_model_stats(const bs_session *session);
#endif
