/* SPDX-License-Identifier: MIT
 * params.c - the machine: plugins.sim.* in SI units. A hardware file (configs/hardware) is a set of these. */
#include "sim.h"

/* Rates a second: 0 takes no time. */
static const bs_param_desc params[] = {
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "flops", "0", "0..", "FLOP/s",
     "arithmetic of 16-bit floats, and of all others that have no rate of their own; 0: takes no time"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "flops_f32", "0", "0..", "FLOP/s",
     "arithmetic of 32-bit floats; 0: as flops"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "flops_f64", "0", "0..", "FLOP/s",
     "arithmetic of 64-bit floats; 0: as flops_f32"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "flops_f8", "0", "0..", "FLOP/s",
     "arithmetic of 8-bit floats and integers; 0: as flops"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "mem_Bps", "0", "0..", "B/s",
     "reading and writing device memory; 0: takes no time"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "mem_shared_Bps", "0", "0..", "B/s",
     "the same of all ranks of one machine together (of a group with topology hier); 0: each has its own"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "mem_bytes", "0", "0..", "B", "memory of a device; 0: no limit"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "launch_s", "0", "0..1", "s",
     "start of an op, on its stream and on the host"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "alpha_s", "0", "0..1", "s", "a message, without its bytes"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "bw_Bps", "0", "0..", "B/s",
     "a link, in one direction; 0: bytes take no time"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "reduce_Bps", "0", "0..", "B/s",
     "adding bytes that have come to those that are there; 0: takes no time"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "roofline", "max", "max|p6", NULL,
     "of arithmetic a and memory m: max(a, m), or (a^6 + m^6)^(1/6)"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "label", "published", "published|calibrated", NULL,
     "where these numbers are from: data sheets, or bsrun sim fit"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "domain_least_B", "0", "0..", "B",
     "the smallest collective that the numbers were fitted to"},
    {sizeof(bs_param_desc), BS_PARAM_FLOAT, "domain_most_B", "0", "0..", "B",
     "the largest one; 0: they were fitted to none"},
    {sizeof(bs_param_desc), BS_PARAM_INT, "domain_ranks", "0", "0..1048576", NULL,
     "the most ranks that they were fitted to; 0: any"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "buffering", "eager", "eager|one_slot|rendezvous", NULL,
     "how long a send lasts: until it is under way, until the message before it was received, or until the "
     "receiver waits for it"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "order", "auto", "auto|E", NULL,
     "in which messages take wires and receive ports: E, by time; auto: E with a topology, else in the order "
     "of the receives"},
    {sizeof(bs_param_desc), BS_PARAM_BOOL, "steps", "false", NULL, NULL,
     "keep each op and collective of the rank that ends last, for bsrun sim explain"},
    {sizeof(bs_param_desc), BS_PARAM_BOOL, "steps_all", "false", NULL, NULL,
     "keep those of all ranks, for bsrun --to et"},
    {sizeof(bs_param_desc), BS_PARAM_BOOL, "steps_first", "false", NULL, NULL,
     "keep those of rank 0 instead, for bsrun model bench --show nodes"},
    {sizeof(bs_param_desc), BS_PARAM_INT, "trace_events", "0", "0..1000000000", NULL,
     "events that a trace holds at most (bsrun --to trace sets 200000); 0: there is none"},
    {sizeof(bs_param_desc), BS_PARAM_INT, "switch_ranks", "0", "0..1048576", NULL,
     "devices on one switch, beyond which a result without a topology says so; 0: any number"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "device", "", NULL, NULL,
     "the text of a device, whose inside is simulated; hardware.device names its file"},
};

int32_t sim_params_define(sim_plugin *plugin, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof params / sizeof params[0]; i++)
    rc = plugin->host->param_define(plugin->host->ctx, plugin->self, &params[i], err);
  return rc;
}

static int32_t get(const sim_plugin *plugin, const char *name, bs_value *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  return plugin->host->param_get(plugin->host->ctx, plugin->self, name, out, err);
}

int32_t sim_params_read(sim_plugin *plugin, bs_error *err) {
  static const char *const names[] = {
      "flops",   "flops_f32", "flops_f64",  "flops_f8",       "mem_Bps",       "mem_bytes",     "launch_s",
      "alpha_s", "bw_Bps",    "reduce_Bps", "domain_least_B", "domain_most_B", "mem_shared_Bps"};
  enum { FLOPS, F32, F64, F8, MEM, BYTES, LAUNCH, ALPHA, BW, REDUCE, LEAST, MOST, SHARED, NUMBERS };
  sim_machine *m = &plugin->machine;
  double v[NUMBERS];
  bs_value value;
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < NUMBERS; i++) {
    rc = get(plugin, names[i], &value, err);
    v[i] = value.f;
  }
  if (rc == BS_OK) rc = get(plugin, "roofline", &value, err);
  if (rc != BS_OK) return rc;
  m->roof.roofline = strcmp(value.s, "p6") == 0 ? SIM_ROOFLINE_P6 : SIM_ROOFLINE_MAX;
  rc = get(plugin, "label", &value, err);
  if (rc != BS_OK) return rc;
  m->label = value.s;
  rc = get(plugin, "domain_ranks", &value, err);
  if (rc != BS_OK) return rc;
  m->domain_ranks = (uint32_t)value.i;
  rc = get(plugin, "buffering", &value, err);
  if (rc != BS_OK) return rc;
  m->buffering = value.s[0] == 'e' ? SIM_EAGER : value.s[0] == 'o' ? SIM_ONE_SLOT : SIM_RENDEZVOUS;
  rc = get(plugin, "order", &value, err);
  if (rc != BS_OK) return rc;
  m->by_time = value.s[0] == 'E';
  rc = get(plugin, "steps", &value, err);
  if (rc != BS_OK) return rc;
  m->steps = value.i != 0 ? SIM_STEPS_LAST : 0;
  rc = get(plugin, "steps_all", &value, err);
  if (rc != BS_OK) return rc;
  if (value.i != 0) m->steps |= SIM_STEPS_ALL;
  rc = get(plugin, "steps_first", &value, err);
  if (rc != BS_OK) return rc;
  if (value.i != 0) m->steps = SIM_STEPS_FIRST;
  rc = get(plugin, "trace_events", &value, err);
  if (rc != BS_OK) return rc;
  m->trace_events = (uint64_t)value.i;
  rc = get(plugin, "switch_ranks", &value, err);
  if (rc != BS_OK) return rc;
  m->switch_ranks = (uint32_t)value.i;
  m->domain_least = (uint64_t)sim_round(v[LEAST]);
  m->domain_most = (uint64_t)sim_round(v[MOST]);
  m->roof.flops = sim_rate(v[FLOPS]);
  m->flops_f32 = v[F32] > 0 ? sim_rate(v[F32]) : m->roof.flops;
  m->flops_f64 = v[F64] > 0 ? sim_rate(v[F64]) : m->flops_f32;
  m->flops_f8 = v[F8] > 0 ? sim_rate(v[F8]) : m->roof.flops;
  m->roof.mem_Bps = sim_rate(v[MEM]);
  m->roof.mem_shared_Bps = sim_rate(v[SHARED]);
  m->roof.launch = sim_seconds_ps(v[LAUNCH]);
  m->mem_bytes = (uint64_t)sim_round(v[BYTES]);
  m->wire.alpha = sim_seconds_ps(v[ALPHA]);
  m->wire.beta_q32 = v[BW] > 0 ? sim_rate_q32(v[BW]) : 0;
  m->wire.gamma_q32 = v[REDUCE] > 0 ? sim_rate_q32(v[REDUCE]) : 0;
  m->link = (sim_link){.a_wire = m->wire.alpha, .beta_q32 = m->wire.beta_q32};
  rc = get(plugin, "device", &value, err);
  if (rc != BS_OK || value.s[0] == '\0') return rc;
  const sim_given given = {v[FLOPS], v[F32], v[F64], v[F8], v[MEM], v[LAUNCH]};
  return sim_inside_open(plugin, value.s, &given, err);
}
