/* SPDX-License-Identifier: MIT
 * slots.h - the required slots of each kind's vtable: one table for the check at registration, the
 * documentation (docs/abi.md repeats it; a test compares) and the conformance kit. */
#ifndef BS_CORE_PLUGIN_SLOTS_H
#define BS_CORE_PLUGIN_SLOTS_H
#include <stddef.h>

#include "blockshock/blockshock.h"

/* When a slot is required. */
enum bs_slot_when {
  BS_SLOT_ALWAYS = 0,
  BS_SLOT_MATMUL = 1,  /* an implementation of matmul */
  BS_SLOT_ASYNC = 2,   /* a backend without BS_BACKEND_SYNC */
  BS_SLOT_DRIVEN = 3,  /* a communicator with launch DRIVEN */
  BS_SLOT_WRAPPER = 4, /* a communicator or backend that wraps another */
  BS_SLOT_NO_COST = 5, /* an algorithm without cost */
  BS_SLOT_KNOBS = 6    /* an op implementation with knobs */
};
typedef struct bs_slot {
  uint32_t kind;
  uint32_t when;
  const char *name;
  size_t offset;
} bs_slot;
extern BS_API const bs_slot bs_slots[];
extern BS_API const uint32_t bs_slot_count;

/* Size of a kind's vtable here and in 1.0 (until then the same); 0: unknown kind. */
BS_API size_t bs_kind_size(uint32_t kind);
BS_API size_t bs_kind_frozen_size(uint32_t kind);
/* vtable: full size. BS-PLG-SLOT names the first required slot that is NULL, or a value out of range. */
BS_API int32_t bs_slots_check(uint32_t kind, const void *vtable, bs_error *err);
#endif
