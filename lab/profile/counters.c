/* SPDX-License-Identifier: MIT
 * counters.c - see counters.h. */
#include "lab/profile/counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARANOID "/proc/sys/kernel/perf_event_paranoid"
#define LINE_BYTES 64.0 /* of a cache */

static const char *const names[BS_PERF_EVENTS_] = {"cycles", "instructions", "llc_misses", "branch_misses"};

static int32_t paranoid_of_machine(void) {
  char text[16] = "", *end = text;
  FILE *f = fopen(PARANOID, "r");
  if (f == NULL) return INT32_MIN;
  const long value = fgets(text, sizeof text, f) != NULL ? strtol(text, &end, 10) : 0;
  fclose(f);
  return end != text ? (int32_t)value : INT32_MIN;
}

void bs_counters_reason(int error, int32_t paranoid, char *out, size_t size) {
  char level[80] = "";
  if (paranoid != INT32_MIN) snprintf(level, sizeof level, " (%s is %d)", PARANOID, paranoid);
  if (error == EACCES || error == EPERM) {
    snprintf(out, size, "perf_event is not permitted%s: sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON",
             level);
  } else if (error == ENOSYS) {
    snprintf(out, size, "this system has no perf_event: a container or sandbox may leave it out");
  } else if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP) {
    snprintf(out, size, "the processor shows no such counter here: a virtual machine may hide them%s", level);
  } else {
    snprintf(out, size, "perf_event_open: %s%s", strerror(error), level);
  }
}

static int open_one(uint64_t config) {
  struct perf_event_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.type = PERF_TYPE_HARDWARE;
  attr.size = sizeof attr;
  attr.config = config;
  attr.disabled = 1;
  attr.inherit = 1;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void bs_counters_open(int wanted, bs_counters *out) {
  static const uint64_t configs[BS_PERF_EVENTS_] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                    PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_BRANCH_MISSES};
  memset(out, 0, sizeof *out);
  if (!wanted) snprintf(out->reason, sizeof out->reason, "not asked for (--counters off)");
  for (int i = 0; i < BS_PERF_EVENTS_; i++) {
    out->count[i] = NAN;
    out->fd[i] = wanted ? open_one(configs[i]) : -1;
    if (wanted && out->fd[i] < 0 && out->reason[0] == '\0')
      bs_counters_reason(errno, paranoid_of_machine(), out->reason, sizeof out->reason);
  }
}

void bs_counters_start(bs_counters *c) {
  for (int i = 0; i < BS_PERF_EVENTS_; i++) {
    c->count[i] = NAN;
    if (c->fd[i] < 0) continue;
    ioctl(c->fd[i], PERF_EVENT_IOC_RESET, 0);
    ioctl(c->fd[i], PERF_EVENT_IOC_ENABLE, 0);
  }
}

void bs_counters_stop(bs_counters *c) {
  for (int i = 0; i < BS_PERF_EVENTS_; i++) {
    uint64_t read_out[3]; /* count, time enabled, time running */
    if (c->fd[i] < 0) continue;
    ioctl(c->fd[i], PERF_EVENT_IOC_DISABLE, 0);
    if (read(c->fd[i], read_out, sizeof read_out) != (ssize_t)sizeof read_out || read_out[2] == 0) continue;
    c->count[i] = (double)read_out[0] * ((double)read_out[1] / (double)read_out[2]);
  }
}

void bs_counters_close(bs_counters *c) {
  for (int i = 0; i < BS_PERF_EVENTS_; i++) {
    if (c->fd[i] >= 0) close(c->fd[i]);
    c->fd[i] = -1;
  }
}

static void add(json_t *into, const char *key, double value) {
  if (isfinite(value)) json_object_set_new(into, key, json_real(value));
}

json_t *bs_counters_json(const bs_counters *c, double calls, double seconds, double read_bytes_s) {
  const double *n = c->count;
  int known = 1;
  json_t *out = json_object();
  for (int i = 0; i < BS_PERF_EVENTS_; i++) {
    known &= isfinite(n[i]) != 0;
    add(out, names[i], n[i] / calls);
  }
  json_object_set_new(out, "known", json_integer(known));
  if (!known)
    json_object_set_new(out, "reason", json_string(c->reason[0] != '\0' ? c->reason : "nothing was counted"));
  add(out, "ipc", n[BS_PERF_INSTRUCTIONS] / n[BS_PERF_CYCLES]);
  add(out, "branch_misses_per_1000", 1000 * n[BS_PERF_BRANCH_MISSES] / n[BS_PERF_INSTRUCTIONS]);
  if (read_bytes_s > 0)
    add(out, "llc_share", n[BS_PERF_LLC_MISSES] / calls * LINE_BYTES / seconds / read_bytes_s);
  return out;
}
