/* SPDX-License-Identifier: MIT
 * test_config_yaml.c - hostile YAML: a table of texts, each with the id of its error (or none), every cap
 * at the cap and one above, the place in the message, and files that are no files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

/* A literal with its size, so that NUL bytes may stand inside. */
#define T(literal) literal, sizeof(literal) - 1

static const struct {
  const char *text;
  size_t size;
  const char *id;    /* "" : accepted */
  const char *where; /* place in the message, NULL: not looked at */
} rows[] = {
    /* aliases, anchors, bombs, cycles */
    {T("a: *x\n"), "BS-CFG-ALIAS", "t.yaml:1:4"},
    {T("a: 1\nb: [1, *a]\n"), "BS-CFG-ALIAS", "t.yaml:2:8"},
    {T("*a : 1\n"), "BS-CFG-ALIAS", NULL},
    {T("a: &x 1\n"), "BS-CFG-ANCHOR", "t.yaml:1:4"},
    {T("a: &x [1, 2]\n"), "BS-CFG-ANCHOR", NULL},
    {T("a: &x {b: 1}\n"), "BS-CFG-ANCHOR", NULL},
    {T("&x a: 1\n"), "BS-CFG-ANCHOR", NULL},
    {T("&r\na: 1\n"), "BS-CFG-ANCHOR", NULL},
    {T("a: &a [*a, *a]\n"), "BS-CFG-ANCHOR", NULL},
    {T("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n"), "BS-CFG-ANCHOR", NULL},
    {T("a: &x\n"), "BS-CFG-ANCHOR", NULL},
    /* tags */
    {T("a: !!int 3\n"), "BS-CFG-TAG", "t.yaml:1:4"},
    {T("a: !!python/object/apply:os.system [ls]\n"), "BS-CFG-TAG", NULL},
    {T("a: !x {}\n"), "BS-CFG-TAG", NULL},
    {T("a: ! 3\n"), "BS-CFG-TAG", NULL},
    {T("a: !<tag:yaml.org,2002:str> 3\n"), "BS-CFG-TAG", NULL},
    {T("!!map {a: 1}\n"), "BS-CFG-TAG", NULL},
    {T("!!str a: 1\n"), "BS-CFG-TAG", NULL},
    {T("a: !e!x 3\n"), "BS-CFG-TAG", NULL},
    {T("%TAG !e! tag:example.com,2000:\n---\na: 1\n"), "BS-CFG-TAG", NULL},
    {T("a: !!binary aGk=\n"), "BS-CFG-TAG", NULL},
    /* merge keys and duplicates */
    {T("a:\n  <<: {b: 1}\n"), "BS-CFG-MERGE", "t.yaml:2:3"},
    {T("\"<<\": 1\n"), "BS-CFG-MERGE", NULL},
    {T("a: 1\nb: 2\na: 3\n"), "BS-CFG-DUP", "t.yaml:3:1"},
    {T("{a: 1, a: 1}\n"), "BS-CFG-DUP", NULL},
    {T("a:\n  b: 1\n  'b': 2\n"), "BS-CFG-DUP", NULL},
    {T("1: x\n\"1\": y\n"), "BS-CFG-DUP", NULL},
    {T("a: [{k: 1, k: 2}]\n"), "BS-CFG-DUP", NULL},
    {T("a: {b: 1}\nc: {b: 1}\n"), "", NULL},
    {T("a: [{k: 1}, {k: 2}]\n"), "", NULL},
    /* roots and keys */
    {T("- a\n- b\n"), "BS-CFG-ROOT", "t.yaml:1:1"},
    {T("just text\n"), "BS-CFG-ROOT", NULL},
    {T("42\n"), "BS-CFG-ROOT", NULL},
    {T("\"\"\n"), "BS-CFG-ROOT", NULL},
    {T("null\n"), "BS-CFG-ROOT", NULL},
    {T("[a: 1]\n"), "BS-CFG-ROOT", NULL},
    {T("[a]: 1\n"), "BS-CFG-TYPE", NULL},
    {T("? {a: 1}\n: 2\n"), "BS-CFG-TYPE", NULL},
    {T("?\n: 1\n"), "BS-CFG-TYPE", NULL},
    {T("'': 1\n"), "BS-CFG-TYPE", NULL},
    /* several documents */
    {T("a: 1\n---\nb: 2\n"), "BS-CFG-MULTI", "t.yaml:2:1"},
    {T("---\n---\n"), "BS-CFG-MULTI", NULL},
    {T("a: 1\n...\n---\na: 2\n"), "BS-CFG-MULTI", NULL},
    /* bytes */
    {T("\xef\xbb\xbf"
       "a: 1\n"),
     "BS-CFG-ENCODING", "t.yaml:1:1"},
    {T("\xff\xfe"
       "a\0:\0"),
     "BS-CFG-ENCODING", NULL},
    {T("\xfe\xff\0a\0:"), "BS-CFG-ENCODING", NULL},
    {T("a: 1\nb: \xef\xbb\xbf\n"), "BS-CFG-ENCODING", "t.yaml:2:4"},
    {T("a: \0 1\n"), "BS-CFG-ENCODING", "t.yaml:1:4"},
    {T("a: 1\n\0"), "BS-CFG-ENCODING", NULL},
    {T("a: \"x\\0y\"\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \x80\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \xc0\xaf\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \xed\xa0\x80\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \xf5\x80\x80\x80\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \xc3"), "BS-CFG-ENCODING", NULL},
    {T("a: x\x1b[31m\n"), "BS-CFG-ENCODING", NULL},
    {T("a: x\x7f\n"), "BS-CFG-ENCODING", NULL},
    {T("a: \xef\xbf\xbe\n"), "BS-CFG-ENCODING", NULL},
    {T("a: caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n"), "", NULL},
    /* syntax */
    {T("a:\n\tb: 1\n"), "BS-CFG-SYNTAX", "t.yaml:2:1"},
    {T("\ta: 1\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: [1, 2\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: {b: 1\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: \"x\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: 'x\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: 1\n b: 2\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: b: c\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: ]\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: @x\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: `x`\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: \"\\q\"\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: \"\\ud800\"\n"), "BS-CFG-SYNTAX", NULL},
    {T("%YAML 9.9\n---\na: 1\n"), "BS-CFG-SYNTAX", NULL},
    {T("a: |x\n  y\n"), "BS-CFG-SYNTAX", NULL},
    {T("}\n"), "BS-CFG-SYNTAX", NULL},
    {T("- a\nb: 1\n"), "BS-CFG-ROOT", NULL},
    {T(": 1\n"), "BS-CFG-SYNTAX", NULL},
    /* accepted */
    {T(""), "", NULL},
    {T("\n\n# only a comment\n"), "", NULL},
    {T("---\n"), "", NULL},
    {T("---\n...\n"), "", NULL},
    {T("{}\n"), "", NULL},
    {T("%YAML 1.1\n---\na: 1\n...\n"), "", NULL},
    {T("a: 1\r\nb: 2\r\n"), "", NULL},
    {T("a: .nan\nb: 0x10\nc: 1e999\n"), "", NULL}, /* texts: refused by the typed reads */
};
enum { ROWS = sizeof rows / sizeof rows[0] };

START_TEST(hostile) {
  bs_error err = BS_ERROR_INIT;
  bs_node *root = (bs_node *)&err;
  /* an exact copy on the heap, so that a read past the end is seen by the sanitizer */
  char *copy = malloc(rows[_i].size > 0 ? rows[_i].size : 1);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, rows[_i].text, rows[_i].size);
  int32_t rc = bs_config_parse("t.yaml", copy, rows[_i].size, &root, &err);
  free(copy);
  if (rows[_i].id[0] == '\0') {
    ck_assert_msg(rc == BS_OK, "row %d: %s %s %s", _i, err.id, err.where, err.message);
    ck_assert_ptr_nonnull(root);
    ck_assert_uint_eq(root->kind, BS_NODE_MAP);
  } else {
    ck_assert_msg(rc == BS_CONFIG, "row %d '%s': accepted", _i, rows[_i].text);
    ck_assert_msg(strcmp(err.id, rows[_i].id) == 0, "row %d '%s': %s (%s)", _i, rows[_i].text, err.id,
                  err.message);
    ck_assert_int_eq(err.code, BS_CONFIG);
    ck_assert_int_eq(bs_status_exit_code(rc), 3);
    ck_assert_msg(strncmp(err.where, "t.yaml:", 7) == 0, "row %d: place '%s'", _i, err.where);
    if (rows[_i].where != NULL) ck_assert_str_eq(err.where, rows[_i].where);
    ck_assert(err.message[0] != '\0');
    ck_assert_ptr_null(root);
    ck_assert_int_eq(bs_config_parse("t.yaml", rows[_i].text, rows[_i].size, &root, NULL), BS_CONFIG);
  }
  bs_config_free(root);
}
END_TEST

START_TEST(sixty_rows) {
  int refused = 0;
  for (int i = 0; i < ROWS; i++) refused += rows[i].id[0] != '\0';
  ck_assert_int_ge(refused, 60);
}
END_TEST

static const char *parse_id(const bs_text *text) {
  static bs_error err;
  bs_node *root = NULL;
  ck_assert(!text->failed);
  bs_error_clear(&err);
  int32_t rc = bs_config_parse("cap.yaml", text->data, text->size, &root, &err);
  bs_config_free(root);
  return rc == BS_OK ? "" : err.id;
}

START_TEST(cap_depth) {
  for (int flow = 0; flow < 3; flow++) {
    for (int depth = 15; depth <= 17; depth++) {
      bs_text t = {0};
      for (int i = 0; i < depth; i++) {
        if (flow == 0) bs_text_printf(&t, "%*sk:\n", i, "");
        if (flow == 1) bs_text_printf(&t, "{k: ");
        if (flow == 2) bs_text_printf(&t, i == 0 ? "{k: " : "[");
      }
      bs_text_printf(&t, "%*sv", depth, "");
      for (int i = depth; flow > 0 && i-- > 0;) bs_text_printf(&t, flow == 2 && i > 0 ? "]" : "}");
      bs_text_printf(&t, "\n");
      ck_assert_str_eq(parse_id(&t), depth <= 16 ? "" : "BS-CFG-DEPTH");
      bs_text_free(&t);
    }
  }
  /* far deeper ends at once, too */
  bs_text t = {0};
  bs_text_printf(&t, "a: ");
  for (int i = 0; i < 500000; i++) bs_text_append(&t, "[", 1);
  ck_assert_str_eq(parse_id(&t), "BS-CFG-DEPTH");
  bs_text_free(&t);
}
END_TEST

START_TEST(cap_nodes) {
  for (int n = 9999; n <= 10001; n++) {
    bs_text list = {0}, map = {0};
    bs_text_printf(&list, "l:\n"); /* the root and l are two */
    for (int i = 2; i < n; i++) bs_text_printf(&list, "- 1\n");
    for (int i = 1; i < n; i++) bs_text_printf(&map, "k%d: 1\n", i);
    ck_assert_str_eq(parse_id(&list), n <= 10000 ? "" : "BS-CFG-NODES");
    ck_assert_str_eq(parse_id(&map), n <= 10000 ? "" : "BS-CFG-NODES");
    bs_text_free(&list);
    bs_text_free(&map);
  }
}
END_TEST

START_TEST(cap_scalar) {
  for (int n = 4095; n <= 4097; n++) {
    bs_text value = {0}, quoted = {0}, key = {0};
    bs_text_printf(&value, "a: ");
    bs_text_printf(&quoted, "a: \"");
    bs_text_printf(&key, "? ");
    for (int i = 0; i < n; i++) {
      bs_text_append(&value, "x", 1);
      bs_text_append(&quoted, "x", 1);
      bs_text_append(&key, "x", 1);
    }
    bs_text_printf(&value, "\n");
    bs_text_printf(&quoted, "\"\n");
    bs_text_printf(&key, "\n: 1\n");
    const char *want = n <= 4096 ? "" : "BS-CFG-SCALAR";
    ck_assert_str_eq(parse_id(&value), want);
    ck_assert_str_eq(parse_id(&quoted), want);
    ck_assert_str_eq(parse_id(&key), want);
    bs_text_free(&value);
    bs_text_free(&quoted);
    bs_text_free(&key);
  }
}
END_TEST

static void write_file(const char *path, const char *data, size_t size) {
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(data, 1, size, f), size);
  ck_assert_int_eq(fclose(f), 0);
}

/* A folder of this test, removed by its end. */
static char folder[64];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/bs_test_config_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

START_TEST(cap_bytes) {
  make_folder();
  for (int over = -1; over <= 1; over++) {
    bs_text t = {0};
    bs_text_printf(&t, "a: 1\n#");
    size_t want = (1u << 20) + (size_t)over;
    while (t.size < want - 1)
      bs_text_append(&t, "................", want - 1 - t.size < 16 ? want - 1 - t.size : 16);
    bs_text_printf(&t, "\n");
    ck_assert_uint_eq(t.size, want);
    ck_assert_str_eq(parse_id(&t), over <= 0 ? "" : "BS-CFG-SIZE");
    write_file(in_folder("big.yaml"), t.data, t.size);
    bs_error err = BS_ERROR_INIT;
    bs_node *root = NULL;
    int32_t rc = bs_config_load(in_folder("big.yaml"), &root, &err);
    ck_assert_int_eq(rc, over <= 0 ? BS_OK : BS_CONFIG);
    if (over > 0) ck_assert_str_eq(err.id, "BS-CFG-SIZE");
    bs_config_free(root);
    bs_text_free(&t);
  }
  unlink(in_folder("big.yaml"));
  rmdir(folder);
}
END_TEST

static void expect_unreadable(const char *path, const char *word, int32_t code) {
  bs_error err = BS_ERROR_INIT;
  bs_node *root = NULL;
  ck_assert_int_eq(bs_config_load(path, &root, &err), code);
  ck_assert_str_eq(err.id, "BS-CFG-READ");
  ck_assert_str_eq(err.where, path);
  ck_assert_msg(strstr(err.message, word) != NULL, "'%s' lacks '%s'", err.message, word);
  ck_assert_ptr_null(root);
}

START_TEST(no_files) {
  make_folder();
  expect_unreadable(in_folder("absent.yaml"), "errno 2", BS_INPUT);
  expect_unreadable(folder, "folder", BS_CONFIG);
  ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
  expect_unreadable(in_folder("fifo"), "FIFO", BS_CONFIG);
  expect_unreadable("/dev/zero", "device", BS_CONFIG);
  expect_unreadable("/dev/null", "device", BS_CONFIG);
  ck_assert_int_eq(symlink("loop", in_folder("loop")), 0);
  expect_unreadable(in_folder("loop"), "errno 40", BS_CONFIG);
  unlink(in_folder("loop"));
  unlink(in_folder("fifo"));
  rmdir(folder);
}
END_TEST

START_TEST(loads_a_file) {
  make_folder();
  bs_error err = BS_ERROR_INIT;
  bs_node *root = NULL;
  write_file(in_folder("a.yaml"), "model:\n  N: 7\n", 14);
  ck_assert_int_eq(bs_config_load(in_folder("a.yaml"), &root, &err), BS_OK);
  int64_t n = 0;
  ck_assert_int_eq(bs_config_i64(root, "model.N", 1, &n, &err), BS_OK);
  ck_assert_int_eq(n, 7);
  char place[128], want[160];
  bs_config_place(bs_config_find(root, "model.N"), place, sizeof place);
  snprintf(want, sizeof want, "%s:2:3", in_folder("a.yaml"));
  ck_assert_str_eq(place, want);
  bs_config_free(root);
  write_file(in_folder("a.yaml"), "", 0);
  ck_assert_int_eq(bs_config_load(in_folder("a.yaml"), &root, &err), BS_OK);
  ck_assert_uint_eq(root->kind, BS_NODE_MAP);
  ck_assert_ptr_null(root->first);
  bs_config_free(root);
  unlink(in_folder("a.yaml"));
  rmdir(folder);
}
END_TEST

int main(void) {
  const test_case tests[] = {{hostile, ROWS}, {sixty_rows}, {cap_depth},    {cap_nodes}, {cap_scalar},
                             {cap_bytes},     {no_files},   {loads_a_file}, {0}};
  return run_tests("config_yaml", tests, (test_setup){0});
}
