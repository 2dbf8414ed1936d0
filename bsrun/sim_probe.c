/* SPDX-License-Identifier: MIT
 * sim_probe.c - `bsrun sim probe`: a message from one rank to another on a simulated machine, hop by hop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/sim_inside.h"
#include "bsrun/sim_machine.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/sim/probe.h"

static const args_option options[] = {
    {OPT_SIZE, "default: 1Mi; of a device: 4Ki", 0},
    {OPT_WORLD_SIZE, "default: the largest rank that is named, and one", 0},
    {OPT_BESIDE, "A:B, a message of the same size from A to B that begins at the same time", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"hop", "HOP", 0, 0},
    {"link", "LINK", BS_FIELD_RIGHT, 0},
    {"GBps", "GB/s", BS_FIELD_RIGHT, 5},
    {"reached_us", "REACHED us", BS_FIELD_RIGHT, 9},
    {"wait_us", "WAIT us", BS_FIELD_RIGHT, 9},
    {"latency_us", "LATENCY us", BS_FIELD_RIGHT, 9},
    {"bytes_us", "BYTES us", BS_FIELD_RIGHT, 9},
    {"closed_us", "CLOSED FORM us", BS_FIELD_RIGHT, 9},
    {"simulated_us", "SIMULATED us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"from", "FROM", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"to", "TO", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"bytes", "MESSAGE BYTES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"machine", "MACHINE", BS_FIELD_WIDE, 0},
    {"label", "LABEL", BS_FIELD_WIDE, 0},
    {"topology", "TOPOLOGY", BS_FIELD_WIDE, 0},
};

typedef struct request {
  bs_probe probe;
  bs_probe_flow flows[BS_PROBE_FLOWS];
  sim_machine machine;
} request;

/* ---- options ----------------------------------------------------------------------------------- */

static int32_t bad(const char *what, const char *text, const char *wanted, bs_error *err) {
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "%s: '%.60s' is not %s", what, text, wanted);
}

static int32_t read_rank(const char *what, const char *text, uint32_t *out, bs_error *err) {
  int64_t value = 0;
  if (!bs_parse_i64(text, &value) || value < 0 || value >= 1 << 20)
    return bad(what, text, "a rank from 0 to 1048575", err);
  *out = (uint32_t)value;
  return BS_OK;
}

static int32_t read_beside(request *r, const char *text, bs_error *err) {
  char first[16];
  const size_t n = strcspn(text, ":");
  bs_probe_flow *f = &r->flows[r->probe.n_flows];
  if (r->probe.n_flows == BS_PROBE_FLOWS) return bad("--beside", text, "one of at most 63 messages", err);
  if (text[n] != ':' || n >= sizeof first) return bad("--beside", text, "FROM:TO, as in 0:3", err);
  snprintf(first, sizeof first, "%.*s", (int)n, text);
  int32_t rc = read_rank("--beside", first, &f->from, err);
  if (rc == BS_OK) rc = read_rank("--beside", text + n + 1, &f->to, err);
  r->probe.n_flows++;
  return rc;
}

static int32_t read_flows(request *r, const args *a, bs_error *err) {
  const char **beside = NULL;
  size_t n = 0;
  int32_t rc = read_rank("FROM", a->words[0], &r->flows[0].from, err);
  if (rc == BS_OK) rc = read_rank("TO", a->words[1], &r->flows[0].to, err);
  r->probe.n_flows = 1;
  if (rc == BS_OK) rc = args_values(a, "beside", &beside, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = read_beside(r, beside[i], err);
  free(beside);
  return rc;
}

static int32_t read_request(request *r, const args *a, bs_error *err) {
  int64_t bytes = 0, ranks = 0, most = 0;
  int32_t rc = args_integer(a, "size", 0, INT64_C(1) << 40, 1 << 20, &bytes, err);
  if (rc == BS_OK) rc = read_flows(r, a, err);
  for (uint32_t i = 0; i < r->probe.n_flows; i++) {
    if (r->flows[i].from > most) most = r->flows[i].from;
    if (r->flows[i].to > most) most = r->flows[i].to;
  }
  if (rc == BS_OK) rc = args_integer(a, "world-size", 2, 1 << 20, most + 1, &ranks, err);
  r->probe.ranks = (uint32_t)ranks;
  r->probe.bytes = (uint64_t)bytes;
  r->probe.flows = r->flows;
  return rc;
}

/* ---- a probe ----------------------------------------------------------------------------------- */

static int32_t print(const request *r, const args *a, json_t *rows, bs_error *err) {
  const sim_machine *m = &r->machine;
  const char *topology = m->topology != NULL ? m->topology : "";
  const json_t *total = json_array_get(rows, json_array_size(rows) - 1);
  int format = 0;
  size_t i;
  json_t *row;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  json_array_foreach(rows, i, row) {
    json_object_set_new(row, "machine", json_string(m->name));
    json_object_set_new(row, "label", json_string(m->label));
    json_object_set_new(row, "topology", json_string(topology));
  }
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE)
    bs_print(
        stdout,
        "simulated, not measured: machine %s (%s), %s%s\n"
        "%llu bytes from rank %u to rank %u of %u, beside %u other message%s: %.6f us; alone %.6f us by the "
        "closed form\n\n",
        m->name, m->label, m->topology != NULL ? "topology " : "a link of each two ranks", topology,
        (unsigned long long)r->probe.bytes, r->flows[0].from, r->flows[0].to, r->probe.ranks,
        r->probe.n_flows - 1, r->probe.n_flows == 2 ? "" : "s",
        json_number_value(json_object_get(total, "simulated_us")),
        json_number_value(json_object_get(total, "closed_us")));
  return bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
}

static int32_t probe(const args *a, bs_error *err) {
  json_t *rows = NULL;
  request r = {0};
  if (args_has(a, "device")) return sim_inside_probe(a, err);
  int32_t rc = read_request(&r, a, err);
  if (rc == BS_OK) rc = sim_machine_open(a, &r.machine, err);
  r.probe.topology = r.machine.topology;
  r.probe.alpha_s = r.machine.link.alpha_s;
  r.probe.bytes_per_s = r.machine.link.bytes_per_s;
  if (rc == BS_OK) rc = bs_probe_run(r.machine.context, &r.probe, &rows, err);
  if (rc == BS_NOT_FOUND) rc = bs_config_name_error(r.machine.config, "hardware.topology", rc, err);
  if (rc == BS_OK) rc = print(&r, a, rows, err);
  json_decref(rows);
  sim_machine_close(&r.machine);
  return rc;
}

const bsrun_verb sim_probe_verb = {
    .name = "probe",
    .words = "FROM TO [--size N] [-P N] [--device D] [--beside A:B] [options]",
    .summary = "one message, of two ranks or in a device: the terms of each hop",
    .about =
        "The head of the message reaches each hop, waits until the hop is free (WAIT: other messages are on\n"
        "it), and goes on after its latency. A hop is busy for all bytes at its own rate. The total has the\n"
        "bytes of the slowest hop once. The closed form is the sum of the latencies and bytes over the "
        "least\n"
        "rate, as if no other message were there. Without hardware.topology each two ranks have one link.\n"
        "With --device the places are those of a device, innermost first (pe0.cube0), or channels of a\n"
        "memory (hbm3, hbm3.cube0): a lane to a memory is a store, a memory to a lane a load.\n",
    .examples =
        "  bsrun sim probe 0 5 --hardware h100-dgx -P 8 --set hardware.topology=nvswitch\n"
        "  bsrun sim probe 0 2 --size 4Ki -P 8 --set hardware.topology=ring --beside 1:2 -o json\n"
        "  bsrun sim probe pe0.cube0 hbm3 --device cube-pe\n",
    .options = options,
    .run = probe,
    .min_words = 2,
    .max_words = 2,
};
