/* SPDX-License-Identifier: MIT
 * spell.c - writes a regular expression of Oniguruma (Ruby's syntax, Unicode 16) so that PCRE2 finds the
 * same. Classes of characters are spelled out: \s is White_Space, and categories get what Unicode added since
 * the version of PCRE2. What the two read in different ways, or what only one of them has, is refused. Called
 * by pattern.c. */
#include <string.h>

#include "core/base/error.h"
#include "text/pattern.h"
#include "text/unicode_tables.h"

/* White_Space, and all other characters. */
#define SPACE                                                                                                \
  "\\t-\\r\\x{20}-\\x{20}\\x{85}-\\x{85}\\x{a0}-\\x{a0}\\x{1680}-\\x{1680}\\x{2000}-\\x{200a}\\x{2028}-\\x{" \
  "2029}"                                                                                                    \
  "\\x{202f}-\\x{202f}\\x{205f}-\\x{205f}\\x{3000}-\\x{3000}"
#define NO_SPACE                                                                                            \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-" \
  "\\x{2027}"                                                                                               \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"

typedef struct speller {
  const char *at, *end, *begin;
  bs_text *out;
  int in_class;
  bs_error *err;
} speller;

static int32_t refuse(speller *s, const char *what) {
  return bs_error_set(s->err, BS_UNSUPPORTED, "BS-TOK-REGEX", "%s at byte %zu of the pattern '%.200s'", what,
                      (size_t)(s->at - s->begin), s->begin);
}

static void put(speller *s, const char *text) {
  bs_text_append(s->out, text, strlen(text));
}

/* A category of one or two letters, with what Unicode added. Each piece is a range: a hyphen after it is a
 * hyphen. */
static void put_category(speller *s, const char *name) {
  bs_text_printf(s->out, "\\p{%s}", name);
  for (size_t i = 0; i < bs_tok_n_added_chars; i++) {
    const bs_tok_added_chars *row = &bs_tok_the_added_chars[i];
    if (row->category[0] == name[0] && (name[1] == '\0' || row->category[1] == name[1]))
      bs_text_printf(s->out, "\\x{%x}-\\x{%x}", (unsigned)row->first, (unsigned)row->last);
  }
}

/* Letters, marks, digits and connectors, as Oniguruma's \w. */
static void put_word(speller *s) {
  static const char *const parts[] = {"L", "M", "Nd", "Nl", "Pc"};
  put(s, "\\p{Alphabetic}");
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) put_category(s, parts[i]);
}

/* \p{Name} at s->at, which moves past it. */
static int32_t category(speller *s, int negated) {
  static const char *const known[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                      "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                      "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
  char name[4] = "";
  const char *close = memchr(s->at, '}', (size_t)(s->end - s->at));
  if (s->at == s->end || *s->at != '{' || close == NULL) return refuse(s, "\\p without {NAME}");
  const char *from = s->at + 1;
  if (*from == '^') {
    negated = !negated;
    from++;
  }
  const size_t n = (size_t)(close - from);
  int found = 0;
  for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
    if (strlen(known[i]) == n && memcmp(known[i], from, n) == 0) found = 1;
  if (!found) return refuse(s, "\\p{} of something that is no general category but C");
  if (negated && s->in_class) return refuse(s, "\\P inside of [ ]");
  memcpy(name, from, n);
  s->at = close + 1;
  if (!s->in_class) put(s, negated ? "[^" : "[");
  put_category(s, name);
  if (!s->in_class) put(s, "]");
  return BS_OK;
}

static int is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \xHH, \x{H...}, \uHHHH: s->at stands after the x or u. */
static int32_t code_point(speller *s, char kind) {
  const char *from = s->at;
  size_t n = 0;
  const size_t most = kind == 'u' ? 4 : 2;
  if (kind == 'x' && from < s->end && *from == '{') {
    for (from++; from + n < s->end && n < 7 && is_hex(from[n]);) n++;
    if (n == 0 || n > 6 || from + n == s->end || from[n] != '}')
      return refuse(s, "\\x{} without a code point");
    s->at = from + n + 1;
  } else {
    while (from + n < s->end && n < most && is_hex(from[n])) n++;
    if (n != most) return refuse(s, "a code point of too few digits");
    if (kind == 'x' && from[0] > '7') return refuse(s, "\\x of a byte that is no character");
    s->at = from + n;
  }
  bs_text_printf(s->out, "\\x{%.*s}", (int)n, from);
  return BS_OK;
}

/* s->at is after the backslash. */
static int32_t escape(speller *s) {
  if (s->at == s->end) return refuse(s, "a backslash ends it");
  const char c = *s->at++;
  const char *open = s->in_class ? "" : "[", *no = s->in_class ? "" : "[^", *close = s->in_class ? "" : "]";
  switch (c) {
    case 's':
      bs_text_printf(s->out, "%s%s%s", open, SPACE, close);
      return BS_OK;
    case 'S':
      bs_text_printf(s->out, "%s%s%s", open, NO_SPACE, close);
      return BS_OK;
    case 'd':
    case 'w':
    case 'D':
    case 'W':
      if (s->in_class && (c == 'D' || c == 'W')) return refuse(s, "\\D or \\W inside of [ ]");
      put(s, c == 'D' || c == 'W' ? no : open);
      if (c == 'd' || c == 'D')
        put_category(s, "Nd");
      else
        put_word(s);
      put(s, close);
      return BS_OK;
    case 'p':
    case 'P':
      return category(s, c == 'P');
    case 'x':
    case 'u':
      return code_point(s, c);
    case 'v':
      put(s, "\\x{b}");
      return BS_OK;
    default:
      if (strchr("rntfae", c) == NULL && (c <= ' ' || c >= 0x7f || (c >= '0' && c <= '9') ||
                                          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
        return refuse(s, "an escape that is not known");
      bs_text_append(s->out, s->at - 2, 2);
      return BS_OK;
  }
}

/* s->at is after the [. */
static int32_t class(speller *s) {
  put(s, "[");
  if (s->at < s->end && *s->at == '^') {
    put(s, "^");
    s->at++;
  }
  if (s->at < s->end && *s->at == ']') return refuse(s, "an empty [ ]");
  s->in_class = 1;
  while (s->at < s->end && *s->at != ']') {
    const char c = *s->at++;
    int32_t rc = BS_OK;
    if (c == '\\')
      rc = escape(s);
    else if (c == '[' || (c == '&' && s->at < s->end && *s->at == '&'))
      rc = refuse(s, "a set inside of [ ]");
    else
      bs_text_append(s->out, &c, 1);
    if (rc != BS_OK) return rc;
  }
  s->in_class = 0;
  if (s->at == s->end) return refuse(s, "[ without ]");
  s->at++;
  put(s, "]");
  return BS_OK;
}

static int32_t group(speller *s) {
  static const char *const known[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:"};
  if (s->at < s->end && *s->at == '*') return refuse(s, "a verb of PCRE2");
  put(s, "(");
  if (s->at == s->end || *s->at != '?') return BS_OK;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const size_t n = strlen(known[i]);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, known[i], n) != 0) continue;
    put(s, known[i]);
    s->at += n;
    return BS_OK;
  }
  return refuse(s, "a group that is not known");
}

/* {n}, {n,} or {n,m}, or { as it is; s->at is after the {. */
static int32_t interval(speller *s) {
  const char *p = s->at;
  put(s, "{");
  while (p < s->end && *p >= '0' && *p <= '9') p++;
  if (p == s->at) return p < s->end && *p == ',' ? refuse(s, "{,n}") : BS_OK;
  if (p < s->end && *p == ',')
    for (p++; p < s->end && *p >= '0' && *p <= '9';) p++;
  if (p == s->end || *p != '}') return BS_OK;
  if (p + 1 < s->end && p[1] == '+') return refuse(s, "{n}+");
  bs_text_append(s->out, s->at, (size_t)(p + 1 - s->at));
  s->at = p + 1;
  return BS_OK;
}

int32_t bs_tok_spell(const char *pattern, size_t bytes, bs_text *out, bs_error *err) {
  speller s = {pattern, pattern + bytes, pattern, out, 0, err};
  int32_t rc = BS_OK;
  if (bytes == 0) return refuse(&s, "nothing to look for");
  if (bytes > BS_TOK_MAX_PATTERN)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TOK-REGEX", "a pattern of %zu bytes; at most %d are read",
                        bytes, BS_TOK_MAX_PATTERN);
  if (bytes >= 4 && memcmp(pattern, "(?i)", 4) == 0) {
    put(&s, "(?i)");
    s.at += 4;
  }
  while (rc == BS_OK && s.at < s.end) {
    const char c = *s.at++;
    if (c == '\\')
      rc = escape(&s);
    else if (c == '[')
      rc = class(&s);
    else if (c == '(')
      rc = group(&s);
    else if (c == '{')
      rc = interval(&s);
    else if (c == '^' || c == '$')
      rc = refuse(&s, "^ or $, which mean lines here and the whole text there,");
    else
      bs_text_append(out, &c, 1);
  }
  if (rc == BS_OK && out->failed)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a pattern");
  return rc;
}
