/* SPDX-License-Identifier: MIT
 *
 * steps.h - shared parts of the algorithms in this folder: emitting steps, cutting ranges into blocks, and
 * the collectives of a party (a row of ranks at one distance), from which larger algorithms are built. */
#ifndef PLUGINS_ALGORITHMS_STEPS_H
#define PLUGINS_ALGORITHMS_STEPS_H
#include <blockshock/plugin.h>

/* Elements first .. first + count - 1 of a buffer. */
typedef struct range {
  uint64_t first, count;
} range;

/* One call of schedule. Steps get the number `round`; rc is the first result of emit that is not 0, and
 * ends the emitting. */
typedef struct steps {
  const bs_coll_shape *shape;
  uint32_t rank;
  uint32_t round;
  int32_t (*emit)(void *user, const bs_coll_step *step);
  void *user;
  int32_t rc;
} steps;

void steps_send(steps *s, uint32_t to, uint32_t buffer, range what);
void steps_recv(steps *s, uint32_t from, uint32_t buffer, range where);
void steps_reduce(steps *s, uint32_t from, uint32_t buffer, range where);
void steps_copy(steps *s, uint32_t from_buffer, uint64_t from_first, uint32_t buffer, range where);
/* Adds elements of the rank's own memory, without a message. */
void steps_add(steps *s, uint32_t from_buffer, uint64_t from_first, uint32_t buffer, range where);
/* All elements of IN into OUT. */
void steps_copy_in(steps *s);

/* Skips those of the next `rounds` rounds that the caller does not want (shape->from_round); returns their
 * number. */
uint32_t steps_skip(steps *s, uint32_t rounds);

/* All elements, and block b of the shape. */
range range_all(const bs_coll_shape *shape);
range range_block(const bs_coll_shape *shape, uint32_t b);
/* Part i of n even parts; their sizes differ by at most 1. */
range range_part(range r, uint32_t i, uint32_t n);

/* Some ranks and a range of OUT: member i is rank base + i * stride, or, mirrored, base + (size - 1 - i) *
 * stride. The range is cut into a block a member: the shape's blocks if `blocks` is set, else even ones. */
typedef struct party {
  uint32_t base, stride, size, me;
  uint32_t mirrored;
  const bs_coll_shape *blocks;
  range all;
} party;
party party_world(const steps *s);
uint32_t party_rank(const party *g, uint32_t member);
range party_block(const party *g, uint32_t member);
/* Step 0 .. size - 2 of a ring, in the round of `s`. After the last one of reduce_scatter member i has the
 * sum of block i; after the last one of all_gather every member has all blocks. */
void party_reduce_scatter_step(steps *s, const party *g, uint32_t step);
void party_all_gather_step(steps *s, const party *g, uint32_t step);
/* All steps; afterwards `s->round` is the next free round. */
void party_reduce_scatter(steps *s, const party *g);
void party_all_gather(steps *s, const party *g);
/* All-reduce of the range by halving and doubling, any size. */
void party_halving_doubling(steps *s, const party *g);

/* A party whose size is not a power of two: the first 2 * extra members are pairs, and the second of a pair
 * represents both. `active` members remain; their number is a power of two. */
typedef struct folded {
  uint32_t active, extra;
  uint32_t me; /* among the active ones; UINT32_MAX: this member is not */
} folded;
folded fold(const party *g);
uint32_t fold_member(const folded *f, uint32_t active); /* the member that is active one number `active` */
/* A round that adds the first of each pair to the second; and one that sends the result back. Nothing if
 * there are no pairs. */
void fold_in(steps *s, const party *g, const folded *f);
void fold_out(steps *s, const party *g, const folded *f);

/* For cost: bytes of the whole vector, seconds per byte, ceil(log2 n). */
double cost_bytes(const bs_coll_shape *shape);
double cost_byte(const bs_link *link);
uint32_t ceil_log2(uint32_t n);
uint32_t floor_log2(uint32_t n);
/* The two-shape closed forms that several algorithms take: a ring, and halving-doubling, over n members and
 * `bytes`. */
double cost_ring(uint32_t n, double bytes, const bs_link *link);
double cost_halving_doubling(uint32_t n, double bytes, const bs_link *link);

/* BS_UNSUPPORTED unless the kind is one of the bit set. */
int32_t need_kind(const char *who, uint64_t kinds, const bs_coll_shape *shape, bs_error *err);
#define KIND(kind) (UINT64_C(1) << (kind))

/* The algorithms, one a file. */
extern const bs_algorithm algorithm_ring, algorithm_ring_bidir, algorithm_doubling,
    algorithm_halving_doubling, algorithm_binomial, algorithm_one_shot, algorithm_two_shot,
    algorithm_pairwise, algorithm_chain, algorithm_double_tree, algorithm_hierarchical, algorithm_torus2d,
    algorithm_nccl230;
#endif
