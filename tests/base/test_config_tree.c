/* SPDX-License-Identifier: MIT
 * test_config_tree.c - the config tree: merging (known answer K22), paths, --set, typed reads, and
 * printing that parses back to an equal tree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_node *parsed(const char *yaml) {
  bs_node *root = NULL;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_config_parse("t.yaml", yaml, strlen(yaml), &root, &err);
  ck_assert_msg(rc == BS_OK, "%.300s: %s %s", yaml, err.where, err.message);
  return root;
}

static void expect_print(const bs_node *root, const char *want) {
  bs_text t = {0};
  bs_config_print(root, &t);
  ck_assert_str_eq(t.data, want);
  bs_text_free(&t);
}

/* Equal for every reader: kinds, keys, texts, and whether a text can be read as a number or truth value. */
static int same(const bs_node *a, const bs_node *b) {
  if (a->kind != b->kind || (a->key == NULL) != (b->key == NULL)) return 0;
  if (a->key != NULL && strcmp(a->key, b->key) != 0) return 0;
  if (a->kind == BS_NODE_SCALAR) {
    double d;
    int t;
    if (strcmp(a->text, b->text) != 0) return 0;
    int readable = bs_parse_f64(a->text, &d) || bs_parse_bool(a->text, &t);
    if (readable && a->quoted != b->quoted) return 0;
  }
  const bs_node *x = a->first, *y = b->first;
  for (; x != NULL && y != NULL; x = x->next, y = y->next) {
    if (!same(x, y)) return 0;
  }
  return x == NULL && y == NULL;
}

static void expect_round_trip(const bs_node *root) {
  bs_text t = {0};
  bs_node *again = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_config_print(root, &t);
  ck_assert(!t.failed);
  int32_t rc = bs_config_parse("again.yaml", t.data, t.size, &again, &err);
  ck_assert_msg(rc == BS_OK, "%s %s in\n%.500s", err.where, err.message, t.data);
  ck_assert_msg(same(root, again), "not equal after\n%.500s", t.data);
  bs_config_free(again);
  bs_text_free(&t);
}

START_TEST(k22_merge) {
  bs_node *a = parsed("{a: 1, b: {c: 2}}"), *b = parsed("{b: {c: 3, d: 4}, e: 5}"), *c = parsed("{b: 7}");
  bs_node *base = bs_config_clone(a);
  ck_assert_int_eq(bs_config_merge(base, b, NULL), BS_OK);
  expect_print(base, "a: 1\nb:\n  c: 3\n  d: 4\ne: 5\n");
  ck_assert_int_eq(bs_config_merge(base, c, NULL), BS_OK);
  expect_print(base, "a: 1\nb: 7\ne: 5\n");
  expect_print(a, "a: 1\nb:\n  c: 2\n"); /* the inputs are what they were */
  expect_print(b, "b:\n  c: 3\n  d: 4\ne: 5\n");
  expect_print(c, "b: 7\n");
  bs_config_free(base);
  bs_config_free(a);
  bs_config_free(b);
  bs_config_free(c);
}
END_TEST

START_TEST(merge_replaces_all_but_maps) {
  static const struct {
    const char *base, *over, *want;
  } merges[] = {
      {"{a: [1, 2]}", "{a: [3]}", "a:\n  - 3\n"},
      {"{a: {b: 1}}", "{a: [3]}", "a:\n  - 3\n"},
      {"{a: {b: 1}}", "{a: null}", "a:\n  b: 1\n"}, /* a section without keys changes nothing */
      {"{a: {b: {c: 1}}}", "{a: {b: }}", "a:\n  b:\n    c: 1\n"},
      {"{a: {b: 1}}", "{a: {b: null}}", "a:\n  b: null\n"},
      {"{a: [1]}", "{a: null}", "a: null\n"},
      {"{a: 1}", "{a: {b: 1}}", "a:\n  b: 1\n"},
      {"{a: null}", "{a: {b: 1}}", "a:\n  b: 1\n"},
      {"{a: {b: 1}}", "{a: {}}", "a:\n  b: 1\n"},
      {"{a: 1}", "{}", "a: 1\n"},
      {"{}", "{a: 1}", "a: 1\n"},
      {"{z: 1, a: 2}", "{b: 3, z: 4}", "z: 4\na: 2\nb: 3\n"},
      {"{a: {b: {c: 1, d: 2}}}", "{a: {b: {d: 3}}}", "a:\n  b:\n    c: 1\n    d: 3\n"},
  };
  for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
    bs_node *base = parsed(merges[i].base), *over = parsed(merges[i].over);
    ck_assert_int_eq(bs_config_merge(base, over, NULL), BS_OK);
    expect_print(base, merges[i].want);
    bs_config_free(over);
    expect_print(base, merges[i].want); /* nothing is shared with over */
    bs_config_free(base);
  }
  bs_node list = {0}, *map = parsed("{a: 1}");
  bs_error err = BS_ERROR_INIT;
  list.kind = BS_NODE_LIST;
  ck_assert_int_eq(bs_config_merge(map, &list, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-CFG-ROOT");
  bs_config_free(map);
}
END_TEST

START_TEST(merge_keeps_the_node_cap) {
  bs_node *trees[2];
  for (int k = 0; k < 2; k++) {
    bs_text t = {0};
    for (int i = 0; i < 6000; i++) bs_text_printf(&t, "k%d_%d: 1\n", k, i);
    trees[k] = parsed(t.data);
    bs_text_free(&t);
  }
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_config_merge(trees[0], trees[1], &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-CFG-NODES");
  bs_config_free(trees[0]);
  bs_config_free(trees[1]);
}
END_TEST

START_TEST(find) {
  bs_node *root = parsed("a: {b: {c: 5}, bb: 6}\nlist: [1]\n");
  ck_assert_str_eq(bs_config_find(root, "a.b.c")->text, "5");
  ck_assert_str_eq(bs_config_find(root, "a.bb")->text, "6");
  ck_assert_ptr_eq(bs_config_find(root, ""), root);
  ck_assert_ptr_null(bs_config_find(root, "a.b.c.d"));
  ck_assert_ptr_null(bs_config_find(root, "a.x"));
  ck_assert_ptr_null(bs_config_find(root, "list.0"));
  ck_assert_ptr_null(bs_config_find(root, "a.b.cc"));
  ck_assert_ptr_null(bs_config_find(NULL, "a"));
  bs_config_free(root);
}
END_TEST

START_TEST(set) {
  bs_node *root = bs_config_new_map();
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_config_set(root, "model.N", "4096", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "model.B", "64", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "model.N", "77", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "sweep.values", "[1, 2, {a: b}]", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "w", "x/model.safetensors#encoder.layer.0", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "e", "", &err), BS_OK);
  ck_assert_int_eq(bs_config_set(root, "e.f", "1", &err), BS_OK); /* null gives way to a map */
  ck_assert_int_eq(bs_config_set_text(root, "t", "null", &err), BS_OK);
  ck_assert_int_eq(bs_config_set_text(root, "u", "a: b\n\"c\"", &err), BS_OK);
  ck_assert_int_eq(bs_config_set_text(root, "v", "12", &err), BS_OK);
  expect_print(
      root,
      "model:\n  N: 77\n  B: 64\nsweep:\n  values:\n    - 1\n    - 2\n    - a: b\n"
      "w: x/model.safetensors#encoder.layer.0\ne:\n  f: 1\nt: \"null\"\nu: \"a: b\\n\\\"c\\\"\"\nv: 12\n");
  expect_round_trip(root);
  int64_t v = 0;
  ck_assert_int_eq(bs_config_i64(root, "v", 0, &v, &err), BS_OK);
  ck_assert_int_eq(v, 12);
  char place[64];
  bs_config_place(bs_config_find(root, "model.N"), place, sizeof place);
  ck_assert_str_eq(place, "--set model.N:1:1");
  bs_config_free(root);
}
END_TEST

/* A mapping that is set does what a merged file does. */
START_TEST(set_merges_mappings) {
  static const struct {
    const char *base, *path, *value, *want;
  } rows[] = {
      {"{a: {b: 1, c: 2}}", "a", "{c: 3, d: 4}", "a:\n  b: 1\n  c: 3\n  d: 4\n"},
      {"{a: {b: 1}}", "a", "{}", "a:\n  b: 1\n"},
      {"{a: {b: 1}}", "a", "null", "a:\n  b: 1\n"},
      {"{a: {b: 1}}", "a", "", "a:\n  b: 1\n"},
      {"{a: {b: {c: 1, d: 2}}}", "a", "{b: {d: 5}}", "a:\n  b:\n    c: 1\n    d: 5\n"},
      {"{a: {b: {c: 1, d: 2}}}", "a.b", "{d: 5}", "a:\n  b:\n    c: 1\n    d: 5\n"},
      {"{a: {b: 1}}", "a.b", "null", "a:\n  b: null\n"},
      {"{a: {b: 1}}", "a", "7", "a: 7\n"},
      {"{a: {b: 1}}", "a", "[7]", "a:\n  - 7\n"},
      {"{a: 7}", "a", "{b: 1}", "a:\n  b: 1\n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    bs_node *root = parsed(rows[i].base);
    ck_assert_int_eq(bs_config_set(root, rows[i].path, rows[i].value, NULL), BS_OK);
    expect_print(root, rows[i].want);
    expect_round_trip(root);
    bs_config_free(root);
  }
}
END_TEST

START_TEST(set_refuses) {
  static const struct {
    const char *path, *value, *id;
  } bad[] = {
      {"", "1", "BS-CFG-PATH"},
      {"a..b", "1", "BS-CFG-PATH"},
      {".a", "1", "BS-CFG-PATH"},
      {"a.", "1", "BS-CFG-PATH"},
      {"a.<<", "1", "BS-CFG-PATH"},
      {"a\x01", "1", "BS-CFG-PATH"},
      {"\xff", "1", "BS-CFG-PATH"},
      {"scalar.x", "1", "BS-CFG-TYPE"},
      {"list.x", "1", "BS-CFG-TYPE"},
      {"x", "*a", "BS-CFG-ALIAS"},
      {"x", "!!int 1", "BS-CFG-TAG"},
      {"x", "[1", "BS-CFG-SYNTAX"},
      {"x", "{a: 1, a: 2}", "BS-CFG-DUP"},
      {"x", "\xff", "BS-CFG-ENCODING"},
      {"x", "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", "BS-CFG-DEPTH"}, /* 16 deep, below the root 17 */
      {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q", "1", "BS-CFG-DEPTH"},
  };
  const char *before = "scalar: 5\nlist:\n  - 1\n";
  bs_node *root = parsed(before);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_config_set(root, bad[i].path, bad[i].value, &err) == BS_CONFIG, "%s=%s", bad[i].path,
                  bad[i].value);
    ck_assert_msg(strcmp(err.id, bad[i].id) == 0, "%s=%s: %s %s", bad[i].path, bad[i].value, err.id,
                  err.message);
    expect_print(root, before);
  }
  bs_error err = BS_ERROR_INIT;
  char big[4099];
  memset(big, 'x', sizeof big);
  big[4096] = '\0';
  ck_assert_int_eq(bs_config_set_text(root, "x", big, &err), BS_OK);
  big[4096] = 'x';
  big[4097] = '\0';
  ck_assert_int_eq(bs_config_set_text(root, "x", big, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-CFG-SCALAR");
  ck_assert_int_eq(bs_config_set_text(root, "x", "\xc0\x80", &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-CFG-ENCODING");
  ck_assert_int_eq(bs_config_set(root, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p", "1", &err), BS_OK); /* 16 */
  expect_round_trip(root);
  bs_config_free(root);
}
END_TEST

/* Each text as a value, and which typed reads take it. */
START_TEST(typed_reads) {
  static const struct {
    const char *yaml;
    int is_i64, is_f64, is_bool, is_str;
  } reads[] = {
      {"5", 1, 1, 0, 1},
      {"-5", 1, 1, 0, 1},
      {"+5", 1, 1, 0, 1},
      {"0", 1, 1, 1, 1},
      {"1", 1, 1, 1, 1},
      {"9223372036854775807", 1, 1, 0, 1},
      {"-9223372036854775808", 1, 1, 0, 1},
      {"9223372036854775808", 0, 1, 0, 1},
      {"007", 0, 0, 0, 1},
      {"010", 0, 0, 0, 1},
      {"00.5", 0, 0, 0, 1},
      {"-01", 0, 0, 0, 1},
      {"0x10", 0, 0, 0, 1},
      {"0o7", 0, 0, 0, 1},
      {"1_000", 0, 0, 0, 1},
      {"5k", 1, 0, 0, 1},
      {"5x", 0, 0, 0, 1},
      {"k", 0, 0, 0, 1},
      {"5 5", 0, 0, 0, 1},
      {"1.5", 0, 1, 0, 1},
      {"1e3", 0, 1, 0, 1},
      {"1e999", 0, 0, 0, 1},
      {"-1e999", 0, 0, 0, 1},
      {"1e", 0, 0, 0, 1},
      {"1.5.5", 0, 0, 0, 1},
      {".5", 0, 1, 0, 1},
      {"5.", 0, 1, 0, 1},
      {".nan", 0, 0, 0, 1},
      {"nan", 0, 0, 0, 1},
      {"NaN", 0, 0, 0, 1},
      {".inf", 0, 0, 0, 1},
      {"-.inf", 0, 0, 0, 1},
      {"inf", 0, 0, 0, 1},
      {"infinity", 0, 0, 0, 1},
      {"0x1p3", 0, 0, 0, 1},
      {"1,5", 0, 0, 0, 1},
      {"true", 0, 0, 1, 1},
      {"False", 0, 0, 1, 1},
      {"on", 0, 0, 1, 1},
      {"no", 0, 0, 1, 1},
      {"maybe", 0, 0, 0, 1},
      {"\"5\"", 0, 0, 0, 1},
      {"'true'", 0, 0, 0, 1},
      {"[5]", 0, 0, 0, 0},
      {"{a: 5}", 0, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
    bs_text t = {0};
    bs_text_printf(&t, "s:\n  x: %s\n", reads[i].yaml);
    bs_node *root = parsed(t.data);
    bs_error err = BS_ERROR_INIT;
    int64_t n = -77;
    double d = -77;
    int b = -77;
    const char *s = NULL;
    int got_i64 = bs_config_i64(root, "s.x", 1, &n, &err) == BS_OK;
    int got_f64 = bs_config_f64(root, "s.x", 1, &d, &err) == BS_OK;
    int got_bool = bs_config_bool(root, "s.x", 1, &b, &err) == BS_OK;
    int got_str = bs_config_str(root, "s.x", "", &s, &err) == BS_OK;
    ck_assert_msg(got_i64 == reads[i].is_i64, "i64 of %s: %d", reads[i].yaml, got_i64);
    ck_assert_msg(got_f64 == reads[i].is_f64, "f64 of %s: %d", reads[i].yaml, got_f64);
    ck_assert_msg(got_bool == reads[i].is_bool, "bool of %s: %d", reads[i].yaml, got_bool);
    ck_assert_msg(got_str == reads[i].is_str, "str of %s: %d", reads[i].yaml, got_str);
    if (!got_i64) ck_assert_int_eq(n, -77); /* untouched */
    if (!got_f64) ck_assert(d == -77);
    if (!got_bool) ck_assert_int_eq(b, -77);
    ck_assert(isfinite(d));
    if (!got_i64 || !got_f64 || !got_bool || !got_str) {
      ck_assert_str_eq(err.id, "BS-CFG-TYPE");
      ck_assert_str_eq(err.where, "t.yaml:2:3");
      ck_assert_ptr_nonnull(strstr(err.message, "s.x"));
    }
    bs_config_free(root);
    bs_text_free(&t);
  }
}
END_TEST

START_TEST(defaults) {
  bs_node *root = parsed("a: null\nb: ~\nc:\nm: 5\n");
  static const char *const absent[] = {"a", "b", "c", "x", "x.y"};
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < 5; i++) {
    int64_t n = 0;
    double d = 0;
    int b = 0;
    const char *s = "";
    ck_assert_int_eq(bs_config_i64(root, absent[i], -3, &n, &err), BS_OK);
    ck_assert_int_eq(bs_config_f64(root, absent[i], 2.5, &d, &err), BS_OK);
    ck_assert_int_eq(bs_config_bool(root, absent[i], 1, &b, &err), BS_OK);
    ck_assert_int_eq(bs_config_str(root, absent[i], NULL, &s, &err), BS_OK);
    ck_assert_int_eq(n, -3);
    ck_assert(d == 2.5);
    ck_assert_int_eq(b, 1);
    ck_assert_ptr_null(s);
  }
  /* a setting below a value is not silently the default */
  int64_t n = 0;
  ck_assert_int_eq(bs_config_i64(root, "m.N", 1, &n, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-CFG-TYPE");
  bs_config_free(root);
}
END_TEST

START_TEST(round_trips) {
  static const char *const texts[] = {
      "{}",
      "a: {}\nb: []\nc: null\nd: ''\n",
      "a: [[1, [2, []]], {x: {y: [z]}}, null, '']\n",
      "a: \"line\\nbreak\\ttab \\\"quote\\\" \\\\ back \\x07 \\x85 \\u2028 \\ufeff \\e end \"\n",
      "a: |\n  block\n   text\n\n",
      "a: >-\n  folded\n  text\n",
      "'key with: colon': 1\n'# no comment': 2\n' lead': 3\n'-': 4\n'- x': 5\n'?': 6\n'---': 7\n'...': 8\n",
      "a: '5'\nb: 5\nc: 'true'\nd: true\ne: 'null'\nf: '~'\ng: '1e5'\nh: 0011\n",
      "a: x#y\nb: 'x #y'\nc: 'x: y'\nd: x:y\ne: 'x:'\nf: http://x/y?z=1&b=[2]\n",
      "a: caf\xc3\xa9\n\xc3\xa9: 1\n",
      "a: '@x'\nb: '`x'\nc: '%x'\nd: '!x'\ne: '&x'\nf: '*x'\ng: ']x'\nh: ',x'\ni: '\"'\n",
      "a: -1\nb: +1\nc: .5\nd: -.5\ne: '-'\nf: '.'\ng: ..\nh: -x\ni: '--- x'\nj: =\nk: '|'\nl: '>'\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    bs_node *root = parsed(texts[i]);
    expect_round_trip(root);
    bs_config_free(root);
  }
}
END_TEST

/* Long and awkward keys and values, as nested map keys, values and list items. */
START_TEST(round_trip_long) {
  static const char *const units[] = {"x", "x ", "\\\"", "\\x01", "\\u00e9", "\\n", ": ", "\\u2029"};
  static const int counts[] = {1, 199, 201, 255, 1023, 1025, 1300};
  for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
      bs_text word = {0}, t = {0};
      for (int i = 0; i < counts[c]; i++) bs_text_printf(&word, "%s", units[u]);
      bs_text_printf(&t, "l:\n  - ? \"k%s\"\n    : \"%s\"\n  - \"%s\"\nm:\n  ? \"k%s\"\n  : n: \"%s\"\n",
                     word.data, word.data, word.data, word.data, word.data);
      bs_node *root = parsed(t.data);
      expect_round_trip(root);
      bs_config_free(root);
      bs_text_free(&word);
      bs_text_free(&t);
    }
  }
}
END_TEST

START_TEST(clone_is_deep) {
  bs_node *root = parsed("a: {b: [1, 'x', null]}\n"), *copy = bs_config_clone(root);
  ck_assert(same(root, copy));
  ck_assert_int_eq(bs_config_set(copy, "a.b", "9", NULL), BS_OK);
  ck_assert(!same(root, copy));
  bs_config_free(copy);
  expect_print(root, "a:\n  b:\n    - 1\n    - \"x\"\n    - null\n");
  bs_config_free(root);
  ck_assert_ptr_null(bs_config_clone(NULL));
}
END_TEST

int main(void) {
  const test_case tests[] = {{k22_merge},
                             {merge_replaces_all_but_maps},
                             {merge_keeps_the_node_cap},
                             {find},
                             {set},
                             {set_merges_mappings},
                             {set_refuses},
                             {typed_reads},
                             {defaults},
                             {round_trips},
                             {round_trip_long},
                             {clone_is_deep},
                             {0}};
  return run_tests("config_tree", tests, (test_setup){0});
}
