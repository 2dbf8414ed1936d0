/* SPDX-License-Identifier: MIT
 * strategy.c - see strategy.h. */
#include "lab/choose/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/error.h"

const char *const bs_strategy_names[BS_STRATEGIES] = {"full", "random", "fast", "elite", "mixed"};
const char *const bs_origin_names[8] = {"start", "order",     "random", "neighbour",
                                        "macro", "crossover", "micro",  "final"};
const char *const bs_search_end_names[3] = {"converged", "budget", "seconds"};

enum { FAST_POINTS = 8, FEW_POINTS = 16, SURVIVORS = 6, MOST_SURVIVORS = 64, MOST_FINALISTS = 32 };
enum { TRIES = 64, NEIGHBOURS = 2 * BS_SPACE_KNOBS * BS_SPACE_VALUES };
static const double CROSSOVER_SHARE = 0.3;
static const double MACRO_SHARE = 0.6; /* of the points; then micro */

typedef struct search {
  const bs_space *space;
  const bs_search *of;
  bs_searched *out;
  uint64_t budget, drawn; /* budget: of the search and the halving */
  double began;
  size_t capacity;
  uint8_t *seen; /* a bit a point */
  uint32_t survivors, n_elite;
  uint32_t finalists;           /* finalists whose halving fits into the reserved measurements */
  uint32_t n_finite;            /* points that could be measured */
  size_t elite[MOST_SURVIVORS]; /* rows, fastest first */
  int mixed;
  int full; /* the budget is used up */
  bs_error *err;
} search;

int bs_strategy_find(const char *name) {
  for (int i = 0; i < BS_STRATEGIES; i++)
    if (strcmp(bs_strategy_names[i], name) == 0) return i;
  return -1;
}

/* The measurements of a halving of n. */
static uint64_t halving_cost(uint64_t n) {
  uint64_t cost = 0;
  for (; n > 1; n = (n + 1) / 2) cost += n;
  return cost;
}

/* The most finalists, up to `most`, whose halving needs at most so many measurements. */
static uint32_t affordable(uint32_t most, uint64_t measurements) {
  while (most > 1 && halving_cost(most) > measurements) most--;
  return most;
}

uint64_t bs_search_points(const bs_search *of, const bs_space *space) {
  const uint64_t quarter = space->size / 4 > FEW_POINTS ? space->size / 4 : FEW_POINTS;
  if (of->points > 0) return of->points;
  return of->strategy == BS_STRATEGY_FULL   ? space->size + halving_cost(of->finalists)
         : of->strategy == BS_STRATEGY_FAST ? FAST_POINTS + halving_cost(of->finalists)
                                            : quarter;
}

/* ---- random numbers ------------------------------------------------------------------------- */

static uint64_t below(search *s, uint64_t n) {
  uint32_t bits[2];
  bs_rng_bits(s->of->seed, 0x7e57, s->drawn, 2, bits);
  s->drawn += 2;
  return n > 0 ? (((uint64_t)bits[0] << 32) | bits[1]) % n : 0;
}

static double uniform(search *s) {
  return (double)below(s, UINT64_C(1) << 32) / 4294967296.0;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static int is_seen(const search *s, uint64_t point) {
  return (s->seen[point / 8] >> (point % 8)) & 1;
}

static int is_new(const search *s, uint64_t point) {
  return bs_space_allows(s->space, point) && !is_seen(s, point);
}

/* Is the search over? One more point and the halving of the measured points must fit. Failed points cannot be
 * finalists, so their part of the halving goes to the search. */
static int is_over(search *s) {
  bs_searched *out = s->out;
  const uint32_t finalists = s->n_finite + 1 < s->finalists ? s->n_finite + 1 : s->finalists;
  if (s->full) return 1;
  if (out->measured + 1 + halving_cost(finalists) > s->budget)
    out->end = BS_SEARCH_POINTS;
  else if (s->of->seconds > 0 && s->of->now != NULL && s->of->now(s->of->user) - s->began >= s->of->seconds)
    out->end = BS_SEARCH_SECONDS;
  s->full = out->end != BS_SEARCH_DONE;
  return s->full;
}

static int32_t add_row(search *s, const bs_searched_row *row) {
  bs_searched *out = s->out;
  if (out->n == s->capacity) {
    const size_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
    bs_searched_row *grown = realloc(out->rows, capacity * sizeof *grown);
    if (grown == NULL) return bs_no_memory(s->err, "a search");
    out->rows = grown;
    s->capacity = capacity;
  }
  out->rows[out->n++] = *row;
  s->seen[row->point / 8] |= (uint8_t)(1u << (row->point % 8));
  return BS_OK;
}

/* The new row's place among the survivors. */
static void survive(search *s, size_t row) {
  const bs_searched_row *rows = s->out->rows;
  uint32_t at = s->n_elite;
  if (!isfinite(rows[row].seconds)) return;
  s->n_finite++;
  while (at > 0 && rows[row].seconds < rows[s->elite[at - 1]].seconds) at--;
  if (at == s->survivors) return;
  if (s->n_elite < s->survivors) s->n_elite++;
  memmove(&s->elite[at + 1], &s->elite[at], (s->n_elite - 1 - at) * sizeof s->elite[0]);
  s->elite[at] = row;
}

/* Measures a new point; not BS_OK: the search ends with it. */
static int32_t look(search *s, uint64_t point, uint32_t origin) {
  bs_searched_row row = {.point = point, .origin = origin, .seconds = INFINITY};
  int32_t rc = BS_OK;
  row.is_known = s->of->known != NULL && s->of->known(s->of->user, point, &row.seconds);
  if (!row.is_known) {
    if (is_over(s)) return BS_OK;
    rc = s->of->measure(s->of->user, point, 0, &row.seconds, s->err);
    s->out->measured += rc == BS_OK;
  }
  if (!(row.seconds > 0.0)) row.seconds = INFINITY;
  if (rc == BS_OK) rc = add_row(s, &row);
  if (rc == BS_OK) survive(s, s->out->n - 1);
  return rc;
}

/* ---- points --------------------------------------------------------------------------------- */

/* Finds a point that was not measured, starting at a random one; 0: none left. */
static int draw(search *s, uint64_t *out) {
  const uint64_t size = s->space->size;
  for (int i = 0; i < TRIES; i++)
    if (is_new(s, *out = below(s, size))) return 1;
  const uint64_t from = below(s, size);
  for (uint64_t i = 0; i < size; i++)
    if (is_new(s, *out = (from + i) % size)) return 1;
  return 0;
}

/* Lists points with one knob changed: an ordered knob to an adjacent value, a word to any other. */
static size_t neighbours(const search *s, uint64_t point, uint64_t *out) {
  size_t n = 0;
  for (uint32_t k = 0; k < s->space->n; k++) {
    const bs_space_knob *knob = &s->space->knob[k];
    const uint32_t place = bs_space_place(s->space, point, k);
    for (uint32_t v = 0; v < knob->n; v++)
      if (v != place && (!knob->ordered || v + 1 == place || v == place + 1))
        out[n++] = bs_space_with(s->space, point, k, v);
  }
  return n;
}

/* Changes one knob to another of its values, mostly to one that is not adjacent. */
static uint64_t mutate(search *s, uint64_t point) {
  if (s->space->n == 0) return point;
  const uint32_t k = (uint32_t)below(s, s->space->n), n = s->space->knob[k].n;
  if (n < 2) return point;
  const uint32_t place = bs_space_place(s->space, point, k);
  return bs_space_with(s->space, point, k, (place + 1 + (uint32_t)below(s, n - 1)) % n);
}

static uint64_t elite_point(search *s) {
  const double u = uniform(s); /* the first of them the most often */
  return s->out->rows[s->elite[(size_t)(u * u * s->n_elite)]].point;
}

static uint64_t cross(search *s) {
  const uint64_t a = elite_point(s), b = elite_point(s);
  uint64_t child = a;
  for (uint32_t k = 0; k < s->space->n; k++)
    if (below(s, 2) == 1) child = bs_space_with(s->space, child, k, bs_space_place(s->space, b, k));
  return child;
}

/* ---- strategies ----------------------------------------------------------------------------- */

static int32_t run_full(search *s) {
  int32_t rc = BS_OK;
  for (uint64_t p = 0; p < s->space->size && rc == BS_OK && !s->full; p++)
    if (bs_space_allows(s->space, p)) rc = look(s, p, BS_ORIGIN_ORDER);
  return rc;
}

static int32_t run_random(search *s) {
  int32_t rc = BS_OK;
  uint64_t p = 0;
  while (rc == BS_OK && !is_over(s) && draw(s, &p)) rc = look(s, p, BS_ORIGIN_RANDOM);
  return rc;
}

static int32_t no_point(const search *s) {
  return bs_error_set(s->err, BS_CONFIG, "BS-KNOB-SPACE", "the constraint leaves no point");
}

/* Measures the start, after moving it to a point that the constraint allows. */
static int32_t look_at_start(search *s) {
  const uint64_t size = s->space->size;
  for (uint64_t i = 0; i < size; i++)
    if (is_new(s, (s->of->start + i) % size)) return look(s, (s->of->start + i) % size, BS_ORIGIN_START);
  return no_point(s);
}

/* Takes from the neighbours of all points seen so far the one that is expected to be the fastest. Without
 * predictions it takes the next in order, so points near the start come first. */
static int next_near(const search *s, uint64_t *list, uint64_t *out) {
  double least = INFINITY;
  int found = 0;
  for (size_t i = 0; i < s->out->n; i++) {
    const size_t n = neighbours(s, s->out->rows[i].point, list);
    for (size_t j = 0; j < n; j++) {
      if (!is_new(s, list[j])) continue;
      const double expected = s->of->prior != NULL ? s->of->prior(s->of->user, list[j]) : 0.0;
      if (found && expected >= least) continue;
      least = expected;
      *out = list[j];
      found = 1;
    }
    if (found && s->of->prior == NULL) return 1;
  }
  return found;
}

static int32_t run_fast(search *s, uint64_t *list) {
  const uint64_t most = s->mixed ? FAST_POINTS : UINT64_MAX;
  uint64_t p = 0;
  int32_t rc = look_at_start(s);
  while (rc == BS_OK && s->out->measured < most && !is_over(s) && next_near(s, list, &p))
    rc = look(s, p, BS_ORIGIN_NEIGHBOUR);
  return rc;
}

/* One new point of the first part. */
static int32_t macro_step(search *s, int *out_found) {
  const int crossing = s->n_elite > 1 && uniform(s) < CROSSOVER_SHARE;
  uint64_t p = 0;
  *out_found = 0;
  /* The first points are drawn at random until half of the survivors are known: neighbours of a bad start are
   * bad too. */
  if (2 * s->n_elite < s->survivors || (s->mixed && s->out->n % 4 == 3)) {
    *out_found = draw(s, &p);
    return *out_found ? look(s, p, BS_ORIGIN_RANDOM) : BS_OK;
  }
  for (int i = 0; i < TRIES && !*out_found; i++) {
    p = crossing && i < TRIES / 2 ? cross(s) : mutate(s, elite_point(s));
    *out_found = is_new(s, p);
    if (*out_found) return look(s, p, crossing && i < TRIES / 2 ? BS_ORIGIN_CROSSOVER : BS_ORIGIN_MACRO);
  }
  return BS_OK;
}

/* Tries one new neighbour of a survivor, starting with the fastest survivor. */
static int32_t micro_step(search *s, uint64_t *list, int *out_found) {
  *out_found = 0;
  for (uint32_t e = 0; e < s->n_elite; e++) {
    const size_t n = neighbours(s, s->out->rows[s->elite[e]].point, list);
    const size_t from = n > 0 ? below(s, n) : 0;
    for (size_t i = 0; i < n; i++) {
      const uint64_t p = list[(from + i) % n];
      if (!is_new(s, p)) continue;
      *out_found = 1;
      return look(s, p, BS_ORIGIN_MICRO);
    }
  }
  return BS_OK;
}

static int32_t run_elite(search *s, uint64_t *list) {
  const uint64_t macro = (uint64_t)(MACRO_SHARE * (double)(s->budget - halving_cost(s->finalists)));
  int found = 1;
  int32_t rc = s->out->n > 0 ? BS_OK : look_at_start(s);
  while (rc == BS_OK && found && !is_over(s) && s->out->measured < macro) rc = macro_step(s, &found);
  found = 1;
  while (rc == BS_OK && found && !is_over(s)) rc = micro_step(s, list, &found);
  return rc;
}

/* ---- halving -------------------------------------------------------------------------------- */

static int by_seconds(const void *a, const void *b) {
  const bs_searched_row *x = a, *y = b;
  return x->seconds < y->seconds   ? -1
         : x->seconds > y->seconds ? 1
         : x->point < y->point     ? -1
                                   : x->point > y->point;
}

static int32_t halve(search *s, uint32_t finalists) {
  bs_searched_row row[MOST_FINALISTS];
  size_t chosen[MOST_FINALISTS], n = bs_searched_elite(s->out, finalists, chosen);
  int32_t rc = BS_OK;
  for (size_t i = 0; i < n; i++) row[i] = s->out->rows[chosen[i]];
  for (uint32_t effort = 1; n > 1 && rc == BS_OK; effort++) {
    for (size_t i = 0; i < n && rc == BS_OK; i++) {
      row[i].origin = BS_ORIGIN_FINAL;
      row[i].effort = effort;
      row[i].is_known = 0;
      rc = s->of->measure(s->of->user, row[i].point, effort, &row[i].seconds, s->err);
      if (!(row[i].seconds > 0.0)) row[i].seconds = INFINITY;
      s->out->measured += rc == BS_OK;
      if (rc == BS_OK) rc = add_row(s, &row[i]);
    }
    qsort(row, n, sizeof row[0], by_seconds);
    n = (n + 1) / 2;
  }
  return rc;
}

size_t bs_searched_elite(const bs_searched *of, size_t most, size_t *out) {
  size_t n = 0;
  for (size_t i = 0; i < of->n; i++) {
    const bs_searched_row *r = &of->rows[i];
    int is_last = isfinite(r->seconds);
    for (size_t j = i + 1; j < of->n && is_last; j++) is_last = of->rows[j].point != r->point;
    if (!is_last) continue;
    size_t at = n;
    /* points that went further in the halving come first */
    while (at > 0 &&
           (r->effort > of->rows[out[at - 1]].effort ||
            (r->effort == of->rows[out[at - 1]].effort && r->seconds < of->rows[out[at - 1]].seconds)))
      at--;
    if (at == most) continue;
    if (n < most) n++;
    memmove(&out[at + 1], &out[at], (n - 1 - at) * sizeof out[0]);
    out[at] = i;
  }
  return n;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int32_t explore(search *s, uint64_t *list) {
  switch (s->of->strategy) {
    case BS_STRATEGY_FULL:
      return run_full(s);
    case BS_STRATEGY_RANDOM:
      return run_random(s);
    case BS_STRATEGY_FAST:
      return run_fast(s, list);
    case BS_STRATEGY_ELITE:
      return run_elite(s, list);
    default:
      break;
  }
  const int32_t rc = run_fast(s, list);
  return rc == BS_OK ? run_elite(s, list) : rc;
}

int32_t bs_search_run(const bs_space *space, const bs_search *of, bs_searched *out, bs_error *err) {
  const uint32_t finalists = of->finalists < MOST_FINALISTS ? of->finalists : MOST_FINALISTS;
  const uint64_t points = bs_search_points(of, space);
  search s = {.space = space,
              .of = of,
              .out = out,
              .err = err,
              .budget = points,
              .finalists = affordable(finalists, points / 2),
              .mixed = of->strategy == BS_STRATEGY_MIXED,
              .began = of->now != NULL ? of->now(of->user) : 0.0,
              .survivors = of->survivors == 0               ? SURVIVORS
                           : of->survivors < MOST_SURVIVORS ? of->survivors
                                                            : MOST_SURVIVORS};
  size_t best = 0;
  *out = (bs_searched){.best_seconds = INFINITY};
  uint64_t *list = malloc(NEIGHBOURS * sizeof *list);
  s.seen = calloc(space->size / 8 + 1, 1);
  int32_t rc = list != NULL && s.seen != NULL ? explore(&s, list) : bs_no_memory(err, "a search");
  if (rc == BS_OK && out->n == 0 && !s.full) rc = no_point(&s);
  if (rc == BS_OK) rc = halve(&s, affordable(finalists, points - out->measured));
  free(list);
  free(s.seen);
  if (rc == BS_OK && bs_searched_elite(out, 1, &best) == 1) {
    out->best = out->rows[best].point;
    out->best_seconds = out->rows[best].seconds;
  }
  return rc;
}

void bs_searched_free(bs_searched *of) {
  free(of->rows);
  *of = (bs_searched){0};
}

size_t bs_choose_least(const double *values, size_t n, double worth) {
  size_t best = n;
  for (size_t i = 0; i < n; i++)
    if (values[i] > 0.0 && isfinite(values[i]) && (best == n || values[i] < worth * values[best])) best = i;
  return best;
}
