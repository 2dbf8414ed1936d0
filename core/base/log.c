/* SPDX-License-Identifier: MIT
 * log.c - the host-owned log: finished lines to the context's callback, or to stderr with one write.
 * Called by the host table's log slot, the world launcher and the lab. Thread-safe: a logger does not
 * change after bs_logger_init. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Set by launchers for their rank threads, so that lines name the rank without every caller passing it.
 * Only for log lines: no rank path depends on it. */
static _Thread_local int32_t current_rank = -1;

static void (*on_rank_thread)(void);

void bs_log_set_rank(int32_t rank) {
  current_rank = rank;
  if (on_rank_thread != NULL) on_rank_thread();
}

void bs_log_take_rank(int32_t rank) {
  current_rank = rank;
}

void bs_log_on_rank_thread(void (*began)(void)) {
  on_rank_thread = began;
}

int32_t bs_log_rank(void) {
  return current_rank;
}

static const char *level_name(int32_t level) {
  switch (level) {
    case BS_LOG_ERROR:
      return "error";
    case BS_LOG_WARN:
      return "warning";
    case BS_LOG_INFO:
      return "info";
    default:
      return "debug";
  }
}

static void clean(char *text) {
  for (char *p = text; *p != '\0'; p++) {
    unsigned char c = (unsigned char)*p;
    if (c < 0x20 || c == 0x7f) *p = ' ';
  }
}

/* "warning: cpu: rank 1: message\n" in one write, so that lines of several threads do not mix. */
static void write_stderr(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  char line[1200], who[64] = "", place[32] = "";
  (void)user;
  if (plugin != NULL && plugin[0] != '\0') snprintf(who, sizeof who, "%.40s: ", plugin);
  if (rank >= 0) snprintf(place, sizeof place, "rank %d: ", (int)rank);
  int n = snprintf(line, sizeof line - 1, "%s: %s%s%s", level_name(level), who, place, message);
  if (n < 0) return;
  size_t used = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;
  line[used] = '\0';
  clean(line);
  line[used++] = '\n';
  for (size_t done = 0; done < used;) {
    ssize_t w = write(STDERR_FILENO, line + done, used - done);
    if (w <= 0) return; /* a closed stderr must not stop the run */
    done += (size_t)w;
  }
}

void bs_logger_init(bs_logger *logger, int32_t level,
                    void (*write_line)(void *, int32_t, const char *, int32_t, const char *), void *user) {
  logger->level = level == 0 ? BS_LOG_WARN : level;
  logger->write = write_line != NULL ? write_line : write_stderr;
  logger->user = user;
}

int32_t bs_log_enabled(const bs_logger *logger, int32_t level) {
  return logger != NULL && logger->write != NULL && level >= BS_LOG_ERROR && level <= logger->level;
}

void bs_log_write(const bs_logger *logger, int32_t level, const char *plugin, int32_t rank, const char *fmt,
                  ...) {
  if (!bs_log_enabled(logger, level)) return;
  char message[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  logger->write(logger->user, level, plugin != NULL ? plugin : "", rank, message);
}
