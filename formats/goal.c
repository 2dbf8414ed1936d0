/* SPDX-License-Identifier: MIT
 * goal.c - reading GOAL (goal.h): tokens of a mapped file, a statement a line. Labels are resolved where a
 * rank ends, so that a need may stand before the label that it names. */
#include "formats/goal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/map.h"

enum token_kind { T_END = 0, T_LINE, T_WORD, T_NUMBER, T_MARK };

typedef struct token {
  uint32_t kind;
  uint32_t size;
  const char *at;
  uint64_t value; /* T_NUMBER */
} token;

typedef struct label {
  const char *at;
  uint32_t size, node;
} label;

typedef struct label_need {
  label of, on;
  uint32_t start, line;
} label_need;

typedef struct reading {
  const char *path, *at, *end;
  uint32_t line;
  token t; /* the next one */
  bs_et *et;
  uint32_t rank;
  int is_open; /* inside of a rank */
  label *labels;
  label_need *needs;
  size_t n_labels, room_labels, n_needs, room_needs;
} reading;

static int32_t bad(const reading *r, const char *id, const char *what, bs_error *err) {
  char found[40] = "the end of the file";
  if (r->t.kind == T_LINE) strcpy(found, "the end of the line");
  if (r->t.kind >= T_WORD) {
    const size_t n = r->t.size < 30 ? r->t.size : 30;
    found[0] = '\'';
    memcpy(found + 1, r->t.at, n);
    memcpy(found + 1 + n, "'", 2);
  }
  bs_error_set(err, BS_INPUT, id, "%s, and there is %s", what, found);
  bs_error_where(err, "%.140s:%u", r->path, r->line);
  return BS_INPUT;
}

/* ---- tokens ------------------------------------------------------------------------------------- */

static int is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Blanks and comments. A comment over lines counts them, and is no end of a line. */
static void skip(reading *r) {
  while (r->at < r->end) {
    const size_t left = (size_t)(r->end - r->at);
    if (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') {
      r->at++;
    } else if (left > 1 && r->at[0] == '/' && r->at[1] == '/') {
      while (r->at < r->end && *r->at != '\n') r->at++;
    } else if (left > 1 && r->at[0] == '/' && r->at[1] == '*') {
      const char *end = r->at + 2;
      while (r->end - end > 1 && !(end[0] == '*' && end[1] == '/')) end++;
      if (r->end - end < 2) return; /* it has no end: its '/' is what is found */
      for (; r->at < end; r->at++) r->line += *r->at == '\n';
      r->at += 2;
    } else {
      return;
    }
  }
}

static void next(reading *r) {
  r->line += r->t.kind == T_LINE;
  skip(r);
  const char *begin = r->at;
  r->t = (token){.kind = T_END, .at = begin};
  if (r->at == r->end) return;
  if (is_letter(*r->at)) {
    while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at))) r->at++;
    r->t.kind = T_WORD;
  } else if (is_digit(*r->at)) {
    r->t.kind = T_NUMBER;
    for (; r->at < r->end && is_digit(*r->at); r->at++)
      r->t.value = r->t.value > BS_ET_MAX_SIZE ? r->t.value : r->t.value * 10 + (uint64_t)(*r->at - '0');
  } else {
    r->t.kind = *r->at++ == '\n' ? T_LINE : T_MARK;
  }
  r->t.size = (uint32_t)(r->at - begin < UINT32_MAX ? r->at - begin : UINT32_MAX);
}

static int is_word(const reading *r, const char *text) {
  return r->t.kind == T_WORD && r->t.size == strlen(text) && memcmp(r->t.at, text, r->t.size) == 0;
}

static int take_word(reading *r, const char *text) {
  if (!is_word(r, text)) return 0;
  next(r);
  return 1;
}

static int take_mark(reading *r, char mark) {
  if (r->t.kind != T_MARK || *r->t.at != mark) return 0;
  next(r);
  return 1;
}

static int32_t take_number(reading *r, uint64_t most, const char *what, uint64_t *out, bs_error *err) {
  if (r->t.kind != T_NUMBER || r->t.value > most) return bad(r, "BS-GOAL-NUMBER", what, err);
  *out = r->t.value;
  next(r);
  return BS_OK;
}

/* ---- labels ------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
  const label *x = a, *y = b;
  const uint32_t size = x->size < y->size ? x->size : y->size;
  const int order = memcmp(x->at, y->at, size);
  return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static void *grown(void *data, size_t n, size_t *room, size_t bytes) {
  if (n < *room) return data;
  const size_t more = *room == 0 ? 64 : 2 * *room;
  void *moved = realloc(data, more * bytes);
  if (moved != NULL) *room = more;
  return moved;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the labels of a rank");
}

static int32_t find(const reading *r, label *l, uint32_t line, bs_error *err) {
  const label *found =
      r->n_labels > 0 ? bsearch(l, r->labels, r->n_labels, sizeof *r->labels, by_text) : NULL;
  if (found != NULL) {
    l->node = found->node;
    return BS_OK;
  }
  bs_error_set(err, BS_INPUT, "BS-GOAL-LABEL", "rank %u has no label '%.*s'", r->rank,
               (int)(l->size < 40 ? l->size : 40), l->at);
  bs_error_where(err, "%.140s:%u", r->path, line);
  return BS_INPUT;
}

static int32_t end_rank(reading *r, bs_error *err) {
  int32_t rc = BS_OK;
  if (r->n_labels > 0) qsort(r->labels, r->n_labels, sizeof *r->labels, by_text);
  for (size_t i = 1; rc == BS_OK && i < r->n_labels; i++)
    if (by_text(&r->labels[i - 1], &r->labels[i]) == 0) {
      rc = bs_error_set(err, BS_INPUT, "BS-GOAL-LABEL", "rank %u has two labels '%.*s'", r->rank,
                        (int)(r->labels[i].size < 40 ? r->labels[i].size : 40), r->labels[i].at);
      bs_error_where(err, "%.140s:%" PRIu64, r->path, r->et->nodes[r->labels[i].node].id);
    }
  for (size_t i = 0; rc == BS_OK && i < r->n_needs; i++) {
    label_need *need = &r->needs[i];
    rc = find(r, &need->of, need->line, err);
    if (rc == BS_OK) rc = find(r, &need->on, need->line, err);
    if (rc == BS_OK) rc = bs_et_need_add(r->et, need->of.node, need->on.node, need->start, err);
  }
  r->n_labels = r->n_needs = 0;
  r->is_open = 0;
  return rc;
}

/* ---- statements --------------------------------------------------------------------------------- */

/* "to 1 tag 7": the other end of a message. */
static int32_t read_peer(reading *r, bs_et_node *n, bs_error *err) {
  uint64_t value = 0;
  const int sends = n->kind == BS_ET_SEND;
  if (!take_word(r, "b")) return bad(r, "BS-GOAL-WORD", "a size ends with b, as in 8b", err);
  if (!take_word(r, sends ? "to" : "from"))
    return bad(r, "BS-GOAL-WORD", sends ? "'to' is expected" : "'from' is expected", err);
  if (r->t.kind == T_MARK && *r->t.at == '-')
    return bad(r, "BS-GOAL-ANY", "a receive names its source: any source (-1) is not simulated", err);
  int32_t rc = take_number(r, BS_ET_MAX_RANKS - 1, "a rank is expected", &value, err);
  n->peer = (uint32_t)value;
  value = 0;
  if (rc == BS_OK && take_word(r, "tag")) {
    if (r->t.kind == T_MARK && *r->t.at == '-')
      return bad(r, "BS-GOAL-ANY", "a receive names its tag: any tag (-1) is not simulated", err);
    rc = take_number(r, UINT32_MAX, "a tag is expected", &value, err);
  }
  n->tag = (uint32_t)value;
  return rc;
}

static int32_t read_op(reading *r, const label *named, bs_error *err) {
  bs_et_node n = {.id = r->line, .name = "", .rank = r->rank, .ps = BS_ET_NO_TIME};
  uint64_t value = 0;
  uint32_t index = 0;
  int32_t rc;
  if (take_word(r, "calc")) {
    rc = take_number(r, BS_ET_MAX_SIZE / 1000, "ns are expected", &value, err);
    n.ps = value * 1000;
  } else {
    n.kind = is_word(r, "send") ? BS_ET_SEND : BS_ET_RECV;
    if (!take_word(r, "send") && !take_word(r, "recv"))
      return bad(r, "BS-GOAL-WORD", "calc, send or recv is expected", err);
    rc = take_number(r, BS_ET_MAX_SIZE, "bytes are expected", &n.bytes, err);
    if (rc == BS_OK) rc = read_peer(r, &n, err);
  }
  value = 0;
  if (rc == BS_OK && take_word(r, "cpu"))
    rc = take_number(r, BS_ET_MAX_CPUS - 1, "a processor is expected", &value, err);
  n.cpu = (uint32_t)value;
  value = 0;
  if (rc == BS_OK && take_word(r, "nic"))
    rc = take_number(r, BS_ET_MAX_CPUS - 1, "a port is expected", &value, err);
  n.nic = (uint32_t)value;
  if (rc == BS_OK) rc = bs_et_add(r->et, &n, &index, err);
  if (rc != BS_OK || named == NULL) return rc;
  label *labels = grown(r->labels, r->n_labels, &r->room_labels, sizeof *labels);
  if (labels == NULL) return no_memory(err);
  r->labels = labels;
  labels[r->n_labels] = *named;
  labels[r->n_labels++].node = index;
  return BS_OK;
}

/* Reads "requires l1" after the first label of "l2 requires l1". */
static int32_t read_need(reading *r, const label *of, bs_error *err) {
  label_need need = {.of = *of, .line = r->line, .start = is_word(r, "irequires")};
  if (!take_word(r, "requires") && !take_word(r, "irequires"))
    return bad(r, "BS-GOAL-WORD", "':', requires or irequires is expected", err);
  if (r->t.kind != T_WORD) return bad(r, "BS-GOAL-WORD", "a label is expected", err);
  need.on = (label){.at = r->t.at, .size = r->t.size};
  next(r);
  label_need *needs = grown(r->needs, r->n_needs, &r->room_needs, sizeof *needs);
  if (needs == NULL) return no_memory(err);
  r->needs = needs;
  needs[r->n_needs++] = need;
  return BS_OK;
}

static int32_t read_statement(reading *r, bs_error *err) {
  if (is_word(r, "calc") || is_word(r, "send") || is_word(r, "recv")) return read_op(r, NULL, err);
  if (r->t.kind != T_WORD) return bad(r, "BS-GOAL-WORD", "a label, an operation or '}' is expected", err);
  const label named = {.at = r->t.at, .size = r->t.size};
  next(r);
  return take_mark(r, ':') ? read_op(r, &named, err) : read_need(r, &named, err);
}

static int32_t begin_rank(reading *r, uint32_t *next_rank, bs_error *err) {
  uint64_t rank = 0;
  int32_t rc =
      r->et->n_ranks > 0 ? BS_OK : bad(r, "BS-GOAL-RANKS", "num_ranks stands before the first rank", err);
  if (rc == BS_OK) rc = take_number(r, UINT32_MAX, "a rank is expected", &rank, err);
  if (rc == BS_OK && (rank < *next_rank || rank >= r->et->n_ranks))
    rc = bad(r, "BS-GOAL-RANKS", "ranks ascend, are below num_ranks, and have one block each", err);
  if (rc == BS_OK && !take_mark(r, '{')) rc = bad(r, "BS-GOAL-WORD", "'{' is expected", err);
  r->rank = (uint32_t)rank;
  *next_rank = r->rank + 1;
  r->is_open = 1;
  return rc;
}

/* A line, or what a brace ends. */
static int32_t read_line(reading *r, uint32_t *next_rank, bs_error *err) {
  uint64_t ranks = 0;
  int32_t rc;
  if (r->is_open) {
    if (take_mark(r, '}')) return end_rank(r, err);
    rc = read_statement(r, err);
  } else if (take_word(r, "rank")) {
    return begin_rank(r, next_rank, err);
  } else {
    if (!take_word(r, "num_ranks") || r->et->n_ranks > 0)
      return bad(r, "BS-GOAL-WORD", "rank, or num_ranks once, is expected", err);
    rc = take_number(r, BS_ET_MAX_RANKS, "a number of ranks up to 65536 is expected", &ranks, err);
    if (rc == BS_OK) rc = bs_et_begin(r->et, (uint32_t)ranks, err);
  }
  if (rc != BS_OK || r->t.kind <= T_LINE || (r->t.kind == T_MARK && *r->t.at == '}')) return rc;
  return bad(r, "BS-GOAL-WORD", "the end of the line is expected", err);
}

static int32_t read_text(reading *r, bs_error *err) {
  uint32_t next_rank = 0;
  int32_t rc = BS_OK;
  next(r);
  while (rc == BS_OK && r->t.kind != T_END) {
    if (r->t.kind == T_LINE)
      next(r);
    else
      rc = read_line(r, &next_rank, err);
  }
  if (rc == BS_OK && r->is_open) rc = bad(r, "BS-GOAL-WORD", "a rank ends with '}'", err);
  if (rc == BS_OK && r->et->n_ranks == 0) rc = bad(r, "BS-GOAL-RANKS", "num_ranks is expected", err);
  return rc;
}

int32_t bs_goal_read(const char *path, bs_et *out_et, bs_error *err) {
  bs_map map;
  reading r = {.path = path, .line = 1, .et = out_et};
  memset(out_et, 0, sizeof *out_et);
  int32_t rc = bs_map_open(path, "BS-GOAL-OPEN", &map, err);
  if (rc != BS_OK) return rc;
  rc = bs_map_guard(&map, path, err);
  if (rc == BS_OK) {
    r.at = map.bytes > 0 ? map.data : "";
    r.end = r.at + map.bytes;
    rc = read_text(&r, err);
    if (rc == BS_OK) rc = bs_map_unchanged(&map, path, err);
    if (rc == BS_OK && (out_et->source = bs_et_text(out_et, path, strlen(path))) == NULL) rc = no_memory(err);
  }
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%.140s:%u", path, r.line);
  free(r.labels);
  free(r.needs);
  bs_map_close(&map);
  return rc;
}
