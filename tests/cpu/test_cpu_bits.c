/* SPDX-License-Identifier: MIT
 *
 * test_cpu_bits.c - the bits of products: they depend neither on the team nor on the other tokens, and are
 * the same on avx2 and avx512, for a weight that is streamed, and for the processor's products of pairs. That
 * they are right is the kit's matter (test_cpu_values.c). */
#include <math.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable",    "avx2",          "avx512",    "avx512*2",
                                   "avx512_bf16", "avx512_bf16*2", "amx_model", "amx"};
static const uint32_t types[] = {BS_F32, BS_BF16, BS_F16};

/* More than one block and one chunk of each dimension, each with a rest. */
static const struct {
  const char *op;
  int64_t B, N, K;
  uint32_t part;
} products[] = {{"matmul", 37, 203, 600, KIT_ALL},         {"matmul_dx", 140, 133, 290, KIT_PATTERN},
                {"matmul_dw", 140, 133, 290, KIT_PATTERN}, {"matmul_update", 140, 133, 290, KIT_PATTERN},
                {"matmul24", 70, 130, 330, KIT_ALL},       {"matmul24_dx", 70, 130, 330, KIT_ALL},
                {"matmul24_dw", 70, 130, 330, KIT_ALL},    {"matmul24_update", 70, 130, 330, KIT_ALL}};

/* The implementation of an op on a set; NULL: the set has none of its own, it is another set's. */
static const char *name_on(const char *set, const char *op, uint32_t type) {
  if (strncmp(set, "amx", 3) != 0) return "packed";
  return strcmp(op, "matmul") == 0 && type == BS_BF16 ? "amx" : NULL;
}

static kit_shape shape_of(int product, uint32_t type) {
  kit_shape s = {.x = type,
                 .w = type,
                 .y = type,
                 .B = products[product].B,
                 .N = products[product].N,
                 .K = products[product].K,
                 .part = products[product].part,
                 .seed = 11};
  if (kit_op_is(products[product].op, "matmul")) s.y = BS_F32;
  if (kit_op_is(products[product].op, "matmul_dx")) s.x = BS_F32;
  if (kit_op_is(products[product].op, "matmul_dw")) s.w = BS_F32;
  return s;
}

/* Runs the op on a set of instructions; returns the bits that it writes. */
static unsigned char *run_on(const char *set, const char *op, const kit_shape *s, uint32_t width,
                             size_t *out_bytes) {
  static ch c;
  kit_actor a;
  kit_data d;
  ch_open(&c, set, "off");
  ch_actor(&c, &a, op, name_on(set, op, s->w), width);
  kit_data_make(&d, op, s);
  ch_run(&a, &d);
  unsigned char *bits = kit_data_bits(&d, out_bytes);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
  return bits;
}

static void must_agree(const unsigned char *want, unsigned char *got, size_t bytes, const char *op,
                       uint32_t type, const char *what, int64_t number) {
  ck_assert_msg(memcmp(want, got, bytes) == 0, "%s of %s: %s %lld gives other bits", op, bs_dtype_name(type),
                what, (long long)number);
  free(got);
}

START_TEST(teams) {
  const char *op = products[_i / TEST_COUNT(sets)].op, *set = sets[_i % TEST_COUNT(sets)];
  for (int t = 0; t < TEST_COUNT(types) && ch_has_isa(set); t++) {
    const kit_shape s = shape_of(_i / TEST_COUNT(sets), types[t]);
    size_t bytes = 0;
    if (name_on(set, op, s.w) == NULL) continue;
    unsigned char *first = run_on(set, op, &s, 1, &bytes);
    for (uint32_t width = 2; width <= 5; width++)
      must_agree(first, run_on(set, op, &s, width, &bytes), bytes, op, types[t], "a team of", width);
    free(first);
  }
}
END_TEST

/* One chain of fused multiply-adds an output on all: neither the width of a vector nor the number of units
 * shows. */
START_TEST(avx2_and_avx512) {
  const char *op = products[_i].op;
  for (int t = 0; t < TEST_COUNT(types) && ch_has_isa("avx512"); t++) {
    const kit_shape s = shape_of(_i, types[t]);
    size_t bytes = 0;
    unsigned char *narrow = run_on("avx2", op, &s, 1, &bytes);
    must_agree(narrow, run_on("avx512", op, &s, 2, &bytes), bytes, op, types[t], "avx", 512);
    must_agree(narrow, run_on("avx512*2", op, &s, 2, &bytes), bytes, op, types[t], "avx 512, units", 2);
    const int dense = _i >= 1 && _i <= 3; /* gradients that declare definition 1 (docs/numbers.md) */
    if (dense) must_agree(narrow, run_on("portable", op, &s, 1, &bytes), bytes, op, types[t], "plain C", 1);
    if (dense && ch_has_isa("avx512_bf16"))
      must_agree(narrow, run_on("avx512_bf16", op, &s, 2, &bytes), bytes, op, types[t], "pairs, members", 2);
    free(narrow);
  }
}
END_TEST

/* The first rows of what was made for more: by a plan for them alone, and by a run of a larger plan. */
static void rows_alone(kit_actor *a, kit_data *all, const kit_shape *shape, int64_t rows, void *packed,
                       const unsigned char *want) {
  kit_shape s = *shape;
  kit_data d;
  bs_error err = BS_ERROR_INIT;
  size_t bytes = 0;
  s.B = rows;
  kit_data_make(&d, a->impl->op, &s); /* the same first rows: tensors are filled in the order of args */
  ck_assert_msg(ch_try_plan(a, &d, packed, &err) == BS_OK, "%s", err.message);
  must_agree(want, kit_data_bits(&d, &bytes), bytes, a->impl->op, s.w, "a plan of rows:", rows);
  kit_poison_outputs(all, 0xA5);
  void *plan = NULL;
  ck_assert_int_eq(a->impl->prepare(a->state, &a->exec, &all->query, packed, &plan, &err), BS_OK);
  kit_data_rows(all, rows);
  ck_assert_msg(kit_data_run_plan(a, all, plan, &err) == BS_OK, "%s", err.message);
  must_agree(want, kit_data_bits(all, &bytes), bytes, a->impl->op, s.w, "a run of rows:", rows);
  kit_data_rows(all, shape->B);
  a->impl->plan_free(plan);
  kit_data_free(a, &d);
}

/* Each number of tokens takes other tiles; a token's bits are those that it has alone. */
START_TEST(tokens) {
  static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 24, 25, 32, 33, 36};
  static const int by_token[] = {0, 1, 4, 5}; /* products whose rows are tokens */
  const int product = by_token[_i / TEST_COUNT(sets)];
  const char *set = sets[_i % TEST_COUNT(sets)];
  static ch c;
  for (int t = 0; t < TEST_COUNT(types) && ch_has_isa(set); t++) {
    const kit_shape s = shape_of(product, types[t]);
    kit_actor a;
    kit_data all;
    bs_error err = BS_ERROR_INIT;
    size_t bytes = 0;
    const char *name = name_on(set, products[product].op, s.w);
    if (name == NULL) continue;
    ch_open(&c, set, "off");
    ch_actor(&c, &a, products[product].op, name, 2);
    kit_data_make(&all, a.impl->op, &s);
    void *packed = kit_data_pack(&a, &all);
    ck_assert_msg(ch_try_plan(&a, &all, packed, &err) == BS_OK, "%s", err.message);
    unsigned char *want = kit_data_bits(&all, &bytes);
    for (int r = 0; r < TEST_COUNT(rows); r++) rows_alone(&a, &all, &s, rows[r], packed, want);
    a.packer->packed_free(packed);
    free(want);
    kit_data_free(&a, &all);
    kit_actor_close(&a);
    ch_close(&c);
  }
}
END_TEST

/* A weight too large for the caches is read in another order, with prefetching: same bits as in parts that
 * are small. */
START_TEST(streamed_weights) {
  enum { B = 13, K = 1031, N = 2300, PART = 700 };
  const uint32_t type = strncmp(sets[_i], "amx", 3) == 0 ? BS_BF16 : BS_F32;
  const kit_shape all = {.x = type, .w = type, .y = BS_F32, .B = B, .N = N, .K = K, .seed = 11};
  kit_shape part = all; /* the same X and the same first rows of W */
  size_t bytes;
  part.N = PART;
  if (!ch_has_isa(sets[_i])) return;
  unsigned char *y = run_on(sets[_i], "matmul", &all, 1, &bytes),
                *of = run_on(sets[_i], "matmul", &part, 1, &bytes);
  for (size_t t = 0; t < B; t++)
    ck_assert_msg(memcmp(y + t * N * sizeof(float), of + t * PART * sizeof(float), PART * sizeof(float)) == 0,
                  "%s, token %zu", sets[_i], t);
  free(y);
  free(of);
}
END_TEST

/* The processor's products of pairs add in the order of all other kernels: but for subnormals, which they
 * take for zero, the bits are the same. */
START_TEST(pairs_are_added_upwards) {
  static const int64_t rows[] = {1, 3, 16, 17, 70};
  if (!ch_has_isa("avx512_bf16")) return;
  for (uint32_t i = 0; i < 2 * TEST_COUNT(rows); i++) {
    const kit_shape s = {.x = BS_BF16,
                         .w = BS_BF16,
                         .y = BS_F32,
                         .B = rows[i / 2],
                         .N = 530,
                         .K = 330,
                         .seed = 1 + 3 * (i % 2)}; /* a mask, or the complement of one */
    size_t bytes = 0;
    unsigned char *single = run_on("avx512", "matmul24", &s, 1, &bytes);
    must_agree(single, run_on("avx512_bf16", "matmul24", &s, 1, &bytes), bytes, "matmul24", BS_BF16,
               "products of pairs, tokens", s.B);
    free(single);
  }
}
END_TEST

/* The exponents of bf16 values of a kind, from `first` on: of usual sizes, wide, with products that are
 * subnormal, near that, subnormal themselves, near overflow. */
static const struct {
  int first, count;
} exponents[] = {{107, 20}, {90, 60}, {20, 60}, {64, 14}, {0, 3}, {180, 20}};
enum { USUAL = 0, KINDS = TEST_COUNT(exponents), ROW = KINDS, BLOCK, ZEROS, CASES };

static double value_of(int kind, uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  const uint32_t r = (uint32_t)(*seed >> 33);
  const uint32_t exponent = (uint32_t)exponents[kind].first + r / 1024 % (uint32_t)exponents[kind].count;
  const uint32_t bits = (r & 0x7fu) << 16 | (r & 0x80u) << 24 | exponent << 23;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

/* ROW: one row of X has products that are subnormal, BLOCK: one block of columns of it; ZEROS: of both signs.
 */
static void fill_with(kit_tensor *m, int64_t rows, int64_t cols, int which, uint64_t seed) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < cols; k++) {
      const int small = (which == ROW && r == 2) || (which == BLOCK && k >= 256 && k < 300);
      const double v = value_of(which < KINDS ? which : small ? 2 : USUAL, &seed);
      kit_set(m, r, k, which == ZEROS && (r + k) % 3 > 0 ? copysign(0.0, v) : v);
    }
}

/* The product of bf16 by one definition of its bits, on a set of instructions. */
static unsigned char *defined_on(const char *set, int64_t rows, int64_t columns, int kind,
                                 size_t *out_bytes) {
  static ch c;
  kit_actor a;
  kit_data d;
  kit_shape s = {
      .x = BS_BF16, .w = BS_BF16, .y = BS_F32, .B = rows, .N = 70, .K = columns, .plain = 1, .seed = 7};
  s.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE | BS_QUERY_BITS;
  ch_open(&c, set, "off");
  ch_actor(&c, &a, "matmul", "packed", 2);
  kit_data_make(&d, "matmul", &s);
  fill_with(&d.a[0], rows, columns, kind, 5);
  fill_with(&d.w, s.N, columns, kind < ROW ? kind : USUAL, 6);
  ch_run(&a, &d);
  unsigned char *bits = kit_data_bits(&d, out_bytes);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
  return bits;
}

/* Products of pairs serve a definition of bits where no sum can be subnormal, and single ones elsewhere. */
START_TEST(pairs_keep_the_definition) {
  static const int64_t rows[] = {1, 3, 13, 100}, columns[] = {1, 290, 513};
  if (!ch_has_isa("avx512_bf16")) return;
  for (size_t t = 0; t < TEST_COUNT(rows); t++)
    for (size_t k = 0; k < TEST_COUNT(columns); k++) {
      size_t bytes = 0;
      unsigned char *want = defined_on("avx512", rows[t], columns[k], _i, &bytes);
      must_agree(want, defined_on("avx512_bf16", rows[t], columns[k], _i, &bytes), bytes, "matmul", BS_BF16,
                 "pairs, tokens", rows[t]);
      free(want);
    }
}
END_TEST

/* Without a number of bits the core passes over an implementation under repro=tokens and repro=ranks, and ref
 * serves: right, and slow. */
START_TEST(ops_of_a_promise_have_a_number) {
  static const char *const ops[][2] = {{"matmul", "packed"},    {"matmul_dx", "packed"},
                                       {"matmul_dw", "packed"}, {"matmul_update", "packed"},
                                       {"tree_sum", "cpu"},     {"activate", "cpu"}};
  static ch c;
  kit_actor a;
  kit_data d;
  for (size_t t = 0; t < TEST_COUNT(types); t++) {
    kit_shape s = {.x = types[t], .w = types[t], .y = BS_F32, .B = 8, .N = 20, .K = 30, .seed = 3};
    bs_op_answer answer = {.struct_size = sizeof answer};
    s.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE | BS_QUERY_BITS;
    if (strcmp(ops[_i][0], "matmul_dx") == 0) s.x = BS_F32, s.y = types[t];
    if (strcmp(ops[_i][0], "matmul_dw") == 0) s.w = BS_F32, s.y = types[t];
    if (strcmp(ops[_i][0], "matmul_update") == 0) s.y = types[t];
    ch_open(&c, "auto", "off");
    ch_actor(&c, &a, ops[_i][0], ops[_i][1], 1);
    kit_data_make(&d, ops[_i][0], &s);
    ck_assert_int_eq(a.impl->supports(a.state, &d.query, &answer), BS_OK);
    ck_assert_msg(answer.level != BS_LEVEL_NO && answer.bits == 1, "%s of %s: level %u, bits %u, %s",
                  ops[_i][0], bs_dtype_name(types[t]), answer.level, answer.bits, answer.text);
    kit_data_free(&a, &d);
    kit_actor_close(&a);
    ch_close(&c);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {ops_of_a_promise_have_a_number, 6},     {teams, TEST_COUNT(products) * TEST_COUNT(sets)},
      {avx2_and_avx512, TEST_COUNT(products)}, {tokens, 4 * TEST_COUNT(sets)},
      {streamed_weights, TEST_COUNT(sets)},    {pairs_are_added_upwards},
      {pairs_keep_the_definition, CASES},      {0}};
  return run_tests("cpu_bits", tests, (test_setup){.timeout = 60});
}
