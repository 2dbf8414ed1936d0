/* SPDX-License-Identifier: MIT
 * short_names.h - words of a command line that are configuration keys by other names: N is model.N. */
#ifndef BS_LAB_CONFIG_SHORT_NAMES_H
#define BS_LAB_CONFIG_SHORT_NAMES_H
#include <stddef.h>

enum { BS_SHORT_NAMES_MAX = 32 };

/* The configuration key of a short name, or the name itself. */
const char *bs_short_name_key(const char *name);
/* All short names, for the nearest spelling of one that is unknown; returns how many. */
size_t bs_short_names(const char *out[BS_SHORT_NAMES_MAX]);
#endif
