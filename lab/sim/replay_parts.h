/* SPDX-License-Identifier: MIT
 * replay_parts.h - the run of a log's jobs (replay_log.c), which products (replay.c), maps (replay_map.c)
 * and attention (replay_attention.c) share: what a job computes is theirs. */
#ifndef BS_LAB_SIM_REPLAY_PARTS_H
#define BS_LAB_SIM_REPLAY_PARTS_H
#include "lab/kernel/data.h"
#include "lab/sim/replay.h"

#define BS_REPLAY_MEMORY (UINT64_C(1) << 30) /* bytes at most: of the operands, of all scratch */

typedef struct bs_replaying {
  const sim_oplog *log;
  const bs_oplog_plan *plan;
  /* Operands as the program has them in memory: the caller's. bytes 0: there is none. */
  char *space[SIM_SPACES];
  uint64_t bytes[SIM_SPACES];
  /* Fills what job number `at` of the log writes; `out` is aligned to 64 bytes. */
  int32_t (*compute)(struct bs_replaying *r, uint64_t at, char *out);
  /* NULL: nothing to do. What the job wrote has landed. */
  int32_t (*landed)(struct bs_replaying *r, uint64_t at);
  void *user;
  bs_error *err;
  char *scratch; /* of all lanes */
  uint64_t of_lane;
  char **result;  /* of each job, from its begin to its end */
  uint64_t *read; /* a hash of what it read */
  uint64_t products;
} bs_replaying;

/* Runs all jobs in the order of their times. BS_INPUT BS-REPLAY-JOB, BS_CONFIG BS-REPLAY-SIZE, BS_NO_MEMORY;
 * and what compute returns. */
int32_t bs_replay_log(bs_replaying *r);
/* BS_CONFIG BS-REPLAY-SIZE: more work or bytes of operands than a replay takes. */
int32_t bs_replay_check_size(double work, uint64_t memory, bs_error *err);
int32_t bs_replay_bad_job(const bs_replaying *r, uint64_t at, const char *why);
/* The first byte of a range of a job. */
char *bs_replay_bytes(const bs_replaying *r, const sim_logged *job, const sim_range *range);
uint64_t bs_range_bytes(const sim_range *range);
/* Numbers of factor 1 for an input: normal ones, or whole ones from -3 to 3. */
int32_t bs_replay_set_input(bs_kernel_data *data, uint32_t index, int whole, uint64_t seed, bs_error *err);
/* What a load or a store writes. */
int32_t bs_replay_copied(bs_replaying *r, uint64_t at, char *out);
#endif
