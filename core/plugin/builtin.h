/* SPDX-License-Identifier: MIT
 * builtin.h - the NULL-terminated table of plugins linked into the library (generated). */
#ifndef BS_CORE_PLUGIN_BUILTIN_H
#define BS_CORE_PLUGIN_BUILTIN_H
#include "blockshock/abi.h"
extern const bs_plugin_query_fn bs_builtin_queries[];
#endif
