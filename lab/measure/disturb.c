/* SPDX-License-Identifier: MIT
 * disturb.c - counts of what took the processor away: /proc/stat, the cgroup's cpu.stat. */
#include "lab/measure/disturb.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 8192, STEAL_FIELD = 7 };

const char *bs_disturb_name(uint32_t kind) {
  static const char *const names[] = {"stolen time", "involuntary switches", "throttling"};
  return kind < BS_DISTURB_COUNT_ ? names[kind] : "?";
}

/* "cpu  user nice system idle iowait irq softirq steal ...": ticks of all processors. */
static int steal_of(const char *text, uint64_t *out_ticks) {
  if (strncmp(text, "cpu ", 4) != 0) return 0;
  const char *at = text + 4;
  for (int field = 0; field <= STEAL_FIELD; ++field) {
    char *end = NULL;
    const unsigned long long value = strtoull(at, &end, 10);
    if (end == at || memchr(at, '\n', (size_t)(end - at)) != NULL) return 0;
    *out_ticks = value;
    at = end;
  }
  return 1;
}

/* Reads "nr_throttled N" from a separate line, the same in both versions of cgroups. */
static int throttled_of(const char *text, uint64_t *out_periods) {
  static const char key[] = "nr_throttled ";
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, key, sizeof key - 1) != 0) continue;
    *out_periods = strtoull(line + sizeof key - 1, NULL, 10);
    return 1;
  }
  return 0;
}

/* The folder of this process's cgroup: version 2 has one line, "0::/path"; version 1 names controllers. */
static int cgroup_folder(const char *text, char *out, size_t size) {
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    const char *names = strchr(line, ':');
    const char *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL) continue;
    const int unified = strncmp(line, "0::", 3) == 0;
    const int cpu = strncmp(names, ":cpu,", 5) == 0 || strncmp(names, ":cpu:", 5) == 0;
    if (!unified && !cpu) continue;
    const int length = (int)strcspn(path + 1, "\n");
    if (length == 1 && path[1] == '/') { /* the root has no separate folder below the mount */
      snprintf(out, size, "/sys/fs/cgroup%s", unified ? "" : "/cpu");
      return 1;
    }
    snprintf(out, size, "/sys/fs/cgroup%s%.*s", unified ? "" : "/cpu", length, path + 1);
    return 1;
  }
  return 0;
}

static int throttled_here(const bs_disturb_source *s, char *text, uint64_t *out_periods) {
  char folder[512], path[544];
  if (!s->read(s->user, "/proc/self/cgroup", text, TEXT)) return 0;
  if (!cgroup_folder(text, folder, sizeof folder)) return 0;
  snprintf(path, sizeof path, "%s/cpu.stat", folder);
  return s->read(s->user, path, text, TEXT) && throttled_of(text, out_periods);
}

void bs_disturb_read(const bs_disturb_source *s, bs_disturb *out) {
  uint8_t cores[CPU_SETSIZE];
  char *text = malloc(BS_STAT_TEXT);
  *out = (bs_disturb){.waited = -1.0};
  if (text == NULL) return;
  if (s->read(s->user, "/proc/stat", text, BS_STAT_TEXT)) {
    out->known[BS_DISTURB_STEAL] = steal_of(text, &out->count[BS_DISTURB_STEAL]) != 0;
    bs_load_cores(cores, CPU_SETSIZE);
    bs_load_read(text, "", cores, CPU_SETSIZE, &out->load);
  }
  out->known[BS_DISTURB_THROTTLE] = throttled_here(s, text, &out->count[BS_DISTURB_THROTTLE]) != 0;
  free(text);
}

int bs_disturb_file(void *user, const char *path, char *text, size_t size) {
  (void)user;
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  const size_t n = fread(text, 1, size - 1, f);
  text[n] = '\0';
  fclose(f);
  return n > 0;
}

void bs_disturb_host(void *user, bs_disturb *out) {
  const bs_disturb_source source = {NULL, bs_disturb_file};
  bs_process_use use;
  (void)user;
  bs_disturb_read(&source, out);
  bs_process_use_read(0, &use);
  bs_load_own(&out->load);
  out->waited = use.waited_s;
}
