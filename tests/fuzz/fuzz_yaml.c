/* SPDX-License-Identifier: MIT
 * fuzz_yaml.c - libFuzzer target of the config reader: any bytes are either refused with an id and a place,
 * or give a tree within the caps that prints to text which parses back to an equal tree. The same bytes
 * also go through --set and the typed reads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "fuzz_yaml: line %d: %s does not hold\n", __LINE__, #condition); \
      abort();                                                                         \
    }                                                                                  \
  } while (0)

static int readable(const char *text) {
  double d;
  int b;
  return bs_parse_f64(text, &d) || bs_parse_bool(text, &b);
}

static int same(const bs_node *a, const bs_node *b) {
  if (a->kind != b->kind || (a->key == NULL) != (b->key == NULL)) return 0;
  if (a->key != NULL && strcmp(a->key, b->key) != 0) return 0;
  if (a->kind == BS_NODE_SCALAR) {
    if (strcmp(a->text, b->text) != 0) return 0;
    if (readable(a->text) && a->quoted != b->quoted) return 0;
  }
  const bs_node *x = a->first, *y = b->first;
  for (; x != NULL && y != NULL; x = x->next, y = y->next) {
    if (!same(x, y)) return 0;
  }
  return x == NULL && y == NULL;
}

/* Nodes of a tree; its depth of maps and lists in *deepest. */
static int measure(const bs_node *node, int depth, int *deepest) {
  int count = 1;
  if (node->kind == BS_NODE_MAP || node->kind == BS_NODE_LIST) depth++;
  if (depth > *deepest) *deepest = depth;
  CHECK((node->kind == BS_NODE_SCALAR) == (node->text != NULL));
  CHECK(node->text == NULL || strlen(node->text) <= 4096);
  CHECK(node->first == NULL || node->kind == BS_NODE_MAP || node->kind == BS_NODE_LIST);
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    CHECK((child->key != NULL) == (node->kind == BS_NODE_MAP));
    count += measure(child, depth, deepest);
  }
  return count;
}

static void read_all(const bs_node *root) {
  for (const bs_node *child = root->first; child != NULL; child = child->next) {
    int64_t i = 0;
    double d = 0;
    int b = 0;
    const char *s = NULL;
    (void)bs_config_i64(root, child->key, 0, &i, NULL);
    if (bs_config_f64(root, child->key, 0, &d, NULL) == BS_OK) CHECK(isfinite(d));
    if (bs_config_bool(root, child->key, 0, &b, NULL) == BS_OK) CHECK(b == 0 || b == 1);
    (void)bs_config_str(root, child->key, "", &s, NULL);
  }
}

static void round_trip(const bs_node *root) {
  bs_text text = {0};
  bs_error err = BS_ERROR_INIT;
  bs_node *again = NULL;
  bs_config_print(root, &text);
  CHECK(!text.failed);
  if (text.size <= 1u << 20) { /* escapes may make the print of a legal file longer than a legal file */
    int32_t rc = bs_config_parse("again.yaml", text.data, text.size, &again, &err);
    if (rc != BS_OK) fprintf(stderr, "%s %s %s in\n%s\n", err.id, err.where, err.message, text.data);
    CHECK(rc == BS_OK);
    CHECK(same(root, again));
  }
  bs_config_free(again);
  bs_text_free(&text);
}

static void merge_with_self(const bs_node *root) {
  bs_node *copy = bs_config_clone(root);
  CHECK(copy != NULL && same(root, copy));
  CHECK(bs_config_merge(copy, root, NULL) == BS_OK);
  CHECK(same(root, copy));
  bs_config_free(copy);
}

static void set_value(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  bs_node *root = bs_config_new_map();
  CHECK(text != NULL && root != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  if (bs_config_set(root, "a.b", text, NULL) == BS_OK) round_trip(root);
  if (bs_config_set(root, text, "1", NULL) == BS_OK) round_trip(root);
  if (bs_config_set_text(root, "t", text, NULL) == BS_OK) {
    CHECK(strcmp(bs_config_find(root, "t")->text, text) == 0);
    round_trip(root);
  }
  bs_config_free(root);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_node *root = NULL;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_config_parse("fuzz.yaml", (const char *)data, size, &root, &err);
  if (rc == BS_OK) {
    int deepest = 0;
    CHECK(root->kind == BS_NODE_MAP);
    CHECK(measure(root, 0, &deepest) <= 10000 && deepest <= 16);
    round_trip(root);
    merge_with_self(root);
    read_all(root);
  } else {
    CHECK(rc == BS_CONFIG && root == NULL);
    CHECK(strncmp(err.id, "BS-CFG-", 7) == 0 && err.where[0] != '\0' && err.message[0] != '\0');
  }
  bs_config_free(root);
  if (size <= 8192) set_value(data, size);
  return 0;
}
