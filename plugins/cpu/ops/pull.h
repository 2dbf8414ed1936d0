/* SPDX-License-Identifier: MIT
 *
 * pull.h - a source read by the whole team (packed.c). Each member has a separate error. */
#ifndef BS_PLUGINS_CPU_PULL_H
#define BS_PLUGINS_CPU_PULL_H

#include "../cpu.h"

/* One for each member of the team; NULL: no memory. free() ends them. */
bs_error *cpu_errors_make(const bs_exec *exec);
/* Run body by the team; the error is that of the first member that has one. */
int32_t cpu_team_errors(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *arg,
                        const bs_error *errors, bs_error *err);
#endif
