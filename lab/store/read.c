/* SPDX-License-Identifier: MIT
 * read.c - see read.h. */
#include "lab/store/read.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/folder.h"
#include "lab/store/index.h"
#include "lab/store/summary.h"

void bs_runs_stats_free(bs_runs_stats *stats) {
  json_decref(stats->problems);
  *stats = (bs_runs_stats){0};
}

/* The rows of one run. */
typedef struct group {
  double time;
  char *path;
  json_t *rows;
} group;

typedef struct collection {
  group *groups;
  size_t n, room;
  bs_runs_stats stats;
  bs_rows_index index;
} collection;

static int grow(collection *c) {
  if (c->n < c->room) return 1;
  const size_t room = c->room == 0 ? 64 : 2 * c->room;
  group *grown = realloc(c->groups, room * sizeof *grown);
  if (grown == NULL) return 0;
  c->groups = grown;
  c->room = room;
  return 1;
}

json_t *bs_folder_rows(int fd, const char *path, const bs_folder_run *run) {
  const json_t *env = json_object_get(json_array_get(run->metrics.records, 0), "env");
  const bs_summary_run all = {.path = path,
                              .done = run->done,
                              .host = json_object_get(json_object_get(env, "system"), "host"),
                              .note = bs_folder_note(fd)};
  json_t *rows = json_array(), *record;
  int good = rows != NULL;
  size_t i;
  json_array_foreach(run->metrics.records, i, record) good = good && bs_summary_add(rows, &all, record);
  json_decref(all.note);
  if (good) return rows;
  json_decref(rows);
  return NULL;
}

/* Takes over `rows`; NULL: out of memory. */
static int32_t take_rows(collection *c, const char *path, json_t *rows, bs_error *err) {
  const json_t *first = json_array_get(rows, 0);
  group g = {.path = bs_strdup(path), .rows = rows};
  g.time = json_number_value(json_object_get(first, "time"));
  if (rows != NULL && g.path != NULL && grow(c)) {
    c->groups[c->n++] = g;
    c->stats.runs++;
    return BS_OK;
  }
  free(g.path);
  json_decref(rows);
  return bs_no_memory(err, "the list of runs");
}

/* Reports a damaged run or an unreadable folder; the others are still read. */
static int32_t keep_problem(collection *c, const char *path, const bs_error *why, bs_error *err) {
  json_t *row = json_object();
  json_t *message = json_string(why->message), *name = json_string(path);
  json_object_set_new(row, "run", name != NULL ? name : json_string("(not UTF-8)"));
  json_object_set_new(row, "message", message != NULL ? message : json_string("(not UTF-8)"));
  return json_array_append_new(c->stats.problems, row) == 0 ? BS_OK : bs_no_memory(err, "the list of runs");
}

static int32_t read_run(collection *c, int fd, const char *path, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_folder_run run;
  int32_t rc = bs_folder_read(fd, path, &run, &why);
  if (rc == BS_OK) {
    json_t *rows = bs_folder_rows(fd, path, &run);
    bs_rows_index_add(&c->index, fd, path, rows);
    rc = take_rows(c, path, rows, err);
  } else if (rc == BS_NO_MEMORY) {
    if (err != NULL) *err = why;
  } else if (rc == BS_NOT_FOUND) { /* removed meanwhile */
    rc = BS_OK;
  } else {
    c->stats.damaged++;
    rc = keep_problem(c, path, &why, err);
  }
  bs_folder_run_free(&run);
  return rc;
}

static int32_t visit(void *user, enum bs_folder_kind kind, int fd, const char *path, bs_error *err) {
  collection *c = user;
  if (kind == BS_FOLDER_CLOSED) {
    bs_error why = BS_ERROR_INIT;
    bs_error_set(&why, BS_IO, "BS-STO-READ", "this user may not look into the folder");
    c->stats.closed++;
    return keep_problem(c, path, &why, err);
  }
  if (kind == BS_FOLDER_OPEN) c->stats.unfinished++;
  if (kind != BS_FOLDER_RUN) return BS_OK;
  json_t *known = bs_rows_index_find(&c->index, fd, path);
  return known != NULL ? take_rows(c, path, known, err) : read_run(c, fd, path, err);
}

static int newest_first(const void *a, const void *b) {
  const group *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? 1 : -1;
  return strcmp(y->path, x->path);
}

int32_t bs_runs_index(const char *root, json_t **out_rows, bs_runs_stats *out_stats, bs_error *err) {
  collection c = {.stats.problems = json_array()};
  *out_rows = json_array();
  int32_t rc = *out_rows == NULL || c.stats.problems == NULL ? bs_no_memory(err, "the list of runs") : BS_OK;
  bs_rows_index_open(&c.index, root);
  if (rc == BS_OK) rc = bs_folders_walk(root, visit, &c, err);
  bs_rows_index_close(&c.index, root, rc == BS_OK);
  if (c.n > 1) qsort(c.groups, c.n, sizeof *c.groups, newest_first);
  for (size_t i = 0; i < c.n; i++) {
    if (rc == BS_OK && json_array_extend(*out_rows, c.groups[i].rows) != 0)
      rc = bs_no_memory(err, "the list of runs");
    json_decref(c.groups[i].rows);
    free(c.groups[i].path);
  }
  free(c.groups);
  if (rc == BS_OK && out_stats != NULL) {
    *out_stats = c.stats;
  } else {
    if (out_stats != NULL) *out_stats = (bs_runs_stats){0};
    bs_runs_stats_free(&c.stats);
  }
  if (rc != BS_OK) {
    json_decref(*out_rows);
    *out_rows = NULL;
  }
  return rc;
}

int32_t bs_run_rows(const char *root, const char *run, json_t **out_rows, bs_error *err) {
  bs_folder_run content = {0};
  int fd;
  *out_rows = NULL;
  int32_t rc = bs_folder_open(root, run, &fd, err);
  if (rc != BS_OK) return rc;
  rc = bs_folder_read(fd, run, &content, err);
  if (rc == BS_OK && (*out_rows = bs_folder_rows(fd, run, &content)) == NULL)
    rc = bs_no_memory(err, "the rows of a run");
  bs_folder_run_free(&content);
  close(fd);
  return rc;
}

/* The first record's own copy, or env.json of older folders. */
static int32_t read_env(int fd, const bs_folder_run *run, json_t **out_env, bs_error *err) {
  char *text;
  size_t size;
  json_t *own = json_object_get(json_array_get(run->metrics.records, 0), "env");
  if (own != NULL) {
    *out_env = json_incref(own);
    return BS_OK;
  }
  const int32_t rc = bs_folder_file(fd, "env.json", &text, &size, err);
  if (rc != BS_OK) return rc;
  *out_env = text != NULL ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
  free(text);
  if (*out_env == NULL) *out_env = json_object();
  return *out_env != NULL ? BS_OK : bs_no_memory(err, "an environment");
}

int32_t bs_run_read(const char *root, const char *run, json_t **out_records, json_t **out_env,
                    bs_error *err) {
  bs_folder_run content = {0};
  int fd;
  *out_records = NULL;
  if (out_env != NULL) *out_env = NULL;
  int32_t rc = bs_folder_open(root, run, &fd, err);
  if (rc != BS_OK) return rc;
  rc = bs_folder_read(fd, run, &content, err);
  if (rc == BS_OK && out_env != NULL) rc = read_env(fd, &content, out_env, err);
  if (rc == BS_OK) *out_records = json_incref(content.metrics.records);
  bs_folder_run_free(&content);
  close(fd);
  return rc;
}
