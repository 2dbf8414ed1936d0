/* SPDX-License-Identifier: MIT
 * test_report.c - every format from one field list: alignment, folding, quoting, hostile text. */
#include "lab/report/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const bs_field fields[] = {{"name", "NAME", 0, 0},
                                  {"same", "same", BS_FIELD_FOLD, 0},
                                  {"x", "X", BS_FIELD_RIGHT, 3},
                                  {"none", "none", 0, 0},
                                  {"wide", "wide", BS_FIELD_WIDE, 0}};

static char *print(int format, json_t *rows) {
  char *text = NULL;
  size_t size = 0;
  bs_error err = BS_ERROR_INIT;
  FILE *f = open_memstream(&text, &size);
  ck_assert_msg(bs_report_print(f, format, fields, 5, rows, &err) == BS_OK, "%s", err.message);
  fclose(f);
  json_decref(rows);
  return text;
}

static json_t *two_rows(void) {
  return json_pack("[{s:s, s:i, s:f, s:s}, {s:s, s:i, s:f, s:b}]", "name", "a", "same", 4, "x", 0.123456,
                   "wide", "v", "name", "long,\"er\"", "same", 4, "x", 12.0, "wide", 1);
}

START_TEST(table) {
  char *text = print(BS_FORMAT_TABLE, two_rows());
  ck_assert_str_eq(text, "same 4\n\nNAME           X\na          0.123\nlong,\"er\"     12\n");
  free(text);
  text = print(BS_FORMAT_TABLE, json_pack("[{s:s, s:i}]", "name", "a", "same", 4));
  ck_assert_str_eq(text, "NAME  same\na     4\n"); /* one row folds nothing */
  free(text);
}
END_TEST

/* However long its cells are: lines break at spaces, else behind slashes, else anywhere; nothing is lost. */
START_TEST(a_table_fits_its_width) {
  char words[400] = "", path[400] = "", *text, *line, *rest = NULL;
  for (int i = 0; i < 40; i++) strcat(words, "\xc3\xa9words "), strcat(path, "a/folder/");
  json_t *rows = json_pack("[{s:s, s:s, s:f, s:s, s:s}]", "name", words, "same", path, "x", 0.5, "none",
                           path + 1, "wide", "v");
  text = print(BS_FORMAT_TABLE, json_incref(rows));
  ck_assert_ptr_null(strstr(text, "wide"));
  size_t found = 0, lines = 0;
  for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest), lines++) {
    size_t width = 0;
    for (const char *p = line; *p != '\0'; p++) width += ((unsigned char)*p & 0xc0) != 0x80;
    ck_assert_msg(width <= BS_TABLE_WIDTH || strncmp(line, "same ", 5) == 0, "%zu: %s", width, line);
    for (const char *p = line; (p = strstr(p, "words")) != NULL; p++) found++;
  }
  ck_assert_uint_eq(found, 40);
  ck_assert_uint_gt(lines, 4);
  free(text);
  text = print(BS_FORMAT_WIDE, rows); /* one line a row, and every field */
  ck_assert(strstr(text, words + 1) != NULL && strstr(text, path) != NULL && strstr(text, "wide") != NULL);
  free(text);
}
END_TEST

/* Spare columns go from the right until the others fit, and no word of WORDS is cut. */
START_TEST(spare_columns_go_first) {
  static const bs_field columns[] = {{"who", "WHO", 0, 0},
                                     {"a", "A", BS_FIELD_RIGHT | BS_FIELD_SPARE, 0},
                                     {"b", "B", BS_FIELD_RIGHT | BS_FIELD_SPARE, 0},
                                     {"end", "END", 0, 0}};
  static const struct { int parts, a, b; } rows[] = {{5, 1, 1}, {9, 1, 0}, {10, 0, 0}, {40, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char who[600] = "plugin:name{", *text = NULL, *line, *rest = NULL;
    size_t size = 0, found = 0;
    bs_error err = BS_ERROR_INIT;
    for (int k = 0; k < rows[i].parts; k++) strcat(who, "knob01=23;");
    json_t *one =
        json_pack("[{s:s, s:s, s:s, s:s}]", "who", who, "a", "aaaaaaaaa", "b", "bbbbbbbbb", "end", "end");
    FILE *f = open_memstream(&text, &size);
    ck_assert_msg(bs_report_print(f, BS_FORMAT_TABLE, columns, 4, one, &err) == BS_OK, "%s", err.message);
    fclose(f);
    json_decref(one);
    ck_assert_msg((strstr(text, "aaa") != NULL) == rows[i].a && (strstr(text, "bbb") != NULL) == rows[i].b,
                  "%s", text);
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
      ck_assert_msg(strlen(line) <= BS_TABLE_WIDTH, "%s", line);
      for (const char *p = line; (p = strstr(p, "knob01=23;")) != NULL; p++) found++;
    }
    ck_assert_uint_eq(found, (size_t)rows[i].parts);
    free(text);
  }
}
END_TEST

/* A hash of 90 digits is cut before its column goes, and a title is not. */
START_TEST(a_long_word_is_cut_first) {
  static const bs_field columns[] = {
      {"what", "WHAT", 0, 0}, {"value", "VALUE", 0, 0}, {"text", "LONGEST_TITLE", 0, 0}};
  char hash[91] = "", sentence[300] = "", *text = NULL;
  size_t size = 0;
  while (strlen(hash) < 90) strcat(hash, "0123456789");
  while (strlen(sentence) < 200) strcat(sentence, "a b c d ");
  json_t *rows = json_pack("[{s:s, s:s, s:s}]", "what", "request_key", "value", hash, "text", sentence);
  FILE *f = open_memstream(&text, &size);
  ck_assert_int_eq(bs_report_print(f, BS_FORMAT_TABLE, columns, 3, rows, NULL), BS_OK);
  fclose(f);
  json_decref(rows);
  ck_assert_msg(strncmp(text, "WHAT         VALUE", 18) == 0, "%s", text);
  ck_assert_msg(strstr(text, " LONGEST_TITLE\n") != NULL && strstr(text, "left out") == NULL, "%s", text);
  free(text);
}
END_TEST

/* Three digits, without an exponent where a person would write none. CSV has all digits. */
START_TEST(digits) {
  static const struct {
    double x;
    const char *shown, *csv;
  } rows[] = {{0.123456, "0.123", "0.123456"}, {999.4, "999", "999.39999999999998"},
              {15566.99, "15600", "15566.99"}, {999600.0, "1000000", "999600"},
              {-1234.5, "-1230", "-1234.5"},   {2e9, "2e+09", "2000000000"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char want[100], *text = print(BS_FORMAT_MD, json_pack("[{s:f}]", "x", rows[i].x));
    snprintf(want, sizeof want, "| X |\n| ---: |\n| %s |\n", rows[i].shown);
    ck_assert_str_eq(text, want);
    free(text);
    text = print(BS_FORMAT_CSV, json_pack("[{s:f}]", "x", rows[i].x));
    snprintf(want, sizeof want, "name,same,x,none,wide\r\n,,%s,,\r\n", rows[i].csv);
    ck_assert_str_eq(text, want);
    free(text);
  }
}
END_TEST

START_TEST(bytes_and_shares) {
  static const struct {
    double bytes;
    const char *shown;
  } rows[] = {{0, "0 bytes"},         {1023, "1023 bytes"},   {1024, "1 KiB"},   {1047552, "0.999 MiB"},
              {134217728, "128 MiB"}, {132120577, "126 MiB"}, {5e9, "4.66 GiB"}, {2e15, "1.82e+03 TiB"}};
  static const bs_field field = {"n", "N", BS_FIELD_BYTES, 0};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char shown[32];
    ck_assert_str_eq(bs_bytes_text(rows[i].bytes, shown, sizeof shown), rows[i].shown);
  }
  static const bs_field share = {"n", "% N", BS_FIELD_PERCENT, 2};
  for (int format = BS_FORMAT_MD; format <= BS_FORMAT_CSV; format++) {
    char *text = NULL;
    size_t size = 0;
    json_t *row = json_pack("[{s:f}]", "n", 0.0625);
    FILE *f = open_memstream(&text, &size);
    ck_assert_int_eq(bs_report_print(f, format, &share, 1, row, NULL), BS_OK);
    fclose(f);
    json_decref(row);
    ck_assert_ptr_nonnull(strstr(text, format == BS_FORMAT_MD ? "| 6.2 |" : "0.0625\r\n"));
    free(text);
  }
  for (int format = BS_FORMAT_MD; format <= BS_FORMAT_CSV; format++) {
    char *text = NULL;
    size_t size = 0;
    json_t *row = json_pack("[{s:I}]", "n", (json_int_t)134217728);
    FILE *f = open_memstream(&text, &size);
    ck_assert_int_eq(bs_report_print(f, format, &field, 1, row, NULL), BS_OK);
    fclose(f);
    json_decref(row);
    ck_assert_ptr_nonnull(strstr(text, format == BS_FORMAT_MD ? "| 128 MiB |" : "134217728\r\n"));
    free(text);
  }
}
END_TEST

START_TEST(md) {
  char *text = print(BS_FORMAT_MD, json_pack("[{s:s}]", "name", "a|b"));
  ck_assert_str_eq(text, "| NAME |\n| --- |\n| a\\|b |\n");
  free(text);
}
END_TEST

START_TEST(csv) {
  char *text = print(BS_FORMAT_CSV, two_rows());
  ck_assert_str_eq(text, "name,same,x,none,wide\r\na,4,0.123456,,v\r\n\"long,\"\"er\"\"\",4,12,,true\r\n");
  free(text);
}
END_TEST

START_TEST(json_and_lines) {
  char *text = print(BS_FORMAT_JSON, two_rows());
  json_t *back = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_uint_eq(json_array_size(back), 2);
  ck_assert_uint_eq(json_object_size(json_array_get(back, 0)), 5);
  ck_assert(json_is_null(json_object_get(json_array_get(back, 0), "none")));
  ck_assert(json_real_value(json_object_get(json_array_get(back, 0), "x")) == 0.123456);
  json_decref(back);
  free(text);
  text = print(BS_FORMAT_JSONL, two_rows());
  int lines = 0;
  for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL;
       line = strtok_r(NULL, "\n", &save)) {
    back = json_loads(line, 0, NULL);
    ck_assert_ptr_nonnull(back);
    json_decref(back);
    lines++;
  }
  ck_assert_int_eq(lines, 2);
  free(text);
  text = print(BS_FORMAT_JSON, json_array());
  ck_assert_str_eq(text, "[]\n");
  free(text);
}
END_TEST

START_TEST(control_bytes_never_reach_a_terminal) {
  static const char *const rows[][2] = {{"a\x1b[31mb", "a\\x1b[31mb"},
                                        {"a\nb\tc", "a\\x0ab\\x09c"},
                                        {"\x7f", "\\x7f"},
                                        {"\xff\xc0\x80", "\\xff\\xc0\\x80"},
                                        {"\xc2\x9b"
                                         "31m",
                                         "\\xc2\\x9b31m"},
                                        {"\xc3\xa9\xe2\x82\xac", "\xc3\xa9\xe2\x82\xac"},
                                        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                                        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                                        {"\xe2\x82", "\\xe2\\x82"},
                                        {"", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char *shown = bs_report_printable(rows[i][0]);
    ck_assert_str_eq(shown, rows[i][1]);
    free(shown);
  }
}
END_TEST

/* Titles are names of axes and files that others chose. */
START_TEST(titles_are_shown_as_cells_are) {
  static const int formats[] = {BS_FORMAT_TABLE, BS_FORMAT_MD};
  const bs_field hostile[] = {{"a", "\x1b[31mN", BS_FIELD_FOLD, 0}, {"b", "\xe2\x80\xaeM", 0, 0}};
  for (size_t i = 0; i < 2; i++) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    json_t *rows = json_pack("[{s:i, s:i}, {s:i, s:i}]", "a", 1, "b", 2, "a", 1, "b", 3);
    ck_assert_int_eq(bs_report_print(f, formats[i], hostile, 2, rows, NULL), BS_OK);
    fclose(f);
    ck_assert_msg(strchr(text, 0x1b) == NULL && strstr(text, "\\x1b[31mN") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\\xe2\\x80\\xaeM") != NULL, "%s", text);
    json_decref(rows);
    free(text);
  }
}
END_TEST

START_TEST(lines_show_what_others_chose) {
  const struct {
    int n;
    const char *want;
  } cases[] = {{0, "a\\x1b[0m\\x0ab\n"},
               {1, "   x|y  |7%|-3|9000000000|1.50|q|\\xe2\\x81\\xa6|ab\n"},
               {2, "one\ntwo\\x07\n\nlast"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (cases[i].n == 0) ck_assert_int_eq(bs_print(f, "%s\n", "a\x1b[0m\nb"), 14);
    if (cases[i].n == 1)
      bs_print(f, "%4s|%-3s|%u%%|%d|%lld|%.2f|%c|%s|%.*s\n", "x", "y", 7u, -3, 9000000000LL, 1.5, 'q',
               "\xe2\x81\xa6", 2, "abc");
    if (cases[i].n == 2) ck_assert_int_eq(bs_print_lines(f, "one\ntwo\a\n\nlast"), 0);
    fclose(f);
    ck_assert_str_eq(text, cases[i].want);
    free(text);
  }
}
END_TEST

/* What a file gets is exact; a terminal gets nothing that steers it. */
START_TEST(csv_and_json_steer_no_terminal) {
  static const int formats[] = {BS_FORMAT_CSV, BS_FORMAT_JSON, BS_FORMAT_JSONL};
  for (size_t i = 0; i < 3; i++) {
    char text[512] = "";
    const int side = posix_openpt(O_RDWR | O_NOCTTY);
    if (side < 0 || grantpt(side) != 0 || unlockpt(side) != 0) return; /* none here */
    FILE *terminal = fopen(ptsname(side), "w");
    if (terminal == NULL) return;
    json_t *rows = json_pack("[{s:s}]", "name", "a\x1b[31m\xe2\x80\xae\xc2\x9b");
    ck_assert_int_eq(bs_report_print(terminal, formats[i], fields, 1, rows, NULL), BS_OK);
    ck_assert_int_gt(read(side, text, sizeof text - 1), 0);
    ck_assert_msg(strchr(text, 0x1b) == NULL && strstr(text, "\xe2\x80\xae") == NULL &&
                      strstr(text, "\xc2\x9b") == NULL,
                  "%s", text);
    fclose(terminal);
    close(side);
    char *kept = print(formats[i], rows);
    ck_assert_msg(strstr(kept, "\xe2\x80\xae") != NULL, "%s", kept);
    free(kept);
  }
}
END_TEST

START_TEST(a_full_output_is_an_error) {
  bs_error err = BS_ERROR_INIT;
  FILE *full = fopen("/dev/full", "w");
  if (full == NULL) return; /* no such device here */
  json_t *rows = two_rows();
  ck_assert_int_eq(bs_report_print(full, BS_FORMAT_TABLE, fields, 5, rows, &err), BS_IO);
  json_decref(rows);
  fclose(full);
}
END_TEST

START_TEST(formats_have_names) {
  for (int i = 0; i < 5; i++) ck_assert_int_eq(bs_format_parse(bs_format_names[i]), i);
  ck_assert_int_eq(bs_format_parse("xml"), -1);
  ck_assert_int_eq(bs_format_parse(""), -1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{table},
                             {a_table_fits_its_width},
                             {spare_columns_go_first},
                             {a_long_word_is_cut_first},
                             {digits},
                             {bytes_and_shares},
                             {md},
                             {csv},
                             {json_and_lines},
                             {control_bytes_never_reach_a_terminal},
                             {titles_are_shown_as_cells_are},
                             {lines_show_what_others_chose},
                             {csv_and_json_steer_no_terminal},
                             {a_full_output_is_an_error},
                             {formats_have_names},
                             {0}};
  return run_tests("report", tests, (test_setup){0});
}
