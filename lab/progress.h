/* SPDX-License-Identifier: MIT
 * progress.h - reports of progress by long work. */
#ifndef BS_LAB_PROGRESS_H
#define BS_LAB_PROGRESS_H
#include <stdint.h>

/* Receives a short text, a count done and a total. Any thread may call it, also several at the same time. */
typedef void (*bs_progress_fn)(void *user, const char *what, uint64_t done, uint64_t total);
#endif
