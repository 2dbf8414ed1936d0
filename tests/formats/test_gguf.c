/* SPDX-License-Identifier: MIT
 * test_gguf.c - a file that the package gguf of PyPI wrote is read; of a good file one rule is broken, and
 * each has its id; every cut and every flipped bit; a file that is cut while it is open; the numbers of each
 * type against those of gguf.quants.dequantize (gguf_golden.py). */
#include "core/base/error.h"
#include "core/op/quant.h"
#include "formats/gguf_quant.h"
#include "tests/formats/gguf_make.h"
#include "tests/run_tests.h"

/* The file that the tests break. */
static void make_good(void) {
  static const float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  gguf_make_begin();
  gguf_make_text("general.architecture", "llama");
  gguf_make_u32("alpha", 5);
  gguf_make_key("flag", BS_GGUF_KIND_BOOL);
  gguf_put_number(&gguf_made.keys, 1, 1);
  gguf_make_array("list", BS_GGUF_KIND_I32, 2);
  gguf_put_number(&gguf_made.keys, (uint64_t)-7, 4);
  gguf_put_number(&gguf_made.keys, 9, 4);
  gguf_make_array("words", BS_GGUF_KIND_TEXT, 2);
  gguf_put_text(&gguf_made.keys, "first");
  gguf_put_text(&gguf_made.keys, "");
  gguf_make_u32("general.alignment", 32);
  gguf_make_tensor("one", BS_GGUF_F32, 2, (int64_t[]){2, 4}, numbers, sizeof numbers);
  gguf_make_tensor("two", BS_GGUF_Q8_0, 1, (int64_t[]){32}, NULL, 34);
  gguf_make_tensor("odd", 20, 1, (int64_t[]){32}, NULL, 18); /* IQ4_NL */
}

static void expect_open(const char *path, bs_gguf *g) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_gguf_open(path, g, &err);
  ck_assert_msg(rc == BS_OK, "%s %s", err.id, err.message);
}

static int64_t int_of(const bs_gguf *g, const char *name, uint64_t i) {
  const bs_gguf_key *key = bs_gguf_find_key(g, name);
  int64_t value = 0;
  ck_assert_ptr_nonnull(key);
  ck_assert(bs_gguf_int(key, i, &value));
  return value;
}

START_TEST(a_good_file_is_read) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  bs_span text;
  uint64_t at = 0;
  int64_t value;
  make_good();
  for (gguf_made.version = 2; gguf_made.version <= 3; gguf_made.version++) {
    expect_open(gguf_make_file("good.gguf"), &g);
    ck_assert_uint_eq(g.version, gguf_made.version);
    if (gguf_made.version == 2) bs_gguf_close(&g);
  }
  ck_assert(bs_gguf_text(bs_gguf_find_key(&g, "general.architecture"), &text));
  ck_assert(bs_span_is(text, "llama"));
  ck_assert_int_eq(int_of(&g, "alpha", 0), 5);
  ck_assert_int_eq(int_of(&g, "flag", 0), 1);
  ck_assert_int_eq(int_of(&g, "list", 0), -7);
  ck_assert_int_eq(int_of(&g, "list", 1), 9);
  ck_assert(!bs_gguf_int(bs_gguf_find_key(&g, "list"), 2, &value));
  const bs_gguf_key *words = bs_gguf_find_key(&g, "words");
  ck_assert(bs_gguf_text_next(words, &at, &text) && bs_span_is(text, "first"));
  ck_assert(bs_gguf_text_next(words, &at, &text) && text.size == 0);
  ck_assert(!bs_gguf_text_next(words, &at, &text));
  ck_assert_ptr_null(bs_gguf_find_key(&g, "absent"));
  const bs_gguf_tensor *one = bs_gguf_find_tensor(&g, "one");
  ck_assert_int_eq(one->dims[0], 2);
  ck_assert_int_eq(one->dims[1], 4);
  ck_assert_uint_eq(one->bytes, 32);
  ck_assert_float_eq(((const float *)one->data)[7], 8);
  ck_assert_int_eq(bs_gguf_check_type(bs_gguf_find_tensor(&g, "two"), &err), BS_OK);
  files_expect(&err, bs_gguf_check_type(bs_gguf_find_tensor(&g, "odd"), &err), BS_INPUT, "BS-GGUF-TYPE",
               "a type that is not read");
  ck_assert_msg(strstr(err.message, "'odd'") != NULL && strstr(err.message, "IQ4_NL") != NULL, "%s",
                err.message);
  bs_gguf_close(&g);
  bs_gguf_close(&g); /* a closed record may be closed again */
}
END_TEST

START_TEST(a_file_of_the_python_package_is_read) {
  char path[1024];
  bs_gguf g;
  bs_span text;
  double real = 0;
  uint64_t at = 0;
  float out[128];
  snprintf(path, sizeof path, "%s/tests/fuzz/corpus/gguf/pypi", getenv("BS_TEST_SOURCE_DIR"));
  expect_open(path, &g);
  ck_assert_int_eq(int_of(&g, "llama.block_count", 0), 1);
  ck_assert_int_eq(int_of(&g, "tokenizer.ggml.token_type", 1), -2);
  ck_assert(bs_gguf_real(bs_gguf_find_key(&g, "llama.rope.freq_base"), 0, &real) && real == 10000);
  ck_assert(bs_gguf_real(bs_gguf_find_key(&g, "tokenizer.ggml.scores"), 1, &real) && real == -1);
  const bs_gguf_key *tokens = bs_gguf_find_key(&g, "tokenizer.ggml.tokens");
  ck_assert(bs_gguf_text_next(tokens, &at, &text) && bs_span_is(text, "a"));
  ck_assert(bs_gguf_text_next(tokens, &at, &text) && text.size == 0);
  ck_assert(bs_gguf_text_next(tokens, &at, &text) && bs_span_is(text, "\xc3\xa9\xe4\xb8\xad"));
  /* -64, -63, .. 63 in two rows: exact in f16, near in the others. */
  static const struct {
    const char *name;
    float near;
  } all[] = {{"f16", 0}, {"bf16", 0}, {"q8_0", 0.3f}, {"q4_0", 8}, {"q4_1", 2.5f}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const bs_gguf_tensor *t = bs_gguf_find_tensor(&g, all[i].name);
    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(t->dims[0], 2);
    ck_assert_int_eq(t->dims[1], 64);
    bs_gguf_dequantize(t->type->number, t->data, 128, out);
    for (int k = 0; k < 128; k++) {
      const float off = out[k] - (float)(k - 64);
      ck_assert_msg(off <= all[i].near && off >= -all[i].near, "%s: number %d is %g", all[i].name, k,
                    (double)out[k]);
    }
  }
  bs_gguf_close(&g);
}
END_TEST

/* Behind the text `after` and `skip` bytes, `size` bytes become `value`. */
static const struct {
  const char *id, *after;
  int skip, size;
  uint64_t value;
} bad[] = {
    {"BS-GGUF-MAGIC", "GGUF", -1, 1, 'f'},
    {"BS-GGUF-VERSION", "GGUF", 0, 4, 1},
    {"BS-GGUF-VERSION", "GGUF", 0, 4, 4},
    {"BS-GGUF-VERSION", "GGUF", 0, 4, 0x03000000},
    {"BS-GGUF-SIZE", "GGUF", 4, 8, 65537},
    {"BS-GGUF-SIZE", "GGUF", 12, 8, UINT64_MAX},
    {"BS-GGUF-CUT", "GGUF", 4, 8, 65536},
    {"BS-GGUF-CUT", "GGUF", 12, 8, 65536},
    {"BS-GGUF-TEXT", "alpha", -13, 8, 1025},
    {"BS-GGUF-NAME", "alpha", -1, 1, '\n'},
    {"BS-GGUF-NAME", "alpha", -1, 1, 0},
    {"BS-GGUF-TWICE", "flag", -4, 4, 0x7473696c}, /* list */
    {"BS-GGUF-TWICE", "two", -3, 3, 0x656e6f},    /* one */
    {"BS-GGUF-KEY", "alpha", 0, 4, 13},
    {"BS-GGUF-KEY", "flag", 4, 1, 2},
    {"BS-GGUF-KEY", "list", 4, 4, BS_GGUF_KIND_ARRAY},
    {"BS-GGUF-KEY", "list", 4, 4, 99},
    {"BS-GGUF-KEY", "list", 8, 8, (4u << 20) + 1},
    {"BS-GGUF-KEY", "list", 8, 8, UINT64_MAX},
    {"BS-GGUF-CUT", "list", 8, 8, 4u << 20},
    {"BS-GGUF-TEXT", "words", 16, 8, (1u << 20) + 1},
    {"BS-GGUF-CUT", "words", 16, 8, 1u << 20},
    {"BS-GGUF-ALIGN", "general.alignment", 4, 4, 0},
    {"BS-GGUF-ALIGN", "general.alignment", 4, 4, 4},
    {"BS-GGUF-ALIGN", "general.alignment", 4, 4, 48},
    {"BS-GGUF-ALIGN", "general.alignment", 4, 4, 131072},
    {"BS-GGUF-SHAPE", "one", 0, 4, 0},
    {"BS-GGUF-SHAPE", "one", 0, 4, 5},
    {"BS-GGUF-SHAPE", "one", 4, 8, UINT64_MAX},
    {"BS-GGUF-SHAPE", "one", 4, 8, (uint64_t)1 << 62},
    {"BS-GGUF-CUT", "one", 4, 8, (uint64_t)1 << 59},
    {"BS-GGUF-SHAPE", "two", 4, 8, 33},
    {"BS-GGUF-TYPE", "two", 12, 4, 4},
    {"BS-GGUF-TYPE", "two", 12, 4, 1000},
    {"BS-GGUF-ALIGN", "two", 16, 8, 33},
    {"BS-GGUF-CUT", "two", 16, 8, 1 << 20},
    {"BS-GGUF-CUT", "two", 16, 8, UINT64_MAX - 31},
    {"BS-GGUF-OVERLAP", "two", 16, 8, 0},
};

START_TEST(each_broken_rule_has_its_id) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  char what[100];
  make_good();
  gguf_make_whole();
  unsigned char *found =
      memmem(gguf_made.whole.data, gguf_made.whole.size, bad[_i].after, strlen(bad[_i].after));
  ck_assert_ptr_nonnull(found);
  found += (int)strlen(bad[_i].after) + bad[_i].skip;
  for (int i = 0; i < bad[_i].size; i++) found[i] = (unsigned char)(bad[_i].value >> (8 * i));
  const char *path = files_write("bad.gguf", gguf_made.whole.data, gguf_made.whole.size);
  snprintf(what, sizeof what, "row %d: %s %d", _i, bad[_i].after, bad[_i].skip);
  files_expect(&err, bs_gguf_open(path, &g, &err), BS_INPUT, bad[_i].id, what);
  ck_assert_msg(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
  ck_assert_uint_eq(g.n_keys, 0);
  bs_gguf_close(&g); /* closed already: must do nothing */
}
END_TEST

START_TEST(every_cut_and_flip_is_survived) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  make_good();
  gguf_make_whole();
  const size_t size = gguf_made.whole.size;
  for (size_t n = 0; n < size; n++) {
    const int32_t rc = bs_gguf_open(files_write("cut", gguf_made.whole.data, n), &g, &err);
    files_expect(&err, rc, BS_INPUT, n < 4 ? "BS-GGUF-MAGIC" : "BS-GGUF-CUT", "cut");
  }
  for (size_t i = 0; i < size - 100; i++)
    for (int bit = 0; bit < 8; bit++) {
      gguf_made.whole.data[i] ^= (unsigned char)(1 << bit);
      const int32_t rc = bs_gguf_open(files_write("flip", gguf_made.whole.data, size), &g, &err);
      ck_assert_msg(rc == BS_OK || (rc == BS_INPUT && strncmp(err.id, "BS-GGUF-", 8) == 0), "byte %zu: %d %s",
                    i, rc, err.id);
      bs_gguf_close(&g);
      gguf_made.whole.data[i] ^= (unsigned char)(1 << bit);
    }
}
END_TEST

START_TEST(a_file_that_is_cut_while_open_reads_as_zeros) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  bs_span text;
  uint64_t at = 0;
  char *filler = calloc(1, 9000);
  memset(filler, 'x', 8999);
  gguf_make_begin();
  gguf_make_text("filler", filler); /* puts the words behind the first page */
  gguf_make_array("words", BS_GGUF_KIND_TEXT, 2);
  gguf_put_text(&gguf_made.keys, "first");
  gguf_put_text(&gguf_made.keys, "second");
  gguf_make_tensor("big", BS_GGUF_F32, 1, (int64_t[]){8192}, NULL, 32768);
  memset(gguf_made.data.data, 1, 32768);
  const char *path = gguf_make_file("torn.gguf");
  expect_open(path, &g);
  ck_assert_int_eq(bs_map_unchanged(&g.map, path, &err), BS_OK);
  ck_assert_int_eq(truncate(path, 4096), 0);
  ck_assert_int_eq(((const unsigned char *)bs_gguf_find_tensor(&g, "big")->data)[32767], 0);
  while (bs_gguf_text_next(bs_gguf_find_key(&g, "words"), &at, &text)) ck_assert_uint_eq(text.size, 0);
  files_expect(&err, bs_map_unchanged(&g.map, path, &err), BS_INPUT, "BS-FILE-CHANGED", "cut while open");
  bs_gguf_close(&g);
  free(filler);
}
END_TEST

START_TEST(only_regular_files) {
  bs_gguf g;
  bs_error err = BS_ERROR_INIT;
  const char *fifo = files_path("fifo");
  ck_assert_int_eq(mkfifo(fifo, 0600), 0);
  const char *const refused[] = {fifo, files_folder, files_path("absent"), "/dev/zero", NULL};
  for (size_t i = 0; refused[i] != NULL; i++)
    files_expect(&err, bs_gguf_open(refused[i], &g, &err), BS_INPUT, "BS-GGUF-READ", refused[i]);
}
END_TEST

/* The hash of the numbers of 64 blocks, by gguf_golden.py. halves: places of the scales in a block. */
static const struct {
  const char *name;
  uint64_t hash;
  uint32_t type;
  int n_halves, halves[2];
} golden[] = {{"F32", 0x38dd0b71a32d2850, BS_GGUF_F32, 1, {2}},
              {"F16", 0xf3cdfc44e62ef723, BS_GGUF_F16, 1, {0}},
              {"BF16", 0x1de295682064e533, BS_GGUF_BF16, 1, {0}},
              {"Q8_0", 0x525f4b0269fd5216, BS_GGUF_Q8_0, 1, {0}},
              {"Q4_0", 0xb4b4356e65cc5e47, BS_GGUF_Q4_0, 1, {0}},
              {"Q4_1", 0x1c09e486e4fbe46b, BS_GGUF_Q4_1, 2, {0, 2}},
              {"Q4_K", 0x71b22d65c973df50, BS_GGUF_Q4_K, 2, {0, 2}},
              {"Q5_K", 0xfc1f78e4927c5774, BS_GGUF_Q5_K, 2, {0, 2}},
              {"Q6_K", 0x5db280f1dd0644cf, BS_GGUF_Q6_K, 1, {208}}};

enum { BLOCKS = 64 };

/* The blocks of gguf_golden.py. */
static void make_blocks(int row, unsigned char bytes[BLOCKS * 256]) {
  const bs_gguf_type *type = bs_gguf_type_of(golden[row].type);
  uint32_t state = 1;
  for (uint32_t i = 0; i < BLOCKS * type->bytes; i++) {
    state = state * 1664525u + 1013904223u;
    bytes[i] = (unsigned char)(state >> 24);
  }
  for (uint32_t b = 0; b < BLOCKS; b++)
    for (int h = 0; h < golden[row].n_halves; h++)
      bytes[b * type->bytes + (uint32_t)golden[row].halves[h] + 1] &= 0xbb;
}

START_TEST(numbers_are_those_of_the_python_package) {
  static unsigned char bytes[BLOCKS * 256];
  static float out[BLOCKS * 256];
  const bs_gguf_type *type = bs_gguf_type_of(golden[_i].type);
  uint64_t hash = 0xcbf29ce484222325u;
  ck_assert_str_eq(type->name, golden[_i].name);
  make_blocks(_i, bytes);
  bs_gguf_dequantize(golden[_i].type, bytes, BLOCKS * (uint64_t)type->block, out);
  for (size_t i = 0; i < sizeof *out * BLOCKS * type->block; i++)
    hash = (hash ^ ((const unsigned char *)out)[i]) * 0x100000001b3u;
  ck_assert_msg(hash == golden[_i].hash, "%s: 0x%016llx", type->name, (unsigned long long)hash);
}
END_TEST

/* The f32 of tensor.h's formula, from codes, scales, lows and steps. */
static float number_of(const bs_quant *q, const bs_quant_rows *r, int64_t row, int64_t col) {
  const int64_t spans = q->cols / q->span, groups = q->cols / q->group;
  const int64_t span = row * spans + col / q->span, group = row * groups + col / q->group;
  float scale = r->scales[span], low = q->flags & BS_QUANT_LOWS ? r->lows[span] : 0;
  if (q->flags & BS_QUANT_STEPS) scale *= (float)r->steps[group];
  if (q->flags & BS_QUANT_STEPS && q->flags & BS_QUANT_LOWS) low *= (float)r->low_steps[group];
  const float w = scale * (float)((int)r->codes[row * r->codes_stride + col] - q->zero);
  return q->flags & BS_QUANT_LOWS ? w - low : w;
}

/* The blocks as rows of 4 blocks, read in two parts into arrays with a gap: equal bits. */
START_TEST(codes_and_scales_stand_for_the_same_numbers) {
  enum { ROWS = BLOCKS / 4, COLS = 4 * 256, STRIDE = COLS + 3 };
  static unsigned char bytes[BLOCKS * 256], codes[ROWS * STRIDE], low_steps[ROWS * COLS / 16];
  static float out[BLOCKS * 256], scales[ROWS * 32], lows[ROWS * 32];
  static int8_t steps[ROWS * COLS / 16];
  const bs_gguf_type *type = bs_gguf_type_of(golden[_i].type);
  const bs_gguf_tensor t = {.type = type, .rank = 2, .dims = {ROWS, 4 * (int64_t)type->block}, .data = bytes};
  const bs_quant_rows all = {.struct_size = (uint32_t)sizeof all,
                             .codes = codes,
                             .codes_stride = STRIDE,
                             .scales = scales,
                             .lows = lows,
                             .steps = steps,
                             .low_steps = low_steps};
  bs_gguf_rows rows;
  bs_quant q;
  bs_error err = BS_ERROR_INIT;
  make_blocks(_i, bytes);
  ck_assert_int_eq(bs_gguf_quant(&t, &rows, &q), type->block > 1);
  if (type->block == 1) return;
  ck_assert_msg(bs_quant_check(&q, "matmul_q", &err) == BS_OK, "%s", err.message);
  const int64_t spans = q.cols / q.span, groups = q.cols / q.group;
  const bs_quant_rows rest = {.struct_size = (uint32_t)sizeof all,
                              .codes = codes + 5 * STRIDE,
                              .codes_stride = STRIDE,
                              .scales = scales + 5 * spans,
                              .lows = lows + 5 * spans,
                              .steps = steps + 5 * groups,
                              .low_steps = low_steps + 5 * groups};
  ck_assert_int_eq(q.read(q.ctx, 0, 5, &all, &err), BS_OK);
  ck_assert_int_eq(q.read(q.ctx, 5, ROWS - 5, &rest, &err), BS_OK);
  files_expect(&err, q.read(q.ctx, 5, ROWS - 4, &rest, &err), BS_INVALID_ARGUMENT, "BS-GGUF-ROW", "too many");
  bs_gguf_dequantize(type->number, bytes, (uint64_t)(q.rows * q.cols), out);
  for (int64_t n = 0; n < q.rows; n++)
    for (int64_t k = 0; k < q.cols; k++) {
      const float w = number_of(&q, &all, n, k);
      const void *got = &w, *want = &out[n * q.cols + k];
      ck_assert_int_lt(codes[n * STRIDE + k], 1 << q.bits);
      ck_assert_msg(memcmp(got, want, sizeof w) == 0, "%s [%d,%d]: %g, want %g", type->name, (int)n, (int)k,
                    (double)w, (double)out[n * q.cols + k]);
    }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_good_file_is_read},
                             {a_file_of_the_python_package_is_read},
                             {each_broken_rule_has_its_id, TEST_COUNT(bad)},
                             {every_cut_and_flip_is_survived},
                             {a_file_that_is_cut_while_open_reads_as_zeros},
                             {only_regular_files},
                             {numbers_are_those_of_the_python_package, TEST_COUNT(golden)},
                             {codes_and_scales_stand_for_the_same_numbers, TEST_COUNT(golden)},
                             {0}};
  return run_tests("gguf", tests, (test_setup){files_begin, files_end});
}
