/* SPDX-License-Identifier: MIT
 * model_bench.c - `bsrun model bench MODEL`: how long a model's runs take. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/model.h"
#include "bsrun/simulated.h"
#include "core/base/error.h"
#include "lab/measure/constants.h"
#include "lab/model/bench.h"
#include "lab/model/simulated.h"
#include "lab/stop.h"

static const args_option model_bench_options[] = {
    {OPT_INPUT, NULL, 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    MODEL_OPTION_SEED,
    {OPT_SECONDS, "of each row; default: 2. The warm-up takes at most as long", 0},
    {OPT_FORCE, "time nodes that the backend lacks where they run; default: they are an error", 0},
    {OPT_SHOW, NULL, 0},
    {OPT_SHOW_NODES,
     "each node's time, in runs of their own, and what binds it if simulated; of two rows: the nodes of "
     "decode",
     0},
    {OPT_PEER, NULL, 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTIONS_RANKS,
    {OPT_HARDWARE, "simulate the runs on this machine; default: measure them on this one", 0},
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,
    {OPT_WITH, NULL, 0},
    {OPT_WITH_REPRO, NULL, 0},
    {OPT_WITH_TENSOR, NULL, 0},
    MODEL_OPTION_CACHE_DTYPE,
    MODEL_OPTIONS_KEEP,
    MODEL_OPTION_TUNED,
    MODEL_OPTIONS_PLUGINS,
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"work", "", 0, 0},
                                  {"tokens", "tokens", BS_FIELD_RIGHT, 0},
                                  {"backend", "backend", 0, 0},
                                  {"threads", "threads", BS_FIELD_RIGHT, 0},
                                  {"fallback_nodes", "nodes it lacks", BS_FIELD_RIGHT, 0},
                                  {"median_s", "median, s", BS_FIELD_RIGHT, 4},
                                  {"low_s", "95 % from", BS_FIELD_RIGHT, 4},
                                  {"high_s", "to", BS_FIELD_RIGHT, 4},
                                  {"pairs", "samples", BS_FIELD_RIGHT, 0},
                                  {"gflops", "GFLOP/s", BS_FIELD_RIGHT, 4},
                                  {"tokens_per_s", "tokens/s", BS_FIELD_RIGHT, 4},
                                  {"load_s", "load, s", BS_FIELD_RIGHT, 3},
                                  {"pack_s", "pack, s", BS_FIELD_RIGHT, 3},
                                  {"first_s", "first run, s", BS_FIELD_RIGHT, 3},
                                  {"forwards_per_sample", "runs a sample", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
                                  {"settled", "settled", BS_FIELD_WIDE, 0},
                                  {"min_s", "min, s", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
                                  {"p90_s", "90 %, s", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
                                  {"nodes", "nodes", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
                                  {"flops", "FLOP", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
                                  {"prepare_s", "prepare, s", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3}};
static const bs_field node_fields[] = {{"index", "node", BS_FIELD_RIGHT, 0},
                                       {"op", "op", 0, 0},
                                       {"serves", "serves", 0, 0},
                                       {"shape", "shape", 0, 0},
                                       {"each_s", "s a run", BS_FIELD_RIGHT, 3},
                                       {"share", "share", BS_FIELD_RIGHT, 3},
                                       {"limit", "limit", 0, 0},
                                       {"gflops", "GFLOP/s", BS_FIELD_RIGHT, 4},
                                       {"origin", "of the model's", 0, 0}};
static const bs_field peer_fields[] = {{"work", "", 0, 0},
                                       {"name", "peer", 0, 0},
                                       {"ours_s", "ours, s", BS_FIELD_RIGHT, 4},
                                       {"median_s", "peer, s", BS_FIELD_RIGHT, 4},
                                       {"speedup", "peer / ours", BS_FIELD_RIGHT, 4},
                                       {"low", "95 % from", BS_FIELD_RIGHT, 4},
                                       {"high", "to", BS_FIELD_RIGHT, 4},
                                       {"word", "we are", 0, 0},
                                       {"share", "of the read limit", BS_FIELD_RIGHT, 3},
                                       {"apart", "outputs apart", BS_FIELD_RIGHT, 2},
                                       {"version", "version", BS_FIELD_WIDE, 0}};
static const bs_field simulated_fields[] = {
    {"work", "", 0, 0},
    {"tokens", "tokens", BS_FIELD_RIGHT, 0},
    {"method", "method", BS_FIELD_FOLD, 0},
    {"world_size", "P", BS_FIELD_RIGHT, 0},
    {"replicas", "replicas", BS_FIELD_RIGHT, 0},
    {"simulated_s", "s", BS_FIELD_RIGHT, 6},
    {"tokens_per_s", "tokens/s", BS_FIELD_RIGHT, 4},
    {"collectives_share", "in collectives", BS_FIELD_RIGHT, 3},
    {"limit", "limit", 0, 0},
    {"compute_us", "compute, us", BS_FIELD_RIGHT, 6},
    {"memory_us", "memory, us", BS_FIELD_RIGHT, 6},
    {"launch_us", "launch, us", BS_FIELD_RIGHT, 6},
    {"wire_latency_us", "latency, us", BS_FIELD_RIGHT, 6},
    {"wire_bytes_us", "wire, us", BS_FIELD_RIGHT, 6},
    {"wait_us", "wait, us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 6},
    {"collectives", "collectives", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"nodes", "nodes", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"flops", "FLOP", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"bytes_per_device", "bytes a device", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"domain", "domain", BS_FIELD_WIDE, 0}};
enum {
  N_SIMULATED_FIELDS = sizeof simulated_fields / sizeof simulated_fields[0],
  N_FIELDS = sizeof fields / sizeof fields[0],
  N_PEER_FIELDS = sizeof peer_fields / sizeof peer_fields[0],
  N_NODE_FIELDS = sizeof node_fields / sizeof node_fields[0],
  SLOWEST = 10
};
static int32_t print_profile(int format, const char *work, const json_t *nodes, bs_error *err) {
  json_t *slowest = json_array();
  double share = 0;
  for (size_t i = 0; i < json_array_size(nodes) && i < SLOWEST; i++) {
    share += json_number_value(json_object_get(json_array_get(nodes, i), "share"));
    json_array_append(slowest, json_array_get(nodes, i));
  }
  bs_print(stdout, "\n%s: %zu of %zu nodes take %.0f %% of the time of all nodes\n", work,
           json_array_size(slowest), json_array_size(nodes), 100 * share);
  const int32_t rc = bs_report_print(stdout, format, node_fields, N_NODE_FIELDS, slowest, err);
  json_decref(slowest);
  return rc;
}

/* Times that say little: which, and what disturbed them. */
static void print_unclear(const json_t *rows) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const char *unclear = json_string_value(json_object_get(row, "unclear"));
    if (unclear != NULL)
      bs_print(stdout, "\n%s: UNCLEAR (%s): %s: repeat it on a quiet machine\n",
               json_string_value(json_object_get(row, "work")), unclear,
               json_string_value(json_object_get(json_object_get(row, "disturbance"), "cause")));
  }
}

/* Prints the rows that a peer ran too: the peer's time divided by ours. */
static int32_t print_peer(int format, const json_t *rows, bs_error *err) {
  json_t *table = json_array();
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const json_t *peer = json_object_get(row, "peer");
    json_t *line = peer != NULL ? json_copy((json_t *)(uintptr_t)peer) : NULL;
    if (line == NULL) continue;
    json_object_set(line, "work", json_object_get(row, "work"));
    json_object_set(line, "ours_s", json_object_get(row, "median_s"));
    json_object_set(line, "share", json_object_get(json_object_get(row, "read"), "share"));
    json_array_append_new(table, line);
  }
  int32_t rc = BS_OK;
  if (json_array_size(table) > 0) {
    bs_print(stdout, "\n");
    rc = bs_report_print(stdout, format, peer_fields, N_PEER_FIELDS, table, err);
  }
  json_decref(table);
  return rc;
}

static int32_t print_simulated(int format, const json_t *rows, int readable, bs_error *err) {
  json_t *table = json_array(), *first = json_object_get(json_array_get(rows, 0), "simulated"), *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    json_t *line = json_copy(row);
    json_object_update_missing(line, json_object_get(row, "simulated"));
    json_array_append_new(table, line);
  }
  if (readable) simulated_print_head(first, 0);
  const int32_t rc = bs_report_print(stdout, format, simulated_fields, N_SIMULATED_FIELDS, table, err);
  const char *beyond = json_string_value(json_object_get(first, "beyond"));
  if (readable && beyond != NULL) bs_print(stdout, "%s\n", beyond);
  json_decref(table);
  return rc;
}

static int32_t print_result(int format, const json_t *result, bs_error *err) {
  const json_t *nodes = json_object_get(result, "profile");
  const char *work = json_string_value(json_object_get(result, "profile_work"));
  if (format == BS_FORMAT_JSON) return model_print_json(result, err);
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
  const json_t *rows = json_object_get(result, "rows");
  const int simulated = json_object_get(json_array_get(rows, 0), "simulated") != NULL;
  int32_t rc = simulated ? print_simulated(format, rows, readable, err)
                         : bs_report_print(stdout, format, fields, N_FIELDS, rows, err);
  if (rc == BS_OK && readable) rc = print_peer(format, json_object_get(result, "rows"), err);
  if (rc == BS_OK && readable) print_unclear(json_object_get(result, "rows"));
  return rc == BS_OK && readable && nodes != NULL ? print_profile(format, work, nodes, err) : rc;
}

/* Warnings: nodes that ran on ref, samples that did not settle, what disturbed them. */
static void tell_of(const args *a, const json_t *result) {
  const json_t *rows = json_object_get(result, "rows"), *row, *warning;
  const int quiet = args_has(a, "quiet");
  char line[300];
  size_t i, k;
  json_array_foreach(rows, i, row) {
    const char *work = json_string_value(json_object_get(row, "work"));
    const long long lacks = (long long)json_integer_value(json_object_get(row, "fallback_nodes"));
    if (lacks > 0 && strcmp(json_string_value(json_object_get(row, "backend")), "ref") != 0) {
      snprintf(line, sizeof line, "%s: %lld nodes ran on ref or the host", work, lacks);
      bsrun_warn(line);
    }
    json_array_foreach(json_object_get(row, "measuring_warnings"), k, warning)
        bsrun_note(quiet, json_string_value(warning));
  }
}

typedef struct peer_words {
  bs_model_peer_how how;
  char name[64], program[PATH_MAX];
} peer_words;

/* NAME, or NAME:MODEL. A name without a slash is a program that scripts/peers made. */
static int32_t read_peer(const args *a, peer_words *out, bs_model_bench *how, bs_error *err) {
  const char *text = args_value(a, "peer"), *folder = getenv("BS_PEERS_DIR");
  if (text == NULL) return BS_OK;
  const char *colon = strchr(text, ':');
  const int size = (int)(colon != NULL ? (size_t)(colon - text) : strlen(text));
  const int is_path = memchr(text, '/', (size_t)size) != NULL;
  snprintf(out->name, sizeof out->name, "%.*s", size, text);
  snprintf(out->program, sizeof out->program, "%.2000s%s%.*s", is_path || folder == NULL ? "" : folder,
           is_path ? "" : "/models/", size, text);
  if (size == 0 || access(out->program, X_OK) != 0) {
    bs_error_set(err, BS_UNAVAILABLE, "BS-MODEL-PEER", "there is no peer '%.60s': no program %.200s",
                 out->name, out->program);
    bs_error_hint(err, "scripts/peers DIR makes llama, onnxruntime and openvino; then set BS_PEERS_DIR=DIR");
    return BS_UNAVAILABLE;
  }
  out->how = (bs_model_peer_how){
      .program = out->program, .name = out->name, .model = colon != NULL ? colon + 1 : NULL};
  how->peer = &out->how;
  return BS_OK;
}

/* Replicas exchange nothing: one of them is simulated. */
static int32_t read_replicas(const args *a, bs_model_ranks *io, bs_error *err) {
  int64_t tensor = io->n;
  const int32_t rc = args_integer(a, "tensor", 1, INT32_MAX, tensor, &tensor, err);
  if (rc != BS_OK) return rc;
  if (tensor > io->n || io->n % tensor != 0)
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%u ranks are no replicas of %lld", io->n,
                        (long long)tensor);
  io->replicas = io->n / (uint32_t)tensor;
  io->n = (uint32_t)tensor;
  return BS_OK;
}

/* A simulated run has no times on this machine. */
static int32_t check_simulated(const args *a, model_asked *asked, bs_error *err) {
  static const char *const measured[] = {"peer", "seconds", "threads"};
  if (!asked->ranks.simulated && args_has(a, "tensor"))
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--with tensor is of simulated ranks: --hardware M");
  if (!asked->ranks.simulated) return BS_OK;
  for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++)
    if (args_has(a, measured[i]))
      return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s is of runs that are measured, not simulated",
                          measured[i]);
  if (args_has(a, "nodes") && !asked->ranks.phantom)
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--show nodes of a simulated run is of --backend sim");
  asked->request.shapes = asked->ranks.phantom;
  if (asked->request.cache_tokens == 0)
    asked->request.cache_tokens = bs_model_simulated_cache(&asked->request);
  return read_replicas(a, &asked->ranks, err);
}

/* Opens the model that is asked for, and runs it. */
static int32_t run_asked(const args *a, bs_model_bench *how, model_asked *asked, json_t **out,
                         bs_error *err) {
  int32_t rc = args_real(a, "seconds", 0.01, 86400, 2, &how->seconds, err);
  if (rc == BS_OK) rc = model_asked_read(a, asked, err);
  asked->request.last_logits = 1; /* what a generator asks for */
  if (rc == BS_OK) rc = check_simulated(a, asked, err);
  if (rc == BS_OK) rc = bs_model_open(asked->context, &asked->request, &asked->model, err);
  how->progress = asked->request.progress;
  how->user = asked->request.progress_user;
  if (rc == BS_OK) rc = bs_model_bench_run(asked->context, &asked->request, &asked->model, how, out, err);
  model_progress_end(asked);
  return rc;
}

int32_t model_bench_rows(const args *a, json_t **out_rows, bs_error *err) {
  model_asked asked = {0};
  bs_load before;
  bs_model_bench how = {.allow_fallback = (uint32_t)args_has(a, "force"), .before = &before};
  json_t *result = NULL;
  *out_rows = NULL;
  bs_load_now(&before);
  const int32_t rc = run_asked(a, &how, &asked, &result, err);
  if (rc == BS_OK) *out_rows = json_incref(json_object_get(result, "rows"));
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

static int32_t bench(const args *a, bs_error *err) {
  model_asked asked = {0};
  bs_model_bench how = {.allow_fallback = (uint32_t)args_has(a, "force"),
                        .profile = (uint32_t)args_has(a, "nodes")};
  peer_words peer = {.how = {NULL, NULL, NULL}};
  json_t *result = NULL;
  char *folder = NULL;
  bs_load before;
  int format;
  bs_load_now(&before);
  how.before = &before;
  bsrun_interruptible(args_has(a, "hardware") ? "nothing is kept"
                                              : "nothing is kept; --seconds S takes less time");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_peer(a, &peer, &how, err);
  if (rc == BS_OK && how.profile) rc = model_ranks_threads_only(a, err);
  if (rc == BS_OK) rc = run_asked(a, &how, &asked, &result, err);
  if (rc == BS_OK) {
    tell_of(a, result);
    const int32_t kept =
        bs_stop_asked() != 0 ? BS_OK : model_keep(a, &asked, "model_bench", 1, result, &folder, err);
    rc = print_result(format, result, kept == BS_OK ? err : NULL);
    model_print_folder(format, folder);
    if (kept != BS_OK) rc = kept;
  }
  free(folder);
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb model_bench = {
    .name = "bench",
    .words = "MODEL [--input NAME=FILE.npy ...] [--threads N] [--seconds S] [--show nodes] [options]",
    .summary = "time loading, packing, the first run, and warm runs",
    .about =
        "MODEL is as in `model run`. The model runs until its runs no longer get faster. Then its runs are\n"
        "timed in samples. A row has the median and its 95 % interval. A folder with a key-value cache has\n"
        "two rows: prefill runs the prompt into an empty cache, decode runs one token after the prompt.\n"
        "The prompt is --input, or made ids (--dim NAME=N). A node that the backend does not serve is an\n"
        "error (exit 3). With --force they are timed on ref or the host.\n"
        "--hardware M simulates the runs on another machine: one of each row, in virtual time. Nothing is\n"
        "computed there, so that a folder needs config.json alone. --cache-tokens is then one more than the\n"
        "prompt, if it is not given.\n",
    .examples =
        "  bsrun model bench model.onnx --input input_ids=ids.npy --threads 1\n"
        "  bsrun model bench gpt2 --dim sequence=128 --cache-tokens 256 -o json\n"
        "  bsrun model bench model.onnx --input x=x.npy --show nodes --no-pass fuse_attention\n"
        "  bsrun model bench qwen3-0.6b --hardware h100-dgx -P 8 --method column_parallel+row_parallel\n",
    .options = model_bench_options,
    .run = bench,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
