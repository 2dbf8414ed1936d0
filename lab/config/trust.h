/* SPDX-License-Identifier: MIT
 * trust.h - finds the parts of a stored configuration that are code, or a command, of its author. A checksum
 * proves that a file is complete, not who made it. */
#ifndef BS_LAB_CONFIG_TRUST_H
#define BS_LAB_CONFIG_TRUST_H
#include <jansson.h>

#include "lab/yaml/config.h"

/* [{key, value}]: the keys of the tree that name plugin files, folders of plugins whose files are opened, a
 * command, or a library that a plugin opens. They come from one table; for plugins that are not built in,
 * every parameter whose value looks like a file or a command is listed. Default values are left out. The
 * caller releases it. NULL: no memory. */
json_t *bs_config_code(const bs_node *tree);
#endif
