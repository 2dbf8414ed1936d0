/* SPDX-License-Identifier: MIT
 * test_safetensors.c - a valid file is made, then exactly one rule is broken: each has its own id. Caps on
 * both sides, every cut and every flipped bit, names that are asked for, and a real trained model. */
#include "core/base/error.h"
#include "formats/safetensors.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

static size_t make(char *out, const char *header, size_t header_size, int64_t say, size_t data) {
  uint64_t length = say < 0 ? header_size : (uint64_t)say;
  for (int i = 0; i < 8; i++) out[i] = (char)(length >> (8 * i));
  memcpy(out + 8, header, header_size);
  for (size_t i = 0; i < data; i++) out[8 + header_size + i] = (char)(i + 1);
  return 8 + header_size + data;
}

static int32_t open_made(const char *header, size_t data, bs_st *st, bs_error *err) {
  char buffer[8192];
  size_t n = make(buffer, header, strlen(header), -1, data);
  return bs_st_open(files_write("a.safetensors", buffer, n), st, err);
}

#define T(name, dtype, shape, begin, end) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
/* The valid file that the table breaks: two tensors, 16 bytes. */
#define A T("a", "F32", "[2,1]", 0, 8)
#define B T("b", "F32", "[2]", 8, 16)

START_TEST(a_good_file_is_read) {
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const bs_st_tensor *t = NULL;
  /* Out of order in the header, metadata, an escaped name, an empty tensor, padding. */
  const char *header = "{" T("b", "F16", "[2,3]", 4, 16) "," T(
      "a.weight", "BF16", "[2]", 0,
      4) ",\"__metadata__\":{\"format\":\"pt\",\"n\":\"\"}," T("\\u00e9\\\"", "U8", "[0,7]", 16,
                                                               16) "," T("s", "F64", "[]", 16, 24) "}   ";
  ck_assert_msg(open_made(header, 24, &st, &err) == BS_OK, "%s %s", err.id, err.message);
  ck_assert_uint_eq(st.count, 4);
  ck_assert_str_eq(st.tensors[0].name, "a.weight");
  ck_assert_int_eq(bs_st_find(&st, "b", &t, &err), BS_OK);
  ck_assert_uint_eq(t->dtype, BS_F16);
  ck_assert_uint_eq(t->rank, 2);
  ck_assert_int_eq(t->dims[1], 3);
  ck_assert_uint_eq(t->bytes, 12);
  ck_assert_int_eq(((const char *)t->data)[0], 5);
  ck_assert_uint_eq(t->offset, 8 + strlen(header) + 4);
  ck_assert_int_eq(bs_st_find(&st, "\xc3\xa9\"", &t, &err), BS_OK);
  ck_assert_uint_eq(t->bytes, 0);
  ck_assert_int_eq(bs_st_find(&st, "s", &t, &err), BS_OK);
  ck_assert_uint_eq(t->rank, 0);
  ck_assert_uint_eq(t->bytes, 8);
  bs_st_close(&st);
  bs_st_close(&st); /* a closed record may be closed again */
  ck_assert_int_eq(open_made("{}", 0, &st, &err), BS_OK);
  ck_assert_uint_eq(st.count, 0);
  files_expect(&err, bs_st_find(&st, "x", &t, &err), BS_INPUT, "BS-ST-NOTFOUND", "empty");
  bs_st_close(&st);
}
END_TEST

START_TEST(every_dtype_has_its_size) {
  static const struct {
    const char *name;
    uint32_t dtype;
    int bits;
  } all[] = {{"F64", BS_F64, 64},
             {"F32", BS_F32, 32},
             {"F16", BS_F16, 16},
             {"BF16", BS_BF16, 16},
             {"F8_E4M3", BS_F8E4M3, 8},
             {"F8_E5M2", BS_F8E5M2, 8},
             {"I64", BS_I64, 64},
             {"I32", BS_I32, 32},
             {"I8", BS_I8, 8},
             {"U8", BS_U8, 8},
             {"BOOL", BS_BOOL, 8},
             {"I16", 0, 16},
             {"U16", 0, 16},
             {"U32", 0, 32},
             {"U64", 0, 64},
             {"C64", 0, 64},
             {"F8_E8M0", 0, 8},
             {"F6_E2M3", 0, 6},
             {"F6_E3M2", 0, 6},
             {"F4", 0, 4}};
  char header[256];
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const bs_st_tensor *t = NULL;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%d]}}",
             all[i].name, all[i].bits);
    ck_assert_msg(open_made(header, (size_t)all[i].bits, &st, &err) == BS_OK, "%s: %s", all[i].name,
                  err.message);
    int32_t rc = bs_st_find(&st, "x", &t, &err);
    if (all[i].dtype == 0) {
      files_expect(&err, rc, BS_INPUT, "BS-ST-DTYPE", all[i].name);
      ck_assert_ptr_nonnull(strstr(err.message, all[i].name));
    } else {
      ck_assert_int_eq(rc, BS_OK);
      ck_assert_uint_eq(t->dtype, all[i].dtype);
    }
    bs_st_close(&st);
  }
}
END_TEST

static const struct {
  const char *id;
  const char *header;
  size_t data;
  int64_t say; /* header length to say; -1: the true one */
} bad[] = {
    {"BS-ST-HEADER", "{" A "," B "}", 16, 100000},
    {"BS-ST-HEADER", "{" A "," B "}", 16, 16777217},
    {"BS-ST-HEADER", "{" A "," B "}", 16, INT64_MAX},
    {"BS-ST-JSON", "{" A "," B "}", 16, 0},
    {"BS-ST-JSON", "{" A "," B "}", 16, 1},
    {"BS-ST-JSON", "", 16, -1},
    {"BS-ST-JSON", " {" A "," B "}", 16, -1},
    {"BS-ST-JSON",
     "["
     "1"
     "]",
     16, -1},
    {"BS-ST-JSON", "{" A "," B "}x", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",}", 16, -1},
    {"BS-ST-JSON", "{" A "," B, 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"\\u0000\":1}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\xff\":1}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\":1e999}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\":[[[[1]]]]}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\":7}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\":null}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"c\":{}}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"__metadata__\":[]}", 16, -1},
    {"BS-ST-JSON", "{" A "," B ",\"__metadata__\":{\"n\":1}}", 16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"shape\":[2],\"data_offsets\":[8,16]}}",
     16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[8,16]}}",
     16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"data_offsets\":[8,16]}}",
     16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[8,16]}}",
     16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2]}}",
     16, -1},
    {"BS-ST-JSON",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16],\"x\":0}}",
     16, -1},
    {"BS-ST-JSON", "{" A "," T("b", "F32", "[2]", 8, 9223372036854775808) "}", 16, -1},
    {"BS-ST-DUP", "{" A "," A "}", 8, -1},
    {"BS-ST-DUP",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
     16, -1},
    {"BS-ST-NAME", "{" A "," T("", "F32", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-NAME", "{" A "," T("b\\n", "F32", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-NAME", "{" A "," T("\\u001b[31m", "F32", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-DTYPE", "{" A "," T("b", "F33", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-DTYPE", "{" A "," T("b", "f32", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-DTYPE", "{" A "," T("b", "", "[2]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[3]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[-2]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[2.0]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[\"2\"]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[4294967296,4294967296]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[9223372036854775807,9223372036854775807]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[576460752303423490]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F32", "[0,9223372036854775807]", 8, 16) "}", 16, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F4", "[3]", 8, 10) "}", 10, -1},
    {"BS-ST-SHAPE", "{" A "," T("b", "F6_E2M3", "[5]", 8, 12) "}", 12, -1},
    {"BS-ST-OFFSET", "{" A "," T("b", "F32", "[2]", 8, 17) "}", 16, -1},
    {"BS-ST-OFFSET", "{" A "," T("b", "F32", "[2]", 16, 8) "}", 16, -1},
    {"BS-ST-OFFSET", "{" A "," T("b", "F32", "[2]", -8, 0) "}", 16, -1},
    {"BS-ST-OFFSET", "{" A "," T("b", "F32", "[2]", 8.0, 16) "}", 16, -1},
    {"BS-ST-OFFSET",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8]}}",
     16, -1},
    {"BS-ST-OFFSET",
     "{" A ","
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16,24]}}",
     16, -1},
    {"BS-ST-OFFSET", "{" A "," T("b", "F32", "[2]", 9223372036854775800, 9223372036854775807) "}", 16, -1},
    {"BS-ST-OVERLAP", "{" A "," T("b", "F32", "[2]", 4, 12) "}", 12, -1},
    {"BS-ST-OVERLAP", "{" A "," T("b", "F32", "[2]", 0, 8) "}", 8, -1},
    {"BS-ST-OVERLAP", "{" A "," B "," T("c", "U8", "[0]", 4, 4) "}", 16, -1},
    {"BS-ST-HOLE", "{" A "," T("b", "F32", "[2]", 9, 17) "}", 17, -1},
    {"BS-ST-HOLE", "{" B "}", 16, -1},
    {"BS-ST-TRAILING", "{" A "}", 16, -1},
    {"BS-ST-TRAILING", "{" A "," B "}", 17, -1},
    {"BS-ST-TRAILING", "{}", 1, -1},
};

START_TEST(each_broken_rule_has_its_id) {
  char buffer[4096], what[256];
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  size_t n = make(buffer, bad[_i].header, strlen(bad[_i].header), bad[_i].say, bad[_i].data);
  const char *path = files_write("bad.safetensors", buffer, n);
  snprintf(what, sizeof what, "case %d: %.220s", _i, bad[_i].header);
  files_expect(&err, bs_st_open(path, &st, &err), BS_INPUT, bad[_i].id, what);
  ck_assert_str_eq(err.where, path);
  ck_assert_uint_eq(st.count, 0);
  bs_st_close(&st); /* closed already: must do nothing */
}
END_TEST

START_TEST(names_are_found_or_refused_with_the_nearest) {
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const bs_st_tensor *t = NULL;
  ck_assert_int_eq(
      open_made("{" T("layer.0.weight", "F32", "[2]", 0, 8) "," T("ids", "I16", "[4]", 8, 16) "}", 16, &st,
                &err),
      BS_OK);
  ck_assert_int_eq(bs_st_find(&st, "layer.0.weight", &t, &err), BS_OK);
  files_expect(&err, bs_st_find(&st, "layer.0.weigth", &t, &err), BS_INPUT, "BS-ST-NOTFOUND", "near");
  ck_assert_ptr_nonnull(strstr(err.hint, "layer.0.weight"));
  files_expect(&err, bs_st_find(&st, "ids", &t, &err), BS_INPUT, "BS-ST-DTYPE", "I16 beside");
  bs_st_close(&st);
}
END_TEST

/* A one-tensor file whose header is padded to `length` bytes. */
static int32_t open_padded(size_t length, bs_st *st, bs_error *err) {
  const char *text = "{" T("a", "U8", "[1]", 0, 1) "}";
  char *header = malloc(length), *file = malloc(length + 16);
  memset(header, ' ', length);
  memcpy(header, text, strlen(text));
  size_t n = make(file, header, length, -1, 1);
  int32_t rc = bs_st_open(files_write("padded.safetensors", file, n), st, err);
  free(header);
  free(file);
  return rc;
}

START_TEST(caps_hold_on_both_sides) {
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  char header[4096], name[1100];
  ck_assert_msg(open_padded(BS_ST_MAX_HEADER, &st, &err) == BS_OK, "%s", err.message);
  bs_st_close(&st);
  files_expect(&err, open_padded(BS_ST_MAX_HEADER + 1, &st, &err), BS_INPUT, "BS-ST-HEADER", "16 MiB + 1");
  for (size_t length = BS_ST_MAX_NAME; length <= BS_ST_MAX_NAME + 1; length++) {
    memset(name, 'n', length);
    name[length] = '\0';
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    int32_t rc = open_made(header, 1, &st, &err);
    if (length == BS_ST_MAX_NAME)
      ck_assert_msg(rc == BS_OK, "%s", err.message);
    else
      files_expect(&err, rc, BS_INPUT, "BS-ST-NAME", "name cap + 1");
    bs_st_close(&st);
  }
  ck_assert_int_eq(open_made("{" T("a", "U8", "[1,1,1,1,1,1,1,1]", 0, 1) "}", 1, &st, &err), BS_OK);
  ck_assert_uint_eq(st.tensors[0].rank, 8);
  bs_st_close(&st);
  files_expect(&err, open_made("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, &st, &err), BS_INPUT,
               "BS-ST-SHAPE", "9 dims");
  /* Depth 4 is read (and then is no tensor), depth 5 is not; brackets inside strings do not count. */
  files_expect(&err, open_made("{\"a\":[[[]]]}", 1, &st, &err), BS_INPUT, "BS-ST-JSON", "depth 4");
  ck_assert_ptr_null(strstr(err.message, "deeper"));
  files_expect(&err, open_made("{\"a\":[[[[]]]]}", 1, &st, &err), BS_INPUT, "BS-ST-JSON", "depth 5");
  ck_assert_ptr_nonnull(strstr(err.message, "deeper"));
  ck_assert_int_eq(open_made("{" T("[[[[[{\\\"{{{", "U8", "[1]", 0, 1) "}", 1, &st, &err), BS_OK);
  bs_st_close(&st);
}
END_TEST

START_TEST(many_tensors_are_swept) {
  enum { COUNT = 20000 };
  char *header = malloc(COUNT * 80), *file = malloc(COUNT * 82);
  size_t n = 0;
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const bs_st_tensor *t = NULL;
  /* Backwards, so that the order of the file is not that of the offsets. */
  for (int i = COUNT - 1; i >= 0; i--)
    n += (size_t)sprintf(header + n, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                         i == COUNT - 1 ? '{' : ',', i, i, i + 1);
  header[n++] = '}';
  size_t size = make(file, header, n, -1, COUNT);
  ck_assert_msg(bs_st_open(files_write("many.safetensors", file, size), &st, &err) == BS_OK, "%s",
                err.message);
  ck_assert_uint_eq(st.count, COUNT);
  for (int i = 0; i < COUNT; i++) ck_assert_int_eq(((const char *)st.tensors[i].data)[0], (char)(i + 1));
  ck_assert_int_eq(bs_st_find(&st, "t19999", &t, &err), BS_OK);
  ck_assert_ptr_eq(t, &st.tensors[19999]);
  bs_st_close(&st);
  free(header);
  free(file);
}
END_TEST

START_TEST(every_cut_and_flip_is_survived) {
  const char *header = "{" A "," B "}";
  char buffer[512];
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  size_t n = make(buffer, header, strlen(header), -1, 16);
  for (size_t cut = 0; cut < n; cut++) {
    const char *want = cut < 8 ? "BS-ST-SIZE" : cut < n - 16 ? "BS-ST-HEADER" : "BS-ST-OFFSET";
    files_expect(&err, bs_st_open(files_write("cut", buffer, cut), &st, &err), BS_INPUT, want, "cut");
  }
  for (size_t i = 0; i < n - 16; i++)
    for (int bit = 0; bit < 8; bit++) {
      buffer[i] ^= (char)(1 << bit);
      int32_t rc = bs_st_open(files_write("flip", buffer, n), &st, &err);
      ck_assert_msg(rc == BS_OK || (rc == BS_INPUT && strncmp(err.id, "BS-ST-", 6) == 0), "byte %zu: %d %s",
                    i, rc, err.id);
      bs_st_close(&st);
      buffer[i] ^= (char)(1 << bit);
    }
}
END_TEST

START_TEST(only_regular_files) {
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const char *fifo = files_path("fifo"), *loop = files_path("loop"), *other = files_path("other");
  ck_assert_int_eq(mkfifo(fifo, 0600), 0);
  ck_assert_int_eq(symlink("other", loop), 0);
  ck_assert_int_eq(symlink("loop", other), 0);
  const char *const refused[] = {fifo, loop, files_folder, files_path("absent"), "/dev/zero", "", NULL};
  for (size_t i = 0; refused[i] != NULL; i++)
    files_expect(&err, bs_st_open(refused[i], &st, &err), BS_INPUT, "BS-ST-READ", refused[i]);
  files_expect(&err, bs_st_open(files_write("empty", "", 0), &st, &err), BS_INPUT, "BS-ST-SIZE", "empty");
}
END_TEST

START_TEST(a_trained_model_is_read) {
  const char *path = getenv("BS_TEST_MINILM");
  const bs_st_tensor *t = NULL;
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  if (path == NULL || *path == '\0') {
    printf("skipped: BS_TEST_MINILM is not set (scripts/fetch-trained-layer)\n");
    return;
  }
  ck_assert_msg(bs_st_open(path, &st, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_st_find(&st, "encoder.layer.0.intermediate.dense.weight", &t, &err), BS_OK);
  ck_assert_uint_eq(t->dtype, BS_F32);
  ck_assert_int_eq(t->dims[0], 1536);
  ck_assert_int_eq(t->dims[1], 384);
  bs_st_close(&st);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_good_file_is_read},
                             {every_dtype_has_its_size},
                             {each_broken_rule_has_its_id, (int)(sizeof bad / sizeof *bad)},
                             {names_are_found_or_refused_with_the_nearest},
                             {caps_hold_on_both_sides},
                             {many_tensors_are_swept},
                             {every_cut_and_flip_is_survived},
                             {only_regular_files},
                             {a_trained_model_is_read},
                             {0}};
  return run_tests("safetensors", tests, (test_setup){files_begin, files_end});
}
