/* SPDX-License-Identifier: MIT
 *
 * bodies.h - what ranks do in the tests of libblockshock-tp: T1 to T6 (the names are told in
 * test_tp.c). The same functions run on threads, on coroutines and under MPI (tp_ranks.c), so they return
 * errors, and do not assert.
 */
#ifndef BS_TESTS_TP_BODIES_H
#define BS_TESTS_TP_BODIES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/tp.h"

/* A test of all ranks. tensor_size 0: the function initializes the parallel state itself, or needs none
 * (ranks that fail at the same time must not be opening groups meanwhile: one would end the other's call). */
typedef struct tp_body {
  const char *name;
  uint32_t world, tensor_size;
  bs_tp_rank_fn fn;
  const char *fails; /* the message that the spawn must have; NULL: it must succeed */
} tp_body;
extern const tp_body tp_bodies[];
extern const int tp_n_bodies;

/* bodies_*.c */
int32_t t1_null(bs_rank *rank, void *user, bs_error *err);
int32_t t1_state(bs_rank *rank, void *user, bs_error *err);
int32_t t1_left(bs_rank *rank, void *user, bs_error *err);
int32_t t4_once(bs_rank *rank, void *user, bs_error *err);
int32_t t4_roots(bs_rank *rank, void *user, bs_error *err);
int32_t t4_alike(bs_rank *rank, void *user, bs_error *err);
int32_t t4_silent(bs_rank *rank, void *user, bs_error *err);
int32_t t2_layers(bs_rank *rank, void *user, bs_error *err);
int32_t t2_refused(bs_rank *rank, void *user, bs_error *err);
int32_t t2_mappings(bs_rank *rank, void *user, bs_error *err);
int32_t t3_orphan(bs_rank *rank, void *user, bs_error *err);
int32_t t3_resume(bs_rank *rank, void *user, bs_error *err);
int32_t t3_many(bs_rank *rank, void *user, bs_error *err);
int32_t t3_idempotent(bs_rank *rank, void *user, bs_error *err);
int32_t t3_exception(bs_rank *rank, void *user, bs_error *err);
int32_t t5_readers(bs_rank *rank, void *user, bs_error *err);
int32_t t5_writers(bs_rank *rank, void *user, bs_error *err);
int32_t t6_mlp(bs_rank *rank, void *user, bs_error *err);
int32_t t6_refused(bs_rank *rank, void *user, bs_error *err);

/* Fills err with the place, and returns BS_NUMERIC. */
int32_t body_fails(bs_error *err, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define MUST(ok, ...)                                                   \
  do {                                                                  \
    if (!(ok)) return body_fails(err, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
#define TRY(call)                 \
  do {                            \
    const int32_t rc_ = (call);   \
    if (rc_ != BS_OK) return rc_; \
  } while (0)

/* The sum of one number of each rank of a group (NULL: the world). */
int32_t body_sum(bs_rank *rank, bs_group *group, double mine, double *out_sum, bs_error *err);

#endif
