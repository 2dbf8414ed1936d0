/* SPDX-License-Identifier: MIT
 * test_onnx_hostile.c - ONNX files that break one rule each, files cut at every byte and with every bit
 * turned over, caps on both sides, and a file that is cut short while it is mapped: an error with an id,
 * never more. */
#include "core/base/error.h"
#include "formats/arena.h"
#include "tests/graph/onnx_case.h"
#include "tests/graph/onnx_walk.h"

/* An error of the reader has an id, a message and a place; a model that opened can be read whole. */
static int give(const void *bytes, size_t size, bs_error *err) {
  bs_onnx m;
  unsigned char *exact = malloc(size == 0 ? 1 : size); /* so that a sanitizer sees a read past the end */
  ck_assert_ptr_nonnull(exact);
  memcpy(exact, bytes, size);
  int32_t rc = bs_onnx_parse(exact, size, "hostile.onnx", NULL, &m, err);
  if (rc == BS_OK) {
    onnx_walk(&m);
    bs_onnx_close(&m);
  } else {
    ck_assert_int_eq(rc, BS_INPUT);
    ck_assert_msg(strncmp(err->id, "BS-ONNX-", 8) == 0 || strncmp(err->id, "BS-PB-", 6) == 0, "%s", err->id);
    ck_assert(err->message[0] != '\0');
    ck_assert_str_eq(err->where, "hostile.onnx");
  }
  free(exact);
  return rc == BS_OK;
}

START_TEST(cut_at_every_byte) {
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  int opened = 0;
  unsigned char *bytes = onnx_bytes(ONNX_CASE, (uint32_t)_i, &size);
  for (size_t cut = 0; cut < size; cut++) opened += give(bytes, cut, &err);
  ck_assert_int_le(opened, 1); /* only where the function at the end is missing whole */
  free(bytes);
}
END_TEST

START_TEST(every_bit_turned_over) {
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  unsigned char *bytes = onnx_bytes(ONNX_CASE, (uint32_t)_i, &size);
  for (size_t bit = 0; bit < 8 * size; bit++) {
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    give(bytes, size, &err);
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  free(bytes);
}
END_TEST

static const struct {
  const char *id, *text;
} texts[] = {
    {"BS-ONNX-TWICE", "g (float x, float x) => () {}"},
    {"BS-ONNX-TWICE", "g () => () <float w = {1}, float w = {1}> {}"},
    {"BS-ONNX-TWICE", "g (float x = {1}) => () <float x = {1}> {}"},
    {"BS-ONNX-TWICE", "g (float x) => () { x = Neg (x) }"},
    {"BS-ONNX-TWICE", "g (float x) => () { y = Neg (x) y = Abs (x) }"},
    {"BS-ONNX-TWICE", "g (float x) => () { y, y = Split (x) }"},
    {"BS-ONNX-TWICE", "g (float x) => () <float w = {1}> { w = Neg (x) }"},
    {"BS-ONNX-TWICE", "g (float x) => () { y = Clip <a = 1, a = 2> (x) }"},
    {"BS-ONNX-TWICE", "<opset_import: [\"\" : 23, \"ai.onnx\" : 22]> g () => () {}"},
    {"BS-ONNX-TWICE", "g () => () {} F (a) => (b) { b = Neg (a) } F (a) => (b) { b = Neg (a) }"},
    {"BS-ONNX-TWICE", "g () => () {} F (a, a) => (b) { b = Neg (a) }"},
    {"BS-ONNX-NAME", "g () => () { y = Constant (\"a\nb\") }"},
    {"BS-ONNX-NAME", "g () => () { y = \"\" () }"},
    {"BS-ONNX-NAME", "g (float \"\") => () {}"},
    {"BS-ONNX-NAME", "g () => () <float \"\" = {1}> {}"},
    {"BS-ONNX-NAME", "g () => () {} \"\" (a) => (b) { b = Neg (a) }"},
    {"BS-ONNX-SHAPE", "g () => () <float[1,1,1,1,1,1,1,1,1] w = {1}> {}"},
    {"BS-ONNX-SHAPE", "g (float[1,1,1,1,1,1,1,1,1] w) => () {}"},
    {"BS-ONNX-SHAPE", "g () => () <float[-1] w = {1}> {}"},
    {"BS-ONNX-SHAPE", "g () => () <float[4294967296,4294967296] w = {1}> {}"},
    {"BS-ONNX-SHAPE", "g () => () <float[1152921504606846976] w = {1}> {}"},
    {"BS-ONNX-SIZE", "g () => () <float[2] w = {1}> {}"},
    {"BS-ONNX-SIZE", "g () => () <float[2] w = {}> {}"},
    {"BS-ONNX-SIZE", "g () => () <float[2] w = {1, 2, 3}> {}"},
    {"BS-ONNX-SIZE", "g () => () <string[2] w = {\"a\"}> {}"},
    {"BS-ONNX-SIZE", "g () => () <float[0] w = {1}> {}"},
    {"BS-ONNX-SIZE", "g () => () <uint4[3] w = {1, 2, 3}> {}"},
    {"BS-ONNX-VALUE", "g () => () <int8[1] w = {256}> {}"},
    {"BS-ONNX-VALUE", "g () => () <int8[1] w = {-129}> {}"},
    {"BS-ONNX-VALUE", "g () => () <uint32[1] w = {4294967296}> {}"},
    {"BS-ONNX-DATA", "g () => () <float6e2m3[1] w = {1}> {}"},
    {"BS-ONNX-EXT", "g () => () <float[1] w = [\"location\" : \"w\"]> {}"}, /* from memory: no folder */
};

START_TEST(a_rule_is_broken) {
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  unsigned char *bytes = onnx_bytes(texts[_i].text, 0, &size);
  ck_assert_msg(!give(bytes, size, &err), "%s: read", texts[_i].text);
  ck_assert_msg(strcmp(err.id, texts[_i].id) == 0, "%s: %s (%s)", texts[_i].text, err.id, err.message);
  free(bytes);
}
END_TEST

#define TEN_1 "\xff\xff\xff\xff\xff\xff\xff\xff\xff"
/* A model of a graph (field 7) with this body. */
#define GRAPH(length, body) "\x3a" length body
static const struct {
  const char *id, *bytes;
  size_t size;
} raw[] = {
    {"BS-ONNX-GRAPH", "", 0},
    {"BS-ONNX-GRAPH", "\x3a\x00\x3a\x00", 4},      /* two graphs */
    {"BS-PB-WIRE", "version https://git-lfs", 23}, /* a pointer of Git LFS */
    {"BS-PB-WIRE", "\x02\x00", 2},                 /* field 0 */
    {"BS-PB-WIRE", "\x0b\x0c", 2},                 /* a group */
    {"BS-PB-WIRE", "\x0f", 1},                     /* wire type 7 */
    {"BS-PB-WIRE", "\xff\xff\xff\xff\x7f\x00", 6}, /* a field number over 29 bits */
    {"BS-PB-VARINT", "\x80", 1},                   /* a key without its end */
    {"BS-PB-VARINT", "\x08" TEN_1 "\x02", 11},     /* 2^64 */
    {"BS-PB-VARINT", "\x08" TEN_1 "\xff\x01", 12}, /* eleven bytes */
    {"BS-PB-LENGTH",
     "\x12\x05"
     "ab",
     4},                                                       /* past the end of the file */
    {"BS-PB-LENGTH", "\x12" TEN_1 "\x01", 11},                 /* 2^64 - 1 bytes */
    {"BS-PB-LENGTH", "\x0d\x00\x00", 3},                       /* 4 bytes of which there are 2 */
    {"BS-PB-LENGTH", "\x09\x00\x00\x00\x00\x00\x00\x00", 8},   /* 8 bytes of which there are 7 */
    {"BS-PB-LENGTH", GRAPH("\x02", "\x0a\x7f") "\x08\x0a", 6}, /* a node longer than its graph */
    {"BS-PB-WIRE", "\x38\x01", 2},                             /* the graph as a number */
    {"BS-ONNX-EMPTY", GRAPH("\x04", "\x0a\x00\x0a\x00"), 6},
    {"BS-ONNX-SPARSE", GRAPH("\x02", "\x7a\x00"), 4},
    {"BS-ONNX-TYPE", GRAPH("\x06", "\x2a\x04\x10\x1d\x4a\x00"), 8}, /* a tensor of type 29 */
    {"BS-ONNX-TYPE", GRAPH("\x04", "\x2a\x02\x4a\x00"), 6},         /* and one without a type */
    {"BS-ONNX-DATA", GRAPH("\x0a", "\x2a\x08\x10\x02\x4a\x01\x01\x2a\x01\x01"), 12}, /* two fields */
    {"BS-ONNX-DATA", GRAPH("\x09", "\x2a\x07\x10\x02\x1a\x00\x4a\x01\x01"), 11},     /* a segment */
    {"BS-ONNX-TYPE", GRAPH("\x0b", "\x5a\x09\x0a\x01x\x12\x04\x0a\x02\x08\x63"),
     13}, /* an input of type 99 */
    {"BS-ONNX-TWICE", GRAPH("\x0b", "\x5a\x09\x0a\x01x\x12\x04\x0a\x00\x22\x00"), 13}, /* two types */
    {"BS-ONNX-ATTR",
     GRAPH("\x0d",
           "\x0a\x0b\x22\x01"
           "A"
           "\x2a\x06\x0a\x01x\xa0\x01\x63"),
     15}, /* type 99 */
    {"BS-ONNX-ATTR",
     GRAPH("\x0a",
           "\x0a\x08\x22\x01"
           "A"
           "\x2a\x03\x0a\x01x"),
     12}, /* no value */
    {"BS-ONNX-ATTR",
     GRAPH("\x0b",
           "\x0a\x09\x22\x01"
           "A"
           "\x2a\x04\x18\x01\x18\x01"),
     13}, /* no name */
    {"BS-ONNX-ATTR",
     GRAPH("\x0d",
           "\x0a\x0b\x22\x01"
           "A"
           "\x2a\x06\x0a\x01x\xa0\x01\x05"),
     15}, /* no graph */
    {"BS-ONNX-TWICE",
     GRAPH("\x0e",
           "\x0a\x0c\x22\x01"
           "A"
           "\x2a\x07\x0a\x01x\x32\x00\x32\x00"),
     16}, /* two graphs */
    {"BS-ONNX-NAME",
     GRAPH("\x07",
           "\x0a\x05\x0a\x03"
           "abc"),
     9}, /* a node without operator */
};

START_TEST(a_record_is_wrong) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(!give(raw[_i].bytes, raw[_i].size, &err), "row %d: read", _i);
  ck_assert_msg(strcmp(err.id, raw[_i].id) == 0, "row %d: %s (%s)", _i, err.id, err.message);
  if (strncmp(raw[_i].bytes, "version", 7) == 0) ck_assert_ptr_nonnull(strstr(err.hint, "git lfs"));
}
END_TEST

static void expect(const char *text, const char *id) {
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  unsigned char *bytes = onnx_bytes(text, 0, &size);
  int opened = give(bytes, size, &err);
  ck_assert_msg(opened == (id == NULL), "%s", err.message);
  if (id != NULL) ck_assert_str_eq(err.id, id);
  free(bytes);
}

static void nested(char *text, size_t room, int depth) {
  size_t at = (size_t)snprintf(text, room, "g () => () {");
  for (int i = 0; i < depth; i++) at += (size_t)snprintf(text + at, room - at, " y = If <t = h () => () {");
  for (int i = 0; i < depth; i++) at += (size_t)snprintf(text + at, room - at, "}> ()");
  snprintf(text + at, room - at, "}");
}

START_TEST(both_sides_of_each_cap) {
  static char text[8192], name[2000];
  nested(text, sizeof text, BS_ONNX_MAX_DEPTH);
  expect(text, NULL);
  nested(text, sizeof text, BS_ONNX_MAX_DEPTH + 1);
  expect(text, "BS-ONNX-DEPTH");
  for (unsigned n = BS_ONNX_MAX_NAME; n <= BS_ONNX_MAX_NAME + 1; n++) {
    memset(name, 'n', n);
    name[n] = '\0';
    snprintf(text, sizeof text, "g (float %s) => () {}", name);
    expect(text, n == BS_ONNX_MAX_NAME ? NULL : "BS-ONNX-NAME");
  }
  for (unsigned n = BS_ONNX_MAX_ATTRIBUTES; n <= BS_ONNX_MAX_ATTRIBUTES + 1; n++) {
    size_t at = (size_t)snprintf(text, sizeof text, "g () => () { y = A <");
    for (unsigned i = 0; i < n; i++)
      at += (size_t)snprintf(text + at, sizeof text - at, "%sa%u = 1", i ? "," : "", i);
    snprintf(text + at, sizeof text - at, "> () }");
    expect(text, n == BS_ONNX_MAX_ATTRIBUTES ? NULL : "BS-ONNX-COUNT");
  }
  expect("g (float[1,1,1,1,1,1,1,1] x) => () <float[1,1,1,1,1,1,1,1] w = {1}> {}", NULL);
}
END_TEST

/* n nodes of the operator A, which is the smallest node there is. */
START_TEST(a_million_nodes) {
  static const unsigned char node[5] = {0x0a, 3, 0x22, 1, 'A'};
  bs_error err = BS_ERROR_INIT;
  for (uint64_t n = BS_ONNX_MAX_ITEMS; n <= BS_ONNX_MAX_ITEMS + 1; n++) {
    size_t head = 5;
    uint64_t length = 5 * n;
    unsigned char *bytes = malloc(head + (size_t)length);
    ck_assert_ptr_nonnull(bytes);
    bytes[0] = 0x3a;
    for (int i = 0; i < 4; i++) bytes[1 + i] = (unsigned char)((length >> (7 * i) & 127) | (i < 3 ? 128 : 0));
    for (uint64_t i = 0; i < 5 * n; i++) bytes[head + i] = node[i % 5];
    int opened = give(bytes, head + (size_t)length, &err);
    ck_assert_msg(opened == (n == BS_ONNX_MAX_ITEMS), "%s %s", err.id, err.message);
    if (!opened) ck_assert_str_eq(err.id, "BS-ONNX-COUNT");
    free(bytes);
  }
}
END_TEST

START_TEST(an_arena_has_a_limit) {
  bs_arena arena = {.limit = 10000};
  ck_assert_ptr_nonnull(bs_arena_take(&arena, 0, 8));
  ck_assert_ptr_nonnull(bs_arena_take(&arena, 500, 8));
  ck_assert_ptr_nonnull(bs_arena_take(&arena, 500, 8));
  ck_assert_ptr_null(bs_arena_take(&arena, 500, 8));
  ck_assert_ptr_null(bs_arena_take(&arena, UINT64_MAX / 2, 8));
  ck_assert_ptr_null(bs_arena_take(&arena, UINT64_MAX - 3, 1));
  ck_assert_uint_le(arena.used, arena.limit);
  bs_arena_free(&arena);
  ck_assert_uint_eq(arena.used, 0);
}
END_TEST

/* One tensor of 64 KiB, of which all but the first page disappears: reading it does not end the process. */
START_TEST(cut_while_mapped) {
  enum { N = 16384 };
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  size_t size = 0, room = N * 3 + 100, at = 0;
  char *text = malloc(room);
  ck_assert_ptr_nonnull(text);
  at += (size_t)snprintf(text, room, "g () => () <float[%d] w = {1", N);
  for (int i = 1; i < N; i++) at += (size_t)snprintf(text + at, room - at, ",1");
  snprintf(text + at, room - at, "}> {}");
  unsigned char *bytes = onnx_bytes(text, 0, &size);
  const char *path = files_write("cut.onnx", bytes, size);
  ck_assert_int_eq(bs_onnx_open(path, &m, &err), BS_OK);
  const float *w = m.graph->initializers[0].data;
  float first = 0, last = 0;
  memcpy(&last, w + N - 1, 4);
  ck_assert(last == 1);
  ck_assert_int_eq(bs_onnx_unchanged(&m, &err), BS_OK);
  ck_assert_int_eq(truncate(path, 4096), 0);
  onnx_walk(&m);
  memcpy(&first, w, 4);
  memcpy(&last, w + N - 1, 4);
  ck_assert(first == 1 && last == 0);
  files_expect(&err, bs_onnx_unchanged(&m, &err), BS_INPUT, "BS-FILE-CHANGED", "cut");
  files_write("cut.onnx", bytes, size); /* another file of that name: the open one stays lost */
  files_expect(&err, bs_onnx_unchanged(&m, &err), BS_INPUT, "BS-FILE-CHANGED", "cut and replaced");
  bs_onnx_close(&m);
  ck_assert_int_eq(bs_onnx_open(path, &m, &err), BS_OK);
  bs_onnx_close(&m);
  free(bytes);
  free(text);
}
END_TEST

int main(void) {
  const test_case rows[] = {{cut_at_every_byte, 2},
                            {every_bit_turned_over, 2},
                            {a_rule_is_broken, TEST_COUNT(texts)},
                            {a_record_is_wrong, TEST_COUNT(raw)},
                            {both_sides_of_each_cap},
                            {a_million_nodes},
                            {an_arena_has_a_limit},
                            {cut_while_mapped},
                            {0}};
  return run_tests("onnx_hostile", rows, (test_setup){.before = files_begin, .after = files_end});
}
