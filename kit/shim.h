/* SPDX-License-Identifier: MIT
 *
 * shim.h - a method's table with the kit between it and its callers. It reports which phase runs, and gives
 * the method a rank table whose services are counted and recorded; on request one fails or stops at its n-th
 * call. */
#ifndef BS_KIT_SHIM_H
#define BS_KIT_SHIM_H
#include <pthread.h>

#include "kit/kit.h"

enum { KIT_BUILD = 0, KIT_FORWARD = 1, KIT_READ = 2, KIT_PHASES = 3 };
extern const char *const kit_phase_names[KIT_PHASES];

enum { KIT_SHIM_RANKS = 8 };

/* The place where rank 0 stops: the n-th op or collective of its forwards, until it may continue. The other
 * ranks do not stop, and are counted. */
typedef struct kit_stop {
  pthread_mutex_t lock;
  pthread_cond_t change;
  int64_t at;                    /* 0: nowhere */
  int64_t calls[KIT_SHIM_RANKS]; /* so far, of each rank */
  int stopped, go;
} kit_stop;

typedef struct kit_shim {
  bs_method table; /* for mf_case.table, with table_state = this */
  const bs_method *real;
  void *state;
  kit_stop *stop;           /* NULL: none */
  size_t stack[KIT_PHASES]; /* most bytes; in a DRIVEN world */
  uint32_t deepest[KIT_PHASES];
} kit_shim;

/* Bytes of device memory that a rank took for its layer: its packed weights, tensors that live as long (a
 * bias), and scratch. Reading the weights back is not counted. Counts since kit_shim_make. */
typedef struct kit_taken {
  uint64_t packed, kept, scratch;
} kit_taken;
const kit_taken *kit_shim_taken(uint32_t rank);

/* A hash of what a method gives ops and collectives on this thread: the plans and the memory of the tensors,
 * in order. */
typedef struct kit_record {
  uint64_t hash;
  uint32_t calls;
} kit_record;
/* Records calls until it is called with NULL. */
void kit_shim_record(kit_record *record);

/* faults: the host whose n-th service call fails, including those of the rank table; NULL: none. One host a
 * process. */
void kit_shim_make(kit_shim *s, const bs_method *real, void *state, kit_host *faults);
/* The list of what methods took from rank tables and did not release: "2 packed weights, 1 plan of an op", or
 * NULL. */
const char *kit_shim_left(void);
#endif
