/* SPDX-License-Identifier: MIT
 * report.c - see report.h. */
#include "lab/report/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"

enum { SHORT_CELL = 28, LONG_WORD = 24, SENTENCE = 16, LEAST_CELL = 8 };
const char *const bs_format_names[5] = {"table", "md", "csv", "json", "jsonl"};

int bs_format_parse(const char *name) {
  for (int i = 0; i < 5; i++) {
    if (strcmp(bs_format_names[i], name) == 0) return i;
  }
  return -1;
}

/* Bytes of the UTF-8 sequence at s; 0: there is none (overlong forms and surrogates are not counted). */
static size_t utf8_length(const unsigned char *s) {
  if (s[0] < 0x80) return 1;
  const size_t n = s[0] >= 0xf0 && s[0] <= 0xf4  ? 4
                   : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                   : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                                                 : 0;
  for (size_t i = 1; i < n; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
  }
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
      (s[0] == 0xf4 && s[1] > 0x8f)) {
    return 0;
  }
  return n;
}

/* Characters that steer a terminal, or the order in which it shows others: C1 controls (c2 80 .. c2 9f),
 * marks of direction (U+061C, 200E, 200F, 202A .. 202E, 2066 .. 2069), separators of lines (U+2028, 2029). */
static int steers(const unsigned char *p, size_t n) {
  if (n == 1) return p[0] < 0x20 || p[0] == 0x7f;
  if (n == 2) return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c);
  if (n != 3 || p[0] != 0xe2) return 0;
  return p[1] == 0x80 ? p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae)
                      : p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9;
}

char *bs_report_printable(const char *text) {
  bs_text out = {0};
  const unsigned char *p = (const unsigned char *)text;
  bs_text_append(&out, "", 0);
  while (*p != '\0') {
    const size_t n = utf8_length(p), bytes = n > 0 ? n : 1;
    if (n == 0 || steers(p, n))
      for (size_t i = 0; i < bytes; i++) bs_text_printf(&out, "\\x%02x", p[i]);
    else
      bs_text_append(&out, (const char *)p, n);
    p += bytes;
  }
  if (out.failed) {
    bs_text_free(&out);
    return NULL;
  }
  return out.data != NULL ? out.data : bs_strdup("");
}

/* Characters on screen, counting each UTF-8 sequence as one. */
static size_t shown_width(const char *text) {
  size_t n = 0;
  for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
  return n;
}

static char *raw_text(const json_t *value, int digits, const char *yes, const char *no) {
  char number[64];
  if (value == NULL || json_is_null(value)) return bs_strdup("");
  if (json_is_string(value)) return bs_strdup(json_string_value(value));
  if (json_is_boolean(value)) return bs_strdup(json_is_true(value) ? yes : no);
  if (json_is_integer(value)) {
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    return bs_strdup(number);
  }
  if (json_is_real(value)) {
    const double x = json_real_value(value);
    snprintf(number, sizeof number, "%.*g", digits, x);
    if (fabs(x) >= 1 && fabs(x) < 1e7 &&
        strchr(number, 'e') != NULL) /* 15600 is easier to read than 1.56e+04 */
      snprintf(number, sizeof number, "%.0f", strtod(number, NULL));
    return bs_strdup(number);
  }
  char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  return dump;
}

static char *cell(const json_t *row, const bs_field *field) {
  char bytes[32], *raw;
  const json_t *value = json_object_get(row, field->key);
  const int digits = field->digits > 0 ? field->digits : 6;
  if ((field->flags & BS_FIELD_BYTES) != 0 && json_is_number(value)) {
    raw = bs_strdup(bs_bytes_text(json_number_value(value), bytes, sizeof bytes));
  } else if ((field->flags & BS_FIELD_PERCENT) != 0 && json_is_number(value)) {
    json_t *percent = json_real(100 * json_number_value(value));
    raw = raw_text(percent, digits, "yes", "no");
    json_decref(percent);
  } else {
    raw = raw_text(value, digits, "yes", "no");
  }
  if (raw == NULL) return NULL;
  char *shown = bs_report_printable(raw);
  free(raw);
  return shown;
}

/* Cells of the fields shown, row by row; `rows` does not count the header. */
typedef struct grid {
  size_t rows, cols;
  const bs_field **fields;
  char **title;   /* [cols]: as they are shown */
  char **cells;   /* [rows][cols] */
  size_t *width;  /* of a column in a table; 0: not in its rows */
  char *left_out; /* [cols]: 1 where the table had no room for the column */
  int fold_one;   /* a table of one row folds too */
} grid;

static void grid_free(grid *g) {
  for (size_t i = 0; g->cells != NULL && i < g->rows * g->cols; i++) free(g->cells[i]);
  for (size_t i = 0; g->title != NULL && i < g->cols; i++) free(g->title[i]);
  free(g->title);
  free(g->cells);
  free(g->fields);
  free(g->width);
  free(g->left_out);
}

static int grid_make(grid *g, const bs_field *fields, size_t n_fields, const json_t *rows, int all) {
  memset(g, 0, sizeof *g);
  g->rows = json_array_size(rows);
  g->fields = calloc(n_fields + 1, sizeof *g->fields);
  g->width = calloc(n_fields + 1, sizeof *g->width);
  g->title = calloc(n_fields + 1, sizeof *g->title);
  g->left_out = calloc(n_fields + 1, 1);
  if (g->fields == NULL || g->width == NULL || g->title == NULL || g->left_out == NULL) return 0;
  for (size_t i = 0; i < n_fields; i++) {
    if (all || !(fields[i].flags & BS_FIELD_WIDE)) g->fields[g->cols++] = &fields[i];
  }
  g->cells = calloc(g->rows * g->cols + 1, sizeof *g->cells);
  if (g->cells == NULL) return 0;
  for (size_t c = 0; c < g->cols; c++)
    if ((g->title[c] = bs_report_printable(g->fields[c]->title)) == NULL) return 0;
  for (size_t r = 0; r < g->rows; r++) {
    for (size_t c = 0; c < g->cols; c++) {
      g->cells[r * g->cols + c] = cell(json_array_get(rows, r), g->fields[c]);
      if (g->cells[r * g->cols + c] == NULL) return 0;
    }
  }
  return 1;
}

/* The text of a column that has the same in all rows, or nothing; NULL: it has not. */
static const char *folded(const grid *g, size_t c) {
  const char *text = "";
  if (!(g->fields[c]->flags & BS_FIELD_FOLD) || g->rows < (g->fold_one ? 1 : 2)) return NULL;
  for (size_t r = 0; r < g->rows; r++) {
    const char *mine = g->cells[r * g->cols + c];
    if (text[0] != '\0' && mine[0] != '\0' && strcmp(text, mine) != 0) return NULL;
    if (mine[0] != '\0') text = mine;
  }
  return text;
}

/* Nothing to show in any row: the column is left out. */
static int empty(const grid *g, size_t c) {
  for (size_t r = 0; r < g->rows; r++) {
    if (g->cells[r * g->cols + c][0] != '\0') return 0;
  }
  return g->rows > 0;
}

/* A line may end after this character. */
static int parts_words(char c) {
  return c == '/' || c == ',' || c == ';' || c == '{';
}

/* Bytes of the first line of text in at most `width` characters, and where the next begins. Lines break at
 * spaces and after marks (parts_words); only a word that is longer than the line is cut. */
static size_t line_of(const char *text, size_t width, size_t *out_next) {
  size_t n = 0, used = 0, at = 0, next = 0;
  while (text[n] != '\0' && used < width) {
    do n++;
    while (((unsigned char)text[n] & 0xc0) == 0x80);
    used++;
    if (text[n] == ' ')
      at = n, next = n + 1;
    else if (parts_words(text[n - 1]))
      at = next = n;
  }
  if (text[n] == '\0' || at == 0) at = next = n;
  *out_next = next;
  return at;
}

static size_t longest_word(const char *text) {
  size_t longest = 0;
  for (size_t n = 0; *text != '\0'; text++) {
    n = *text == ' ' ? 0 : n + (((unsigned char)*text & 0xc0) != 0x80);
    if (n > longest) longest = n;
    if (parts_words(*text)) n = 0;
  }
  return longest;
}

static size_t cells_width(const grid *g, size_t c) {
  size_t width = 0;
  for (size_t r = 0; r < g->rows; r++) {
    const size_t w = shown_width(g->cells[r * g->cols + c]);
    if (w > width) width = w;
  }
  return width;
}

static size_t total_width(const grid *g) {
  size_t total = 0;
  for (size_t c = 0; c < g->cols; c++) total += g->width[c] > 0 ? g->width[c] + 2 : 0;
  return total > 0 ? total - 2 : 0;
}

/* The least width of a column: words of at most `kept` characters stay whole. Unless every word may be cut,
 * short cells stay in one line, and lines of sentences have SENTENCE characters. */
static size_t least_width(const grid *g, size_t c, size_t kept) {
  const size_t whole = cells_width(g, c), title = longest_word(g->title[c]);
  size_t least = kept > LEAST_CELL ? SENTENCE : LEAST_CELL;
  if (least < title) least = title;
  if (kept > LEAST_CELL && whole <= SHORT_CELL) return whole > title ? whole : title;
  for (size_t r = 0; r < g->rows; r++) {
    const size_t word = longest_word(g->cells[r * g->cols + c]);
    if (word > least) least = word < kept ? word : kept;
  }
  return least;
}

/* The least width in which a title takes two lines at most. */
static size_t title_width(const char *title) {
  size_t width = longest_word(title), next, last;
  for (; width < shown_width(title); width++) {
    line_of(title, width, &next);
    line_of(title + next, width, &last);
    if (title[next + last] == '\0') break;
  }
  return width;
}

/* The widest column of words is narrowed until all fit. */
static void narrow(grid *g, size_t most, size_t kept) {
  while (total_width(g) > most) {
    size_t widest = g->cols;
    for (size_t c = 0; c < g->cols; c++) {
      if ((g->fields[c]->flags & BS_FIELD_RIGHT) || g->width[c] <= least_width(g, c, kept)) continue;
      if (widest == g->cols || g->width[c] > g->width[widest]) widest = c;
    }
    if (widest == g->cols) return;
    g->width[widest]--;
  }
}

static uint32_t rank_of(const bs_field *f) {
  return f->flags & BS_FIELD_LEAST ? 2 : f->flags & BS_FIELD_SPARE ? 1 : 0;
}

/* Leaves out columns of a rank, the last one first, until all fit. The first column of a table stays. */
static void leave_out(grid *g, size_t most, uint32_t rank) {
  for (size_t c = g->cols; c-- > 1 && total_width(g) > most;) {
    if (g->width[c] == 0 || rank_of(g->fields[c]) != rank) continue;
    g->width[c] = 0;
    g->left_out[c] = 1;
  }
}

static void lay_out(grid *g, size_t most) {
  memset(g->width, 0, g->cols * sizeof *g->width);
  memset(g->left_out, 0, g->cols);
  for (size_t c = 0; c < g->cols; c++) {
    const size_t cells = cells_width(g, c), title = shown_width(g->title[c]);
    if (folded(g, c) == NULL && !empty(g, c))
      g->width[c] = (cells > title ? cells : title) + !(cells + title);
  }
  for (size_t c = 0; c < g->cols && total_width(g) > most; c++) { /* a title of two lines */
    const size_t cells = cells_width(g, c), word = title_width(g->title[c]);
    if (g->width[c] > 0) g->width[c] = (cells > word ? cells : word) + !(cells + word);
  }
  leave_out(g, most, 2);
  leave_out(g, most, 1);
  narrow(g, most, SIZE_MAX);
  narrow(g, most, LONG_WORD); /* paths, hashes and lists are cut before a column goes */
  leave_out(g, most, 0);
  narrow(g, most, LEAST_CELL);
}

static void put_spaces(bs_text *line, size_t n) {
  for (size_t i = 0; i < n; i++) bs_text_append(line, " ", 1);
}

/* One row of a table: one line, or as many as the sentences in its cells need. row 0 is the header. */
static int print_row(FILE *out, const grid *g, size_t row) {
  const char **rest = calloc(g->cols + 1, sizeof *rest);
  int more = rest != NULL;
  for (size_t c = 0; more && c < g->cols; c++)
    rest[c] = row == 0 ? g->title[c] : g->cells[(row - 1) * g->cols + c];
  while (more) {
    bs_text line = {0};
    size_t before = 0;
    more = 0;
    for (size_t c = 0; c < g->cols; c++) {
      if (g->width[c] == 0) continue;
      size_t next;
      const size_t n = line_of(rest[c], g->width[c], &next);
      size_t used = 0;
      for (size_t i = 0; i < n; i++) used += ((unsigned char)rest[c][i] & 0xc0) != 0x80;
      const int right = (g->fields[c]->flags & BS_FIELD_RIGHT) != 0;
      put_spaces(&line, before + (right ? g->width[c] - used : 0));
      bs_text_append(&line, rest[c], n);
      before = 2 + (right ? 0 : g->width[c] - used);
      rest[c] += next;
      more |= *rest[c] != '\0';
    }
    if (line.failed) more = -1;
    size_t size = line.size;
    while (size > 0 && line.data[size - 1] == ' ') size--;
    fprintf(out, "%.*s\n", (int)size, size > 0 ? line.data : "");
    bs_text_free(&line);
    if (more < 0) break;
  }
  free(rest);
  return rest != NULL && more == 0;
}

/* "left out: CAUSE, NOTE: --wide shows them", in one line. */
static void tell_left_out(FILE *out, const grid *g, size_t most) {
  static const char *const end = ": --wide shows them", *const begin = "left out: ";
  size_t n = 0, told = 0, used = strlen(begin) + strlen(end) + sizeof " and 99 more";
  for (size_t c = 0; c < g->cols; c++) n += g->left_out[c] != 0;
  if (n == 0) return;
  fputs(begin, out);
  for (size_t c = 0; c < g->cols; c++) {
    const char *title = g->title[c][0] != '\0' ? g->title[c] : g->fields[c]->key;
    const size_t width = shown_width(title) + 2;
    if (!g->left_out[c] || (told > 0 && used + width > most)) continue;
    fprintf(out, "%s%s", told++ > 0 ? ", " : "", title);
    used += width;
  }
  if (told < n) fprintf(out, " and %zu more", n - told);
  fprintf(out, "%s\n", end);
}

/* Prints above a table what all rows have in common. */
static void print_folded(FILE *out, const grid *g, size_t most) {
  size_t above = 0;
  for (size_t c = 0; c < g->cols; c++) {
    const char *text = folded(g, c);
    if (text == NULL || text[0] == '\0') continue;
    const size_t need = shown_width(g->title[c]) + 1 + shown_width(text);
    const char *between = above == 0 ? "" : above + 3 + need > most ? ",\n" : ", ";
    above = between[0] == ',' && between[1] == ' ' ? above + 2 + need : need;
    fprintf(out, "%s%s %s", between, g->title[c], text);
  }
  if (above) fputs("\n\n", out);
}

static int print_table(FILE *out, grid *g, size_t most) {
  lay_out(g, SIZE_MAX);
  g->fold_one = total_width(g) > most;
  print_folded(out, g, most);
  int ok = 1;
  lay_out(g, most);
  for (size_t r = 0; r <= g->rows && ok; r++) ok = print_row(out, g, r);
  tell_left_out(out, g, most);
  return ok;
}

static void print_md(FILE *out, const grid *g) {
  for (size_t r = 0; r <= g->rows; r++) {
    for (size_t c = 0, begun = 0; c < g->cols; c++) {
      if (empty(g, c)) continue;
      fputs(begun++ == 0 ? "| " : " | ", out);
      for (const char *p = r == 0 ? g->title[c] : g->cells[(r - 1) * g->cols + c]; *p != '\0'; p++) {
        if (*p == '|') fputc('\\', out);
        fputc(*p, out);
      }
    }
    fputs(" |\n", out);
    for (size_t c = 0; r == 0 && c < g->cols; c++) {
      if (!empty(g, c)) fputs(g->fields[c]->flags & BS_FIELD_RIGHT ? "| ---: " : "| --- ", out);
    }
    if (r == 0) fputs("|\n", out);
  }
}

/* The text of a value as it is; on a terminal as a table shows it. */
static char *csv_text(const json_t *value, int terminal) {
  char *raw = raw_text(value, 17, "true", "false");
  if (raw == NULL || !terminal) return raw;
  char *shown = bs_report_printable(raw);
  free(raw);
  return shown;
}

/* RFC 4180: quoted where needed, quotes doubled; booleans as in JSON. */
static int print_csv(FILE *out, const bs_field *fields, size_t n_fields, const json_t *rows) {
  const int terminal = bs_report_terminal(out);
  for (size_t c = 0; c < n_fields; c++) bs_print(out, "%s%s", c == 0 ? "" : ",", fields[c].key);
  fputs("\r\n", out);
  for (size_t r = 0; r < json_array_size(rows); r++) {
    for (size_t c = 0; c < n_fields; c++) {
      char *text = csv_text(json_object_get(json_array_get(rows, r), fields[c].key), terminal);
      if (text == NULL) return 0;
      const int quote = strpbrk(text, ",\"\r\n") != NULL;
      if (c > 0) fputc(',', out);
      if (quote) fputc('"', out);
      for (const char *p = text; *p != '\0'; p++) {
        if (*p == '"') fputc('"', out);
        fputc(*p, out);
      }
      if (quote) fputc('"', out);
      free(text);
    }
    fputs("\r\n", out);
  }
  return 1;
}

static int print_json(FILE *out, int lines, const bs_field *fields, size_t n_fields, const json_t *rows) {
  if (!lines) fputs("[", out);
  for (size_t r = 0; r < json_array_size(rows); r++) {
    json_t *picked = json_object();
    int bad = picked == NULL;
    for (size_t c = 0; c < n_fields && !bad; c++) {
      json_t *value = json_object_get(json_array_get(rows, r), fields[c].key);
      bad = value != NULL ? json_object_set(picked, fields[c].key, value)
                          : json_object_set_new(picked, fields[c].key, json_null());
    }
    char *text =
        bad ? NULL : json_dumps(picked, JSON_COMPACT | JSON_REAL_PRECISION(17) | bs_report_json(out));
    json_decref(picked);
    if (text == NULL) return 0;
    fprintf(out, "%s%s%s", lines ? "" : r == 0 ? "\n  " : ",\n  ", text, lines ? "\n" : "");
    free(text);
  }
  if (!lines) fputs(json_array_size(rows) > 0 ? "\n]\n" : "]\n", out);
  return 1;
}

int32_t bs_report_print(FILE *out, int format, const bs_field *fields, size_t n_fields, const json_t *rows,
                        bs_error *err) {
  int ok;
  errno = 0;
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD) {
    grid g;
    ok = grid_make(&g, fields, n_fields, rows, format != BS_FORMAT_TABLE);
    if (ok && format == BS_FORMAT_MD)
      print_md(out, &g);
    else if (ok)
      ok = print_table(out, &g, format == BS_FORMAT_TABLE ? bs_report_width(out) : SIZE_MAX);
    grid_free(&g);
  } else if (format == BS_FORMAT_CSV) {
    ok = print_csv(out, fields, n_fields, rows);
  } else {
    ok = print_json(out, format == BS_FORMAT_JSONL, fields, n_fields, rows);
  }
  if (!ok) return bs_no_memory(err, "printing");
  if (fflush(out) != 0 || ferror(out)) {
    return bs_error_errno(err, BS_IO, "BS-OUT-WRITE", errno, "cannot write the results");
  }
  return BS_OK;
}
