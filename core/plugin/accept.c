/* SPDX-License-Identifier: MIT
 * accept.c - the version rules of the plugin ABI as pure functions. Called by note.c (what the file
 * says), load.c (what the descriptor says) and stage.c (the vtables). */
#include "core/plugin/accept.h"

#include <string.h>

#include "core/base/error.h"

/* Fixed for ever (docs/abi.md): either side fills them whole, whatever the other was compiled with. */
_Static_assert(sizeof(bs_error) == 1032, "bs_error never changes");
_Static_assert(sizeof(bs_value) == 32, "bs_value never changes");
_Static_assert(sizeof(bs_src_loc) == 16, "bs_src_loc never changes");
_Static_assert(sizeof(bs_tensor) == 160, "bs_tensor never changes");

#define REBUILD "rebuild it against this host's headers (pkg-config --cflags blockshock-plugin)"

int32_t bs_accept_abi(uint32_t host_abi, uint32_t plugin_abi, uint32_t min_host_minor, bs_error *err) {
  uint32_t host_major = host_abi >> 16, host_minor = host_abi & 0xffffu;
  uint32_t major = plugin_abi >> 16, minor = plugin_abi & 0xffffu;
  if (plugin_abi == 0) {
    bs_error_set(err, BS_ABI, "BS-PLG-ABI", "states no plugin ABI version (0), host has %u.%u", host_major,
                 host_minor);
  } else if (major != host_major) {
    bs_error_set(err, BS_ABI, "BS-PLG-ABI", "built for plugin ABI %u, host has %u", major, host_major);
  } else if (host_major == 0 && minor != host_minor) {
    bs_error_set(err, BS_ABI, "BS-PLG-ABI",
                 "built for plugin ABI 0.%u, host has 0.%u (before 1.0 both must be the same)", minor,
                 host_minor);
  } else if (min_host_minor > host_minor) {
    bs_error_set(err, BS_ABI, "BS-PLG-ABI", "needs plugin ABI %u.%u or newer, host has %u.%u", major,
                 min_host_minor, host_major, host_minor);
  } else {
    return BS_OK;
  }
  bs_error_hint(err, REBUILD);
  return BS_ABI;
}

int32_t bs_accept_size(uint32_t host_abi, const char *what, uint64_t seen, uint64_t frozen, uint64_t current,
                       bs_error *err) {
  int exact = (host_abi >> 16) == 0;
  if (exact ? seen == current : seen >= frozen) return BS_OK;
  bs_error_set(err, BS_ABI, "BS-PLG-SIZE", "struct_size of %s is %llu, host needs %s%llu", what,
               (unsigned long long)seen, exact ? "" : "at least ",
               (unsigned long long)(exact ? current : frozen));
  bs_error_hint(err, "set struct_size to sizeof(%s); " REBUILD, what);
  return BS_ABI;
}

int32_t bs_accept_ledger(uint32_t host_abi, uint32_t plugin_abi, uint64_t host_hash, uint64_t plugin_hash,
                         bs_error *err) {
  if (host_abi != plugin_abi || host_hash == plugin_hash) return BS_OK;
  bs_error_set(err, BS_ABI, "BS-PLG-ABI",
               "same ABI number %u.%u, other headers: ledger %016llx, host has %016llx", host_abi >> 16,
               host_abi & 0xffffu, (unsigned long long)plugin_hash, (unsigned long long)host_hash);
  bs_error_hint(err, REBUILD);
  return BS_ABI;
}

static const char *sanitizer_flag(uint32_t kind) {
  if (kind == BS_SAN_NONE) return "no sanitizer";
  if (kind == BS_SAN_ADDRESS) return "-fsanitize=address";
  if (kind == BS_SAN_THREAD) return "-fsanitize=thread";
  return "an unknown sanitizer";
}

int32_t bs_accept_sanitizer(uint32_t host, uint32_t plugin, bs_error *err) {
  if (host == plugin) return BS_OK;
  bs_error_set(err, BS_ABI, "BS-PLG-SANITIZER", "built with %s, host with %s", sanitizer_flag(plugin),
               sanitizer_flag(host));
  if (host == BS_SAN_NONE)
    bs_error_hint(err, "build the plugin without %s", sanitizer_flag(plugin));
  else
    bs_error_hint(err, "build the plugin with %s", sanitizer_flag(host));
  return BS_ABI;
}

void bs_copy_in(void *dst, size_t dst_size, const void *src, size_t src_size) {
  uint32_t size = (uint32_t)dst_size;
  memset(dst, 0, dst_size);
  memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
  memcpy(dst, &size, sizeof size); /* struct_size is the first member of every ABI struct */
}

int32_t bs_accept_copy(uint32_t host_abi, const char *what, const void *seen, size_t frozen, void *dst,
                       size_t dst_size, bs_error *err) {
  uint32_t size = 0;
  if (seen != NULL) memcpy(&size, seen, sizeof size);
  const int32_t rc = bs_accept_size(host_abi, what, size, frozen, dst_size, err);
  if (rc == BS_OK && seen != NULL)
    bs_copy_in(dst, dst_size, seen, size); /* NULL has the size 0, which is refused */
  return rc;
}
