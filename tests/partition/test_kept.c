/* SPDX-License-Identifier: MIT
 *
 * test_kept.c - the positions of 2:4 halves: known answers K9, K10 and K24, what random_2of4 promises, the
 * same from any way of reading, matrices of every awkward size, slices, the checks of kept sets, every
 * refusal.
 */
#include "tests/partition/kept_kit.h"
#include "tests/run_tests.h"

/* ---- known answers --------------------------------------------------------------------------- */

/* First kept index + 4 x the second. */
static unsigned code_of(uint8_t bits) {
  const unsigned first = (unsigned)__builtin_ctz(bits);
  return first + 4 * (unsigned)__builtin_ctz((unsigned)bits & ((unsigned)bits - 1));
}

START_TEST(k9_k10_magnitude_of_the_known_matrix) {
  static const uint8_t rows[4][2] = {{0xC, 0xC}, {0x5, 0x9}, {0x3, 0xA}, {0x6, 0x9}};
  static const unsigned codes[2][4][2] = {{{14, 14}, {8, 12}, {4, 13}, {9, 12}},
                                          {{4, 4}, {13, 9}, {14, 8}, {12, 9}}};
  static const double packed[2][4][4] = {{{3, 4, 7, 8}, {-1, 2, 3, 4}, {2, -3, 1, 2}, {5, -4, 1, -6}},
                                         {{1, 2, 5, 6}, {0, 1, -2, 0}, {1, 0, 0, -1}, {0, 2, 1, 1}}};
  const bs_mask mask = mask_named("magnitude");
  bs_source w = source_of(K_W, BS_F64, 4, 8);
  const bs_kept *half[2] = {make(&mask, 4, 8, &w, 0), make(&mask, 4, 8, &w, 1)};
  for (int h = 0; h < 2; h++) {
    uint8_t got[8];
    read_all(half[h], got);
    for (int r = 0; r < 4; r++) {
      int n = 0;
      for (int g = 0; g < 2; g++) {
        ck_assert_uint_eq(got[2 * r + g], h == 0 ? rows[r][g] : rows[r][g] ^ 0xFu);
        ck_assert_uint_eq(code_of(got[2 * r + g]), codes[h][r][g]);
        for (int j = 0; j < 4; j++)
          if (got[2 * r + g] >> j & 1) ck_assert(K_W[r][4 * g + j] == packed[h][r][n++]);
      }
    }
  }
  checked(half[0], half[1]);
  bs_kept_free(half[0]);
  bs_kept_free(half[1]);
  bs_source_release(&w);
}
END_TEST

/* One metadata stream serves both halves: the complement of a code follows from the code. */
START_TEST(k10_complement_codes) {
  static const unsigned pairs[3][2] = {{4, 14}, {8, 13}, {9, 12}};
  for (int i = 0; i < 6; i++) {
    const unsigned a = code_of(six[i]), b = code_of(six[i] ^ 0xF);
    int found = 0;
    for (int p = 0; p < 3; p++)
      found += (a == pairs[p][0] && b == pairs[p][1]) || (a == pairs[p][1] && b == pairs[p][0]);
    ck_assert_int_eq(found, 1);
  }
}
END_TEST

static int two_and_two(uint16_t tile) {
  for (int i = 0; i < 4; i++) {
    int row = 0, col = 0;
    for (int j = 0; j < 4; j++) {
      row += tile >> (4 * i + j) & 1;
      col += tile >> (4 * j + i) & 1;
    }
    if (row != 2 || col != 2) return 0;
  }
  return 1;
}

START_TEST(k24_ninety_tiles_closed_under_complement) {
  const uint16_t *tiles = bs_kept_tiles();
  uint8_t listed[1 << 16] = {0};
  int all = 0, k24 = 0;
  for (unsigned t = 0; t < 1u << 16; t++) all += two_and_two((uint16_t)t); /* every 4 x 4 there is */
  ck_assert_int_eq(all, BS_TILES);
  for (int i = 0; i < BS_TILES; i++) {
    ck_assert(two_and_two(tiles[i]));
    ck_assert_uint_eq(listed[tiles[i]]++, 0);
    k24 += tiles[i] == (0x3 | 0xC << 4 | 0x5 << 8 | 0xA << 12); /* rows 1100 0011 1010 0101 */
  }
  for (int i = 0; i < BS_TILES; i++) ck_assert_uint_eq(listed[(uint16_t)~tiles[i]], 1);
  ck_assert_int_eq(k24, 1);
}
END_TEST

START_TEST(fixed_patterns_are_the_columns_of_the_partition) {
  static const char *const names[] = {"1100", "0011", "1010", "0101", "1001", "0110"};
  for (int i = 0; i < 6; i++)
    for (int64_t K = 0; K <= 11; K++)
      for (uint32_t half = 0; half < 2; half++) {
        const bs_mask mask = mask_named(names[i]);
        const bs_kept *kept = make(&mask, 3, K, NULL, half);
        const bs_partition *p = NULL;
        uint8_t got[9] = {0};
        int64_t n = 0;
        read_all(kept, got);
        ck_assert_int_eq(bs_partition_make(&mask, K, half, 2, &p, NULL), BS_OK);
        for (int64_t r = 0; r < 3; r++, n = 0)
          for (int64_t k = 0; k < K; k++) {
            const int mine = n < p->count && p->columns[n] == (uint32_t)k;
            n += mine;
            ck_assert_int_eq(got[r * ((K + 3) / 4) + k / 4] >> k % 4 & 1, mine);
          }
        bs_partition_free(p);
        bs_kept_free(kept);
      }
}
END_TEST

/* ---- random_2of4 ----------------------------------------------------------------------------- */

/* By another implementation of Philox, once: rows 0 and 1, then row 2^40 + 3. */
START_TEST(random_golden) {
  bs_mask mask = mask_named("random_2of4");
  mask.seed = 1234;
  const bs_kept *kept = make(&mask, (INT64_C(1) << 40) + 8, 24, NULL, 0);
  static const uint8_t want[3][6] = {
      {0x5, 0x9, 0xA, 0xA, 0x5, 0xC}, {0x6, 0xC, 0xC, 0x6, 0x6, 0x6}, {0x6, 0x6, 0xC, 0xA, 0x3, 0x5}};
  static const int64_t rows[3] = {0, 1, (INT64_C(1) << 40) + 3};
  for (int i = 0; i < 3; i++) {
    uint8_t got[6];
    ck_assert_int_eq(kept->read(kept->ctx, rows[i], 1, 0, 6, got, 6, NULL), BS_OK);
    ck_assert_mem_eq(got, want[i], 6);
  }
  bs_kept_free(kept);
}
END_TEST

/* Chi-square of the six patterns over all groups (5 degrees of freedom: 20.5 is passed by chance once in
 * 1000), and of each pattern's successor in the row and in the column (35 degrees: 66.6). */
START_TEST(random_is_uniform_and_neighbours_are_independent) {
  enum { ROWS = 600, GROUPS = 500 };
  static uint8_t got[ROWS * GROUPS];
  double count[6] = {0}, right[6][6] = {{0}}, below[6][6] = {{0}}, place[16] = {0};
  bs_mask mask = mask_named("random_2of4");
  mask.seed = 725 + (uint64_t)_i;
  for (int i = 0; i < 6; i++) place[six[i]] = i;
  const bs_kept *kept = make(&mask, ROWS, GROUPS * 4, NULL, 0);
  read_all(kept, got);
  for (int r = 0; r < ROWS; r++)
    for (int g = 0; g < GROUPS; g++) {
      const int a = (int)place[got[r * GROUPS + g]];
      count[a]++;
      if (g + 1 < GROUPS) right[a][(int)place[got[r * GROUPS + g + 1]]]++;
      if (r + 1 < ROWS) below[a][(int)place[got[(r + 1) * GROUPS + g]]]++;
    }
  const double each = ROWS * GROUPS / 6.0, pr = ROWS * (GROUPS - 1) / 36.0, pb = (ROWS - 1) * GROUPS / 36.0;
  double one = 0, beside = 0, under = 0;
  for (int a = 0; a < 6; a++) {
    one += (count[a] - each) * (count[a] - each) / each;
    for (int b = 0; b < 6; b++) {
      beside += (right[a][b] - pr) * (right[a][b] - pr) / pr;
      under += (below[a][b] - pb) * (below[a][b] - pb) / pb;
    }
  }
  ck_assert_msg(one < 20.5, "chi-square of the patterns %g", one);
  ck_assert_msg(beside < 66.6, "chi-square of neighbours in a row %g", beside);
  ck_assert_msg(under < 66.6, "chi-square of neighbours in a column %g", under);
  bs_kept_free(kept);
}
END_TEST

START_TEST(seeds_and_halves_differ) {
  bs_mask mask = mask_named("random_2of4"), other = mask;
  uint8_t a[64], b[64], c[64];
  mask.seed = 1;
  other.seed = UINT64_C(1) << 32 | 1; /* the upper half of the seed counts too */
  const bs_kept *x = make(&mask, 4, 64, NULL, 0), *y = make(&other, 4, 64, NULL, 0),
                *z = make(&mask, 4, 64, NULL, 1);
  read_all(x, a);
  read_all(y, b);
  read_all(z, c);
  ck_assert(memcmp(a, b, sizeof a) != 0);
  for (int i = 0; i < 64; i++) ck_assert_uint_eq(a[i] ^ c[i], 0xF);
  checked(x, z);
  bs_kept_free(x);
  bs_kept_free(y);
  bs_kept_free(z);
}
END_TEST

/* ---- all kinds: any way of reading gives the same ----------------------------------------------- */

static const char *const kinds[] = {"1001", "random_2of4", "magnitude", "transposable"};
enum { N_KINDS = 4, MAX_ROWS = 13, MAX_COLS = 70 };

/* Every rectangle of awkward matrices read by itself, in both halves, against the whole. */
static void read_in_pieces(const bs_kept *whole, const uint8_t *all, uint64_t seed) {
  const int64_t groups = (whole->cols + 3) / 4;
  uint32_t bits[4 * 40];
  bs_rng_bits(seed, 7, 0, 4 * 40, bits);
  for (int t = 0; t < 40; t++) {
    const int64_t row = bits[4 * t] % (whole->rows + 1), group = bits[4 * t + 1] % (groups + 1);
    const int64_t n = bits[4 * t + 2] % (whole->rows - row + 1), m = bits[4 * t + 3] % (groups - group + 1);
    uint8_t got[MAX_ROWS * 20];
    memset(got, 0xEE, sizeof got);
    ck_assert_int_eq(whole->read(whole->ctx, row, n, group, m, got, 20, NULL), BS_OK);
    int wrong = 0; /* ck_assert marks its place on every call, which is dear in an inner loop */
    for (int64_t r = 0; r < MAX_ROWS; r++)
      for (int64_t g = 0; g < 20; g++)
        wrong += got[r * 20 + g] != (r < n && g < m ? all[(row + r) * groups + group + g] : 0xEE);
    ck_assert_int_eq(wrong, 0);
  }
}

START_TEST(pieces_are_those_of_the_whole) {
  static const int64_t rows[] = {0, 1, 2, 4, 7, 13}, cols[] = {0, 1, 3, 4, 5, 8, 33, 70};
  static float data[MAX_ROWS * MAX_COLS];
  bs_rng_normal(3, 1, 0, MAX_ROWS * MAX_COLS, data);
  const bs_mask mask = mask_named(kinds[_i]);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (size_t j = 0; j < sizeof cols / sizeof cols[0]; j++) {
      bs_source w = source_of(data, BS_F32, rows[i], cols[j]);
      const bs_kept *a = make(&mask, rows[i], cols[j], &w, 0), *b = make(&mask, rows[i], cols[j], &w, 1);
      uint8_t all[MAX_ROWS * 18] = {0};
      read_all(a, all);
      read_in_pieces(a, all, (uint64_t)(100 * i + j));
      checked(a, b);
      bs_kept_free(a);
      bs_kept_free(b);
      bs_source_release(&w);
    }
}
END_TEST

/* Wider than a piece of the readers: 1025 groups and a bit. */
START_TEST(wide_rows) {
  enum { ROWS = 5, COLS = 4 * 1025 + 2 };
  static float data[ROWS * COLS];
  static uint8_t all[ROWS * 1026], one[ROWS];
  bs_rng_normal(4, 1, 0, ROWS * COLS, data);
  bs_source w = source_of(data, BS_F32, ROWS, COLS);
  const bs_mask mask = mask_named(kinds[_i]);
  const bs_kept *a = make(&mask, ROWS, COLS, &w, 0), *b = make(&mask, ROWS, COLS, &w, 1);
  read_all(a, all);
  for (int64_t g = 1020; g < 1026; g++) {
    ck_assert_int_eq(a->read(a->ctx, 0, ROWS, g, 1, one, 1, NULL), BS_OK);
    for (int r = 0; r < ROWS; r++) ck_assert_uint_eq(one[r], all[r * 1026 + g]);
  }
  checked(a, b);
  bs_kept_free(a);
  bs_kept_free(b);
  bs_source_release(&w);
}
END_TEST

START_TEST(slices_are_windows) {
  static float data[12 * 30];
  uint8_t all[12 * 8], got[12 * 8];
  bs_rng_normal(5, 1, 0, 12 * 30, data);
  bs_source w = source_of(data, BS_F32, 12, 30);
  const bs_mask mask = mask_named(kinds[_i]);
  const bs_kept *whole = make(&mask, 12, 30, &w, 1), *slice = NULL;
  read_all(whole, all);
  static const int64_t at[][4] = {{0, 12, 0, 30}, {4, 8, 2, 22}, {5, 3, 1, 8}, {12, 0, 0, 30}, {3, 2, 7, 2}};
  for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_kept_slice(whole, at[i][0], at[i][1], at[i][2], at[i][3], &slice, &err) == BS_OK, "%s",
                  err.message);
    const int64_t groups = (at[i][3] + 3) / 4;
    read_all(slice, got);
    for (int64_t r = 0; r < at[i][1]; r++)
      ck_assert_mem_eq(got + r * groups, all + (at[i][0] + r) * 8 + at[i][2], (size_t)groups);
    ck_assert_uint_eq(slice->transposable, whole->transposable && at[i][0] % 4 == 0);
    checked(slice, NULL);
    bs_kept_free(slice);
  }
  static const int64_t wrong[][4] = {{0, 13, 0, 30}, {0, 12, 0, 29}, {0, 12, 1, 30}, {-1, 2, 0, 4},
                                     {0, 12, 8, 4},  {0, 12, -1, 4}, {0, 1, 0, -4}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_kept_slice(whole, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], &slice, &err),
                     BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-MASK-RANGE");
    ck_assert_ptr_null(slice);
  }
  bs_kept_free(whole);
  bs_source_release(&w);
}
END_TEST

/* Rows that no memory could hold: a mask needs none. */
START_TEST(huge_rows) {
  bs_mask mask = mask_named("random_2of4");
  uint8_t a[16], b[16], c[16];
  const bs_kept *kept = make(&mask, INT64_MAX, 64, NULL, 0);
  ck_assert_int_eq(kept->read(kept->ctx, INT64_MAX - 1, 1, 0, 16, a, 16, NULL), BS_OK);
  ck_assert_int_eq(kept->read(kept->ctx, INT64_MAX - 1 - (INT64_C(1) << 32), 1, 0, 16, b, 16, NULL), BS_OK);
  ck_assert_int_eq(kept->read(kept->ctx, INT64_MAX - 1, 1, 0, 16, c, 16, NULL), BS_OK);
  ck_assert_mem_eq(a, c, 16);
  ck_assert(memcmp(a, b, 16) != 0);
  ck_assert_int_eq(bs_kept_check_bytes(a, 0, 0, 16, NULL), BS_OK);
  ck_assert_int_eq(kept->read(kept->ctx, INT64_MAX, 1, 0, 16, a, 16, NULL), BS_INVALID_ARGUMENT);
  bs_kept_free(kept);
}
END_TEST

int main(void) {
  const test_case tests[] = {{k9_k10_magnitude_of_the_known_matrix},
                             {k10_complement_codes},
                             {k24_ninety_tiles_closed_under_complement},
                             {fixed_patterns_are_the_columns_of_the_partition},
                             {random_golden},
                             {random_is_uniform_and_neighbours_are_independent, 3},
                             {seeds_and_halves_differ},
                             {pieces_are_those_of_the_whole, N_KINDS},
                             {wide_rows, N_KINDS},
                             {slices_are_windows, N_KINDS},
                             {huge_rows},
                             {0}};
  return run_tests("kept", tests, (test_setup){0});
}
