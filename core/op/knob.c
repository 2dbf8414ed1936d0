/* SPDX-License-Identifier: MIT
 * knob.c - see knob.h. A set is walked part by part: a word, or first:last*factor, or first:last+step. */
#include "core/op/knob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"

enum { MAX_VALUES = 4096, MAX_NAME = 31 };

/* A part of a set: one word, or numbers. */
typedef struct part {
  const char *word;
  size_t length;
  int64_t first, last, by;
  int range, times;
} part;

static int digits(const char **at, int64_t *out) {
  const char *from = *at;
  int64_t value = 0;
  for (; **at >= '0' && **at <= '9'; ++*at) {
    if (*at - from >= 15) return 0;
    value = 10 * value + (**at - '0');
  }
  *out = value;
  return *at > from && (*from != '0' || *at - from == 1);
}

static int word_valid(const char *word, size_t length) {
  if (length == 0 || length >= BS_KNOB_VALUE) return 0;
  for (size_t i = 0; i < length; i++)
    if (word[i] == '\0' ||
        strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", word[i]) == NULL)
      return 0;
  return 1;
}

/* Reads the next part: 1; 0 at the end, -1 when the text is not a valid part. */
static int next_part(const char **at, part *out) {
  if (**at == '\0') return 0;
  const char *p = *at;
  memset(out, 0, sizeof *out);
  out->word = p;
  out->length = strcspn(p, ",");
  *at = p + out->length + (p[out->length] == ',');
  if (p[out->length] == ',' && **at == '\0') return -1; /* a comma at the end */
  if (memchr(p, ':', out->length) == NULL) return word_valid(p, out->length) ? 1 : -1;
  out->range = 1;
  if (!digits(&p, &out->first) || *p++ != ':' || !digits(&p, &out->last)) return -1;
  if (*p != '*' && *p != '+') return -1;
  out->times = *p++ == '*';
  if (!digits(&p, &out->by) || p != out->word + out->length || out->last < out->first) return -1;
  return out->times ? (out->by >= 2 && out->first >= 1 ? 1 : -1) : (out->by >= 1 ? 1 : -1);
}

static int64_t following(const part *p, int64_t value) {
  if (p->times) return value > p->last / p->by ? p->last + 1 : value * p->by;
  return value + p->by;
}

/* Calls `each` for every value until it returns other than 0, and returns that. -1: the set is malformed. */
static int walk(const char *values, int (*each)(void *user, const char *value, size_t length), void *user) {
  part p;
  int got, stop = 0;
  if (values == NULL || values[0] == '\0') return -1;
  while ((got = next_part(&values, &p)) == 1) {
    if (!p.range && (stop = each(user, p.word, p.length)) != 0) return stop;
    for (int64_t v = p.first; p.range && v <= p.last; v = following(&p, v)) {
      char text[24];
      const int n = snprintf(text, sizeof text, "%lld", (long long)v);
      if ((stop = each(user, text, (size_t)n)) != 0) return stop;
    }
  }
  return got;
}

static int count_one(void *user, const char *value, size_t length) {
  uint32_t *n = user;
  (void)value;
  (void)length;
  return ++*n > MAX_VALUES ? -1 : 0;
}

uint32_t bs_knob_count(const bs_knob *knob) {
  uint32_t n = 0;
  return walk(knob->values, count_one, &n) == 0 ? n : 0;
}

typedef struct wanted {
  uint32_t left;
  char *out;
  size_t size;
} wanted;

static int take_one(void *user, const char *value, size_t length) {
  wanted *w = user;
  if (w->left-- > 0) return 0;
  snprintf(w->out, w->size, "%.*s", (int)length, value);
  return 1;
}

int32_t bs_knob_value(const bs_knob *knob, uint32_t index, char *out_text, size_t size, bs_error *err) {
  wanted w = {index, out_text, size};
  if (walk(knob->values, take_one, &w) == 1) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-KNOB", "value %u of knob %s: it has %u", index,
                      knob->name, bs_knob_count(knob));
}

static int same_one(void *user, const char *value, size_t length) {
  const char *text = user;
  return strlen(text) == length && memcmp(text, value, length) == 0;
}

int bs_knob_legal(const bs_knob *knob, const char *value) {
  return strcmp(value, "auto") == 0 || bs_knob_has(knob, value);
}

int bs_knob_has(const bs_knob *knob, const char *value) {
  return walk(knob->values, same_one, (void *)(uintptr_t)value) == 1;
}

/* ---- declarations --------------------------------------------------------------------------- */

static int name_valid(const char *name) {
  const size_t n = name != NULL ? strlen(name) : 0;
  if (n == 0 || n > MAX_NAME || name[0] < 'a' || name[0] > 'z') return 0;
  return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

int32_t bs_knobs_declared(const bs_knob *const *knobs, uint32_t n, const char *what, bs_error *err) {
  if (n > BS_MAX_KNOBS || (n > 0 && knobs == NULL))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-KNOB", "%s declares %u knobs%s, at most %d", what, n,
                        knobs == NULL ? " and no list of them" : "", BS_MAX_KNOBS);
  for (uint32_t i = 0; i < n; i++) {
    const bs_knob *k = knobs[i];
    const char *wrong = !name_valid(k->name)             ? "has no name of the form [a-z][a-z0-9_]{0,30}"
                        : bs_knob_count(k) == 0          ? "has no set of 1 to 4096 values"
                        : k->standard == NULL            ? "has no standard value"
                        : !bs_knob_legal(k, k->standard) ? "has a standard value outside its set"
                        : (k->flags & ~(uint32_t)BS_KNOB_BUILD) != 0 ? "has unknown flags"
                                                                     : NULL;
    for (uint32_t j = 0; wrong == NULL && j < i; j++)
      if (strcmp(knobs[j]->name, k->name) == 0) wrong = "is declared twice";
    if (wrong == NULL) continue;
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-KNOB", "knob %u of %s, '%.40s' = '%.100s' of '%.100s', %s", i,
                        what, k->name != NULL ? k->name : "", k->standard != NULL ? k->standard : "",
                        k->values != NULL ? k->values : "", wrong);
  }
  return BS_OK;
}

/* ---- settings ------------------------------------------------------------------------------- */

/* One "name=value" of settings. */
typedef struct setting {
  char name[MAX_NAME + 1];
  char value[BS_KNOB_VALUE];
} setting;

/* The next one: 1; 0 at the end, -1 when it has not the form. */
static int next_setting(const char **at, setting *out) {
  if (**at == '\0') return 0;
  const char *p = *at;
  const size_t whole = strcspn(p, ";"), name = strcspn(p, "=;");
  *at = p + whole + (p[whole] == ';');
  if (name == whole || name == 0 || name > MAX_NAME || whole - name - 1 >= BS_KNOB_VALUE || whole == name + 1)
    return -1;
  memcpy(out->name, p, name);
  out->name[name] = '\0';
  memcpy(out->value, p + name + 1, whole - name - 1);
  out->value[whole - name - 1] = '\0';
  return 1;
}

int bs_knob_said(const char *settings, const char *name, char value[BS_KNOB_VALUE]) {
  setting s;
  while (settings != NULL && next_setting(&settings, &s) == 1) {
    if (strcmp(s.name, name) != 0) continue;
    memcpy(value, s.value, sizeof s.value);
    return 1;
  }
  return 0;
}

/* The value of the set that is nearest to a wrong one: of numbers by distance, of words by spelling. */
typedef struct nearest {
  int64_t number;
  const char *word;
  double distance;
  char value[BS_KNOB_VALUE];
} nearest;

static int look_nearer(void *user, const char *value, size_t length) {
  nearest *n = user;
  char text[BS_KNOB_VALUE];
  int64_t number;
  snprintf(text, sizeof text, "%.*s", (int)length, value);
  if (n->word == NULL) {
    if (!bs_parse_i64(text, &number)) return 0;
    const double distance =
        number < n->number ? (double)n->number - (double)number : (double)number - (double)n->number;
    if (n->value[0] != '\0' && distance >= n->distance) return 0;
    n->distance = distance;
  } else {
    const char *const both[] = {text, n->value}; /* the better of the new one and the best so far */
    if (bs_nearest(n->word, both, n->value[0] != '\0' ? 2 : 1) != text) return 0;
  }
  memcpy(n->value, text, sizeof text);
  return 0;
}

int32_t bs_knob_refuse(const bs_knob *knob, const char *id, const char *what, const char *value,
                       bs_error *err) {
  nearest n = {.word = value};
  if (bs_parse_i64(value, &n.number)) n.word = NULL;
  (void)walk(knob->values, look_nearer, &n);
  bs_error_set(err, BS_CONFIG, id, "%s: %s=%.60s; legal are %.300s", what, knob->name, value, knob->values);
  if (n.value[0] != '\0')
    bs_error_hint(err, "the nearest is %s=%s", knob->name, n.value);
  else
    bs_error_hint(err, "the default is %s", knob->standard);
  return BS_CONFIG;
}

static int32_t unknown_knob(const bs_knob *const *knobs, uint32_t n, const char *what, const char *name,
                            bs_error *err) {
  const char *names[BS_MAX_KNOBS];
  bs_text all = {0};
  for (uint32_t i = 0; i < n; i++) {
    names[i] = knobs[i]->name;
    bs_text_printf(&all, "%s%s", i > 0 ? ", " : "", names[i]);
  }
  bs_error_set(err, BS_CONFIG, "BS-OP-KNOB", "%s has no knob '%.40s'; it has %.300s", what, name,
               all.data != NULL ? all.data : "none");
  const char *near = bs_nearest(name, names, n);
  if (near != NULL) bs_error_hint(err, "did you mean '%s'?", near);
  bs_text_free(&all);
  return BS_CONFIG;
}

static const bs_knob *find_knob(const bs_knob *const *knobs, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(knobs[i]->name, name) == 0) return knobs[i];
  return NULL;
}

int32_t bs_knobs_check(const bs_knob *const *knobs, uint32_t n, const char *what, const char *settings,
                       bs_error *err) {
  const char *at = settings;
  char before[BS_KNOB_VALUE];
  setting s;
  int got;
  while ((got = next_setting(&at, &s)) == 1) {
    const bs_knob *knob = find_knob(knobs, n, s.name);
    if (knob == NULL) return unknown_knob(knobs, n, what, s.name, err);
    if (!bs_knob_legal(knob, s.value)) return bs_knob_refuse(knob, "BS-OP-KNOB", what, s.value, err);
    if (bs_knob_said(at, s.name, before))
      return bs_error_set(err, BS_CONFIG, "BS-OP-KNOB", "%s: knob %s is given twice in '%.200s'", what,
                          s.name, settings);
  }
  if (got == 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-OP-KNOB", "%s: '%.200s' is not KNOB=VALUE;KNOB=VALUE", what, settings);
  return BS_CONFIG;
}

int bs_option_listed(const char *option_docs, const char *key) {
  size_t want = strlen(key);
  const char *line = option_docs;
  while (line != NULL && *line != '\0') {
    if (strcspn(line, "=:\n") == want && strncmp(line, key, want) == 0) return 1;
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

int32_t bs_method_check_options(const bs_method *method, uint32_t n, const char *const *keys,
                                const char *const *values, bs_error *err) {
  char what[96];
  snprintf(what, sizeof what, "method %.80s", method->name);
  for (uint32_t i = 0; i < n; i++) {
    const bs_knob *knob = find_knob(method->knobs, method->n_knobs, keys[i]);
    if (knob != NULL && !bs_knob_has(knob, values[i]))
      return bs_knob_refuse(knob, "BS-METHOD-OPTION", what, values[i], err);
  }
  return BS_OK;
}

/* ---- echoes --------------------------------------------------------------------------------- */

int32_t bs_knobs_echoed(const bs_op_impl *impl, const char *given, const bs_op_echo *echo, bs_error *err) {
  char asked[BS_KNOB_VALUE], told[BS_KNOB_VALUE];
  for (uint32_t i = 0; i < impl->n_knobs; i++) {
    const char *name = impl->knobs[i]->name;
    const int is_told = bs_knob_said(echo->knobs, name, told);
    const int is_asked = bs_knob_said(given, name, asked) && strcmp(asked, "auto") != 0;
    if (is_told && (!is_asked || strcmp(asked, told) == 0)) continue;
    if (is_asked)
      bs_error_set(err, BS_PLUGIN, "BS-OP-KNOB-ECHO", "asked %s=%s, the plan reports %s%s%s", name, asked,
                   is_told ? name : "nothing of it", is_told ? "=" : "", is_told ? told : "");
    else
      bs_error_set(err, BS_PLUGIN, "BS-OP-KNOB-ECHO", "the plan reports '%.200s', which lacks the knob %s",
                   echo->knobs, name);
    bs_error_where(err, "%s@%s/%s echo", impl->op, impl->backend, impl->name);
    bs_error_hint(err, "the knob does not reach the plan: what is measured with it is another plan");
    return BS_PLUGIN;
  }
  return BS_OK;
}

void bs_knobs_of_build(const bs_op_impl *impl, const bs_op_echo *echo, char *out, size_t size) {
  size_t used = 0;
  if (size > 0) out[0] = '\0';
  for (uint32_t i = 0; i < impl->n_knobs && used < size; i++) {
    char value[BS_KNOB_VALUE];
    if ((impl->knobs[i]->flags & BS_KNOB_BUILD) == 0) continue;
    if (!bs_knob_said(echo->knobs, impl->knobs[i]->name, value)) continue;
    used += (size_t)snprintf(out + used, size - used, "%s%s=%s", used > 0 ? ";" : "", impl->knobs[i]->name,
                             value);
  }
}
