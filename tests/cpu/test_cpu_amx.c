/* SPDX-License-Identifier: MIT
 *
 * test_cpu_amx.c - the matmul by tiles: every number of tokens, outputs and columns near the edges of tiles
 * is right; its bits depend on its row alone; what is no data never reaches an output. On a processor with
 * AMX its bits are those of the model (isa/amx.h), of every kind of data. */
#include <math.h>
#include <stdio.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"amx_model", "amx"};
enum { N = 35, TOKENS = 129 };

/* The matmul on a set; all of its scratch is NaN before a run. */
typedef struct tiles {
  ch c;
  kit_actor a;
} tiles;

static void *scratch_of_nan(void *ctx) {
  const kit_actor *a = ctx;
  if (a->scratch != NULL) memset(a->scratch, 0xFF, a->scratch_bytes);
  return a->scratch;
}

static void tiles_open(tiles *t, const char *set, uint32_t width) {
  ch_open(&t->c, set, "off");
  ch_actor(&t->c, &t->a, "matmul", "amx", width);
  t->a.exec.scratch = scratch_of_nan;
}

static void tiles_close(tiles *t) {
  kit_actor_close(&t->a);
  ch_close(&t->c);
}

/* Behind each row of X is NaN too. */
static void make(kit_data *d, int64_t tokens, int64_t outputs, int64_t columns) {
  const kit_shape s = {.x = BS_BF16,
                       .w = BS_BF16,
                       .y = BS_F32,
                       .B = tokens,
                       .N = outputs,
                       .K = columns,
                       .spread = 1,
                       .seed = 9};
  kit_data_make(d, "matmul", &s);
}

static float at(const kit_data *d, int64_t token, int64_t output) {
  return (float)kit_get(&d->a[3], token, output);
}

/* The first rows and columns of Y are those of `whole`, to the bit. */
static void must_equal(const kit_data *d, const kit_data *whole, int64_t outputs, const char *what) {
  for (int64_t t = 0; t < d->shape.B; t++)
    for (int64_t n = 0; n < outputs; n++) {
      const float got = at(d, t, n), want = at(whole, t, n);
      if (memcmp(&got, &want, sizeof got) != 0)
        ck_abort_msg("%s: %s: [%lld,%lld] is %a, of more %a", kit_data_text(d), what, (long long)t,
                     (long long)n, got, want);
    }
}

static void run_over(kit_actor *a, kit_data *d, void *packed) {
  bs_error err = BS_ERROR_INIT;
  kit_poison_outputs(d, 0xFF);
  ck_assert_msg(ch_try_plan(a, d, packed, &err) == BS_OK, "%s: %s", kit_data_text(d), err.message);
}

/* ---- sizes ------------------------------------------------------------------------------------ */

/* Numbers of columns: all up to more than two steps, around a block, and two blocks. */
static const int64_t beyond[] = {255, 256, 257, 258, 512};
enum { FEW = 70, COLUMNS = FEW + sizeof beyond / sizeof beyond[0] };

static int64_t columns_of(int i) {
  return i < FEW ? i + 1 : beyond[i - FEW];
}

/* Fewer tokens over the same weight, with one panel or two together. */
static void each_number_of_tokens(kit_actor *a, const kit_data *whole, void *packed) {
  static const int64_t more[] = {64, 65};
  for (int64_t i = 0; i < 40 + TEST_COUNT(more); i++) {
    kit_data d;
    make(&d, i < 40 ? i + 1 : more[i - 40], N, whole->shape.K);
    memcpy(d.w.t.data, whole->w.t.data, d.w.t.bytes);
    d.query.knobs = i % 2 ? "beside=2" : NULL;
    run_over(a, &d, packed);
    must_equal(&d, whole, N, "fewer tokens");
    kit_data_free(a, &d);
  }
}

/* Fewer outputs of the same weight: its first rows. */
static void each_number_of_outputs(kit_actor *a, const kit_data *whole) {
  for (int64_t outputs = 1; outputs < N; outputs++) {
    kit_data d;
    make(&d, 2 + outputs % 20, outputs, whole->shape.K);
    memcpy(d.w.t.data, whole->w.t.data, d.w.t.bytes);
    d.query.knobs = outputs % 3 ? "beside=2" : NULL;
    ch_run(a, &d);
    must_equal(&d, whole, outputs, "fewer outputs");
    kit_data_free(a, &d);
  }
}

START_TEST(every_size) {
  const char *set = sets[_i / (int)COLUMNS];
  static tiles t;
  kit_data whole;
  if (!ch_has_isa(set)) return;
  tiles_open(&t, set, 2);
  make(&whole, TOKENS, N, columns_of(_i % (int)COLUMNS));
  void *packed = kit_data_pack(&t.a, &whole);
  run_over(&t.a, &whole, packed);
  kit_data_judge(&whole, BS_TOL_ACC_F32, 0);
  each_number_of_tokens(&t.a, &whole, packed);
  t.a.packer->packed_free(packed);
  each_number_of_outputs(&t.a, &whole);
  kit_data_free(&t.a, &whole);
  tiles_close(&t);
}
END_TEST

/* ---- what is no data -------------------------------------------------------------------------- */

static void fill(kit_tensor *m, int64_t rows, int64_t columns, int64_t first_row, double value) {
  for (int64_t r = first_row; r < rows; r++)
    for (int64_t k = 0; k < columns; k++) kit_set(m, r, k, value);
}

/* Infinities and NaN in the outputs of other panels, and in other tokens of the group: a column beyond a
 * panel's last, or a row beyond a group's, would bring them in, as zero times infinity too. */
START_TEST(nothing_comes_from_beside) {
  static const int64_t tokens[] = {1, 5, 17, 33};
  const char *set = sets[_i];
  static tiles t;
  if (!ch_has_isa(set)) return;
  tiles_open(&t, set, 1);
  for (int i = 0; i < (int)COLUMNS * TEST_COUNT(tokens); i++) {
    const int64_t K = columns_of(i / TEST_COUNT(tokens)), B = tokens[i % TEST_COUNT(tokens)];
    kit_data clean, d;
    make(&clean, B, N, K);
    make(&d, B, N, K);
    ch_run(&t.a, &clean);
    fill(&d.w, N, K, 16, i % 2 ? (double)INFINITY : (double)NAN);
    ch_run(&t.a, &d);
    must_equal(&d, &clean, 16, "other panels are not finite");
    memcpy(d.w.t.data, clean.w.t.data, d.w.t.bytes);
    fill(&d.a[0], B, K, B - 1, i % 2 ? (double)NAN : (double)INFINITY);
    ch_run(&t.a, &d);
    d.shape.B = B - 1;
    must_equal(&d, &clean, N, "the last token is not finite");
    kit_data_free(&t.a, &d);
    kit_data_free(&t.a, &clean);
  }
  tiles_close(&t);
}
END_TEST

/* ---- the model and the processor -------------------------------------------------------------- */

static void draw_bits(kit_tensor *m, int kind, uint64_t *seed) {
  static const uint32_t first[] = {107, 0, 50, 180}, range[] = {40, 20, 30, 20}; /* of exponents */
  for (int64_t i = 0; i < kit_elements(m); i++) {
    const uint32_t r = (uint32_t)kit_below(seed, 1 << 16), e = (uint32_t)kit_below(seed, 256);
    const uint16_t bits = (uint16_t)(kind < 4 ? (r & 0x807fu) | (first[kind] + e % range[kind]) << 7 : r);
    memcpy(kit_place_at(m, i), &bits, sizeof bits);
  }
}

/* The same product on two sets, of a kind of data: a wide range, subnormals, products near 2^-126, near
 * overflow, any bits. A NaN is a NaN. */
static void must_agree(const char *one, const char *two, int kind, int products) {
  static tiles t[2];
  uint64_t seed = 77 + (uint64_t)kind;
  tiles_open(&t[0], one, 1);
  tiles_open(&t[1], two, 3);
  for (int i = 0; i < products; i++) {
    const int64_t B = 1 + kit_below(&seed, 70), outputs = 1 + kit_below(&seed, 100);
    const int64_t K = 1 + kit_below(&seed, 600);
    kit_data d[2];
    for (int s = 0; s < 2; s++) make(&d[s], B, outputs, K);
    draw_bits(&d[0].a[0], kind, &seed);
    draw_bits(&d[0].w, kind, &seed);
    memcpy(d[1].a[0].t.data, d[0].a[0].t.data, d[0].a[0].t.bytes);
    memcpy(d[1].w.t.data, d[0].w.t.data, d[0].w.t.bytes);
    for (int s = 0; s < 2; s++) ch_run(&t[s].a, &d[s]);
    for (int64_t j = 0; j < B * outputs; j++) {
      const float x = at(&d[0], j / outputs, j % outputs), y = at(&d[1], j / outputs, j % outputs);
      if (memcmp(&x, &y, sizeof x) != 0 && !(isnan(x) && isnan(y)))
        ck_abort_msg("%s, kind %d: element %lld is %a on %s, %a on %s", kit_data_text(&d[0]), kind,
                     (long long)j, x, one, y, two);
    }
    for (int s = 0; s < 2; s++) kit_data_free(&t[s].a, &d[s]);
  }
  for (int s = 0; s < 2; s++) tiles_close(&t[s]);
}

START_TEST(the_model_is_the_processor) {
  must_agree("amx_model", "amx", _i, 100);
}
END_TEST

/* The same comparison, of what every machine has: another team gives the same bits of every kind of data. */
START_TEST(any_data_on_any_team) {
  must_agree("amx_model", "amx_model", _i, 8);
}
END_TEST

int main(void) {
  enum { KINDS = 5 };
  const int has = ch_has_isa("amx");
  const test_case tests[] = {{every_size, TEST_COUNT(sets) * (int)COLUMNS},
                             {nothing_comes_from_beside, TEST_COUNT(sets)},
                             {any_data_on_any_team, KINDS},
                             {has ? the_model_is_the_processor : NULL, KINDS},
                             {0}};
  if (!has) printf("not run: the model against the processor, which has no AMX\n");
  return run_tests("cpu_amx", tests, (test_setup){.timeout = 60});
}
