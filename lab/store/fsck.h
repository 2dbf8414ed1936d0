/* SPDX-License-Identifier: MIT
 * fsck.h - verifies a root of run folders, and repairs damage that can be repaired without losing valid
 * data. */
#ifndef BS_LAB_STORE_FSCK_H
#define BS_LAB_STORE_FSCK_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

typedef struct bs_fsck {
  json_t *rows;   /* [{run, state, what, done}] of all that is not a whole, committed run; done: what was
                     repaired,   or null */
  json_t *sweeps; /* [{sweep, planned, committed, foreign, torn}] of each plan.jsonl */
  uint64_t runs;  /* folders with DONE */
  uint64_t whole; /* of them: all that DONE sums is there */
  uint64_t damaged, torn, repaired;
  uint64_t uncut;  /* committed runs with a torn tail that was not cut: in no list */
  uint64_t closed; /* folders that this user may not look into */
} bs_fsck;

/* Checks that root is a folder: a wrong name must not pass as "nothing is damaged". BS_INPUT: it is not
 * there; BS_IO. */
int32_t bs_runs_root_check(const char *root, bs_error *err);
/* Checks every run below root. repair: a torn tail is cut off under the run's lock (its bytes are kept in
 * metrics.jsonl.torn); copies of the first record's data are written again; an index that contradicts the
 * records is removed; so are temporary folders whose lock is free and whose process ended. Data that another
 * process holds is never changed. BS_CORRUPT: damage that repair cannot undo, or a committed run with a torn
 * tail that was not cut. Errors of bs_runs_root_check. BS_IO: a folder cannot be read or written; if folders
 * are only closed to this user, all others are checked. `out` has the findings; release it with bs_fsck_free
 * in any case. */
int32_t bs_fsck_run(const char *root, int repair, bs_fsck *out, bs_error *err);
void bs_fsck_free(bs_fsck *fsck);

enum bs_lock_state { BS_LOCK_FREE, BS_LOCK_HELD, BS_LOCK_MISSING };
/* Takes the lock of a run's folder; *out_fd holds it until it is closed (-1: not taken). */
enum bs_lock_state bs_folder_lock(int fd, int *out_fd);
#endif
