/* SPDX-License-Identifier: MIT
 * where.c - the constraint of a space: recursive descent over the text, one function a level of precedence. A
 * value is a number or a word; truth is a number. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/choose/space.h"
#include "lab/error.h"

typedef struct value {
  double number;
  char word[32]; /* "": a number */
} value;

enum { MAX_DEPTH = 32 };
typedef struct reader {
  const bs_space *space;
  uint64_t point;
  const char *text, *at;
  int knobs, depth;
  int unknown;  /* the error is a name that another space may have */
  char why[96]; /* "": no error */
} reader;

static void fail(reader *r, const char *why, const char *what) {
  if (r->why[0] == '\0') snprintf(r->why, sizeof r->why, "%s '%.40s'", why, what);
}

/* Is `sign` next? Then it is taken. "<" is not taken from "<=", nor "!" from "!=". */
static int take(reader *r, const char *sign) {
  const size_t n = strlen(sign);
  while (isspace((unsigned char)*r->at)) r->at++;
  if (strncmp(r->at, sign, n) != 0 || (n == 1 && strchr("<>!", sign[0]) != NULL && r->at[1] == '=')) return 0;
  r->at += n;
  return 1;
}

static double number_of(reader *r, const value *v) {
  if (v->word[0] != '\0' && r->why[0] == '\0') r->unknown = 1;
  if (v->word[0] != '\0') fail(r, "a word where a number is due:", v->word);
  return v->number;
}

/* Three-valued truth: NAN is the truth of a value that is not a number; a constraint with it never holds. */
static double truth(double x) {
  return isnan(x) ? NAN : x != 0.0;
}

static double and_of(double x, double y) {
  return x == 0.0 || y == 0.0 ? 0.0 : isnan(x) || isnan(y) ? NAN : 1.0;
}

static double not_of(double x) {
  return isnan(x) ? NAN : x == 0.0;
}

static value any(reader *r);

static value name_of(reader *r) {
  value v = {0};
  size_t n = 0;
  while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
  snprintf(v.word, sizeof v.word, "%.*s", (int)n, r->at);
  if (n == 0)
    fail(r, r->at[0] == '\0' ? "it ends where a knob or a number is due after" : "cannot read",
         r->at[0] == '\0' ? r->text : r->at);
  r->at += n;
  int known = 0; /* as a value of a knob */
  for (uint32_t i = 0; i < r->space->n; i++) {
    const bs_space_knob *k = &r->space->knob[i];
    for (uint32_t j = 0; j < k->n; j++) known |= strcmp(k->value[j], v.word) == 0;
    if (strcmp(k->name, v.word) != 0) continue;
    snprintf(v.word, sizeof v.word, "%s", k->value[bs_space_place(r->space, r->point, i)]);
    if (bs_parse_f64(v.word, &v.number)) v.word[0] = '\0';
    r->knobs++;
    return v;
  }
  if (!known && r->why[0] == '\0') r->unknown = 1;
  if (!known) fail(r, "neither a knob nor one of its values:", v.word);
  return v;
}

/* Reads a number with all letters that follow its digits: 0x10 and 010 are refused, as everywhere. */
static double number(reader *r) {
  char word[64];
  double found = 0;
  size_t n = 0;
  while (isalnum((unsigned char)r->at[n]) || r->at[n] == '.' ||
         ((r->at[n] == '+' || r->at[n] == '-') && n > 0 && tolower((unsigned char)r->at[n - 1]) == 'e'))
    n++;
  snprintf(word, sizeof word, "%.*s", (int)n, r->at);
  if (n >= sizeof word || !bs_parse_f64(word, &found)) fail(r, "no decimal number:", word);
  r->at += n;
  return found;
}

static value single(reader *r) {
  value v = {0};
  if (r->depth >= MAX_DEPTH || r->why[0] != '\0') {
    fail(r, "too deep at", r->at);
    return v;
  }
  r->depth++;
  if (take(r, "!")) {
    const value of = single(r);
    v.number = not_of(number_of(r, &of));
  } else if (take(r, "(")) {
    v = any(r);
    if (!take(r, ")")) fail(r, "')' is missing at", r->at);
  } else if (isdigit((unsigned char)*r->at)) {
    v.number = number(r);
  } else {
    v = name_of(r);
  }
  r->depth--;
  return v;
}

static value product(reader *r) {
  static const char *const signs[] = {"*", "/", "%"};
  value v = single(r);
  for (int i = 0; i < 3;) {
    if (!take(r, signs[i])) {
      i++;
      continue;
    }
    const value b = single(r);
    const double x = number_of(r, &v), y = number_of(r, &b);
    v.number = i == 0 ? x * y : i == 1 ? x / y : fmod(x, y);
    i = 0;
  }
  return v;
}

static value sum(reader *r) {
  value v = product(r);
  for (;;) {
    const int plus = take(r, "+"), minus = !plus && take(r, "-");
    if (!plus && !minus) return v;
    const value b = product(r);
    const double x = number_of(r, &v), y = number_of(r, &b);
    v.number = plus ? x + y : x - y;
  }
}

static value comparison(reader *r) {
  static const char *const signs[] = {"<=", ">=", "==", "!=", "<", ">"};
  value v = sum(r);
  for (int i = 0; i < 6; i++) {
    if (!take(r, signs[i])) continue;
    const value b = sum(r);
    const int equal =
        v.word[0] != '\0' || b.word[0] != '\0' ? strcmp(v.word, b.word) == 0 : v.number == b.number;
    const int nan = v.word[0] == '\0' && b.word[0] == '\0' && (isnan(v.number) || isnan(b.number));
    if (!nan && (i == 2 || i == 3)) return (value){.number = equal == (i == 2)};
    const double x = number_of(r, &v), y = number_of(r, &b);
    if (isnan(x) || isnan(y)) return (value){.number = NAN};
    return (value){.number = i == 0 ? x <= y : i == 1 ? x >= y : i == 4 ? x < y : x > y};
  }
  return v;
}

static value both(reader *r) {
  value v = comparison(r);
  while (take(r, "&&")) {
    const value b = comparison(r);
    const double x = truth(number_of(r, &v)), y = truth(number_of(r, &b));
    v.number = and_of(x, y);
  }
  return v;
}

static value any(reader *r) {
  value v = both(r);
  while (take(r, "||")) {
    const value b = both(r);
    const double x = truth(number_of(r, &v)), y = truth(number_of(r, &b));
    v.number = not_of(and_of(not_of(x), not_of(y)));
  }
  return v;
}

int bs_where_holds(const bs_space *space, const char *text, uint64_t point, bs_error *err) {
  reader r = {.space = space, .point = point, .text = text, .at = text};
  const value v = any(&r);
  const double holds = number_of(&r, &v);
  take(&r, "");
  if (r.why[0] == '\0' && *r.at != '\0') fail(&r, "cannot read", r.at);
  if (r.why[0] == '\0' && r.knobs == 0) fail(&r, "no knob is named in", text);
  if (r.why[0] == '\0') return truth(holds) == 1.0;
  bs_error_set(err, r.unknown ? BS_CONFIG : BS_USAGE, "BS-KNOB-WHERE", "the constraint '%.200s': %s", text,
               r.why);
  bs_error_hint(err, "knobs, numbers, words and * / %% + - < <= > >= == != && || ! ( )");
  return -1;
}
