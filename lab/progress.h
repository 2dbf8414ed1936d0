/* SPDX-License-Identifier: MIT
 * progress.h - how long work tells how far it is. */
#ifndef BS_LAB_PROGRESS_H
#define BS_LAB_PROGRESS_H
#include <stdint.h>

/* Called with a short text, a count done and a total, from any thread and from several at once. */
typedef void (*bs_progress_fn)(void *user, const char *what, uint64_t done, uint64_t total);
#endif
