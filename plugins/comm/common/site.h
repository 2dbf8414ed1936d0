/* SPDX-License-Identifier: MIT
 * site.h - a key of the text that describes a call: the letters of its site, its kind, dtype, rows and count.
 * exchange remembers texts by it. The call's fingerprint differs in each run, and the address of a site may
 * later hold another name, so neither of them can be the key. Used by threads, shm and mpi. */
#ifndef BS_COMM_SITE_H
#define BS_COMM_SITE_H
#include "blockshock/comm.h"

static inline uint64_t comm_site_key(const bs_coll_call *call) {
  const uint64_t said[] = {call->kind, call->dtype_in, call->rows, call->count};
  uint64_t key = UINT64_C(0xcbf29ce484222325);
  for (const char *c = call->site != NULL ? call->site : ""; *c != 0; ++c)
    key = (key ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
  for (int i = 0; i < 4; ++i) {
    key = (key ^ said[i]) * UINT64_C(0x9e3779b97f4a7c15);
    key ^= key >> 29;
  }
  return key;
}
#endif
