/* SPDX-License-Identifier: MIT
 * accept.h - which plugins a host accepts: pure functions of the numbers both sides state, so that hosts
 * and plugins of other versions can be simulated (tests/plugin/test_abi_rules.c). A host of major 0
 * wants the same minor and the same sizes; from 1.0 on older and newer minors are accepted. docs/abi.md
 * is the prose. Thread-safe. */
#ifndef BS_CORE_PLUGIN_ACCEPT_H
#define BS_CORE_PLUGIN_ACCEPT_H
#include <stddef.h>

#include "blockshock/blockshock.h"

#define BS_ABI_MAKE(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))

/* plugin_abi: compiled against; min_host_minor: oldest host minor that serves it. */
BS_API int32_t bs_accept_abi(uint32_t host_abi, uint32_t plugin_abi, uint32_t min_host_minor, bs_error *err);
/* Checks the size of a struct that came from a plugin. frozen: its size in 1.0; current: its size here. */
BS_API int32_t bs_accept_size(uint32_t host_abi, const char *what, uint64_t seen, uint64_t frozen,
                              uint64_t current, bs_error *err);
/* Same ABI number, other headers: refused. */
BS_API int32_t bs_accept_ledger(uint32_t host_abi, uint32_t plugin_abi, uint64_t host_hash,
                                uint64_t plugin_hash, bs_error *err);
BS_API int32_t bs_accept_sanitizer(uint32_t host, uint32_t plugin, bs_error *err);
/* dst (dst_size bytes) becomes zero, then the first min(src_size, dst_size) bytes of src; its leading
 * struct_size becomes dst_size. */
BS_API void bs_copy_in(void *dst, size_t dst_size, const void *src, size_t src_size);
/* Checks the size of a plugin's struct, whose first member is struct_size, and copies it into the host's own.
 * frozen: its bytes in 1.0. NULL counts as a struct of size 0. */
BS_API int32_t bs_accept_copy(uint32_t host_abi, const char *what, const void *seen, size_t frozen, void *dst,
                              size_t dst_size, bs_error *err);
#endif
