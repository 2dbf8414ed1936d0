/* SPDX-License-Identifier: MIT
 * inside.c - the device that hardware.device names: its sums for the roofline, and the time of an op inside
 * of it, which is simulated once. */
#include "world.h"

struct sim_inside {
  const bs_host *host;
  pthread_mutex_t lock;
  sim_asks *asks; /* its table is protected by the lock */
  const char *name;
};

/* ---- the machine -------------------------------------------------------------------------------- */

/* What the device does not have stays as the hardware file gives it. */
static double either(double sum, double given) {
  return sum > 0 ? sum : given;
}

static int32_t take_sums(sim_machine *m, const sim_sums *s, const sim_given *given, bs_error *err) {
  const double f32 = either(s->flops_f32, given->flops_f32), f64 = either(s->flops_f64, given->flops_f64),
               f8 = either(s->flops_f8, given->flops_f8);
  int32_t rc = sim_sums_agree(s, "flops", given->flops, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f32", given->flops_f32, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f64", given->flops_f64, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "flops_f8", given->flops_f8, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "mem_Bps", given->mem_Bps, err);
  if (rc == BS_OK) rc = sim_sums_agree(s, "launch_s", given->launch_s, err);
  if (rc != BS_OK) return rc;
  m->roof.flops = sim_rate(either(s->flops, given->flops));
  m->flops_f32 = f32 > 0 ? sim_rate(f32) : m->roof.flops;
  m->flops_f64 = f64 > 0 ? sim_rate(f64) : m->flops_f32;
  m->flops_f8 = f8 > 0 ? sim_rate(f8) : m->roof.flops;
  m->roof.mem_Bps = sim_rate(either(s->mem_Bps, given->mem_Bps));
  if (m->mem_bytes == 0) m->mem_bytes = (uint64_t)sim_round(s->mem_bytes);
  if (s->launch > 0) m->roof.launch = s->launch;
  if (strcmp(s->label, "calibrated") != 0) m->label = s->label;
  return BS_OK;
}

int32_t sim_inside_open(sim_plugin *plugin, const char *text, const sim_given *given, bs_error *err) {
  const bs_host *host = plugin->host;
  sim_sums sums;
  sim_inside *in = host->alloc(host->ctx, sizeof *in, 64);
  if (in == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a device");
  memset(in, 0, sizeof *in);
  in->host = host;
  if (pthread_mutex_init(&in->lock, NULL) != 0) {
    host->free(host->ctx, in);
    return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no mutex for a device");
  }
  plugin->inside = in;
  int32_t rc = sim_asks_open(text, &in->asks, err);
  if (rc != BS_OK) return rc;
  sim_device_sums(sim_asks_device(in->asks), &sums);
  in->name = sums.name;
  rc = sim_ask_launch(sim_asks_device(in->asks), &sums.launch, err);
  if (rc != BS_OK) return rc;
  return take_sums(&plugin->machine, &sums, given, err);
}

void sim_inside_close(sim_plugin *plugin) {
  sim_inside *in = plugin->inside;
  if (in == NULL) return;
  sim_asks_close(in->asks);
  (void)pthread_mutex_destroy(&in->lock);
  in->host->free(in->host->ctx, in);
  plugin->inside = NULL;
}

const char *sim_inside_name(const sim_inside *inside) {
  return inside->name;
}

/* ---- an op -------------------------------------------------------------------------------------- */

typedef struct miss {
  const sim_inside *inside;
  const sim_ask *ask;
  sim_inside_time *out;
  bs_error *err;
  int32_t rc;
} miss;

static void simulate(void *arg) {
  miss *m = arg;
  m->rc = sim_ask_run(sim_asks_device(m->inside->asks), m->ask, m->out, m->err);
}

int32_t sim_inside_ask(const sim_inside_op *op, sim_rank *rank, bs_tensor *const *args, uint32_t nargs,
                       sim_inside_time *out, int *out_has, bs_error *err) {
  sim_inside *in = rank->plugin->inside;
  sim_ask ask;
  memset(out, 0, sizeof *out);
  *out_has = sim_inside_dims(op, args, nargs, &ask);
  if (!*out_has) return BS_OK;
  (void)pthread_mutex_lock(&in->lock);
  const int known = sim_asks_find(in->asks, &ask, out);
  (void)pthread_mutex_unlock(&in->lock);
  *out_has = !out->has_none;
  rank->inside_known += known != 0 && *out_has;
  if (known) return BS_OK;
  miss m = {.inside = in, .ask = &ask, .out = out, .err = err};
  /* The stack of a rank is too small. */
  sim_on_main(rank->world != NULL ? rank->world->coroutines : NULL, simulate, &m);
  if (m.rc != BS_OK) return m.rc;
  *out_has = !out->has_none;
  rank->inside_simulated += *out_has != 0;
  (void)pthread_mutex_lock(&in->lock);
  sim_asks_keep(in->asks, &ask, out);
  (void)pthread_mutex_unlock(&in->lock);
  return BS_OK;
}
