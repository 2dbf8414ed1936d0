/* SPDX-License-Identifier: MIT
 * map.h - an input file opened safely, for the readers of this folder and for panel readers: only
 * regular files, never blocking on a FIFO; read by pread (a file cut short is an error) or mapped read-only
 * (a file cut short while mapped is SIGBUS, so long-lived readers use bs_map_pread or bs_map_guard). */
#ifndef BS_FORMATS_MAP_H
#define BS_FORMATS_MAP_H
#include "blockshock/blockshock.h"

/* A zero-filled record is a closed one. The identity fields are those of the moment of opening. */
typedef struct bs_map {
  int fd;
  uint32_t is_open;
  uint32_t guard;   /* not 0: of bs_map_guard */
  const void *data; /* NULL until bs_map_map; also for an empty file */
  uint64_t bytes;   /* size when opened */
  int64_t mtime_s, mtime_ns;
} bs_map;

/* Open a regular file for reading. `id` is the error id of a file that cannot be opened or is not
 * regular (BS_INPUT). */
int32_t bs_map_open(const char *path, const char *id, bs_map *out_map, bs_error *err);
/* Maps a descriptor that is open already; it then belongs to the map, and is closed on failure. */
int32_t bs_map_adopt(int fd, const char *path, const char *id, bs_map *out_map, bs_error *err);
/* Map the whole file; checks that its size is still the one seen by bs_map_open. */
int32_t bs_map_map(bs_map *map, const char *path, bs_error *err);
/* bs_map_map for whoever keeps the map and hands out pointers into it: when the file is cut short, the bytes
 * that are gone read as zeros, and bs_map_unchanged fails from then on. The first call installs a handler of
 * SIGBUS, which passes faults outside such maps on to the handler before it. */
int32_t bs_map_guard(bs_map *map, const char *path, bs_error *err);
/* Read exactly `bytes` at `offset`; BS_INPUT with BS-FILE-CHANGED when the file became shorter.
 * Thread-safe. */
int32_t bs_map_pread(const bs_map *map, const char *path, uint64_t offset, void *out, uint64_t bytes,
                     bs_error *err);
/* BS-FILE-CHANGED when the size or the modification time is not that of bs_map_open. Thread-safe. */
int32_t bs_map_unchanged(const bs_map *map, const char *path, bs_error *err);
void bs_map_close(bs_map *map);
#endif
