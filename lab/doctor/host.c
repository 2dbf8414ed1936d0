/* SPDX-License-Identifier: MIT
 * host.c - the rows of the machine itself, from /proc and /sys. Missing facts are not a failure. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "lab/doctor/doctor.h"
#include "lab/store/env.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

void bs_doctor_add(bs_doctor *d, const char *what, uint32_t state, const char *fix, const char *found, ...) {
  static const char *const states[] = {"ok", "warn", "fail"};
  char text[768];
  va_list ap;
  va_start(ap, found);
  vsnprintf(text, sizeof text, found, ap);
  va_end(ap);
  json_array_append_new(d->rows, json_pack("{s:o,s:o,s:s,s:o}", "what", bs_env_string(what), "found",
                                           bs_env_string(text), "state", states[state], "fix",
                                           bs_env_string(fix != NULL && state != BS_CHECK_OK ? fix : "")));
  d->counts[state]++;
}

void bs_doctor_error(bs_doctor *d, const char *what, const bs_error *why) {
  if (why->code == BS_NUMERIC) d->wrong = 1;
  bs_doctor_add(d, what, BS_CHECK_FAIL, why->hint, "[%s] %s", why->id, why->message);
}

static void processor(bs_doctor *d) {
  static const char *const fast[] = {"avx2", "avx512f", "asimd"};
  json_t *env = bs_env_collect(NULL);
  const json_t *cpu = json_object_get(env, "cpu");
  const char *model = json_string_value(json_object_get(cpu, "model"));
  const json_t *isa = json_object_get(cpu, "isa");
  bs_text flags = {0};
  int vectors = 0;
  for (size_t i = 0; i < json_array_size(isa); i++) {
    const char *flag = json_string_value(json_array_get(isa, i));
    bs_text_printf(&flags, "%s%s", i == 0 ? "" : " ", flag);
    for (size_t j = 0; j < 3; j++) vectors |= strcmp(flag, fast[j]) == 0;
  }
  bs_doctor_add(d, "processor", BS_CHECK_OK, NULL, "%s", model != NULL ? model : "not known");
  bs_doctor_add(d, "instruction sets", vectors ? BS_CHECK_OK : BS_CHECK_WARN,
                "without AVX2 the portable kernels run, at a fraction of the speed", "%s",
                flags.data != NULL ? flags.data : "none that kernels here use");
  bs_text_free(&flags);
  json_decref(env);
}

/* "0-3,8" */
static void range_text(const cpu_set_t *set, bs_text *out) {
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, set)) continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
    bs_text_printf(out, "%s%d", out->size > 0 ? "," : "", i);
    if (last > i) bs_text_printf(out, "-%d", last);
    i = last;
  }
}

static int cores(bs_doctor *d, int *out_first) {
  cpu_set_t set;
  bs_text list = {0};
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  *out_first = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    bs_doctor_add(d, "cores", BS_CHECK_WARN, "the kernel does not tell which cores may be used",
                  "%ld online, affinity unknown", online);
    return (int)online;
  }
  const int usable = CPU_COUNT(&set);
  while (*out_first < CPU_SETSIZE - 1 && !CPU_ISSET(*out_first, &set)) ++*out_first;
  range_text(&set, &list);
  bs_doctor_add(d, "cores", (int)d->ranks > usable ? BS_CHECK_WARN : BS_CHECK_OK,
                "fewer cores than ranks: ranks take turns and times mean little; use a smaller -P",
                "%d usable (%s) of %ld online, for %u rank%s", usable, list.failed ? "?" : list.data, online,
                d->ranks, d->ranks == 1 ? "" : "s");
  bs_text_free(&list);
  return usable;
}

/* The tightest limit of the process's control group and its parents: cores and bytes; 0: no limit. */
typedef struct limits {
  double cores;
  double bytes;
} limits;

static void tighten(double *limit, double value) {
  if (value > 0 && (*limit == 0 || value < *limit)) *limit = value;
}

static void read_group(const char *folder, limits *out) {
  char path[1200], line[128];
  snprintf(path, sizeof path, "%s/cpu.max", folder);
  if (bs_env_first_line(path, line, sizeof line)) { /* "<quota> <period>", or "max <period>" */
    char *second;
    const double quota = strtod(line, &second);
    const double period = second != line ? strtod(second, NULL) : 0;
    if (period > 0) tighten(&out->cores, quota / period);
  }
  snprintf(path, sizeof path, "%s/memory.max", folder);
  if (bs_env_first_line(path, line, sizeof line) && line[0] >= '0' && line[0] <= '9')
    tighten(&out->bytes, strtod(line, NULL));
}

static limits read_limits(void) {
  limits out = {0, 0};
  char line[1024] = "", path[1100];
  double quota = 0, period = 0, bytes = 0;
  if (bs_env_first_line("/proc/self/cgroup", line, sizeof line) && strncmp(line, "0::", 3) == 0) {
    snprintf(path, sizeof path, "/sys/fs/cgroup%s", line + 3);
    for (char *slash = strrchr(path, '/'); strlen(path) > strlen("/sys/fs/cgroup") && slash != NULL;
         slash = strrchr(path, '/')) {
      read_group(path, &out);
      *slash = '\0';
    }
  }
  read_group("/sys/fs/cgroup", &out);
  if (bs_env_first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line)) quota = strtod(line, NULL);
  if (bs_env_first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line))
    period = strtod(line, NULL);
  if (quota > 0 && period > 0) tighten(&out.cores, quota / period);
  if (bs_env_first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", line, sizeof line))
    bytes = strtod(line, NULL);
  if (bytes < 1e18) tighten(&out.bytes, bytes); /* version 1 writes "none" as a number near 2^63 */
  return out;
}

static void cgroup(bs_doctor *d, int usable) {
  const limits l = read_limits();
  char cpu[64] = "no limit of cores", memory[64] = "no limit of memory";
  if (l.cores > 0) snprintf(cpu, sizeof cpu, "%.2f cores", l.cores);
  if (l.bytes > 0) snprintf(memory, sizeof memory, "%.1f GiB", l.bytes / GIB);
  bs_doctor_add(
      d, "cgroup limits", l.cores > 0 && l.cores < usable ? BS_CHECK_WARN : BS_CHECK_OK,
      "fewer cores' time than cores: the group is stopped when it is used up; raise cpu.max or pin to "
      "fewer cores",
      "%s, %s", cpu, memory);
}

static void governor(bs_doctor *d, int cpu) {
  char path[128], line[64];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu);
  const int told = bs_env_first_line(path, line, sizeof line);
  bs_doctor_add(d, "frequency governor",
                told && strcmp(line, "performance") != 0 && strcmp(line, "schedutil") != 0 ? BS_CHECK_WARN
                                                                                           : BS_CHECK_OK,
                "cpupower frequency-set -g performance", "%s",
                told ? line : "not known (usually a virtual machine)");
}

static void load(bs_doctor *d, int usable) {
  double average[1] = {0};
  if (getloadavg(average, 1) != 1) return;
  bs_doctor_add(d, "load", average[0] > 0.5 * usable ? BS_CHECK_WARN : BS_CHECK_OK,
                "other programs are running: intervals will be wide; end them or wait",
                "%.2f over the last minute, %d cores", average[0], usable);
}

static void memory(bs_doctor *d) {
  char line[96];
  const double free_bytes = (double)bs_memory_available("");
  const double page = (double)sysconf(_SC_PAGESIZE), total = (double)sysconf(_SC_PHYS_PAGES) * page;
  bs_doctor_add(d, "memory", free_bytes > 0 && free_bytes < GIB ? BS_CHECK_WARN : BS_CHECK_OK,
                "less than 1 GiB is free: give the process more, or use a smaller model.N",
                "%.1f GiB free of %.1f GiB", free_bytes / GIB, total / GIB);
  const int told = bs_env_first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
  bs_doctor_add(d, "huge pages", told && strstr(line, "[never]") != NULL ? BS_CHECK_WARN : BS_CHECK_OK,
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)", "%s",
                told ? line : "not known");
}

void bs_doctor_host(bs_doctor *d) {
  int first = 0;
  processor(d);
  const int usable = cores(d, &first);
  cgroup(d, usable);
  governor(d, first);
  load(d, usable);
  memory(d);
}

/* The deepest folder of the path that exists already. Returns a malloc'd text, NULL when out of memory. */
static char *existing_part(const char *path) {
  struct stat st;
  char *part = bs_strdup(path);
  while (part != NULL && stat(part, &st) != 0) {
    char *slash = strrchr(part, '/');
    if (slash == NULL) {
      free(part);
      return bs_strdup(".");
    }
    slash[slash == part ? 1 : 0] = '\0';
    if (slash == part) break;
  }
  return part;
}

void bs_doctor_results(bs_doctor *d, const char *out_dir) {
  static const char fix[] = "--out DIR (logging.out_dir) chooses another place; see its owner and free space";
  struct statvfs fs;
  char *part = existing_part(out_dir);
  bs_text name = {0};
  bs_text_printf(&name, "%s/.bsrun-doctor-XXXXXX", part != NULL ? part : ".");
  const int fd = name.failed || part == NULL ? -1 : mkstemp(name.data);
  if (fd < 0) {
    const int why = errno;
    char text[128];
    const char *said = strerror_r(why, text, sizeof text);
    bs_doctor_add(d, "results folder", BS_CHECK_FAIL, fix, "cannot write below %.300s: %s", out_dir, said);
  } else {
    close(fd);
    unlink(name.data);
    const int told = statvfs(part, &fs) == 0;
    const double left = told ? (double)fs.f_bavail * (double)fs.f_frsize : 0.0;
    bs_doctor_add(d, "results folder", told && left < GIB / 8 ? BS_CHECK_WARN : BS_CHECK_OK, fix,
                  "%.300s can be written, %.1f GiB left", out_dir, left / GIB);
  }
  bs_text_free(&name);
  free(part);
}
