/* SPDX-License-Identifier: MIT
 * bench_comm.c - `bsrun bench comm`: a row for each size of each collective, in the columns of nccl-tests.
 * Ranks that are processes are copies of this command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/coll/comm_bench.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/constants.h"
#include "lab/phase/simulated.h"
#include "lab/stop.h"
#include "lab/word.h"

static const args_option options[] = {
    {"comm", 0, "NAME", 0, "the communicator; default: that of --plugin or --hardware, else of --launch"},
    {"world-size", 'P', "N", 0, "number of ranks; default: 2"},
    {"launch", 0, "HOW", 0, "ranks are threads (the default), processes (shm), or of an MPI job: mpi"},
    {"coll", 0, "NAME", 1,
     "only this collective: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv"},
    {"min-bytes", 0, "N", 0, "the smallest size, as in 8, 4k; default: 8"},
    {"max-bytes", 0, "N", 0, "the largest size, as in 64M; default: 4M"},
    {"factor", 0, "F", 0, "each size is so many times the one before; default: 2"},
    {"dtype", 0, "T", 0, "f64, f32, f16, bf16 or i32; default: f32"},
    {"samples", 0, "N", 0, "samples of each size, of 2 ms or more each; default: 15"},
    {"timeout", 0, "SECONDS", 0, "deadline of every wait between ranks; default: 60"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin, and the communicator in it"},
    {"hardware", 0, "NAME", 0, "its communicator and its parameters: sim-flat, h100-dgx, or a YAML file"},
    {"config", 0, "FILE", 1, "plugin_dirs and plugin_trust from a YAML file"},
    {"set", 0, "KEY=VALUE", 1, "set one key of it"},
    ARGS_TABLE,
    {"quiet", 'q', NULL, 0, "no progress on stderr"},
    ARGS_HELP,
};

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

enum { HOW_THREADS, HOW_PROCESSES, HOW_MPI, HOWS };
static const char *const hows[HOWS] = {"threads", "processes", "mpi"};

typedef struct request {
  bs_comm_bench bench;
  const args *a;
  bs_node *config;
  json_t *rows;
  const char *algorithm; /* hardware.algorithm */
  const char **kinds;
  char comm[64]; /* of a plugin */
  int how, format, quiet, simulated;
  int timeless; /* a simulated cell took no time */
  uint64_t wrong;
} request;

static int32_t bad_number(const char *option, const char *text, const char *what, bs_error *err) {
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--%s: '%.60s' is not %s", option, text, what);
}

static int32_t read_bytes(const args *a, const char *name, uint64_t fallback, uint64_t *out, bs_error *err) {
  const char *text = args_value(a, name);
  int64_t value = 0;
  *out = fallback;
  if (text == NULL) return BS_OK;
  if (!bs_parse_i64(text, 1, &value) || value < 1 || value > ((int64_t)1 << 40))
    return bad_number(name, text, "a size from 1 to 1024G", err);
  *out = (uint64_t)value;
  return BS_OK;
}

static int32_t read_real(const args *a, const char *name, double low, double high, double *inout,
                         bs_error *err) {
  const char *text = args_value(a, name);
  if (text == NULL) return BS_OK;
  if (bs_parse_f64(text, inout) && *inout >= low && *inout <= high) return BS_OK;
  char what[64];
  snprintf(what, sizeof what, "a number from %g to %g", low, high);
  return bad_number(name, text, what, err);
}

static int32_t read_dtype(const args *a, uint32_t *out, bs_error *err) {
  static const uint32_t measured[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I32};
  *out = BS_F32;
  return args_word(a, "dtype", BS_NAMES_DTYPE, measured, sizeof measured / sizeof measured[0], out, err);
}

static int32_t read_kinds(request *r, bs_error *err) {
  static const char *const all[] = {"all_reduce", "all_gather", "reduce_scatter",
                                    "broadcast",  "all_to_all", "send_recv"};
  enum { ALL = sizeof all / sizeof all[0] };
  size_t n = 0;
  int32_t rc = args_values(r->a, "coll", &r->kinds, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++)
    if (bs_comm_bench_kind(r->kinds[i]) < 0) rc = bsrun_unknown("collective", r->kinds[i], all, ALL, err);
  r->bench.kinds = n > 0 ? r->kinds : all;
  r->bench.n_kinds = n > 0 ? (uint32_t)n : ALL;
  return rc;
}

/* The communicator of a way to launch; a named one is launched as it is known to be. */
static int32_t read_launch(request *r, bs_error *err) {
  const char *how = args_value(r->a, "launch"), *comm = args_value(r->a, "comm");
  if (comm == NULL && how == NULL && args_has(r->a, "hardware"))
    comm = bs_schema_str(r->config, "hardware.comm");
  r->how = HOWS;
  for (int i = 0; how != NULL && i < HOWS; i++)
    if (strcmp(how, hows[i]) == 0) r->how = i;
  if (how != NULL && r->how == HOWS) return bsrun_unknown("way to launch", how, hows, HOWS, err);
  if (how == NULL)
    r->how = comm == NULL                   ? HOW_THREADS
             : strcmp(comm, "shm") == 0     ? HOW_PROCESSES
             : strncmp(comm, "mpi", 3) == 0 ? HOW_MPI
                                            : HOW_THREADS;
  r->bench.comm = comm != NULL              ? comm
                  : r->how == HOW_MPI       ? bs_mpi_of_environment()
                  : r->how == HOW_PROCESSES ? "shm"
                                            : "threads";
  return BS_OK;
}

static int32_t compose(request *r, bs_error *err) {
  char *dir = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = plugins_compose(r->a, dir, NULL, 0, &r->config, err);
  free(dir);
  return rc;
}

static int32_t read_request(const args *a, request *r, bs_error *err) {
  int64_t ranks = 2, samples = 15;
  r->a = a;
  r->bench.factor = 2;
  r->bench.timeout_s = 60;
  r->bench.bind = 1;
  r->quiet = args_has(a, "quiet");
  int32_t rc = bsrun_format(a, &r->format, err);
  if (rc == BS_OK) rc = args_integer(a, "world-size", 2, 1024, 2, &ranks, err);
  if (rc == BS_OK) rc = args_integer(a, "samples", 3, 200, 15, &samples, err);
  if (rc == BS_OK) rc = read_bytes(a, "min-bytes", 8, &r->bench.min_bytes, err);
  if (rc == BS_OK) rc = read_bytes(a, "max-bytes", 4u << 20, &r->bench.max_bytes, err);
  if (rc == BS_OK) rc = read_real(a, "factor", 1.01, 1e6, &r->bench.factor, err);
  if (rc == BS_OK) rc = read_real(a, "timeout", 0.05, 86400, &r->bench.timeout_s, err);
  if (rc == BS_OK) rc = read_dtype(a, &r->bench.dtype, err);
  if (rc == BS_OK) rc = read_kinds(r, err);
  r->bench.ranks = (uint32_t)ranks;
  r->bench.samples = (uint32_t)samples;
  if (rc == BS_OK && r->bench.min_bytes > r->bench.max_bytes)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--min-bytes %llu is larger than --max-bytes %llu",
                      (unsigned long long)r->bench.min_bytes, (unsigned long long)r->bench.max_bytes);
  if (rc == BS_OK) rc = compose(r, err);
  return rc == BS_OK ? read_launch(r, err) : rc;
}

static void add_cell(void *user, const bs_comm_cell *c) {
  request *r = user;
  if (r->simulated && !(c->median_s > 0)) { /* bs_simulated_takes_time tells it */
    r->timeless = 1;
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

/* The communicator that a plugin of --plugin registers, where neither --comm nor another option says which.
 */
static int32_t take_comm(request *r, bs_context *context, bs_error *err) {
  const bs_node *list = bs_config_find(r->config, "plugin");
  int32_t rc = BS_OK;
  if (args_has(r->a, "comm") || args_has(r->a, "launch") || list == NULL || list->kind != BS_NODE_LIST)
    return BS_OK;
  for (const bs_node *item = list->first; rc == BS_OK && item != NULL; item = item->next) {
    char id[64];
    bs_plugin_id_of(item->text, id, sizeof id);
    rc = bs_plugin_activate(context, id, err);
    for (uint32_t i = 0; rc == BS_OK && i < bs_thing_count(context, id); i++) {
      bs_thing_info thing = {.struct_size = sizeof thing};
      rc = bs_thing_get(context, id, i, &thing, err);
      if (rc != BS_OK || thing.kind != BS_KIND_COMM || thing.wrapper) continue;
      snprintf(r->comm, sizeof r->comm, "%s", thing.name);
      r->bench.comm = r->comm;
    }
  }
  return rc;
}

static int32_t measure(request *r, bs_error *err) {
  bs_context *context = NULL;
  char busy[256];
  int32_t rc = bs_context_of_config(r->config, BS_LOG_WARN, bsrun_log, NULL, &context, err);
  if (rc == BS_OK) rc = take_comm(r, context, err);
  r->simulated = rc == BS_OK && bs_clock_is_virtual(context, r->bench.comm);
  r->rows = json_array();
  const char *algorithm = bs_schema_str(r->config, "hardware.algorithm");
  r->bench.algorithm = algorithm;
  r->algorithm = algorithm != NULL && algorithm[0] != '\0' ? algorithm : "native";
  r->bench.each = add_cell;
  r->bench.user = r;
  if (rc == BS_OK && r->rows == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK && !r->simulated && bs_load_is_high(busy, sizeof busy)) bsrun_warn(busy);
  if (rc == BS_OK) rc = bs_comm_bench_run(context, &r->bench, err);
  if (rc == BS_OK && r->timeless) rc = bs_simulated_takes_time(0.0, err);
  if (!r->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  if (bs_context_stuck(context) > 0) bsrun_leave(bsrun_finish(bsrun_fail(err)));
  bsrun_close_context(context);
  return rc;
}

static int32_t run_here(request *r, bs_error *err) {
  if (bsrun_rank_follows()) bsrun_follow();
  bsrun_interruptible("the rows above are measured; --coll NAME and fewer bytes take less time");
  if (r->how == HOW_MPI) bsrun_mpi_enter();
  int32_t rc = measure(r, err);
  if ((rc == BS_OK || bs_stop_asked() != 0) && !bsrun_following()) {
    const int32_t printed =
        bs_report_print(stdout, r->format, fields, sizeof fields / sizeof fields[0], r->rows, NULL);
    if (rc == BS_OK) rc = printed;
  }
  if (rc == BS_OK && r->wrong > 0)
    rc = bs_error_set(err, BS_NUMERIC, "BS-BENCH-WRONG", "%s gave %llu wrong elements: see the column #WRONG",
                      r->bench.comm, (unsigned long long)r->wrong);
  return rc;
}

/* Ends the process with the launcher's code where ranks are processes that it starts. */
static int32_t run(const args *a, bs_error *err) {
  request r = {0};
  int32_t rc = read_request(a, &r, err);
  const char *started = bsrun_rank_how();
  int code = -1;
  if (rc == BS_OK && r.how == HOW_PROCESSES && started == NULL)
    code = bsrun_launch(r.bench.ranks, r.bench.timeout_s);
  if (rc == BS_OK && r.how == HOW_MPI && (started == NULL || strcmp(started, "mpi") != 0))
    code = bsrun_launch_mpi(r.bench.ranks, 0.0, bs_schema_str(r.config, "hardware.mpirun"));
  if (rc == BS_OK && code < 0) rc = run_here(&r, err);
  bs_config_free(r.config);
  json_decref(r.rows);
  free(r.kinds);
  if (code >= 0) bsrun_leave(bsrun_finish(code));
  return rc;
}

const bsrun_subverb bench_comm = {
    "comm",
    "[--comm NAME] [-P N] [--launch HOW] [--coll NAME] [--max-bytes N] [options]",
    "time the collectives of a communicator over sizes",
    "Each size is called in turn by all ranks, behind a barrier, so often that a sample takes 2 ms. TIME is "
    "the\n"
    "median over the samples of the time of a call on the slowest rank. BYTES is the whole vector, ALGBW is\n"
    "BYTES / TIME, BUSBW counts what each rank must send, both as in nccl-tests. send_recv is half of the "
    "way\n"
    "there and back between ranks 0 and 1. Each result is checked before it is timed: #WRONG elements end "
    "in\n"
    "exit code 6. `bsrun sim fit` makes a simulated machine of the rows. On a communicator with virtual "
    "time\n"
    "(--hardware sim-flat) TIMES says simulated: one sample, and nothing is measured.\n",
    "  bsrun bench comm -P 2\n"
    "  bsrun bench comm --launch processes -P 2 --coll all_reduce --max-bytes 16M -o jsonl > shm.jsonl\n"
    "  bsrun bench comm --launch mpi -P 2 --coll all_reduce --dtype bf16 -o csv\n"
    "  bsrun bench comm --hardware sim-flat -P 8 --coll all_reduce\n",
    options,
    run,
    0,
    0};
