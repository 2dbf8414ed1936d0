/* SPDX-License-Identifier: MIT
 * text.c - small string tools: the growing buffer that all printed output goes through, the nearest
 * known name for an unknown one, strict number parsing. Called by config, plugins, lab and bsrun.
 * Thread-safe on distinct buffers. Numbers are read and printed in the C locale whatever the program
 * that embeds us has set. */
#include "core/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void) {
  c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t the_c_locale(void) {
  pthread_once(&c_locale_once, make_c_locale);
  return c_locale;
}

static int reserve(bs_text *t, size_t more) {
  if (t->failed) return 0;
  if (more >= SIZE_MAX / 2 || t->size >= SIZE_MAX / 2) {
    t->failed = 1;
    return 0;
  }
  size_t need = t->size + more + 1;
  if (need <= t->capacity) return 1;
  size_t capacity = t->capacity < 64 ? 64 : t->capacity;
  while (capacity < need) capacity *= 2;
  char *data = realloc(t->data, capacity);
  if (data == NULL) {
    t->failed = 1;
    return 0;
  }
  t->data = data;
  t->capacity = capacity;
  return 1;
}

void bs_text_append(bs_text *t, const char *data, size_t size) {
  if (!reserve(t, size)) return;
  if (size > 0) memcpy(t->data + t->size, data, size);
  t->size += size;
  t->data[t->size] = '\0';
}

void bs_text_printf(bs_text *t, const char *fmt, ...) {
  va_list ap, again;
  if (t->failed) return;
  locale_t c = the_c_locale();
  locale_t old = c != (locale_t)0 ? uselocale(c) : (locale_t)0;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n < 0) {
    t->failed = 1;
  } else if (reserve(t, (size_t)n)) {
    vsnprintf(t->data + t->size, (size_t)n + 1, fmt, again);
    t->size += (size_t)n;
  }
  va_end(again);
  va_end(ap);
  if (old != (locale_t)0) uselocale(old);
}

void bs_text_word(bs_text *t, const char *word) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/=:,+@%#";
  bs_text_append(t, " ", 1);
  if (word[0] != '\0' && word[0] != '#' && word[strspn(word, plain)] == '\0') {
    bs_text_append(t, word, strlen(word));
    return;
  }
  bs_text_append(t, "'", 1);
  for (const char *p = word; *p != '\0'; p++) {
    if (*p == '\'') {
      bs_text_append(t, "'\\''", 4);
    } else {
      bs_text_append(t, p, 1);
    }
  }
  bs_text_append(t, "'", 1);
}

void bs_text_free(bs_text *t) {
  free(t->data);
  memset(t, 0, sizeof *t);
}

enum { NAME_MAX_LENGTH = 128 };

static int fold(char c) {
  return tolower((unsigned char)c);
}

/* Damerau-Levenshtein (optimal string alignment) distance of two names shorter than NAME_MAX_LENGTH,
 * letters compared without case; three rolling rows. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb) {
  size_t rows[3][NAME_MAX_LENGTH + 1];
  size_t *before = rows[0], *last = rows[1], *now = rows[2];
  for (size_t j = 0; j <= nb; j++) last[j] = j;
  for (size_t i = 1; i <= na; i++) {
    now[0] = i;
    for (size_t j = 1; j <= nb; j++) {
      size_t cost = fold(a[i - 1]) != fold(b[j - 1]);
      size_t best = last[j - 1] + cost;
      if (last[j] + 1 < best) best = last[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      int swapped = i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]);
      if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
      now[j] = best;
    }
    size_t *free_row = before;
    before = last;
    last = now;
    now = free_row;
  }
  return last[nb];
}

/* Words of other programs for things that have a name here. */
static const char *known_as(const char *word, const char *const *candidates, size_t count) {
  static const char *const others[][2] = {
      {"gpu", "cuda"},   {"nvidia", "cuda"},      {"batch", "b"},       {"batch-size", "b"},
      {"tokens", "b"},   {"ranks", "world-size"}, {"np", "world-size"}, {"nproc", "world-size"},
      {"ls", "runs"},    {"list", "runs"},        {"float8", "f8e4m3"}, {"e4m3", "f8e4m3"},
      {"e5m2", "f8e5m2"}};
  for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
    for (size_t i = 0; strcmp(word, others[k][0]) == 0 && i < count; i++)
      if (candidates[i] != NULL && strcmp(candidates[i], others[k][1]) == 0) return candidates[i];
  return NULL;
}

/* The shortest candidate that the word is the beginning of. */
static const char *begun_by(const char *word, size_t n, const char *const *candidates, size_t count) {
  const char *found = NULL;
  for (size_t i = 0; n >= 3 && i < count; i++)
    if (candidates[i] != NULL && strncmp(candidates[i], word, n) == 0 &&
        (found == NULL || strlen(candidates[i]) < strlen(found)))
      found = candidates[i];
  return found;
}

const char *bs_nearest(const char *word, const char *const *candidates, size_t count) {
  size_t n = strlen(word);
  if (n == 0 || n > NAME_MAX_LENGTH) return NULL;
  const char *other = known_as(word, candidates, count);
  if (other != NULL) return other;
  size_t best = 1 + n / 4 + 1; /* one more than is still near */
  const char *found = NULL;
  for (size_t i = 0; i < count; i++) {
    if (candidates[i] == NULL) continue;
    size_t m = strlen(candidates[i]);
    size_t gap = m > n ? m - n : n - m;
    if (m == 0 || m > NAME_MAX_LENGTH || gap >= best) continue;
    size_t d = distance(word, n, candidates[i], m);
    /* A name that shares no letter is not near, however short both are. */
    if (d < best && d < (n > m ? n : m)) {
      best = d;
      found = candidates[i];
    }
  }
  return found != NULL ? found : begun_by(word, n, candidates, count);
}

int64_t bs_size_unit(const char **at) {
  static const char letters[] = "kMG";
  const char first = **at == 'K' ? 'k' : **at; /* Ki is written with a capital K */
  const char *found = first == '\0' ? NULL : strchr(letters, first);
  int64_t unit = 1;
  if (found == NULL) return 1;
  ++*at;
  const int binary = **at == 'i';
  if (binary) ++*at;
  for (const char *l = letters; l <= found; l++) unit *= binary ? 1024 : 1000;
  return unit;
}

/* [+-] digits without leading zeros (which other readers take for octal). *out_end: after the last digit. */
static int read_digits(const char *text, int64_t *out, const char **out_end) {
  const char *p = text;
  int negative = *p == '-';
  if (*p == '-' || *p == '+') p++;
  if (!(*p >= '0' && *p <= '9') || (p[0] == '0' && p[1] >= '0' && p[1] <= '9')) return 0;
  int64_t value = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    int digit = *p - '0';
    if (__builtin_mul_overflow(value, (int64_t)10, &value)) return 0;
    if (__builtin_add_overflow(value, (int64_t)(negative ? -digit : digit), &value)) return 0;
  }
  *out = value;
  *out_end = p;
  return 1;
}

int bs_parse_i64(const char *text, int64_t *out) {
  const char *end;
  int64_t value;
  if (!read_digits(text, &value, &end) || *end != '\0') return 0;
  *out = value;
  return 1;
}

int bs_parse_size(const char *text, int64_t *out) {
  const char *end;
  int64_t value;
  if (!read_digits(text, &value, &end)) return 0;
  if (__builtin_mul_overflow(value, bs_size_unit(&end), &value) || *end != '\0') return 0;
  *out = value;
  return 1;
}

static const char *skip_digits(const char *p) {
  while (*p >= '0' && *p <= '9') p++;
  return p;
}

/* Decimal only, without leading zeros: the grammar is checked before strtod, which would also take hex, inf,
 * nan and blanks. */
int bs_parse_f64(const char *text, double *out) {
  const char *p = text;
  if (*p == '-' || *p == '+') p++;
  const char *whole = p;
  p = skip_digits(p);
  if (p - whole > 1 && whole[0] == '0') return 0; /* as bs_parse_i64: other readers take it for octal */
  size_t digits = (size_t)(p - whole);
  if (*p == '.') {
    const char *fraction = ++p;
    p = skip_digits(p);
    digits += (size_t)(p - fraction);
  }
  if (digits == 0) return 0;
  if (*p == 'e' || *p == 'E') {
    p++;
    if (*p == '-' || *p == '+') p++;
    const char *exponent = p;
    p = skip_digits(p);
    if (p == exponent) return 0;
  }
  if (*p != '\0') return 0;
  locale_t c = the_c_locale();
  if (c == (locale_t)0) return 0;
  double value = strtod_l(text, NULL, c);
  if (!(value - value == 0.0)) return 0; /* overflowed to infinity */
  *out = value;
  return 1;
}

int bs_parse_bool(const char *text, int *out) {
  static const struct {
    const char *word;
    int value;
  } words[] = {{"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0}, {"on", 1}, {"off", 0}, {"1", 1}, {"0", 0}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const char *w = words[i].word, *t = text;
    while (*w != '\0' && fold(*t) == *w) w++, t++;
    if (*w == '\0' && *t == '\0') {
      *out = words[i].value;
      return 1;
    }
  }
  return 0;
}

char *bs_strdup(const char *s) {
  if (s == NULL) return NULL;
  size_t n = strlen(s) + 1;
  char *copy = malloc(n);
  if (copy != NULL) memcpy(copy, s, n);
  return copy;
}

const char *bs_innermost(const char *name) {
  const char *colon = strrchr(name, ':');
  return colon != NULL ? colon + 1 : name;
}
