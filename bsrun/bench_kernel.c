/* SPDX-License-Identifier: MIT
 * bench_kernel.c - `bsrun bench sdpa` and `bsrun bench matmul`: attention, or a product, of one shape by each
 * provider, judged and timed (lab/kernel/bench.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/cores.h"
#include "lab/json.h"
#include "lab/kernel/bench.h"
#include "lab/measure/constants.h"
#include "lab/store/builds.h"
#include "lab/store/env.h"
#include "lab/tune/cache.h"

/* Options of both verbs. */
#define COMMON_OPTIONS                                                                                       \
  {OPT_PROVIDER,                                                                                             \
   "several with commas: the first is judged by its speed. @WORD behind one gives it another problem, as "   \
   "in cpu,cpu@f32. Default: all of the backend that serve, and what a plugin of --plugin has",              \
   0},                                                                                                       \
      {OPT_BACKEND, "default: cpu", 0}, {OPT_THREADS, "default: all cores", 0},                              \
      {OPT_SAMPLES,                                                                                          \
       "single calls of each, of which p50, p90 and p99 are taken; default: 100; below 20 the gate samples " \
       "fails",                                                                                              \
       0},                                                                                                   \
      {OPT_WARMUP, "default: 20", 0}, {OPT_SEED, "the first of those that are judged; default: 1", 0},       \
      {OPT_SECONDS, "of the pairs of one problem; default: 8", 0}, {OPT_TORCH, NULL, 0},                     \
      {OPT_BASELINE,                                                                                         \
       "a build that bsrun plugins keep has stored: the first provider must be 1.1 times as fast, else "     \
       "exit 14",                                                                                            \
       0},                                                                                                   \
      {OPT_WITH, NULL, 0}, {OPT_WITH_SEEDS, NULL, 0}, {OPT_WITH_PAIRS, NULL, 0},                             \
      {OPT_WITH_SLOWEST, NULL, 0}, {OPT_WITH_PROMOTE, NULL, 0}, {OPT_WITH_ISA, NULL, 0},                     \
      {OPT_TUNE_CACHE, "its choice comes first without --provider", 0}, {OPT_GATES, NULL, 0},                \
      {OPT_STRICT, "exit 15", 0}, {OPT_OUT, NULL, 0}, {OPT_RUN_ID, NULL, 0}, {OPT_PLUGIN, NULL, 0},          \
      {OPT_CONFIG, NULL, 0}, {OPT_SET, NULL, 0}, {OPT_CANDIDATE, NULL, ARGS_HIDDEN},                         \
      {OPT_OUTPUT, "table, md, csv, json or jsonl", 0}, {OPT_WIDE, NULL, 0}, {OPT_QUIET, NULL, 0}, ARGS_HELP

static const args_option sdpa_options[] = {
    {OPT_DTYPE, "several with commas; default: f32", 0},
    {OPT_PRODUCT, "dx: dQ, dK and dV (op attention_dx)", 0},
    COMMON_OPTIONS,
};

static const args_option matmul_options[] = {
    {OPT_N, "several with commas; default: 4096", 0},
    {OPT_K, "several with commas", 0},
    {OPT_B, "several with commas; default: 64", 0},
    {OPT_SPARSE24, "their kept half is multiplied (op matmul24)", 0},
    {OPT_PRODUCT, "dx: dX = dY W, dw: dW = dY^T X", 0},
    {OPT_DTYPE, "several with commas; default: f32", 0},
    COMMON_OPTIONS,
};

static const bs_field fields[] = {
    {"shape", "SHAPE", BS_FIELD_FOLD, 0},
    {"dtype", "DTYPE", BS_FIELD_FOLD, 0},
    {"mask", "MASK", BS_FIELD_FOLD, 0},
    {"threads", "THREADS", BS_FIELD_FOLD, 0},
    {"provider", "PROVIDER", 0, 0},
    {"p50_us", "P50 us", BS_FIELD_RIGHT, 4},
    {"p90_us", "P90 us", BS_FIELD_RIGHT | BS_FIELD_LEAST, 4},
    {"p99_us", "P99 us", BS_FIELD_RIGHT | BS_FIELD_LEAST, 4},
    {"gflops", "GFLOP/s", BS_FIELD_RIGHT | BS_FIELD_LEAST, 4},
    {"bound_percent", "% OF", BS_FIELD_RIGHT, 3},
    {"binding", "BOUND", BS_FIELD_SPARE, 0},
    {"against", "AGAINST", BS_FIELD_WIDE, 0},
    {"ratio", "SPEEDUP", BS_FIELD_RIGHT, 3},
    {"interval", "95 %", BS_FIELD_SPARE, 0},
    {"ratio_low", "LOW", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"ratio_high", "HIGH", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"word", "VERDICT", 0, 0},
    {"progress", "PROGRESS", BS_FIELD_RIGHT, 3},
    {"progress_low", "LOW", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"progress_high", "HIGH", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"of_subject", "OF THE FIRST", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"of_subject_low", "LOW", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"of_subject_high", "HIGH", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"of_subject_word", "VERDICT", BS_FIELD_WIDE, 0},
    {"cause", "CAUSE", BS_FIELD_WIDE, 0},
    {"next", "TO DO", BS_FIELD_WIDE, 0},
    {"relative_rmse", "REL RMSE", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
    {"predicted_rmse", "PREDICTED", BS_FIELD_RIGHT | BS_FIELD_LEAST, 3},
    {"gates", "GATES", 0, 0},
    {"max_error", "MAX ERROR", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"p50_us_per_item", "P50 us/item", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"items", "ITEMS", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"unit", "UNIT", BS_FIELD_WIDE, 0},
    {"min_us", "MIN us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"calls", "CALLS", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"queued_us", "QUEUED us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"copy_us", "COPY us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"pairs", "PAIRS", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"standing", "STANDING", BS_FIELD_WIDE, 0},
    {"loop", "FMA BY", BS_FIELD_WIDE, 0},
    {"fma_us", "FMA us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"exp_us", "EXP us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"bytes_us", "BYTES us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"launch_us", "LAUNCH us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"bound_us", "BOUND us", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"fma_and_exp_percent", "% OF FMA+EXP", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"flops", "FLOP", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"flops_convention", "FLOP ARE", BS_FIELD_WIDE, 0},
    {"worst", "WORST/RMS", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"rows_judged", "ROWS JUDGED", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"seeds", "SEEDS", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"plan_bytes", "PLAN BYTES", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"knobs", "KNOBS", BS_FIELD_WIDE, 0},
    {"build_id", "BUILD", BS_FIELD_WIDE, 0},
    {"algorithm", "ALGORITHM", BS_FIELD_WIDE, 0},
    {"problem", "PROBLEM", BS_FIELD_WIDE, 0},
    {"place", "PLACE", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"failed_stage", "FAILED STAGE", BS_FIELD_WIDE, 0},
    {"cause", "CAUSE", BS_FIELD_WIDE, 0},
    {"unknown_gates", "UNKNOWN GATES", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"gates_failed", "GATES FAILED", BS_FIELD_WIDE, 0},
    {"unknown_reasons", "UNKNOWN FOR", BS_FIELD_WIDE, 0},
    {"gates_skipped", "GATES SKIPPED", BS_FIELD_WIDE, 0},
    {"gates_unknown", "GATES UNKNOWN", BS_FIELD_WIDE, 0},
    {"gates_not_reached", "GATES NOT REACHED", BS_FIELD_WIDE, 0},
};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* The words of a list with commas, each its own text. */
typedef struct words {
  char *text[64];
  size_t n;
} words;

static void words_free(words *w) {
  for (size_t i = 0; i < w->n; i++) free(w->text[i]);
  w->n = 0;
}

static int32_t words_add(words *w, const char *list, bs_error *err) {
  for (const char *at = list, *end; *at != '\0'; at = *end != '\0' ? end + 1 : end) {
    end = at + strcspn(at, ",");
    if (end == at) continue;
    if (w->n == sizeof w->text / sizeof w->text[0])
      return bs_error_set(err, BS_USAGE, "BS-USE-LIST", "more than %zu words in a list", w->n);
    char *copy = bs_strdup(at);
    if (copy == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    copy[end - at] = '\0';
    w->text[w->n++] = copy;
  }
  return BS_OK;
}

typedef struct request {
  const args *a;
  bs_kernel_bench bench;
  words shapes, dtypes, masks, providers, plugins;
  bs_kernel_problem *problems;
  bs_node *config;
  bs_grades grades;
  bs_tune_cache tuned;
  bsrun_progress progress;
  char *command;
  bs_kernel_stored baseline;
  char *baseline_file;
  json_t *baseline_facts;
  bs_text config_text;
  int format, quiet, matmul; /* matmul: of products, else of attention */
} request;

static void note(void *user, const char *text) {
  (void)user;
  bsrun_warn(text);
}

/* "matmul n1kk4kb64": every size of --n with every one of --k and --b. */
static int32_t add_sizes(request *r, const char *kind, bs_error *err) {
  static const char *const names[] = {"n", "k", "b"}, *const usual[] = {"4096", "", "64"};
  words of[3] = {0};
  char text[BS_KERNEL_TEXT];
  int32_t rc = BS_OK;
  for (int i = 0; rc == BS_OK && i < 3; i++) {
    const char *list = args_value(r->a, names[i]);
    rc = words_add(&of[i], list != NULL ? list : usual[i], err);
    if (rc == BS_OK && list != NULL && of[i].n == 0)
      rc = bs_error_set(err, BS_USAGE, "BS-KERNEL-EMPTY", "--%s names no size", names[i]);
  }
  for (size_t n = 0; rc == BS_OK && n < of[0].n; n++)
    for (size_t k = 0; rc == BS_OK && k < (of[1].n > 0 ? of[1].n : 1); k++)
      for (size_t b = 0; rc == BS_OK && b < of[2].n; b++) {
        snprintf(text, sizeof text, "%s n%.40sk%.40sb%.40s", kind, of[0].text[n],
                 of[1].n > 0 ? of[1].text[k] : of[0].text[n], of[2].text[b]);
        rc = words_add(&r->shapes, text, err);
      }
  for (int i = 0; i < 3; i++) words_free(&of[i]);
  return rc;
}

/* The shapes of `bench matmul`, each with its kind in front. */
static int32_t read_products(request *r, bs_error *err) {
  const args *a = r->a;
  const char *product = args_value(a, "product");
  char kind[32];
  if (product != NULL && strcmp(product, "forward") != 0 && strcmp(product, "dx") != 0 &&
      strcmp(product, "dw") != 0)
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--product is forward, dx or dw, not '%.40s'",
                        product);
  const int backward = product != NULL && product[0] == 'd';
  snprintf(kind, sizeof kind, "matmul%s%s%s", args_has(a, "sparse24") ? "24" : "", backward ? "_" : "",
           backward ? product : "");
  if (a->n_words == 0) return add_sizes(r, kind, err);
  if (args_has(a, "n") || args_has(a, "k") || args_has(a, "b"))
    return bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "a SHAPE has its sizes: leave out --n, --k and --b");
  words given = {0};
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < a->n_words; i++) rc = words_add(&given, a->words[i], err);
  for (size_t i = 0; rc == BS_OK && i < given.n; i++) {
    char text[BS_KERNEL_TEXT + 40];
    const int whole = strchr(given.text[i], ' ') != NULL;
    snprintf(text, sizeof text, "%s%s%.*s", whole ? "" : kind, whole ? "" : " ", BS_KERNEL_TEXT,
             given.text[i]);
    rc = words_add(&r->shapes, text, err);
  }
  words_free(&given);
  return rc;
}

static int32_t read_shapes(request *r, bs_error *err) {
  const args *a = r->a;
  int32_t rc = BS_OK;
  if (r->matmul) return read_products(r, err);
  for (size_t i = 0; rc == BS_OK && i < a->n_words; i++) rc = words_add(&r->shapes, a->words[i], err);
  return rc == BS_OK && a->n_words == 0 ? words_add(&r->shapes, "small,mission,long", err) : rc;
}

static int is_backward(const args *a) {
  const char *product = args_value(a, "product");
  return product != NULL && strcmp(product, "dx") == 0;
}

/* Attention has no weights. */
static int32_t check_product(const request *r, bs_error *err) {
  static const char *const known[] = {"forward", "dx"};
  const char *product = args_value(r->a, "product");
  if (r->matmul || product == NULL || strcmp(product, "forward") == 0 || is_backward(r->a)) return BS_OK;
  return bsrun_unknown("product of attention", product, known, 2, err);
}

/* Each verb takes its own kinds. */
static int32_t check_kinds(request *r, bs_error *err) {
  for (size_t i = 0; i < r->bench.n_problems; i++) {
    bs_kernel_problem *p = &r->problems[i];
    if (p->kind == BS_KERNEL_SDPA && is_backward(r->a)) p->kind = BS_KERNEL_SDPA_DX;
    if (bs_kernel_is_product(p) == r->matmul) continue;
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-KIND", "bench %s: not %s",
                        r->matmul ? "matmul times products" : "sdpa times attention",
                        bs_kernel_problem_op(p->kind));
  }
  return BS_OK;
}

static int32_t read_words(request *r, bs_error *err) {
  const args *a = r->a;
  const char *dtypes = args_value(a, "dtype"), *providers = args_value(a, "provider");
  int32_t rc = check_product(r, err);
  if (rc == BS_OK) rc = read_shapes(r, err);
  if (rc == BS_OK) rc = words_add(&r->dtypes, dtypes != NULL ? dtypes : "f32", err);
  if (rc == BS_OK) rc = words_add(&r->masks, "full", err);
  if (rc == BS_OK && providers != NULL) rc = words_add(&r->providers, providers, err);
  if (rc == BS_OK && providers != NULL && r->providers.n == 0) {
    bs_error_set(err, BS_USAGE, "BS-KERNEL-EMPTY", "--provider names no provider");
    bs_error_hint(err, "as in --provider cpu:%s,ref; bsrun explain %s lists them",
                  r->matmul ? "packed" : "online", r->matmul ? "matmul" : "attention");
    return BS_USAGE;
  }
  if (rc == BS_OK)
    rc = bs_kernel_problems_expand((const char *const *)r->shapes.text, r->shapes.n,
                                   (const char *const *)r->dtypes.text, r->dtypes.n,
                                   r->matmul ? NULL : (const char *const *)r->masks.text, r->masks.n,
                                   &r->problems, &r->bench.n_problems, err);
  r->bench.problems = r->problems;
  return rc == BS_OK ? check_kinds(r, err) : rc;
}

static int32_t read_numbers(request *r, bs_error *err) {
  int64_t threads = 0, iters = 0, warmup = 0, seeds = 0, seed = 0, pairs = 0;
  int32_t rc = args_integer(r->a, "threads", 1, 1024, bs_machine_cores(), &threads, err);
  if (rc == BS_OK) rc = args_integer(r->a, "samples", 3, BS_KERNEL_PEER_CALLS, 100, &iters, err);
  if (rc == BS_OK) rc = args_integer(r->a, "warmup", 0, 1000000, 20, &warmup, err);
  if (rc == BS_OK) rc = args_integer(r->a, "seeds", 1, BS_KERNEL_SEEDS, 5, &seeds, err);
  if (rc == BS_OK) rc = args_integer(r->a, "seed", 0, INT64_MAX / 2, 1, &seed, err);
  if (rc == BS_OK) rc = args_integer(r->a, "pairs", 5, 200, 20, &pairs, err);
  if (rc == BS_OK) rc = args_real(r->a, "seconds", 0.01, 86400, 8, &r->bench.seconds, err);
  if (rc == BS_OK) rc = args_real(r->a, "slowest", 0.01, 86400, 0.5, &r->bench.slowest, err);
  r->bench.threads = (uint32_t)threads;
  r->bench.iters = (uint64_t)iters;
  r->bench.warmup = (uint64_t)warmup;
  r->bench.seeds = (uint32_t)seeds;
  r->bench.seed = (uint64_t)seed;
  r->bench.pairs = (uint32_t)pairs;
  return rc;
}

/* The ids of the plugins that the configuration or --plugin names. */
static int32_t named_plugins(request *r, bs_error *err) {
  const bs_node *list = bs_config_find(r->config, "plugin");
  int32_t rc = BS_OK;
  for (const bs_node *item = list != NULL ? list->first : NULL; rc == BS_OK && item != NULL;
       item = item->next) {
    char id[64];
    bs_plugin_id_of(item->text, id, sizeof id);
    rc = words_add(&r->plugins, id, err);
  }
  r->bench.plugins = (const char *const *)r->plugins.text;
  r->bench.n_plugins = r->plugins.n;
  return rc;
}

/* The options of the context; they are no layer's. */
static int32_t open_context(request *r, bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  int32_t rc = bsrun_base_config(r->a, &r->config, err);
  if (rc == BS_OK && r->bench.avx2_only) rc = bs_config_set_text(r->config, "plugins.cpu.isa", "avx2", err);
  if (rc == BS_OK) rc = bs_context_of_config(r->config, BS_LOG_WARN, bsrun_log, NULL, &r->bench.context, err);
  if (rc == BS_OK && args_has(r->a, "backend")) /* a wrong name, not a backend that serves nothing */
    rc = bs_find_backend(r->bench.context, args_value(r->a, "backend"), &backend, &state, err);
  if (rc == BS_OK) rc = named_plugins(r, err);
  return rc;
}

/* Serves bs_kernel_bench.tuned. */
static void tuned(void *user, const char *key, const char *lines, char *out, size_t size, char *out_build,
                  size_t build_size) {
  const request *r = user;
  json_t *plugins = NULL;
  if (bs_env_plugins(r->bench.context, &plugins, NULL) != BS_OK) return;
  json_t *asked = json_pack("{s:s, s:o}", "key", key, "candidates", bs_tune_candidates(plugins, lines));
  const json_t *entry = asked != NULL ? bs_tune_cache_find(&r->tuned, asked, NULL) : NULL;
  if (entry != NULL) snprintf(out, size, "%s", bs_tune_text(entry, "choice"));
  if (entry != NULL) snprintf(out_build, build_size, "%s", bs_tune_text(entry, "build"));
  json_decref(asked);
  json_decref(plugins);
}

/* A file that cannot be read is as none. */
static int32_t open_tuned(request *r, bs_error *err) {
  char *path = NULL, broken[600];
  bs_error why = BS_ERROR_INIT;
  const int32_t rc = bsrun_tune_path(r->a, &path, err);
  if (rc == BS_OK && bs_tune_cache_open(path, &r->tuned, &why) != BS_OK) bsrun_note(r->quiet, why.message);
  if (rc == BS_OK && bs_tune_cache_broken(&r->tuned, broken, sizeof broken)) bsrun_note(r->quiet, broken);
  free(path);
  return rc;
}

/* Finds the stored build that --baseline names. */
static int32_t open_baseline(request *r, bs_error *err) {
  static const char *const child[] = {"bsrun", "bench", "sdpa", "--candidate", "-", NULL};
  const char *name = args_value(r->a, "baseline");
  if (name == NULL) return BS_OK;
  const int32_t rc = bs_build_find(BS_BUILDS_ROOT, name, &r->baseline_file, &r->baseline_facts, err);
  if (rc != BS_OK) return rc;
  bs_config_print(r->config, &r->config_text);
  if (r->config_text.failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  r->baseline = (bs_kernel_stored){.name = name,
                                   .file = r->baseline_file,
                                   .sha256 = bs_get_text(r->baseline_facts, "sha256"),
                                   .plugin = bs_get_text(r->baseline_facts, "plugin"),
                                   .config = r->config_text.data != NULL ? r->config_text.data : "",
                                   .program = "/proc/self/exe",
                                   .words = child};
  r->bench.baseline = &r->baseline;
  return BS_OK;
}

static int32_t read_request(request *r, bs_error *err) {
  const char *out = args_value(r->a, "out"), *torch = args_value(r->a, "torch");
  const char *isa = args_value(r->a, "isa");
  r->quiet = args_has(r->a, "quiet");
  if (isa != NULL && strcmp(isa, "all") != 0 && strcmp(isa, "avx2") != 0)
    return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--with isa is avx2 or all, not '%.40s'", isa);
  r->bench.avx2_only = isa != NULL && strcmp(isa, "avx2") == 0;
  int32_t rc = bsrun_format(r->a, &r->format, err);
  if (rc == BS_OK) rc = read_words(r, err);
  if (rc == BS_OK) rc = read_numbers(r, err);
  if (rc == BS_OK) rc = open_context(r, err);
  if (rc == BS_OK) rc = open_tuned(r, err);
  if (rc == BS_OK) rc = open_baseline(r, err);
  bs_kernel_bench *b = &r->bench;
  b->providers = (const char *const *)r->providers.text;
  b->n_providers = r->providers.n;
  b->tuned = tuned;
  b->tuned_user = r;
  b->tuned_from = r->tuned.lines.path;
  b->backend = args_value(r->a, "backend");
  b->bind = 1;
  b->gates = args_value(r->a, "gates");
  b->torch = torch == NULL ? "auto" : strcmp(torch, "off") == 0 ? NULL : torch;
  b->out_dir = out == NULL ? "results/raw" : bsrun_keeps(r->a) ? out : NULL;
  b->promote = (uint32_t)args_has(r->a, "promote");
  b->run_id = args_value(r->a, "run-id");
  b->command = r->command = bsrun_command_line();
  b->grades = &r->grades;
  b->opened = bsrun_log_begin;
  b->closed = bsrun_log_end;
  b->progress = bsrun_progress_to(r->quiet);
  b->note = r->quiet ? NULL : note;
  b->user = &r->progress;
  return rc;
}

static const char *of_row(const json_t *rows, size_t i, const char *key) {
  const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
  return text != NULL ? text : "";
}

/* Prints the gates that failed or did not judge, with the reasons, once for all equal rows. */
static void explain_gates(const json_t *rows) {
  static const char *const of[][3] = {{"gates_failed", "failed", "gates_failed"},
                                      {"gates_unknown", "UNKNOWN", "unknown_reasons"},
                                      {"gates_skipped", "not applicable", "gates_skipped"},
                                      {"gates_not_reached", "not reached", "gates_not_reached"}};
  enum { KINDS = sizeof of / sizeof of[0] };
  for (size_t i = 0; i < json_array_size(rows); i++) {
    int seen = 0, some = 0;
    for (size_t k = 0; k < i && !seen; k++) {
      seen = strcmp(of_row(rows, k, "gates"), of_row(rows, i, "gates")) == 0;
      for (int j = 0; j < KINDS; j++)
        seen = seen && strcmp(of_row(rows, k, of[j][0]), of_row(rows, i, of[j][0])) == 0;
    }
    if (seen || of_row(rows, i, "gates")[0] == '\0') continue;
    bs_text line = {0};
    for (int j = 0; j < KINDS; j++)
      if (of_row(rows, i, of[j][0])[0] != '\0')
        bs_text_printf(&line, "%s%s: %s", some++ > 0 ? "; " : "gates ", of[j][1], of_row(rows, i, of[j][2]));
    if (some == 0) continue;
    if (!line.failed) bs_print_folded(stdout, 2, line.data);
    bs_text_free(&line);
  }
}

/* Why a row is UNCLEAR, or has no word: each sentence once. */
static void explain_verdicts(const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *cause = of_row(rows, i, "cause"), *next = of_row(rows, i, "next");
    size_t k = 0;
    while (k < i &&
           (strcmp(of_row(rows, k, "cause"), cause) != 0 || strcmp(of_row(rows, k, "next"), next) != 0))
      k++;
    if (cause[0] == '\0' || k < i) continue;
    bs_text line = {0};
    bs_text_printf(&line, "%s%s%s%s", of_row(rows, i, "word"), of_row(rows, i, "word")[0] != '\0' ? ": " : "",
                   next[0] != '\0' ? next : cause, next[0] != '\0' ? "" : ": no verdict");
    if (!line.failed) bs_print_folded(stdout, 2, line.data);
    bs_text_free(&line);
  }
}

static int has_field(const json_t *rows, const char *key) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (json_is_number(json_object_get(json_array_get(rows, i), key))) return 1;
  return 0;
}

static int32_t print(const request *r, const json_t *result, bs_error *err) {
  const json_t *rows = json_object_get(result, "rows"), *runs = json_object_get(result, "runs");
  const int readable =
      r->format == BS_FORMAT_TABLE || r->format == BS_FORMAT_MD || r->format == BS_FORMAT_WIDE;
  if (json_array_size(rows) == 0) return BS_OK;
  bs_field shown[N_FIELDS];
  size_t n = 0;
  for (size_t i = 0; i < N_FIELDS; i++) { /* a page has the columns of the table; a product has no mask */
    if (r->format == BS_FORMAT_MD && fields[i].flags & BS_FIELD_WIDE) continue;
    if (!r->matmul || strcmp(fields[i].key, "mask") != 0) shown[n++] = fields[i];
  }
  const int32_t rc = bs_report_print(stdout, r->format, shown, n, rows, err);
  if (rc != BS_OK || !readable) return rc;
  fputs("\n", stdout);
  explain_verdicts(rows);
  explain_gates(rows);
  if (has_field(rows, "ratio"))
    bs_print_folded(stdout, 2, "SPEEDUP: against the best other provider, in pairs, with its 95 % interval.");
  if (has_field(rows, "progress"))
    bs_print_folded(stdout, 2, "PROGRESS: against the stored build, in pairs; the gate wants 1.1.");
  bs_print_folded(stdout, 2,
                  r->matmul ? "FLOP: 2 B N K; of 2:4 weights B N K. Times are of one call."
                            : "FLOP: pairs of a query and a key that it sees, times 2 (D + E); of gradients "
                              "times 2 (3 D + 2 E). Times are of one call.");
  for (size_t i = 0; i < json_array_size(runs); i++)
    bs_print(stdout, "run: %s\n", json_string_value(json_array_get(runs, i)));
  return BS_OK;
}

static int32_t run(const args *a, int matmul, bs_error *err) {
  if (args_has(a, "candidate")) return bs_kernel_stored_serve(err);
  request r = {.a = a, .matmul = matmul};
  json_t *result = NULL;
  uint32_t unknown = 0;
  bsrun_interruptible("the rows above are what was done; --provider NAME measures one that is left");
  int32_t rc = read_request(&r, err);
  if (rc == BS_OK) bsrun_grades(1, &r.grades);
  if (rc == BS_OK) rc = bs_kernel_bench_run(&r.bench, &result, &unknown, err);
  if (r.bench.progress != NULL) bsrun_progress_end(&r.progress);
  const int32_t printed = print(&r, result, rc == BS_OK ? err : NULL);
  if (rc == BS_OK) rc = printed;
  if (rc == BS_OK && unknown > 0 && args_has(a, "strict"))
    rc = bs_error_set(err, BS_INCONCLUSIVE, "BS-KERNEL-UNKNOWN", "%u gates could not be judged", unknown);
  json_decref(result);
  bs_grades_close(&r.grades);
  bs_tune_cache_close(&r.tuned);
  bsrun_close_context(r.bench.context);
  bs_config_free(r.config);
  free(r.command);
  free(r.baseline_file);
  json_decref(r.baseline_facts);
  bs_text_free(&r.config_text);
  free(r.problems);
  words_free(&r.shapes);
  words_free(&r.dtypes);
  words_free(&r.masks);
  words_free(&r.providers);
  words_free(&r.plugins);
  return rc;
}

static int32_t run_sdpa(const args *a, bs_error *err) {
  return run(a, 0, err);
}

static int32_t run_matmul(const args *a, bs_error *err) {
  return run(a, 1, err);
}

const bsrun_verb bench_sdpa = {
    .name = "sdpa",
    .words = "[SHAPE ...] [--dtype LIST] [--provider LIST] [options]",
    .summary = "attention: each implementation is judged, then timed in pairs",
    .about =
        "Attention is scaled dot-product attention (sdpa). SHAPE is small, mission, long, gqa, decode, or "
        "as\n"
        "b2h8g2s512t640d64: batch, heads, heads of K and V, queries, keys, width. Without SHAPE small, "
        "mission\n"
        "and long are timed. With a colon it is complete, as b1h8s2Kid64:bf16:causal:w256 (w: newest\n"
        "keys seen). Each provider goes through build, resource, numeric (5 seeds beside f64), determinism,\n"
        "memory, performance and evidence (configs/gates/sdpa.yaml). A failed stage is kept as a run with\n"
        "its cause and ends in exit code 6, of performance and evidence in 14; what an implementation does\n"
        "not serve in 5; with --strict a gate that could not be judged in 15. The bound is the longest of\n"
        "FMA, exp, bytes and launch, of peaks that are measured now; more than 100 % of it is an error.\n",
    .examples =
        "  bsrun bench sdpa mission --dtype f32,bf16\n"
        "  bsrun bench sdpa small --provider cpu:online,ref --torch off\n"
        "  bsrun bench sdpa mission:bf16:causal --product dx\n"
        "  bsrun bench sdpa mission:bf16 --provider cpu:online --baseline before\n"
        "  bsrun bench sdpa b1h8g2s1t4Kid128:bf16 --torch /opt/venv/bin/python -o json\n"
        "  bsrun runs list --where phase=bench_sdpa\n",
    .options = sdpa_options,
    .run = run_sdpa,
    .max_words = 64,
    .takes = "small|mission|long|gqa|decode",
};

const bsrun_verb bench_matmul = {
    .name = "matmul",
    .words = "[SHAPE ... | --n LIST] [--dtype LIST] [--provider LIST] [options]",
    .summary = "a product: each implementation is judged, then timed in pairs",
    .about =
        "Y = X W^T, W of N rows and K columns, X of B rows (tokens). SHAPE is as n4096k4096b64; with a colon "
        "it\n"
        "is complete, as n1Kik4Kib16:bf16. Each provider goes through the stages of `bsrun bench sdpa` and "
        "the\n"
        "same gates (configs/gates/sdpa.yaml), and ends in the same exit codes. PyTorch's linear is timed in "
        "the\n"
        "same pairs. The bound is the longest of FMA, bytes and launch, of peaks that are measured now.\n"
        "PROVIDER@WORD is timed in the same pairs with another problem: of another dtype (@bf16), with a\n"
        "dense W in place of a 2:4 one (@dense), with half of the columns (@gathered), or with half of the\n"
        "columns of the whole X, as a rank of row_parallel (@run) or of blockshock (@masked) has them. OF\n"
        "THE FIRST (--wide) is the time of each over that of the first provider.\n",
    .examples =
        "  bsrun bench matmul --n 4096 --b 16,64,256\n"
        "  bsrun bench matmul n4Kik11008b1:bf16 --threads 1 --provider cpu,ref\n"
        "  bsrun bench matmul --n 1Ki --b 64 --sparse24 --provider cpu,cpu@dense --torch off\n"
        "  bsrun bench matmul --n 1Ki --b 64 --product dx --provider cpu,cpu@bf16\n"
        "  bsrun bench matmul --n 4096 --b 1 --torch /opt/venv/bin/python -o json\n"
        "  bsrun runs list --where phase=bench_matmul\n",
    .options = matmul_options,
    .run = run_matmul,
    .max_words = 64,
};
