/* SPDX-License-Identifier: MIT
 * run_log.c - log.txt of run folders: every note and warning with its UTC time, also those that -q keeps from
 * stderr. Lines printed before the first point of a sweep go into each later run. Lines of a point before a
 * run is open go into each run of that point, and lines while a run is open go into that run. A lost line is
 * never an error. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "core/base/text.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* plugins log from rank threads */
static bs_text before;                                   /* lines printed while no run is open */
static size_t for_all;                                   /* bytes of those printed before the first point */
static int in_point;
static int log_fd = -1;

static void write_log(const char *data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(log_fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    data += n;
    size -= (size_t)n;
  }
}

void bsrun_log_line(const char *text) {
  char stamp[32];
  bs_text line = {0};
  struct timespec now;
  struct tm utc;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  bs_text_printf(&line, "%s.%03ldZ %s\n", stamp, now.tv_nsec / 1000000, text);
  if (line.data == NULL || line.failed) {
    bs_text_free(&line);
    return;
  }
  pthread_mutex_lock(&lock);
  if (log_fd >= 0) {
    write_log(line.data, line.size);
  } else {
    bs_text_append(&before, line.data, line.size);
  }
  pthread_mutex_unlock(&lock);
  bs_text_free(&line);
}

void bsrun_log_point(void) {
  pthread_mutex_lock(&lock);
  if (in_point) {
    before.size = for_all;
  } else {
    for_all = before.size;
  }
  in_point = 1;
  pthread_mutex_unlock(&lock);
}

void bsrun_log_begin(int run_fd) {
  pthread_mutex_lock(&lock);
  log_fd = openat(run_fd, "log.txt", O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (log_fd >= 0 && before.size > 0) write_log(before.data, before.size);
  pthread_mutex_unlock(&lock);
}

void bsrun_log_end(void) {
  pthread_mutex_lock(&lock);
  if (log_fd >= 0) {
    fsync(log_fd);
    close(log_fd);
  }
  log_fd = -1;
  pthread_mutex_unlock(&lock);
}

void bsrun_log_free(void) {
  bs_text_free(&before);
}
