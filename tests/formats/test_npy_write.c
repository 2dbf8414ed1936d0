/* SPDX-License-Identifier: MIT
 * test_npy_write.c - writing .npy: what is written is read back bit by bit by our reader and by NumPy, and a
 * failure leaves the old file and no temporary one. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/base/error.h"
#include "formats/npy.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                  BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

START_TEST(what_is_written_is_read_back) {
  static const int64_t shapes[][4] = {{3, 5, 7, 2}, {1, 1, 1, 1}, {0, 4, 1, 1}, {5000, 1, 1, 1}};
  uint32_t dtype = dtypes[_i];
  bs_error err = BS_ERROR_INIT;
  for (size_t s = 0; s < 4; s++)
    for (uint32_t rank = 0; rank <= 4; rank++) {
      uint64_t count = 1;
      for (uint32_t i = 0; i < rank; i++) count *= (uint64_t)shapes[s][i];
      unsigned char *data = calloc(count + 1, BS_DTYPE_BYTES(dtype));
      for (uint64_t i = 0; i < count * BS_DTYPE_BYTES(dtype); i++)
        data[i] = dtype == BS_BOOL ? i & 1 : (unsigned char)(i * 37 % 61);
      const char *path = files_path("w.npy");
      ck_assert_int_eq(bs_npy_write(path, dtype, rank, shapes[s], data, &err), BS_OK);
      bs_npy npy;
      ck_assert_msg(bs_npy_open(path, &npy, &err) == BS_OK, "%s", err.message);
      ck_assert_uint_eq(npy.rank, rank);
      ck_assert_uint_eq(npy.count, count);
      ck_assert_uint_eq(npy.offset % 64, 0);
      for (uint32_t i = 0; i < rank; i++) ck_assert_int_eq(npy.dims[i], shapes[s][i]);
      if (dtype == BS_BF16 || dtype == BS_F8E4M3 || dtype == BS_F8E5M2) {
        float *wide = calloc(count + 1, sizeof *wide);
        ck_assert_int_eq(bs_convert(BS_F32, wide, dtype, data, count), BS_OK);
        ck_assert_uint_eq(npy.dtype, BS_F32);
        ck_assert_int_eq(memcmp(npy.data, wide, count * sizeof *wide), 0);
        free(wide);
      } else {
        ck_assert_uint_eq(npy.dtype, dtype);
        ck_assert_int_eq(memcmp(npy.data, data, count * BS_DTYPE_BYTES(dtype)), 0);
      }
      bs_npy_close(&npy);
      free(data);
    }
  ck_assert_int_eq(files_count(".tmp-", NULL, 0), 0);
}
END_TEST

START_TEST(the_longest_shape_fits) {
  int64_t dims[BS_NPY_MAX_DIMS];
  bs_error err = BS_ERROR_INIT;
  bs_npy npy;
  for (int i = 0; i < BS_NPY_MAX_DIMS; i++) dims[i] = i == 5 ? 0 : INT64_MAX;
  ck_assert_int_eq(bs_npy_write(files_path("long.npy"), BS_F32, BS_NPY_MAX_DIMS, dims, NULL, &err), BS_OK);
  ck_assert_msg(bs_npy_open(files_path("long.npy"), &npy, &err) == BS_OK, "%s", err.message);
  for (int i = 0; i < BS_NPY_MAX_DIMS; i++) ck_assert_int_eq(npy.dims[i], dims[i]);
  bs_npy_close(&npy);
}
END_TEST

START_TEST(bad_arguments_are_refused) {
  const int64_t two[2] = {2, 2}, negative[1] = {-1}, huge[2] = {INT64_MAX, 3};
  float data[4] = {0};
  bs_error err = BS_ERROR_INIT;
  const char *path = files_path("never.npy");
  ck_assert_int_eq(bs_npy_write(path, 0x1234, 2, two, data, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_npy_write(path, BS_F32, 33, two, data, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_npy_write(path, BS_F32, 1, negative, data, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_npy_write(path, BS_F32, 2, huge, data, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_npy_write(path, BS_F32, 2, two, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_npy_write("", BS_F32, 2, two, data, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(files_count("", NULL, 0), 0);
}
END_TEST

START_TEST(a_failure_keeps_the_old_file) {
  const int64_t dims[1] = {100000};
  float *data = calloc(100000, sizeof *data);
  bs_error err = BS_ERROR_INIT;
  const char *path = files_write("old.npy", "old", 3), *folder = files_path("folder");
  char name[300], kept[4] = "";
  files_expect(&err, bs_npy_write(files_path("no/such/a.npy"), BS_F32, 1, dims, data, &err), BS_IO,
               "BS-NPY-WRITE", "no folder");
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  files_expect(&err, bs_npy_write(folder, BS_F32, 1, dims, data, &err), BS_IO, "BS-NPY-WRITE", "a folder");
  /* The disk is full after 64 KiB. */
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {65536, 65536};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  files_expect(&err, bs_npy_write(path, BS_F32, 1, dims, data, &err), BS_IO, "BS-NPY-WRITE", "full");
  ck_assert_str_eq(err.where, path);
  ck_assert_int_eq(files_count(".tmp-", name, sizeof name), 0);
  FILE *f = fopen(path, "rb");
  ck_assert_uint_eq(fread(kept, 1, 4, f), 3);
  fclose(f);
  ck_assert_str_eq(kept, "old");
  free(data);
}
END_TEST

START_TEST(a_link_is_followed) {
  const int64_t dims[1] = {1};
  const float one = 1.0f;
  struct stat st;
  bs_error err = BS_ERROR_INIT;
  files_write("victim", "safe", 4);
  ck_assert_int_eq(symlink("victim", files_path("link.npy")), 0);
  ck_assert_int_eq(bs_npy_write(files_path("link.npy"), BS_F32, 1, dims, &one, &err), BS_OK);
  ck_assert_int_eq(lstat(files_path("link.npy"), &st), 0);
  ck_assert(S_ISLNK(st.st_mode));
  ck_assert_int_eq(stat(files_path("victim"), &st), 0);
  ck_assert_int_eq((int)st.st_size, 132);
}
END_TEST

/* BS_TEST_PYTHON or python3, when it has NumPy; NULL otherwise. */
static const char *python(void) {
  static char command[512];
  const char *p = getenv("BS_TEST_PYTHON");
  snprintf(command, sizeof command, "%s -c 'import numpy' >/dev/null 2>&1", p != NULL ? p : "python3");
  if (system(command) != 0) return NULL;
  return p != NULL ? p : "python3";
}

START_TEST(numpy_reads_ours_and_we_read_its) {
  static const char script[] =
      "import numpy as np, sys\n"
      "d = sys.argv[1] + '/'\n"
      "for t in ['f8','f4','f2','i8','i4','i1','u1','b1']:\n"
      "    a = np.load(d + 'ours_' + t + '.npy', allow_pickle=False)\n"
      "    e = (np.arange(35) % 2 if t == 'b1' else np.arange(35)).reshape(5, 7).astype(t)\n"
      "    assert a.dtype == e.dtype and a.shape == e.shape and (a == e).all(), t\n"
      "    np.save(d + 'its_' + t + '.npy', e)\n"
      "np.save(d + 'scalar.npy', np.float32(3))\n"
      "np.save(d + 'fortran.npy', np.asfortranarray(np.arange(6, dtype='f4').reshape(3, 2)))\n"
      "np.save(d + 'object.npy', np.array([{}], dtype=object), allow_pickle=True)\n"
      "np.save(d + 'big.npy', np.ones(3, '>f4'))\n"
      "np.save(d + 'struct.npy', np.zeros(3, [('a', 'f4')]))\n"
      "from numpy.lib import format as F\n"
      "for v in [(1, 0), (2, 0), (3, 0)]:\n"
      "    with open(d + 'v%d.npy' % v[0], 'wb') as f: F.write_array(f, np.arange(6, dtype='f4'), "
      "version=v)\n";
  static const struct {
    const char *name;
    uint32_t dtype;
  } types[] = {{"f8", BS_F64}, {"f4", BS_F32}, {"f2", BS_F16}, {"i8", BS_I64},
               {"i4", BS_I32}, {"i1", BS_I8},  {"u1", BS_U8},  {"b1", BS_BOOL}};
  static const char *const refused[][2] = {
      {"object.npy", "BS-NPY-DTYPE"}, {"big.npy", "BS-NPY-ENDIAN"}, {"struct.npy", "BS-NPY-DTYPE"}};
  const int64_t dims[2] = {5, 7};
  double values[35];
  char name[32], data[35 * 8], command[1200];
  bs_error err = BS_ERROR_INIT;
  bs_npy npy;
  const char *py = python();
  if (py == NULL) {
    printf("skipped: python3 has no numpy (BS_TEST_PYTHON names another)\n");
    return;
  }
  for (size_t t = 0; t < 8; t++) {
    for (int i = 0; i < 35; i++) values[i] = types[t].dtype == BS_BOOL ? i % 2 : i;
    ck_assert_int_eq(bs_convert(types[t].dtype, data, BS_F64, values, 35), BS_OK);
    snprintf(name, sizeof name, "ours_%s.npy", types[t].name);
    ck_assert_int_eq(bs_npy_write(files_path(name), types[t].dtype, 2, dims, data, &err), BS_OK);
  }
  files_write("check.py", script, strlen(script));
  snprintf(command, sizeof command, "%s %s/check.py %s", py, files_folder, files_folder);
  ck_assert_int_eq(system(command), 0);
  for (size_t t = 0; t < 8; t++) {
    double back[35];
    snprintf(name, sizeof name, "its_%s.npy", types[t].name);
    ck_assert_msg(bs_npy_open(files_path(name), &npy, &err) == BS_OK, "%s: %s", name, err.message);
    ck_assert_uint_eq(npy.dtype, types[t].dtype);
    ck_assert_uint_eq(npy.count, 35);
    ck_assert_int_eq(bs_convert(BS_F64, back, npy.dtype, npy.data, 35), BS_OK);
    for (int i = 0; i < 35; i++) ck_assert_double_eq(back[i], types[t].dtype == BS_BOOL ? i % 2 : i);
    bs_npy_close(&npy);
  }
  for (int v = 1; v <= 3; v++) {
    snprintf(name, sizeof name, "v%d.npy", v);
    ck_assert_msg(bs_npy_open(files_path(name), &npy, &err) == BS_OK, "%s: %s", name, err.message);
    ck_assert_float_eq(((const float *)npy.data)[5], 5.0f);
    bs_npy_close(&npy);
  }
  ck_assert_int_eq(bs_npy_open(files_path("scalar.npy"), &npy, &err), BS_OK);
  ck_assert_uint_eq(npy.rank, 0);
  ck_assert_float_eq(*(const float *)npy.data, 3.0f);
  bs_npy_close(&npy);
  ck_assert_int_eq(bs_npy_open(files_path("fortran.npy"), &npy, &err), BS_OK);
  for (int i = 0; i < 6; i++) ck_assert_float_eq(((const float *)npy.data)[i], (float)i);
  bs_npy_close(&npy);
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    files_expect(&err, bs_npy_open(files_path(refused[i][0]), &npy, &err), BS_INPUT, refused[i][1],
                 refused[i][0]);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_is_written_is_read_back, (int)(sizeof dtypes / sizeof *dtypes)},
                             {the_longest_shape_fits},
                             {bad_arguments_are_refused},
                             {a_failure_keeps_the_old_file},
                             {a_link_is_followed},
                             {numpy_reads_ours_and_we_read_its},
                             {0}};
  return run_tests("npy_write", tests, (test_setup){files_begin, files_end});
}
