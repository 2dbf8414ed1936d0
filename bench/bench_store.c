/* SPDX-License-Identifier: MIT
 * bench_store.c - how fast the store is: records appended to one run, and runs begun, written and committed.
 *   bench_store DIR [RECORDS [RUNS]]     DIR: a folder for the runs, as of a tmpfs */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "lab/store/env.h"
#include "lab/store/read.h"
#include "lab/store/store.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const bs_error *err) {
  fprintf(stderr, "bench_store: %s: %s\n", err->id, err->message);
  return 1;
}

/* About as long as a record of phase 0. */
static json_t *make_record(int i) {
  json_t *record =
      json_pack("{s:f, s:s, s:s, s:i, s:i, s:i, s:b}", "timestamp_unix", 1e9 + i, "phase",
                "phase0_correctness", "method", "dense", "N", 4096, "K", 4096, "B", 64, "passed", 1);
  json_t *gates = json_array();
  for (int g = 0; g < 9; g++)
    json_array_append_new(
        gates, json_pack("{s:s, s:s, s:i, s:f, s:f, s:s}", "name", "T2.feature", "state", "pass", "rank", g,
                         "value", 1.23456789e-7 * (g + i), "limit", 5.8e-7, "text",
                         "worst output feature, in units of its own prediction"));
  json_object_set_new(record, "gates", gates);
  return record;
}

typedef struct bench {
  const char *dir;
  bs_node *config;
  char *env;
} bench;

/* Keys differ: at most 1,000 runs of one second may have one name. */
static int32_t begin(const bench *b, int i, bs_run **out, bs_error *err) {
  char key[65];
  snprintf(key, sizeof key, "%064x", i);
  for (size_t k = 0; k < 8; k++) key[k] = key[56 + k]; /* the beginning is in the name */
  const bs_run_request q = {.out_dir = b->dir,
                            .phase = "phase0_correctness",
                            .method = "dense",
                            .key = key,
                            .config = b->config,
                            .env = b->env,
                            .seed = 725};
  return bs_store_begin(&q, out, err);
}

static int append_many(const bench *b, int records, bs_error *err) {
  bs_run *run;
  json_t *record = make_record(0);
  char *text = json_dumps(record, JSON_COMPACT);
  if (begin(b, 0, &run, err) != BS_OK) return fail(err);
  const double from = now();
  for (int i = 0; i < records; i++)
    if (bs_store_append(run, record, err) != BS_OK) return fail(err);
  const double seconds = now() - from;
  printf("%d records of %zu bytes appended, not synced: %.0f a second\n", records, strlen(text),
         (double)records / seconds);
  bs_store_abandon(run);
  json_decref(record);
  free(text);
  return 0;
}

static int commit_many(const bench *b, int runs, bs_error *err) {
  const double from = now();
  for (int i = 0; i < runs; i++) {
    bs_run *run;
    json_t *record = make_record(i);
    if (begin(b, i, &run, err) != BS_OK || bs_store_append(run, record, err) != BS_OK ||
        bs_store_commit(run, "ok", err) != BS_OK)
      return fail(err);
    json_decref(record);
  }
  const double seconds = now() - from;
  printf("%d runs committed, one record each: %.0f a second\n", runs, (double)runs / seconds);
  return 0;
}

/* The first list reads every run, the second one the cache. */
static int list_all(const bench *b, bs_error *err) {
  for (int pass = 0; pass < 2; pass++) {
    json_t *rows;
    const double from = now();
    if (bs_runs_index(b->dir, &rows, NULL, err) != BS_OK) return fail(err);
    printf("%zu rows listed %s: %.3f s\n", json_array_size(rows),
           pass == 0 ? "from the runs" : "from the cache", now() - from);
    json_decref(rows);
  }
  return 0;
}

int main(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: bench_store DIR [RECORDS [RUNS]]\n");
    return 2;
  }
  const int records = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 20000;
  const int runs = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1000;
  json_t *env = bs_env_collect(NULL);
  const bench b = {argv[1], bs_config_new_map(), bs_env_text(env)};
  json_decref(env);
  if (b.config == NULL || b.env == NULL) return 1;
  const int bad = append_many(&b, records, &err) || commit_many(&b, runs, &err) || list_all(&b, &err);
  bs_config_free(b.config);
  free(b.env);
  return bad;
}
