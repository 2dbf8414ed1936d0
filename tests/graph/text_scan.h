/* SPDX-License-Identifier: MIT
 * text_scan.h - below onnx_text.c: words, marks and numbers of a text, and the protobuf records that are
 * written while it is read. The first error is kept: all that comes after it does nothing. */
#ifndef BS_TESTS_GRAPH_TEXT_SCAN_H
#define BS_TESTS_GRAPH_TEXT_SCAN_H
#include <stddef.h>
#include <stdint.h>

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 }; /* wire types */

typedef struct parser {
  const char *begin, *at;
  unsigned char *out;
  size_t size, capacity;
  uint32_t flags;
  int depth, failed;
  char *why;
  size_t why_size;
} parser;

/* A name as it stands in the text, with its quotes. */
typedef struct word {
  const char *data;
  size_t size;
} word;

void fail(parser *p, const char *what);
/* Bytes; a varint; a record of a number. */
void put(parser *p, const void *bytes, size_t n);
void put_varint(parser *p, uint64_t value);
void put_number(parser *p, uint32_t field, uint64_t value);
/* A record that contains others: they are written first, its length is put before them when it ends. */
size_t open_message(parser *p, uint32_t field);
void close_message(parser *p, size_t begin);

void skip_space(parser *p);
int next_is(parser *p, char ch);
int match(parser *p, char ch); /* and goes behind it */
void want(parser *p, char ch);
/* A list between two marks; `each` reads one entry. */
void read_list(parser *p, char open, char close, void (*each)(parser *, void *), void *user);
word read_word(parser *p); /* an identifier or a text in quotes; empty when there is neither */
word want_word(parser *p);
int word_is(word w, const char *text);
void put_word(parser *p, uint32_t field, word w); /* without its quotes */
int64_t read_int(parser *p);                      /* the bits of a signed or an unsigned number */
double read_float(parser *p, float *out_single);  /* and rounded once to f32 */
#endif
