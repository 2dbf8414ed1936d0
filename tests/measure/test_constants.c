/* SPDX-License-Identifier: MIT
 * test_constants.c - machine constants: the file is written whole and read with distrust; a run finds its own
 * dtype, backend, ranks and footprint in them, or nothing. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/measure/kernel.h"
#include "lab/measure/peak.h"
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
  ck_assert(m.others == 0.01 && m.faster == 1.0 && m.spread == 0.02);
  ck_assert_str_eq(m.loop, "avx9");
  ck_assert(m.flops_core == 2e9 && m.flops_all == 1e12 && near(m.read_core, 4e10) && near(m.copy_core, 2e10));
  ck_assert(m.exchange[0] == 1e-6 && near(bs_machine_wire(&m, 2 * MIB + 4), 1e-6 + 2 * MIB * 1e-9));
  ck_assert(m.host == 2e-6);
  ck_assert(bs_constants_find(k, &c, 4 * MIB, &m)); /* half way between 1 and 16 MiB: the geometric mean */
  ck_assert(near(m.read_core, 2e10) && near(m.copy_core, 1e10) && near(m.footprint, 4 * MIB));
  ck_assert(near(m.faster, 2.0));                     /* at 1 MiB */
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
  ck_assert(near(got.flops_team, 3e9) && near(got.bytes_team, 2e13));
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

/* A short sampling measures its rates with smaller weights and fewer calls than a full one. A slow machine
 * halves the weight of both: the short one is compared with the full one. The least weight is never halved.
 */
START_TEST(a_short_sampling_has_short_rates) {
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_context_options options = {.struct_size = sizeof options};
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  bs_case c = run_of(BS_F32, 1);
  c.context = context;
  c.timeout_s = 60;
  const double seconds[] = {BS_KERNEL_SECONDS, 0.01 * BS_KERNEL_SECONDS};
  const double least = MIB / 16;
  double full = MIB;
  for (int i = 0; i < 2; i++) {
    bs_kernel k = {0};
    ck_assert_msg(bs_kernel_measure(&c, BS_F32, MIB, seconds[i], &k, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(k.footprint >= least && k.footprint <= full, "%g bytes", k.footprint);
    ck_assert_msg(near(k.footprint, MIB / exp2(round(log2(MIB / k.footprint)))), "%g bytes", k.footprint);
    ck_assert_msg(i == 0 || k.footprint < full || full <= least, "%g bytes too", k.footprint);
    ck_assert(k.flops_core > 0 && k.flops_all > 0 && k.bytes_core > 0);
    full = k.footprint;
  }
  bs_kernel k = {0};
  ck_assert_msg(bs_kernel_measure(&c, BS_F32, least, seconds[0], &k, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(near(k.footprint, least), "%g bytes", k.footprint);
  bs_context_close(context);
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
                                      "{\"format\":3}",
                                      "{\"format\":4,\"key\":{}}",
                                      "{\"format\":3,\"format\":3}",
                                      "\xff\xfe",
                                      "{\"format\":3,\"key\":{},\"arithmetic\":{}}"};
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

/* Format 2 did not tell how busy the machine was: it is said, and measured anew. */
START_TEST(a_file_of_the_old_format) {
  bs_error err = BS_ERROR_INIT;
  json_t *k = round_constants("ref"), *back = NULL;
  if (_i == 0) json_object_set_new(k, "format", json_integer(2));
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

/* Two passes at least; as many as it takes until the two shortest are within a tenth; six at most. */
static const struct {
  double seconds[6];
  uint32_t n;
  double best, spread;
} passes[] = {{{1.0, 1.05}, 2, 1.0, 0.05},
              {{1.3, 1.0, 1.2, 1.08}, 4, 1.0, 0.08},
              {{2.0, 2.0}, 2, 2.0, 0.0},
              {{2.0, 1.0, 0.5, 4.0, 3.0, 5.0}, 6, 0.5, 1.0},
              {{0.0, 0.0}, 2, 0.0, 0.0}};

START_TEST(a_constant_is_repeated_until_passes_agree) {
  bs_passes p = {0};
  for (uint32_t i = 0; !bs_passes_enough(&p); i++) bs_passes_add(&p, passes[_i].seconds[i]);
  ck_assert_uint_eq(p.n, passes[_i].n);
  ck_assert(p.best == passes[_i].best && fabs(bs_passes_spread(&p) - passes[_i].spread) < 1e-12);
}
END_TEST

/* The columns of /proc/stat: two cores of three are this process's. Ticks are 10 ms. */
START_TEST(the_load_is_what_others_took) {
  static const uint8_t cores[] = {1, 0, 1};
  bs_load before = {.own = 1.0}, after = {.own = 2.5};
  const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
  bs_load_read(
      "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 0 800 100 0 0 0 0 0\ncpu1 7 7 7 7 7 7 7 7 0 0\n"
      "cpu2 0 0 100 900 0 0 0 0 0 0\nintr 5\n",
      "5.90 3.00 1.00 3/200 1234\n", cores, 3, &before);
  ck_assert(near(before.total, 2000 * tick) && near(before.busy, 200 * tick) && before.average == 5.9);
  bs_load_read("cpu0 200 10 20 1250 200 10 10 300 0 0\ncpu2 100 0 200 1700 0 0 0 0 0 0\n", "", cores, 3,
               &after);
  ck_assert(after.average < 0 && near(after.stolen, 300 * tick));
  json_t *c = bs_load_json(&before, &after);
  const double others = json_number_value(json_object_get(c, "others"));
  ck_assert_msg(near(others, (350 * tick - 1.5) / (2000 * tick)), "%g", others);
  ck_assert(near(json_number_value(json_object_get(c, "stolen")), 300.0 / 2000));
  ck_assert(json_is_null(json_object_get(c, "load_after")));
  json_decref(c);
  bs_load_read("", "", cores, 3, &before); /* such a machine tells nothing */
  c = bs_load_json(&before, &before);
  ck_assert(json_is_null(json_object_get(c, "others")) && json_is_null(json_object_get(c, "stolen")));
  json_decref(c);
}
END_TEST

/* What speaks against keeping constants, and where. */
static const struct {
  const char *list, *key;
  double value;
  const char *says;
} doubtful[] = {{"conditions", "others", 0.63, "others took 63 %"},
                {"conditions", "stolen", 0.06, "the hypervisor 6 %"},
                {"conditions", "others", -1, "the load was 9000.0 before"},
                {"arithmetic", "flops_core", 1.2e12, "flops_core 1.2e+12 is above flops_all 1e+12"},
                {"memory", "read_bytes_per_s_all", 3e10, "read_bytes_per_s_core 4e+10 is above"},
                {"kernels", "all_over_core", 1.2, "all cores take 1.20 times as long as one"},
                {"exchange", "all_reduce_4MiB_s", 1e-4, "all_reduce_1MiB_s"},
                {"host", "spread", 0.3, "its passes differed by 30 %"}};

START_TEST(doubtful_constants_are_told) {
  json_t *k = round_constants("ref");
  round_kernel(k, "ref", "ref:portable", "portable", "abc");
  json_object_set_new(k, "threads", json_integer(2));
  json_t *doubts = bs_constants_doubts(k);
  ck_assert_uint_eq(json_array_size(doubts), 0);
  json_decref(doubts);
  json_t *list = json_object_get(k, doubtful[_i].list);
  json_t *row = json_is_array(list) ? json_array_get(list, 0) : list;
  json_object_set_new(row, doubtful[_i].key,
                      doubtful[_i].value < 0 ? json_null() : json_real(doubtful[_i].value));
  if (doubtful[_i].value < 0) json_object_set_new(row, "load_before", json_real(9000));
  doubts = bs_constants_doubts(k);
  ck_assert_uint_eq(json_array_size(doubts), 1);
  const json_t *doubt = json_array_get(doubts, 0);
  const char *why = json_string_value(json_object_get(doubt, "why"));
  ck_assert_int_eq(json_is_true(json_object_get(doubt, "keep")), strcmp(doubtful[_i].key, "spread") == 0);
  ck_assert_msg(strstr(why, doubtful[_i].says) != NULL, "%s", why);
  ck_assert(json_is_array(list) ? json_integer_value(json_object_get(doubt, "row")) == 0
                                : json_is_null(json_object_get(doubt, "list")));
  json_decref(doubts);
  json_object_set_new(k, "threads", json_integer(1)); /* alone, a core is all cores */
  doubts = bs_constants_doubts(k);
  ck_assert_uint_eq(json_array_size(doubts), _i < 3 || _i > 4);
  json_decref(doubts);
  json_decref(k);
}
END_TEST

/* What a loop's first element must be after `n` steps: which tells that it multiplies what it says. All bytes
 * are 0x38 at first, but for sums of tiles, which are 0. */
static double after(const char *name, int n, uint32_t *out_bits) {
  const uint32_t bits = 0x38383838u, half = 0x38380000u;
  float start, bf16;
  memcpy(&start, &bits, 4);
  memcpy(&bf16, &half, 4);
  *out_bits = strcmp(name, "amx_int8") == 0 ? (uint32_t)n * 64 * 56 * 56 : bits + (uint32_t)n * 4 * 56 * 56;
  if (strcmp(name, "amx_bf16") == 0) return n * 32.0 * bf16 * bf16;
  if (strcmp(name, "avx512_bf16") == 0) return start + n * 2.0 * bf16 * bf16;
  double a = start;
  for (int i = 0; i < n; i++) a = a * start + start;
  return a;
}

/* f64 is multiplied in f64 alone: in f32 it would be twice as fast. Loops of other elements are only run. */
START_TEST(peaks_multiply_what_they_say) {
  static const uint32_t dtypes[] = {BS_F32, BS_F64, BS_BF16, BS_F16, BS_I8};
  bs_peak loops[BS_PEAKS];
  const uint32_t n = bs_peak_loops(dtypes[_i], 0, loops, BS_PEAKS);
  ck_assert_uint_ge(n, 1);
  ck_assert_uint_eq(bs_peak_loops(dtypes[_i], 0, loops, 1), 1);
  bs_peak_loops(dtypes[_i], 0, loops, BS_PEAKS);
  ck_assert(strncmp(loops[n - 1].name, "portable", 8) == 0);
  bs_peak narrow[BS_PEAKS];
  for (uint32_t i = bs_peak_loops(dtypes[_i], 1, narrow, BS_PEAKS); i > 0; i--)
    ck_assert(strncmp(narrow[i - 1].name, "avx5", 4) != 0 && strncmp(narrow[i - 1].name, "amx", 3) != 0);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = loops[i].name;
    uint32_t bits, got_bits;
    const double wanted = after(name, 3, &bits);
    const float got = loops[i].run(3);
    memcpy(&got_bits, &got, 4);
    ck_assert_int_eq(strstr(name, "_f64") != NULL, dtypes[_i] == BS_F64);
    if (strcmp(name, "avx512_vnni") == 0 || strcmp(name, "amx_int8") == 0)
      ck_assert_msg(got_bits == bits, "%s: %u, wanted %u", name, got_bits, bits);
    else if (strstr(name, "_f64") == NULL && strcmp(name, "avx512_fp16") != 0)
      ck_assert_msg(fabs((double)got - wanted) <= 1e-6 * wanted, "%s: %g, wanted %g", name, (double)got,
                    wanted);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_run_finds_its_constants},
                             {what_is_lacking_is_not_found},
                             {nonsense_is_not_used, TEST_COUNT(numbers)},
                             {a_kernels_rates_follow_the_footprint},
                             {a_short_sampling_has_short_rates},
                             {products_of_kept_values_have_rows_of_their_own, 2},
                             {another_kernels_rates_are_refused, 9},
                             {a_file_of_the_old_format, 2},
                             {stored_whole_and_loaded},
                             {another_key_is_a_mismatch, 3},
                             {files_that_are_none_of_ours},
                             {a_place_that_cannot_be_written},
                             {a_constant_is_repeated_until_passes_agree, TEST_COUNT(passes)},
                             {the_load_is_what_others_took},
                             {doubtful_constants_are_told, TEST_COUNT(doubtful)},
                             {peaks_multiply_what_they_say, 5},
                             {0}};
  return run_tests("constants", tests, (test_setup){setup, teardown});
}
