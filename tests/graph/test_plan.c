/* SPDX-License-Identifier: MIT
 * test_plan.c - the planner: no two blocks share a byte in a step, the lower bound is reached on cases that
 * trap simple planners and on random graphs, plans are the same each time, wrong plans are caught, bad input
 * is refused. BS_TEST_BIG=N: N times the random graphs. */
#include <string.h>

#include "core/base/error.h"
#include "tests/graph/plan_oracle.h"
#include "tests/run_tests.h"

enum { MOST = 1024 };
static uint64_t offsets[MOST];

static gplan_arena place(const gplan_block *blocks, uint32_t n, uint64_t alignment, uint64_t steps) {
  const gplan_options options = {alignment, steps};
  gplan_arena arena;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(gplan_place(blocks, n, &options, offsets, &arena, &err) == BS_OK, "%s: %s", err.id,
                err.message);
  ck_assert_uint_eq(oracle_faults(blocks, n, alignment, offsets, arena.bytes), 0);
  ck_assert_msg(gplan_check(blocks, n, alignment, offsets, arena.bytes, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(arena.bound, oracle_bound(blocks, n, alignment));
  ck_assert_uint_ge(arena.bytes, arena.bound);
  if (arena.bytes == arena.bound) ck_assert_uint_eq(arena.proven, 1);
  return arena;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static const struct {
  const char *what;
  uint64_t alignment, arena, bound;
  uint32_t peak, n;
  gplan_block blocks[12];
} hand[] = {
    {"nothing", 1, 0, 0, 0, 0, {{0, 0, 0}}},
    {"one block", 64, 64, 64, 3, 1, {{1, 3, 4}}},
    {"blocks of 0 bytes", 64, 128, 128, 1, 3, {{0, 0, 9}, {128, 1, 2}, {0, 1, 2}}},
    /* google/XNNPACK#10800: C fits below B, behind A. */
    {"a gap below the first block", 1, 180, 180, 1, 3, {{100, 0, 2}, {80, 1, 3}, {60, 2, 4}}},
    /* #10801: the smaller of two gaps, one of them the leading one. */
    {"the smaller gap", 1, 330, 330, 0, 5, {{100, 0, 1}, {100, 0, 9}, {30, 0, 1}, {100, 0, 9}, {30, 1, 9}}},
    {"a gap of exactly its size", 1, 30, 30, 0, 4, {{10, 0, 3}, {10, 0, 1}, {10, 0, 3}, {10, 1, 3}}},
    {"blocks that end where others begin", 1, 10, 10, 0, 3, {{10, 0, 1}, {10, 1, 2}, {10, 2, 3}}},
    /* The example of minimalloc's README, which needs 12. */
    {"minimalloc's example", 1, 12, 12, 0, 5, {{4, 0, 3}, {4, 3, 9}, {4, 0, 9}, {4, 9, 21}, {4, 0, 21}}},
    /* By size the two long blocks of 3 come first, one on the other; then 2 + 2 beside them do not fit. */
    {"largest first is not best",
     1,
     7,
     7,
     0,
     6,
     {{3, 0, 3}, {3, 4, 7}, {2, 0, 5}, {2, 2, 7}, {2, 0, 1}, {2, 6, 7}}},
    {"sizes are rounded up to the alignment", 64, 192, 192, 0, 2, {{65, 0, 2}, {1, 0, 2}}},
};

START_TEST(plans_by_hand) {
  const gplan_arena arena = place(hand[_i].blocks, hand[_i].n, hand[_i].alignment, GPLAN_EXACT_STEPS);
  ck_assert_msg(arena.bytes == hand[_i].arena && arena.bound == hand[_i].bound && arena.peak == hand[_i].peak,
                "%s: arena %llu bound %llu peak %u", hand[_i].what, (unsigned long long)arena.bytes,
                (unsigned long long)arena.bound, arena.peak);
}
END_TEST

/* No plan reaches the bound: the search proves it. a-d are 1 wide each in a ring that 2-D packing cannot
 * close. */
START_TEST(what_cannot_be_reached_is_proven) {
  static const gplan_block ring[] = {{2, 0, 2}, {2, 1, 4}, {1, 2, 5}, {2, 4, 6},
                                     {1, 0, 1}, {1, 5, 7}, {3, 6, 8}};
  const gplan_arena arena = place(ring, 7, 1, GPLAN_EXACT_STEPS);
  ck_assert_uint_eq(arena.proven, 1);
  /* Every order of first-fit reaches every canonical plan: the smallest of all 7! orders is the truth. */
  uint32_t order[7] = {0, 1, 2, 3, 4, 5, 6}, count[7] = {0};
  uint64_t best = UINT64_MAX;
  for (uint32_t i = 0;;) {
    uint64_t at[7], top = 0;
    for (uint32_t k = 0; k < 7; k++) {
      const gplan_block *b = &ring[order[k]];
      at[k] = 0;
      for (uint32_t again = 1; again;) {
        again = 0;
        for (uint32_t j = 0; j < k; j++) {
          const gplan_block *o = &ring[order[j]];
          if (o->lower >= b->upper || b->lower >= o->upper) continue;
          if (at[k] >= at[j] + o->bytes || at[j] >= at[k] + b->bytes) continue;
          at[k] = at[j] + o->bytes;
          again = 1;
        }
      }
      if (at[k] + b->bytes > top) top = at[k] + b->bytes;
    }
    if (top < best) best = top;
    while (i < 7 && count[i] >= i) count[i++] = 0; /* Heap's algorithm: the next order */
    if (i == 7) break;
    const uint32_t from = i % 2 == 0 ? 0 : count[i], keep = order[from];
    order[from] = order[i];
    order[i] = keep;
    count[i]++;
    i = 0;
  }
  ck_assert_uint_eq(arena.bytes, best);
}
END_TEST

/* ---- random graphs --------------------------------------------------------------------------- */

static uint32_t graphs(void) {
  const char *text = getenv("BS_TEST_BIG");
  return 100 * (text != NULL ? (uint32_t)atoi(text) : 1);
}

START_TEST(random_graphs_reach_the_bound) {
  static gplan_block blocks[ORACLE_MAX_NODES];
  const uint32_t count = graphs();
  uint32_t equal = 0, exact = 0, number_of_worst = 0;
  double worst = 1;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t n = oracle_graph(i, blocks);
    const gplan_arena arena = place(blocks, n, 64, GPLAN_EXACT_STEPS);
    const double ratio = (double)arena.bytes / (double)arena.bound;
    equal += arena.bytes == arena.bound;
    exact += strcmp(arena.by, "exact") == 0;
    if (ratio <= worst) continue;
    worst = ratio;
    number_of_worst = i;
  }
  if (count > 100)
    printf("%u random graphs: %u at the bound (%u by the exact search), worst %.4f (graph %u)\n", count,
           equal, exact, worst, number_of_worst);
  ck_assert_msg(worst <= 1.05, "graph %u: %.4f of the bound", number_of_worst, worst);
  ck_assert_msg(equal * 100 >= count * 95, "%u of %u reach the bound", equal, count);
  ck_assert_uint_gt(exact, 0);
}
END_TEST

/* Small problems, with the exact search alone as the truth against the portfolio: never worse, equal when the
 * portfolio is proven. The same call twice gives the same plan. */
START_TEST(plans_are_pure) {
  static gplan_block blocks[ORACLE_MAX_NODES];
  static uint64_t first[ORACLE_MAX_NODES];
  for (uint32_t i = 0; i < 20; i++) {
    const uint32_t n = oracle_graph(1000 + i, blocks);
    const gplan_arena plain = place(blocks, n, 64, 0);
    ck_assert_uint_eq(plain.steps, 0);
    const gplan_arena a = place(blocks, n, 64, 1000000);
    memcpy(first, offsets, n * sizeof *first);
    const gplan_arena b = place(blocks, n, 64, 1000000);
    ck_assert_uint_le(a.bytes, plain.bytes);
    ck_assert_uint_eq(a.bytes, b.bytes);
    ck_assert_uint_eq(a.steps, b.steps);
    ck_assert_str_eq(a.by, b.by);
    ck_assert_mem_eq(first, offsets, n * sizeof *first);
  }
}
END_TEST

/* A decoder of 12 layers, its values as in an export: 230 blocks. The bound is reached, and not by trying
 * long. */
START_TEST(a_decoder_of_twelve_layers) {
  static gplan_block blocks[260];
  const uint64_t s = 512, d = 768, h = 12, f = 4;
  uint32_t n = 0, step = 1;
  blocks[n++] = (gplan_block){s * d * f, 0, 1}; /* embeddings */
  for (int layer = 0; layer < 12; layer++) {
    const uint32_t x = n - 1; /* the residual */
    const uint32_t first = n, base = step;
    /* bytes, written in step (from `base`), read last in step */
    const struct {
      uint64_t elements;
      uint32_t def, last;
    } rows[] = {{s * d, 0, 1},       {s * 3 * d, 1, 4}, {s * d, 2, 5},     {s * d, 3, 5},
                {s * d, 4, 9},       {h * s * s, 5, 6}, {h * s * s, 6, 7}, {h * s * s, 7, 8},
                {h * s * s, 8, 9},   {s * d, 9, 10},    {s * d, 10, 11},   {s * d, 11, 12},
                {s * d, 12, 18},     {s, 13, 14},       {s * d, 14, 15},   {s * 4 * d, 15, 16},
                {s * 4 * d, 16, 17}, {s * d, 17, 18},   {s * d, 18, 19}};
    for (uint32_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
      blocks[n++] = (gplan_block){rows[k].elements * f, base + rows[k].def, base + rows[k].last + 1};
    blocks[x].upper = base + 12 + 1; /* added behind attention */
    ck_assert_uint_eq(n - first, 19);
    step = base + 19;
  }
  blocks[n - 1].upper = step + 2;
  blocks[n++] = (gplan_block){s * 50257 * f, step + 1, step + 3}; /* the logits, to the end */
  ck_assert_uint_eq(n, 230);
  const gplan_arena with_logits = place(blocks, n, 64, 50000000); /* about 50 ms */
  ck_assert_uint_eq(with_logits.bytes, with_logits.bound);
  const gplan_arena without = place(blocks, n - 1, 64, 50000000);
  ck_assert_uint_eq(without.bytes, without.bound);
}
END_TEST

/* ---- wrong plans, bad input ------------------------------------------------------------------ */

/* First fit that takes a block's last step for free, as a planner does that counts lifetimes wrongly. */
static uint64_t wrong_plan(const gplan_block *b, uint32_t n, uint64_t *out) {
  uint64_t top = 0;
  for (uint32_t i = 0; i < n; i++) {
    out[i] = 0;
    for (uint32_t k = 0; k < i; k++) {
      if (b[i].lower >= b[k].upper - 1 || b[k].lower >= b[i].upper - 1) continue;
      if (out[k] + b[k].bytes > out[i]) out[i] = (out[k] + b[k].bytes + 63) / 64 * 64;
    }
    if (out[i] + b[i].bytes > top) top = out[i] + b[i].bytes;
  }
  return top;
}

START_TEST(wrong_plans_are_caught) {
  int n_wrong = 0;
  static gplan_block blocks[ORACLE_MAX_NODES];
  for (uint32_t i = 0; i < 20; i++) {
    bs_error err = BS_ERROR_INIT;
    const uint32_t n = oracle_graph(i, blocks);
    const uint64_t arena = wrong_plan(blocks, n, offsets);
    const int wrong = oracle_faults(blocks, n, 64, offsets, arena) > 0;
    ck_assert_int_eq(gplan_check(blocks, n, 64, offsets, arena, &err), wrong ? BS_INTERNAL : BS_OK);
    if (wrong) ck_assert_str_eq(err.id, "BS-PLAN-OVERLAP");
    n_wrong += wrong;
  }
  ck_assert_int_gt(n_wrong, 10);
  /* A right plan, with one thing changed. */
  bs_error err = BS_ERROR_INIT;
  const gplan_block two[] = {{100, 0, 2}, {100, 1, 3}};
  uint64_t at[] = {0, 128};
  ck_assert_int_eq(gplan_check(two, 2, 64, at, 228, &err), BS_OK);
  ck_assert_int_eq(gplan_check(two, 2, 64, at, 227, &err), BS_INTERNAL);
  ck_assert_str_eq(err.id, "BS-PLAN-ARENA");
  at[1] = 100;
  ck_assert_int_eq(gplan_check(two, 2, 64, at, 1000, &err), BS_INTERNAL);
  ck_assert_str_eq(err.id, "BS-PLAN-ALIGN");
  at[1] = 64;
  ck_assert_int_eq(gplan_check(two, 2, 64, at, 1000, &err), BS_INTERNAL);
  ck_assert_str_eq(err.id, "BS-PLAN-OVERLAP");
  ck_assert_ptr_nonnull(strstr(err.message, "bytes 64 to 163"));
  at[1] = UINT64_MAX - 63;
  ck_assert_int_eq(gplan_check(two, 2, 64, at, UINT64_MAX, &err), BS_INTERNAL);
}
END_TEST

static const struct {
  gplan_block blocks[2];
  uint32_t n;
  uint64_t alignment;
  int32_t code;
  const char *id;
} bad[] = {
    {{{1, 3, 3}}, 1, 64, BS_INVALID_ARGUMENT, "BS-PLAN-LIFE"},
    {{{1, 4, 3}}, 1, 64, BS_INVALID_ARGUMENT, "BS-PLAN-LIFE"},
    {{{1, 0, 3}}, 1, 3, BS_INVALID_ARGUMENT, "BS-PLAN-ALIGN"},
    {{{UINT64_MAX, 0, 3}}, 1, 64, BS_OVERFLOW, "BS-PLAN-SIZE"},
    {{{UINT64_C(1) << 61, 0, 3}, {(UINT64_C(1) << 61) + 1, 5, 6}}, 2, 64, BS_OVERFLOW, "BS-PLAN-SIZE"},
    {{{1, 0, 3}}, GPLAN_MAX_BLOCKS + 1, 64, BS_OVERFLOW, "BS-PLAN-BLOCKS"},
};

START_TEST(bad_input_is_refused) {
  const gplan_options options = {bad[_i].alignment, 1000};
  gplan_arena arena;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(gplan_place(bad[_i].blocks, bad[_i].n, &options, offsets, &arena, &err), bad[_i].code);
  ck_assert_str_eq(err.id, bad[_i].id);
}
END_TEST

/* 20,000 blocks that all live together, and 20,000 that never do: neither takes long. */
START_TEST(large_plans_end) {
  enum { N = 20000 };
  gplan_block *many = calloc(N, sizeof *many);
  uint64_t *at = calloc(N, sizeof *at);
  const gplan_options options = {64, 1000000};
  gplan_arena arena;
  bs_error err = BS_ERROR_INIT;
  for (int apart = 0; apart < 2; apart++) {
    for (uint32_t i = 0; i < N; i++)
      many[i] = (gplan_block){64 * (1 + i % 7), apart ? i : 0, apart ? i + 1 : N};
    ck_assert_int_eq(gplan_place(many, N, &options, at, &arena, &err), BS_OK);
    ck_assert_uint_eq(arena.bytes, arena.bound);
    ck_assert_int_eq(gplan_check(many, N, 64, at, arena.bytes, &err), BS_OK);
  }
  free(many);
  free(at);
}
END_TEST

int main(void) {
  return run_tests("plan",
                   (test_case[]){{plans_by_hand, TEST_COUNT(hand)},
                                 {what_cannot_be_reached_is_proven},
                                 {random_graphs_reach_the_bound},
                                 {plans_are_pure},
                                 {a_decoder_of_twelve_layers},
                                 {wrong_plans_are_caught},
                                 {bad_input_is_refused, TEST_COUNT(bad)},
                                 {large_plans_end},
                                 {0}},
                   (test_setup){0});
}
