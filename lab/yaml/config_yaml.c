/* SPDX-License-Identifier: MIT
 * config_yaml.c - converts YAML text into config nodes: events of libyaml, with this parser's limits. Bytes
 * are checked first (size, UTF-8, no BOM, no NUL or control bytes). Then each event is either one of the few
 * accepted ones or an error with its place. Nothing is expanded, so memory is proportional to the file.
 * Thread-safe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "lab/yaml/config_internal.h"

/* ---- bytes ------------------------------------------------------------------------------------- */

size_t bs_utf8_next(const char *text, size_t size, uint32_t *out_point) {
  const unsigned char *p = (const unsigned char *)text;
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
  if (n == 0 || n > size) return 0;
  uint32_t point = n == 1 ? p[0] : p[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    point = (point << 6) | (p[i] & 0x3fu);
  }
  if (point < least[n] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return 0;
  *out_point = point;
  return n;
}

int bs_yaml_printable(uint32_t c) {
  if (c < 0x20) return c == '\t' || c == '\n' || c == '\r';
  if (c < 0xa0) return c <= 0x7e || c == 0x85;
  return c != 0xfeff && c != 0xfffe && c != 0xffff;
}

int bs_yaml_null_word(const char *text) {
  return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
         strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

static int32_t fail_at(bs_error *err, const char *name, size_t line, size_t column, const char *id,
                       const char *message) {
  bs_error_set(err, BS_CONFIG, id, "%s", message);
  bs_error_where(err, "%.120s:%zu:%zu", name, line, column);
  return BS_CONFIG;
}

static int32_t check_bytes(const char *name, const char *data, size_t size, bs_error *err) {
  if (size > BS_CFG_MAX_BYTES) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SIZE", "%zu bytes, at most %d are accepted", size, BS_CFG_MAX_BYTES);
    bs_error_where(err, "%.150s", name);
    return BS_CONFIG;
  }
  size_t line = 1, column = 1;
  for (size_t i = 0; i < size;) {
    uint32_t point = 0;
    size_t n = bs_utf8_next(data + i, size - i, &point);
    char message[96];
    if (n == 0) {
      snprintf(message, sizeof message, "byte 0x%02x is not UTF-8", (unsigned)(unsigned char)data[i]);
      return fail_at(err, name, line, column, "BS-CFG-ENCODING", message);
    }
    if (!bs_yaml_printable(point)) {
      snprintf(message, sizeof message,
               point == 0xfeff ? "a byte order mark is not accepted"
                               : "character U+%04X is not accepted in a text file",
               (unsigned)point);
      return fail_at(err, name, line, column, "BS-CFG-ENCODING", message);
    }
    i += n;
    column++;
    if (point == '\n') {
      line++;
      column = 1;
    }
  }
  return BS_OK;
}

/* ---- duplicate keys: one table of (map, key) for the whole document --------------------------------- */

typedef struct key_row {
  const bs_node *map, *entry;
} key_row;

typedef struct key_table {
  key_row *rows;
  size_t capacity, used;
} key_table;

static size_t key_hash(const bs_node *map, const char *key) {
  uint64_t h = UINT64_C(14695981039346656037) ^ (uint64_t)(uintptr_t)map;
  for (; *key != '\0'; key++) h = (h ^ (unsigned char)*key) * UINT64_C(1099511628211);
  return (size_t)(h ^ (h >> 32));
}

static key_row *key_slot(const key_table *t, const bs_node *map, const char *key) {
  size_t i = key_hash(map, key) & (t->capacity - 1);
  while (t->rows[i].map != NULL && (t->rows[i].map != map || strcmp(t->rows[i].entry->key, key) != 0)) {
    i = (i + 1) & (t->capacity - 1);
  }
  return &t->rows[i];
}

static int key_grow(key_table *t) {
  key_table wide = {NULL, t->capacity == 0 ? 64 : t->capacity * 2, t->used};
  wide.rows = calloc(wide.capacity, sizeof *wide.rows);
  if (wide.rows == NULL) return 0;
  for (size_t i = 0; i < t->capacity; i++) {
    if (t->rows[i].map != NULL) *key_slot(&wide, t->rows[i].map, t->rows[i].entry->key) = t->rows[i];
  }
  free(t->rows);
  *t = wide;
  return 1;
}

/* ---- events into nodes ------------------------------------------------------------------------------ */

typedef struct frame {
  bs_node *node;  /* a map or list being filled */
  bs_node *tail;  /* its last child */
  bs_node *entry; /* the map entry that waits for its value */
} frame;

typedef struct builder {
  const char *name; /* interned */
  bs_error *err;
  bs_node *root;
  frame stack[BS_CFG_MAX_DEPTH];
  int depth;
  uint32_t nodes;
  int documents;
  int any_root;
  key_table keys;
} builder;

static int32_t fail_event(builder *b, const yaml_event_t *event, const char *id, const char *message) {
  return fail_at(b->err, b->name, event->start_mark.line + 1, event->start_mark.column + 1, id, message);
}

/* A node as the child of the innermost container (or the root), counted and with its place. */
static int32_t add_node(builder *b, const yaml_event_t *event, bs_node **out_node) {
  if (b->nodes >= BS_CFG_MAX_NODES) {
    char message[64];
    snprintf(message, sizeof message, "more than %d nodes", BS_CFG_MAX_NODES);
    return fail_event(b, event, "BS-CFG-NODES", message);
  }
  bs_node *node = bs_node_new(BS_NODE_NULL);
  if (node == NULL) return bs_config_no_memory(b->err);
  b->nodes++;
  node->file = b->name;
  node->line = (int32_t)event->start_mark.line + 1;
  node->column = (int32_t)event->start_mark.column + 1;
  if (b->depth == 0) {
    b->root = node;
  } else {
    frame *top = &b->stack[b->depth - 1];
    if (top->tail != NULL) {
      top->tail->next = node;
    } else {
      top->node->first = node;
    }
    top->tail = node;
  }
  *out_node = node;
  return BS_OK;
}

/* The node for the event's value. */
static int32_t value_node(builder *b, const yaml_event_t *event, bs_node **out_node) {
  frame *top = b->depth > 0 ? &b->stack[b->depth - 1] : NULL;
  if (top != NULL && top->node->kind == BS_NODE_MAP) {
    if (top->entry == NULL)
      return fail_event(b, event, "BS-CFG-TYPE", "a key must be a text, not a map or list");
    *out_node = top->entry;
    top->entry = NULL;
    return BS_OK;
  }
  return add_node(b, event, out_node);
}

static int32_t add_key(builder *b, const yaml_event_t *event, const char *text) {
  frame *top = &b->stack[b->depth - 1];
  if (text[0] == '\0') return fail_event(b, event, "BS-CFG-TYPE", "an empty key");
  if (strcmp(text, "<<") == 0) {
    fail_event(b, event, "BS-CFG-MERGE", "merge keys (<<) are not accepted");
    bs_error_hint(b->err, "write the keys out, or compose several files with --config");
    return BS_CONFIG;
  }
  if ((b->keys.used + 1) * 2 > b->keys.capacity && !key_grow(&b->keys)) return bs_config_no_memory(b->err);
  key_row *row = key_slot(&b->keys, top->node, text);
  if (row->map != NULL) {
    char message[160];
    snprintf(message, sizeof message, "key '%.80s' stands here a second time (first in line %d)", text,
             (int)row->entry->line);
    return fail_event(b, event, "BS-CFG-DUP", message);
  }
  bs_node *entry = NULL;
  int32_t rc = add_node(b, event, &entry);
  if (rc != BS_OK) return rc;
  entry->key = bs_strdup(text);
  if (entry->key == NULL) return bs_config_no_memory(b->err);
  row->map = top->node;
  row->entry = entry;
  b->keys.used++;
  top->entry = entry;
  return BS_OK;
}

static int32_t check_properties(builder *b, const yaml_event_t *event, const void *anchor, const void *tag) {
  if (anchor != NULL) return fail_event(b, event, "BS-CFG-ANCHOR", "anchors (&) are not accepted");
  if (tag != NULL) return fail_event(b, event, "BS-CFG-TAG", "tags (!) are not accepted");
  return BS_OK;
}

static int32_t on_scalar(builder *b, const yaml_event_t *event) {
  const char *text = (const char *)event->data.scalar.value;
  size_t length = event->data.scalar.length;
  int32_t rc = check_properties(b, event, event->data.scalar.anchor, event->data.scalar.tag);
  if (rc != BS_OK) return rc;
  if (length > BS_CFG_MAX_SCALAR) {
    char message[96];
    snprintf(message, sizeof message, "a value of %zu bytes, at most %d are accepted", length,
             BS_CFG_MAX_SCALAR);
    return fail_event(b, event, "BS-CFG-SCALAR", message);
  }
  if (strlen(text) != length) return fail_event(b, event, "BS-CFG-ENCODING", "a NUL byte inside a value");
  if (b->depth > 0 && b->stack[b->depth - 1].node->kind == BS_NODE_MAP &&
      b->stack[b->depth - 1].entry == NULL) {
    return add_key(b, event, text);
  }
  int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  bs_node *node = NULL;
  if (b->depth == 0 && !b->any_root) {
    if (!plain || length > 0) {
      return fail_event(b, event, "BS-CFG-ROOT", "a configuration must be a map of keys, found a value");
    }
    rc = add_node(b, event, &node); /* only "---": an empty file */
    if (rc == BS_OK) node->kind = BS_NODE_MAP;
    return rc;
  }
  rc = value_node(b, event, &node);
  if (rc != BS_OK || (plain && bs_yaml_null_word(text))) return rc;
  node->text = bs_strdup(text);
  if (node->text == NULL) return bs_config_no_memory(b->err);
  node->kind = BS_NODE_SCALAR;
  node->quoted = !plain;
  return BS_OK;
}

static int32_t on_open(builder *b, const yaml_event_t *event, uint32_t kind) {
  if (b->depth == 0 && kind != BS_NODE_MAP && !b->any_root) {
    return fail_event(b, event, "BS-CFG-ROOT", "a configuration must be a map of keys, found a list");
  }
  if (b->depth >= BS_CFG_MAX_DEPTH) {
    char message[64];
    snprintf(message, sizeof message, "nested more than %d deep", BS_CFG_MAX_DEPTH);
    return fail_event(b, event, "BS-CFG-DEPTH", message);
  }
  bs_node *node = NULL;
  int32_t rc = value_node(b, event, &node);
  if (rc != BS_OK) return rc;
  node->kind = kind;
  b->stack[b->depth++] = (frame){node, NULL, NULL};
  return BS_OK;
}

static int32_t on_document(builder *b, const yaml_event_t *event) {
  if (b->documents++ > 0) return fail_event(b, event, "BS-CFG-MULTI", "a second document in the same file");
  if (event->data.document_start.tag_directives.start != event->data.document_start.tag_directives.end) {
    return fail_event(b, event, "BS-CFG-TAG", "%TAG directives are not accepted");
  }
  return BS_OK;
}

static int32_t on_event(builder *b, const yaml_event_t *event) {
  int32_t rc;
  switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
      return on_document(b, event);
    case YAML_ALIAS_EVENT:
      return fail_event(b, event, "BS-CFG-ALIAS", "aliases (*) are not accepted");
    case YAML_SCALAR_EVENT:
      return on_scalar(b, event);
    case YAML_MAPPING_START_EVENT:
      rc = check_properties(b, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
      return rc != BS_OK ? rc : on_open(b, event, BS_NODE_MAP);
    case YAML_SEQUENCE_START_EVENT:
      rc = check_properties(b, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
      return rc != BS_OK ? rc : on_open(b, event, BS_NODE_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
      b->depth--;
      return BS_OK;
    default:
      return BS_OK;
  }
}

static int32_t fail_parser(builder *b, const yaml_parser_t *parser, const char *data, size_t size) {
  if (parser->error == YAML_MEMORY_ERROR) return bs_config_no_memory(b->err);
  const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
  const char *id = "BS-CFG-SYNTAX";
  if (parser->error == YAML_READER_ERROR) id = "BS-CFG-ENCODING";
  if (strcmp(problem, "found undefined tag handle") == 0) id = "BS-CFG-TAG";
  char message[256];
  snprintf(message, sizeof message, "%s%s%s", parser->context != NULL ? parser->context : "",
           parser->context != NULL ? ": " : "", problem);
  fail_at(b->err, b->name, parser->problem_mark.line + 1, parser->problem_mark.column + 1, id, message);
  if (parser->problem_mark.index < size && memchr(data, '\t', size) != NULL) {
    bs_error_hint(b->err, "indent with spaces: the file has tabs");
  }
  return BS_CONFIG;
}

static int32_t run_parser(builder *b, const char *data, size_t size) {
  yaml_parser_t parser;
  yaml_event_t event;
  if (!yaml_parser_initialize(&parser)) return bs_config_no_memory(b->err);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser, (const unsigned char *)data, size);
  int32_t rc = BS_OK;
  for (int done = 0; !done && rc == BS_OK;) {
    if (!yaml_parser_parse(&parser, &event)) {
      rc = fail_parser(b, &parser, data, size);
      break;
    }
    rc = on_event(b, &event);
    done = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  return rc;
}

static int32_t parse(const char *name, const char *data, size_t size, int any_root, bs_node **out_node,
                     bs_error *err) {
  *out_node = NULL;
  int32_t rc = check_bytes(name, data, size, err);
  if (rc != BS_OK) return rc;
  builder b;
  memset(&b, 0, sizeof b);
  b.err = err;
  b.any_root = any_root;
  b.name = bs_config_intern(name);
  if (b.name == NULL) return bs_config_no_memory(err);
  rc = run_parser(&b, data, size);
  if (rc == BS_OK && b.root == NULL) { /* no document at all */
    b.root = bs_node_new(any_root ? BS_NODE_NULL : BS_NODE_MAP);
    if (b.root == NULL) rc = bs_config_no_memory(err);
  }
  free(b.keys.rows);
  if (rc != BS_OK) {
    bs_config_free(b.root);
    return rc;
  }
  *out_node = b.root;
  return BS_OK;
}

int32_t bs_config_parse(const char *name, const char *data, size_t size, bs_node **out_root, bs_error *err) {
  return parse(name, data, size, 0, out_root, err);
}

int32_t bs_config_parse_value(const char *name, const char *data, size_t size, bs_node **out_node,
                              bs_error *err) {
  return parse(name, data, size, 1, out_node, err);
}
