/* SPDX-License-Identifier: MIT
 * coll_bench.c - `bsrun coll bench`: reads what is asked, starts the ranks and prints the rows. Ranks that
 * are processes are copies of this command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/coll_bench.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/constants.h"
#include "lab/phase/simulated.h"
#include "lab/stop.h"
#include "lab/word.h"

static const args_option options[] = {
    {OPT_COMM, "default: that of --plugin or --hardware, else of --launch", 0},
    {OPT_WORLD_SIZE, "default: 2", 0},
    {OPT_LAUNCH, NULL, 0},
    {OPT_COLL, "several with commas; default: all", 0},
    {OPT_SIZE, "one, or FIRST:LAST*FACTOR; default: 8:4Mi*2, with NAME 1Ki:4Mi*8", 0},
    {OPT_DTYPE, "default: f32", 0},
    {OPT_SAMPLES, "of each size, 2 ms or more each; default: 15, with NAME 9", 0},
    {OPT_WARMUP, "of each size, behind the one that is checked; default: 3", 0},
    {OPT_TIMEOUT, "of every wait between ranks; default: 60", 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_HARDWARE, "its communicator; with NAME the simulated link", 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_TO, "the simulated messages of the largest size, for Perfetto; of one NAME", 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

enum { HOW_THREADS, HOW_PROCESSES, HOW_MPI, HOWS };
static const char *const hows[HOWS] = {"threads", "processes", "mpi"};

static int32_t bad_number(const char *option, const char *text, const char *what, bs_error *err) {
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--%s: '%.60s' is not %s", option, text, what);
}

/* Reads one size of --size; *inout_at then points after it. */
static int read_size(const char **inout_at, uint64_t *out) {
  char number[32];
  int64_t value = 0;
  const size_t n = strcspn(*inout_at, ":*");
  snprintf(number, sizeof number, "%.*s", (int)(n < sizeof number ? n : 0), *inout_at);
  *inout_at += n;
  const int good = bs_parse_size(number, &value) && value >= 1 && value <= INT64_C(1) << 40;
  *out = (uint64_t)value;
  return good;
}

/* --size: one, or FIRST:LAST*FACTOR. */
static int32_t read_sizes(coll_bench *r, int named, bs_error *err) {
  const char *text = args_value(r->a, "size"), *at = text;
  r->bench.min_bytes = named ? 1024 : 8;
  r->bench.max_bytes = 4u << 20;
  r->bench.factor = named ? 8 : 2;
  if (text == NULL) return BS_OK;
  int good = read_size(&at, &r->bench.min_bytes);
  if (good && *at == '\0') {
    r->bench.max_bytes = r->bench.min_bytes;
  } else if (good && *at == ':') {
    at++;
    good = read_size(&at, &r->bench.max_bytes) && *at == '*' && bs_parse_f64(at + 1, &r->bench.factor) &&
           r->bench.factor >= 1.01 && r->bench.factor <= 1e6 && r->bench.min_bytes <= r->bench.max_bytes;
  } else {
    good = 0;
  }
  if (good) return BS_OK;
  bad_number("size", text, "one size or FIRST:LAST*FACTOR, from 1 to 1024Gi", err);
  bs_error_hint(err, "as in --size 1Mi, or --size 8:4Mi*2 with a factor from 1.01");
  return BS_USAGE;
}

static int32_t read_dtype(const args *a, uint32_t *out, bs_error *err) {
  static const uint32_t measured[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I32};
  *out = BS_F32;
  return args_word(a, "dtype", BS_NAMES_DTYPE, measured, sizeof measured / sizeof measured[0], out, err);
}

static int32_t read_kinds(coll_bench *r, bs_error *err) {
  static const char *const all[] = {"all_reduce", "all_gather", "reduce_scatter",
                                    "broadcast",  "all_to_all", "send_recv"};
  enum { ALL = sizeof all / sizeof all[0] };
  size_t n = 0;
  int32_t rc = args_list(r->a, "coll", &r->kinds, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++)
    if (bs_comm_bench_kind(r->kinds[i]) < 0) rc = bsrun_unknown("collective", r->kinds[i], all, ALL, err);
  r->bench.kinds = n > 0 ? r->kinds : all;
  r->bench.n_kinds = n > 0 ? (uint32_t)n : ALL;
  if (rc == BS_OK && r->a->n_words > 0 && n > 1)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--coll: of an algorithm one collective is measured");
  return rc;
}

/* The communicator of a way to launch; a named one is launched as it is known to be. */
static int32_t read_launch(coll_bench *r, bs_error *err) {
  const char *how = args_value(r->a, "launch"), *comm = args_value(r->a, "comm");
  if (comm != NULL && strcmp(comm, "mpi") == 0) comm = bs_mpi_of_environment();
  if (comm == NULL && how == NULL && r->a->n_words == 0 && args_has(r->a, "hardware"))
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

static int32_t read_request(const args *a, coll_bench *r, bs_error *err) {
  const int named = a->n_words > 0;
  const char *trace = NULL;
  int64_t ranks = 2, samples = 15, warmup = 3;
  r->a = a;
  r->bench.bind = 1;
  r->quiet = args_has(a, "quiet");
  int32_t rc = bsrun_format(a, &r->format, err);
  if (rc == BS_OK) rc = args_integer(a, "world-size", 2, 1024, 2, &ranks, err);
  if (rc == BS_OK) rc = args_integer(a, "samples", 3, 200, named ? 9 : 15, &samples, err);
  if (rc == BS_OK) rc = args_integer(a, "warmup", 1, 1000000, 3, &warmup, err);
  if (rc == BS_OK) rc = read_sizes(r, named, err);
  if (rc == BS_OK) rc = args_real(a, "timeout", 0.05, 86400, 60, &r->bench.timeout_s, err);
  if (rc == BS_OK) rc = coll_trace(a, &trace, err);
  if (rc == BS_OK) rc = read_dtype(a, &r->bench.dtype, err);
  if (rc == BS_OK) rc = read_kinds(r, err);
  r->bench.ranks = (uint32_t)ranks;
  r->bench.samples = (uint32_t)samples;
  r->bench.warmup = (uint32_t)warmup;
  if (rc == BS_OK) rc = bsrun_base_config(r->a, &r->config, err);
  return rc == BS_OK ? read_launch(r, err) : rc;
}

/* The communicator that a plugin of --plugin registers, where neither --comm nor another option says which.
 */
static int32_t take_comm(coll_bench *r, bs_context *context, bs_error *err) {
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

static int32_t measure(coll_bench *r, bs_error *err) {
  bs_context *context = NULL;
  char busy[256];
  const int32_t level = args_has(r->a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN;
  int32_t rc = bs_context_of_config(r->config, level, bsrun_log, NULL, &context, err);
  if (rc == BS_OK) rc = take_comm(r, context, err);
  r->simulated = rc == BS_OK && bs_clock_is_virtual(context, r->bench.comm);
  r->rows = json_array();
  if (rc == BS_OK && r->rows == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK && !r->simulated && bs_load_is_high(busy, sizeof busy)) bsrun_warn(busy);
  if (rc == BS_OK && r->a->n_words > 0)
    rc = coll_bench_algorithms(r, context, err);
  else if (rc == BS_OK)
    rc = coll_bench_comm(r, context, err);
  if (context != NULL && bs_context_stuck(context) > 0) bsrun_leave(bsrun_finish(bsrun_fail(err)));
  bsrun_close_context(context);
  return rc;
}

static int32_t run_here(coll_bench *r, bs_error *err) {
  if (bsrun_rank_follows()) bsrun_follow();
  bsrun_interruptible(r->a->n_words > 0
                          ? "the algorithms above are measured; fewer sizes take less time"
                          : "the rows above are measured; --coll NAME and fewer bytes take less time");
  if (r->how == HOW_MPI) bsrun_mpi_enter();
  int32_t rc = measure(r, err);
  if ((rc == BS_OK || bs_stop_asked() != 0 || json_array_size(r->rows) > 0) && !bsrun_following()) {
    bs_error *why = rc == BS_OK ? err : NULL; /* what ended it stays the error */
    const int32_t printed = r->a->n_words > 0 ? coll_print_algorithms(r, why) : coll_print_comm(r, why);
    if (rc == BS_OK) rc = printed;
  }
  if (rc == BS_OK && r->wrong > 0)
    rc = bs_error_set(err, BS_NUMERIC, "BS-BENCH-WRONG", "%s gave %llu wrong elements: see the column #WRONG",
                      r->bench.comm, (unsigned long long)r->wrong);
  return rc;
}

/* Ends the process with the launcher's code where ranks are processes that it starts. */
static int32_t run(const args *a, bs_error *err) {
  coll_bench r = {0};
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

const bsrun_verb coll_bench_verb = {
    .name = "bench",
    .words = "[NAME[:KEY=VALUE,...]]... [options]",
    .summary = "time the collectives of a communicator, or algorithms (NAME) on it",
    .about =
        "For each size all ranks call the collective after a barrier, as often as a sample of 2 ms\n"
        "takes. TIME is the median over the samples of the time of a call on the slowest rank. BYTES is\n"
        "the whole vector, ALGBW is BYTES / TIME, BUSBW counts what each rank must send, both as in\n"
        "nccl-tests. send_recv is half of the way there and back between ranks 0 and 1. Each result is\n"
        "checked before it is timed: #WRONG elements end in exit code 6. `bsrun sim fit` makes a\n"
        "simulated machine of the rows. On a communicator with virtual time (--hardware sim-flat) TIMES\n"
        "says simulated: one sample, and nothing is measured.\n"
        "\n"
        "NAME: each measured time has the simulated one for a link next to it, and the error. The link\n"
        "is fitted to messages that the ranks exchange first, and the rate of adding to the time that\n"
        "adding them takes; --hardware gives both instead. If more bytes took no more time, LINK says\n"
        "unknown and the simulated times are missing. On a communicator with virtual time (--comm\n"
        "sim) TIMES says simulated: the host runs the schedule, and its time stands next to the\n"
        "checker's.\n",
    .examples =
        "  bsrun coll bench -P 2\n"
        "  bsrun coll bench --launch processes -P 2 --coll all_reduce --size 8:16Mi*2 -o jsonl > shm.jsonl\n"
        "  bsrun coll bench --launch mpi -P 2 --coll all_reduce --dtype bf16 -o csv\n"
        "  bsrun coll bench --hardware sim-flat -P 8 --coll all_reduce\n"
        "  bsrun coll bench ring two_shot -P 2\n"
        "  bsrun coll bench ring two_shot --comm mpi -P 2 -o json\n",
    .options = options,
    .run = run,
    .max_words = 32,
    .takes = "algorithms",
};
