/* SPDX-License-Identifier: MIT
 * coll_algorithms.c - algorithms on a real communicator: each time is compared with the simulator's for a
 * link. The link is measured first, unless --hardware names one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/coll_bench.h"
#include "bsrun/launch.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/coll/comm_bench.h"
#include "lab/config/experiment.h"
#include "lab/phase/simulated.h"
#include "lab/stop.h"

static const bs_field fields[] = {
    {"algorithm", "ALGORITHM", 0, 0},
    {"collective", "COLLECTIVE", BS_FIELD_FOLD, 0},
    {"comm", "COMM", BS_FIELD_FOLD, 0},
    {"world_size", "P", BS_FIELD_FOLD, 0},
    {"times", "TIMES", BS_FIELD_FOLD, 0},
    {"link", "LINK", BS_FIELD_FOLD, 0},
    {"alpha_us", "LINK us", BS_FIELD_FOLD, 4},
    {"link_GBps", "LINK GB/s", BS_FIELD_FOLD, 4},
    {"reduce_GBps", "ADDING GB/s", BS_FIELD_FOLD, 4},
    {"bytes", "BYTES", BS_FIELD_RIGHT, 0},
    {"measured_us", "MEASURED us", BS_FIELD_RIGHT, 4},
    {"p10_us", "P10 us", BS_FIELD_WIDE, 4},
    {"p90_us", "P90 us", BS_FIELD_WIDE, 4},
    {"simulated_us", "SIMULATED us", BS_FIELD_RIGHT, 4},
    {"error_percent", "ERROR %", BS_FIELD_RIGHT, 3},
    {"wrong", "#WRONG", BS_FIELD_RIGHT, 0},
};

/* The cells of one algorithm. */
enum { MAX_CELLS = 64 };
typedef struct cells {
  uint32_t n;
  bs_comm_cell of[MAX_CELLS];
} cells;

enum { LINK_CONFIGURED, LINK_MEASURED, LINK_UNKNOWN };
static const char *const link_states[] = {"configured", "measured", "unknown"};

typedef struct request {
  coll_bench *b;
  bs_comm_bench *bench; /* of b */
  const char *kind;
  bs_ccl_place link;
  const char *trace;
  int state; /* of the link */
} request;

static void keep(void *user, const bs_comm_cell *cell) {
  cells *all = user;
  if (all->n < MAX_CELLS) all->of[all->n++] = *cell;
}

/* One round of one_shot, in which (P - 1) / P of the vector leaves a rank and reaches it. */
static int32_t measure_round(request *r, bs_context *context, const char *kind, cells *all, bs_error *err) {
  *all = (cells){0};
  r->kind = kind;
  r->bench->algorithm = "one_shot";
  r->bench->user = all;
  return bs_comm_bench_run(context, r->bench, err);
}

static double moved(const request *r, const bs_comm_cell *cell) {
  return (double)cell->bytes * (r->bench->ranks - 1.0) / r->bench->ranks;
}

/* alpha + beta n by least squares of relative errors, of an all_gather: nothing is added. Returns whether
 * more bytes took more time: those of one size, or of a busy machine, may not. */
static int fit_messages(request *r, const cells *all, double *out_beta) {
  double s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0;
  for (uint32_t i = 0; i < all->n; i++) {
    const double t = all->of[i].median_s, n = moved(r, &all->of[i]), w = 1 / (t * t);
    s0 += w;
    s1 += w * n;
    s2 += w * n * n;
    t0 += w * t;
    t1 += w * n * t;
  }
  const double d = s0 * s2 - s1 * s1;
  *out_beta = d > 0 ? (s0 * t1 - s1 * t0) / d : 0;
  if (!(*out_beta > 0)) return 0;
  r->link.bytes_per_s = 1 / *out_beta;
  r->link.alpha_s = t0 * s2 > t1 * s1 ? (t0 * s2 - t1 * s1) / d : 0;
  return 1;
}

/* Fits the cost of an addition: the time of a reduce_scatter beyond that of the same messages. */
static void fit_adding(request *r, const cells *all, double beta) {
  double s = 0, t = 0;
  for (uint32_t i = 0; i < all->n; i++) {
    const double n = moved(r, &all->of[i]), w = 1 / (all->of[i].median_s * all->of[i].median_s);
    s += w * n * n;
    t += w * n * (all->of[i].median_s - r->link.alpha_s - beta * n);
  }
  r->link.reduce_bytes_per_s = t > 0 ? s / t : 0;
}

/* Without a fit the measurement goes on, and its rows have no simulated times. */
static int32_t measure_link(request *r, bs_context *context, bs_error *err) {
  cells all;
  double beta = 0;
  int32_t rc = measure_round(r, context, "all_gather", &all, err);
  r->state = LINK_MEASURED;
  if (rc == BS_OK && !bsrun_following() && !fit_messages(r, &all, &beta)) {
    r->state = LINK_UNKNOWN;
    bsrun_warn(
        "more bytes took no more time (one size, or a busy machine): no link can be fitted, so nothing "
        "is simulated; give more sizes, or --hardware");
  }
  if (r->state == LINK_UNKNOWN && r->trace != NULL)
    bsrun_warn("--to: no trace is written, for no time is simulated");
  if (rc == BS_OK) rc = measure_round(r, context, "reduce_scatter", &all, err);
  if (rc == BS_OK && !bsrun_following() && r->state == LINK_MEASURED) fit_adding(r, &all, beta);
  return rc;
}

/* Takes from a row what the simulator says of a link that is not known. */
static void drop_simulated(json_t *row) {
  static const char *const names[] = {"alpha_us", "link_GBps", "simulated_us"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) json_object_del(row, names[i]);
}

static int32_t add_row(request *r, const bs_ccl *ccl, const bs_comm_cell *cell, const char *trace,
                       bs_error *err) {
  bs_ccl_place place = r->link;
  const int32_t rc = r->b->simulated ? bs_simulated_takes_time(cell->median_s, err) : BS_OK;
  if (rc != BS_OK) return rc;
  place.kind = cell->kind;
  place.world_size = r->bench->ranks;
  place.element_bytes = BS_DTYPE_BYTES(r->bench->dtype);
  place.count = cell->count;
  place.trace_file = r->state != LINK_UNKNOWN ? trace : NULL;
  json_t *row = bs_ccl_explain(ccl, &place, err);
  const int32_t stopped = row != NULL ? bs_stop_check(err) : err->code;
  if (stopped != BS_OK) {
    json_decref(row);
    return stopped;
  }
  coll_note_trace(place.trace_file, row);
  const double measured = cell->median_s * 1e6;
  const double simulated = json_real_value(json_object_get(row, "simulated_us"));
  json_object_set_new(row, "comm", json_string(r->bench->comm));
  json_object_set_new(row, "times", json_string(r->b->simulated ? "simulated" : "measured"));
  if (place.reduce_bytes_per_s > 0)
    json_object_set_new(row, "reduce_GBps", json_real(place.reduce_bytes_per_s * 1e-9));
  json_object_set_new(row, "link", json_string(link_states[r->state]));
  json_object_set_new(row, "bytes", json_integer((json_int_t)cell->bytes));
  json_object_set_new(row, "measured_us", json_real(measured));
  json_object_set_new(row, "p10_us", json_real(cell->p10_s * 1e6));
  json_object_set_new(row, "p90_us", json_real(cell->p90_s * 1e6));
  if (r->state != LINK_UNKNOWN)
    json_object_set_new(row, "error_percent", json_real((simulated / measured - 1) * 100));
  else
    drop_simulated(row);
  json_object_set_new(row, "wrong", json_integer((json_int_t)cell->wrong));
  json_array_append_new(r->b->rows, row);
  r->b->wrong += cell->wrong;
  return BS_OK;
}

/* "NAME:key=value,...", as hardware.algorithm has it. */
static int32_t open_text(bs_context *context, const char *text, bs_ccl *out, bs_error *err) {
  char copy[512];
  const char *given[BS_ALGORITHM_MAX_OPTIONS];
  size_t n = 0;
  snprintf(copy, sizeof copy, "%s", text);
  char *next = strchr(copy, ':');
  while (next != NULL && n < BS_ALGORITHM_MAX_OPTIONS) {
    *next++ = '\0';
    given[n++] = next;
    next = strchr(next, ',');
  }
  return bs_ccl_open(context, copy, given, n, out, err);
}

static int32_t bench_one(request *r, bs_context *context, const char *name, bs_error *err) {
  cells all = {0};
  bs_ccl ccl;
  bs_ccl_place place;
  int32_t rc = open_text(context, name, &ccl, err);
  if (rc != BS_OK) return rc;
  rc = coll_place(r->b->a, &ccl, &place, err);
  if (rc == BS_OK && bs_comm_bench_kind(bs_name_of(BS_NAMES_COLL, place.kind)) < 0)
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-CCL-BENCH", "%s is not measured",
                      bs_name_of(BS_NAMES_COLL, place.kind));
  if (rc == BS_OK) {
    r->kind = bs_name_of(BS_NAMES_COLL, place.kind);
    r->bench->algorithm = name;
    r->bench->user = &all;
    rc = bs_comm_bench_run(context, r->bench, err);
  }
  for (uint32_t i = 0; rc == BS_OK && i < all.n && !bsrun_following(); i++)
    rc = add_row(r, &ccl, &all.of[i], i + 1 == all.n ? r->trace : NULL, err);
  bs_ccl_free(&ccl);
  return rc;
}

int32_t coll_bench_algorithms(coll_bench *b, bs_context *context, bs_error *err) {
  request r = {.b = b, .bench = &b->bench};
  const int configured = b->simulated || args_has(b->a, "hardware") || args_has(b->a, "set");
  b->bench.n_kinds = 1;
  b->bench.kinds = &r.kind;
  b->bench.each = keep;
  int32_t rc = coll_trace(b->a, &r.trace, err);
  if (rc == BS_OK && configured) rc = bs_ccl_place_link(context, &r.link, err);
  if (rc == BS_OK && configured && r.link.alpha_s <= 0 && r.link.bytes_per_s <= 0) {
    rc = bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE", "no message takes time on the machine that is given");
    bs_error_hint(err, "--hardware sim-flat or another simulated machine; without one the link is measured");
  }
  if (rc == BS_OK && !configured) rc = measure_link(&r, context, err);
  for (size_t i = 0; rc == BS_OK && i < b->a->n_words; i++) rc = bench_one(&r, context, b->a->words[i], err);
  return rc;
}

int32_t coll_print_algorithms(const coll_bench *b, bs_error *err) {
  return bs_report_print(stdout, b->format, fields, sizeof fields / sizeof fields[0], b->rows, err);
}
