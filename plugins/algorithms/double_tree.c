/* SPDX-License-Identifier: MIT
 *
 * double_tree.c - the algorithm "double_tree": two binary trees over all ranks but the root, which is above
 * both. A rank that passes on in one tree is a leaf of the other (one rank may be a leaf of both), and each
 * tree carries half of the vector, in chunks that follow each other. After Sanders, Speck, Traeff, Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan, 2009.
 */
#include "steps.h"

static const uint64_t kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_BROADCAST);

static const bs_param_desc chunks = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                     .type = BS_PARAM_INT,
                                     .name = "chunks",
                                     .default_text = "8",
                                     .choices = "1..65536",
                                     .doc = "parts of each tree's half that follow each other"};
static const bs_param_desc *const params[] = {&chunks, NULL};

/* A rank in one tree. Places are 1 to m = p - 1 in the order of the tree (a place's lowest bit is its
 * height); place 0 is the root, above place 2^floor(log2 m). */
typedef struct spot {
  uint32_t depth; /* of the root: 0 */
  uint32_t up;    /* ranks; UINT32_MAX: none */
  uint32_t down[2];
} spot;

static uint32_t parent(uint32_t place, uint32_t m) {
  const uint32_t bit = place & (~place + 1u), up = (place ^ bit) | bit << 1;
  return up > m ? place ^ bit : up;
}

/* Place to rank and back: the second tree is the first one mirrored where m is even, and moved on by one
 * where it is odd, so that odd and even places change. */
static uint32_t rank_of(const bs_coll_shape *shape, int tree, uint32_t place) {
  const uint32_t m = shape->world_size - 1;
  uint32_t number = place;
  if (place > 0 && tree == 1) number = m % 2 == 0 ? m + 1 - place : place % m + 1;
  return (number + shape->root) % shape->world_size;
}

static uint32_t place_of(const bs_coll_shape *shape, int tree, uint32_t rank) {
  const uint32_t p = shape->world_size, m = p - 1, number = (rank + p - shape->root) % p;
  if (number == 0 || tree == 0) return number;
  return m % 2 == 0 ? m + 1 - number : (number + m - 2) % m + 1;
}

static spot spot_of(const bs_coll_shape *shape, int tree, uint32_t rank) {
  const uint32_t m = shape->world_size - 1, place = place_of(shape, tree, rank);
  spot s = {0, UINT32_MAX, {UINT32_MAX, UINT32_MAX}};
  for (uint32_t at = place; at != 0; at = parent(at, m)) ++s.depth;
  if (place == 0) {
    s.down[0] = rank_of(shape, tree, 1u << floor_log2(m));
    return s;
  }
  s.up = rank_of(shape, tree, parent(place, m));
  uint32_t half = (place & (~place + 1u)) / 2;
  if (half == 0) return s;
  s.down[0] = rank_of(shape, tree, place - half);
  while (half > 0 && place + half > m) half /= 2;
  if (half > 0) s.down[1] = rank_of(shape, tree, place + half);
  return s;
}

/* Chunk c of a tree's half; nothing when there is no such chunk. */
static range chunk_of(const bs_coll_shape *shape, int tree, int64_t c) {
  const uint32_t n = (uint32_t)shape->options[0].i;
  const range half = range_part(range_all(shape), (uint32_t)tree, 2), nothing = {0, 0};
  return c < 0 || c >= n ? nothing : range_part(half, (uint32_t)c, n);
}

/* Round t of one tree whose deepest rank lies `deep` below the root. Going up, a rank at depth d sends chunk
 * c in round deep - d + c; the root has it after round deep - 1 + c. Going down, a rank at depth d gets chunk
 * c in round down + d - 1 + c. */
static void up_round(steps *s, int tree, const spot *me, int64_t t, uint32_t deep) {
  const range in = chunk_of(s->shape, tree, t - (int64_t)(deep - me->depth) + 1);
  if (me->up != UINT32_MAX)
    steps_send(s, me->up, BS_BUFFER_OUT, chunk_of(s->shape, tree, t - (int64_t)(deep - me->depth)));
  for (int i = 0; i < 2; ++i)
    if (me->down[i] != UINT32_MAX) steps_reduce(s, me->down[i], BS_BUFFER_OUT, in);
}

static void down_round(steps *s, int tree, const spot *me, int64_t t) {
  const range out = chunk_of(s->shape, tree, t - me->depth);
  for (int i = 0; i < 2; ++i)
    if (me->down[i] != UINT32_MAX) steps_send(s, me->down[i], BS_BUFFER_OUT, out);
  if (me->up != UINT32_MAX) steps_recv(s, me->up, BS_BUFFER_OUT, chunk_of(s->shape, tree, t - me->depth + 1));
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  const int32_t rc = need_kind("double_tree", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  bs_coll_shape rooted = *shape;
  const int reduces = shape->kind == BS_COLL_ALL_REDUCE;
  if (reduces) rooted.root = 0;
  steps s = {.shape = &rooted, .rank = rank, .emit = emit, .user = user};
  if (reduces || rank == rooted.root) steps_copy_in(&s);
  if (shape->world_size == 1) return s.rc;
  const spot me[2] = {spot_of(&rooted, 0, rank), spot_of(&rooted, 1, rank)};
  const uint32_t deep = floor_log2(shape->world_size - 1) + 1;
  const int64_t down = reduces ? deep : 0, rounds = down + deep + shape->options[0].i;
  for (int64_t t = shape->from_round; t < rounds && s.rc == 0; ++t) {
    s.round = (uint32_t)t;
    for (int tree = 0; tree < 2; ++tree) {
      if (reduces) up_round(&s, tree, &me[tree], t, deep);
      down_round(&s, tree, &me[tree], t - down);
    }
  }
  return s.rc;
}

/* The bound of that paper: (2 ceil(log2 p) + 2 k) (alpha + n beta / 2 k) for k chunks a tree, and twice as
 * much for an all-reduce. It holds if latencies of messages overlap. If a latency blocks the port, the
 * schedule may take 8 % more: the paper also colours the edges with two colours, so that a rank never
 * receives two messages at the same time. */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("double_tree", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const double k = (double)shape->options[0].i;
  const double chunk = link->latency_s + cost_bytes(shape) / (2 * k) * cost_byte(link);
  const double once = shape->world_size < 2 ? 0 : (2.0 * ceil_log2(shape->world_size) + 2 * k) * chunk;
  *out_seconds = shape->kind == BS_COLL_ALL_REDUCE ? 2 * once : once;
  return BS_OK;
}

const bs_algorithm algorithm_double_tree = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "double_tree",
    .summary = "two binary trees, each with half of the vector in chunks (the formula is an upper bound)",
    .kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_BROADCAST),
    .schedule = schedule,
    .params = params,
    .cost = cost,
};
