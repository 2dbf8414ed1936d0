/* SPDX-License-Identifier: MIT
 * marked.h - finds processes of this machine by their environment, in any group and with any parent. */
#ifndef BS_LAB_PROCESS_MARKED_H
#define BS_LAB_PROCESS_MARKED_H
#include <stddef.h>
#include <sys/types.h>

/* Called for one process. environment: its settings, each with a NUL at its end. */
typedef void (*bs_marked_fn)(void *user, pid_t pid, const char *environment, size_t size);
/* Calls back for each process, except this one, that has the setting "NAME=value" in its environment.
 * Processes that have ended, and those of other users, cannot be read. */
void bs_marked_each(const char *setting, bs_marked_fn call, void *user);
#endif
