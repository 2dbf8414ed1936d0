/* SPDX-License-Identifier: MIT
 * text_scan.c - words and records for onnx_text.c (text_scan.h). */
#include "tests/graph/text_scan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(parser *p, const char *what) {
  if (!p->failed) snprintf(p->why, p->why_size, "byte %td: %s, at '%.20s'", p->at - p->begin, what, p->at);
  p->failed = 1;
}

void put(parser *p, const void *bytes, size_t n) {
  if (p->failed) return;
  if (n > p->capacity - p->size) {
    size_t capacity = (p->capacity + n) * 2 + 64;
    unsigned char *out = realloc(p->out, capacity);
    if (out == NULL) {
      fail(p, "no memory");
      return;
    }
    p->out = out;
    p->capacity = capacity;
  }
  if (n > 0) memcpy(p->out + p->size, bytes, n);
  p->size += n;
}

static size_t varint_bytes(uint64_t value, unsigned char *bytes) {
  size_t n = 0;
  for (; value > 127; value >>= 7) bytes[n++] = (unsigned char)(value | 128);
  bytes[n++] = (unsigned char)value;
  return n;
}

void put_varint(parser *p, uint64_t value) {
  unsigned char bytes[10];
  size_t n = varint_bytes(value, bytes);
  put(p, bytes, n);
}

void put_number(parser *p, uint32_t field, uint64_t value) {
  put_varint(p, field << 3 | VARINT);
  put_varint(p, value);
}

size_t open_message(parser *p, uint32_t field) {
  put_varint(p, field << 3 | BYTES);
  return p->size;
}

void close_message(parser *p, size_t begin) {
  unsigned char bytes[10];
  size_t length = p->size - begin, n = varint_bytes(length, bytes);
  put(p, bytes, n); /* room */
  if (p->failed) return;
  memmove(p->out + begin + n, p->out + begin, length);
  memcpy(p->out + begin, bytes, n);
}

void skip_space(parser *p) {
  for (;; p->at++) {
    if (*p->at == '#') p->at += strcspn(p->at, "\n");
    if (*p->at == '\0' || !isspace((unsigned char)*p->at)) return;
  }
}

int next_is(parser *p, char ch) {
  skip_space(p);
  return !p->failed && *p->at == ch;
}

int match(parser *p, char ch) {
  if (!next_is(p, ch)) return 0;
  p->at++;
  return 1;
}

void want(parser *p, char ch) {
  char what[] = "expected 'x'";
  what[10] = ch;
  if (!match(p, ch)) fail(p, what);
}

/* A list between two marks; `each` reads one entry. */
void read_list(parser *p, char open, char close, void (*each)(parser *, void *), void *user) {
  want(p, open);
  if (match(p, close)) return;
  do each(p, user);
  while (match(p, ','));
  want(p, close);
}

/* An identifier or a text in quotes; empty when there is neither. */
word read_word(parser *p) {
  skip_space(p);
  word w = {p->at, 0};
  if (*p->at == '"') {
    for (p->at++; *p->at != '"' && *p->at != '\0'; p->at++)
      if (*p->at == '\\' && p->at[1] != '\0') p->at++;
    if (*p->at == '\0')
      fail(p, "a text without its end");
    else
      p->at++;
  } else if (isalpha((unsigned char)*p->at) || *p->at == '_') {
    while (isalnum((unsigned char)*p->at) || *p->at == '_') p->at++;
  }
  w.size = (size_t)(p->at - w.data);
  return w;
}

word want_word(parser *p) {
  word w = read_word(p);
  if (w.size == 0) fail(p, "expected a name");
  return w;
}

int word_is(word w, const char *text) {
  return w.size == strlen(text) && memcmp(w.data, text, w.size) == 0;
}

void put_word(parser *p, uint32_t field, word w) {
  size_t begin = open_message(p, field);
  int quoted = w.size > 1 && w.data[0] == '"';
  for (size_t i = quoted; i < w.size - quoted; i++) {
    if (quoted && w.data[i] == '\\') i++;
    put(p, &w.data[i], 1);
  }
  close_message(p, begin);
}

/* The bits of a signed or an unsigned number. */
int64_t read_int(parser *p) {
  char *end = NULL;
  skip_space(p);
  int64_t value = *p->at == '-' ? strtoll(p->at, &end, 10) : (int64_t)strtoull(p->at, &end, 10);
  if (end == p->at) fail(p, "expected a number");
  p->at = end;
  return value;
}

double read_float(parser *p, float *out_single) {
  char *end = NULL;
  skip_space(p);
  double value = strtod(p->at, &end);
  *out_single = strtof(p->at, NULL); /* rounded once */
  if (end == p->at) fail(p, "expected a number");
  p->at = end;
  return value;
}
