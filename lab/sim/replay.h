/* SPDX-License-Identifier: MIT
 * replay.h - the data of an op log: its jobs move and compute numbers in the order of its times. A job's
 * reads are taken at its begin, its write lands at its end, of equal times writes come first. Sums of a
 * product are f32, the depth ascending. The tiles of a map are computed by `ref`, and the whole map too. */
#ifndef BS_LAB_SIM_REPLAY_H
#define BS_LAB_SIM_REPLAY_H
#include "lab/sim/oplog.h"

#define BS_OPLOG_PRODUCTS (UINT64_C(1) << 31) /* at most */

typedef struct bs_oplog_replayed {
  uint64_t values;  /* of Y, or of all outputs of a map */
  uint64_t untiled; /* of them, with other bits than the untiled loop (of a map: `ref`), on normal numbers */
  uint64_t ref;     /* with other bits than `ref`, on whole numbers from -3 to 3 */
  double error;     /* relative, of the normal numbers against f64 */
  double predicted; /* what round-off explains; `limit` times it is allowed */
  double limit;
  uint32_t checks; /* enum bs_replayed_check: which were made */
} bs_oplog_replayed;

enum bs_replayed_check { BS_REPLAYED_UNTILED = 1, BS_REPLAYED_REF = 2, BS_REPLAYED_ERROR = 4 };

/* The operands as the replay has them: A [m][k] and B [n][k], dense, of the op's dtype; and Y [m][n]. Fills
 * y, all bits set where no store wrote. BS_INPUT BS-REPLAY-JOB: a job that cannot be run; BS_CONFIG
 * BS-REPLAY-SIZE. */
int32_t bs_oplog_data(const sim_oplog *log, const bs_oplog_plan *plan, const void *a, const void *b, void *y,
                      bs_error *err);
/* Computes the same Y by one loop. */
int32_t bs_oplog_untiled(const bs_oplog_plan *plan, const void *a, const void *b, void *y, bs_error *err);
/* Of a map, like bs_oplog_replay. BS_UNSUPPORTED BS-REPLAY-DATA: `ref` does not serve the op of this
 * dtype. */
int32_t bs_oplog_replay_map(bs_context *context, const sim_oplog *log, const bs_oplog_plan *plan,
                            uint64_t seed, bs_oplog_replayed *out, bs_error *err);
/* Of attention: the untiled loop takes the keys in the program's blocks, so its bits must be equal; those of
 * `ref`, which adds in another order, cannot be. Fills the error. BS_UNSUPPORTED BS-REPLAY-DATA. */
int32_t bs_oplog_replay_attention(const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                                  bs_oplog_replayed *out, bs_error *err);
/* All of it. context: for `ref`. */
int32_t bs_oplog_replay(bs_context *context, const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                        bs_oplog_replayed *out, bs_error *err);
#endif
