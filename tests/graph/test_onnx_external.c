/* SPDX-License-Identifier: MIT
 * test_onnx_external.c - external data of an ONNX model: read from beneath the model's folder, refused by
 * every way that leads out of it, and held against the size of its file. */
#include <sys/stat.h>

#include "core/base/error.h"
#include "tests/graph/onnx_case.h"
#include "tests/graph/onnx_walk.h"

static int32_t open_case(const char *entries, bs_onnx *m, bs_error *err) {
  char text[2048];
  size_t size = 0;
  snprintf(text, sizeof text, "g () => () <float[2] w = [%s]> {}", entries);
  unsigned char *bytes = onnx_bytes(text, 0, &size);
  const char *path = files_write("m.onnx", bytes, size);
  free(bytes);
  return bs_onnx_open(path, m, err);
}

/* In the folder: w (12 bytes: 0, 1, 2), sub/w, a link to w, a link to a file outside, a folder linked, a hard
 * link, a FIFO, "..w". */
static void before(void) {
  static const float w[3] = {0, 1, 2};
  files_begin();
  ck_assert_int_eq(mkdir(files_path("sub"), 0700), 0);
  files_write("w", w, sizeof w);
  files_write("sub/w", w, sizeof w);
  files_write("..w", w, sizeof w);
  files_write("hard", w, sizeof w);
  files_write("empty", w, 0);
  ck_assert_int_eq(link(files_path("hard"), files_path("hard2")), 0);
  ck_assert_int_eq(symlink("w", files_path("link")), 0);
  ck_assert_int_eq(symlink("/etc/passwd", files_path("out")), 0);
  ck_assert_int_eq(symlink("sub", files_path("linked")), 0);
  ck_assert_int_eq(mkfifo(files_path("fifo"), 0600), 0);
}

static void after(void) {
  unlink(files_path("sub/w"));
  files_end();
}

static const struct {
  const char *entries;
  float first;
} good[] = {
    {"\"location\" : \"w\"", 0},
    {"\"location\" : \"w\", \"offset\" : \"4\"", 1},
    {"\"location\" : \"w\", \"offset\" : \"4\", \"length\" : \"8\", \"checksum\" : \"00\"", 1},
    {"\"offset\" : \"4\", \"location\" : \"sub/w\"", 1},
    {"\"location\" : \"./sub//w\"", 0},
    {"\"location\" : \"..w\"", 0},
};

START_TEST(beneath_the_folder) {
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  float w[2];
  ck_assert_msg(open_case(good[_i].entries, &m, &err) == BS_OK, "%s: %s", good[_i].entries, err.message);
  const bs_onnx_tensor *t = m.graph->initializers;
  ck_assert_uint_eq(t->is_external, 1);
  ck_assert_uint_eq(t->bytes, 8);
  memcpy(w, t->data, sizeof w);
  ck_assert(w[0] == good[_i].first && w[1] == good[_i].first + 1);
  ck_assert_uint_eq(m.mapped_bytes, m.file_bytes + 12);
  bs_onnx_close(&m);
}
END_TEST

static const struct {
  const char *id, *entries;
} bad[] = {
    {"BS-ONNX-EXT", "\"location\" : \"/etc/passwd\""},
    {"BS-ONNX-EXT", "\"location\" : \"../w\""},
    {"BS-ONNX-EXT", "\"location\" : \"sub/../w\""},
    {"BS-ONNX-EXT", "\"location\" : \"sub/..\""},
    {"BS-ONNX-EXT", "\"location\" : \"..\""},
    {"BS-ONNX-EXT", "\"location\" : \"\""},
    {"BS-ONNX-EXT", "\"location\" : \".\""},
    {"BS-ONNX-EXT", "\"location\" : \"./\""},
    {"BS-ONNX-EXT", "\"offset\" : \"0\""},
    {"BS-ONNX-EXT", "\"location\" : \"none\""},
    {"BS-ONNX-EXT", "\"location\" : \"link\""},
    {"BS-ONNX-EXT", "\"location\" : \"out\""},
    {"BS-ONNX-EXT", "\"location\" : \"linked/w\""},
    {"BS-ONNX-EXT", "\"location\" : \"w/w\""},
    {"BS-ONNX-EXT", "\"location\" : \"hard\""},
    {"BS-ONNX-EXT", "\"location\" : \"fifo\""},
    {"BS-ONNX-EXT", "\"location\" : \"sub\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"basepath\" : \"/\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"offset\" : \"-4\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"offset\" : \"4x\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"offset\" : \"\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"offset\" : \"9223372036854775808\""},
    {"BS-ONNX-EXT", "\"location\" : \"w\", \"offset\" : \"99999999999999999999\""},
    {"BS-ONNX-SIZE", "\"location\" : \"w\", \"offset\" : \"5\""},
    {"BS-ONNX-SIZE", "\"location\" : \"w\", \"offset\" : \"9223372036854775807\""},
    {"BS-ONNX-SIZE", "\"location\" : \"w\", \"length\" : \"12\""},
    {"BS-ONNX-SIZE", "\"location\" : \"w\", \"length\" : \"1125899906842624\""},
    {"BS-ONNX-SIZE", "\"location\" : \"empty\""},
};

START_TEST(refused) {
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = open_case(bad[_i].entries, &m, &err);
  files_expect(&err, rc, BS_INPUT, bad[_i].id, bad[_i].entries);
  ck_assert_ptr_null(m.store);
}
END_TEST

/* Many tensors of one file map it once; that file is watched too. */
START_TEST(one_map_a_file) {
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  unsigned char *bytes = onnx_bytes(
      "g () => () <float[1] a = [\"location\" : \"w\"], float[1] b = [\"location\" : \"w\", \"offset\" : "
      "\"8\"],"
      " float[1] c = [\"location\" : \"sub/w\"], float[0] d = [\"location\" : \"empty\"]> {}",
      0, &size);
  const char *path = files_write("m.onnx", bytes, size);
  free(bytes);
  ck_assert_msg(bs_onnx_open(path, &m, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(m.mapped_bytes, m.file_bytes + 24);
  const bs_onnx_tensor *t = m.graph->initializers;
  ck_assert_ptr_eq((const char *)t[0].data + 8, t[1].data);
  ck_assert_int_eq(bs_onnx_unchanged(&m, &err), BS_OK);
  ck_assert_int_eq(truncate(files_path("w"), 0), 0);
  onnx_walk(&m);
  files_expect(&err, bs_onnx_unchanged(&m, &err), BS_INPUT, "BS-FILE-CHANGED", "cut");
  ck_assert_str_eq(err.where, "w");
  bs_onnx_close(&m);
}
END_TEST

int main(void) {
  const test_case rows[] = {
      {beneath_the_folder, TEST_COUNT(good)}, {refused, TEST_COUNT(bad)}, {one_map_a_file}, {0}};
  return run_tests("onnx_external", rows, (test_setup){.before = before, .after = after});
}
