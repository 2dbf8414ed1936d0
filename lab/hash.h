/* SPDX-License-Identifier: MIT
 * hash.h - 64-bit FNV-1a: compares bits. It gives no protection against deliberate collisions. */
#ifndef BS_LAB_HASH_H
#define BS_LAB_HASH_H
#include <stddef.h>
#include <stdint.h>

static inline uint64_t bs_hash64(const void *data, size_t bytes) {
  const unsigned char *p = (const unsigned char *)data;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}
#endif
