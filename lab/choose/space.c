/* SPDX-License-Identifier: MIT
 * space.c - see space.h. */
#include "lab/choose/space.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"

void bs_space_init(bs_space *out) {
  memset(out, 0, sizeof *out);
  out->size = 1;
}

/* ---- values --------------------------------------------------------------------------------- */

static int32_t bad_values(const bs_space_knob *k, const char *piece, const char *why, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-KNOB-VALUES", "the values of knob %s: '%.60s' %s", k->name, piece, why);
  bs_error_hint(err, "words or numbers with commas between them, 16:256*2, 8:64+8");
  return BS_CONFIG;
}

static int32_t add_value(bs_space_knob *k, const char *value, bs_error *err) {
  if (value[0] == '\0' || strlen(value) >= BS_SPACE_WORD || strpbrk(value, " \t\n;={}") != NULL)
    return bad_values(k, value, "is no value", err);
  for (uint32_t i = 0; i < k->n; i++)
    if (strcmp(k->value[i], value) == 0) return bad_values(k, value, "comes twice", err);
  if (k->n == BS_SPACE_VALUES) return bad_values(k, value, "is one value too many (64)", err);
  memcpy(k->value[k->n++], value, strlen(value) + 1);
  return BS_OK;
}

/* FROM:TO*FACTOR or FROM:TO+STEP. */
static int32_t add_range(bs_space_knob *k, const char *piece, bs_error *err) {
  char part[3][BS_SPACE_WORD + 1] = {"", "", ""}, value[BS_SPACE_WORD];
  int64_t from = 0, to = 0, by = 0;
  const size_t colon = strcspn(piece, ":"), op = colon + strcspn(piece + colon, "*+");
  const char sign = piece[op];
  snprintf(part[0], sizeof part[0], "%.*s", (int)colon, piece);
  if (sign != '\0') {
    snprintf(part[1], sizeof part[1], "%.*s", (int)(op - colon - 1), piece + colon + 1);
    snprintf(part[2], sizeof part[2], "%s", piece + op + 1);
  }
  if (!bs_parse_i64(part[0], &from) || !bs_parse_i64(part[1], &to) || !bs_parse_i64(part[2], &by))
    return bad_values(k, piece, "is no range", err);
  if (from < (sign == '*') || to < from || to > INT32_MAX || by < 1 + (sign == '*') || by > INT32_MAX)
    return bad_values(k, piece, "is a range without an end", err);
  for (int64_t v = from; v <= to; v = sign == '*' ? v * by : v + by) {
    snprintf(value, sizeof value, "%lld", (long long)v);
    const int32_t rc = add_value(k, value, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int is_rising(const bs_space_knob *k) {
  double before = 0, v = 0;
  for (uint32_t i = 0; i < k->n; i++) {
    if (!bs_parse_f64(k->value[i], &v) || (i > 0 && v <= before)) return 0;
    before = v;
  }
  return 1;
}

static int32_t parse_values(bs_space_knob *k, const char *values, bs_error *err) {
  for (const char *at = values;; at++) {
    char piece[80];
    const size_t length = strcspn(at, ",");
    snprintf(piece, sizeof piece, "%.*s", (int)length, at);
    const int32_t rc = strchr(piece, ':') != NULL ? add_range(k, piece, err) : add_value(k, piece, err);
    if (rc != BS_OK) return rc;
    at += length;
    if (*at == '\0') break;
  }
  k->ordered = (uint32_t)is_rising(k);
  return BS_OK;
}

static uint32_t place_of(const bs_space_knob *k, const char *value) {
  uint32_t i = 0;
  while (i < k->n && strcmp(k->value[i], value) != 0) i++;
  return i;
}

int32_t bs_space_add(bs_space *s, const char *name, const char *values, const char *standard, bs_error *err) {
  if (s->n == BS_SPACE_KNOBS)
    return bs_error_set(err, BS_CONFIG, "BS-KNOB-SPACE", "there are more than %d knobs", BS_SPACE_KNOBS);
  bs_space_knob *k = &s->knob[s->n];
  memset(k, 0, sizeof *k);
  snprintf(k->name, sizeof k->name, "%s", name);
  const int32_t rc = parse_values(k, values, err);
  if (rc != BS_OK) return rc;
  k->standard = place_of(k, standard);
  if (k->standard == k->n && strcmp(standard, "auto") != 0)
    return bad_values(k, standard, "is the default, but not one of them", err);
  if (s->size > BS_SPACE_MOST / k->n) {
    bs_error_set(err, BS_CONFIG, "BS-KNOB-SPACE", "knobs up to %s make more than %llu points", name,
                 (unsigned long long)BS_SPACE_MOST);
    bs_error_hint(err, "leave out values: --knob %s=A,B", name);
    return BS_CONFIG;
  }
  s->size *= k->n;
  s->n++;
  return BS_OK;
}

int32_t bs_space_limit(bs_space *s, const char *constraint, bs_error *err) {
  if (strlen(constraint) >= sizeof s->constraint)
    return bs_error_set(err, BS_USAGE, "BS-KNOB-WHERE", "the constraint is longer than %zu characters",
                        sizeof s->constraint - 1);
  bs_error why = BS_ERROR_INIT;
  if (bs_where_holds(s, constraint, 0, &why) < 0) {
    if (err != NULL) *err = why;
    return why.code;
  }
  memcpy(s->constraint, constraint, strlen(constraint) + 1);
  return BS_OK;
}

int bs_space_allows(const bs_space *s, uint64_t point) {
  return point < s->size && (s->constraint[0] == '\0' || bs_where_holds(s, s->constraint, point, NULL) == 1);
}

uint64_t bs_space_count(const bs_space *s) {
  if (s->constraint[0] == '\0') return s->size;
  uint64_t n = 0;
  for (uint64_t p = 0; p < s->size; p++) n += bs_space_allows(s, p) != 0;
  return n;
}

/* ---- points --------------------------------------------------------------------------------- */

static uint64_t weight_of(const bs_space *s, uint32_t knob) {
  uint64_t weight = 1;
  for (uint32_t i = knob + 1; i < s->n; i++) weight *= s->knob[i].n;
  return weight;
}

uint32_t bs_space_place(const bs_space *s, uint64_t point, uint32_t knob) {
  return (uint32_t)(point / weight_of(s, knob) % s->knob[knob].n);
}

uint64_t bs_space_with(const bs_space *s, uint64_t point, uint32_t knob, uint32_t place) {
  const uint64_t weight = weight_of(s, knob);
  return point - bs_space_place(s, point, knob) * weight + place * weight;
}

char *bs_space_text(const bs_space *s, uint64_t point, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (uint32_t i = 0; i < s->n && used < size; i++) {
    const bs_space_knob *k = &s->knob[i];
    const int n = snprintf(out + used, size - used, "%s%s=%s", i > 0 ? ";" : "", k->name,
                           k->value[bs_space_place(s, point, i)]);
    used += n > 0 ? (size_t)n : 0;
  }
  return out;
}

int bs_space_value(const char *text, const char *name, char *out, size_t size) {
  const size_t length = strlen(name);
  for (const char *at = text; *at != '\0';) {
    const size_t piece = strcspn(at, ";");
    if (piece > length && strncmp(at, name, length) == 0 && at[length] == '=') {
      snprintf(out, size, "%.*s", (int)(piece - length - 1), at + length + 1);
      return 1;
    }
    at += piece + (at[piece] == ';');
  }
  return 0;
}

int bs_space_find(const bs_space *s, const char *text, uint64_t *out) {
  char value[BS_SPACE_WORD + 1];
  uint32_t pieces = text[0] != '\0';
  *out = 0;
  for (const char *at = text; (at = strchr(at, ';')) != NULL; at++) pieces++;
  for (uint32_t i = 0; i < s->n; i++) {
    const uint32_t place = bs_space_value(text, s->knob[i].name, value, sizeof value)
                               ? place_of(&s->knob[i], value)
                               : s->knob[i].n;
    if (place == s->knob[i].n) return 0;
    *out = bs_space_with(s, *out, i, place);
  }
  return pieces == s->n;
}

static const bs_space_knob *knob_of(const bs_space *s, const char *name) {
  for (uint32_t i = 0; i < s->n; i++)
    if (strcmp(s->knob[i].name, name) == 0) return &s->knob[i];
  return NULL;
}

char *bs_space_why(const bs_space *s, const char *text, char *out, size_t size) {
  char value[BS_SPACE_WORD + 1], name[32];
  uint64_t point = 0;
  out[0] = '\0';
  for (const char *at = text; *at != '\0' && out[0] == '\0';) {
    const size_t piece = strcspn(at, ";");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "=;"), at);
    const bs_space_knob *k = knob_of(s, name);
    if (k == NULL)
      snprintf(out, size, "there is no knob '%s'", name);
    else if (!bs_space_value(at, name, value, sizeof value) || place_of(k, value) == k->n)
      snprintf(out, size, "'%.*s' is not one of the values of %s here", (int)(piece < 60 ? piece : 60), at,
               name);
    at += piece + (at[piece] == ';');
  }
  for (uint32_t i = 0; i < s->n && out[0] == '\0'; i++)
    if (!bs_space_value(text, s->knob[i].name, value, sizeof value))
      snprintf(out, size, "it has no value for %s", s->knob[i].name);
  if (out[0] == '\0' && !bs_space_find(s, text, &point)) snprintf(out, size, "a knob comes twice");
  return out;
}

static uint32_t nearest_place(const bs_space_knob *k, const char *value) {
  const uint32_t fallback = k->standard < k->n ? k->standard : 0;
  double wanted = 0, least = INFINITY, v = 0;
  uint32_t best = place_of(k, value);
  if (best < k->n) return best;
  if (!k->ordered || !bs_parse_f64(value, &wanted) || wanted <= 0) return fallback;
  best = fallback;
  for (uint32_t i = 0; i < k->n; i++) {
    const double far = bs_parse_f64(k->value[i], &v) && v > 0 ? fabs(log(v / wanted)) : INFINITY;
    if (far >= least) continue;
    least = far;
    best = i;
  }
  return best;
}

uint64_t bs_space_nearest(const bs_space *s, const char *text, int *out_exact) {
  char value[BS_SPACE_WORD + 1];
  uint64_t point = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    if (!bs_space_value(text, s->knob[i].name, value, sizeof value)) value[0] = '\0';
    point = bs_space_with(s, point, i, nearest_place(&s->knob[i], value));
  }
  uint64_t found = 0;
  *out_exact = bs_space_find(s, text, &found) && found == point;
  return point;
}
