/* SPDX-License-Identifier: MIT
 * sim_run.c - `bsrun sim run`: a trace of others, Chakra or GOAL, on a simulated machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bsrun/bsrun.h"
#include "bsrun/sim_machine.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/chakra.h"
#include "formats/goal.h"
#include "lab/config/experiment.h"
#include "lab/sim/trace_machine.h"

static const args_option options[] = {
    {OPT_HARDWARE, NULL, 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_CALC, NULL, 0},
    {OPT_WITH_GROUPS, NULL, 0},
    {OPT_WITH_LOGGP_NS, NULL, 0},
    {OPT_TO, NULL, 0},
    {OPT_TO_ET, NULL, 0},
    {OPT_TO_TRACE, NULL, 0},
    {OPT_TO_GOAL, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"ranks", "RANKS", 0, 0},
    {"nodes", "NODES", BS_FIELD_RIGHT, 0},
    {"time_us", "TIME us", BS_FIELD_RIGHT, 9},
    {"compute_us", "COMPUTE us", BS_FIELD_RIGHT, 9},
    {"communication_us", "COMMUNICATION us", BS_FIELD_RIGHT, 9},
    {"exposed_wait_us", "EXPOSED WAIT us", BS_FIELD_RIGHT, 9},
    {"count", "COUNT", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"simulated_us", "ALL RANKS us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"messages", "MESSAGES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"message_bytes", "MESSAGE BYTES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"collectives", "COLLECTIVES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"recorded", "RECORDED", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"modelled", "BY THE MODEL", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"without_time", "WITHOUT A TIME", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"unknown_attributes", "UNKNOWN ATTRIBUTES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"format", "FORMAT", BS_FIELD_WIDE, 0},
    {"machine", "MACHINE", BS_FIELD_WIDE, 0},
    {"label", "LABEL", BS_FIELD_WIDE, 0},
    {"domain", "DOMAIN", BS_FIELD_WIDE, 0},
    {"links", "LINKS", BS_FIELD_WIDE, 0},
};

typedef struct request {
  const args *a;
  bs_et et;
  int is_goal;
  uint32_t calc; /* enum bs_trace_calc */
  bs_trace_place place;
  bs_trace_rank *ranks;
  bs_trace_result result;
  sim_machine machine;
  const char *links;
} request;

/* ---- reading ------------------------------------------------------------------------------------ */

/* A path of a file without the ending .et is GOAL; another one is the beginning of Chakra's files. */
static int32_t read_trace(request *r, bs_error *err) {
  const char *path = r->a->words[0], *groups = args_value(r->a, "groups");
  const size_t size = strlen(path);
  struct stat st;
  r->is_goal =
      stat(path, &st) == 0 && !S_ISDIR(st.st_mode) && (size < 3 || strcmp(path + size - 3, ".et") != 0);
  int32_t rc = r->is_goal ? bs_goal_read(path, &r->et, err) : bs_chakra_read(path, &r->et, err);
  if (rc == BS_OK && groups != NULL) rc = bs_et_groups_read(&r->et, groups, err);
  return rc == BS_OK ? bs_et_end(&r->et, err) : rc;
}

static int32_t read_calc(request *r, bs_error *err) {
  static const char *const names[] = {"model", "recorded"};
  const char *text = args_value(r->a, "calc");
  r->calc = text != NULL && strcmp(text, "recorded") == 0 ? BS_TRACE_RECORDED : BS_TRACE_MODEL;
  return text == NULL || strcmp(text, names[r->calc]) == 0 ? BS_OK
                                                           : bsrun_unknown("way", text, names, 2, err);
}

/* ---- the machine ------------------------------------------------------------------------------------ */

static int32_t number(bs_context *context, const char *name, double *out, bs_error *err) {
  char text[64];
  const int32_t rc = bs_sim_param(context, name, text, sizeof text, err);
  if (rc != BS_OK || bs_parse_f64(text, out)) return rc;
  return bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE", "plugins.sim.%s is no number", name);
}

static int32_t read_roof(bs_context *context, sim_roof *roof, bs_error *err) {
  double flops = 0, mem = 0, shared = 0, launch = 0;
  char how[16];
  int32_t rc = number(context, "flops", &flops, err);
  if (rc == BS_OK) rc = number(context, "mem_Bps", &mem, err);
  if (rc == BS_OK) rc = number(context, "mem_shared_Bps", &shared, err);
  if (rc == BS_OK) rc = number(context, "launch_s", &launch, err);
  if (rc == BS_OK) rc = bs_sim_param(context, "roofline", how, sizeof how, err);
  if (rc != BS_OK) return rc;
  *roof = (sim_roof){.flops = sim_rate(flops),
                     .mem_Bps = sim_rate(mem),
                     .mem_shared_Bps = sim_rate(shared),
                     .launch = sim_seconds_ps(launch),
                     .roofline = strcmp(how, "p6") == 0 ? SIM_ROOFLINE_P6 : SIM_ROOFLINE_MAX};
  return BS_OK;
}

/* The groups of a topology are the plugin's alone. */
static int32_t check_shared(const sim_machine *m, const sim_roof *roof, bs_error *err) {
  if (roof->mem_shared_Bps == 0 || m->topology == NULL || strncmp(m->topology, "hier", 4) != 0) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-TRACE-SHARED",
               "plugins.sim.mem_shared_Bps with the topology %.60s: a trace has no memory of a group",
               m->topology);
  bs_error_hint(err, "another topology, or --set plugins.sim.mem_shared_Bps=0");
  return BS_UNSUPPORTED;
}

static int32_t read_links(const sim_machine *machine, bs_trace_machine *m, bs_error *err) {
  const bs_ccl_place link = machine->link;
  char buffering[16];
  const int32_t rc = bs_sim_param(machine->context, "buffering", buffering, sizeof buffering, err);
  if (rc != BS_OK) return rc;
  if (strcmp(buffering, "eager") != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TRACE-BUFFERING",
                        "plugins.sim.buffering=%s: messages of a trace are simulated with eager alone",
                        buffering);
  m->wire =
      (sim_wire){sim_seconds_ps(link.alpha_s), link.bytes_per_s > 0 ? sim_rate_q32(link.bytes_per_s) : 0,
                 link.reduce_bytes_per_s > 0 ? sim_rate_q32(link.reduce_bytes_per_s) : 0};
  m->link = (sim_link){.a_wire = m->wire.alpha, .beta_q32 = m->wire.beta_q32};
  return BS_OK;
}

/* Keeps what each rank does, for --to trace=FILE. */
static int32_t open_trace(request *r, bs_error *err) {
  double events = 0;
  const int32_t rc = number(r->machine.context, "trace_events", &events, err);
  if (rc != BS_OK) return rc;
  return bs_trace_place_record(&r->place, (uint64_t)events, r->et.n_ranks, err);
}

static int32_t write_trace(const request *r, bs_error *err) {
  const char *file = args_value(r->a, "trace");
  uint64_t events = 0, left_out = 0;
  char text[400];
  const int32_t rc = bs_trace_place_write(&r->place, file, &events, &left_out, err);
  snprintf(text, sizeof text, "wrote the trace %.300s: %llu events, %llu left out", file,
           (unsigned long long)events, (unsigned long long)left_out);
  if (rc == BS_OK) bsrun_note(args_has(r->a, "quiet"), text);
  return rc;
}

static int32_t open_machine(request *r, bs_error *err) {
  sim_machine *m = &r->machine;
  const char *loggp = args_value(r->a, "loggp-ns");
  int32_t rc = sim_machine_open(r->a, m, err);
  if (rc != BS_OK) return rc;
  r->links = loggp != NULL ? "LogGP links" : m->topology != NULL ? m->topology : "a link of each two ranks";
  if (loggp != NULL && m->topology != NULL)
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                        "--with loggp-ns has no topology: leave one of both out");
  rc = read_roof(m->context, &r->place.machine.roof, err);
  r->place.machine.roof.sharers = r->et.n_ranks;
  if (rc == BS_OK) rc = check_shared(m, &r->place.machine.roof, err);
  if (rc == BS_OK) rc = read_links(m, &r->place.machine, err);
  if (rc == BS_OK && m->topology != NULL)
    rc = bs_trace_place_open(m->context, m->topology, r->et.n_ranks, &r->place, err);
  if (rc == BS_NOT_FOUND) rc = bs_config_name_error(m->config, "hardware.topology", rc, err);
  if (rc == BS_OK && loggp != NULL) rc = bs_trace_loggp(loggp, &r->place.machine, err);
  return rc == BS_OK && args_has(r->a, "trace") ? open_trace(r, err) : rc;
}

/* ---- output ------------------------------------------------------------------------------- */

static void note(const request *r, uint64_t n, const char *what) {
  char text[160];
  snprintf(text, sizeof text, "%llu %s", (unsigned long long)n, what);
  if (n > 0) bsrun_note(args_has(r->a, "quiet"), text);
}

static void notes(const request *r) {
  note(r, r->et.unknown, "attributes or fields of the trace are not known here, and were not read");
  note(r, r->et.controls, "nodes name a caller (ctrl_deps): data_deps alone order nodes");
  note(r, r->et.inferred,
       "groups are the ranks that name them: --with groups=FILE says which ranks they have");
  note(r, r->result.unknown,
       "nodes of work have no recorded time and nothing for the model: they took no time");
}

static double us(uint64_t ps) {
  return (double)ps * 1e-6;
}

/* The row of ranks first to end - 1, which are alike. */
static json_t *row_of(const request *r, uint32_t first, uint32_t end) {
  const bs_trace_rank *k = &r->ranks[first];
  const bs_trace_result *all = &r->result;
  char ranks[32];
  if (end - first > 1)
    snprintf(ranks, sizeof ranks, "%u-%u", first, end - 1);
  else
    snprintf(ranks, sizeof ranks, "%u", first);
  json_t *row = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:I, s:f}", "ranks", ranks, "nodes",
                          (json_int_t)k->nodes, "time_us", us(k->end), "compute_us", us(k->compute),
                          "communication_us", us(k->comm), "exposed_wait_us", us(k->exposed), "count",
                          (json_int_t)(end - first), "simulated_us", us(all->ps));
  json_t *more =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "messages", (json_int_t)all->messages, "message_bytes",
                (json_int_t)all->bytes, "collectives", (json_int_t)all->collectives, "recorded",
                (json_int_t)all->recorded, "modelled", (json_int_t)all->modelled, "without_time",
                (json_int_t)all->unknown, "unknown_attributes", (json_int_t)r->et.unknown);
  json_t *place =
      json_pack("{s:s, s:s, s:s, s:s, s:s}", "format", r->is_goal ? "goal" : "chakra", "machine",
                r->machine.name, "label", r->machine.label, "domain", "extrapolated", "links", r->links);
  json_object_update(row, more);
  json_object_update(row, place);
  json_decref(more);
  json_decref(place);
  return row;
}

static int alike(const bs_trace_rank *a, const bs_trace_rank *b) {
  return a->nodes == b->nodes && a->end == b->end && a->compute == b->compute && a->comm == b->comm &&
         a->exposed == b->exposed;
}

static void print_head(const request *r) {
  const bs_trace_result *k = &r->result;
  bs_print(stdout, "simulated, not measured: machine %s (%s, extrapolated), %s\n", r->machine.name,
           r->machine.label, r->links);
  bs_print(stdout,
           "ranks %u, nodes %u, messages %llu, collectives %llu: %.6f us; rank %u ends last\n"
           "work: %llu by the model, %llu as recorded\n\n",
           r->et.n_ranks, r->et.n_nodes, (unsigned long long)k->messages, (unsigned long long)k->collectives,
           us(k->ps), k->last_rank, (unsigned long long)k->modelled, (unsigned long long)k->recorded);
}

static int32_t print(const request *r, bs_error *err) {
  json_t *rows = json_array();
  int format = BS_FORMAT_TABLE;
  int32_t rc = bsrun_format(r->a, &format, err);
  for (uint32_t first = 0, end; rc == BS_OK && first < r->et.n_ranks; first = end) {
    for (end = first + 1; end < r->et.n_ranks && alike(&r->ranks[first], &r->ranks[end]); end++) continue;
    json_array_append_new(rows, row_of(r, first, end));
  }
  if (rc == BS_OK && (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE)) print_head(r);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  json_decref(rows);
  return rc;
}

static int32_t write_traces(const request *r, bs_error *err) {
  const char *et = args_value(r->a, "et"), *goal = args_value(r->a, "goal");
  uint64_t rounded = 0;
  int32_t rc = et != NULL ? bs_chakra_write(&r->et, et, err) : BS_OK;
  if (rc == BS_OK && goal != NULL) rc = bs_goal_write(&r->et, goal, &rounded, err);
  if (rc == BS_OK) note(r, rounded, "times were rounded to whole ns in the GOAL file");
  return rc;
}

/* ---- the verb ----------------------------------------------------------------------------------- */

static int32_t simulate(request *r, bs_error *err) {
  r->ranks = calloc(r->et.n_ranks, sizeof *r->ranks);
  if (r->ranks == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the ranks");
  int32_t rc = bs_trace_run(&r->et, &r->place.machine, r->calc, r->ranks, &r->result, err);
  if (rc == BS_OK && r->place.machine.trace != NULL) rc = write_trace(r, err);
  if (rc != BS_OK || r->result.ps > 0 || r->et.n_nodes == 0) return rc;
  bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE", "nothing in the trace takes time on the simulated machine");
  bs_error_hint(err, "--hardware h100-dgx, sim-flat, ... or --set plugins.sim.alpha_s=1e-6");
  return BS_CONFIG;
}

static int32_t run(const args *a, bs_error *err) {
  request r = {.a = a};
  bsrun_interruptible("nothing is written; a smaller trace takes less time");
  int32_t rc = read_calc(&r, err);
  if (rc == BS_OK && args_has(a, "to"))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                      "--to: et=PREFIX, goal=FILE or trace=FILE says what is written");
  if (rc == BS_OK) rc = read_trace(&r, err);
  if (rc == BS_OK) rc = open_machine(&r, err);
  if (rc == BS_OK) rc = simulate(&r, err);
  if (rc == BS_OK) notes(&r);
  if (rc == BS_OK) rc = write_traces(&r, err);
  if (rc == BS_OK) rc = print(&r, err);
  bs_trace_place_close(&r.place);
  bs_et_free(&r.et);
  free(r.ranks);
  sim_machine_close(&r.machine);
  return rc;
}

const bsrun_verb sim_run_verb = {
    .name = "run",
    .words = "TRACE [options]",
    .summary = "a trace of others (Chakra, GOAL) on a simulated machine",
    .about =
        "TRACE is a GOAL file, or the beginning of Chakra's files TRACE.0.et, TRACE.1.et, ... of each rank.\n"
        "Messages take the machine's links, collectives their closed form. Work with FLOPs (num_ops) takes "
        "the\n"
        "roofline of the machine, other work its recorded time. COMPUTE is the time in which a processor of "
        "the\n"
        "rank works, COMMUNICATION that in which it sends, receives or is in a collective. EXPOSED WAIT is "
        "TIME\n"
        "less COMPUTE: no processor of the rank works then.\n"
        "Nodes that wait for each other end with exit code 8, messages without an other end with 8 or 9.\n",
    .examples =
        "  bsrun sim run all_reduce --hardware h100-dgx\n"
        "  bsrun sim run tree.goal --with loggp-ns=2500:1500:1000:6 -o json\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
