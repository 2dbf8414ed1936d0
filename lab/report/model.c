/* SPDX-License-Identifier: MIT
 * model.c - see model.h: selects the rows, and derives values from them. */
#include "lab/report/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/error.h"
#include "lab/report/model_parts.h"
#include "lab/store/find.h"
#include "lab/store/read.h"

enum { MOST_COMPARISONS = 500, MOST_LINES = 2000 };

static int is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int is_run(const char *path) {
  char done[4096];
  struct stat st;
  return snprintf(done, sizeof done, "%s/DONE", path) < (int)sizeof done && stat(done, &st) == 0;
}

/* Does a word that is not a folder name the row's run? */
static int names_row(const char *word, const json_t *row) {
  const char *run = bs_row_text(row, "run");
  const size_t n = strlen(word);
  return word[0] == '\0' || strcmp(word, bs_row_text(row, "run_id")) == 0 ||
         strcmp(word, bs_row_text(row, "sweep")) == 0 ||
         (strncmp(run, word, n) == 0 && (run[n] == '/' || run[n] == '\0' || word[n - 1] == '/'));
}

/* Removes nulls from a row, which saves a third of the memory of 10,000 runs. */
static void drop_nulls(json_t *row) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(row, next, key, value) {
    if (json_is_null(value)) json_object_del(row, key);
  }
}

/* The bytes that a rank sends in a forward, and their rate: nccl-tests' busbw, because the bytes are those of
 * the ring. */
static void derive_exchange(json_t *row) {
  const double ranks = bs_row_number(row, "world_size"), sent = bs_row_number(row, "bytes_wire") / ranks,
               ms = bs_row_number(row, "regions.allreduce");
  const char *phase = bs_row_text(row, "phase");
  if (!(ranks > 1 && sent > 0 && ms > 0) || strcmp(phase, "phase1_forward") != 0)
    return; /* else: several passes */
  bs_row_set(row, "sent_bytes", sent);
  bs_row_set(row, "bus_GBps", sent / ms * 1e-6);
}

/* Adds values derived from a row to the same row. */
static void derive(json_t *row, const char *root) {
  drop_nulls(row);
  const double flops = bs_row_number(row, "flops") / 1e9, weights = bs_row_number(row, "weight_bytes_total");
  static const char *const times[] = {"median_s", "bound_s", "high_s", "low_s"}, *const rates[] = {
                                                                                     "gflops", "bound_gflops",
                                                                                     "gflops_low",
                                                                                     "gflops_high"};
  for (size_t i = 0; i < 4; i++) {
    const double seconds = bs_row_number(row, times[i]);
    if (seconds > 0 && !isnan(flops)) bs_row_set(row, rates[i], flops / seconds);
  }
  const double forward = bs_row_number(row, "regions.forward");
  if (forward > 0 && weights > 0) bs_row_set(row, "forward_ns_per_byte", forward * 1e6 / weights);
  derive_exchange(row);
  const double point = bs_row_number(row, "point");
  if (!isnan(point)) bs_row_set(row, "place", point + 1);
  json_object_set_new(row, "root", json_string(root));
}

/* The rows below root that `word` ("": all) names. */
static int32_t add_rows(json_t *model, const char *root, const char *word, size_t *out_n, bs_error *err) {
  bs_runs_stats stats;
  json_t *found = NULL, *rows = json_object_get(model, "rows"), *row, *problem;
  size_t i;
  int32_t rc = bs_runs_index(root, &found, &stats, err);
  if (rc != BS_OK) return rc;
  *out_n = 0;
  json_array_foreach(found, i, row) {
    if (!names_row(word, row)) continue;
    derive(row, root);
    ++*out_n;
    if (json_array_append(rows, row) != 0) rc = bs_no_memory(err, "a report");
  }
  json_array_foreach(stats.problems, i, problem) {
    bs_model_add(model, "refused", bs_row_text(problem, "run"), bs_row_text(problem, "message"));
  }
  bs_model_count(model, "damaged", (json_int_t)stats.damaged);
  bs_model_count(model, "unfinished", (json_int_t)stats.unfinished);
  bs_runs_stats_free(&stats);
  json_decref(found);
  return rc;
}

static int32_t not_found(const char *word, const char *root, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-REPORT-NONE", "%.200s: no folder of runs, and no run or sweep below %.200s",
               word, root);
  bs_error_hint(err, "a root of runs, a sweep's folder, or a run_id; --out DIR of bsrun is the root");
  return BS_INPUT;
}

/* The plans of the sweeps that the rows below root belong to. */
static void add_plans(json_t *model, const char *root) {
  const json_t *rows = json_object_get(model, "rows");
  json_t *seen = json_object();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *sweep = bs_row_text(row, "sweep");
    char path[4096];
    if (sweep[0] == '\0' || strcmp(bs_row_text(row, "root"), root) != 0 ||
        json_object_get(seen, sweep) != NULL)
      continue;
    json_object_set_new(seen, sweep, json_true());
    if (snprintf(path, sizeof path, "%s/%s", root, sweep) < (int)sizeof path) bs_model_plans(model, path);
  }
  json_decref(seen);
}

static int32_t take_word(json_t *model, const char *word, const char *root, bs_error *err) {
  size_t n = 0;
  int32_t rc;
  if (is_folder(word) && is_run(word)) {
    char path[4096];
    size_t length = strlen(word);
    while (length > 1 && word[length - 1] == '/') --length;
    if (length >= sizeof path) return not_found(word, root, err);
    memcpy(path, word, length);
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
    rc = add_rows(model,
                  slash == NULL     ? "."
                  : path[0] == '\0' ? "/"
                                    : path,
                  slash != NULL ? slash + 1 : path, &n, err);
  } else if (is_folder(word)) {
    rc = add_rows(model, word, "", &n, err);
    if (rc == BS_OK) bs_model_plans(model, word);
    if (rc == BS_OK) add_plans(model, word);
  } else {
    char path[4096];
    char *in = NULL, *run = NULL; /* of `latest` and of a short id */
    rc = add_rows(model, root, word, &n, err);
    if (rc == BS_OK && n == 0 && bs_run_find(root, word, &in, &run, NULL) == BS_OK)
      rc = add_rows(model, in, run, &n, err);
    free(in);
    free(run);
    if (rc == BS_OK && snprintf(path, sizeof path, "%s/%s", root, word) < (int)sizeof path)
      bs_model_plans(model, path);
  }
  return rc == BS_OK && n == 0 ? not_found(word, root, err) : rc;
}

/* ---- values derived from the rows ---- */

/* Is it the dense layer next to a method? Arms of `bsrun compare`, which have a pass, are separate, and so is
 * the work of a model's run. */
static int is_peer(const json_t *row) {
  const char *arm = bs_row_text(row, "arm");
  return arm[0] != '\0' && strcmp(arm, "method") != 0 && bs_row_text(row, "pass")[0] == '\0' &&
         strcmp(bs_row_text(row, "phase"), "model_bench") != 0;
}

/* A text that sorts as a reader expects: numbers with leading zeros. */
static void sort_key(const json_t *row, char *out, size_t size) {
  static const char *const texts[] = {"method", "mask", "activation", "backend", "comm",
                                      "launch", "host", "arm",        "pass",    "problem"};
  static const char *const sizes[] = {"K", "N", "B", "world_size", "threads_per_rank"};
  size_t used =
      (size_t)snprintf(out, size, "%.40s|%.12s", bs_row_text(row, "phase"), bs_row_text(row, "dtype"));
  for (size_t i = 0; i < 5 && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "|%012.0f",
                             isnan(bs_row_number(row, sizes[i])) ? 0 : bs_row_number(row, sizes[i]));
  for (size_t i = 0; i < sizeof texts / sizeof texts[0] && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "|%.48s", bs_row_text(row, texts[i]));
  if (used < size) snprintf(out + used, size - used, "|%d", bs_row_true(row, "simulated"));
}

typedef struct keyed {
  char *key;
  json_t *row;
} keyed;

static int by_key(const void *a, const void *b) {
  return strcmp(((const keyed *)a)->key, ((const keyed *)b)->key);
}

/* The newest row of each setting, in the order of the settings. */
static int32_t add_latest(json_t *model, bs_error *err) {
  const json_t *rows = json_object_get(model, "rows");
  json_t *latest = json_object_get(model, "latest"), *seen = json_object(), *row;
  keyed *list = calloc(json_array_size(rows) + 1, sizeof *list);
  int32_t rc = list != NULL && seen != NULL ? BS_OK : bs_no_memory(err, "a report");
  size_t i, n = 0;
  char key[700];
  json_array_foreach(rows, i, row) {
    if (rc != BS_OK || is_peer(row)) continue;
    sort_key(row, key, sizeof key);
    if (json_object_get(seen, key) != NULL) continue;
    json_object_set_new(seen, key, json_true());
    list[n] = (keyed){bs_strdup(key), row};
    if (list[n++].key == NULL) rc = bs_no_memory(err, "a report");
  }
  if (rc == BS_OK) qsort(list, n, sizeof *list, by_key);
  for (i = 0; i < n; i++) {
    if (rc == BS_OK) json_array_append(latest, list[i].row);
    free(list[i].key);
  }
  free(list);
  json_decref(seen);
  return rc;
}

/* run -> [rows of its dense layers]. */
static json_t *peers_of(const json_t *rows) {
  json_t *peers = json_object(), *row;
  size_t i;
  char name[1200];
  json_array_foreach(rows, i, row) {
    if (!is_peer(row)) continue;
    snprintf(name, sizeof name, "%s|%s", bs_row_text(row, "root"), bs_row_text(row, "run"));
    json_t *list = json_object_get(peers, name);
    if (list == NULL) {
      list = json_array();
      json_object_set_new(peers, name, list);
    }
    json_array_append(list, row);
  }
  return peers;
}

static const json_t *peers_at(const json_t *peers, const json_t *row) {
  char name[1200];
  snprintf(name, sizeof name, "%s|%s", bs_row_text(row, "root"), bs_row_text(row, "run"));
  return json_object_get(peers, name);
}

static void copy_keys(json_t *to, const json_t *from, const char *const *keys, size_t n) {
  for (size_t i = 0; i < n; i++) {
    json_t *value = json_object_get(from, keys[i]);
    if (value != NULL) json_object_set(to, keys[i], value);
  }
}

/* The method's row once for each dense layer that it was set against, as far as the list has room. Returns
 * how many those are. */
static size_t compare_with(json_t *list, json_t *row, const json_t *peers) {
  static const char *const keys[] = {"speedup",      "speedup_low", "speedup_high",
                                     "speedup_word", "against",     "cause"};
  size_t told = 0;
  for (size_t i = 0; i < json_array_size(peers); i++) {
    const json_t *peer = json_array_get(peers, i);
    if (isnan(bs_row_number(peer, "speedup"))) continue;
    ++told;
    if (json_array_size(list) >= MOST_COMPARISONS) continue;
    json_t *one = json_copy(row);
    copy_keys(one, peer, keys, sizeof keys / sizeof keys[0]);
    json_array_append_new(list, one);
  }
  if (told == 0 && json_array_size(list) < MOST_COMPARISONS) json_array_append(list, row);
  return told > 0 ? told : 1;
}

/* Do runs of one phase, one number of ranks and one host differ in their threads a rank? They do not if a
 * sweep over ranks divides the same cores among them. */
static int threads_differ(const json_t *latest) {
  json_t *known = json_object(), *row;
  size_t i;
  int differ = 0;
  char name[200];
  json_array_foreach((json_t *)latest, i, row) {
    json_t *threads = json_object_get(row, "threads_per_rank");
    if (threads == NULL || bs_row_true(row, "simulated")) continue;
    snprintf(name, sizeof name, "%.40s|%.0f|%.100s", bs_row_text(row, "phase"),
             bs_row_number(row, "world_size"), bs_row_text(row, "host"));
    const json_t *before = json_object_get(known, name);
    differ |= before != NULL && !json_equal(before, threads);
    json_object_set(known, name, threads);
  }
  json_decref(known);
  return differ;
}

/* The parts of the names of lines. */
typedef struct series_rule {
  uint32_t differ; /* settings in which the rows differ */
  int threads;     /* threads_differ */
  int square;      /* N = K in all rows */
} series_rule;

/* The name of a line. That of a dense layer has its arm, and its machine if machines differ. The machine of a
 * simulated run is left out. */
static void series_of(const json_t *row, int dense, const series_rule *rule, char *out, size_t size) {
  static const char *const sizes[] = {"N", "K", "B", "dtype", "phase", "activation", "world_size", "pass"};
  static const char *const layers[] = {"method", "mask", "arm", "comm", "launch", "origin"};
  const int simulated = bs_row_true(row, "simulated");
  const char *but[20];
  size_t n = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) but[n++] = sizes[i];
  for (size_t i = 0; dense && i < sizeof layers / sizeof layers[0]; i++) but[n++] = layers[i];
  if (dense && simulated) but[n++] = "backend";
  if (simulated) but[n++] = "host";
  if (simulated || !rule->threads) but[n++] = "threads_per_rank";
  but[n] = NULL;
  const int used = dense ? snprintf(out, size, "%.80s", bs_row_text(row, "arm")) : 0;
  char words[120];
  bs_row_words(row, rule->differ | BS_ROW_SIMULATED | (dense ? 0 : BS_ROW_METHOD), but, words, sizeof words);
  snprintf(out + used, size - (size_t)used, "%s%s", used > 0 && words[0] != '\0' ? ", " : "", words);
}

/* A row of lines: its series, and the text of all its other settings for each size that may be the axis. A
 * dense layer belongs to the run that measured it. */
static void add_line(json_t *lines, const json_t *row, const json_t *of, const series_rule *rule) {
  static const char *const of_run[] = {"phase", "N", "K", "B", "dtype", "world_size", "activation"};
  static const char *const axes[][2] = {
      {"N", "facet_N"}, {"B", "facet_B"}, {"K", "facet_K"}, {"world_size", "facet_world_size"}};
  json_t *one = json_copy((json_t *)row);
  char series[160], text[200];
  copy_keys(one, of, of_run, 7);
  series_of(row, row != of, rule, series, sizeof series);
  json_object_set_new(one, "series", json_string(series));
  for (size_t f = 0; f < 4; f++) {
    const char *but[] = {
        "method", "mask",   "arm",       "backend",          "comm",     "launch",
        "host",   "origin", "simulated", "threads_per_rank", axes[f][0], rule->square ? "K" : NULL,
        NULL};
    bs_row_words(one, ~0u, but, text, sizeof text);
    json_object_set_new(one, axes[f][1], json_string(text));
  }
  json_array_append_new(lines, one);
}

static int32_t add_derived(json_t *model, bs_error *err) {
  json_t *rows = json_object_get(model, "rows"), *latest = json_object_get(model, "latest"), *row;
  json_t *comparisons = json_object_get(model, "comparisons"), *lines = json_object_get(model, "lines");
  json_t *arms = json_object_get(model, "arms"), *peers = peers_of(rows);
  if (peers == NULL) return bs_no_memory(err, "a report");
  const series_rule rule = {bs_rows_differ(latest), threads_differ(latest), bs_rows_square(latest)};
  size_t i, compared = 0, lined = 0;
  json_array_foreach(latest, i, row) {
    json_array_append(arms, row);
    json_array_extend(arms, (json_t *)(uintptr_t)peers_at(peers, row)); /* unless there are none */
    if (!isnan(bs_row_number(row, "speedup")))
      compared += compare_with(comparisons, row, peers_at(peers, row));
  }
  json_array_foreach(rows, i, row) {
    if (is_peer(row)) continue;
    const json_t *list = peers_at(peers, row);
    lined += 1 + json_array_size(list);
    if (json_array_size(lines) >= MOST_LINES) continue;
    add_line(lines, row, row, &rule);
    for (size_t k = 0; k < json_array_size(list); k++) add_line(lines, json_array_get(list, k), row, &rule);
  }
  bs_model_count(model, "compared", (json_int_t)compared);
  bs_model_count(model, "lined", (json_int_t)lined);
  json_decref(peers);
  return BS_OK;
}

int32_t bs_model_derive(json_t *model, bs_error *err) {
  const int32_t rc = add_latest(model, err);
  return rc == BS_OK ? add_derived(model, err) : rc;
}

int32_t bs_report_model(const bs_report_request *request, json_t **out_model, bs_error *err) {
  json_t *model = json_pack(
      "{s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:i, s:i, s:{}}",
      "rows", "latest", "arms", "comparisons", "lines", "samples", "warnings", "refused", "untried", "notes",
      "commands", "findings", "profiles", "unfinished", 0, "damaged", 0, "env");
  size_t n = 0;
  *out_model = NULL;
  int32_t rc = model != NULL ? BS_OK : bs_no_memory(err, "a report");
  if (rc == BS_OK && request->n_words == 0) {
    rc = add_rows(model, request->root, "", &n, err);
    if (rc == BS_OK) add_plans(model, request->root);
    if (rc == BS_OK && n == 0) rc = not_found(request->root, request->root, err);
  }
  for (size_t i = 0; rc == BS_OK && i < request->n_words; i++)
    rc = take_word(model, request->words[i], request->root, err);
  if (rc == BS_OK) rc = bs_model_derive(model, err);
  if (rc == BS_OK) rc = bs_model_details(model, request->command, err);
  if (rc != BS_OK) {
    json_decref(model);
    return rc;
  }
  *out_model = model;
  return BS_OK;
}
