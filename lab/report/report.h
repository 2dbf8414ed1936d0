/* SPDX-License-Identifier: MIT
 * report.h - rows of JSON objects printed by one list of fields as a table, Markdown, CSV, JSON or JSON
 * lines: every verb's -o. A field that a row lacks is empty (null in JSON). */
#ifndef BS_LAB_REPORT_REPORT_H
#define BS_LAB_REPORT_REPORT_H
#include <jansson.h>
#include <stdio.h>

#include "blockshock/blockshock.h"

enum bs_format {
  BS_FORMAT_TABLE = 0,
  BS_FORMAT_MD = 1,
  BS_FORMAT_CSV = 2,
  BS_FORMAT_JSON = 3,
  BS_FORMAT_JSONL = 4,
  BS_FORMAT_WIDE = 5 /* a table with every field, however wide; it has no name */
};
/* Columns of a screen: a table is at most as wide. BS_TABLE_WIDTH where `out` is no terminal. */
enum { BS_TABLE_WIDTH = 120, BS_TABLE_LEAST = 80, BS_TABLE_MOST = 200 };
enum bs_field_flags {
  BS_FIELD_WIDE = 1u << 0, /* not in a table, but in every other format */
  BS_FIELD_FOLD = 1u << 1, /* printed once above a table of several rows where it is the same in all that have
                              it, and above one of one row that does not fit */
  BS_FIELD_RIGHT = 1u << 2, /* aligned right */
  /* A table that does not fit leaves out columns and says which: those of LEAST, then those of SPARE, the
   * last one first. Then sentences in cells take several lines; then other columns go. */
  BS_FIELD_SPARE = 1u << 3,
  BS_FIELD_LEAST = 1u << 4,
  BS_FIELD_BYTES = 1u << 5,  /* a number of bytes: in table and md as bs_bytes_text writes it */
  BS_FIELD_PERCENT = 1u << 6 /* a share: in table and md in percent, which the title says */
};

typedef struct bs_field {
  const char *key;   /* of the row; also the name in csv and json */
  const char *title; /* of table and md, with its unit */
  uint32_t flags;
  int32_t digits; /* significant digits of reals in table and md; 0: 6. Below 1e7 there is no exponent. */
} bs_field;

/* The format of a name; -1 when unknown. */
int bs_format_parse(const char *name);
extern const char *const bs_format_names[5];

/* rows: an array of objects. BS_IO when `out` cannot be written. */
int32_t bs_report_print(FILE *out, int format, const bs_field *fields, size_t n_fields, const json_t *rows,
                        bs_error *err);
/* `text` with control bytes, characters that change the direction of others, and bytes that are not UTF-8
 * shown as \xNN. The caller frees; NULL: out of memory. */
char *bs_report_printable(const char *text);
/* print.c: as fprintf, with each %s shown as bs_report_printable does: names and paths that others chose
 * steer no terminal. */
int bs_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "512 bytes", "64 KiB", "1.5 MiB": with three digits. The one writer of such units. Returns out. */
const char *bs_bytes_text(double bytes, char *out, size_t size);
/* The lines of a text, each as bs_print shows it. -1: no memory. */
int bs_print_lines(FILE *out, const char *text);
/* A line as bs_print shows it, in lines as wide as a table, broken at spaces; all but the first begin with
 * `indent` spaces. */
void bs_print_folded(FILE *out, size_t indent, const char *line);
/* The columns that a table printed to `out` may take: those that COLUMNS says, else those of the terminal,
 * from BS_TABLE_LEAST to BS_TABLE_MOST. */
size_t bs_report_width(FILE *out);
/* Does a person look at it? */
int bs_report_terminal(FILE *out);
/* Flags for jansson's dumps to `out`: on a terminal nothing but ASCII. */
size_t bs_report_json(FILE *out);
#endif
