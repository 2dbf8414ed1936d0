/* SPDX-License-Identifier: MIT
 * pull.h - a weight read from its source by the whole team. Each member has a separate error. */
#ifndef BS_PLUGINS_CPU_PULL_H
#define BS_PLUGINS_CPU_PULL_H

#include "../cpu.h"

/* One for each member of the team; NULL: no memory. free() ends them. */
bs_error *cpu_errors_make(const bs_exec *exec);
/* Run body by the team; the error is that of the first member that has one. */
int32_t cpu_team_errors(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *arg,
                        const bs_error *errors, bs_error *err);

/* The panels of a packed weight: rows of the source, 16 a member at a time, never a dense copy. */
typedef struct cpu_pull {
  const bs_exec *exec;
  const bs_source *source;
  const bs_partition *partition;
  int64_t N, K, panels;
  uint32_t dtype; /* of the rows that are read */
  /* Put `rows` rows, each K elements, where panel `panel` has them. */
  void (*place)(const void *packed, int64_t panel, int64_t rows, const uint8_t *from);
  const void *packed;
} cpu_pull;
int32_t cpu_pull_panels(const cpu_pull *pull, bs_error *err);
#endif
