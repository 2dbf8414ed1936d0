/* SPDX-License-Identifier: MIT
 * test_cpu_attention_tiles.c - attention in bf16 by the tiles of AMX, on their model: every size up to a few
 * tiles beside f64, whatever lies in the scratch before; the number of products, which tells what was
 * skipped; the bits of its plain C beside those of AVX-512; and what it answers. */
#include <math.h>
#include <stdio.h>

#include "attention_ask.h"
#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "plugins/cpu/cpu.h"
#include "tests/run_tests.h"

static const char *const of_pairs[] = {"avx512_bf16", "amx_model"};

/* ---- a problem -------------------------------------------------------------------------------- */

enum { MOST_S = 256, MOST_T = 256, MOST_WIDE = 70, MOST_HEADS = 4, MASKS = 3 };
enum { MOST_Q = MOST_HEADS * MOST_S * MOST_WIDE, MOST_K = MOST_HEADS * MOST_T * MOST_WIDE };
enum { NO_MASK, BOOL_MASK, F32_MASK };

/* One batch; so many heads share one head of K and V, of which there are `groups`. */
typedef struct problem {
  int64_t S, T, D, E, heads, groups;
  int64_t attrs[3];
  int mask;
  double softcap;
} problem;

static uint16_t q[MOST_Q], k[MOST_K], v[MOST_K];
static uint8_t bools[MOST_S * MOST_T];
static float adds[MOST_S * MOST_T], y[MOST_Q];

static void draw(uint64_t seed, uint64_t stream, int64_t n, int64_t room, uint16_t *out) {
  static float drawn[MOST_Q];
  bs_rng_normal(seed, stream, 0, (uint64_t)n, drawn);
  for (int64_t i = 0; i < room; i++) out[i] = i < n ? bs_f32_to_bf16(drawn[i]) : 0x7fc0; /* NaN behind it */
}

static void draw_all(const problem *p, uint64_t seed) {
  draw(seed, 1, p->heads * p->groups * p->S * p->D, MOST_Q, q);
  draw(seed, 2, p->groups * p->T * p->D, MOST_K, k);
  draw(seed, 3, p->groups * p->T * p->E, MOST_K, v);
  for (int64_t i = 0; i < p->S * p->T; i++) {
    const int64_t drawn = (int64_t)((uint64_t)i * 2654435761u >> 8) % 10;
    bools[i] = drawn > 2;
    adds[i] = drawn < 2 ? -INFINITY : (float)drawn * 0.25f - 1.0f;
  }
}

static void make(const problem *p, bs_tensor *t, ask *a) {
  t[Q] = dense(BS_BF16, (const int64_t[4]){1, p->heads * p->groups, p->S, p->D}, q);
  t[K] = dense(BS_BF16, (const int64_t[4]){1, p->groups, p->T, p->D}, k);
  t[V] = dense(BS_BF16, (const int64_t[4]){1, p->groups, p->T, p->E}, v);
  t[Y] = dense(BS_F32, (const int64_t[4]){1, p->heads * p->groups, p->S, p->E}, y);
  if (p->mask == BOOL_MASK) t[MASK] = dense(BS_BOOL, (const int64_t[4]){1, 1, p->S, p->T}, bools);
  if (p->mask == F32_MASK) t[MASK] = dense(BS_F32, (const int64_t[4]){1, 1, p->S, p->T}, adds);
  make_ask(a, "attention", NULL, t, ARGS, p->attrs);
  a->q.numbers[0] = 1.0 / sqrt((double)p->D);
  a->q.numbers[1] = p->softcap;
}

/* The scratch is full of these bytes when a run begins. */
static kit_actor *actor;
static int fill;
static void *filled_scratch(void *ctx) {
  (void)ctx;
  memset(actor->scratch, fill, actor->scratch_bytes);
  return actor->scratch;
}

static void open_set(ch *host, const char *isa, kit_actor *c) {
  ch_open(host, isa, "off");
  ch_actor(host, c, "attention", "online", 1);
  actor = c;
  fill = 0xFF; /* NaN, of f32 and bf16 */
  c->exec.scratch = filled_scratch;
}

static void run(const problem *p, kit_actor *c) {
  bs_tensor t[ARGS] = {{0}};
  bs_error err = BS_ERROR_INIT;
  bs_op_echo echo;
  ask a;
  make(p, t, &a);
  ck_assert_msg(try_run(c, &a, &echo, &err) == BS_TOL_ACC_LOW, "%s", err.message);
}

/* The power that query s of a head has for key j; 0: it does not see it. */
static double power(const problem *p, int64_t head, int64_t s, int64_t j) {
  const int64_t at = s + (p->attrs[0] == BS_CAUSAL_LOWER_RIGHT ? p->T - p->S : 0);
  const uint16_t *one = q + (head * p->S + s) * p->D, *other = k + (head / p->heads * p->T + j) * p->D;
  double score = 0.0;
  if (p->attrs[0] != BS_CAUSAL_NONE && j > at) return 0.0;
  if (p->attrs[1] > 0 && j < at - p->attrs[1] + 1) return 0.0;
  if (p->attrs[2] > 0 && j > at + p->attrs[2] - 1) return 0.0;
  if (p->mask == BOOL_MASK && !bools[s * p->T + j]) return 0.0;
  for (int64_t d = 0; d < p->D; d++)
    score += (double)bs_bf16_to_f32(one[d]) * (double)bs_bf16_to_f32(other[d]);
  score /= sqrt((double)p->D);
  if (p->softcap > 0.0) score = p->softcap * tanh(score / p->softcap);
  if (p->mask == F32_MASK) score += (double)adds[s * p->T + j];
  return exp(score);
}

/* Powers are off by half a step of bf16, and by what is stated of fast ones; their sum by the latter. */
static void judge(const problem *p, const char *isa) {
  for (int64_t i = 0; i < p->heads * p->groups * p->S; i++) {
    const uint16_t *of = v + i / p->S / p->heads * p->T * p->E;
    double powers[MOST_T], total = 0.0;
    for (int64_t j = 0; j < p->T; j++) total += powers[j] = power(p, i / p->S, i % p->S, j);
    for (int64_t e = 0; e < p->E; e++) {
      double sum = 0.0, size = 0.0;
      for (int64_t j = 0; j < p->T && total != 0.0; j++) {
        const double term =
            powers[j] != 0.0 ? powers[j] / total * (double)bs_bf16_to_f32(of[j * p->E + e]) : 0.0;
        sum += term;
        size += fabs(term);
      }
      const double got = (double)y[i * p->E + e];
      ck_assert_msg(
          isnan(sum) ? isnan(got) : got == sum || fabs(got - sum) <= (0x1p-8 + 3e-4) * size,
          "%s, S %lld, T %lld, D %lld, E %lld, kind %lld, windows %lld %lld, mask %d: Y[%lld][%lld] "
          "is %g, not %g",
          isa, (long long)p->S, (long long)p->T, (long long)p->D, (long long)p->E, (long long)p->attrs[0],
          (long long)p->attrs[1], (long long)p->attrs[2], p->mask, (long long)i, (long long)e, got, sum);
    }
  }
}

/* ---- values ----------------------------------------------------------------------------------- */

enum { SIZES = 140, PARTS = 4 };

/* Every D, E and T up to 70, and every S up to 40; what else there is in turn. */
static problem size_of(int64_t i) {
  problem p = {1 + i * 23 % 40,  1 + i * 37 % 70,  1 + i % 70, 1 + i * 11 % 70,
               1 + (i % 8 == 5), 1 + (i % 8 == 6), {i % 3}};
  p.mask = (int)(i / 3 % MASKS);
  if (i % 4 == 1) p.attrs[1] = 1 + i % 20;
  if (i % 7 == 2) p.attrs[2] = 1 + i % 9;
  if (i % 5 == 3) p.softcap = 1.5;
  return p;
}

/* What is behind the last key, the last column and the last query is not read, or counts as zero: a NaN there
 * would give another sum, or the row would be computed in another way, with other bits. */
START_TEST(every_size) {
  static float first[MOST_Q];
  const char *isa = of_pairs[_i / PARTS];
  static ch host;
  kit_actor c;
  if (!ch_has_isa(isa)) return;
  open_set(&host, isa, &c);
  for (int64_t i = _i % PARTS; i < SIZES; i += PARTS) {
    const problem p = size_of(i);
    const size_t bytes = (size_t)(p.heads * p.groups * p.S * p.E) * sizeof *y;
    draw_all(&p, (uint64_t)i);
    fill = 0xFF;
    run(&p, &c);
    judge(&p, isa);
    memcpy(first, y, bytes);
    fill = 0;
    run(&p, &c);
    ck_assert_msg(memcmp(first, y, bytes) == 0, "%s, size %lld: the scratch changes bits", isa, (long long)i);
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* More tiles of keys and blocks of queries than one, each with a rest. */
START_TEST(several_tiles) {
  static const problem problems[] = {{200, 250, 64, 48, 1, 2, {0}},
                                     {210, 250, 33, 70, 1, 1, {BS_CAUSAL_UPPER_LEFT}},
                                     {110, 201, 70, 16, 2, 2, {BS_CAUSAL_LOWER_RIGHT, 45}},
                                     {130, 250, 16, 16, 1, 1, {0, 50, 50}, F32_MASK}};
  static ch host;
  kit_actor c;
  if (!ch_has_isa(of_pairs[_i])) return;
  open_set(&host, of_pairs[_i], &c);
  for (int n = 0; n < TEST_COUNT(problems); n++) {
    draw_all(&problems[n], 1);
    run(&problems[n], &c);
    judge(&problems[n], of_pairs[_i]);
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* Infinity and NaN reach those who see them alone. */
START_TEST(special_rows) {
  const problem p = {70, 70, 40, 33, 1, 1, {BS_CAUSAL_UPPER_LEFT}};
  static ch host;
  kit_actor c;
  if (!ch_has_isa(of_pairs[_i])) return;
  open_set(&host, of_pairs[_i], &c);
  draw_all(&p, 1);
  for (int64_t e = 0; e < p.E; e++) v[30 * p.E + e] = e % 2 == 0 ? 0x7f80 : 0xff80;
  for (int64_t d = 0; d < p.D; d++) k[60 * p.D + d] = 0x7fc0;
  run(&p, &c);
  judge(&p, of_pairs[_i]);
  ck_assert(isfinite(y[29 * p.E]) && isinf(y[30 * p.E]) && isinf(y[59 * p.E]) && isnan(y[60 * p.E]));
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* From 9 queries on the bits of a query are the same however many others there are. */
START_TEST(bits_by_queries) {
  static const int64_t some[] = {9, 15, 16, 17, 31, 32, 33, 39};
  static const int64_t kinds[][3] = {{0}, {BS_CAUSAL_UPPER_LEFT}, {BS_CAUSAL_UPPER_LEFT, 20}, {0, 0, 30}};
  static float all[MOST_S * MOST_WIDE];
  problem p = {40, 70, 33, 47, 1, 1, {0}};
  static ch host;
  kit_actor c;
  if (!ch_has_isa(of_pairs[_i])) return;
  open_set(&host, of_pairs[_i], &c);
  for (int n = 0; n < TEST_COUNT(kinds); n++) {
    memcpy(p.attrs, kinds[n], sizeof p.attrs);
    p.S = 40;
    draw_all(&p, 1);
    run(&p, &c);
    memcpy(all, y, sizeof all);
    for (int s = 0; s < TEST_COUNT(some); s++) {
      p.S = some[s];
      run(&p, &c);
      ck_assert_msg(memcmp(all, y, (size_t)(p.S * p.E) * sizeof *y) == 0, "%s, kind %d: %lld queries",
                    of_pairs[_i], n, (long long)p.S);
    }
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* ---- how many products ------------------------------------------------------------------------ */

/* The tiles of the set, counted: products of 16 queries, 16 columns and a depth of 32. */
static const cpu_amx *counted;
static int64_t products, begun, ended;
static void count_begin(void *room, int32_t rows, int32_t columns) {
  ck_assert_int_eq(begun, ended);
  begun++;
  counted->begin(room, rows, columns);
}
static void count_product(void *room, const cpu_amx_block *b) {
  ck_assert_int_eq(begun, ended + 1);
  ck_assert_int_eq(b->together, 2); /* four loads for four products */
  products += b->steps * b->groups * b->panels;
  counted->product(room, b);
}
static void count_end(void *room) {
  ended++;
  counted->end(room);
}
/* Panels of K that are made. */
static void (*turn)(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth);
static int64_t turned;
static void count_turn(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth) {
  turned++;
  turn(panel, rows, row_bytes, count, depth);
}
static const cpu_amx counting = {.begin = count_begin, .product = count_product, .end = count_end};

/* What 32 queries at a time need, of the keys from `first` to `end` of each: scores by panels of 16 keys,
 * sums by steps of 32. */
static int64_t needed(const problem *p) {
  int64_t n = 0;
  for (int64_t s = 0; s < p->S; s += 32) {
    const int64_t last = s + 32 < p->S ? s + 32 : p->S, groups = (last - s + 15) / 16;
    const int64_t first = p->attrs[1] > 0 && s >= p->attrs[1] ? (s - p->attrs[1] + 1) / 32 * 32 : 0;
    const int64_t end = p->attrs[0] == BS_CAUSAL_NONE || last > p->T ? p->T : last;
    n += groups * ((end - first + 15) / 16) * ((p->D + 31) / 32);
    n += groups * ((p->E + 15) / 16) * ((end - first + 31) / 32);
  }
  return n;
}

/* Blocks are of 96 queries behind a causal mask, else of 192; tiles of 128 keys from the first that a block
 * sees. */
START_TEST(skipped_keys_cost_no_product) {
  static const struct {
    problem p;
    int64_t blocks, turned;
  } cases[] = {{{256, 256, 64, 64, 1, 1, {0}}, 2, 8 + 8},
               {{256, 256, 64, 64, 1, 1, {BS_CAUSAL_UPPER_LEFT}}, 3, 6 + 8 + 4 + 8},
               {{250, 250, 40, 33, 1, 1, {BS_CAUSAL_UPPER_LEFT}}, 3, 6 + 8 + 4 + 8},
               {{96, 250, 40, 33, 1, 1, {BS_CAUSAL_UPPER_LEFT}}, 1, 6},
               {{96, 96, 32, 16, 1, 1, {BS_CAUSAL_UPPER_LEFT, 32}}, 1, 6}};
  int64_t all = 0;
  static ch host;
  kit_actor c;
  open_set(&host, "amx_model", &c);
  cpu_state *state = c.state;
  counted = state->kernels.amx;
  state->kernels.amx = &counting;
  turn = state->kernels.bf16_turn;
  state->kernels.bf16_turn = count_turn;
  for (int n = 0; n < TEST_COUNT(cases); n++) {
    const problem *p = &cases[n].p;
    products = begun = ended = turned = 0;
    draw_all(p, 1);
    run(p, &c);
    ck_assert_int_eq(products, needed(p));
    ck_assert_int_eq(begun, cases[n].blocks); /* once a block */
    ck_assert_int_eq(ended, begun);
    ck_assert_int_eq(turned, cases[n].turned); /* whole tiles once, of a later block the last one again */
    if (n == 0) all = products;
    ck_assert(n != 1 || products * 16 == all * 9); /* of 8 x 8 squares of 32: 36 */
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* ---- plain C beside AVX-512 --------------------------------------------------------------------- */

enum { ROWS = 16, ROW = 72, LINE = 256 };

/* Tables of both sets, of plugins that stay open; 0: not here. */
static int both_tables(ch hosts[2], const cpu_kernels *out_tables[2]) {
  for (int i = 0; i < 2; i++) {
    kit_actor c;
    if (!ch_has_isa(of_pairs[i])) {
      printf("not run: this processor has no %s\n", of_pairs[i]);
      return 0;
    }
    ch_open(&hosts[i], of_pairs[i], "off");
    ch_actor(&hosts[i], &c, "attention", "online", 1);
    out_tables[i] = &((const cpu_state *)c.state)->kernels;
    kit_actor_close(&c);
  }
  ck_assert(out_tables[0]->bf16_turn != out_tables[1]->bf16_turn);
  return 1;
}

static void any_bits(uint64_t *seed, void *to, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = (uint8_t)kit_below(seed, 256);
}

/* Of any bits: they are only moved. */
START_TEST(panels_have_equal_bits) {
  static ch hosts[2];
  const cpu_kernels *tables[2];
  static uint16_t rows[ROWS * ROW], panels[2][ROW * 16 * 2];
  uint64_t seed = 1;
  if (!both_tables(hosts, tables)) return;
  for (int64_t depth = 1; depth <= 70; depth++)
    for (int64_t count = 1; count <= ROWS; count++) {
      const int64_t row = depth + (depth + count) % 3; /* rows begin at whole words and between them */
      any_bits(&seed, rows, sizeof rows);
      memset(panels, 0xA5, sizeof panels);
      for (int i = 0; i < 2; i++) tables[i]->bf16_turn(panels[i], rows, 2 * row, count, depth);
      ck_assert_msg(memcmp(panels[0], panels[1], sizeof panels[0]) == 0, "turn: %lld rows of %lld",
                    (long long)count, (long long)depth);
      memset(panels, 0xA5, sizeof panels);
      for (int i = 0; i < 2; i++)
        tables[i]->bf16_zip(panels[i], 128, rows, count == 1 ? NULL : rows + row, depth);
      ck_assert_msg(memcmp(panels[0], panels[1], sizeof panels[0]) == 0, "zip: %lld", (long long)depth);
    }
  for (int i = 0; i < 2; i++) ch_close(&hosts[i]);
}
END_TEST

/* Scores of a height, some not seen, each row three times as long as the one before. */
START_TEST(powers_have_equal_bits) {
  static const float heights[] = {0.0f, -INFINITY, 3.0f, 40.0f, -200.0f, 1e5f, 8e6f, -3e38f};
  static ch hosts[2];
  const cpu_kernels *tables[2];
  float s[LINE];
  if (!both_tables(hosts, tables)) return;
  for (int n = 0; n < 2000; n++) {
    float most[2] = {-INFINITY, -INFINITY}, totals[2][16] = {{0}}, scale[2] = {0};
    const int fast = n % 2;
    for (int step = 0; step < 3; step++) {
      uint16_t p[2][LINE] = {{0}};
      const int64_t keys = 16 + (n + step) % 16 * 16;
      bs_rng_normal((uint64_t)n, (uint64_t)step, 0, LINE, s);
      for (int64_t j = 0; j < keys; j++) {
        s[j] = s[j] * (float)(1 + n % 60) + heights[(n + step) % TEST_COUNT(heights)];
        if ((j * 7 + n) % 11 == 0) s[j] = -INFINITY;
      }
      for (int i = 0; i < 2; i++)
        scale[i] = tables[i]->attend_bf16[fast](s, p[i], keys, 0.1f + (float)(n % 9), &most[i], totals[i]);
      ck_assert_msg(memcmp(p[0], p[1], sizeof p[0]) == 0 &&
                        memcmp(totals[0], totals[1], sizeof totals[0]) == 0 && most[0] == most[1] &&
                        scale[0] == scale[1],
                    "row %d, tile %d", n, step);
    }
  }
  for (int i = 0; i < 2; i++) ch_close(&hosts[i]);
}
END_TEST

/* ---- the answer ------------------------------------------------------------------------------- */

START_TEST(answers) {
  static const struct {
    int64_t S;
    uint32_t accumulate, score;
    const char *algo, *text;
  } cases[] = {{9, BS_ACC_DEFAULT, 850, "tiles-amx", "products by isa=amx_model"},
               {8, BS_ACC_DEFAULT, 800, "online-bf16", "online softmax over tiles of keys"},
               {9, BS_ACC_F32, 800, "online", "online softmax over tiles of keys"}};
  const problem p = {cases[_i].S, 20, 16, 16, 1, 1, {0}};
  bs_op_answer answer = {.struct_size = sizeof answer};
  bs_tensor t[ARGS] = {{0}};
  static ch host;
  kit_actor c;
  ask a;
  open_set(&host, "amx_model", &c);
  make(&p, t, &a);
  a.q.accumulate = cases[_i].accumulate;
  ck_assert_int_eq(c.impl->supports(c.state, &a.q, &answer), BS_OK);
  ck_assert_uint_eq(answer.score, cases[_i].score);
  ck_assert_str_eq(answer.algo, cases[_i].algo);
  ck_assert_msg(strstr(answer.text, cases[_i].text) != NULL, "%s", answer.text);
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_size, TEST_COUNT(of_pairs) * PARTS},
                             {several_tiles, TEST_COUNT(of_pairs)},
                             {special_rows, TEST_COUNT(of_pairs)},
                             {bits_by_queries, TEST_COUNT(of_pairs)},
                             {skipped_keys_cost_no_product},
                             {panels_have_equal_bits},
                             {powers_have_equal_bits},
                             {answers, 3},
                             {0}};
  return run_tests("cpu_attention_tiles", tests, (test_setup){.timeout = 60});
}
