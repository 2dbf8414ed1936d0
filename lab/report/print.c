/* SPDX-License-Identifier: MIT
 * print.c - lines for people, with names and paths that others chose: see report.h. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/report/report.h"

int bs_report_terminal(FILE *out) {
  const int fd = fileno(out);
  return fd >= 0 && isatty(fd);
}

size_t bs_report_width(FILE *out) {
  const char *text = getenv("COLUMNS");
  struct winsize size;
  unsigned long columns = text != NULL ? strtoul(text, NULL, 10) : 0;
  if (columns == 0)
    columns = bs_report_terminal(out) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  if (columns == 0) return BS_TABLE_WIDTH;
  return columns < BS_TABLE_LEAST  ? BS_TABLE_LEAST
         : columns > BS_TABLE_MOST ? BS_TABLE_MOST
                                   : (size_t)columns;
}

size_t bs_report_json(FILE *out) {
  return bs_report_terminal(out) ? JSON_ENSURE_ASCII : 0;
}

const char *bs_bytes_text(double bytes, char *out, size_t size) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (fabs(bytes) < 1024) {
    snprintf(out, size, "%.0f bytes", bytes);
    return out;
  }
  size_t unit = 0;
  double value = bytes / 1024;
  for (; unit < 3 && fabs(value) >= 999.5; unit++) value /= 1024; /* no fourth digit */
  snprintf(out, size, "%.3g %s", value, units[unit]);
  return out;
}

/* One conversion of a format, with the numbers of its stars in their place: "%-*s" is "%-12s". */
typedef struct conversion {
  char text[48];
  char type;   /* d, s, g, ... */
  char length; /* 0, l, L (ll), z, j, t */
} conversion;

/* `args` is the address of a copy, because a star takes an argument from it. */
static const char *read_conversion(const char *at, va_list *args, conversion *out) {
  size_t used = 0;
  *out = (conversion){.text = "%"};
  for (used = 1, at++; *at != '\0' && used + 14 < sizeof out->text; at++) {
    if (*at == '*') {
      used += (size_t)snprintf(out->text + used, 14, "%d", va_arg(*args, int));
      continue;
    }
    out->text[used++] = *at;
    if (*at == 'l') out->length = out->length == 'l' ? 'L' : 'l';
    if (*at == 'z' || *at == 'j' || *at == 't') out->length = *at;
    if (isalpha((unsigned char)*at) && strchr("lhzjtL", *at) == NULL) break;
    if (*at == '%') break;
  }
  out->text[used] = '\0';
  out->type = *at;
  return *at != '\0' ? at + 1 : at;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void add_text(bs_text *line, const conversion *c, const char *text) {
  char *shown = bs_report_printable(text != NULL ? text : "(null)");
  bs_text_printf(line, c->text, shown != NULL ? shown : "");
  free(shown);
}

static void add_whole(bs_text *line, const conversion *c, va_list *args) {
  if (c->length == 'l')
    bs_text_printf(line, c->text, va_arg(*args, long));
  else if (c->length == 'L')
    bs_text_printf(line, c->text, va_arg(*args, long long));
  else if (c->length == 'z')
    bs_text_printf(line, c->text, va_arg(*args, size_t));
  else if (c->length == 'j')
    bs_text_printf(line, c->text, va_arg(*args, intmax_t));
  else if (c->length == 't')
    bs_text_printf(line, c->text, va_arg(*args, ptrdiff_t));
  else
    bs_text_printf(line, c->text, va_arg(*args, int));
}

static void add_conversion(bs_text *line, const conversion *c, va_list *args) {
  if (c->type == '%')
    bs_text_append(line, "%", 1);
  else if (c->type == 's')
    add_text(line, c, va_arg(*args, const char *));
  else if (strchr("aAeEfFgG", c->type) != NULL)
    bs_text_printf(line, c->text, va_arg(*args, double));
  else
    add_whole(line, c, args);
}
#pragma GCC diagnostic pop

int bs_print_lines(FILE *out, const char *text) {
  char *copy = bs_strdup(text), *rest = copy;
  if (copy == NULL) return -1;
  for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n"))
    bs_print(out, rest != NULL ? "%s\n" : "%s", line);
  free(copy);
  return 0;
}

void bs_print_folded(FILE *out, size_t indent, const char *line) {
  char *shown = bs_report_printable(line);
  const size_t width = bs_report_width(out);
  size_t before = 0; /* columns that a line begins with */
  for (const char *rest = shown; rest != NULL && *rest != '\0'; before = indent) {
    const size_t room = width > before ? width - before : 1;
    size_t n = strlen(rest);
    if (n > room) {
      for (n = room; n > 0 && rest[n] != ' ';) n--;
      if (n == 0) n = strcspn(rest, " "); /* a word that is longer */
    }
    fprintf(out, "%*s%.*s\n", (int)before, "", (int)n, rest);
    rest += n + (rest[n] == ' ');
  }
  free(shown);
}

int bs_print(FILE *out, const char *format, ...) {
  bs_text line = {0};
  va_list args;
  conversion c;
  va_start(args, format);
  for (const char *at = format; *at != '\0';) {
    const size_t plain = strcspn(at, "%");
    bs_text_append(&line, at, plain);
    at += plain;
    if (*at == '%') {
      at = read_conversion(at, &args, &c);
      add_conversion(&line, &c, &args);
    }
  }
  va_end(args);
  const int n = line.data == NULL ? 0 : line.failed ? -1 : (int)fwrite(line.data, 1, line.size, out);
  bs_text_free(&line);
  return n;
}
