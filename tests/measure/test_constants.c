/* SPDX-License-Identifier: MIT
 * test_constants.c - machine constants: the file is written whole and read with distrust; a run finds its own
 * dtype, backend, ranks and footprint in them, or nothing. */
#include <math.h>
#include <sys/stat.h>

#include "tests/bsrun/constants_file.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static char path[700];
static void setup(void) {
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/a/b/machine.json", dir);
}
static void teardown(void) {
  remove_dir(dir);
}

#define MIB 1048576.0
static bs_case run_of(uint32_t dtype, uint32_t ranks) {
  const bs_case c = {.backend = "ref",
                     .comm = "threads",
                     .world_size = ranks,
                     .spec = {.struct_size = sizeof c.spec, .x_dtype = dtype, .w_dtype = dtype}};
  return c;
}

static int near(double a, double b) {
  return fabs(a - b) <= 1e-9 * fabs(b);
}

START_TEST(a_run_finds_its_constants) {
  json_t *k = round_constants("ref");
  bs_machine m;
  const bs_case c = run_of(BS_F32, 2);
  ck_assert(bs_constants_find(k, &c, MIB, &m));
  ck_assert_str_eq(m.source, "stored");
  ck_assert_str_eq(m.measured_at, "20300102_030405");
  ck_assert_str_eq(m.loop, "avx9");
  ck_assert(m.flops_core == 2e9 && m.flops_all == 1e12 && near(m.read_core, 4e10) && near(m.copy_core, 2e10));
  ck_assert(m.exchange[0] == 1e-6 && near(bs_machine_wire(&m, 2 * MIB + 4), 1e-6 + 2 * MIB * 1e-9));
  ck_assert(m.host == 2e-6);
  ck_assert(bs_constants_find(k, &c, 4 * MIB, &m)); /* half way between 1 and 16 MiB: the geometric mean */
  ck_assert(near(m.read_core, 2e10) && near(m.copy_core, 1e10) && near(m.footprint, 4 * MIB));
  ck_assert(bs_constants_find(k, &c, 256 * MIB, &m)); /* beyond the end: the end */
  ck_assert(near(m.read_core, 1e10));
  ck_assert(bs_constants_find(k, &c, 1, &m) && near(m.read_core, 4e10));
  const bs_case alone = run_of(BS_BF16, 1);
  ck_assert(bs_constants_find(k, &alone, MIB, &m) && m.flops_core == 1e9 && m.exchange[0] == 0);
  json_decref(k);
}
END_TEST

START_TEST(what_is_lacking_is_not_found) {
  json_t *k = round_constants("ref");
  bs_machine m;
  bs_case c = run_of(BS_F64, 2);
  ck_assert(!bs_constants_find(NULL, &c, MIB, &m));
  ck_assert(!bs_constants_find(k, &c, MIB, &m));
  c = run_of(BS_F32, 3);
  ck_assert(!bs_constants_find(k, &c, MIB, &m));
  c = run_of(BS_F32, 2);
  c.comm = "mpi";
  ck_assert(!bs_constants_find(k, &c, MIB, &m));
  c = run_of(BS_F32, 1);
  c.backend = "cpu";
  ck_assert(!bs_constants_find(k, &c, MIB, &m));
  json_decref(k);
}
END_TEST

/* A number that no machine has makes the whole useless rather than the prediction wrong. */
static const struct {
  const char *list, *key;
  size_t row;
} numbers[] = {{"arithmetic", "flops_core", 1},
               {"arithmetic", "flops_all", 1},
               {"memory", "read_bytes_per_s_core", 0},
               {"memory", "read_bytes_per_s_all", 0},
               {"memory", "copy_bytes_per_s_core", 0},
               {"memory", "footprint_bytes", 1},
               {"exchange", "all_reduce_4B_s", 0},
               {"exchange", "all_reduce_64KiB_s", 0},
               {"exchange", "all_reduce_1MiB_s", 0},
               {"exchange", "all_reduce_4MiB_s", 0},
               {"host", "host_s", 0}};

START_TEST(nonsense_is_not_used) {
  const bs_case c = run_of(BS_F32, 2);
  for (int how = 0; how < 4; how++) {
    json_t *k = round_constants("ref"),
           *row = json_array_get(json_object_get(k, numbers[_i].list), numbers[_i].row);
    bs_machine m;
    ck_assert(bs_constants_find(k, &c, MIB, &m));
    if (how == 0) json_object_set_new(row, numbers[_i].key, json_real(-1.0));
    if (how == 1) json_object_set_new(row, numbers[_i].key, json_integer(0));
    if (how == 2) json_object_set_new(row, numbers[_i].key, json_string("fast"));
    if (how == 3) json_object_del(row, numbers[_i].key);
    ck_assert_msg(!bs_constants_find(k, &c, MIB, &m), "%s %s, way %d", numbers[_i].list, numbers[_i].key,
                  how);
    json_decref(k);
  }
}
END_TEST

static const bs_kernel ours = {.name = "ref:portable", .how = "portable", .plugin = "abc"};

START_TEST(a_kernels_rates_follow_the_footprint) {
  json_t *k = round_constants("ref");
  const bs_case c = run_of(BS_F32, 1);
  bs_kernel got = {.source = NULL};
  round_kernel(k, "ref", "ref:portable", "portable", "abc");
  ck_assert(bs_constants_kernel(k, &c, MIB, &ours, &got));
  ck_assert_str_eq(got.source, "stored");
  ck_assert_str_eq(got.how, "portable");
  ck_assert(near(got.flops_core, 1e9) && near(got.flops_all, 2e9) && near(got.footprint, MIB));
  ck_assert(near(got.bytes_core, 2e10) && near(got.bytes_all, 1e13));
  ck_assert(bs_constants_kernel(k, &c, 4 * MIB, &ours, &got)); /* half way */
  ck_assert(near(got.flops_core, 2e9) && near(got.flops_all, 4e9) && near(got.bytes_core, 1e10));
  /* Beyond the kernel's largest weight its part of the read bandwidth stays, and that goes on falling. */
  json_t *far = json_deep_copy(json_array_get(json_object_get(k, "memory"), 1));
  json_object_set_new(far, "footprint_bytes", json_real(64 * MIB));
  json_object_set_new(far, "read_bytes_per_s_core", json_real(2e9));
  json_array_append_new(json_object_get(k, "memory"), far);
  ck_assert(bs_constants_kernel(k, &c, 64 * MIB, &ours, &got));
  ck_assert(near(got.flops_core, 4e9) && near(got.bytes_core, 1e9) && near(got.bytes_all, 1e13));
  json_decref(k);
}
END_TEST

/* Rows of the dense product are not those of 2:4 values, whatever their name. */
START_TEST(products_of_kept_values_have_rows_of_their_own) {
  const bs_case c = run_of(BS_F32, 1);
  bs_kernel of24 = ours, got;
  json_t *k = round_constants("ref");
  of24.of24 = 1;
  round_kernel(k, "ref", "ref:portable", "portable", "abc");
  ck_assert(bs_constants_kernel(k, &c, MIB, &ours, &got)); /* an old row does not tell: the dense one */
  ck_assert(!bs_constants_kernel(k, &c, MIB, &of24, &got));
  json_t *list = json_object_get(k, "kernels");
  for (size_t i = 0; i < 2; i++)
    json_object_set_new(json_array_get(list, i), "op", json_string(_i ? "matmul24" : "matmul"));
  ck_assert_int_eq(bs_constants_kernel(k, &c, MIB, &ours, &got), _i == 0);
  ck_assert_int_eq(bs_constants_kernel(k, &c, MIB, &of24, &got), _i == 1);
  json_decref(k);
}
END_TEST

/* Of another implementation, another answer of it (an isa forced by a parameter), another build of its
 * plugin, another backend or dtype, or nonsense: not used. */
START_TEST(another_kernels_rates_are_refused) {
  static const char *const keys[] = {"name",      "how",        "plugin",           "backend",        "dtype",
                                     "flops_all", "flops_core", "bytes_per_s_core", "bytes_per_s_all"};
  const bs_case c = run_of(BS_F32, 1);
  bs_kernel got;
  json_t *k = round_constants("ref");
  ck_assert(!bs_constants_kernel(k, &c, MIB, &ours, &got)); /* there are none */
  ck_assert(!bs_constants_kernel(NULL, &c, MIB, &ours, &got));
  round_kernel(k, "ref", "ref:portable", "portable", "abc");
  ck_assert(bs_constants_kernel(k, &c, MIB, &ours, &got));
  json_t *list = json_object_get(k, "kernels");
  for (size_t i = 0; i < 2; i++) json_object_set_new(json_array_get(list, i), keys[_i], json_string("other"));
  ck_assert_msg(!bs_constants_kernel(k, &c, MIB, &ours, &got), "%s", keys[_i]);
  json_decref(k);
}
END_TEST

START_TEST(stored_whole_and_loaded) {
  bs_error err = BS_ERROR_INIT;
  json_t *k = round_constants("ref"), *back = NULL;
  round_kernel(k, "ref", "ref:portable", "portable", "abc");
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_OK);
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_OK); /* over the old one */
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_OK);
  ck_assert(json_equal(k, back));
  json_decref(back);
  char command[800];
  snprintf(command, sizeof command, "test \"$(ls -A '%s/a/b')\" = machine.json", dir);
  ck_assert_int_eq(system(command), 0);
  json_decref(k);
}
END_TEST

START_TEST(another_key_is_a_mismatch) {
  static const char *const keys[] = {"cpu", "cores", "library_build_id"};
  bs_error err = BS_ERROR_INIT;
  json_t *k = round_constants("ref"), *back = NULL, *key = json_object_get(k, "key");
  json_object_set_new(key, keys[_i], _i == 1 ? json_integer(9999) : json_string("9999"));
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_OK);
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_MISMATCH);
  ck_assert_ptr_null(back);
  ck_assert_str_eq(err.id, "BS-CONSTANTS-KEY");
  ck_assert_msg(strstr(err.message, keys[_i]) != NULL && strstr(err.message, "9999") != NULL, "%s",
                err.message);
  json_decref(k);
}
END_TEST

START_TEST(files_that_are_none_of_ours) {
  static const char *const texts[] = {"",
                                      "{",
                                      "[]",
                                      "\"x\"",
                                      "{\"format\":2}",
                                      "{\"format\":3,\"key\":{}}",
                                      "{\"format\":2,\"format\":2}",
                                      "\xff\xfe",
                                      "{\"format\":2,\"key\":{},\"arithmetic\":{}}"};
  bs_error err = BS_ERROR_INIT;
  json_t *back = NULL;
  snprintf(path, sizeof path, "%s/machine.json", dir);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    write_text(dir, "machine.json", texts[i]);
    ck_assert_msg(bs_constants_load(path, &back, &err) == BS_CORRUPT, "text %zu: %s", i, err.message);
    ck_assert_str_eq(err.id, "BS-CONSTANTS-FILE");
    ck_assert_ptr_nonnull(strstr(err.hint, "doctor --measure"));
  }
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_CORRUPT);
  ck_assert_int_eq(rmdir(path), 0);
  ck_assert_int_eq(mkfifo(path, 0600), 0); /* must not block */
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_CORRUPT);
}
END_TEST

/* Format 1 had no kernels and two figures of an all-reduce: it is said, and measured anew. */
START_TEST(a_file_of_the_old_format) {
  bs_error err = BS_ERROR_INIT;
  json_t *k = round_constants("ref"), *back = NULL;
  if (_i == 0) json_object_set_new(k, "format", json_integer(1));
  if (_i == 1) json_object_del(k, "kernels");
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_OK);
  ck_assert_int_eq(bs_constants_load(path, &back, &err), BS_CORRUPT);
  ck_assert_ptr_null(back);
  ck_assert_ptr_nonnull(strstr(err.message, "another format"));
  ck_assert_ptr_nonnull(strstr(err.hint, "doctor --measure"));
  json_decref(k);
}
END_TEST

START_TEST(a_place_that_cannot_be_written) {
  bs_error err = BS_ERROR_INIT;
  json_t *k = round_constants("ref");
  write_text(dir, "file", "");
  snprintf(path, sizeof path, "%s/file/machine.json", dir);
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-CONSTANTS-IO");
  snprintf(path, sizeof path, "%s/folder", dir);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  ck_assert_int_eq(bs_constants_store(path, k, &err), BS_IO); /* a folder is not replaced */
  char command[800];
  snprintf(command, sizeof command, "test -z \"$(ls '%s' | grep tmp)\"", dir);
  ck_assert_int_eq(system(command), 0);
  json_decref(k);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_run_finds_its_constants},
                             {what_is_lacking_is_not_found},
                             {nonsense_is_not_used, TEST_COUNT(numbers)},
                             {a_kernels_rates_follow_the_footprint},
                             {products_of_kept_values_have_rows_of_their_own, 2},
                             {another_kernels_rates_are_refused, 9},
                             {a_file_of_the_old_format, 2},
                             {stored_whole_and_loaded},
                             {another_key_is_a_mismatch, 3},
                             {files_that_are_none_of_ours},
                             {a_place_that_cannot_be_written},
                             {0}};
  return run_tests("constants", tests, (test_setup){setup, teardown});
}
