/* SPDX-License-Identifier: MIT
 * usage.c - see usage.h. */
#include "core/base/usage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/clock.h"

static double queued_s(void) {
  char text[96], *end = text;
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = '\0'; /* nanoseconds on a processor, nanoseconds without one, turns */
  const unsigned long long ran = strtoull(text, &end, 10), queued = strtoull(end, NULL, 10);
  return ran > 0 ? 1e-9 * (double)queued : 0;
}

bs_usage bs_usage_now(int before) {
  struct timespec t = {0};
  struct rusage r = {0};
  bs_usage u = {.seconds = before ? 0 : bs_clock_s()};
  if (before) u.queued_s = queued_s();
  getrusage(RUSAGE_THREAD, &r);
  u.sleeps = (uint64_t)r.ru_nvcsw;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  u.cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
  if (!before) u.queued_s = queued_s();
  if (before) u.seconds = bs_clock_s();
  return u;
}
