/* SPDX-License-Identifier: MIT
 * log.h - the host-owned log: one line a message, with level, plugin and rank; to the context's
 * callback or stderr. Thread-safe. */
#ifndef BS_CORE_BASE_LOG_H
#define BS_CORE_BASE_LOG_H
#include "blockshock/blockshock.h"
typedef struct bs_logger {
  int32_t level;
  void (*write)(void *user, int32_t level, const char *plugin, int32_t rank, const char *message);
  void *user;
} bs_logger;
BS_API void bs_logger_init(bs_logger *logger, int32_t level,
                           void (*write)(void *, int32_t, const char *, int32_t, const char *), void *user);
BS_API int32_t bs_log_enabled(const bs_logger *logger, int32_t level);
BS_API void bs_log_write(const bs_logger *logger, int32_t level, const char *plugin, int32_t rank,
                         const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The rank of the calling thread for log lines: set by the launcher, -1 elsewhere. */
BS_API void bs_log_set_rank(int32_t rank);
/* Does the same on a thread that belongs to a rank for a while only: the function below is not called. */
BS_API void bs_log_take_rank(int32_t rank);
/* A program's function that each thread of a rank calls as it begins; before any world. NULL: none. */
BS_API void bs_log_on_rank_thread(void (*began)(void));
BS_API int32_t bs_log_rank(void);
#endif
