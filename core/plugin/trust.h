/* SPDX-License-Identifier: MIT
 * trust.h - who may have written a plugin file: a guard against accidents and planted files, not a
 * sandbox (docs/abi.md). Thread-safe. */
#ifndef BS_CORE_PLUGIN_TRUST_H
#define BS_CORE_PLUGIN_TRUST_H
#include <sys/stat.h>

#include "core/plugin/plugins.h"

/* Added to a trust: a folder with the sticky bit is trusted though all may write in it: only the owner of a
 * file there can replace it. For a file that is named by its path. */
enum { BS_TRUST_STICKY = 1u << 8 };

/* One file or folder of a chain. base: NULL, or who may change the library. Returns 1 when trusted, else 0
 * with the reason (without the path). */
BS_API int bs_trust_judge(uint32_t trust, const struct stat *st, uid_t euid, const bs_trust_base *base,
                          char *out_why, size_t size);
/* The file at `real` (a resolved path) and each folder above it up to "/", or up to base->root when
 * base is given. BS-PLG-TRUST names the first that is not trusted. */
BS_API int32_t bs_trust_chain(uint32_t trust, const char *real, const bs_trust_base *base, bs_error *err);
/* The measure for the library's own plugin folder: library is the path of libblockshock. 1, or 0. */
BS_API int bs_trust_base_of(const char *library, bs_trust_base *out_base);
#endif
