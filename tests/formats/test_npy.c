/* SPDX-License-Identifier: MIT
 * test_npy.c - reading .npy: what NumPy and others write is read, every broken rule gives its own id, caps
 * hold on both sides, and no kind of file can hang or crash the reader. */
#include <fcntl.h>

#include "core/base/error.h"
#include "formats/npy.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

#define HEAD(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

/* Preamble, header (its newline included when wanted) and `data` bytes counting up. */
static size_t make(char *out, int major, int minor, const char *header, int64_t length, size_t data) {
  size_t n = strlen(header), start = major == 1 ? 10 : 12;
  uint64_t say = length < 0 ? n : (uint64_t)length;
  memcpy(out, "\x93NUMPY", 6);
  out[6] = (char)major;
  out[7] = (char)minor;
  for (size_t i = 8; i < start; i++) out[i] = (char)(say >> (8 * (i - 8)));
  memcpy(out + start, header, n);
  for (size_t i = 0; i < data; i++) out[start + n + i] = (char)i;
  return start + n + data;
}

static int32_t open_made(const char *header, int major, size_t data, bs_npy *npy, bs_error *err) {
  char buffer[4096];
  size_t n = make(buffer, major, 0, header, -1, data);
  return bs_npy_open(files_write("a.npy", buffer, n), npy, err);
}

static const struct {
  const char *header;
  int major;
  size_t data;
  uint32_t dtype, rank;
  int64_t d0, d1;
} good[] = {
    {HEAD("'<f4'", "False", "(2, 3)") "   \n", 1, 24, BS_F32, 2, 2, 3},
    {HEAD("'<f8'", "False", "(2, 3)") "\n", 2, 48, BS_F64, 2, 2, 3},
    {HEAD("'<f2'", "False", "(5,)") "\n", 3, 10, BS_F16, 1, 5, 0},
    {HEAD("'<i8'", "False", "()") "\n", 1, 8, BS_I64, 0, 0, 0},
    {HEAD("'<i4'", "False", "(1, 1,)") "\n", 1, 4, BS_I32, 2, 1, 1},
    {HEAD("'|i1'", "False", "(7,)") "\n", 1, 7, BS_I8, 1, 7, 0},
    {HEAD("'|u1'", "False", "(7,)") "\n", 1, 7, BS_U8, 1, 7, 0},
    {HEAD("'|b1'", "False", "(7,)") "\n", 1, 7, BS_BOOL, 1, 7, 0},
    {"{'shape': (2,), 'descr': '<f4', 'fortran_order': False}\n", 1, 8, BS_F32, 1, 2, 0},
    {"{\"fortran_order\":False,\"shape\":(2,),\"descr\":\"<f4\"}\n", 1, 8, BS_F32, 1, 2, 0},
    {" {'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , ) } \n", 1, 8, BS_F32, 1, 2, 0},
    {HEAD("'<f4'", "False", "(0, 5)") "\n", 1, 0, BS_F32, 2, 0, 5},
    /* A zero dimension: empty, however large the others are. */
    {HEAD("'<f4'", "False", "(9223372036854775807, 0)") "\n", 1, 0, BS_F32, 2, INT64_MAX, 0},
};

START_TEST(good_files_are_read) {
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = open_made(good[_i].header, good[_i].major, good[_i].data, &npy, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s %s", good[_i].header, err.id, err.message);
  ck_assert_uint_eq(npy.dtype, good[_i].dtype);
  ck_assert_uint_eq(npy.rank, good[_i].rank);
  if (npy.rank > 0) ck_assert_int_eq(npy.dims[0], good[_i].d0);
  if (npy.rank > 1) ck_assert_int_eq(npy.dims[1], good[_i].d1);
  ck_assert_uint_eq(npy.count * BS_DTYPE_BYTES(npy.dtype), good[_i].data);
  for (size_t i = 0; i < good[_i].data; i++) ck_assert_int_eq(((const char *)npy.data)[i], (char)i);
  bs_npy_close(&npy);
  bs_npy_close(&npy); /* a closed record may be closed again */
}
END_TEST

static const struct {
  const char *id;
  const char *header;
  int major, minor;
  int64_t length; /* header length to say; -1: the true one */
  size_t data;
} bad[] = {
    {"BS-NPY-VERSION", HEAD("'<f4'", "False", "(2,)") "\n", 0, 0, -1, 8},
    {"BS-NPY-VERSION", HEAD("'<f4'", "False", "(2,)") "\n", 4, 0, -1, 8},
    {"BS-NPY-VERSION", HEAD("'<f4'", "False", "(2,)") "\n", 1, 1, -1, 8},
    {"BS-NPY-VERSION", HEAD("'<f4'", "False", "(2,)") "\n", 255, 0, -1, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)") "\n", 1, 0, 9999, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)") "\n", 2, 0, 4294967295, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)") "\n", 1, 0, 0, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)"), 1, 0, -1, 8},
    {"BS-NPY-HEADER", "\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr': '<f4', 'shape': (2,)}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr': '<f4', 'fortran_order': False}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'fortran_order': False, 'shape': (2,)}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n", 1, 0, -1,
     8},
    {"BS-NPY-HEADER", "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)") "x\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", HEAD("'<f4'", "False", "(2,)") "{}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{descr: '<f4', 'fortran_order': False, 'shape': (2,)}\n", 1, 0, -1, 8},
    {"BS-NPY-HEADER", "{'descr\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("'|O'", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("[('a', '<f4')]", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("'<u2'", "False", "(2,)") "\n", 1, 0, -1, 4},
    {"BS-NPY-DTYPE", HEAD("'<c8'", "False", "(2,)") "\n", 1, 0, -1, 16},
    {"BS-NPY-DTYPE", HEAD("'<U4'", "False", "(2,)") "\n", 1, 0, -1, 32},
    {"BS-NPY-DTYPE", HEAD("'|V2'", "False", "(2,)") "\n", 1, 0, -1, 4},
    {"BS-NPY-DTYPE", HEAD("'<f4\\x00'", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("'<f4", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("4", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("''", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-DTYPE", HEAD("'<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4'", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-ENDIAN", HEAD("'>f4'", "False", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-ENDIAN", HEAD("'>i8'", "False", "(2,)") "\n", 1, 0, -1, 16},
    {"BS-NPY-ORDER", HEAD("'<f4'", "Tru", "(2, 1)") "\n", 1, 0, -1, 8},
    {"BS-NPY-ORDER", HEAD("'<f4'", "1", "(2, 1)") "\n", 1, 0, -1, 8},
    {"BS-NPY-ORDER", HEAD("'<f4'", "0", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-ORDER", HEAD("'<f4'", "'False'", "(2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "[2]") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "2") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(2)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(-2,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(2.0,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(02,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(2L,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(2,,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(2") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(9223372036854775808,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(99999999999999999999999,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(4294967296, 4294967296, 2)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f4'", "False", "(4611686018427387906,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHAPE", HEAD("'<f8'", "False", "(2305843009213693953,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-SHORT", HEAD("'<f4'", "False", "(3,)") "\n", 1, 0, -1, 11},
    {"BS-NPY-SHORT", HEAD("'<f4'", "False", "(1073741824,)") "\n", 1, 0, -1, 8},
    {"BS-NPY-TRAILING", HEAD("'<f4'", "False", "(2,)") "\n", 1, 0, -1, 9},
    {"BS-NPY-TRAILING", HEAD("'<f4'", "False", "(0,)") "\n", 1, 0, -1, 1},
};

/* Bytes 0, 1, 2, .. of data in Fortran order, or at an odd place of the file, are read in C order. */
static const struct {
  const char *header;
  uint32_t dtype, pad; /* blanks before the end of the header */
  uint64_t count;
  int wanted[12]; /* the elements, as numbers of elements of the file */
} copied[] = {
    {HEAD("'|u1'", "True", "(2, 3)"), BS_U8, 0, 6, {0, 2, 4, 1, 3, 5}},
    {HEAD("'<f4'", "True", "(2, 3)"), BS_F32, 0, 6, {0, 2, 4, 1, 3, 5}},
    {HEAD("'<f8'", "True", "(2, 3, 2)"), BS_F64, 1, 12, {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}},
    {HEAD("'<i4'", "True", "(1, 3, 1, 2)"), BS_I32, 0, 6, {0, 3, 1, 4, 2, 5}},
    {HEAD("'<i8'", "True", "(3,)"), BS_I64, 0, 3, {0, 1, 2}},
    {HEAD("'<i8'", "True", "()"), BS_I64, 3, 1, {0}},
    {HEAD("'<f4'", "True", "(0, 5)"), BS_F32, 0, 0, {0}},
    {HEAD("'<f4'", "False", "(2, 3)"), BS_F32, 1, 6, {0, 1, 2, 3, 4, 5}},
    {HEAD("'<f4'", "False", "(2, 3)"), BS_F32, 2, 6, {0, 1, 2, 3, 4, 5}},
    {HEAD("'<f8'", "False", "(3,)"), BS_F64, 5, 3, {0, 1, 2}},
};

START_TEST(fortran_order_and_odd_places) {
  char header[300], buffer[600];
  unsigned char part[8] = {0};
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  const size_t size = BS_DTYPE_BYTES(copied[_i].dtype);
  snprintf(header, sizeof header, "%s%*s\n", copied[_i].header, (int)copied[_i].pad, "");
  const size_t bytes = copied[_i].count * size, n = make(buffer, 1, 0, header, -1, bytes);
  for (size_t i = 0; i < bytes; i++) buffer[n - bytes + i] = (char)i;
  const char *path = files_write("copied.npy", buffer, n);
  ck_assert_msg(bs_npy_open(path, &npy, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(npy.count, copied[_i].count);
  if (npy.count > 0) ck_assert_uint_eq((uintptr_t)npy.data % size, 0);
  for (size_t i = 0; i < npy.count; i++) {
    const unsigned char *at = (const unsigned char *)npy.data + i * size;
    ck_assert_uint_eq(at[0], (size_t)copied[_i].wanted[i] * size);
    ck_assert_int_eq(bs_npy_read(&npy, path, i * size, part, size, &err), BS_OK);
    ck_assert_int_eq(memcmp(part, at, size), 0);
  }
  bs_npy_close(&npy);
}
END_TEST

START_TEST(each_broken_rule_has_its_id) {
  char buffer[4096], what[256];
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  size_t n = make(buffer, bad[_i].major, bad[_i].minor, bad[_i].header, bad[_i].length, bad[_i].data);
  const char *path = files_write("bad.npy", buffer, n);
  snprintf(what, sizeof what, "case %d: %.200s", _i, bad[_i].header);
  files_expect(&err, bs_npy_open(path, &npy, &err), BS_INPUT, bad[_i].id, what);
  ck_assert_str_eq(err.where, path);
  bs_npy_close(&npy); /* closed already: must do nothing */
}
END_TEST

START_TEST(caps_hold_on_both_sides) {
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  char *header = malloc(20000), *file = malloc(40000), shape[256] = "(";
  for (size_t length = BS_NPY_MAX_HEADER; length <= BS_NPY_MAX_HEADER + 1; length++) {
    memset(header, ' ', length);
    memcpy(header, HEAD("'<f4'", "False", "(2,)"), strlen(HEAD("'<f4'", "False", "(2,)")));
    header[length - 1] = '\n';
    header[length] = '\0';
    size_t n = make(file, 2, 0, header, -1, 8);
    int32_t rc = bs_npy_open(files_write("cap.npy", file, n), &npy, &err);
    if (length == BS_NPY_MAX_HEADER)
      ck_assert_msg(rc == BS_OK, "%s", err.message);
    else
      files_expect(&err, rc, BS_INPUT, "BS-NPY-HEADER", "cap + 1");
    bs_npy_close(&npy);
  }
  for (int dims = 0; dims < 33; dims++) strcat(shape, "1,");
  strcat(shape, ")");
  snprintf(header, 20000, "{'descr': '|u1', 'fortran_order': False, 'shape': %s}\n", shape);
  files_expect(&err, open_made(header, 1, 1, &npy, &err), BS_INPUT, "BS-NPY-SHAPE", "33 dims");
  strcpy(shape + strlen(shape) - 3, ")");
  snprintf(header, 20000, "{'descr': '|u1', 'fortran_order': False, 'shape': %s}\n", shape);
  ck_assert_int_eq(open_made(header, 1, 1, &npy, &err), BS_OK);
  ck_assert_uint_eq(npy.rank, 32);
  bs_npy_close(&npy);
  free(header);
  free(file);
}
END_TEST

START_TEST(every_cut_is_an_error) {
  char buffer[512];
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  size_t n = make(buffer, 1, 0, HEAD("'<f4'", "False", "(2, 3)") "\n", -1, 24);
  for (size_t cut = 0; cut < n; cut++) {
    const char *want = cut < 6 ? "BS-NPY-MAGIC" : cut < n - 24 ? "BS-NPY-HEADER" : "BS-NPY-SHORT";
    files_expect(&err, bs_npy_open(files_write("cut.npy", buffer, cut), &npy, &err), BS_INPUT, want, "cut");
  }
  /* And every single byte of the front changed: an error or a good file, never a crash or another code. */
  for (size_t i = 0; i < n - 24; i++)
    for (int bit = 0; bit < 8; bit++) {
      buffer[i] ^= (char)(1 << bit);
      int32_t rc = bs_npy_open(files_write("flip.npy", buffer, n), &npy, &err);
      ck_assert_msg(rc == BS_OK || (rc == BS_INPUT && strncmp(err.id, "BS-NPY-", 7) == 0), "byte %zu: %d %s",
                    i, rc, err.id);
      if (i < 6) ck_assert_str_eq(err.id, "BS-NPY-MAGIC");
      bs_npy_close(&npy);
      buffer[i] ^= (char)(1 << bit);
    }
}
END_TEST

START_TEST(only_regular_files) {
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  char buffer[512];
  const char *fifo = files_path("fifo"), *loop = files_path("loop"), *other = files_path("other");
  ck_assert_int_eq(mkfifo(fifo, 0600), 0);
  ck_assert_int_eq(symlink("other", loop), 0);
  ck_assert_int_eq(symlink("loop", other), 0);
  const char *const refused[] = {fifo, loop, files_folder, files_path("absent.npy"), "/dev/null", "", NULL};
  for (size_t i = 0; refused[i] != NULL; i++)
    files_expect(&err, bs_npy_open(refused[i], &npy, &err), BS_INPUT, "BS-NPY-READ", refused[i]);
  ck_assert_int_eq(bs_npy_open(NULL, &npy, &err), BS_INVALID_ARGUMENT);
  files_expect(&err, bs_npy_open(files_write("empty.npy", "", 0), &npy, &err), BS_INPUT, "BS-NPY-MAGIC",
               "empty");
  size_t n = make(buffer, 1, 0, HEAD("'<f4'", "False", "(2,)") "\n", -1, 8);
  files_write("real.npy", buffer, n);
  ck_assert_int_eq(symlink("real.npy", files_path("link.npy")), 0);
  ck_assert_int_eq(bs_npy_open(files_path("link.npy"), &npy, &err), BS_OK);
  bs_npy_close(&npy);
}
END_TEST

START_TEST(a_change_after_opening_is_seen) {
  char buffer[512], out[24];
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  size_t n = make(buffer, 1, 0, HEAD("'<f4'", "False", "(2, 3)") "\n", -1, 24);
  const char *path = files_write("live.npy", buffer, n);
  ck_assert_int_eq(bs_npy_open(path, &npy, &err), BS_OK);
  ck_assert_int_eq(bs_map_pread(&npy.map, path, npy.offset, out, 24, &err), BS_OK);
  ck_assert_mem_eq(out, buffer + n - 24, 24);
  ck_assert_int_eq(bs_map_unchanged(&npy.map, path, &err), BS_OK);
  /* Outside the file as it was opened: the caller's mistake. */
  files_expect(&err, bs_map_pread(&npy.map, path, npy.offset, out, 25, &err), BS_INVALID_ARGUMENT,
               "BS-FILE-RANGE", "range");
  files_expect(&err, bs_map_pread(&npy.map, path, UINT64_MAX, out, 2, &err), BS_INVALID_ARGUMENT,
               "BS-FILE-RANGE", "range");
  ck_assert_int_eq(truncate(path, (off_t)(n - 4)), 0);
  files_expect(&err, bs_map_pread(&npy.map, path, npy.offset, out, 24, &err), BS_INPUT, "BS-FILE-CHANGED",
               "cut");
  files_expect(&err, bs_map_unchanged(&npy.map, path, &err), BS_INPUT, "BS-FILE-CHANGED", "cut");
  /* The same size again, but another time. */
  ck_assert_int_eq(truncate(path, (off_t)n), 0);
  struct timespec times[2] = {{1000, 0}, {1000, 0}};
  ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
  files_expect(&err, bs_map_unchanged(&npy.map, path, &err), BS_INPUT, "BS-FILE-CHANGED", "touched");
  bs_npy_close(&npy);
}
END_TEST

int main(void) {
  const test_case tests[] = {{good_files_are_read, (int)(sizeof good / sizeof *good)},
                             {fortran_order_and_odd_places, TEST_COUNT(copied)},
                             {each_broken_rule_has_its_id, (int)(sizeof bad / sizeof *bad)},
                             {caps_hold_on_both_sides},
                             {every_cut_is_an_error},
                             {only_regular_files},
                             {a_change_after_opening_is_seen},
                             {0}};
  return run_tests("npy", tests, (test_setup){files_begin, files_end});
}
