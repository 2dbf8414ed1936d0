/* SPDX-License-Identifier: MIT
 *
 * test_cpu_defaults.c - the table of defaults: which matmul of the cpu plugin serves by the number of tokens,
 * the dtype, and what the processor and our kernels have. Scores exactly, on both sides of each border; the
 * processors that oneDNN may use are cut down by its own variable. Without oneDNN there is nothing to choose,
 * and the program is skipped (77). */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

enum { PACKED = 600, BELOW = 500, ABOVE = 700, MUCH = 800, TILES = 850, REFUSED = 0 };
enum { CORE, BF16, CAPS };

/* What oneDNN is allowed to use here; each test opens it in a process of its own. */
static const char *const caps[CAPS] = {"AVX512_CORE", "AVX512_CORE_BF16"};

static uint32_t flags; /* of the queries */

static uint32_t score_of(ch *c, const char *impl, uint32_t dtype, int64_t B, int64_t N, int64_t K) {
  const kit_shape s = {.x = dtype, .w = dtype, .y = dtype, .B = 1, .N = 1, .K = 1, .flags = flags, .seed = 1};
  kit_actor a;
  kit_data d;
  bs_op_answer answer;
  if (!ch_find(c, &a, "matmul", impl, 1)) return REFUSED;
  kit_data_make(&d, "matmul", &s);
  ch_sizes(&d, B, N, K);
  kit_data_ask(&a, &d, &answer);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  return answer.level == BS_LEVEL_NATIVE ? answer.score : REFUSED;
}

/* Our own kernels have the same score for every shape; oneDNN is to have `wanted`. */
static void must_score(ch *c, uint32_t dtype, int64_t B, int64_t N, int64_t K, uint32_t wanted) {
  const uint32_t ours = score_of(c, "packed", dtype, B, N, K), dnnl = score_of(c, "dnnl", dtype, B, N, K);
  ck_assert_msg(ours == PACKED, "packed, %s, %s [%lld, %lld, %lld]: %u", c->params[0], bs_dtype_name(dtype),
                (long long)B, (long long)N, (long long)K, ours);
  ck_assert_msg(dnnl == wanted, "dnnl, %s, %s [%lld, %lld, %lld]: %u, wanted %u", c->params[0],
                bs_dtype_name(dtype), (long long)B, (long long)N, (long long)K, dnnl, wanted);
}

/* Scores at few tokens, at the last count that is few, and at the first that is many. */
static void must_score_all(ch *c, uint32_t dtype, uint32_t at_64, uint32_t at_512, uint32_t at_513) {
  must_score(c, dtype, 64, 256, 320, at_64);
  must_score(c, dtype, 512, 256, 320, at_512);
  must_score(c, dtype, 513, 256, 320, at_513);
}

static int has_avx512(void) {
  if (ch_has_isa("avx512")) return 1;
  printf("not run: this processor has no AVX-512\n");
  return 0;
}

/* f32: ours up to 512 tokens, whatever our own kernels may use. */
START_TEST(f32_by_tokens) {
  static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16"};
  if (!has_avx512()) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", caps[_i], 1), 0);
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    static ch c;
    if (!ch_has_isa(isas[i])) continue;
    ch_open(&c, isas[i], "auto");
    must_score_all(&c, BS_F32, BELOW, BELOW, ABOVE);
    must_score(&c, BS_F32, 1, 256, 320, BELOW);
    must_score(&c, BS_F32, 4096, 256, 320, ABOVE);
    ch_close(&c);
  }
}
END_TEST

/* bf16 by the processor's own instruction in oneDNN alone: from 8 tokens on. */
START_TEST(bf16_without_our_dot_product) {
  static ch c;
  if (!has_avx512() || !ch_has_isa("avx512_bf16")) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", caps[BF16], 1), 0);
  ch_open(&c, "avx512", "auto");
  must_score_all(&c, BS_BF16, MUCH, MUCH, MUCH);
  must_score(&c, BS_BF16, 7, 256, 320, BELOW);
  must_score(&c, BS_BF16, 8, 256, 320, MUCH);
  ch_close(&c);
}
END_TEST

/* By it in both: as f32. */
START_TEST(bf16_with_our_dot_product) {
  static ch c;
  if (!has_avx512() || !ch_has_isa("avx512_bf16")) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", caps[BF16], 1), 0);
  ch_open(&c, "avx512_bf16", "auto");
  must_score_all(&c, BS_BF16, BELOW, BELOW, ABOVE);
  must_score(&c, BS_BF16, 8, 256, 320, BELOW);
  ch_close(&c);
}
END_TEST

/* In oneDNN by the tiles of AMX, in ours by the instruction at best: oneDNN from 8 tokens on. f32 is as ever.
 */
#ifdef TEST_DNNL_WITH_AMX
START_TEST(bf16_with_amx) {
  static const char *const isas[] = {"avx2", "avx512", "avx512_bf16"};
  if (!has_avx512()) return;
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    static ch c;
    if (!ch_has_isa(isas[i])) continue;
    ch_open(&c, isas[i], TEST_DNNL_WITH_AMX);
    must_score_all(&c, BS_BF16, MUCH, MUCH, MUCH);
    must_score(&c, BS_BF16, 7, 256, 320, BELOW);
    must_score(&c, BS_BF16, 8, 256, 320, MUCH);
    must_score(&c, BS_BF16, 513, 63, 320, BELOW);
    must_score_all(&c, BS_F32, BELOW, BELOW, ABOVE);
    ch_close(&c);
  }
}
END_TEST
#endif

/* Tiles of ours: before all others for bf16 at any number of tokens, whatever oneDNN may use, but for narrow
 * layers; and for nothing else. */
START_TEST(tiles_of_ours) {
  static const struct {
    uint32_t dtype;
    int64_t B, N, K;
    uint32_t wanted;
  } cases[] = {{BS_BF16, 1, 256, 320, TILES},   {BS_BF16, 8, 256, 320, TILES},
               {BS_BF16, 64, 256, 320, TILES},  {BS_BF16, 4096, 64, 64, TILES},
               {BS_BF16, 64, 63, 320, BELOW},   {BS_BF16, 64, 320, 63, BELOW},
               {BS_F32, 64, 256, 320, REFUSED}, {BS_F16, 64, 256, 320, REFUSED}};
  static const char *const libraries[] = {
      "off",
      "auto",
#ifdef TEST_DNNL_WITH_AMX
      TEST_DNNL_WITH_AMX,
#endif
  };
  for (size_t l = 0; l < sizeof libraries / sizeof libraries[0]; l++) {
    static ch c;
    ch_open(&c, "amx_model", libraries[l]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      const uint32_t score = score_of(&c, "amx", cases[i].dtype, cases[i].B, cases[i].N, cases[i].K);
      ck_assert_msg(score == cases[i].wanted, "%s, case %zu: amx has %u", libraries[l], i, score);
    }
    ck_assert_uint_eq(score_of(&c, "packed", BS_BF16, 64, 256, 320), PACKED);
    ck_assert_uint_lt(score_of(&c, "dnnl", BS_BF16, 64, 256, 320), TILES);
    ch_close(&c);
  }
}
END_TEST

/* Token by token one matmul serves bf16 of every shape. The others keep what they have: a weight that is
 * trained, other dtypes, and "packed" where it is asked for. */
START_TEST(tiles_token_by_token) {
  static ch c;
  bs_error err = BS_ERROR_INIT;
  ch_open(&c, "amx_model", "off");
  for (int64_t size = 1; size <= 64; size *= 4) {
    flags = BS_QUERY_TOKENWISE;
    ck_assert_uint_eq(score_of(&c, "amx", BS_BF16, size, size, 65 - size), TILES);
    ck_assert_uint_eq(score_of(&c, "packed", BS_BF16, size, size, 65 - size), REFUSED);
    ck_assert_uint_eq(score_of(&c, "packed", BS_F32, size, size, 65 - size), PACKED);
    flags = BS_QUERY_TOKENWISE | BS_QUERY_TRAIN;
    ck_assert_uint_eq(score_of(&c, "packed", BS_BF16, size, size, 65 - size), PACKED);
  }
  ch_close(&c);
  flags = BS_QUERY_TOKENWISE;
  ck_assert_int_eq(ch_try_open(&c, "amx_model", "off", "packed", &err), BS_OK);
  ck_assert_uint_eq(score_of(&c, "packed", BS_BF16, 64, 64, 64), PACKED);
  ck_assert_uint_eq(score_of(&c, "amx", BS_BF16, 64, 64, 64), REFUSED);
  ch_close(&c);
}
END_TEST

/* In neither, or not in oneDNN: ours at any number of tokens. */
START_TEST(bf16_that_onednn_widens) {
  static const char *const isas[] = {"avx512", "avx512_bf16"};
  if (!has_avx512()) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", caps[CORE], 1), 0);
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    static ch c;
    if (!ch_has_isa(isas[i])) continue;
    ch_open(&c, isas[i], "auto");
    must_score_all(&c, BS_BF16, BELOW, BELOW, BELOW);
    ch_close(&c);
  }
}
END_TEST

/* Without AVX-512 oneDNN has no advantage at any number of tokens, and no bf16. */
START_TEST(without_avx512) {
  static ch c;
  if (!ch_has_isa("avx2")) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1), 0);
  ch_open(&c, "avx2", "auto");
  must_score_all(&c, BS_F32, BELOW, BELOW, BELOW);
  must_score(&c, BS_F32, 4096, 256, 320, BELOW);
  must_score_all(&c, BS_BF16, REFUSED, REFUSED, REFUSED);
  ch_close(&c);
}
END_TEST

/* Narrow layers are ours at any number of tokens. */
START_TEST(narrow_layers) {
  static ch c;
  if (!has_avx512()) return;
  ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", caps[BF16], 1), 0);
  ch_open(&c, "avx512", "auto");
  must_score(&c, BS_F32, 513, 63, 320, BELOW);
  must_score(&c, BS_F32, 513, 64, 320, ABOVE);
  must_score(&c, BS_F32, 513, 320, 63, BELOW);
  must_score(&c, BS_F32, 513, 320, 64, ABOVE);
  ch_close(&c);
}
END_TEST

/* What the tests hang on, found out by tests of their own: oneDNN reads its variable once a process. */
enum { HAS_DNNL, OBEYS, PROBES };
static unsigned char *found; /* [PROBES], shared with the processes of the tests */

START_TEST(probe) {
  static ch c;
  if (_i == OBEYS) ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1), 0);
  ch_open(&c, "auto", "auto");
  const uint32_t score = score_of(&c, "dnnl", _i == OBEYS ? BS_BF16 : BS_F32, 64, 64, 64);
  found[_i] = _i == OBEYS ? score == REFUSED : score != REFUSED;
  ch_close(&c);
}
END_TEST

static int look(void) {
  Suite *suite = suite_create("cpu_defaults: what is here");
  TCase *tc = tcase_create("probes");
  found = mmap(NULL, PROBES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return 0;
  tcase_add_loop_test(tc, probe, 0, PROBES);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0;
}

int main(void) {
  if (!look()) return 1;
  if (!found[HAS_DNNL]) {
    printf("skipped: no oneDNN here, so nothing to choose between\n");
    return 77;
  }
  Suite *suite = suite_create("cpu_defaults");
  TCase *tc = tcase_create("defaults");
  tcase_add_loop_test(tc, f32_by_tokens, 0, CAPS);
  tcase_add_test(tc, bf16_without_our_dot_product);
  tcase_add_test(tc, bf16_with_our_dot_product);
  tcase_add_test(tc, narrow_layers);
  tcase_add_test(tc, tiles_of_ours);
  tcase_add_test(tc, tiles_token_by_token);
#ifdef TEST_DNNL_WITH_AMX
  tcase_add_test(tc, bf16_with_amx);
#endif
  if (found[OBEYS]) {
    tcase_add_test(tc, bf16_that_onednn_widens);
    tcase_add_test(tc, without_avx512);
  } else {
    printf("not run: this oneDNN cannot be told to leave instructions out\n");
  }
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
