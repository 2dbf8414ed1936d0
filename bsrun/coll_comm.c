/* SPDX-License-Identifier: MIT
 * coll_comm.c - a row for each size of each collective of a communicator, in the columns of nccl-tests. */
#include <unistd.h>

#include "bsrun/coll_bench.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/measure/constants.h"
#include "lab/phase/simulated.h"

static const bs_field fields[] = {
    {"coll", "COLLECTIVE", BS_FIELD_FOLD, 0},
    {"comm", "COMM", BS_FIELD_FOLD, 0},
    {"ranks", "P", BS_FIELD_FOLD, 0},
    {"dtype", "DTYPE", BS_FIELD_FOLD, 0},
    {"times", "TIMES", BS_FIELD_FOLD, 0},
    {"bytes", "BYTES", BS_FIELD_RIGHT, 0},
    {"count", "COUNT", BS_FIELD_RIGHT, 0},
    {"time_us", "TIME us", BS_FIELD_RIGHT, 4},
    {"p10_us", "P10 us", BS_FIELD_RIGHT, 4},
    {"p90_us", "P90 us", BS_FIELD_RIGHT, 4},
    {"algbw_GBps", "ALGBW GB/s", BS_FIELD_RIGHT, 4},
    {"busbw_GBps", "BUSBW GB/s", BS_FIELD_RIGHT, 4},
    {"wrong", "#WRONG", BS_FIELD_RIGHT, 0},
    {"algorithm", "ALGORITHM", BS_FIELD_FOLD, 0},
    {"samples", "SAMPLES", BS_FIELD_WIDE, 0},
    {"calls", "CALLS", BS_FIELD_WIDE, 0},
};

typedef struct cells {
  coll_bench *of;
  int timeless; /* a simulated cell took no time */
} cells;

static void add_cell(void *user, const bs_comm_cell *c) {
  cells *all = user;
  coll_bench *r = all->of;
  if (r->simulated && !(c->median_s > 0)) { /* bs_simulated_takes_time tells it */
    all->timeless = 1;
    return;
  }
  const double algbw = (double)c->bytes / c->median_s * 1e-9;
  r->wrong += c->wrong;
  json_array_append_new(
      r->rows,
      json_pack("{s:s, s:s, s:I, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:s, s:I, s:I}", "coll",
                bs_comm_bench_name(c->kind), "comm", r->bench.comm, "ranks", (json_int_t)r->bench.ranks,
                "dtype", bs_dtype_name(r->bench.dtype), "times", r->simulated ? "simulated" : "measured",
                "bytes", (json_int_t)c->bytes, "count", (json_int_t)c->count, "time_us", c->median_s * 1e6,
                "p10_us", c->p10_s * 1e6, "p90_us", c->p90_s * 1e6, "algbw_GBps", algbw, "busbw_GBps",
                algbw * bs_bus_factor(c->kind, r->bench.ranks), "wrong", (json_int_t)c->wrong, "algorithm",
                r->algorithm, "samples", (json_int_t)c->samples, "calls", (json_int_t)c->calls));
  if (!r->quiet && isatty(STDERR_FILENO))
    bs_print(stderr, "\r\033[K%s, %llu bytes: %.4g us", bs_comm_bench_name(c->kind),
             (unsigned long long)c->bytes, c->median_s * 1e6);
}

int32_t coll_bench_comm(coll_bench *b, bs_context *context, bs_error *err) {
  cells all = {.of = b};
  const char *algorithm = bs_schema_str(b->config, "hardware.algorithm");
  b->bench.algorithm = algorithm;
  b->algorithm = algorithm != NULL && algorithm[0] != '\0' ? algorithm : "native";
  b->bench.each = add_cell;
  b->bench.user = &all;
  int32_t rc = bs_comm_bench_run(context, &b->bench, err);
  if (rc == BS_OK && all.timeless) rc = bs_simulated_takes_time(0.0, err);
  if (!b->quiet && isatty(STDERR_FILENO)) bs_print(stderr, "\r\033[K");
  return rc;
}

int32_t coll_print_comm(const coll_bench *b, bs_error *err) {
  return bs_report_print(stdout, b->format, fields, sizeof fields / sizeof fields[0], b->rows, err);
}
