/* SPDX-License-Identifier: MIT
 * test_sha256.c - SHA-256 against the vectors of FIPS 180-4 (NIST's example values), CRC-32C against RFC
 * 3720. */
#include "lab/store/file_sum.h"
#include "lab/store/sha256.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static void check(const char *data, size_t size, size_t step, const char *want) {
  bs_sha256 h;
  char hex[65];
  bs_sha256_init(&h);
  for (size_t i = 0; i < size; i += step) bs_sha256_add(&h, data + i, size - i < step ? size - i : step);
  bs_sha256_hex(&h, hex);
  ck_assert_str_eq(hex, want);
}

START_TEST(known_answers) {
  const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  check("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  check("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (size_t step = 1; step <= 56; step++) {
    check(two, 56, step, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  }
  char *million = malloc(1000000);
  memset(million, 'a', 1000000);
  check(million, 1000000, 977, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  free(million);
}
END_TEST

/* The padding's edges: lengths around 56 and 64 must agree whatever the pieces. */
START_TEST(pieces_do_not_matter) {
  char data[200];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7 + 1);
  for (size_t size = 0; size <= sizeof data; size++) {
    bs_sha256 whole, pieces;
    char a[65], b[65];
    bs_sha256_init(&whole);
    bs_sha256_init(&pieces);
    bs_sha256_add(&whole, data, size);
    for (size_t i = 0; i < size; i++) bs_sha256_add(&pieces, data + i, 1);
    bs_sha256_hex(&whole, a);
    bs_sha256_hex(&pieces, b);
    ck_assert_str_eq(a, b);
  }
}
END_TEST

/* The vectors above went through one of the two ways; the other gives the same states. */
START_TEST(instructions_agree_with_c) {
  bs_sha256_blocks *ni = bs_sha256_ni();
  if (ni == NULL) return;
  uint8_t data[64 * 9];
  uint32_t states[2][8] = {{0}}, x = 1;
  for (size_t count = 0; count <= 9; count++) {
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    bs_sha256_portable(states[0], data, count);
    ni(states[1], data, count);
    ck_assert_mem_eq(states[0], states[1], sizeof states[0]);
  }
}
END_TEST

START_TEST(fields_are_separated) {
  bs_sha256 x, y;
  char a[65], b[65];
  bs_sha256_init(&x);
  bs_sha256_init(&y);
  bs_sha256_field(&x, "ab");
  bs_sha256_field(&x, "c");
  bs_sha256_field(&y, "a");
  bs_sha256_field(&y, "bc");
  bs_sha256_hex(&x, a);
  bs_sha256_hex(&y, b);
  ck_assert_str_ne(a, b);
}
END_TEST

START_TEST(files) {
  const char *dir = scratch_dir();
  char path[600], hex[65];
  bs_error err = BS_ERROR_INIT;
  write_text(dir, "abc", "abc");
  snprintf(path, sizeof path, "%s/abc", dir);
  ck_assert_int_eq(bs_sha256_file(path, hex, &err), BS_OK);
  ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ck_assert_int_eq(bs_sha256_file("/nonexistent", hex, &err), BS_IO);
  ck_assert_int_eq(bs_sha256_file(dir, hex, &err), BS_IO); /* a folder */
  remove_dir(dir);
}
END_TEST

START_TEST(a_sum_is_kept_until_the_file_changes) {
  const char *dir = scratch_dir();
  char path[600], hex[65];
  bs_error err = BS_ERROR_INIT;
  write_text(dir, "abc", "abc");
  snprintf(path, sizeof path, "%s/abc", dir);
  const uint64_t reads = bs_file_sum_reads();
  for (int i = 0; i < 3; ++i) {
    ck_assert_int_eq(bs_file_sum(path, hex, &err), BS_OK);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  }
  ck_assert_uint_eq(bs_file_sum_reads(), reads + 1);
  write_text(dir, "abc", ""); /* FIPS 180-4's sum of nothing */
  ck_assert_int_eq(bs_file_sum(path, hex, &err), BS_OK);
  ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  ck_assert_uint_eq(bs_file_sum_reads(), reads + 2);
  for (int i = 0; i < 200; ++i) { /* more files than are kept: each still has its own sum */
    char name[16], text[16], expected[65];
    snprintf(name, sizeof name, "f%d", i % 100);
    snprintf(text, sizeof text, "%d", i % 100);
    if (i < 100) write_text(dir, name, text);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ck_assert_int_eq(bs_file_sum(path, hex, &err), BS_OK);
    ck_assert_int_eq(bs_sha256_file(path, expected, &err), BS_OK);
    ck_assert_str_eq(hex, expected);
  }
  ck_assert_int_eq(bs_file_sum("/nonexistent", hex, &err), BS_IO);
  ck_assert_int_eq(bs_file_sum(dir, hex, &err), BS_IO);
  remove_dir(dir);
}
END_TEST

START_TEST(crc32c_known_answers) {
  unsigned char data[32];
  memset(data, 0, sizeof data);
  ck_assert_uint_eq(bs_crc32c(data, 32), 0x8a9136aau);
  memset(data, 0xff, sizeof data);
  ck_assert_uint_eq(bs_crc32c(data, 32), 0x62a8ab43u);
  for (unsigned i = 0; i < 32; i++) data[i] = (unsigned char)i;
  ck_assert_uint_eq(bs_crc32c(data, 32), 0x46dd794eu);
  ck_assert_uint_eq(bs_crc32c("123456789", 9), 0xe3069283u);
  ck_assert_uint_eq(bs_crc32c("", 0), 0u);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answers},
                             {pieces_do_not_matter},
                             {instructions_agree_with_c},
                             {fields_are_separated},
                             {files},
                             {a_sum_is_kept_until_the_file_changes},
                             {crc32c_known_answers},
                             {0}};
  return run_tests("sha256", tests, (test_setup){0});
}
