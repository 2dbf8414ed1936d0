/* SPDX-License-Identifier: MIT
 * fit_rows.c - see fit_rows.h. */
#include "lab/sim/fit_rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/error.h"

enum { GROUPS_MAX = 256, LINE_MAX_BYTES = 65536 };

/* The points of one collective by one algorithm; texts are those of the rows. */
typedef struct group {
  const char *coll, *comm, *dtype, *algorithm;
  uint32_t ranks, n;
  sim_fit_point *point; /* SIM_FIT_POINTS of them, ascending */
} group;

typedef struct groups {
  uint32_t n;
  group of[GROUPS_MAX];
} groups;

/* ---- reading -------------------------------------------------------------------------------- */

static int32_t read_lines(const char *path, FILE *f, json_t *rows, bs_error *err) {
  char *line = malloc(LINE_MAX_BYTES);
  uint32_t number = 0;
  int32_t rc = line == NULL ? bs_no_memory(err, "a line") : BS_OK;
  while (rc == BS_OK && fgets(line, LINE_MAX_BYTES, f) != NULL) {
    json_error_t why;
    ++number;
    if (line[strspn(line, " \t\r\n")] == '\0') continue;
    json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, &why);
    if (row == NULL || json_array_append_new(rows, row) != 0)
      rc = bs_error_set(err, BS_INPUT, "BS-FIT-FILE", "%s:%u: %s", path, number,
                        row == NULL ? why.text : "out of memory");
  }
  free(line);
  return rc;
}

int32_t bs_fit_rows_read(const char *path, json_t **out_rows, bs_error *err) {
  json_error_t why;
  *out_rows = NULL;
  FILE *f = fopen(path, "re");
  if (f == NULL) {
    bs_error_errno(err, BS_INPUT, "BS-FIT-FILE", errno, "%s cannot be opened", path);
    bs_error_hint(err, "a file of rows, as `-o jsonl > FILE` of a benchmark of collectives writes them");
    return BS_INPUT;
  }
  json_t *rows = json_loadf(f, JSON_REJECT_DUPLICATES, &why);
  int32_t rc = BS_OK;
  if (!json_is_array(rows)) {
    json_decref(rows);
    rows = json_array();
    rewind(f);
    rc = rows == NULL ? bs_no_memory(err, "rows") : read_lines(path, f, rows, err);
  }
  fclose(f);
  if (rc == BS_OK && json_array_size(rows) == 0) {
    rc = bs_error_set(err, BS_INPUT, "BS-FIT-FILE", "%s has no rows", path);
    bs_error_hint(err, "bsrun coll bench -o jsonl writes them");
  }
  if (rc == BS_OK)
    *out_rows = rows;
  else
    json_decref(rows);
  return rc;
}

/* ---- groups --------------------------------------------------------------------------------- */

static void free_groups(groups *g) {
  for (uint32_t i = 0; i < g->n; ++i) free(g->of[i].point);
  g->n = 0;
}

static const char *text(const json_t *row, const char *key) {
  return json_string_value(json_object_get(row, key));
}

static int same(const group *a, const group *b) {
  return strcmp(a->coll, b->coll) == 0 && strcmp(a->comm, b->comm) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
         a->ranks == b->ranks;
}

static group *find(groups *g, const group *like) {
  for (uint32_t i = 0; i < g->n; ++i)
    if (same(&g->of[i], like) && strcmp(g->of[i].algorithm, like->algorithm) == 0) return &g->of[i];
  return NULL;
}

static int32_t put(group *g, double bytes, double seconds, bs_error *err) {
  uint32_t at = 0;
  while (at < g->n && g->point[at].bytes < bytes) ++at;
  if (at == g->n || g->point[at].bytes > bytes) {
    if (g->n == SIM_FIT_POINTS)
      return bs_error_set(err, BS_INPUT, "BS-FIT-POINTS", "more than %d sizes of one collective",
                          SIM_FIT_POINTS);
    memmove(&g->point[at + 1], &g->point[at], (g->n - at) * sizeof g->point[0]);
    ++g->n;
  }
  g->point[at] = (sim_fit_point){bytes, seconds};
  return BS_OK;
}

static int32_t add_row(groups *g, const json_t *row, size_t number, bs_error *err) {
  const double bytes = json_number_value(json_object_get(row, "bytes")),
               us = json_number_value(json_object_get(row, "time_us"));
  const json_int_t ranks = json_integer_value(json_object_get(row, "ranks"));
  const group like = {text(row, "coll"),
                      text(row, "comm"),
                      text(row, "dtype"),
                      text(row, "algorithm"),
                      (uint32_t)ranks,
                      0,
                      NULL};
  if (like.coll == NULL || like.comm == NULL || like.dtype == NULL || like.algorithm == NULL || ranks < 2 ||
      ranks > UINT32_MAX || !(bytes >= 0) || !(us > 0))
    return bs_error_set(
        err, BS_INPUT, "BS-FIT-ROW",
        "row %zu: it needs the texts coll, comm, dtype and algorithm, ranks of 2 or more, bytes "
        "and a time_us above 0",
        number + 1);
  group *of = find(g, &like);
  if (of == NULL && g->n == GROUPS_MAX)
    return bs_error_set(err, BS_INPUT, "BS-FIT-POINTS", "more than %d collectives in one file", GROUPS_MAX);
  if (of == NULL) {
    of = &g->of[g->n];
    *of = like;
    of->point = calloc(SIM_FIT_POINTS, sizeof of->point[0]);
    if (of->point == NULL) return bs_no_memory(err, "points");
    ++g->n;
  }
  return put(of, bytes, us * 1e-6, err);
}

static int32_t make_groups(const json_t *rows, groups *g, bs_error *err) {
  size_t i;
  json_t *row;
  int32_t rc = BS_OK;
  g->n = 0;
  json_array_foreach(rows, i, row) {
    if (rc == BS_OK) rc = add_row(g, row, i, err);
  }
  return rc;
}

/* Fits a group; the error for one with too few points has its name. */
static int32_t fit_group(const group *g, sim_fit *out, sim_fit_error *out_held_out, bs_error *err) {
  const int32_t rc = sim_fit_choose(g->point, g->n, out, out_held_out, err);
  if (rc == BS_OK) return rc;
  return bs_error_set(err, BS_INPUT, "BS-FIT-POINTS", "%s over %u ranks of %s: %u size%s cannot be fitted",
                      g->coll, g->ranks, g->comm, g->n, g->n == 1 ? "" : "s");
}

static json_t *segments_of(const sim_fit *f) {
  json_t *list = json_array();
  for (uint32_t s = 0; s < f->segments; ++s) {
    const sim_fit_segment *g = &f->segment[s];
    json_array_append_new(
        list, json_pack("{s:f, s:f, s:f, s:I}", "from_bytes", g->from_bytes, "alpha_us", g->alpha_s * 1e6,
                        "us_per_MB", g->s_per_byte * 1e12, "points", (json_int_t)g->points));
  }
  return list;
}

static json_t *row_of(const group *g, const sim_fit *f, const sim_fit_error *e) {
  const double slope = f->segment[f->segments - 1].s_per_byte;
  json_t *row = json_pack("{s:s, s:s, s:I, s:s, s:s, s:I, s:f, s:f, s:o, s:f, s:f, s:I}", "coll", g->coll,
                          "comm", g->comm, "ranks", (json_int_t)g->ranks, "dtype", g->dtype, "algorithm",
                          g->algorithm, "points", (json_int_t)g->n, "alpha_us", f->segment[0].alpha_s * 1e6,
                          "GBps", slope > 0 ? 1e-9 / slope : 0.0, "segments", segments_of(f), "least_bytes",
                          f->least_bytes, "most_bytes", f->most_bytes, "held_out", (json_int_t)e->cells);
  if (e->cells == 0) return row; /* no sizes to judge it */
  json_object_set_new(row, "mape_percent", json_real(100 * e->mape));
  json_object_set_new(row, "geomean_percent", json_real(100 * e->geomean));
  json_object_set_new(row, "bias_percent", json_real(100 * e->bias));
  json_object_set_new(row, "worst_percent", json_real(100 * e->worst));
  json_object_set_new(row, "worst_bytes", json_real(e->worst_bytes));
  return row;
}

int32_t bs_fit_rows(const json_t *rows, json_t **out_fits, bs_error *err) {
  groups *g = calloc(1, sizeof *g);
  *out_fits = json_array();
  int32_t rc = g == NULL || *out_fits == NULL ? bs_no_memory(err, "fits") : make_groups(rows, g, err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n; ++i) {
    sim_fit fit;
    sim_fit_error error;
    rc = fit_group(&g->of[i], &fit, &error, err);
    if (rc == BS_OK && json_array_append_new(*out_fits, row_of(&g->of[i], &fit, &error)) != 0)
      rc = bs_no_memory(err, "a fit");
  }
  if (g != NULL) free_groups(g);
  free(g);
  return rc;
}

/* ---- regret --------------------------------------------------------------------------------- */

/* Fits the sizes of even index, so that the sizes of odd index test the fit. */
static int32_t fit_even(const group *g, sim_fit *out, bs_error *err) {
  sim_fit_point half[SIM_FIT_POINTS / 2 + 1];
  sim_fit_error unused;
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->n; i += 2) half[n++] = g->point[i];
  return sim_fit_choose(half, n, out, &unused, err);
}

static const sim_fit_point *point_at(const group *g, double bytes) {
  for (uint32_t i = 0; i < g->n; ++i)
    if (g->point[i].bytes == bytes) return &g->point[i];
  return NULL;
}

/* The regret over all algorithms that were measured like group `first`; -1: there is no other algorithm. */
static double regret_at(const groups *g, const sim_fit *fits, uint32_t first, double bytes) {
  double least = INFINITY, foretold = INFINITY, chosen = 0;
  uint32_t algorithms = 0;
  for (uint32_t k = first; k < g->n; ++k) {
    const sim_fit_point *p = same(&g->of[k], &g->of[first]) ? point_at(&g->of[k], bytes) : NULL;
    if (p == NULL) continue;
    const double t = sim_fit_seconds(&fits[k], bytes);
    ++algorithms;
    if (p->seconds < least) least = p->seconds;
    if (t < foretold) {
      foretold = t;
      chosen = p->seconds;
    }
  }
  return algorithms > 1 ? chosen / least - 1 : -1;
}

static int is_first(const groups *g, uint32_t i) {
  for (uint32_t k = 0; k < i; ++k)
    if (same(&g->of[k], &g->of[i])) return 0;
  return 1;
}

int32_t bs_fit_regret(const json_t *rows, json_t **out_regret, bs_error *err) {
  groups *g = calloc(1, sizeof *g);
  sim_fit *fits = calloc(GROUPS_MAX, sizeof *fits);
  uint64_t cells = 0, within = 0;
  double worst = 0;
  *out_regret = NULL;
  int32_t rc = g == NULL || fits == NULL ? bs_no_memory(err, "fits") : make_groups(rows, g, err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n; ++i)
    if (g->of[i].n >= 4) rc = fit_even(&g->of[i], &fits[i], err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n; ++i) {
    for (uint32_t k = 1; g->of[i].n >= 4 && is_first(g, i) && k < g->of[i].n; k += 2) {
      const double regret = regret_at(g, fits, i, g->of[i].point[k].bytes);
      if (regret < 0) continue;
      ++cells;
      within += regret <= 0.05;
      if (regret > worst) worst = regret;
    }
  }
  if (rc == BS_OK)
    *out_regret = json_pack("{s:I, s:I, s:f}", "cells", (json_int_t)cells, "within_5_percent",
                            (json_int_t)within, "worst_percent", 100 * worst);
  if (rc == BS_OK && *out_regret == NULL) rc = bs_no_memory(err, "the regret");
  if (g != NULL) free_groups(g);
  free(g);
  free(fits);
  return rc;
}

/* ---- a link --------------------------------------------------------------------------------- */

static const group *first_of(const groups *g, const char *coll) {
  for (uint32_t i = 0; i < g->n; ++i)
    if (strcmp(g->of[i].coll, coll) == 0) return &g->of[i];
  return NULL;
}

/* A ring all-reduce of p ranks costs 2 (p - 1) alpha + 2 (p - 1) / p bytes / B. */
static int32_t link_of(const group *g, double rounds, double share, bs_fit_link *out, bs_error *err) {
  sim_fit fit;
  sim_fit_point even[SIM_FIT_POINTS / 2 + 1], odd[SIM_FIT_POINTS / 2 + 1];
  uint32_t n[2] = {0, 0};
  int32_t rc = sim_fit_make(g->point, g->n, 1, &fit, err);
  if (rc != BS_OK) return rc;
  *out = (bs_fit_link){.alpha_s = fit.segment[0].alpha_s / rounds,
                       .bytes_per_s = fit.segment[0].s_per_byte > 0 ? share / fit.segment[0].s_per_byte : 0,
                       .least_bytes = fit.least_bytes,
                       .most_bytes = fit.most_bytes,
                       .ranks = g->ranks};
  if (g->n < 4) return BS_OK;
  for (uint32_t i = 0; i < g->n; ++i) (i % 2 ? odd : even)[n[i % 2]++] = g->point[i];
  rc = sim_fit_make(even, n[0], 1, &fit, err);
  if (rc == BS_OK) sim_fit_judge(&fit, odd, n[1], &out->held_out);
  return rc;
}

int32_t bs_fit_link_of(const json_t *rows, bs_fit_link *out, bs_error *err) {
  groups *g = calloc(1, sizeof *g);
  int32_t rc = g == NULL ? bs_no_memory(err, "fits") : make_groups(rows, g, err);
  if (rc == BS_OK) {
    const group *ring = first_of(g, "all_reduce"), *message = first_of(g, "send_recv");
    const double p = ring != NULL ? ring->ranks : 2;
    if (ring != NULL)
      rc = link_of(ring, 2 * (p - 1), 2 * (p - 1) / p, out, err);
    else if (message != NULL)
      rc = link_of(message, 1, 1, out, err);
    else
      rc = bs_error_set(err, BS_INPUT, "BS-FIT-LINK",
                        "there is no row of all_reduce or send_recv, of which a link "
                        "is made");
  }
  if (g != NULL) free_groups(g);
  free(g);
  return rc;
}
