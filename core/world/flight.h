/* SPDX-License-Identifier: MIT
 *
 * flight.h - the flight recorder: what each rank's newest collectives were, in a file that is mapped, so that
 * it survives any death of the process. One file is open in a process at a time. Ranks write without locks.
 */
#ifndef BS_CORE_WORLD_FLIGHT_H
#define BS_CORE_WORLD_FLIGHT_H
#include <stdatomic.h>

#include "blockshock/blockshock.h"

enum { BS_FLIGHT_RANKS = 64, BS_FLIGHT_SLOTS = 64, BS_FLIGHT_SITE = 8 };
enum bs_flight_state { BS_FLIGHT_EMPTY = 0, BS_FLIGHT_ENTERED = 1, BS_FLIGHT_LEFT = 2, BS_FLIGHT_FAILED = 3 };

/* 32 bytes, in the byte order of the machine. */
typedef struct bs_flight_slot {
  uint64_t ns;    /* monotonic clock, coarse, when it was entered */
  uint64_t count; /* elements of a row */
  uint32_t seq;   /* of the rank's collectives, from 0 */
  uint8_t kind;   /* enum bs_coll_kind */
  uint8_t state;
  uint16_t dtype;
  char site[BS_FLIGHT_SITE]; /* the end of the call site's name, not terminated when it is that long */
} bs_flight_slot;

/* The whole file: 64 bytes, then the slots of each rank; collective seq of a rank is in slot seq % 64. */
typedef struct bs_flight_file {
  char magic[8]; /* "BSFLIGHT" */
  uint32_t version, ranks, slots, slot_bytes;
  int64_t pid;
  uint64_t ns; /* monotonic clock when it was opened */
  uint64_t reserved[3];
  bs_flight_slot slot[BS_FLIGHT_RANKS][BS_FLIGHT_SLOTS];
} bs_flight_file;

/* Makes `flight` in the folder and maps it. BS_BUSY: one is open already; BS_IO: there is no room, or no such
 * mapping. Nothing of this folder is recorded then. */
BS_API int32_t bs_flight_open(int folder_fd, bs_error *err);
/* Maps the recorder that another process of this machine has made at `path`: a rank of a world of processes
 * writes its slots into the same file. BS_BUSY, BS_IO, as above; BS_CORRUPT: the file is not a recorder. */
BS_API int32_t bs_flight_join(const char *path, bs_error *err);
/* Stops recording: later records are dropped. The file stays. */
BS_API void bs_flight_close(void);

/* NULL: nothing is recorded. The memory is never unmapped: a rank that hangs may still write. */
extern _Atomic(bs_flight_file *) bs_flight_now;
bs_flight_slot *bs_flight_enter(bs_flight_file *file, uint32_t rank, const bs_coll_call *call);

/* Around each collective of a rank; NULL: it is not recorded. */
static inline bs_flight_slot *bs_flight_begin(uint32_t rank, const bs_coll_call *call) {
  bs_flight_file *file = atomic_load_explicit(&bs_flight_now, memory_order_relaxed);
  return file != NULL && rank < BS_FLIGHT_RANKS ? bs_flight_enter(file, rank, call) : NULL;
}
static inline void bs_flight_end(bs_flight_slot *slot, int32_t rc) {
  if (slot != NULL) slot->state = rc == BS_OK ? BS_FLIGHT_LEFT : BS_FLIGHT_FAILED;
}
#endif
