/* SPDX-License-Identifier: MIT
 * marked.h - processes of this machine found by their environment, whatever group and parent they have. */
#ifndef BS_LAB_PROCESS_MARKED_H
#define BS_LAB_PROCESS_MARKED_H
#include <stddef.h>
#include <sys/types.h>

/* Called for one process. environment: its settings, each with a NUL at its end. */
typedef void (*bs_marked_fn)(void *user, pid_t pid, const char *environment, size_t size);
/* Calls back for each process but this one that has the setting "NAME=value" in its environment. One that has
 * ended has none to be read, and another user's cannot be. */
void bs_marked_each(const char *setting, bs_marked_fn call, void *user);
#endif
