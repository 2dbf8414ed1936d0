/* SPDX-License-Identifier: MIT
 * config_print.c - a config tree as block-style YAML that parses back to an equal tree (fuzzed by
 * tests/fuzz/fuzz_yaml.c). Called for --print-config and the run folder's config.yaml. */
#include <string.h>

#include "lab/yaml/config.h"
#include "lab/yaml/config_internal.h"

static int is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Narrower than YAML's own rule for plain scalars in block context: texts that it refuses are quoted, which
 * is never wrong. */
int bs_config_plain_safe(const char *text) {
  size_t size = strlen(text);
  if (bs_yaml_null_word(text)) return 0;
  if (!is_alnum(text[0]) && text[0] != '_' && text[0] != '/') {
    if (strchr("+-.", text[0]) == NULL || !(is_alnum(text[1]) || (text[0] != '.' && text[1] == '.')))
      return 0;
  }
  for (size_t i = 0; i < size; i++) {
    char c = text[i], next = text[i + 1];
    if (is_alnum(c) || strchr("_-./+*=,@%~()[]<>|#", c) != NULL) continue;
    if (c == ':' && next != '\0' && next != ' ') continue;
    if (c == ' ' && next != '\0' && next != ' ' && next != '#') continue;
    return 0;
  }
  return 1;
}

static void put_quoted(bs_text *out, const char *text) {
  size_t size = strlen(text);
  bs_text_append(out, "\"", 1);
  for (size_t i = 0; i < size;) {
    uint32_t point = 0;
    size_t n = bs_utf8_next(text + i, size - i, &point);
    if (n == 0) { /* not from this parser: keep the output valid */
      point = 0xfffd;
      n = 1;
      bs_text_append(out, "\xef\xbf\xbd", 3);
    } else if (point == '"' || point == '\\') {
      bs_text_printf(out, "\\%c", (int)point);
    } else if (point == '\n') {
      bs_text_append(out, "\\n", 2);
    } else if (point == '\t') {
      bs_text_append(out, "\\t", 2);
    } else if (point < 0x20 || point == 0x7f) {
      bs_text_printf(out, "\\x%02x", (unsigned)point);
    } else if (!bs_yaml_printable(point) || point == 0x85 || point == 0x2028 || point == 0x2029) {
      bs_text_printf(out, "\\u%04x", (unsigned)point);
    } else {
      bs_text_append(out, text + i, n);
    }
    i += n;
  }
  bs_text_append(out, "\"", 1);
}

static void put_scalar(bs_text *out, const char *text, int quoted) {
  if (quoted || !bs_config_plain_safe(text)) {
    put_quoted(out, text);
  } else {
    bs_text_append(out, text, strlen(text));
  }
}

static void put_indent(bs_text *out, int indent) {
  for (int i = 0; i < indent; i++) bs_text_append(out, " ", 1);
}

static void put_children(bs_text *out, const bs_node *node, int indent, int first_in_line);

static void put_value(bs_text *out, const bs_node *node, int indent) {
  if (node->first != NULL) {
    /* "key:" then the children below, "- " then the first child in the same line */
    int in_list = node->key == NULL;
    if (!in_list) bs_text_append(out, "\n", 1);
    put_children(out, node, indent + 2, in_list);
    return;
  }
  if (node->key != NULL) bs_text_append(out, " ", 1);
  if (node->kind == BS_NODE_MAP) {
    bs_text_append(out, "{}", 2);
  } else if (node->kind == BS_NODE_LIST) {
    bs_text_append(out, "[]", 2);
  } else if (node->kind == BS_NODE_NULL) {
    bs_text_append(out, "null", 4);
  } else {
    put_scalar(out, node->text, node->quoted != 0);
  }
  bs_text_append(out, "\n", 1);
}

/* YAML takes "key:" only within 1024 characters of one line; longer keys get the "? key" form. */
static void put_key(bs_text *out, const char *key, int indent) {
  if (strlen(key) > 200) { /* an escaped byte takes up to four characters */
    bs_text_append(out, "? ", 2);
    put_scalar(out, key, 0);
    bs_text_append(out, "\n", 1);
    put_indent(out, indent);
  } else {
    put_scalar(out, key, 0);
  }
  bs_text_append(out, ":", 1);
}

static void put_children(bs_text *out, const bs_node *node, int indent, int first_in_line) {
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    if (!first_in_line) put_indent(out, indent);
    first_in_line = 0;
    if (child->key != NULL) {
      put_key(out, child->key, indent);
    } else {
      bs_text_append(out, "- ", 2);
    }
    put_value(out, child, indent);
  }
}

void bs_config_print(const bs_node *root, bs_text *out) {
  if (root->first == NULL) {
    bs_text_append(out, "{}\n", 3);
    return;
  }
  put_children(out, root, 0, 0);
}
