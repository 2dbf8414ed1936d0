/* SPDX-License-Identifier: MIT
 * strike.c - what the communicator and the backend share: reading the plan, counting calls, and the small
 * things that are done to one. */
#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "wrap.h"

int32_t wrap_read_plan(const wrap_plugin *plugin, wrap_plan *out, bs_error *err) {
  const bs_host *host = plugin->host;
  wrap_complaint complaint;
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  const int32_t rc = host->param_get(host->ctx, plugin->self, "plan", &value, err);
  if (rc != BS_OK) return rc;
  if (wrap_plan_parse(value.s != NULL ? value.s : "", plugin->slow, out, &complaint)) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-WRAP-PLAN", "plugins.%s.plan, character %u: %s", plugin->id, complaint.at,
          complaint.what);
  if (err != NULL) snprintf(err->plugin, sizeof err->plugin, "%s", plugin->id);
  bs_fail_hint(err, "%s", complaint.words);
  return BS_CONFIG;
}

/* A call that the step's rank and op fit. */
static void count(wrap_reach *reach, uint32_t step, uint64_t n) {
  uint64_t most = atomic_load(&reach->calls[step]);
  while (most < n && !atomic_compare_exchange_weak(&reach->calls[step], &most, n)) {
  }
}

static void name_who(const wrap_step *s, char out[64]) {
  if (s->rank == WRAP_ANY)
    snprintf(out, 64, "each rank");
  else
    snprintf(out, 64, "rank %llu", (unsigned long long)s->rank);
}

int32_t wrap_check_reached(const wrap_plugin *plugin, bs_error *err) {
  wrap_plan plan;
  char name[40], who[64];
  if (!atomic_load(&plugin->reach->used) || wrap_read_plan(plugin, &plan, NULL) != BS_OK) return BS_OK;
  for (uint32_t i = 0; i < plan.n; ++i) {
    const wrap_step *s = &plan.steps[i];
    if (atomic_load(&plugin->reach->reached[i])) continue;
    const uint64_t calls = atomic_load(&plugin->reach->calls[i]);
    name_who(s, who);
    bs_fail(err, BS_CONFIG, "BS-WRAP-UNREACHED",
            "plugins.%s.plan, step %u: the plan was never reached: %s was called %llu time%s by %s",
            plugin->id, i + 1u, s->op == WRAP_ANY ? "everything" : wrap_op_name((uint32_t)s->op, name),
            (unsigned long long)calls, calls == 1 ? "" : "s", who);
    if (err != NULL) snprintf(err->plugin, sizeof err->plugin, "%s", plugin->id);
    bs_fail_hint(err,
                 calls > 0 ? "seq counts from 0; -v --set plugins.%s.count=true tells what is called"
                           : "-v --set plugins.%s.count=true tells what each rank calls",
                 plugin->id);
    return BS_CONFIG;
  }
  return BS_OK;
}

const wrap_step *wrap_next(const wrap_plugin *plugin, const wrap_plan *plan, wrap_calls *calls, uint32_t op,
                           int64_t *out_ns) {
  const uint64_t seq = calls->of[op]++, all = calls->all++;
  const wrap_step *found = NULL;
  *out_ns = 0;
  for (uint32_t i = 0; i < plan->n; ++i) {
    const wrap_step *s = &plan->steps[i];
    if (s->rank != WRAP_ANY && (calls->rank < 0 || s->rank != (uint64_t)calls->rank)) continue;
    if (s->op != WRAP_ANY && s->op != op) continue;
    const uint64_t at = s->op == WRAP_ANY ? all : seq;
    count(plugin->reach, i, at + 1);
    if (s->seq != WRAP_ANY && s->seq != at) continue;
    atomic_store(&plugin->reach->reached[i], 1u);
    if (s->what == WRAP_DELAY)
      *out_ns += s->ns;
    else if (found == NULL)
      found = s;
  }
  return found;
}

void wrap_signal(uint32_t what) {
  /* Signals this thread itself, which then goes no further; a signal to the process may reach it later. */
  pthread_kill(pthread_self(), what == WRAP_KILL ? SIGKILL : SIGSTOP);
}

int32_t wrap_fail(const wrap_plugin *plugin, const wrap_calls *calls, uint32_t op, const char *site,
                  bs_error *err) {
  char name[40];
  wrap_op_name(op, name);
  bs_fail(err, BS_RANK_FAILED, "BS-WRAP-ERR", "an injected error in %s, call %llu of rank %lld", name,
          (unsigned long long)calls->of[op] - 1u, (long long)calls->rank);
  if (err == NULL) return BS_RANK_FAILED;
  err->rank = (int32_t)calls->rank;
  snprintf(err->plugin, sizeof err->plugin, "%s", plugin->id);
  if (site != NULL) snprintf(err->where, sizeof err->where, "%s at '%.100s'", name, site);
  return BS_RANK_FAILED;
}

void wrap_warn_empty(const wrap_plugin *plugin, const wrap_calls *calls, uint32_t op, uint32_t what) {
  const bs_host *host = plugin->host;
  char name[40], text[160];
  snprintf(text, sizeof text, "%s of %s, call %llu of rank %lld: there is nothing that it could be done to",
           wrap_do_name(what), wrap_op_name(op, name), (unsigned long long)calls->of[op] - 1u,
           (long long)calls->rank);
  host->log(host->ctx, plugin->self, BS_LOG_WARN, __FILE__, __LINE__, text);
}

static int is_float(uint32_t dtype) {
  switch (dtype) {
    case BS_F64:
    case BS_F32:
    case BS_F16:
    case BS_BF16:
    case BS_F8E4M3:
    case BS_F8E5M2:
      return 1;
    default:
      return 0;
  }
}

int wrap_change(const wrap_plugin *plugin, uint32_t what, uint32_t dtype, void *element) {
  const float value = NAN;
  if (what == WRAP_FLIP) {
    unsigned char *bytes = element; /* little endian: the top byte; its second bit is an exponent's highest */
    bytes[BS_DTYPE_BYTES(dtype) - 1u] ^= dtype == BS_BOOL ? 1u : 0x40u;
    return 1;
  }
  return is_float(dtype) && plugin->host->convert(dtype, element, BS_F32, &value, 1) == BS_OK;
}

void wrap_tell_counts(const wrap_plugin *plugin, const wrap_calls *calls) {
  const bs_host *host = plugin->host;
  char text[1000], name[40];
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  if (host->param_get(host->ctx, plugin->self, "count", &value, NULL) != BS_OK || value.i == 0) return;
  int used = snprintf(text, sizeof text, "calls of rank %lld:", (long long)calls->rank);
  for (uint32_t op = 0; op < WRAP_OP_COUNT_ && used > 0 && (size_t)used < sizeof text - 60; ++op)
    if (calls->of[op] > 0)
      used += snprintf(text + used, sizeof text - (size_t)used, " %s=%llu", wrap_op_name(op, name),
                       (unsigned long long)calls->of[op]);
  host->log(host->ctx, plugin->self, BS_LOG_INFO, __FILE__, __LINE__, text);
}
