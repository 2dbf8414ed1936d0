/* SPDX-License-Identifier: MIT
 * joint.h - the results of a case whose ranks are processes: each packs its part, rank 0 merges them. */
#ifndef BS_LAB_CASE_JOINT_H
#define BS_LAB_CASE_JOINT_H
#include "lab/case/case.h"
#include "lab/peers/exchange.h"

/* Takes the part that rank `rank` sent. */
typedef int32_t (*bs_joint_get_fn)(void *user, uint32_t rank, bs_parcel *parcel, bs_error *err);
/* Every rank's parcel to rank 0, which calls get for each of the others. `mine` is freed. */
int32_t bs_joint_gather(bs_world *world, uint32_t ranks, bs_parcel *mine, bs_joint_get_fn get, void *user,
                        bs_error *err);
/* Completes `result` on rank 0, which has only this process's rank; memory is summed. Does nothing if all
 * ranks are in this process. */
int32_t bs_joint_collect(bs_world *world, bs_case_result *result, bs_error *err);
#endif
