/* SPDX-License-Identifier: MIT
 * load.c - how busy the machine was while its constants were measured, and which of them cannot be. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lab/cores.h"
#include "lab/measure/constants.h"
#include "lab/measure/disturb.h"

enum { FIELDS = 8, IDLE = 3, IO_WAIT = 4, STEAL = 7 };
/* Half of the tenth to which a constant is known: the best of some passes loses less than others take. */
static const double OTHERS_MOST = BS_SAME_PASSES / 2;

/* Lines "cpuN user nice system idle iowait irq softirq steal ...", in ticks. */
void bs_load_read(const char *stat, const char *loadavg, const uint8_t *cores, size_t n, bs_load *out) {
  const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
  char *end = NULL;
  out->average = strtod(loadavg, &end);
  if (end == loadavg) out->average = -1.0;
  out->cores = 0;
  out->total = out->busy = out->idle = out->stolen = 0.0;
  for (const char *line = stat; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9') continue;
    const unsigned long core = strtoul(line + 3, &end, 10);
    const int counts = core < n && cores[core];
    out->cores += (uint32_t)counts;
    for (int field = 0; counts && field < FIELDS; ++field) {
      const double seconds = tick * (double)strtoull(end, &end, 10);
      out->total += seconds;
      *(field == STEAL                      ? &out->stolen
        : field == IDLE || field == IO_WAIT ? &out->idle
                                            : &out->busy) += seconds;
    }
  }
}

static double used(int who) {
  struct rusage u;
  if (getrusage(who, &u) != 0) return 0.0;
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

void bs_load_own(bs_load *out) {
  struct timespec t = {0};
  clock_gettime(CLOCK_MONOTONIC, &t);
  out->clock = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
  out->own = used(RUSAGE_SELF) + used(RUSAGE_CHILDREN);
}

void bs_load_cores(uint8_t *out, size_t n) {
  cpu_set_t set;
  memset(out, 0, n);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (size_t i = 0; i < n && i < CPU_SETSIZE; ++i) out[i] = CPU_ISSET(i, &set) != 0;
}

void bs_load_now(bs_load *out) {
  char loadavg[128] = "", *stat = calloc(BS_STAT_TEXT, 1);
  uint8_t cores[CPU_SETSIZE];
  if (stat != NULL) bs_disturb_file(NULL, "/proc/stat", stat, BS_STAT_TEXT);
  bs_disturb_file(NULL, "/proc/loadavg", loadavg, sizeof loadavg);
  bs_load_cores(cores, CPU_SETSIZE);
  bs_load_read(stat != NULL ? stat : "", loadavg, cores, CPU_SETSIZE, out);
  bs_load_own(out);
  free(stat);
}

/* The kernel counts idle time in nanoseconds and tells it in whole ticks, a processor each. The sum of the
 * other fields is counted by looks at each tick: of it is only taken that it moves. */
double bs_load_others(const bs_load *a, const bs_load *b, double *out_doubt) {
  static const double rounding = 0.41; /* standard deviation of a difference of two cut numbers, 1/sqrt(6) */
  const double passed = b->clock - a->clock, all = passed * b->cores;
  *out_doubt = 0.0;
  if (!(passed > 0.0) || a->cores != b->cores || !(a->total > 0.0) || b->total - a->total < 0.5 * all - 1.0)
    return -1.0;
  *out_doubt = 3.0 * rounding * sqrt((double)b->cores) / (double)sysconf(_SC_CLK_TCK) / passed;
  const double busy = all - (b->idle - a->idle) - (b->stolen - a->stolen);
  return fmax(0.0, busy - (b->own - a->own)) / passed;
}

static json_t *known(double value) {
  return value >= 0.0 ? json_real(value) : json_null();
}

json_t *bs_load_json(const bs_load *before, const bs_load *after) {
  const double total = after->total - before->total;
  const double others = after->busy - before->busy - (after->own - before->own);
  return json_pack("{s:o,s:o,s:o,s:o}", "load_before", known(before->average), "load_after",
                   known(after->average), "others", known(total > 0.0 ? fmax(others, 0.0) / total : -1.0),
                   "stolen", known(total > 0.0 ? (after->stolen - before->stolen) / total : -1.0));
}

/* ---- doubts ---------------------------------------------------------------------------------- */

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : -1.0;
}

/* row below 0: of the whole. keep: it may be kept all the same. */
static void doubt(json_t *doubts, const char *list, json_int_t row, int keep, json_t *why) {
  json_t *at = row < 0 ? json_null() : json_integer(row);
  json_array_append_new(doubts,
                        json_pack("{s:s?,s:o,s:b,s:o?}", "list", list, "row", at, "keep", keep, "why", why));
}

/* Writes the processor share of other programs and the load in words; returns 1 if it is more than `most`. */
static int is_high(const json_t *c, double most, double cores, char *out, size_t size) {
  const double others = number(c, "others"), stolen = number(c, "stolen"), load = number(c, "load_before");
  if (others >= 0.0)
    snprintf(out, size,
             "others took %.0f %% of the processors' time and the hypervisor %.0f %% (load %.1f before, %.1f "
             "after)",
             100.0 * others, 100.0 * stolen, load, number(c, "load_after"));
  else
    snprintf(out, size, "the load was %.1f before", load);
  return others >= 0.0 ? others + stolen > most : load > 0.5 * cores;
}

int bs_load_was_high(const json_t *conditions, char *out, size_t size) {
  return is_high(conditions, 0.25, bs_machine_cores(), out, size);
}

int bs_load_is_high(char *out, size_t size) {
  bs_load before, after;
  bs_load_now(&before);
  nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
  bs_load_now(&after);
  json_t *c = bs_load_json(&before, &after);
  const int high = bs_load_was_high(c, out, size);
  json_decref(c);
  return high;
}

static void doubt_load(json_t *doubts, const json_t *constants) {
  char why[160];
  const json_t *c = json_object_get(constants, "conditions");
  if (is_high(c, OTHERS_MOST, number(constants, "cores"), why, sizeof why))
    doubt(doubts, NULL, -1, 0, json_string(why));
}

/* Doubts rows that contradict two rules: all cores together are at least as fast as one, and a larger message
 * takes at least as long. */
static void doubt_row(json_t *doubts, const char *list, json_int_t i, const json_t *row, int alone) {
  static const char *const pairs[][2] = {{"flops_core", "flops_all"},
                                         {"read_bytes_per_s_core", "read_bytes_per_s_all"},
                                         {"copy_bytes_per_s_core", "copy_bytes_per_s_all"},
                                         {"all_reduce_64KiB_s", "all_reduce_1MiB_s"},
                                         {"all_reduce_1MiB_s", "all_reduce_4MiB_s"}};
  const double times = number(row, "all_over_core"), spread = number(row, "spread");
  for (size_t k = alone || times >= 0.0 ? 3 : 0; k < sizeof pairs / sizeof pairs[0]; ++k) {
    const double less = number(row, pairs[k][0]), more = number(row, pairs[k][1]);
    if (less <= 0.0 || more * (1.0 + BS_SAME_PASSES) >= less) continue;
    doubt(doubts, list, i, 0,
          json_sprintf("%s %.3g is above %s %.3g, which cannot be", pairs[k][0], less, pairs[k][1], more));
    return;
  }
  if (times > 1.0 + BS_SAME_PASSES)
    doubt(doubts, list, i, 0,
          json_sprintf("all cores take %.2f times as long as one, which cannot be", times));
  else if (spread > BS_SAME_PASSES)
    doubt(doubts, list, i, 1, json_sprintf("its passes differed by %.0f %%", 100.0 * spread));
}

json_t *bs_constants_doubts(const json_t *constants) {
  json_t *doubts = json_array();
  const int alone = number(constants, "threads") < 2.0;
  doubt_load(doubts, constants);
  for (size_t k = 0; k < BS_CONSTANTS_LISTS; ++k) {
    const json_t *list = json_object_get(constants, bs_constants_lists[k]), *row;
    size_t i;
    json_array_foreach(list, i, row) doubt_row(doubts, bs_constants_lists[k], (json_int_t)i, row, alone);
  }
  return doubts;
}
