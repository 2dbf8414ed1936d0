/* SPDX-License-Identifier: MIT
 * tree.c - see tree.h. Nodes lie in one array, texts in one copy of the whole text. */
#include "sim/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

typedef struct reader {
  sim_tree *tree;
  const char *begin, *at;
  char *out; /* where the next text goes */
  bs_error *err;
} reader;

static int32_t wrong(const reader *r, const char *wanted) {
  return bs_error_set(r->err, BS_CONFIG, "BS-DEVICE-TEXT", "the text of a device, character %zu: %s",
                      (size_t)(r->at - r->begin) + 1, wanted);
}

static void skip(reader *r) {
  while (*r->at == ' ') r->at++;
}

static sim_node *new_node(reader *r, const sim_node *parent) {
  sim_node *node = &r->tree->nodes[r->tree->n++];
  *node = (sim_node){.key = "", .text = "", .parent = parent};
  return node;
}

/* A word, or a text in quotes. */
static int32_t read_text(reader *r, const char *ends, const char **out) {
  *out = r->out;
  if (*r->at == '"') {
    for (r->at++; *r->at != '"'; r->at++) {
      if (*r->at == '\\') r->at++;
      if (*r->at == '\0') return wrong(r, "a quote is missing");
      *r->out++ = *r->at;
    }
    r->at++;
  } else {
    const size_t n = strcspn(r->at, ends);
    memcpy(r->out, r->at, n);
    r->at += n;
    r->out += n;
    while (r->out > *out && r->out[-1] == ' ') r->out--;
    if (r->out == *out) return wrong(r, "a word is missing");
  }
  *r->out++ = '\0';
  return BS_OK;
}

static int32_t read_value(reader *r, sim_node *node, int depth);

static int32_t read_children(reader *r, sim_node *node, int depth) {
  const char close = node->kind == SIM_NODE_MAP ? '}' : ']';
  sim_node **last = &node->first;
  int32_t rc = BS_OK;
  r->at++;
  if (depth == SIM_TREE_DEPTH) return wrong(r, "too deep");
  for (skip(r); rc == BS_OK && *r->at != close; skip(r)) {
    if (node->first != NULL) {
      if (*r->at != ',') return wrong(r, "a comma, or the end of a list, is missing");
      r->at++;
    }
    skip(r);
    sim_node *child = new_node(r, node);
    if (node->kind == SIM_NODE_MAP) {
      rc = read_text(r, ":,{}[]\"", &child->key);
      if (rc == BS_OK && sim_tree_entry(node, child->key) != NULL) return wrong(r, "a key comes twice");
      if (rc == BS_OK && *r->at != ':') return wrong(r, "a colon is missing");
      r->at += rc == BS_OK;
    }
    *last = child;
    last = &child->next;
    if (rc == BS_OK) rc = read_value(r, child, depth + 1);
  }
  if (rc == BS_OK) r->at++;
  return rc;
}

static int32_t read_value(reader *r, sim_node *node, int depth) {
  skip(r);
  if (*r->at == '{' || *r->at == '[') {
    node->kind = *r->at == '{' ? SIM_NODE_MAP : SIM_NODE_LIST;
    return read_children(r, node, depth);
  }
  node->kind = SIM_NODE_SCALAR;
  return read_text(r, ",{}[]\"", &node->text);
}

int32_t sim_tree_read(const char *text, sim_tree *out, bs_error *err) {
  const size_t size = strlen(text);
  *out = (sim_tree){0};
  reader r = {.tree = out, .begin = text, .at = text, .err = err};
  if (size > SIM_TREE_TEXT)
    return bs_error_set(err, BS_CONFIG, "BS-DEVICE-TEXT",
                        "the text of a device has %zu characters, at most %d are allowed", size,
                        SIM_TREE_TEXT);
  out->nodes = calloc(size + 2, sizeof *out->nodes);
  out->text = calloc(2 * size + 4, 1);
  if (out->nodes == NULL || out->text == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the text of a device");
  r.out = out->text;
  sim_node *root = new_node(&r, NULL);
  skip(&r);
  if (*r.at != '{') return wrong(&r, "it begins with {");
  const int32_t rc = read_value(&r, root, 0);
  if (rc == BS_OK) skip(&r);
  return rc == BS_OK && *r.at != '\0' ? wrong(&r, "more follows behind the last }") : rc;
}

void sim_tree_free(sim_tree *tree) {
  free(tree->nodes);
  free(tree->text);
  *tree = (sim_tree){0};
}

const sim_node *sim_tree_entry(const sim_node *map, const char *key) {
  for (const sim_node *n = map->first; n != NULL; n = n->next)
    if (strcmp(n->key, key) == 0) return n;
  return NULL;
}

void sim_tree_path(const sim_node *node, char *out, uint32_t size) {
  out[0] = '\0';
  if (node == NULL || node->parent == NULL) return;
  sim_tree_path(node->parent, out, size);
  const size_t n = strlen(out);
  if (node->key[0] != '\0') snprintf(out + n, size - n, "%s%s", n > 0 ? "." : "", node->key);
}
