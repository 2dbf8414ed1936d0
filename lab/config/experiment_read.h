/* SPDX-License-Identifier: MIT
 * experiment_read.h - shared parts of the readers of an experiment (experiment.c, mask.c). */
#ifndef BS_LAB_CONFIG_EXPERIMENT_READ_H
#define BS_LAB_CONFIG_EXPERIMENT_READ_H
#include <string.h>

#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"

static inline int given(const bs_node *config, const char *path) {
  const bs_node *node = bs_config_find(config, path);
  return node != NULL && node->kind != BS_NODE_NULL;
}

/* Does the node come from a file below quiet_dir (NULL: none)? */
static inline int is_shipped(const bs_node *node, const char *quiet_dir) {
  const size_t length = quiet_dir == NULL ? 0 : strlen(quiet_dir);
  return node != NULL && node->file != NULL && length > 0 && strncmp(node->file, quiet_dir, length) == 0;
}

/* mask.*: e->mask with its shares, mask_given, importance. */
int32_t bs_experiment_mask(bs_context *context, bs_experiment *e, const char *quiet_dir, bs_notes *notes,
                           bs_error *err);
#endif
