/* SPDX-License-Identifier: MIT
 * ccl_bench.c - `bsrun ccl bench`: algorithms on a real communicator, each time beside the one that the
 * simulator gives for a link. The link is measured first, unless --hardware names one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/ccl.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/coll/comm_bench.h"
#include "lab/config/experiment.h"
#include "lab/phase/simulated.h"

static const args_option options[] = {
    {"comm", 0, "NAME", 0, "the communicator: threads (default), shm, or an MPI's"},
    {"world-size", 'P', "N", 0, "number of ranks; default: 2"},
    {"coll", 0, "NAME", 0, "the collective; default: all_reduce, or the first that it serves"},
    {"min-bytes", 0, "N", 0, "the smallest vector; default: 1024"},
    {"max-bytes", 0, "N", 0, "the largest vector; default: 4194304"},
    {"samples", 0, "N", 0, "samples of each size; default: 9"},
    {"timeout", 0, "SECONDS", 0, "deadline of every wait between ranks; default: 60"},
    {"hardware", 0, "NAME", 0, "the simulated link; default: measured by messages between the ranks"},
    {"trace", 0, "FILE", 0, "the simulated messages of the largest size, for Perfetto; of one algorithm"},
    {"plugin", 0, "ID|PATH", 1, "also look at this plugin"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key, as plugins.sim.alpha_s=1e-6"},
    ARGS_TABLE,
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    ARGS_HELP,
};

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

typedef struct request {
  const args *a;
  bs_comm_bench bench;
  const char *kind;
  int32_t how; /* 0 threads, 1 processes, 2 MPI */
  bs_ccl_place link;
  const char *trace;
  int measured, simulated; /* the link; the communicator's clock */
  uint64_t wrong;
  json_t *rows;
} request;

static void keep(void *user, const bs_comm_cell *cell) {
  cells *all = user;
  if (all->n < MAX_CELLS) all->of[all->n++] = *cell;
}

static int32_t read_request(const args *a, request *r, bs_error *err) {
  const char *comm = args_value(a, "comm");
  int64_t ranks = 2, low = 1024, high = 4194304, samples = 9, timeout = 60;
  r->a = a;
  r->bench.comm = comm == NULL ? "threads" : strcmp(comm, "mpi") == 0 ? bs_mpi_of_environment() : comm;
  r->how = strcmp(r->bench.comm, "shm") == 0 ? 1 : strncmp(r->bench.comm, "mpi", 3) == 0 ? 2 : 0;
  int32_t rc = ccl_trace(a, &r->trace, err);
  if (rc == BS_OK) rc = args_integer(a, "world-size", 2, 1024, 2, &ranks, err);
  if (rc == BS_OK) rc = args_integer(a, "min-bytes", 64, INT64_C(1) << 32, 1024, &low, err);
  if (rc == BS_OK) rc = args_integer(a, "max-bytes", 64, INT64_C(1) << 32, 4194304, &high, err);
  if (rc == BS_OK) rc = args_integer(a, "samples", 3, 200, 9, &samples, err);
  if (rc == BS_OK) rc = args_integer(a, "timeout", 1, 86400, 60, &timeout, err);
  if (rc == BS_OK && low > high)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--min-bytes %lld is larger than --max-bytes %lld",
                      (long long)low, (long long)high);
  r->bench.ranks = (uint32_t)ranks;
  r->bench.dtype = BS_F32;
  r->bench.bind = 1;
  r->bench.min_bytes = (uint64_t)low;
  r->bench.max_bytes = (uint64_t)high;
  r->bench.factor = 8;
  r->bench.samples = (uint32_t)samples;
  r->bench.timeout_s = (double)timeout;
  r->bench.n_kinds = 1;
  r->bench.kinds = &r->kind;
  r->bench.each = keep;
  return rc;
}

/* One round of one_shot, in which (P - 1) / P of the vector leaves a rank and reaches it. */
static int32_t measure_round(request *r, bs_context *context, const char *kind, cells *all, bs_error *err) {
  *all = (cells){0};
  r->kind = kind;
  r->bench.algorithm = "one_shot";
  r->bench.user = all;
  return bs_comm_bench_run(context, &r->bench, err);
}

static double moved(const request *r, const bs_comm_cell *cell) {
  return (double)cell->bytes * (r->bench.ranks - 1.0) / r->bench.ranks;
}

/* alpha + beta n by least squares of relative errors, of an all_gather: nothing is added. */
static int32_t fit_messages(request *r, const cells *all, double *out_beta, bs_error *err) {
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
  if (!(*out_beta > 0))
    return bs_error_set(err, BS_INCONCLUSIVE, "BS-CCL-LINK",
                        "more bytes took no more time: no link can be fitted (one size, or a busy machine)");
  r->link.bytes_per_s = 1 / *out_beta;
  r->link.alpha_s = t0 * s2 > t1 * s1 ? (t0 * s2 - t1 * s1) / d : 0;
  return BS_OK;
}

/* What a reduce_scatter takes beyond the same messages is the adding. */
static void fit_adding(request *r, const cells *all, double beta) {
  double s = 0, t = 0;
  for (uint32_t i = 0; i < all->n; i++) {
    const double n = moved(r, &all->of[i]), w = 1 / (all->of[i].median_s * all->of[i].median_s);
    s += w * n * n;
    t += w * n * (all->of[i].median_s - r->link.alpha_s - beta * n);
  }
  r->link.reduce_bytes_per_s = t > 0 ? s / t : 0;
}

static int32_t measure_link(request *r, bs_context *context, bs_error *err) {
  cells all;
  double beta = 0;
  int32_t rc = measure_round(r, context, "all_gather", &all, err);
  if (rc == BS_OK && !bsrun_following()) rc = fit_messages(r, &all, &beta, err);
  if (rc == BS_OK) rc = measure_round(r, context, "reduce_scatter", &all, err);
  if (rc == BS_OK && !bsrun_following()) fit_adding(r, &all, beta);
  r->measured = 1;
  return rc;
}

static int32_t add_row(request *r, const bs_ccl *ccl, const bs_comm_cell *cell, const char *trace,
                       bs_error *err) {
  bs_ccl_place place = r->link;
  const int32_t rc = r->simulated ? bs_simulated_takes_time(cell->median_s, err) : BS_OK;
  if (rc != BS_OK) return rc;
  place.kind = cell->kind;
  place.world_size = r->bench.ranks;
  place.element_bytes = 4;
  place.count = cell->count;
  place.trace_file = trace;
  json_t *row = bs_ccl_explain(ccl, &place, err);
  if (row == NULL) return err->code;
  ccl_note_trace(trace, row);
  const double measured = cell->median_s * 1e6;
  const double simulated = json_real_value(json_object_get(row, "simulated_us"));
  json_object_set_new(row, "comm", json_string(r->bench.comm));
  json_object_set_new(row, "times", json_string(r->simulated ? "simulated" : "measured"));
  if (place.reduce_bytes_per_s > 0)
    json_object_set_new(row, "reduce_GBps", json_real(place.reduce_bytes_per_s * 1e-9));
  json_object_set_new(row, "link", json_string(r->measured ? "measured" : "configured"));
  json_object_set_new(row, "bytes", json_integer((json_int_t)cell->bytes));
  json_object_set_new(row, "measured_us", json_real(measured));
  json_object_set_new(row, "p10_us", json_real(cell->p10_s * 1e6));
  json_object_set_new(row, "p90_us", json_real(cell->p90_s * 1e6));
  json_object_set_new(row, "error_percent", json_real((simulated / measured - 1) * 100));
  json_object_set_new(row, "wrong", json_integer((json_int_t)cell->wrong));
  json_array_append_new(r->rows, row);
  r->wrong += cell->wrong;
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
  rc = ccl_place(r->a, &ccl, &place, err);
  if (rc == BS_OK && bs_comm_bench_kind(bs_name_of(BS_NAMES_COLL, place.kind)) < 0)
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-CCL-BENCH", "%s is not measured",
                      bs_name_of(BS_NAMES_COLL, place.kind));
  if (rc == BS_OK) {
    r->kind = bs_name_of(BS_NAMES_COLL, place.kind);
    r->bench.algorithm = name;
    r->bench.user = &all;
    rc = bs_comm_bench_run(context, &r->bench, err);
  }
  for (uint32_t i = 0; rc == BS_OK && i < all.n && !bsrun_following(); i++)
    rc = add_row(r, &ccl, &all.of[i], i + 1 == all.n ? r->trace : NULL, err);
  bs_ccl_free(&ccl);
  return rc;
}

static int32_t measure(request *r, bs_error *err) {
  bs_context *context = NULL;
  int32_t rc = ccl_context(r->a, NULL, &context, err);
  r->simulated = rc == BS_OK && bs_clock_is_virtual(context, r->bench.comm);
  const int configured = r->simulated || args_has(r->a, "hardware") || args_has(r->a, "set");
  if (rc == BS_OK && configured) rc = bs_ccl_place_link(context, &r->link, err);
  if (rc == BS_OK && !configured) rc = measure_link(r, context, err);
  for (size_t i = 0; rc == BS_OK && i < r->a->n_words; i++) rc = bench_one(r, context, r->a->words[i], err);
  if (context != NULL && bs_context_stuck(context) > 0) bsrun_leave(bsrun_finish(bsrun_fail(err)));
  bsrun_close_context(context);
  return rc;
}

static int32_t run_here(request *r, bs_error *err) {
  int format = 0;
  if (bsrun_rank_follows()) bsrun_follow();
  if (r->how == 2) bsrun_mpi_enter();
  r->rows = json_array();
  int32_t rc = bsrun_format(r->a, &format, err);
  if (rc == BS_OK) rc = measure(r, err);
  if (rc == BS_OK && !bsrun_following())
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], r->rows, err);
  json_decref(r->rows);
  if (rc == BS_OK && r->wrong > 0)
    rc = bs_error_set(err, BS_NUMERIC, "BS-BENCH-WRONG", "%llu elements are wrong: see the column #WRONG",
                      (unsigned long long)r->wrong);
  return rc;
}

static int32_t run(const args *a, bs_error *err) {
  request r = {0};
  const char *started = bsrun_rank_how();
  int code = -1;
  const int32_t rc = read_request(a, &r, err);
  if (rc == BS_OK && r.how == 1 && started == NULL) code = bsrun_launch(r.bench.ranks, r.bench.timeout_s);
  if (rc == BS_OK && r.how == 2 && (started == NULL || strcmp(started, "mpi") != 0))
    code = bsrun_launch_mpi(r.bench.ranks, 0.0, "");
  if (code >= 0) bsrun_leave(bsrun_finish(code));
  return rc == BS_OK ? run_here(&r, err) : rc;
}

const bsrun_subverb ccl_bench = {
    .name = "bench",
    .words = "NAME[:KEY=VALUE,...]... [options]",
    .summary = "runs algorithms on a communicator: measured beside simulated, and the error",
    .about =
        "The simulated link is fitted to messages that the ranks exchange first, and the rate of adding to "
        "the\n"
        "time that adding them takes; --hardware gives both instead. On a communicator with virtual time\n"
        "(--comm sim) TIMES says simulated: the host's run of the schedule, beside the checker's.\n",
    .examples =
        "  bsrun ccl bench ring two_shot -P 2\n"
        "  bsrun ccl bench ring two_shot --comm mpi -P 2 -o json\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 32,
};
